"""Bodies in the aws-chunked encoding: signed chunk by chunk or not, with trailers or without."""

from __future__ import annotations

import base64
import hashlib
import hmac
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from s3_table.case import Answer, Case
from s3_table.signing import EMPTY_SHA256, Scope, sign_v4
from s3_table.stage import Stage, uploading

__all__ = ["CASES"]

_SIGNED = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
_SIGNED_TRAILER = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"
_UNSIGNED_TRAILER = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
_CHUNKS = [b"a" * 9000, b"b" * 70_000, b"the end"]
_DATA = b"".join(_CHUNKS)
_CRC32 = base64.b64encode(zlib.crc32(_DATA).to_bytes(4, "big")).decode()


@dataclass(frozen=True)
class Form:
    """How a body is framed, and what is wrong with it."""

    kind: str
    trailer: str = ""
    # Changes the bytes after they were framed and signed.
    spoil: Callable[[bytes], bytes] = bytes
    size: int = len(_DATA)
    # What is announced as a trailer, where that is not what comes.
    announced: str = ""
    is_sized: bool = True


def _send(stage: Stage, form: Form, query: list[tuple[str, str]] | None = None) -> Answer:
    pair, path = stage.target.keys["dev"], stage.path(stage.key)
    headers = {"host": stage.target.host, "content-encoding": "aws-chunked"}
    if form.is_sized:
        headers["x-amz-decoded-content-length"] = str(form.size)
    trailer = form.announced or form.trailer.partition(":")[0]
    if trailer:
        headers["x-amz-trailer"] = trailer
    sent = sign_v4(pair, "PUT", path, query or [], headers, form.kind)
    body = _frame(stage, form, sent)
    text = "&".join(f"{name}={value}" for name, value in query or [])
    return stage.target.send(
        "PUT", path + ("?" + text if text else ""), {**sent, "content-length": str(len(body))}, body
    )


def _frame(stage: Stage, form: Form, sent: dict[str, str]) -> bytes:
    moment = sent["x-amz-date"]
    scope = Scope().text(moment)
    key = f"AWS4{stage.target.keys['dev'].secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = sent["authorization"].rpartition("Signature=")[2]
    is_signed = form.kind != _UNSIGNED_TRAILER

    def sign(kind: str, *digests: str) -> str:
        text = "\n".join((f"AWS4-HMAC-SHA256-{kind}", moment, scope, signature, *digests))
        return hmac.digest(key, text.encode(), "sha256").hex()

    body = b""
    for chunk in [*_CHUNKS, b""]:
        line = f"{len(chunk):x}"
        if is_signed:
            signature = sign("PAYLOAD", EMPTY_SHA256, hashlib.sha256(chunk).hexdigest())
            line += f";chunk-signature={signature}"
        body += line.encode() + b"\r\n" + (chunk + b"\r\n" if chunk else b"")
    if form.trailer:
        body += f"{form.trailer}\r\n".encode()
        if is_signed:
            signature = sign("TRAILER", hashlib.sha256(f"{form.trailer}\n".encode()).hexdigest())
            body += f"x-amz-trailer-signature:{signature}\r\n".encode()
    return form.spoil(body + b"\r\n")


def _put(**form: Any) -> Any:
    return lambda s: _send(s, Form(**form))


