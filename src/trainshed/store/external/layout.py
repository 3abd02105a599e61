"""What lies where in the external bucket, and what the endpoint can do.

    PREFIX/.trainshed/store.json            how keys are written here, and whether writes can be conditional
    PREFIX/.trainshed/platform              whose place this is
    PREFIX/.trainshed/buckets/NAME.json     a bucket: its workspace and its settings
    PREFIX/.trainshed/uploads/NAME/ID.json  an upload in parts that is not finished
    PREFIX/NAME/KEY                         an object

The first to use a place finds out what its endpoint does with odd keys, and writes that down for all others.
"""

from __future__ import annotations

import json
import secrets
import threading
from dataclasses import dataclass
from urllib.parse import unquote_plus
from xml.etree import ElementTree

from trainshed.model.errors import InvalidInput, NotAllowed, Unavailable
from trainshed.store.external.key_names import ESCAPED, PLAIN, KeyNames, key_names
from trainshed.store.external.wire import Refused, Wire, parse_xml

__all__ = ["OWN_FOLDER", "Layout", "Terms", "list_page", "names_in"]

OWN_FOLDER = ".trainshed/"
_VERSION = 1
_MAX_NAME_BYTES = 1024
# Keys that an endpoint with folders of its own would refuse, mix up or list in another order.
_ODD_KEYS = ("../up", "/front", "a", "a-b", "a.b", "a/", "a/../c", "a//b", "a/b", "a0", "a\\b")


@dataclass(frozen=True)
class Terms:
    """What the place was found to be at its first use."""

    names: str = ESCAPED
    has_conditions: bool = False


