"""AWS Signature Version 4: the examples of the public specification, and whatever botocore signs."""

from __future__ import annotations

import datetime
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given, settings
from hypothesis import strategies as st

from trainshed.api.obs.authorization import check_claim, read_claim
from trainshed.api.obs.errors import S3Error
from trainshed.api.obs.signatures.claim import SignedRequest

ACCESS = "AKIAIOSFODNN7EXAMPLE"
SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
MAY_24 = datetime.datetime(2013, 5, 24, tzinfo=datetime.UTC).timestamp()
EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
HOST = "examplebucket.s3.amazonaws.com"


def check(request: SignedRequest, secret: str = SECRET, now: float = MAY_24) -> Any:
    found = read_claim(request)
    assert found is not None
    scheme, claim = found
    return check_claim(scheme, claim, request, secret, now)


def refused(request: SignedRequest, secret: str = SECRET, now: float = MAY_24) -> str:
    with pytest.raises(S3Error) as error:
        check(request, secret, now)
    return error.value.code


def example(
    method: str, path: str, query: str, signature: str, sha: str = EMPTY, **more: str
) -> SignedRequest:
    headers = {"host": HOST, "x-amz-content-sha256": sha, "x-amz-date": "20130524T000000Z"}
    headers |= {name.replace("_", "-"): value for name, value in more.items()}
    signed = ";".join(sorted(headers))
    headers["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={ACCESS}/20130524/us-east-1/s3/aws4_request,"
        f"SignedHeaders={signed},Signature={signature}"
    )
    return SignedRequest(method, path, query, headers)


GET_OBJECT = example(
    "GET",
    "/test.txt",
    "",
    "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
    range="bytes=0-9",
)
PRESIGNED = SignedRequest(
    "GET",
    "/test.txt",
    "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request"
    "&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host"
    "&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404",
    {"host": HOST},
)


@pytest.mark.parametrize(
    "request_",
    [
        GET_OBJECT,
        PRESIGNED,
        # `date` comes before `host` in the list of this example; sorted names give that.
        SignedRequest(
            "PUT",
            "/test%24file.text",
            "",
            {
                "date": "Fri, 24 May 2013 00:00:00 GMT",
                "host": HOST,
                "x-amz-content-sha256": "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072",
                "x-amz-date": "20130524T000000Z",
                "x-amz-storage-class": "REDUCED_REDUNDANCY",
                "authorization": f"AWS4-HMAC-SHA256 Credential={ACCESS}/20130524/us-east-1/s3/aws4_request,"
                "SignedHeaders=date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class,"
                "Signature=98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
            },
        ),
        example("GET", "/", "lifecycle", "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
        example(
            "GET",
            "/",
            "max-keys=2&prefix=J",
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        ),
    ],
)
def test_the_examples_of_the_specification(request_: SignedRequest) -> None:
    check(request_)
    assert refused(request_, secret="wrong") == "SignatureDoesNotMatch"


def test_time_is_bounded() -> None:
    for skew in (-899, 899):
        check(GET_OBJECT, now=MAY_24 + skew)
    for skew in (-901, 901):
        assert refused(GET_OBJECT, now=MAY_24 + skew) == "RequestTimeTooSkewed"
    check(PRESIGNED, now=MAY_24 + 86400)
    assert refused(PRESIGNED, now=MAY_24 + 86401) == "AccessDenied"
    assert refused(PRESIGNED, now=MAY_24 - 901) == "RequestTimeTooSkewed"


def without(request: SignedRequest, header: str) -> SignedRequest:
    return SignedRequest(
        request.method,
        request.path,
        request.query,
        {name: value for name, value in request.headers.items() if name != header},
        request.host_bucket,
    )


@pytest.mark.parametrize(
    ("authorization", "code"),
    [
        ("AWS4-HMAC-SHA256", "AuthorizationHeaderMalformed"),
        ("AWS4-HMAC-SHA256 Credential=a/b,SignedHeaders=host,Signature=x", "AuthorizationHeaderMalformed"),
        (
            f"AWS4-HMAC-SHA256 Credential={ACCESS}/20130524/r/ec2/aws4_request,SignedHeaders=host,Signature=x",
            "AuthorizationHeaderMalformed",
        ),
        (
            f"AWS4-HMAC-SHA256 Credential={ACCESS}/20130523/r/s3/aws4_request,SignedHeaders=host,Signature=x",
            "AuthorizationHeaderMalformed",
        ),
        ("Basic Zm9v", "InvalidArgument"),
        ("AWS nocolon", "InvalidArgument"),
    ],
)
def test_malformed_headers(authorization: str, code: str) -> None:
    request = SignedRequest("GET", "/", "", dict(GET_OBJECT.headers) | {"authorization": authorization})
    assert refused(request) == code


def test_what_is_missing_is_named() -> None:
    assert refused(without(GET_OBJECT, "x-amz-date")) == "AccessDenied"
    assert refused(without(GET_OBJECT, "x-amz-content-sha256")) == "InvalidRequest"
    for name in ("X-Amz-Date", "X-Amz-Expires", "X-Amz-SignedHeaders", "X-Amz-Credential"):
        query = "&".join(part for part in PRESIGNED.query.split("&") if not part.startswith(name))
        request = SignedRequest("GET", "/test.txt", query, PRESIGNED.headers)
        assert refused(request) == "AuthorizationQueryParametersError"
    for wrong in ("604801", "-1", "x", "", "9" * 30):
        query = PRESIGNED.query.replace("Expires=86400", f"Expires={wrong}")
        request = SignedRequest("GET", "/test.txt", query, PRESIGNED.headers)
        assert refused(request) == "AuthorizationQueryParametersError"
    both = SignedRequest("GET", "/test.txt", PRESIGNED.query, GET_OBJECT.headers)
    assert refused(both) == "InvalidArgument"
    assert read_claim(SignedRequest("GET", "/", "", {"host": HOST})) is None


def test_headers_that_change_the_meaning_must_be_signed() -> None:
    for name in ("x-amz-acl", "x-obs-acl", "x-amz-copy-source"):
        headers = dict(GET_OBJECT.headers) | {name: "public-read"}
        assert refused(SignedRequest("GET", "/test.txt", "", headers)) == "AccessDenied"


# --- whatever botocore signs is accepted, and refused as soon as one thing differs ---

TEXT = st.text(
    st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), min_size=1, max_size=20
)
VALUE = st.text(st.sampled_from("abcXYZ019 -_.~!*'()/:=&%+,;"), max_size=20)
NAME = st.text(st.sampled_from("abcdefxyz-019"), min_size=1, max_size=8)


