"""The digest that names a code snapshot: equal content has an equal digest, on every machine."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

__all__ = ["digest_code"]


def digest_code(files: Iterable[tuple[str, bool, str]]) -> str:
    """The digest of a code folder from the path, the executable bit and the SHA-256 of each of its files."""
    lines = sorted(
        f"{path}\0{'x' if executable else '-'}\0{sha256}\n".encode() for path, executable, sha256 in files
    )
    return hashlib.sha256(b"".join(lines)).hexdigest()
