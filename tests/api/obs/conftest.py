"""The store process that these tests talk to."""

from __future__ import annotations

import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

# Tests are no package; what several rooms share is loaded by its path.
_loader = SourceFileLoader("store_server", str(Path(__file__).parents[2] / "store_server.py"))
_shared = sys.modules["store_server"] = ModuleType("store_server")
_loader.exec_module(_shared)

server = _shared.server
blobs = _shared.blobs
