"""Style, scripts and pictures: served with an address that changes with their content, kept by browsers."""

from __future__ import annotations

import hashlib
from pathlib import Path

from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

__all__ = ["CachedFiles", "fingerprint_files"]

FOLDER = Path(__file__).parent / "static"


def fingerprint_files(folder: Path = FOLDER) -> str:
    """A short word that changes when any of the files does."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(folder)}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:12]


class CachedFiles(StaticFiles):
    """The static files. One that was asked for by its fingerprint never changes, so it may be kept for good."""

    def __init__(self, fingerprint: str) -> None:
        super().__init__(directory=FOLDER)
        self._query = f"v={fingerprint}".encode()

    async def get_response(self, path: str, scope: Scope) -> Response:
        """The file, with how long it may be kept."""
        response = await super().get_response(path, scope)
        known = scope.get("query_string", b"") == self._query
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable" if known else "no-cache"
        return response