def _replace(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    return lambda body: body.replace(old, new, 1)


def _whole(s: Stage, a: Answer) -> tuple[object, object]:
    return hashlib.md5(s.read(s.key)).hexdigest(), hashlib.md5(_DATA).hexdigest()


def _nothing(s: Stage, a: Answer) -> tuple[object, object]:
    return s.dev.head_object(Key=s.key).status, 404


_CHECKSUM = f"x-amz-checksum-crc32:{_CRC32}"
_OTHER = "x-amz-checksum-crc32:AAAAAA=="
_S, _T, _U = "Signed chunks", "Signed chunks with a trailer", "Unsigned chunks with a trailer"

CASES = [
    Case(_S, "right ones", _put(kind=_SIGNED), then=_whole),
    Case(
        _S,
        "the encoding is not kept",
        _put(kind=_SIGNED),
        then=lambda s, a: (s.dev.head_object(Key=s.key).get("ContentEncoding"), None),
    ),
    Case(
        _S,
        "a part of an upload",
        lambda s: _send(s, Form(_SIGNED), [("partNumber", "1"), ("uploadId", s.notes["upload"])]),
        before=(uploading,),
        then=lambda s, a: (a.headers["etag"], f'"{hashlib.md5(_DATA).hexdigest()}"'),
    ),
    Case(
        _S,
        "bytes that were changed",
        _put(kind=_SIGNED, spoil=_replace(b"the end", b"the and")),
        403,
        "SignatureDoesNotMatch",
        then=_nothing,
    ),
    Case(
        _S,
        "bytes of the first chunk that were changed",
        _put(kind=_SIGNED, spoil=_replace(b"aaa", b"aba")),
        403,
        "SignatureDoesNotMatch",
        then=_nothing,
    ),
    Case(
        _S,
        "a chunk's signature that was changed",
        _put(kind=_SIGNED, spoil=lambda body: body[:-10] + b"0000" + body[-6:]),
        403,
        "SignatureDoesNotMatch",
        then=_nothing,
    ),
    Case(
        _S,
        "no signatures",
        _put(kind=_SIGNED, spoil=_replace(b";chunk-signature=", b";other=")),
        403,
        "SignatureDoesNotMatch",
        then=_nothing,
    ),
    Case(
        _S,
        "another length than was told",
        _put(kind=_SIGNED, size=len(_DATA) + 1),
        400,
        "IncompleteBody",
        then=_nothing,
    ),
    Case(
        _S, "no length told", _put(kind=_SIGNED, is_sized=False), 411, "MissingContentLength", then=_nothing
    ),
    Case(
        _S,
        "the last chunk is missing",
        _put(kind=_SIGNED, spoil=lambda body: body[: body.rindex(b"0;chunk")]),
        400,
        "IncompleteBody",
        then=_nothing,
    ),
    Case(
        _S,
        "no chunks at all",
        _put(kind=_SIGNED, spoil=lambda body: b"plain bytes\r\n"),
        400,
        "InvalidRequest",
        then=_nothing,
    ),
    Case(_T, "right ones", _put(kind=_SIGNED_TRAILER, trailer=_CHECKSUM), then=_whole),
    Case(_T, "a wrong checksum", _put(kind=_SIGNED_TRAILER, trailer=_OTHER), 400, "BadDigest", then=_nothing),
    Case(
        _T,
        "a trailer that was changed",
        _put(kind=_SIGNED_TRAILER, trailer=_CHECKSUM, spoil=_replace(_CRC32.encode(), b"AAAAAA==")),
        403,
        "SignatureDoesNotMatch",
        then=_nothing,
    ),
    Case(
        _T,
        "bytes that were changed",
        _put(kind=_SIGNED_TRAILER, trailer=_CHECKSUM, spoil=_replace(b"the end", b"the and")),
        403,
        "SignatureDoesNotMatch",
        then=_nothing,
    ),
    Case(
        _T,
        "a trailer without a signature",
        _put(
            kind=_SIGNED_TRAILER,
            trailer=_CHECKSUM,
            spoil=_replace(b"x-amz-trailer-signature", b"x-amz-other"),
        ),
        403,
        "SignatureDoesNotMatch",
        then=_nothing,
    ),
    Case(_U, "right ones", _put(kind=_UNSIGNED_TRAILER, trailer=_CHECKSUM), then=_whole),
    Case(
        _U,
        "the checksum is kept",
        _put(kind=_UNSIGNED_TRAILER, trailer=_CHECKSUM),
        then=lambda s, a: (s.dev.head_object(Key=s.key, ChecksumMode="ENABLED").get("ChecksumCRC32"), _CRC32),
    ),
    Case(
        _U, "a wrong checksum", _put(kind=_UNSIGNED_TRAILER, trailer=_OTHER), 400, "BadDigest", then=_nothing
    ),
    Case(
        _U,
        "bytes that were changed",
        _put(kind=_UNSIGNED_TRAILER, trailer=_CHECKSUM, spoil=_replace(b"the end", b"the and")),
        400,
        "BadDigest",
        then=_nothing,
    ),
    Case(
        _U,
        "a checksum that is none",
        _put(kind=_UNSIGNED_TRAILER, trailer="x-amz-checksum-crc32:no"),
        400,
        "InvalidRequest",
        then=_nothing,
    ),
    Case(
        _U,
        "a trailer that was announced is missing",
        _put(kind=_UNSIGNED_TRAILER, announced="x-amz-checksum-crc32"),
        400,
        "MalformedTrailerError",
        then=_nothing,
    ),
    Case(
        _U,
        "a trailer without a name",
        _put(kind=_UNSIGNED_TRAILER, trailer="nonsense", announced="x-amz-checksum-crc32"),
        400,
        "MalformedTrailerError",
        then=_nothing,
    ),
    Case(
        _U,
        "another length than was told",
        _put(kind=_UNSIGNED_TRAILER, trailer=_CHECKSUM, size=5),
        400,
        "IncompleteBody",
        then=_nothing,
    ),
]
