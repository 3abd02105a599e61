"""A local code folder, made ready for upload: its files, its digest and a tar of it."""

from __future__ import annotations

import hashlib
import os
import stat
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from trainshed.client.ignore_rules import IgnoreRules, parse_ignore_rules
from trainshed.model.code_digest import digest_code
from trainshed.model.errors import Conflict, InvalidInput, NotFound, suggest

__all__ = ["IGNORE_FILE", "LARGE_BYTES", "CodeFile", "CodeFolder", "scan_code_folder"]

IGNORE_FILE = ".trainshedignore"
# Above this a code folder most likely holds data or checkpoints by mistake.
LARGE_BYTES = 500 * 1000 * 1000
_CHUNK = 1 << 20


@dataclass(frozen=True)
class CodeFile:
    """One file of the code folder. `source` is where its bytes are read (behind a link, if it is one)."""

    path: str
    source: Path
    executable: bool
    size: int
    sha256: str


@dataclass(frozen=True)
class CodeFolder:
    """The files of a code folder as they were when it was scanned."""

    root: Path
    files: tuple[CodeFile, ...]
    digest: str

    @property
    def size(self) -> int:
        """The bytes of all files together."""
        return sum(file.size for file in self.files)

    def largest(self, count: int = 3) -> list[CodeFile]:
        """The largest files, to name them when the folder is too large."""
        return sorted(self.files, key=lambda file: -file.size)[:count]

    def tar(self) -> Iterator[bytes]:
        """The folder as a tar, piece by piece; a file that changed since the scan is refused."""
        for file in self.files:
            header = tarfile.TarInfo(file.path)
            header.size = file.size
            header.mode = 0o755 if file.executable else 0o644
            yield header.tobuf(tarfile.PAX_FORMAT)
            yield from self._content(file)
            yield b"\0" * (-file.size % 512)
        yield b"\0" * 1024

    def _content(self, file: CodeFile) -> Iterator[bytes]:
        seen = hashlib.sha256()
        left = file.size
        with _opened(file.source, file.path) as source:
            while left and (piece := source.read(min(_CHUNK, left))):
                seen.update(piece)
                left -= len(piece)
                yield piece
            grown = source.read(1)
        if left or grown or seen.hexdigest() != file.sha256:
            raise Conflict(
                f"The file '{file.path}' changed while it was uploaded.",
                hint="Nothing was submitted; submit again when nothing writes into the code folder.",
                code="code_changed",
                where=str(file.source),
            )


def scan_code_folder(folder: str | Path, boot: str = "") -> CodeFolder:
    """Read a code folder and digest it; a missing boot file or an unusable file is refused by name."""
    root = Path(folder).expanduser()
    if not root.is_dir():
        what = "is a file, not a folder" if root.exists() else "does not exist"
        raise NotFound(
            f"The code folder '{folder}' {what}.",
            hint="Give the folder that holds the boot file.",
            code="no_code_folder",
            where="code",
        )
    root = root.resolve()
    rules = _read_rules(root)
    files = tuple(sorted(_scan(root, root, "", rules, frozenset({root})), key=lambda file: file.path))
    if boot and boot not in (file.path for file in files):
        _refuse_boot(root, boot, files)
    digest = digest_code((file.path, file.executable, file.sha256) for file in files)
    return CodeFolder(root, files, digest)


def _refuse_boot(root: Path, boot: str, files: tuple[CodeFile, ...]) -> None:
    if (root / boot).is_file():
        raise InvalidInput(
            f"The boot file '{boot}' is left out by {IGNORE_FILE}.",
            hint=f"Add a line '!{boot}' to {IGNORE_FILE}.",
            where="boot",
        )
    scripts = [file.path for file in files if file.path.endswith((".py", ".sh"))]
    raise NotFound(
        f"The boot file '{boot}' is not in the code folder {root}.",
        hint=suggest(boot, scripts[:50]) or "The folder holds no .py or .sh file.",
        code="no_boot_file",
        where="boot",
    )


def _read_rules(root: Path) -> IgnoreRules:
    path = root / IGNORE_FILE
    if not path.is_file():
        return parse_ignore_rules("")
    with _opened(path, IGNORE_FILE) as file:
        return parse_ignore_rules(file.read().decode("utf-8", errors="replace"))


def _scan(
    root: Path, folder: Path, prefix: str, rules: IgnoreRules, above: frozenset[Path]
) -> Iterator[CodeFile]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as fault:
        raise _unreadable(fault, prefix or ".", folder) from None
    for entry in entries:
        path = prefix + entry.name
        real = Path(entry.path)
        if entry.is_symlink():
            if rules.ignores(path, is_folder=False) or rules.ignores(path, is_folder=True):
                continue
            real = _follow(root, real, path)
        is_folder = real.is_dir()
        if rules.ignores(path, is_folder):
            continue
        _check_name(path)
        if is_folder:
            place = real.resolve()
            if place in above:
                raise InvalidInput(
                    f"The link '{path}' leads back into a folder above it.",
                    hint=_leave_out(path),
                    where="code",
                )
            yield from _scan(root, real, path + "/", rules, above | {place})
        else:
            yield _read_file(real, path)


def _follow(root: Path, link: Path, path: str) -> Path:
    try:
        target = link.resolve(strict=True)
    except (OSError, RuntimeError):
        raise InvalidInput(
            f"The link '{path}' points to nothing ({os.readlink(link)}).", hint=_leave_out(path), where="code"
        ) from None
    if not target.is_relative_to(root):
        raise InvalidInput(
            f"The link '{path}' leads out of the code folder ({os.readlink(link)}).",
            hint=f"Copy what it points to, or pass data as an input. {_leave_out(path)}",
            code="link_leads_out",
            where="code",
        )
    return target


def _read_file(source: Path, path: str) -> CodeFile:
    status = source.stat()
    if not stat.S_ISREG(status.st_mode):
        raise InvalidInput(f"'{path}' is not a regular file.", hint=_leave_out(path), where="code")
    seen = hashlib.sha256()
    size = 0
    with _opened(source, path) as file:
        while piece := file.read(_CHUNK):
            seen.update(piece)
            size += len(piece)
    return CodeFile(path, source, bool(status.st_mode & stat.S_IXUSR), size, seen.hexdigest())


def _check_name(path: str) -> None:
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        shown = path.encode("utf-8", "replace").decode()
        raise InvalidInput(
            f"The file name '{shown}' is not UTF-8.", hint="Rename the file, or leave it out.", where="code"
        ) from None
    if "\\" in path:
        raise InvalidInput(
            f"The file name '{path}' holds a backslash.",
            hint="Rename the file, or leave it out.",
            where="code",
        )


def _opened(source: Path, path: str) -> BinaryIO:
    """A file opened for reading; a refusal of the system names the file as the user knows it."""
    try:
        # Not blocking on a FIFO that took a file's place (Windows has no such flag, and needs O_BINARY).
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        return os.fdopen(os.open(source, flags), "rb")
    except OSError as fault:
        raise _unreadable(fault, path, source) from None


def _unreadable(fault: OSError, path: str, source: Path) -> InvalidInput:
    return InvalidInput(
        f"'{path}' cannot be read: {(fault.strerror or 'unknown').lower()}.",
        hint=f"Make it readable. {_leave_out(path)}",
        code="unreadable_file",
        where=str(source),
    )


def _leave_out(path: str) -> str:
    return f"To leave it out, add '/{path}' to {IGNORE_FILE} in the code folder."
