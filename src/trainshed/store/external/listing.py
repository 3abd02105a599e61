"""Lists in the exact order of keys. A page costs what it holds; each folder of another delimiter than `/` a request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import unquote_plus

from trainshed.store.external.core import ExternalCore
from trainshed.store.external.key_names import ESCAPED
from trainshed.store.external.layout import list_page
from trainshed.store.external.object_facts import bare_etag, moment_of
from trainshed.store.external.wire import Refused
from trainshed.store.records import Listing, ObjectInfo, Version, VersionListing

__all__ = ["ListOperations"]

_LAST = "\U0010ffff"
_PAGE = 1000


class ListOperations(ExternalCore):
    """List objects. What a list tells of an object is key, size, ETag and time; `info` tells the rest."""

    def list(
        self, bucket: str, prefix: str = "", *, delimiter: str = "", after: str = "", limit: int = 1000
    ) -> Listing:
        """One page of keys in exact byte order."""
        self._require(bucket)
        if limit <= 0:
            page = self._list(bucket, prefix, delimiter, after, 1)
            return Listing((), (), after if page.objects or page.folders else "")
        return self._list(bucket, prefix, delimiter, after, limit)

    def walk(self, bucket: str, prefix: str = "") -> Iterator[ObjectInfo]:
        """All objects below a prefix, page by page."""
        after = ""
        while True:
            page = self.list(bucket, prefix, after=after)
            yield from page.objects
            after = page.next_after
            if not after:
                return

    def list_versions(
        self,
        bucket: str,
        prefix: str = "",
        *,
        delimiter: str = "",
        after_key: str = "",
        after_version: str = "",
        limit: int = 1000,
    ) -> VersionListing:
        """One page of the present objects: each is the only version of itself."""
        page = self.list(bucket, prefix, delimiter=delimiter, after=after_key, limit=limit)
        versions = tuple(Version(info, is_latest=True) for info in page.objects)
        return VersionListing(versions, page.folders, page.next_after)

    def _list(self, bucket: str, prefix: str, delimiter: str, after: str, limit: int) -> Listing:
        if delimiter not in ("", "/"):
            return self._list_rolled_up(bucket, prefix, delimiter, after, limit)
        objects: list[ObjectInfo] = []
        folders: list[str] = []
        start = self._start_name(bucket, prefix, delimiter, after)
        while True:
            found, rolled, last, has_more = self._page(
                bucket, prefix, delimiter, start, limit - len(objects) - len(folders)
            )
            objects += found
            folders += [folder for folder in rolled if folder != after]
            if not has_more or not last:
                return Listing(tuple(objects), tuple(folders))
            if len(objects) + len(folders) >= limit:
                ends = [objects[-1].key if objects else "", folders[-1] if folders else ""]
                return Listing(tuple(objects), tuple(folders), max(ends, key=str.encode))
            start = last

    def _start_name(self, bucket: str, prefix: str, delimiter: str, after: str) -> str:
        """The endpoint's name behind which the page begins."""
        if not after or after.encode() < prefix.encode():
            return ""
        folder = self._layout.folder(bucket)
        names = self._layout.names
        if delimiter and _is_folder(after, prefix, delimiter):
            return folder + names.behind_folder(after)
        return folder + names.encode(after)

    def _page(
        self, bucket: str, prefix: str, delimiter: str, start: str, limit: int
    ) -> tuple[Sequence[ObjectInfo], Sequence[str], str, bool]:
        """A page of the endpoint: objects, folders, the name to go on behind, and whether there is more."""
        folder = self._layout.folder(bucket)
        names = self._layout.names
        try:
            page = list_page(
                self._wire,
                folder + names.encode_prefix(prefix),
                delimiter=delimiter,
                after=start,
                limit=min(limit, _PAGE),
            )
        except Refused as refused:
            raise self._explain(refused, bucket, prefix) from refused
        objects: list[ObjectInfo] = []
        folders: list[str] = []
        last = ""
        for item in page.iter("Contents"):
            name = unquote_plus(item.findtext("Key") or "")
            last = max(last, name, key=str.encode)
            key = self._layout.key(bucket, name)
            # What others put there under names that are none of ours is not shown.
            if key is not None:
                objects.append(
                    ObjectInfo(
                        bucket,
                        key,
                        int(item.findtext("Size") or 0),
                        bare_etag(item.findtext("ETag") or ""),
                        moment_of(item.findtext("LastModified") or ""),
                    )
                )
        for item in page.iter("CommonPrefixes"):
            name = unquote_plus(item.findtext("Prefix") or "")
            key = names.decode(name[len(folder) :])
            if key is not None:
                folders.append(key)
                last = max(last, folder + names.behind_folder(key), key=str.encode)
        if folders and self._layout.terms.names == ESCAPED:
            folders = [*self._without_empty(bucket, folders)]
        return objects, folders, last, page.findtext("IsTruncated") == "true"

    def _without_empty(self, bucket: str, folders: Sequence[str]) -> Sequence[str]:
        """Leave out folders that an endpoint with folders of its own still has, though nothing lies in them."""
        folder, names = self._layout.folder(bucket), self._layout.names

        def has_objects(key: str) -> bool:
            return self._layout.has_objects(folder + names.encode_prefix(key))

        with ThreadPoolExecutor(min(16, len(folders)), "folders") as threads:
            return [key for key, has in zip(folders, threads.map(has_objects, folders), strict=True) if has]

    def _list_rolled_up(self, bucket: str, prefix: str, delimiter: str, after: str, limit: int) -> Listing:
        """Roll up keys ourselves: endpoints know `/` at most. Behind each folder the list begins anew."""
        objects: list[ObjectInfo] = []
        folders: list[str] = []
        # The folder that is being passed over, and where the list goes on.
        inside, start, last = "", after, ""
        if _is_folder(after, prefix, delimiter):
            inside, start = after, after + _LAST
        while True:
            page = self._list(bucket, prefix, "", start, _PAGE)
            start = page.next_after
            for info in page.objects:
                if inside and info.key.startswith(inside):
                    continue
                if len(objects) + len(folders) >= limit:
                    return Listing(tuple(objects), tuple(folders), last)
                at = info.key.find(delimiter, len(prefix))
                if at < 0:
                    objects.append(info)
                    inside, last = "", info.key
                    continue
                inside = last = info.key[: at + len(delimiter)]
                folders.append(inside)
                if start.startswith(inside):
                    start = inside + _LAST
                    break
            if not start:
                return Listing(tuple(objects), tuple(folders))


def _is_folder(key: str, prefix: str, delimiter: str) -> bool:
    """Whether this is what keys are rolled up to: all up to the first delimiter behind the prefix."""
    at = key.find(delimiter, len(prefix)) if key.startswith(prefix) else -1
    return at >= 0 and at + len(delimiter) == len(key)
