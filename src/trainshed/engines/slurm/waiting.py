"""Attempts that wait in Slurm: hundreds may, and the loop looks at all of them whenever one of them moves."""

from __future__ import annotations

from collections.abc import Callable

from trainshed.engines.engine import NodeObservation
from trainshed.engines.slurm.answers import QueuedJob
from trainshed.engines.slurm.attempt_folder import AttemptFolder, Submission
from trainshed.model.errors import Unavailable

__all__ = ["WaitingAttempts"]


class WaitingAttempts:
    """What was seen of attempts that wait, by their names in Slurm, and what Slurm had said of them."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[list[QueuedJob], list[NodeObservation]]] = {}

    def remember(self, submission: Submission, jobs: list[QueuedJob], seen: list[NodeObservation]) -> None:
        """Remember what was seen when Slurm said this."""
        self._known[submission.name] = jobs, seen

    def find(
        self, folder: AttemptFolder, submission: Submission, ask: Callable[[Submission], list[QueuedJob]]
    ) -> list[NodeObservation] | None:
        """What was seen, the very same list, if Slurm says the same still and nobody has been in the folders."""
        known = self._known.get(submission.name)
        if known is None:
            return None
        try:
            if ask(submission) == known[0] and folder.is_untouched(submission.nodes):
                return known[1]
        except Unavailable:
            pass
        del self._known[submission.name]
        return None

    def forget(self, submission: Submission) -> None:
        """An attempt that is over waits no more, also one of which Slurm was not asked again."""
        self._known.pop(submission.name, None)
