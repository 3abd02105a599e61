"""One object on its way into the embedded store."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

from trainshed.model.errors import InvalidInput, TrainshedError
from trainshed.store.embedded.blobs import BlobWriter
from trainshed.store.embedded.index import Row
from trainshed.store.embedded.transactions import UNCERTAIN
from trainshed.store.object_store import ObjectInfo

__all__ = ["EmbeddedUpload"]


class EmbeddedUpload:
    """Takes bytes until `commit`; leaving the `with` block without it discards them."""

    def __init__(
        self,
        commit_row: Callable[[Row, Sequence[Path]], None],
        blob: BlobWriter,
        bucket: str,
        key: str,
        content_type: str,
        metadata: dict[str, str],
    ) -> None:
        self._commit_row = commit_row
        self._blob = blob
        self._about = (bucket, key, content_type, metadata)
        self._is_over = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Take the next bytes."""
        self._blob.write(data)

    def commit(self, *, expected_md5: str = "", expected_sha256: str = "") -> ObjectInfo:
        """Make the object visible and durable, in place of the one that had its key."""
        blob = self._blob
        bucket, key, content_type, metadata = self._about
        self._is_over = True
        try:
            _check_digest("MD5", blob.md5, expected_md5)
            if expected_sha256:
                _check_digest("SHA-256", blob.sha256, expected_sha256)
            folders = blob.publish()
        except BaseException:
            blob.discard()
            raise
        info = ObjectInfo(bucket, key, blob.size, blob.md5, time.time(), content_type, metadata)
        try:
            self._commit_row(Row(info, blob.id, blob.sha256), folders)
        except TrainshedError as error:
            # When nobody can say whether the row was committed, the blob must stay: once this process is
            # gone, the sweep asks the index and knows. The same holds for an interrupt, which is not caught.
            if error.code not in UNCERTAIN:
                blob.discard()
            raise
        blob.settle()
        return info

    def abort(self) -> None:
        """Discard what was written. Does nothing after `commit`."""
        if not self._is_over:
            self._is_over = True
            self._blob.discard()

    def __enter__(self) -> EmbeddedUpload:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.abort()


def _check_digest(kind: str, actual: str, expected: str) -> None:
    if expected and actual != expected.lower():
        raise InvalidInput(
            f"The {kind} of what arrived is {actual}, but {expected[:80]} was announced; nothing was stored.",
            hint="The data was changed on its way: send it again.",
            code="checksum_mismatch",
        )
