"""The XML of S3 and OBS: written from nested pairs, read without what XML can do to its reader."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, TypeAlias
from urllib.parse import quote
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from trainshed.api.obs.errors import S3Error

__all__ = [
    "S3_NAMESPACE",
    "Content",
    "child",
    "children",
    "format_time",
    "parse_xml",
    "render_xml",
    "text_of",
    "url_encode",
]

S3_NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
# Text, or elements in their order; an element that is None is left out.
Content: TypeAlias = "str | Iterable[tuple[str, Any]]"

_SPECIAL = re.compile(r"[&<>\"\x00-\x08\x0b-\x1f\x7f]")
_NAMES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"}


def render_xml(name: str, content: Content, *, namespace: str = S3_NAMESPACE) -> bytes:
    """A whole document."""
    parts = ['<?xml version="1.0" encoding="UTF-8"?>\n']
    opening = f'{name} xmlns="{namespace}"' if namespace else name
    _render(parts, opening, name, content)
    return "".join(parts).encode("utf-8", "replace")


def _render(parts: list[str], opening: str, name: str, content: Content) -> None:
    if isinstance(content, str):
        parts.append(f"<{opening}>{_escape(content)}</{name}>")
        return
    parts.append(f"<{opening}>")
    for inner, value in content:
        if value is None:
            continue
        if isinstance(value, bool):
            value = "true" if value else "false"
        elif isinstance(value, int):
            value = str(value)
        # An element with attributes brings them in its name: `Grantee xsi:type="Group"`.
        _render(parts, inner, inner.partition(" ")[0], value)
    parts.append(f"</{name}>")


def _escape(text: str) -> str:
    return _SPECIAL.sub(lambda found: _NAMES.get(found[0]) or f"&#x{ord(found[0]):x};", text)


class _SafeBuilder(ElementTree.TreeBuilder):
    """Builds a tree, and wants no document type: entities begin there."""

    def doctype(self, name: str, public: str | None, system: str | None) -> None:
        raise ElementTree.ParseError("document types are not allowed")


def parse_xml(body: bytes, name: str) -> Element:
    """The root of a document, which must have this name; names are without their namespaces."""
    try:
        parser = ElementTree.XMLParser(target=_SafeBuilder())
        parser.feed(body)
        root = parser.close()
    except (ElementTree.ParseError, ValueError, LookupError):
        raise malformed_xml() from None
    if not isinstance(root, Element):
        raise malformed_xml()
    for element in root.iter():
        if isinstance(element.tag, str):
            element.tag = element.tag.rpartition("}")[2]
    if root.tag != name:
        raise malformed_xml()
    return root


def malformed_xml() -> S3Error:
    """The error for a document that says nothing we understand."""
    return S3Error(
        "MalformedXML",
        "The XML you provided was not well-formed or did not validate against our published schema.",
    )


def child(element: Element, name: str) -> Element | None:
    """The first element of that name."""
    return element.find(name)


def children(element: Element, name: str) -> list[Element]:
    """All elements of that name."""
    return element.findall(name)


def text_of(element: Element, name: str, default: str | None = None) -> str:
    """The text of an element within; without a default it must be there."""
    found = element.find(name)
    if found is None:
        if default is None:
            raise malformed_xml()
        return default
    return found.text or ""


def format_time(seconds: float) -> str:
    """A moment as S3 writes it: `2009-10-12T17:50:30.000Z`."""
    return (
        datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.")
        + f"{int(seconds * 1000) % 1000:03}Z"
    )


def url_encode(text: str) -> str:
    """A key as `encoding-type=url` wants it."""
    return quote(text, safe="/-_.~")
