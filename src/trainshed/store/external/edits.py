"""Copies, new names, attributes and removals. The bytes stay at the endpoint."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from xml.etree import ElementTree

from trainshed.model.errors import InvalidInput, NotFound, Unavailable
from trainshed.model.names import check_key
from trainshed.store.external.core import content_md5
from trainshed.store.external.listing import ListOperations
from trainshed.store.external.object_facts import bare_etag, moment_of, write_facts
from trainshed.store.external.parts import OpenParts, PartsOperations
from trainshed.store.external.wire import Answer, Refused, parse_xml
from trainshed.store.records import Condition, MultipartUpload, ObjectInfo, Removal
from trainshed.store.rules import check_condition, check_rename_target, checked_metadata, no_such_key, taken

__all__ = ["EditOperations"]

# What the endpoint copies by one request; what is larger is copied in parts.
_LARGEST_COPY = 5 << 30
_COPY_PART = 1 << 30
_THREADS = 16
_TRIES = 8
_MAX_KEY_BYTES = 1024
_MAX_ATTRIBUTES = 65536


class EditOperations(ListOperations, PartsOperations):
    """Copy, rename, describe and remove objects."""

    def copy(
        self,
        bucket: str,
        key: str,
        to_bucket: str,
        to_key: str,
        *,
        version_id: str = "",
        content_type: str | None = None,
        metadata: dict[str, str] | None = None,
        attributes: dict[str, str] | None = None,
        condition: Condition | None = None,
    ) -> ObjectInfo:
        """Copy one object, replacing the one that had the new key."""
        check_key(to_key)
        self._require(bucket, to_bucket)
        about = None if metadata is None else checked_metadata(metadata)
        for _ in range(_TRIES):
            source = self.info(bucket, key, version_id)
            target = replace(
                source,
                bucket=to_bucket,
                key=to_key,
                content_type=source.content_type if content_type is None else content_type,
                metadata=source.metadata if about is None else about,
                attributes=source.attributes if attributes is None else dict(attributes),
                # A copy is an object like any other.
                is_appendable=False,
            )
            copied = self._copy(source, target, condition)
            if copied is not None:
                return copied
        raise Unavailable(f"'{key}' is being changed by others.", hint="Try again.", code="store_busy")

    def rename(self, bucket: str, key: str, to_key: str) -> ObjectInfo:
        """Give an object another key: it is copied, then removed. Killed in between, it has both.

        The new key must be free.
        """
        check_key(to_key)
        source = self.info(bucket, key)
        if self._exists(bucket, to_key):
            raise taken(to_key)
        target = replace(source, key=to_key)
        renamed = self._copy(source, target, None, only_if_free=self._layout.terms.has_conditions)
        if renamed is None:
            if self._exists(bucket, to_key):
                raise taken(to_key)
            raise Unavailable(f"'{key}' is being changed by others.", hint="Try again.", code="store_busy")
        self._delete(bucket, key)
        return renamed

    def rename_prefix(self, bucket: str, prefix: str, to_prefix: str) -> int:
        """Give all objects below a prefix another one: all are copied, then all are removed.

        Nothing may lie there. What fails before all are copied is undone.
        """
        for part in (prefix, to_prefix):
            check_key(part)
        check_rename_target(prefix, to_prefix)
        self._require(bucket)
        page = self.list(bucket, to_prefix, limit=1)
        if page.objects:
            raise taken(to_prefix)
        count = self._copy_all(bucket, prefix, bucket, to_prefix, keeps_kind=True)
        self.delete_prefix(bucket, prefix)
        return count

    def copy_prefix(self, bucket: str, prefix: str, to_bucket: str, to_prefix: str) -> int:
        """Copy all objects below a prefix, many at once. Where nothing lay before, a failure leaves nothing."""
        for part in (prefix, to_prefix):
            if part:
                check_key(part)
        self._require(bucket, to_bucket)
        return self._copy_all(bucket, prefix, to_bucket, to_prefix, keeps_kind=False)

    def set_attributes(
        self, bucket: str, key: str, changes: Mapping[str, str | None], *, version_id: str = ""
    ) -> ObjectInfo:
        """Change attributes of an object; those given as None are removed.

        The endpoint copies the object onto itself for that, which gives it a new time.
        """
        for _ in range(_TRIES):
            source = self.info(bucket, key, version_id)
            merged = {**source.attributes, **changes}
            kept = {name: text for name, text in merged.items() if text is not None}
            if sum(len(name) + len(text) for name, text in kept.items()) > _MAX_ATTRIBUTES:
                raise InvalidInput("That is too much to keep with an object.", code="too_many_attributes")
            changed = self._copy(source, replace(source, attributes=kept), None)
            if changed is not None:
                return changed
        raise Unavailable(f"'{key}' is being changed by others.", hint="Try again.", code="store_busy")

    # --- removing ---

    def delete(self, bucket: str, key: str) -> bool:
        """Remove an object; tells whether there was one."""
        return self.remove(bucket, key).existed

    def remove(
        self, bucket: str, key: str, version_id: str = "", *, condition: Condition | None = None
    ) -> Removal:
        """Remove an object. A condition is judged just before: few endpoints take one with a removal."""
        self._require(bucket)
        if condition is not None:
            try:
                etag = self.info(bucket, key).etag
            except NotFound:
                etag = None
            check_condition(key, condition, etag)
        if version_id not in ("", "null"):
            return Removal(False, version_id)
        try:
            existed = self._exists(bucket, key)
        except InvalidInput:
            return Removal(False)
        if existed:
            self._delete(bucket, key)
        return Removal(existed, version_id)

    def delete_prefix(self, bucket: str, prefix: str) -> int:
        """Remove all objects below a prefix; tells how many."""
        self._require(bucket)
        total = 0
        while True:
            # From the start each time: what was listed is gone.
            page = self.list(bucket, prefix)
            self._delete_many(bucket, [info.key for info in page.objects])
            total += len(page.objects)
            if not page.next_after:
                return total

    def _exists(self, bucket: str, key: str) -> bool:
        try:
            self.info(bucket, key)
        except NotFound as error:
            if error.code != "no_such_key":
                raise
            return False
        return True

    def _delete(self, bucket: str, key: str) -> None:
        try:
            self._wire.ask("DELETE", self._layout.name(bucket, key))
        except Refused as refused:
            if refused.status != 404:
                raise self._explain(refused, bucket, key) from refused

    def _delete_many(self, bucket: str, keys: Sequence[str]) -> None:
        names = [self._layout.name(bucket, key) for key in keys]
        # XML cannot carry all characters that a key may have.
        odd = [key for key, name in zip(keys, names, strict=True) if not name.isprintable()]
        plain = [name for name in names if name.isprintable()]
        if plain:
            root = ElementTree.Element("Delete")
            ElementTree.SubElement(root, "Quiet").text = "true"
            for name in plain:
                ElementTree.SubElement(ElementTree.SubElement(root, "Object"), "Key").text = name
            body = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
            headers = {"content-md5": content_md5(body), "content-type": "application/xml"}
            try:
                result = parse_xml(self._wire.ask("POST", "", {"delete": ""}, headers, body).body)
            except Refused as refused:
                raise self._explain(refused, bucket, "") from refused
            failed = result.find("Error")
            if failed is not None:
                raise Unavailable(
                    f"The external store did not remove an object: {failed.findtext('Code')}.",
                    hint="Try again; if it stays so, ask an administrator to look at the endpoint.",
                    code="store_refused",
                )
        self._at_once(odd, lambda key: self._delete(bucket, key))

    # --- copying ---

    def _copy(
        self,
        source: ObjectInfo,
        target: ObjectInfo,
        condition: Condition | None,
        *,
        only_if_free: bool = False,
    ) -> ObjectInfo | None:
        """Copy what `source` describes, with what `target` says of it; None when it was changed meanwhile.

        With `only_if_free` an endpoint that can do so refuses to replace another object, too.
        """
        if source.size > _LARGEST_COPY or (condition and (condition.if_match or condition.if_none_match)):
            return self._copy_in_parts(source, target, condition)
        headers = write_facts(
            target.content_type, target.metadata, target.attributes, is_appendable=target.is_appendable
        ) | {
            "x-amz-copy-source": self._source(source.bucket, source.key),
            "x-amz-copy-source-if-match": f'"{source.etag}"',
            "x-amz-metadata-directive": "REPLACE",
        }
        if only_if_free:
            headers["if-none-match"] = "*"
        try:
            answer = self._wire.ask("PUT", self._layout.name(target.bucket, target.key), headers=headers)
            answer = self._check_result(answer, "CopyObjectResult")
        except Refused as refused:
            if refused.status == 412:
                return None
            if only_if_free and refused.status in (400, 501):
                return self._copy(source, target, condition)
            raise self._explain(refused, source.bucket, source.key) from refused
        return _described(target, answer)

    def _copy_in_parts(
        self, source: ObjectInfo, target: ObjectInfo, condition: Condition | None
    ) -> ObjectInfo | None:
        """Copy by parts that the endpoint takes from the source: of any size, and with a condition at the end."""
        if not source.size:
            return self._put_bytes(
                target, write_facts(target.content_type, target.metadata, target.attributes), b"", condition
            )
        upload = MultipartUpload(
            target.bucket,
            target.key,
            f"copy-{time.time_ns():x}",
            time.time(),
            target.content_type,
            target.metadata,
            target.attributes,
        )
        parts = OpenParts(self, upload, condition, is_appendable=target.is_appendable)
        try:
            sent = [
                parts.copy(number, source, start, min(start + _COPY_PART, source.size))
                for number, start in enumerate(range(0, source.size, _COPY_PART), 1)
            ]
            return parts.complete(sent)
        except BaseException as error:
            parts.abort()
            if isinstance(error, Unavailable) and error.code == "object_changed":
                return None
            raise

    def _copy_all(self, bucket: str, prefix: str, to_bucket: str, to_prefix: str, *, keeps_kind: bool) -> int:
        # All keys first: the copies may lie among what is copied.
        infos = list(self.walk(bucket, prefix))
        change = len(to_prefix.encode()) - len(prefix.encode())
        if any(not 1 <= len(info.key.encode()) + change <= _MAX_KEY_BYTES for info in infos):
            raise InvalidInput(
                "The copy would have a key that is empty or longer than 1024 bytes.",
                hint="Choose another target prefix.",
                code="invalid_key",
            )
        was_empty = not self.list(to_bucket, to_prefix, limit=1).objects
        made: list[str] = []

        def copy_one(info: ObjectInfo) -> None:
            to_key = to_prefix + info.key[len(prefix) :]
            for _ in range(_TRIES):
                source = self.info(bucket, info.key)
                target = replace(
                    source,
                    bucket=to_bucket,
                    key=to_key,
                    is_appendable=keeps_kind and source.is_appendable,
                )
                if self._copy(source, target, None) is not None:
                    made.append(to_key)
                    return
            raise no_such_key(bucket, info.key)

        try:
            if bucket == to_bucket and (to_prefix.startswith(prefix) or prefix.startswith(to_prefix)):
                # A copy may take the place of what is still to be copied: the last one first.
                for info in sorted(infos, key=lambda info: len(info.key), reverse=change > 0):
                    copy_one(info)
            else:
                self._at_once(infos, copy_one)
        except BaseException:
            if was_empty:
                self._at_once(made, lambda key: self._delete(to_bucket, key))
            raise
        return len(infos)

    @staticmethod
    def _at_once(items: Iterable[object], work: Callable[..., None]) -> None:
        """Work on many items at once; the first error is raised when none is under way any more."""
        source = iter(items)
        with ThreadPoolExecutor(_THREADS, "store") as threads:
            while batch := list(islice(source, 1000)):
                for done in [threads.submit(work, item) for item in batch]:
                    done.result()


def _described(target: ObjectInfo, answer: Answer) -> ObjectInfo:
    return replace(
        target,
        etag=bare_etag(answer.headers.get("etag", "")),
        modified_at=moment_of(answer.headers.get("last-modified", "")),
    )
