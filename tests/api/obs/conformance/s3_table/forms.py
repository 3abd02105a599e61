"""PostObject: a browser's form with a signed policy."""

from __future__ import annotations

import base64
import hmac
import json
from datetime import UTC, datetime, timedelta
from typing import Any

from s3_table.case import Answer, Case
from s3_table.signing import KeyPair
from s3_table.stage import FOREIGN, MISSING, Stage, there

__all__ = ["CASES"]

_LIMIT = "-----table-boundary"


def _body(fields: dict[str, str], content: bytes | None, filename: str = "a.txt") -> bytes:
    parts = [
        f'--{_LIMIT}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in fields.items()
    ]
    if content is not None:
        parts.append(
            f'--{_LIMIT}\r\nContent-Disposition: form-data; name="file"; filename="{filename}"\r\n'
            "Content-Type: text/plain\r\n\r\n".encode()
            + content
            + b"\r\n"
        )
    return b"".join(parts) + f"--{_LIMIT}--\r\n".encode()


def _send(stage: Stage, body: bytes, bucket: str = "", kind: str = "") -> Answer:
    headers = {
        "host": stage.target.host,
        "content-type": kind or f"multipart/form-data; boundary={_LIMIT}",
        "content-length": str(len(body)),
    }
    return stage.target.send("POST", f"/{bucket or stage.bucket}", headers, body)