def by_botocore(
    method: str, path: str, query: dict[str, str], headers: dict[str, str], presign: bool
) -> SignedRequest:
    words = "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in query.items())
    url = f"http://localhost:24000{quote(path, safe='/~')}" + (f"?{words}" if words else "")
    request = AWSRequest(method, url, headers, data=b"")
    kind = S3SigV4QueryAuth if presign else S3SigV4Auth
    kind(Credentials(ACCESS, SECRET), "s3", "cn-north-4").add_auth(request)
    parts = urlsplit(request.url)
    sent = {name.lower(): str(value) for name, value in request.headers.items()}
    return SignedRequest(method, parts.path, parts.query, {"host": "localhost:24000"} | sent)


@settings(deadline=None, max_examples=60)
@given(
    path=TEXT,
    query=st.dictionaries(TEXT, TEXT, max_size=4),
    meta=st.dictionaries(NAME, VALUE, max_size=3),
    presign=st.booleans(),
    tamper=st.integers(0, 5),
)
def test_signed_by_botocore(
    path: str, query: dict[str, str], meta: dict[str, str], presign: bool, tamper: int
) -> None:
    query = {name: value for name, value in query.items() if not name.lower().startswith("x-amz")}
    headers = {f"x-amz-meta-{name}": value for name, value in meta.items()} if not presign else {}
    request = by_botocore("PUT", "/" + path, query, headers, presign)
    now = datetime.datetime.now(datetime.UTC).timestamp()
    check(request, now=now)
    method, at, words, sent = request.method, request.path, request.query, dict(request.headers)
    if tamper == 0:
        method = "GET"
    elif tamper == 1:
        at += "x"
    elif tamper == 2:
        words += "&acl=" if words else "acl="
    elif tamper == 3:
        sent["host"] = "elsewhere"
    elif tamper == 4:
        sent["x-amz-meta-added"] = "1"
    else:
        assert refused(request, secret=SECRET + "x", now=now) == "SignatureDoesNotMatch"
        return
    assert refused(SignedRequest(method, at, words, sent), now=now) in (
        "SignatureDoesNotMatch",
        "AccessDenied",
    )


@settings(deadline=None, max_examples=200)
@given(
    authorization=st.one_of(
        st.text(max_size=80),
        st.text(max_size=80).map("AWS4-HMAC-SHA256 ".__add__),
        st.text(max_size=80).map("AWS ".__add__),
        st.text(max_size=80).map("OBS ".__add__),
    ).filter(lambda text: text.encode("latin-1", "ignore").decode("latin-1") == text),
    query=st.text(st.characters(max_codepoint=255), max_size=60),
    date=st.text(st.characters(max_codepoint=255), max_size=20),
)
def test_nonsense_is_refused_politely(authorization: str, query: str, date: str) -> None:
    headers = {"host": "x", "authorization": authorization, "x-amz-content-sha256": EMPTY, "date": date}
    request = SignedRequest("GET", "/", query, headers)
    try:
        assert read_claim(request) is None or refused(request)
    except S3Error as error:
        assert error.status in (400, 403)
