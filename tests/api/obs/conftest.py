"""The store process that these tests talk to."""

from __future__ import annotations

import sys
import warnings
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

# The clients warn about themselves while they are imported; that is theirs to mend.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import boto3.s3.transfer
    import obs
    import obs.crypto_client

__all__ = ["blobs", "boto3", "obs", "server"]

# Tests are no package; what several rooms share is loaded by its path.
_loader = SourceFileLoader("store_server", str(Path(__file__).parents[2] / "store_server.py"))
_shared = sys.modules["store_server"] = ModuleType("store_server")
_loader.exec_module(_shared)

server = _shared.server
blobs = _shared.blobs
