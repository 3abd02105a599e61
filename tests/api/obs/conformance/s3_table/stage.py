"""Where a case plays: an endpoint with its users, a place for its objects, and what it needs to be there first."""

from __future__ import annotations

import hashlib
import http.client
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

from s3_table.case import Answer
from s3_table.signing import KeyPair, Scope, sign_v4

with warnings.catch_warnings():
    # The client warns about itself while it is imported; that is for its authors to mend.
    warnings.simplefilter("ignore")
    import boto3
    import botocore
    from botocore.config import Config
    from botocore.exceptions import ClientError

__all__ = [
    "CONTENT",
    "FOREIGN",
    "MISSING",
    "SHARED",
    "Actor",
    "Stage",
    "Target",
    "own",
    "prepare",
    "there",
    "uploading",
    "versioned",
]

CONTENT = b"0123456789"
SHARED, FOREIGN, MISSING = "conf-shared", "else-shared", "conf-missing"


@dataclass
class Target:
    """An endpoint, and the keys of its users: `dev` owns, `viewer` only reads, `stranger` is somebody else."""

    name: str
    url: str
    keys: dict[str, KeyPair]
    _clients: dict[str, Any] = field(default_factory=dict)

    def client(self, user: str) -> Any:
        """The boto3 client of a user; `nobody` does not sign."""
        if user not in self._clients:
            pair = self.keys.get(user)
            config = Config(
                signature_version="s3v4" if pair else botocore.UNSIGNED,
                s3={"addressing_style": "path"},
                retries={"total_max_attempts": 1},
                # The server must tell what is wrong.
                parameter_validation=False,
                read_timeout=30,
            )
            self._clients[user] = boto3.client(
                "s3",
                endpoint_url=self.url,
                region_name="us-east-1",
                aws_access_key_id=pair.access_key if pair else None,
                aws_secret_access_key=pair.secret_key if pair else None,
                config=config,
            )
        return self._clients[user]

    @property
    def host(self) -> str:
        """Host and port."""
        return urlsplit(self.url).netloc

    def send(self, method: str, path: str, headers: dict[str, str], body: bytes = b"") -> Answer:
        """A request exactly as it is given: path and query as on the wire, no header beside those named."""
        connection = http.client.HTTPConnection(self.host, timeout=120)
        try:
            connection.putrequest(method, path, skip_host="host" in headers, skip_accept_encoding=True)
            for name, value in headers.items():
                connection.putheader(name, value.encode("utf-8"))
            connection.endheaders(body or None)
            answer = connection.getresponse()
            content = answer.read()
            code = content.partition(b"<Code>")[2].partition(b"</Code>")[0].decode()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, code if answer.status >= 300 else "", found, content)
        finally:
            connection.close()

    def close(self) -> None:
        """Let go of the connections."""
        for client in self._clients.values():
            client.close()


class Actor:
    """A user who calls operations as boto3 names them, in the stage's bucket unless another one is named."""

    def __init__(self, stage: Stage, user: str) -> None:
        self._stage, self._user = stage, user

    def __getattr__(self, operation: str) -> Callable[..., Answer]:
        client = self._stage.target.client(self._user)

        def call(**arguments: Any) -> Answer:
            if operation != "list_buckets":
                arguments.setdefault("Bucket", self._stage.bucket)
            try:
                data = getattr(client, operation)(**arguments)
            except ClientError as fault:
                data = fault.response
                status, code = data["ResponseMetadata"]["HTTPStatusCode"], data["Error"]["Code"]
                # Without a body, boto3 makes a code of the status.
                return Answer(status, "" if code.isdigit() else code, _headers(data), b"", data)
            body = data["Body"].read() if "Body" in data else b""
            return Answer(data["ResponseMetadata"]["HTTPStatusCode"], "", _headers(data), body, data)

        return call


def _headers(data: Any) -> dict[str, str]:
    return dict(data["ResponseMetadata"].get("HTTPHeaders", {}))


