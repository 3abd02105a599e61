"""Requests with OBS's own signature."""

from __future__ import annotations

from s3_table.case import Answer
from s3_table.signing import KeyPair, sign_old
from s3_table.stage import CONTENT, Stage

__all__ = [
    "APPEND",
    "METADATA",
    "RENAME",
    "SIGNATURE",
    "SIGNED",
    "SIGNED_URL",
    "described",
    "keys",
    "nothing",
    "obs",
]

# The operations, as the reference calls them.
SIGNATURE, SIGNED_URL = "OBS signature", "OBS presigned URL"
APPEND, RENAME, METADATA = "AppendObject", "RenameObject", "SetObjectMetadata"
# Parameters that belong to what is signed.
SIGNED = (
    "append",
    "metadata",
    "name",
    "position",
    "rename",
    "acl",
    "uploads",
    "tagging",
    "quota",
    "storageClass",
)


def obs(
    stage: Stage,
    method: str,
    key: str = "",
    *,
    bucket: str = "",
    query: dict[str, str] | None = None,
    body: bytes = b"",
    user: str = "dev",
    secret: str = "",
    date: str = "",
    **headers: str,
) -> Answer:
    """A request with OBS's own signature."""
    path = stage.path(key, bucket) if key else f"/{bucket or stage.bucket}/"
    pairs = query or {}
    parts = [f"{name}={value}" if value else name for name, value in sorted(pairs.items())]
    signed = [part for part in parts if part.partition("=")[0] in SIGNED]
    pair = stage.target.keys[user]
    pair = KeyPair(pair.access_key, secret or pair.secret_key)
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    whole = sign_old(pair, "OBS", method, path + ("?" + "&".join(signed) if signed else ""), sent, date)
    if method in ("PUT", "POST"):
        whole["content-length"] = str(len(body))
    target = path + ("?" + "&".join(parts) if parts else "")
    return stage.target.send(method, target, {"host": stage.target.host, **whole}, body)


def described(stage: Stage) -> None:
    """An object with metadata and a type."""
    stage.dev.put_object(Key=stage.there, Body=CONTENT, Metadata={"a": "1"}, ContentType="text/plain")


def keys(stage: Stage) -> list[str]:
    """The keys of the case's objects."""
    page = stage.dev.list_objects_v2(Prefix=stage.prefix)
    return [entry["Key"].removeprefix(stage.prefix) for entry in page.get("Contents", [])]


def nothing(s: Stage, a: Answer) -> tuple[object, object]:
    """Nothing has the case's key."""
    return s.dev.head_object(Key=s.key).status, 404
