"""What an object's key is called at the endpoint.

Many endpoints take a key for what it is: a string. Others keep objects as files in folders: there `a//b` is
`a/b`, `a` cannot lie beside `a/b`, `..` is refused, and a list comes in the order of folders instead of keys.
For those, keys are written in a way that has none of these forms, byte by byte and in the same order:

    0x01 to 0x21   !01 to !21
    -              --
    .              -.
    /              ._/          (so that the folder of `a/b` is not called like the object `a`)
    [              [-
    \\              [~           (some take it for a slash)
    all others     themselves
    the end of a key that ends in `/`: !

A folder's own list is in the order of names, and a name ends before all that begin with it: hence what comes
before `/` among the bytes comes before `._` here, and what comes behind it behind.
"""

from __future__ import annotations

import re
from typing import Protocol

__all__ = ["ESCAPED", "PLAIN", "EscapedNames", "KeyNames", "PlainNames", "key_names"]

PLAIN = "plain"
ESCAPED = "escaped"
# Behind all that a key can go on with.
_LAST = "\U0010ffff"


class KeyNames(Protocol):
    """How keys, and prefixes of keys, are written at the endpoint, and read again."""

    def encode(self, key: str) -> str:
        """The name of a key."""
        ...

    def encode_prefix(self, prefix: str) -> str:
        """What the names of all keys with a prefix begin with."""
        ...

    def decode(self, name: str) -> str | None:
        """The key of a name; None for a name that none of ours has."""
        ...

    def behind_folder(self, folder: str) -> str:
        """A name behind those of all keys in a folder (a prefix that ends in `/`), and before all others."""
        ...


class PlainNames:
    """Keys as they are."""

    def encode(self, key: str) -> str:
        """The key itself."""
        return key

    encode_prefix = encode

    def decode(self, name: str) -> str | None:
        """The name itself."""
        return name or None

    def behind_folder(self, folder: str) -> str:
        """The last key that could lie in the folder."""
        return folder + _LAST


_ESCAPES = {
    **{chr(code): f"!{code:02x}" for code in range(1, 0x22)},
    "-": "--",
    ".": "-.",
    "/": "._/",
    "[": "[-",
    "\\": "[~",
}
_TABLE = str.maketrans(_ESCAPES)
_BACK = {text: char for char, text in _ESCAPES.items()}
_TOKEN = re.compile(r"!(?:0[1-9a-f]|1[0-9a-f]|2[01])|--|-\.|\._/|\[-|\[~|[^!./\[\\\x00-\x20-]")
_FOLDER_MARKER = "!"


class EscapedNames:
    """Keys in a form that any file system could hold."""

    def encode(self, key: str) -> str:
        """The key, byte by byte; the marker of a folder has a name of its own in it."""
        return key.translate(_TABLE) + (_FOLDER_MARKER if key.endswith("/") else "")

    def encode_prefix(self, prefix: str) -> str:
        """The prefix, byte by byte."""
        return prefix.translate(_TABLE)

    def decode(self, name: str) -> str | None:
        """The key, if the name is one that `encode` gives."""
        is_marker = name.endswith("._/" + _FOLDER_MARKER)
        name = name.removesuffix(_FOLDER_MARKER) if is_marker else name
        found: list[str] = []
        at = 0
        while at < len(name):
            token = _TOKEN.match(name, at)
            if token is None:
                return None
            found.append(_BACK.get(token[0], token[0]))
            at = token.end()
        return "".join(found) or None

    def behind_folder(self, folder: str) -> str:
        """No name goes on with this behind `._`, and `/` comes right before it."""
        return self.encode_prefix(folder)[:-1] + "0"


def key_names(kind: str) -> KeyNames:
    """The names of a kind: `plain` or `escaped`."""
    return PlainNames() if kind == PLAIN else EscapedNames()
