"""Paths and URLs: what lies in a store, and what on this machine."""

import os

__all__ = ["Address", "is_remote", "local_path", "parse"]

_SCHEMES = ("obs://", "s3://", "s3a://")


class Address:
    """A place in a store: a bucket and a key, which is empty for the bucket itself."""

    def __init__(self, scheme, bucket, key):
        self.scheme = scheme
        self.bucket = bucket
        self.key = key

    @property
    def prefix(self):
        """The key as a folder: empty, or with a `/` behind."""
        return self.key.rstrip("/") + "/" if self.key.strip("/") else ""

    def below(self, name):
        """The URL of what lies in this folder under a relative name."""
        return f"{self.scheme}{self.bucket}/{self.prefix}{name}"


def is_remote(url):
    """Whether a path means an object or folder of a store."""
    return isinstance(url, str) and url.startswith(_SCHEMES)


def parse(url):
    """Read `obs://bucket/key` or `s3://bucket/key`."""
    for scheme in _SCHEMES:
        if url.startswith(scheme):
            bucket, _, key = url[len(scheme) :].partition("/")
            if not bucket:
                raise ValueError(f"'{url}' names no bucket: write it as obs://bucket/key")
            return Address(scheme, bucket, key.lstrip("/"))
    raise ValueError(f"'{url}' is not the URL of an object: write it as obs://bucket/key")


def local_path(path):
    """A path of this machine as a string."""
    path = os.fspath(path)
    return os.fsdecode(path) if isinstance(path, bytes) else path
