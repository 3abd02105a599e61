"""AWS Signature Version 4 for requests with a body whose hash is known."""

import hashlib
import hmac
import time
from urllib.parse import quote

__all__ = ["encode_path", "encode_query", "sign"]


def encode_path(path):
    """A path as it stands in the request and in the signature."""
    return quote(path, safe="/-_.~")


def encode_query(query):
    """Parameters in the order that the signature wants."""
    pairs = sorted((quote(name, safe="-_.~"), quote(value, safe="-_.~")) for name, value in query.items())
    return "&".join("{}={}".format(*pair) for pair in pairs)


def sign(method, host, path, query, headers, body_hash, access_key, secret_key, region, token="", now=None):
    """The headers of a request, with those that prove who sends it.

    `path` and `query` are encoded already; the result holds `headers` too.
    """
    moment = time.gmtime(now)
    stamp, day = time.strftime("%Y%m%dT%H%M%SZ", moment), time.strftime("%Y%m%d", moment)
    signed = {name.lower(): value for name, value in headers.items()}
    signed.update({"host": host, "x-amz-date": stamp, "x-amz-content-sha256": body_hash})
    if token:
        signed["x-amz-security-token"] = token
    names = ";".join(sorted(signed))
    lines = "".join("{}:{}\n".format(name, " ".join(signed[name].split())) for name in sorted(signed))
    request = "\n".join((method, path, query, lines, names, body_hash))
    scope = "/".join((day, region, "s3", "aws4_request"))
    digest = hashlib.sha256(request.encode("utf-8")).hexdigest()
    text = "\n".join(("AWS4-HMAC-SHA256", stamp, scope, digest))
    key = ("AWS4" + secret_key).encode("utf-8")
    for part in (day, region, "s3", "aws4_request"):
        key = hmac.new(key, part.encode("utf-8"), hashlib.sha256).digest()
    signature = hmac.new(key, text.encode("utf-8"), hashlib.sha256).hexdigest()
    signed["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    return signed
