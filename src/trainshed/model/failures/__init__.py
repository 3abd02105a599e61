"""The catalogue of known failures, most specific first."""

from __future__ import annotations

from trainshed.model.failures.devices import DEVICE_FAILURES
from trainshed.model.failures.known_failure import KnownFailure
from trainshed.model.failures.packages import PACKAGE_FAILURES
from trainshed.model.failures.ranks import RANK_FAILURES
from trainshed.model.failures.scripts import SCRIPT_FAILURES

__all__ = ["KNOWN_FAILURES", "KnownFailure"]

KNOWN_FAILURES: tuple[KnownFailure, ...] = (
    *PACKAGE_FAILURES,
    *RANK_FAILURES,
    *DEVICE_FAILURES,
    *SCRIPT_FAILURES,
)
