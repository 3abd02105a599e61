"""Whether the bytes of a file are those of an object: its ETag compared, also that of one that came in parts."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence

from trainshed.model.errors import NotFound, Unavailable
from trainshed.store.object_store import ObjectInfo, ObjectStore

__all__ = ["has_bytes_of", "require_bytes_of"]

_CHUNK = 1 << 20
_TICK = 64 << 20


def require_bytes_of(
    store: ObjectStore, info: ObjectInfo, file: int, tick: Callable[[], None] = lambda: None
) -> None:
    """Refuse a copy that is not the object; the file need not be open for reading. `tick` is called now and then,
    and ends it by raising."""
    reader = os.open(f"/proc/self/fd/{file}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if has_bytes_of(store, info, reader, tick):
            return
    finally:
        os.close(reader)
    raise Unavailable(
        f"The copy of '{info.key}' in the bucket '{info.bucket}' is not what was stored.",
        hint="`trainshed obs verify` finds what is damaged in the store; upload the object again.",
        code="checksum_mismatch",
    )


def has_bytes_of(
    store: ObjectStore, info: ObjectInfo, file: int, tick: Callable[[], None] = lambda: None
) -> bool:
    """Whether a file that is open for reading has the very bytes of an object. (What cannot be compared, an
    object that is appended to, is compared by its size.)"""
    if os.fstat(file).st_size != info.size:
        return False
    if "-" not in info.etag:
        return _md5(file, 0, info.size, tick) == info.etag
    sizes = _piece_sizes(store, info)
    if sum(sizes) != info.size or not info.etag.endswith(f"-{len(sizes)}"):
        return True
    digests, offset = b"", 0
    for size in sizes:
        digests += bytes.fromhex(_md5(file, offset, size, tick))
        offset += size
    return f"{hashlib.md5(digests, usedforsecurity=False).hexdigest()}-{len(sizes)}" == info.etag


def _piece_sizes(store: ObjectStore, info: ObjectInfo) -> Sequence[int]:
    if info.is_appendable:
        return ()
    try:
        return store.piece_sizes(info.bucket, info.key)
    except NotFound:
        # Removed meanwhile.
        return ()


def _md5(file: int, start: int, size: int, tick: Callable[[], None]) -> str:
    md5, end = hashlib.md5(usedforsecurity=False), start + size
    while start < end and (data := os.pread(file, min(_CHUNK, end - start), start)):
        md5.update(data)
        start += len(data)
        if not start % _TICK:
            tick()
    return md5.hexdigest()