def _moment(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def _sign(pair: KeyPair, policy: bytes) -> dict[str, str]:
    text = base64.b64encode(policy)
    signature = base64.b64encode(hmac.digest(pair.secret_key.encode(), text, "sha1")).decode()
    return {"AWSAccessKeyId": pair.access_key, "policy": text.decode(), "signature": signature}


def _post(
    *conditions: Any,
    fields: dict[str, str] | None = None,
    content: bytes | None = b"content",
    seconds: float = 300,
    bucket: str = "",
    policy: bytes | None = None,
    secret: str = "",
    user: str = "dev",
    change: Any = None,
    key: str = "",
    filename: str = "a.txt",
) -> Any:
    """A form signed with V2, whose policy allows keys of the case's prefix and all that `conditions` say."""

    def call(stage: Stage) -> Answer:
        document = {
            "expiration": _moment(seconds),
            "conditions": [
                {"bucket": bucket or stage.bucket},
                ["starts-with", "$key", stage.prefix],
                *conditions,
            ],
        }
        pair = stage.target.keys[user]
        pair = KeyPair(pair.access_key, secret or pair.secret_key)
        proof = _sign(pair, json.dumps(document).encode() if policy is None else policy)
        sent = {"key": key.format(s=stage) if key else stage.key, **proof, **(fields or {})}
        return _send(stage, _body(change(sent) if change else sent, content, filename), bucket)

    return call


def _v4(stage: Stage, change: Any = None, **more: Any) -> Answer:
    form = stage.target.client("dev").generate_presigned_post(stage.bucket, stage.key, ExpiresIn=300, **more)
    fields = dict(form["fields"])
    return _send(stage, _body(change(fields) if change else fields, b"content"))


def _there(s: Stage, a: Answer) -> tuple[object, object]:
    return s.read(s.key), b"content"


def _nothing(s: Stage, a: Answer) -> tuple[object, object]:
    return s.dev.head_object(Key=s.key).status, 404


def _without(name: str) -> Any:
    return lambda fields: {key: value for key, value in fields.items() if key != name}


_ANY = {"success_action_status": "201"}
_P = "PostObject"

CASES = [
    Case(_P, "with V4", lambda s: _v4(s), 204, then=_there),
    Case(_P, "with V2", _post(), 204, then=_there),
    Case(
        _P,
        "the name of the file in the key",
        _post(key="{s.prefix}up/${{filename}}"),
        204,
        then=lambda s, a: (s.read(s.k("up/a.txt")), b"content"),
    ),
    Case(
        _P,
        "tells what it stored",
        _post(_ANY, fields=_ANY),
        201,
        then=lambda s, a: ((a.text_of("Key"), a.text_of("Bucket")), (s.key, s.bucket)),
    ),
    Case(
        _P,
        "answers 200 on request",
        _post({"success_action_status": "200"}, fields={"success_action_status": "200"}),
        200,
        then=_there,
    ),
    Case(
        _P,
        "goes to another page",
        _post(
            {"success_action_redirect": "http://lab.example/done"},
            fields={"success_action_redirect": "http://lab.example/done"},
        ),
        303,
        then=lambda s, a: (a.headers["location"].partition("?")[0], "http://lab.example/done"),
        is_harmless=False,
    ),
    Case(
        _P,
        "metadata and type",
        _post(
            {"x-amz-meta-a": "1"},
            ["starts-with", "$Content-Type", "text/"],
            fields={"x-amz-meta-a": "1", "Content-Type": "text/html"},
        ),
        204,
        then=lambda s, a: (
            (lambda h: (h["Metadata"], h["ContentType"]))(s.dev.head_object(Key=s.key)),
            ({"a": "1"}, "text/html"),
        ),
    ),
    Case(_P, "a size that is allowed", _post(["content-length-range", 1, 10]), 204, then=_there),
    Case(
        _P,
        "a file that is too large",
        _post(["content-length-range", 1, 5]),
        400,
        "EntityTooLarge",
        then=_nothing,
    ),
    Case(
        _P,
        "a file that is too small",
        _post(["content-length-range", 10, 20]),
        400,
        "EntityTooSmall",
        then=_nothing,
    ),
    Case(_P, "an expired policy", _post(seconds=-5), 403, "AccessDenied", then=_nothing),
    Case(_P, "a wrong secret", _post(secret="wrong"), 403, "SignatureDoesNotMatch", then=_nothing),
    Case(
        _P,
        "V4 with a signature that was changed",
        lambda s: _v4(s, lambda fields: {**fields, "x-amz-signature": "0" * 64}),
        403,
        "SignatureDoesNotMatch",
        then=_nothing,
    ),
    Case(
        _P,
        "an access key that is unknown",
        _post(change=lambda fields: {**fields, "AWSAccessKeyId": "AKIAUNKNOWN000000000"}),
        403,
        "InvalidAccessKeyId",
        then=_nothing,
    ),
    Case(
        _P,
        "a policy that was changed",
        _post(
            change=lambda fields: {
                **fields,
                "policy": base64.b64encode(
                    b'{"expiration": "2099-01-01T00:00:00Z", "conditions": []}'
                ).decode(),
            }
        ),
        403,
        "SignatureDoesNotMatch",
        then=_nothing,
    ),
    Case(
        _P,
        "a key that the policy does not allow",
        _post(change=lambda fields: {**fields, "key": "elsewhere"}),
        403,
        "AccessDenied",
    ),
    Case(
        _P,
        "a field that the policy does not name",
        _post(fields={"x-amz-meta-a": "1"}),
        403,
        "AccessDenied",
        then=_nothing,
    ),
    Case(
        _P,
        "a field with another value than the policy's",
        _post({"acl": "private"}, fields={"acl": "public-read"}),
        403,
        "AccessDenied",
        then=_nothing,
    ),
    Case(
        _P,
        "a condition whose field is missing",
        _post({"acl": "private"}),
        403,
        "AccessDenied",
        then=_nothing,
    ),
    Case(
        _P, "a policy for another bucket", _post({"bucket": "conf-other"}), 403, "AccessDenied", then=_nothing
    ),
    Case(_P, "a policy that is no JSON", _post(policy=b"{"), 400, "InvalidPolicyDocument", then=_nothing),
    Case(
        _P,
        "a policy without an end",
        _post(policy=b'{"conditions": []}'),
        400,
        "InvalidPolicyDocument",
        then=_nothing,
    ),
    Case(
        _P,
        "a policy without conditions",
        _post(policy=b'{"expiration": "2099-01-01T00:00:00Z"}'),
        400,
        "InvalidPolicyDocument",
        then=_nothing,
    ),
    Case(
        _P,
        "a condition that is unknown",
        _post(["ends-with", "$key", "x"]),
        400,
        "InvalidPolicyDocument",
        then=_nothing,
    ),
    Case(_P, "no key", _post(change=_without("key")), 400, "InvalidArgument"),
    Case(_P, "no signature", _post(change=_without("signature")), 400, "InvalidArgument", then=_nothing),
    Case(_P, "no file", _post(content=None), 400, "IncorrectNumberOfFilesInPostRequest", then=_nothing),
    Case(
        _P,
        "two files",
        lambda s: _send(
            s, _body({"key": s.key}, b"1").removesuffix(f"--{_LIMIT}--\r\n".encode()) + _body({}, b"2")
        ),
        400,
        "IncorrectNumberOfFilesInPostRequest",
        then=_nothing,
    ),
    Case(_P, "no form at all", lambda s: _send(s, b"plain"), 400, "MalformedPOSTRequest", then=_nothing),
    Case(
        _P,
        "another type of body",
        lambda s: _send(s, b"{}", kind="application/json"),
        412,
        "PreconditionFailed",
        then=_nothing,
    ),
    Case(
        _P,
        "fields beyond 20 KB",
        _post(fields={"x-ignore-a": "x" * 21_000}),
        400,
        "MaxPostPreDataLengthExceededError",
        then=_nothing,
    ),
    Case(
        _P,
        "anonymous",
        lambda s: _send(s, _body({"key": s.key}, b"content")),
        403,
        "AccessDenied",
        then=_nothing,
    ),
    Case(_P, "one who may only read", _post(user="viewer"), 403, "AccessDenied", then=_nothing),
    Case(_P, "somebody else's bucket", _post(bucket=FOREIGN), 403, "AccessDenied"),
    Case(_P, "a missing bucket", _post(bucket=MISSING), 404, "NoSuchBucket"),
    Case(
        _P,
        "a tag document",
        _post(
            ["starts-with", "$tagging", ""],
            fields={"tagging": "<Tagging><TagSet><Tag><Key>a</Key><Value>1</Value></Tag></TagSet></Tagging>"},
        ),
        204,
        then=lambda s, a: (s.dev.get_object_tagging(Key=s.key)["TagSet"], [{"Key": "a", "Value": "1"}]),
    ),
    Case(
        _P,
        "an object as if it were a bucket",
        lambda s: s.target.send("POST", s.path(s.there), {"host": s.target.host, "content-length": "0"}),
        405,
        "MethodNotAllowed",
        before=(there,),
    ),
]
