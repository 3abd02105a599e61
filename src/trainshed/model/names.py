"""The names users give to things, and the URLs that point into the object store."""

from __future__ import annotations

import re
from dataclasses import dataclass

from trainshed.model.errors import InvalidInput
from trainshed.model.late_pattern import late_pattern

__all__ = [
    "ObsUrl",
    "check_bucket_name",
    "check_job_name",
    "check_key",
    "check_relative_path",
    "make_up_job_name",
    "parse_obs_url",
]

_JOB_NAME = late_pattern(r"[A-Za-z0-9_-]{1,64}")
_BUCKET = late_pattern(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_IPV4 = late_pattern(r"\d+\.\d+\.\d+\.\d+")


@dataclass(frozen=True)
class ObsUrl:
    """A place in the object store. A key that is empty or ends in `/` names a folder."""

    bucket: str
    key: str = ""

    @property
    def is_folder(self) -> bool:
        """Whether the URL is written as a folder."""
        return not self.key or self.key.endswith("/")

    def as_folder(self) -> ObsUrl:
        """The same place, written as a folder."""
        return self if self.is_folder else ObsUrl(self.bucket, self.key + "/")

    def child(self, name: str) -> ObsUrl:
        """The place `name` inside this folder."""
        return ObsUrl(self.bucket, self.as_folder().key + name)

    def __str__(self) -> str:
        return f"obs://{self.bucket}/{self.key}"


def check_job_name(name: str) -> str:
    """A job's name: letters, digits, `_` and `-`, at most 64."""
    if not _JOB_NAME.fullmatch(name):
        raise InvalidInput(
            f"'{name[:80]}' is not a job name.", hint="Use 1 to 64 letters, digits, '_' or '-'.", where="name"
        )
    return name


def make_up_job_name(program: str, suffix: str) -> str:
    """A name for a job that was given none: from its boot file or the first word of its command."""
    word = (program.split() or ["job"])[0].rsplit("/", 1)[-1]
    stem = re.sub(r"[^A-Za-z0-9_-]+", "-", word.rsplit(".", 1)[0]).strip("-")[:40] or "job"
    return f"{stem}-{suffix}"


def check_bucket_name(name: str) -> str:
    """A bucket's name, by the rules that S3 and OBS share."""
    bad = ".." in name or ".-" in name or "-." in name or _IPV4.fullmatch(name)
    if bad or not _BUCKET.fullmatch(name):
        raise InvalidInput(
            f"'{name[:80]}' is not a bucket name.",
            hint="Use 3 to 63 lower-case letters, digits, '-' or '.', with a letter or digit at both ends.",
            code="invalid_bucket_name",
        )
    return name


def check_key(key: str) -> str:
    """An object's key: 1 to 1024 bytes of UTF-8 without NUL."""
    try:
        size = len(key.encode("utf-8"))
    except UnicodeEncodeError:
        size = 0
    if not 1 <= size <= 1024 or "\0" in key:
        raise InvalidInput(
            "An object key must be 1 to 1024 bytes of UTF-8 without NUL.", code="invalid_key", where=key[:80]
        )
    return key


def check_relative_path(path: str, where: str) -> str:
    """A path inside a folder that cannot lead out of it."""
    parts = path.split("/")
    if (
        not path
        or path.startswith("/")
        or "\\" in path
        or "\0" in path
        or any(p in ("", ".", "..") for p in parts)
    ):
        raise InvalidInput(
            f"'{path[:120]}' is not a path inside the folder.",
            hint="Write it relative, such as src/train.py.",
            where=where,
        )
    return path


def parse_obs_url(text: str, where: str = "") -> ObsUrl:
    """Read `obs://bucket/key`, `s3://bucket/key` or `/bucket/key`."""
    for scheme in ("obs://", "s3://", "/"):
        if text.startswith(scheme) and not text.startswith("//"):
            bucket, _, key = text.removeprefix(scheme).partition("/")
            check_bucket_name(bucket)
            if key:
                check_key(key)
            return ObsUrl(bucket, key)
    raise InvalidInput(
        f"'{text[:120]}' is not an object store URL.", hint="Write it as obs://bucket/folder/.", where=where
    )
