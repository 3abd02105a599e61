"""AWS Signature Version 2 and OBS's own: the examples of the public specification, and the OBS SDK as signer."""

from __future__ import annotations

import time
from email.utils import formatdate, parsedate_to_datetime
from typing import Any
from urllib.parse import quote

import pytest
from botocore.auth import HmacV1QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given, settings
from hypothesis import strategies as st
from obs.auth import Authentication, V4Authentication
from obs.convertor import Adapter

from trainshed.api.obs.authorization import check_claim, read_claim
from trainshed.api.obs.errors import S3Error
from trainshed.api.obs.signatures.claim import SignedRequest

ACCESS = "AKIAIOSFODNN7EXAMPLE"
SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"


def check(request: SignedRequest, now: float, secret: str = SECRET) -> Any:
    found = read_claim(request)
    assert found is not None
    return check_claim(found[0], found[1], request, secret, now)


def refused(request: SignedRequest, now: float, secret: str = SECRET) -> str:
    with pytest.raises(S3Error) as error:
        check(request, now, secret)
    return error.value.code


@pytest.mark.parametrize(
    ("method", "path", "query", "bucket", "headers", "signature"),
    [
        (
            "GET",
            "/photos/puppy.jpg",
            "",
            "johnsmith",
            {"date": "Tue, 27 Mar 2007 19:36:42 +0000"},
            "bWq2s1WEIj+Ydj0vQ697zp+IXMU=",
        ),
        (
            "PUT",
            "/photos/puppy.jpg",
            "",
            "johnsmith",
            {"date": "Tue, 27 Mar 2007 21:15:45 +0000", "content-type": "image/jpeg"},
            "MyyxeRY7whkBe+bq8fHCL/2kKUg=",
        ),
        (
            "GET",
            "/",
            "prefix=photos&max-keys=50&marker=puppy",
            "johnsmith",
            {"date": "Tue, 27 Mar 2007 19:42:41 +0000"},
            "htDYFYduRNen8P9ZfE/s9SuKy0U=",
        ),
        (
            "GET",
            "/",
            "acl",
            "johnsmith",
            {"date": "Tue, 27 Mar 2007 19:44:46 +0000"},
            "c2WLPFtWHVgbEmeEG93a4cG37dM=",
        ),
        (
            "GET",
            "/",
            "",
            "",
            {"date": "Wed, 28 Mar 2007 01:29:59 +0000"},
            "qGdzdERIC03wnaRNKh6OqZehG9s=",
        ),
        (
            "GET",
            "/dictionary/fran%C3%A7ais/pr%c3%a9f%c3%a8re",
            "",
            "",
            {"date": "Wed, 28 Mar 2007 01:49:49 +0000"},
            "DNEZGsoieTZ92F3bUfSPQcbGmlM=",
        ),
    ],
)
def test_the_examples_of_the_specification(
    method: str, path: str, query: str, bucket: str, headers: dict[str, str], signature: str
) -> None:
    now = parsedate_to_datetime(headers["date"]).timestamp()
    headers = headers | {"authorization": f"AWS {ACCESS}:{signature}"}
    request = SignedRequest(method, path, query, headers, bucket)
    check(request, now)
    assert refused(request, now, "wrong") == "SignatureDoesNotMatch"
    assert refused(request, now + 901) == "RequestTimeTooSkewed"
    other = SignedRequest(method, path, query + "&acl=1", headers, bucket)
    assert refused(other, now) == "SignatureDoesNotMatch"
    with_header = SignedRequest(method, path, query, headers | {"x-amz-acl": "public-read"}, bucket)
    assert refused(with_header, now) == "SignatureDoesNotMatch"


def test_the_presigned_example_of_the_specification() -> None:
    query = f"AWSAccessKeyId={ACCESS}&Expires=1175139620&Signature=NpgCjnDzrM%2BWFzoENXmpNDUsSn8%3D"
    request = SignedRequest("GET", "/photos/puppy.jpg", query, {}, "johnsmith")
    check(request, 1175139620)
    assert refused(request, 1175139621) == "AccessDenied"
    longer = SignedRequest("GET", "/photos/puppy.jpg", query.replace("9620", "9621"), {}, "johnsmith")
    assert refused(longer, 1175139620) == "SignatureDoesNotMatch"
    for missing in ("Expires", "Signature"):
        words = "&".join(part for part in query.split("&") if not part.startswith(missing))
        assert refused(SignedRequest("GET", "/photos/puppy.jpg", words, {}, "johnsmith"), 0) == "AccessDenied"


