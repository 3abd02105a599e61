"""aws-chunked bodies: the examples of the public specification, cut at every place, and tampered with."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainshed.api.obs.errors import S3Error
from trainshed.api.obs.signatures.aws_v4 import Seed, signing_key
from trainshed.api.obs.signatures.chunks import SIGNED, SIGNED_TRAILER, UNSIGNED_TRAILER, ChunkDecoder

SCOPE = "20130524/us-east-1/s3/aws4_request"
KEY = signing_key("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", SCOPE)
SEED = Seed(
    KEY, "20130524T000000Z", SCOPE, "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9"
)
TRAILER_SEED = Seed(
    KEY, "20130524T000000Z", SCOPE, "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e"
)


def frame(signatures: list[str]) -> bytes:
    body = b""
    for size, signature in zip((65536, 1024, 0), signatures, strict=True):
        body += b"%x;chunk-signature=%b\r\n" % (size, signature.encode()) + b"a" * size
        body += b"\r\n" if size else b""
    return body


PLAIN = (
    frame(
        [
            "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
            "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
            "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9",
        ]
    )
    + b"\r\n"
)
WITH_TRAILER = frame(
    [
        "b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2",
        "1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7",
        "2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992",
    ]
) + (
    b"x-amz-checksum-crc32c:sOO8/Q==\r\n"
    b"x-amz-trailer-signature:d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435\r\n\r\n"
)


def decode(body: bytes, kind: str, seed: Seed | None, step: int = 1 << 20) -> tuple[bytes, dict[str, str]]:
    decoder = ChunkDecoder(kind, seed)
    out = b"".join(decoder.feed(body[at : at + step]) for at in range(0, len(body), step))
    decoder.finish()
    return out, decoder.trailers


@pytest.mark.parametrize("step", [1 << 20, 1000, 65536, 17])
def test_the_examples_of_the_specification(step: int) -> None:
    assert decode(PLAIN, SIGNED, SEED, step) == (b"a" * 66560, {})
    assert decode(WITH_TRAILER, SIGNED_TRAILER, TRAILER_SEED, step) == (
        b"a" * 66560,
        {"x-amz-checksum-crc32c": "sOO8/Q=="},
    )
    assert decode(WITH_TRAILER[:-2], SIGNED_TRAILER, TRAILER_SEED)[0] == b"a" * 66560


def test_unsigned_chunks_with_a_trailer() -> None:
    body = b"5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n"
    assert decode(body, UNSIGNED_TRAILER, None, 1) == (b"hello", {"x-amz-checksum-crc32": "NhCmhg=="})


@settings(deadline=None, max_examples=60)
@given(at=st.integers(0, len(WITH_TRAILER) - 1), flip=st.integers(1, 255))
def test_one_changed_byte_is_refused(at: int, flip: int) -> None:
    body = bytearray(WITH_TRAILER)
    body[at] ^= flip
    try:
        out, trailers = decode(bytes(body), SIGNED_TRAILER, TRAILER_SEED)
    except S3Error as error:
        assert error.status in (400, 403)
    else:
        # Upper case in a size or a name, or a blank more, changes nothing of what is carried.
        assert out == b"a" * 66560 and trailers == {"x-amz-checksum-crc32c": "sOO8/Q=="}


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (PLAIN[:-100], "IncompleteBody"),
        (PLAIN + b"more", "InvalidRequest"),
        (b"zz\r\n", "InvalidRequest"),
        (b"-1\r\n", "InvalidRequest"),
        (b"0x5\r\nhello\r\n", "InvalidRequest"),
        (b"f" * 20 + b"\r\n", "EntityTooLarge"),
        (b"x" * 5000, "InvalidRequest"),
        (b"0\r\n\r\n", "SignatureDoesNotMatch"),
    ],
)
def test_broken_framing(body: bytes, code: str) -> None:
    with pytest.raises(S3Error) as error:
        decode(body, SIGNED, SEED)
    assert error.value.code == code


def test_trailers_that_were_not_announced_are_refused() -> None:
    with pytest.raises(S3Error):
        decode(PLAIN[:-2] + b"a:b\r\n\r\n", SIGNED, SEED)
    with pytest.raises(S3Error):
        decode(b"0\r\na:b\r\na:c\r\n\r\n", UNSIGNED_TRAILER, None)
    with pytest.raises(S3Error):
        ChunkDecoder(SIGNED, None)
