"""Objects that are committed together: many small ones cost little more than one.

Each is made durable as if it came alone (see `blobs`), but the disk is asked for all of them at once, and the folder's
sync and the index's transaction are shared. What one thread does for many also keeps as many threads from waiting for
each other.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainshed.model.errors import TrainshedError
from trainshed.store.embedded import index, quotas
from trainshed.store.embedded.blob_file import BlobWriter
from trainshed.store.embedded.bucket_rows import find_bucket
from trainshed.store.embedded.garbage import release
from trainshed.store.embedded.group_sync import sync_together
from trainshed.store.embedded.upload import Reception, Sink
from trainshed.store.object_store import Condition, ObjectInfo

__all__ = ["ObjectReception", "WholeObject", "commit_together", "put_objects"]


Wanted = tuple[index.Row, Condition | None]
# What an object is now, and the blobs that nothing needs any more.
Written = tuple[ObjectInfo, list[str]]
CommitRows = Callable[[Sequence[Wanted], Iterable[Path]], Sequence[ObjectInfo | TrainshedError]]


@dataclass(frozen=True)
class WholeObject:
    """An object with all its bytes, which nobody sees yet."""

    reception: ObjectReception
    expected_md5: str
    expected_sha256: str
    attributes: dict[str, str]


class ObjectReception(Reception[ObjectInfo]):
    """An object on its way in, to be committed alone or together with others."""

    def __init__(
        self,
        blob: BlobWriter,
        describe: Callable[[BlobWriter, dict[str, str]], index.Row],
        condition: Condition | None,
        commit_rows: CommitRows,
    ) -> None:
        def record(sink: Sink, folders: Sequence[Path], late: dict[str, str]) -> ObjectInfo:
            (outcome,) = commit_rows([(describe(blob, late), condition)], folders)
            if isinstance(outcome, TrainshedError):
                raise outcome
            return outcome

        super().__init__(blob, record)
        self.blob = blob
        self.describe = describe
        self.condition = condition
        self.commit_rows = commit_rows

    def write_last(self, data: bytes | bytearray | memoryview) -> None:
        """Take the last bytes, which nobody may change until the object is committed: they are hashed only then."""
        self.blob.write_last(data)

    def finish(
        self,
        *,
        expected_md5: str = "",
        expected_sha256: str = "",
        attributes: dict[str, str] | None = None,
    ) -> WholeObject:
        """End the object; `commit_together` makes it visible."""
        self._is_over = True
        self.blob.name_early()
        return WholeObject(self, expected_md5, expected_sha256, attributes or {})


def commit_together(objects: Sequence[WholeObject]) -> list[ObjectInfo | Exception]:
    """Make objects of one store visible and durable, each as `commit` would: what it is then, or why it is not."""
    outcomes: list[ObjectInfo | Exception | None] = [None] * len(objects)
    synced = _sync_all([one.reception.blob for one in objects])
    ready: list[int] = []
    wanted: list[Wanted] = []
    folders: set[Path] = set()
    for number, one in enumerate(objects):
        reception = one.reception
        try:
            folders.update(reception.publish(one.expected_md5, one.expected_sha256))
            wanted.append((reception.describe(reception.blob, one.attributes), reception.condition))
            ready.append(number)
        except Exception as error:
            outcomes[number] = error
    folders -= synced
    if wanted:
        results: Sequence[ObjectInfo | Exception]
        try:
            results = objects[0].reception.commit_rows(wanted, folders)
        except Exception as error:
            results = [error] * len(wanted)
        for number, result in zip(ready, results, strict=True):
            outcomes[number] = result
            objects[number].reception.conclude(result)
    return [outcome for outcome in outcomes if outcome is not None]


def _sync_all(blobs: Sequence[BlobWriter]) -> set[Path]:
    """Make files and their names durable; returns the folders that are."""
    written = [blob for blob in blobs if blob.descriptor >= 0]
    folders: dict[Path, int] = {}
    try:
        for folder in {folder for blob in written for folder in blob.early_folders}:
            # One that cannot be opened is tried again, and explained, before the transaction.
            with contextlib.suppress(OSError):
                folders[folder] = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        errors = sync_together(
            [*(blob.descriptor for blob in written), *folders.values()], lambda: _hash_all(written)
        )
    finally:
        for descriptor in folders.values():
            os.close(descriptor)
    for blob, error in zip(written, errors, strict=False):
        blob.note_sync(error)
    return {folder for folder, error in zip(folders, errors[len(written) :], strict=True) if error is None}


def _hash_all(blobs: Sequence[BlobWriter]) -> None:
    """Hash what is still to be hashed: the disk works in the meantime, and so does whoever takes the next objects."""
    for blob in blobs:
        blob.hash_rest()


def put_objects(connection: sqlite3.Connection, wanted: Sequence[Wanted]) -> list[Written | TrainshedError]:
    """Write the rows of several objects; one that is refused does not keep the others from being written."""
    connection.execute("SAVEPOINT many")
    try:
        results = _put_at_once(connection, wanted)
        if results is None:
            results = [index.put_object(connection, row, condition) for row, condition in wanted]
    except TrainshedError:
        # Seldom: marking every single row costs as much as writing it.
        connection.execute("ROLLBACK TO many")
        results = [_put_marked(connection, row, condition) for row, condition in wanted]
    connection.execute("RELEASE many")
    return results


def _put_at_once(
    connection: sqlite3.Connection, wanted: Sequence[Wanted]
) -> list[Written | TrainshedError] | None:
    """The same in two statements, if nothing has to be judged row by row; None if something has.

    Every statement of its own means several times passing Python's lock on to another thread, and getting it back.
    """
    name = wanted[0][0].info.bucket
    keys = {row.info.key.encode() for row, _ in wanted}
    if len(keys) < len(wanted) or any(condition or row.info.bucket != name for row, condition in wanted):
        return None
    number, bucket = find_bucket(connection, name)
    if bucket.versioning or quotas.read_quota(connection, bucket.workspace_id) != (0, 0):
        return None
    marks = ", ".join("?" * len(keys))
    replaced = connection.execute(
        f"SELECT blob FROM objects WHERE bucket_id = ? AND key IN ({marks})", (number, *keys)
    ).fetchall()
    rows = ", ".join([index.ROW_MARKS] * len(wanted))
    connection.execute(
        f"INSERT OR REPLACE INTO objects (bucket_id, {index.COLUMNS}) VALUES {rows}",
        [value for row, _ in wanted for value in index.row_values(number, row)],
    )
    results: list[Written | TrainshedError] = [(row.info, []) for row, _ in wanted]
    # Whose they were does not matter: all are removed after the commit.
    results[0] = (wanted[0][0].info, release(connection, [blob for (blob,) in replaced]))
    return results


def _put_marked(
    connection: sqlite3.Connection, row: index.Row, condition: Condition | None
) -> Written | TrainshedError:
    connection.execute("SAVEPOINT single")
    try:
        result: Written | TrainshedError = index.put_object(connection, row, condition)
    except TrainshedError as error:
        result = error
        connection.execute("ROLLBACK TO single")
    connection.execute("RELEASE single")
    return result