class Layout:
    """Names of objects at the endpoint."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self.prefix = wire.address.prefix
        self._lock = threading.Lock()
        self._terms: Terms | None = None
        self._names: KeyNames = key_names(ESCAPED)

    def forget_parent(self) -> None:
        """After a fork: nobody holds the lock in this process."""
        self._lock = threading.Lock()

    @property
    def terms(self) -> Terms:
        """What the endpoint can do; asked for once."""
        if self._terms is None:
            with self._lock:
                if self._terms is None:
                    self._terms = terms = self._read_terms() or self._settle_terms()
                    self._names = key_names(terms.names)
        return self._terms

    @property
    def names(self) -> KeyNames:
        """How keys are written here."""
        assert self.terms
        return self._names

    def own(self, path: str) -> str:
        """The name of one of the store's own records."""
        return f"{self.prefix}{OWN_FOLDER}{path}"

    def folder(self, bucket: str) -> str:
        """What the names of all objects of a bucket begin with."""
        if f"{bucket}/" == OWN_FOLDER:
            raise NotAllowed(f"The bucket '{bucket}' belongs to the store itself.", hint="Use another one.")
        return f"{self.prefix}{bucket}/"

    def name(self, bucket: str, key: str) -> str:
        """The name of an object."""
        name = self.folder(bucket) + self.names.encode(key)
        size = len(name.encode())
        if size > _MAX_NAME_BYTES:
            raise InvalidInput(
                f"With the prefix of the external store the key has {size} bytes; it takes {_MAX_NAME_BYTES}.",
                hint="Choose a shorter key.",
                code="invalid_key",
            )
        return name

    def key(self, bucket: str, name: str) -> str | None:
        """The key of an object's name; None for one that was not written by us."""
        if self._is_folder(name):
            return None
        return self.names.decode(name[len(self.folder(bucket)) :])

    def has_objects(self, prefix: str) -> bool:
        """Whether any object has a name that begins so."""
        return any(not self._is_folder(name) for name in names_in(list_page(self._wire, prefix, limit=16)))

    def names_below(self, prefix: str) -> list[str]:
        """The first thousand names that begin so."""
        return [name for name in names_in(list_page(self._wire, prefix)) if not self._is_folder(name)]

    def clear(self, prefix: str) -> None:
        """Remove all objects whose names begin so."""
        while names := self.names_below(prefix):
            for name in names:
                self._wire.ask("DELETE", name)

    def _is_folder(self, name: str) -> bool:
        """Whether this is a folder that the endpoint made for its own sake: no object of ours is called so."""
        return name.endswith("/") and self.terms.names == ESCAPED

    # --- the first use ---

    def _read_terms(self) -> Terms | None:
        try:
            answer = self._wire.ask("GET", self.own("store.json"))
        except Refused as refused:
            if refused.status == 404:
                return None
            raise self._unclear(refused) from refused
        try:
            values = json.loads(answer.body)
            version, names, conditions = values["version"], values["names"], values["conditions"]
        except (ValueError, KeyError, TypeError):
            version, names, conditions = -1, "", False
        if version != _VERSION or names not in (PLAIN, ESCAPED):
            raise Unavailable(
                f"The data at {self._wire.address.place} was written by another version of Trainshed.",
                hint="Use the version that wrote it, or another prefix.",
                code="store_too_new",
            )
        return Terms(names, bool(conditions))

    def _settle_terms(self) -> Terms:
        place = self.own(f"probe-{secrets.token_hex(8)}/")
        try:
            conditions = self._honours_conditions(place)
            names = PLAIN if self._takes_any_key(place + "keys/") else ESCAPED
        finally:
            self._clear(place)
        terms = Terms(names, conditions)
        record = {"version": _VERSION, "names": terms.names, "conditions": terms.has_conditions}
        try:
            self._wire.ask(
                "PUT",
                self.own("store.json"),
                headers={"content-type": "application/json"} | ({"if-none-match": "*"} if conditions else {}),
                body=json.dumps(record).encode(),
            )
        except Refused as refused:
            if refused.status not in (409, 412):
                raise self._unclear(refused) from refused
            # Another process was faster: what it found holds.
        return self._read_terms() or terms

    def _honours_conditions(self, place: str) -> bool:
        """Whether "only if nothing is there" and "only if it is this" are obeyed."""
        name = place + "condition"
        try:
            etag = self._wire.ask("PUT", name, headers={"if-none-match": "*"}, body=b"1").headers.get(
                "etag", ""
            )
        except Refused as refused:
            if refused.status in (400, 501):
                return False
            raise self._unclear(refused) from refused
        for wrong in ({"if-none-match": "*"}, {"if-match": '"0123456789abcdef0123456789abcdef"'}):
            try:
                self._wire.ask("PUT", name, headers=wrong, body=b"2")
                return False
            except Refused as refused:
                if refused.status not in (409, 412):
                    return False
        try:
            self._wire.ask("PUT", name, headers={"if-match": etag}, body=b"3")
        except Refused:
            return False
        return True

    def _takes_any_key(self, place: str) -> bool:
        """Whether the endpoint takes keys for what they are, and lists them in the order of their bytes."""
        try:
            for key in _ODD_KEYS:
                self._wire.ask("PUT", place + key, body=key.encode())
            for key in _ODD_KEYS:
                if self._wire.ask("GET", place + key).body != key.encode():
                    return False
            return [name[len(place) :] for name in names_in(list_page(self._wire, place))] == list(_ODD_KEYS)
        except Refused:
            return False

    def _clear(self, place: str) -> None:
        try:
            for name in names_in(list_page(self._wire, place)):
                self._wire.ask("DELETE", name)
        except (Refused, Unavailable):
            pass  # Small, and in nobody's way.

    def _unclear(self, refused: Refused) -> Unavailable:
        return Unavailable(
            f"The external store does not answer as an S3 endpoint does: {refused}.",
            hint="Check store_endpoint and store_region with `trainshed doctor`.",
            code="store_refused",
        )


def list_page(
    wire: Wire, prefix: str, *, delimiter: str = "", after: str = "", limit: int = 1000
) -> ElementTree.Element:
    """One page of the endpoint's own list; names are quoted in it."""
    query = {"list-type": "2", "encoding-type": "url", "prefix": prefix, "max-keys": str(limit)}
    if delimiter:
        query["delimiter"] = delimiter
    if after:
        query["start-after"] = after
    return parse_xml(wire.ask("GET", "", query).body)


def names_in(page: ElementTree.Element) -> list[str]:
    """The names of the objects on a page of the endpoint's list."""
    return [unquote_plus(item.findtext("Key") or "") for item in page.iter("Contents")]
