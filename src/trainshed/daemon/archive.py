"""The form of a backup: one tar file whose last member lists the checksums of all others.

home.json, settings.toml, master.key, client.json     small files of the home
tls/…                                                 the platform's own CA and certificate
database.sqlite                                       the embedded database
store/index.sqlite, store/blobs/xx/…                  the object store
manifest.json                                         format, version, time, name -> [size, sha256]
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import tarfile
import zlib
from pathlib import Path
from typing import IO, Any

from trainshed.model.errors import InvalidInput, NotFound

__all__ = ["ARCHIVE_FORMAT", "SMALL_FILES", "ArchiveWriter", "unpack_archive"]

ARCHIVE_FORMAT = 1
SMALL_FILES = (
    "home.json",
    "settings.toml",
    "master.key",
    "client.json",
    "store.json",
    "tls/ca.pem",
    "tls/ca.key",
    "tls/server.pem",
    "tls/server.key",
)
_MANIFEST = "manifest.json"
# The only names that a backup may hold: an archive is input, and may come from anywhere.
_NAME = re.compile(
    r"home\.json|settings\.toml|master\.key|client\.json|store\.json|database\.sqlite|store/index\.sqlite"
    r"|tls/(ca|server)\.(pem|key)"
    r"|store/blobs/[0-9a-f]{2}/[0-9a-f]{4,64}"
)
_CHUNK = 1 << 20


class _Hashed(io.RawIOBase):
    """A file that hashes what is read from it."""

    def __init__(self, source: IO[bytes]) -> None:
        super().__init__()
        self._source = source
        self._digest = hashlib.sha256()
        self._size = 0

    def read(self, size: int = -1) -> bytes:
        """The next bytes of the file."""
        data = self._source.read(size)
        self._digest.update(data)
        self._size += len(data)
        return data

    def checksum(self) -> list[int | str]:
        """Size and SHA-256 of what was read."""
        return [self._size, self._digest.hexdigest()]


class ArchiveWriter:
    """Writes members one after the other, and the manifest at the end."""

    def __init__(self, file: IO[bytes], *, compressed: bool) -> None:
        self._tar = tarfile.TarFile.open(
            fileobj=file, mode="w|gz" if compressed else "w|", format=tarfile.PAX_FORMAT
        )
        self._checksums: dict[str, list[int | str]] = {}

    def add(self, name: str, path: Path) -> int:
        """Add a file under that name; returns its size."""
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name} is not part of a backup")
        with path.open("rb") as source:
            hashed = _Hashed(source)
            self._add(name, os.fstat(source.fileno()).st_size, hashed)
        self._checksums[name] = hashed.checksum()
        return int(hashed.checksum()[0])

    def finish(self, facts: dict[str, Any]) -> None:
        """Write the manifest and close the archive (not the file below it)."""
        data = json.dumps({"format": ARCHIVE_FORMAT, **facts, "files": self._checksums}).encode()
        self._add(_MANIFEST, len(data), io.BytesIO(data))
        self._tar.close()

    def _add(self, name: str, size: int, source: Any) -> None:
        member = tarfile.TarInfo(name)
        member.size = size
        member.mode = 0o600
        self._tar.addfile(member, source)


def unpack_archive(path: Path, folder: Path) -> dict[str, Any]:
    """Unpack a backup into an empty folder and return its manifest; a damaged archive is refused.

    Only when this returns is the folder's content what once was written.
    """
    found: dict[str, list[int | str]] = {}
    manifest: Any = None
    try:
        with tarfile.open(path, mode="r|*") as tar:
            for member in tar:
                source = tar.extractfile(member) if member.isreg() else None
                if source is None or manifest is not None or member.name in found:
                    raise _damaged(path, f"'{member.name[:80]}' does not belong there")
                if member.name == _MANIFEST:
                    manifest = json.loads(source.read())
                elif _NAME.fullmatch(member.name):
                    found[member.name] = _unpack(source, folder / member.name)
                else:
                    raise _damaged(path, f"'{member.name[:80]}' does not belong there")
    except FileNotFoundError:
        raise NotFound(
            f"There is no file {path}.", hint="Name a file that `trainshed backup` wrote."
        ) from None
    except (tarfile.TarError, EOFError, zlib.error, ValueError) as fault:
        raise _damaged(path, str(fault)) from None
    if not isinstance(manifest, dict):
        raise _damaged(path, "its end is missing")
    if manifest.get("format") != ARCHIVE_FORMAT:
        raise InvalidInput(
            f"{path} has a form that this version does not know.",
            hint="Restore it with the version of Trainshed that wrote it, or a later one.",
            code="unknown_backup",
        )
    files = manifest.get("files")
    if files != found:
        names = sorted(set(found) ^ set(files)) if isinstance(files, dict) else []
        wrong = names or [name for name in found if isinstance(files, dict) and files[name] != found[name]]
        raise _damaged(path, f"'{wrong[0] if wrong else _MANIFEST}' is not what was written")
    return manifest


def _unpack(source: IO[bytes], target: Path) -> list[int | str]:
    hashed = _Hashed(source)
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    mode = 0o400 if "blobs" in target.parts[-3:] else 0o600
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "wb") as file:
        while piece := hashed.read(_CHUNK):
            file.write(piece)
    return hashed.checksum()


def _damaged(path: Path, reason: str) -> InvalidInput:
    return InvalidInput(
        f"{path} is damaged or no backup: {reason.rstrip('.')}. Nothing was changed.",
        hint="Use another backup.",
        code="damaged_backup",
    )