class Stage:
    """What one case sees. Its keys have a prefix of their own, so that cases share a bucket where they can."""

    def __init__(self, target: Target, number: int) -> None:
        self.target = target
        self.number = number
        self.bucket = SHARED
        self.prefix = f"c{number:04}/"
        # What earlier steps found: ETags, versions, uploads.
        self.notes: dict[str, Any] = {}

    def k(self, name: str) -> str:
        """A key of this case."""
        return self.prefix + name

    @property
    def key(self) -> str:
        """The key that most cases are about; nothing is there yet."""
        return self.k("key")

    @property
    def there(self) -> str:
        """The key of the object that `before=(there,)` puts."""
        return self.k("there")

    @property
    def dev(self) -> Actor:
        """The owner of the bucket."""
        return Actor(self, "dev")

    @property
    def viewer(self) -> Actor:
        """One who may only read."""
        return Actor(self, "viewer")

    @property
    def stranger(self) -> Actor:
        """One who has buckets of their own elsewhere."""
        return Actor(self, "stranger")

    @property
    def nobody(self) -> Actor:
        """One who does not sign."""
        return Actor(self, "nobody")

    def path(self, key: str, bucket: str = "") -> str:
        """The path of an object on the wire."""
        return f"/{bucket or self.bucket}/{quote(key, safe='/-_.~')}"

    def read(self, key: str, **more: Any) -> bytes:
        """The bytes of an object as its owner finds them; what is missing is told apart from what is empty."""
        answer = self.dev.get_object(Key=key, **more)
        return answer.body if answer.status < 300 else f"{answer.status} {answer.code}".encode()

    def raw(
        self,
        method: str,
        path: str,
        *,
        query: list[tuple[str, str]] | None = None,
        headers: dict[str, str] | None = None,
        body: bytes = b"",
        user: str = "dev",
        pair: KeyPair | None = None,
        payload_hash: str = "",
        scope: Scope = Scope(),
        leave_out: tuple[str, ...] = (),
        later: dict[str, str] | None = None,
    ) -> Answer:
        """A request signed with V4 by hand; `later` are headers that are set after it was signed."""
        pairs = query or []
        sent = {"host": self.target.host, **(headers or {})}
        digest = payload_hash or hashlib.sha256(body).hexdigest()
        sent = sign_v4(
            pair or self.target.keys[user], method, path, pairs, sent, digest, scope, leave_out=leave_out
        )
        if body or method in ("PUT", "POST"):
            sent.setdefault("content-length", str(len(body)))
        sent.update(later or {})
        sent = {name: value for name, value in sent.items() if value != "(none)"}
        text = "&".join(
            quote(name, safe="-_.~") + ("=" + quote(value, safe="-_.~") if value else "")
            for name, value in pairs
        )
        return self.target.send(method, path + ("?" + text if text else ""), sent, body)

    def raw_document(self, subject: str, body: bytes, key: str = "", method: str = "PUT") -> Answer:
        """A document for a setting of the bucket, or of one of its objects."""
        return self.raw(
            method, self.path(key) if key else f"/{self.bucket}", query=[(subject, "")], body=body
        )

    def snapshot(self, is_foreign: bool = False) -> list[object]:
        """All that there is in this case's place, and in that of the stranger if it is about them."""
        prefix = self.prefix if self.bucket == SHARED else ""
        found = [self._list(self.bucket, subject, prefix) for subject in ("versions", "uploads")]
        return [*found, self._list(FOREIGN, "versions", "", "stranger")] if is_foreign else [*found]

    def _list(self, bucket: str, subject: str, prefix: str, user: str = "dev") -> tuple[int, bytes]:
        # By hand, because every refusal is looked at before and after: boto3 would take most of the time.
        answer = self.raw("GET", f"/{bucket}", query=[("prefix", prefix), (subject, "")], user=user)
        return answer.status, answer.body if answer.status == 200 else b""


def prepare(target: Target) -> None:
    """Make the buckets that cases share, before the first one."""
    stage = Stage(target, 0)
    for actor, bucket in ((stage.dev, SHARED), (stage.stranger, FOREIGN)):
        answer = actor.create_bucket(Bucket=bucket)
        assert answer.status == 200, answer
        answer = actor.put_object(Bucket=bucket, Key="secret", Body=b"nobody else's")
        assert answer.status == 200, answer


# --- what a case may need to be there first ---


def _expect(answer: Answer) -> Answer:
    if answer.status >= 300:
        raise AssertionError(f"what the case needs could not be made: {answer.status} {answer.code}")
    return answer


def there(stage: Stage) -> None:
    """An object of ten bytes; its ETag is noted."""
    stage.notes["etag"] = _expect(stage.dev.put_object(Key=stage.there, Body=CONTENT))["ETag"]


def own(stage: Stage) -> None:
    """A bucket for this case alone."""
    stage.bucket = f"conf-{stage.number:04}"
    _expect(stage.dev.create_bucket())


def versioned(stage: Stage) -> None:
    """A bucket that keeps versions, and two of them of one object; both are noted."""
    own(stage)
    _expect(stage.dev.put_bucket_versioning(VersioningConfiguration={"Status": "Enabled"}))
    stage.notes["one"] = _expect(stage.dev.put_object(Key=stage.there, Body=b"one"))["VersionId"]
    stage.notes["two"] = _expect(stage.dev.put_object(Key=stage.there, Body=b"two"))["VersionId"]


def uploading(stage: Stage) -> None:
    """An upload in parts, with one small part; both are noted."""
    stage.notes["upload"] = _expect(stage.dev.create_multipart_upload(Key=stage.key))["UploadId"]
    part = stage.dev.upload_part(
        Key=stage.key, UploadId=stage.notes["upload"], PartNumber=1, Body=b"part one"
    )
    stage.notes["part"] = _expect(part)["ETag"]