def test_botocore_moves_headers_into_the_query() -> None:
    request = AWSRequest(
        "PUT", "http://localhost:24000/data/key", {"x-amz-meta-a": "b", "content-type": "text/plain"}
    )
    HmacV1QueryAuth(Credentials(ACCESS, SECRET), 60).add_auth(request)
    signed = SignedRequest("PUT", "/data/key", request.url.partition("?")[2], {})
    check(signed, time.time())
    assert refused(signed, time.time(), "wrong") == "SignatureDoesNotMatch"
    changed = SignedRequest("PUT", "/data/key", signed.query.replace("meta-a=b", "meta-a=c"), {})
    assert refused(changed, time.time()) == "SignatureDoesNotMatch"


KEY = st.text(
    st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), min_size=1, max_size=20
).filter(lambda key: not key.startswith("/"))


@settings(deadline=None, max_examples=60)
@given(
    key=KEY,
    scheme=st.sampled_from(["obs", "v2"]),
    path_style=st.booleans(),
    arguments=st.dictionaries(
        st.sampled_from(["append", "position", "acl", "uploads", "versionId", "prefix", "rename", "name"]),
        st.one_of(st.none(), st.sampled_from(["1", "a b", "x/y+z", "值"])),
        max_size=3,
    ),
    presign=st.booleans(),
)
def test_signed_by_the_obs_sdk(
    key: str, scheme: str, path_style: bool, arguments: dict[str, str | None], presign: bool
) -> None:
    adapter = Adapter(scheme)
    headers = {"Date": formatdate(usegmt=True), "Content-Type": "text/plain", adapter.acl_header(): "private"}
    signer = Authentication(ACCESS, SECRET, path_style, adapter, "localhost", False)
    expires = str(int(time.time()) + 60) if presign else None
    signature = signer.getSignature("PUT", "data", key, arguments, headers, expires)["Signature"]
    words = [
        quote(name, safe="") + ("" if value is None else "=" + quote(value, safe=""))
        for name, value in arguments.items()
    ]
    sent = {name.lower(): value for name, value in headers.items()}
    if presign:
        name = "AccessKeyId" if scheme == "obs" else "AWSAccessKeyId"
        words += [f"{name}={ACCESS}", f"Expires={expires}", f"Signature={quote(signature, safe='')}"]
    else:
        sent["authorization"] = f"{adapter.auth_prefix()} {ACCESS}:{signature}"
    from obs.util import encode_object_key

    path = ("/data/" if path_style else "/") + encode_object_key(key)
    request = SignedRequest("PUT", path, "&".join(words), sent, "" if path_style else "data")
    check(request, time.time())
    assert refused(request, time.time(), "wrong") == "SignatureDoesNotMatch"
    for changed in (
        SignedRequest("GET", path, request.query, sent, request.host_bucket),
        SignedRequest("PUT", path + "x", request.query, sent, request.host_bucket),
        SignedRequest("PUT", path, request.query + "&tagging", sent, request.host_bucket),
        SignedRequest(
            "PUT", path, request.query, sent | {adapter.acl_header(): "public-read"}, request.host_bucket
        ),
        SignedRequest("PUT", path, request.query, sent | {"content-type": "text/html"}, request.host_bucket),
    ):
        assert refused(changed, time.time()) == "SignatureDoesNotMatch"


def test_version_4_of_the_obs_sdk_has_only_a_date() -> None:
    now = time.time()
    long_date = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    signer = V4Authentication(ACCESS, SECRET, "region", long_date[:8], long_date, True, Adapter("v4"))
    headers = {"Host": "localhost:24000", "Date": formatdate(now, usegmt=True)}
    headers |= signer.doAuth("GET", "data", "a b", {"uploads": None}, headers)
    sent = {name.lower(): value for name, value in headers.items()}
    request = SignedRequest("GET", "/data/a%20b", "uploads", sent)
    assert check(request, now).payload_hash == "UNSIGNED-PAYLOAD"
    assert refused(request, now + 1000) == "RequestTimeTooSkewed"
