"""Whether anybody has committed anything to a database since one last looked, for next to nothing.

SQLite keeps, beside a database with a write-ahead log, a file that all its processes map into their memory. That file
begins with a header which every commit changes (https://www.sqlite.org/walformat.html). SQLite itself looks there for
`PRAGMA data_version`; to look there directly needs no statement, no lock and no system call.

The memory that is looked at is the mapping that SQLite has made for a connection of our own. To open the file a second
time would be dangerous: closing it would drop all of SQLite's locks on it.
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
import struct
from pathlib import Path

__all__ = ["CommitWatch", "count_commits"]

# The header stands there twice; while a commit writes it, the two differ.
_HEADER = 48
_TwoHeaders = ctypes.c_char * (2 * _HEADER)
_COUNT = struct.Struct("=8xI")


class CommitWatch:
    """Looks at one database, with a connection of its own that keeps SQLite's mapping alive. Not to be used after a
    fork: make another one."""

    def __init__(self, path: str | Path) -> None:
        self._address, self._process = 0, os.getpid()
        self._connection = sqlite3.connect(
            f"{Path(path).absolute().as_uri()}?mode=rw",
            uri=True,
            isolation_level=None,
            check_same_thread=False,
        )
        if self._connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal":
            # Only reading opens the log.
            self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            self._address = _find_mapping(f"{path}-shm")

    def state(self) -> bytes | None:
        """What is different after every commit of anybody; None when it cannot be told."""
        if not self._address or self._process != os.getpid():
            return None
        both: bytes = _TwoHeaders.from_address(self._address).raw
        return both[:_HEADER] if both[:_HEADER] == both[_HEADER:] else None

    def ask(self) -> int:
        """The same by a statement, for databases without such a log."""
        found: int = self._connection.execute("PRAGMA data_version").fetchone()[0]
        return found

    def __del__(self) -> None:
        connection = getattr(self, "_connection", None)
        self._address = 0
        if connection is not None and self._process == os.getpid():
            connection.close()


def count_commits(state: bytes) -> int:
    """The counter in a state, which every commit raises by one."""
    found: int = _COUNT.unpack_from(state)[0]
    return found


def _find_mapping(path: str) -> int:
    """Where the beginning of a file lies in our memory; 0 if it does not."""
    try:
        known = os.stat(path)
        device = f"{os.major(known.st_dev):02x}:{os.minor(known.st_dev):02x}"
        with Path("/proc/self/maps").open(encoding="utf-8", errors="replace") as maps:
            for line in maps:
                addresses, rights, offset, where, inode = line.split(maxsplit=5)[:5]
                if int(inode) == known.st_ino and where == device and int(offset, 16) == 0 and "s" in rights:
                    return int(addresses.partition("-")[0], 16)
    except (OSError, ValueError):
        pass
    return 0
