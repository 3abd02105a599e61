"""POST of an object by a browser's form."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import quote, urlencode, urlsplit

from trainshed.api.obs.body import BodyReader
from trainshed.api.obs.encryption import encryption_header
from trainshed.api.obs.errors import S3Error
from trainshed.api.obs.form import FormReader
from trainshed.api.obs.object_headers import read_about, version_header
from trainshed.api.obs.post_policy import SizeRange, check_policy, read_form_claim
from trainshed.api.obs.tagging import read_tag_document
from trainshed.api.obs.visit import Visit
from trainshed.model.names import check_key
from trainshed.store.object_store import ObjectInfo, Upload

__all__ = ["post_object"]

_FILENAME = "${filename}"
# The fields that say of the object what headers say in a PUT.
_HEADERS = frozenset(
    [
        "cache-control",
        "content-disposition",
        "content-encoding",
        "content-language",
        "content-md5",
        "content-type",
        "expires",
    ]
)
_OPTIONS = (
    "meta-",
    "checksum-",
    "storage-class",
    "website-redirect-location",
    "acl",
    "server-side-encryption",
)


async def post_object(visit: Visit) -> None:
    """Store the file of a form, as the policy in it allows."""
    if visit.is_signed:
        raise S3Error(
            "InvalidArgument", "Only one auth mechanism allowed: the form's policy, or a signature."
        )
    upload = _FormUpload(visit)
    try:
        async for piece in visit.exchange.pieces():
            await visit.exchange.in_thread(upload.take, piece)
        info = await visit.exchange.in_thread(upload.finish)
    except BaseException:
        await visit.exchange.in_thread(upload.abort)
        raise
    await _answer(visit, upload, info)


class _FormUpload:
    """A form that becomes an object. Nothing of its file is kept before the policy was found to allow it."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        self._form = FormReader(visit.headers.get("content-type", ""))
        place = "" if visit.signed.host_bucket else f"/{quote(visit.bucket)}"
        self._base = f"{visit.exchange.scheme}://{visit.headers.get('host', '')}{place}"
        self._sizes = SizeRange()
        self._size = 0
        self._target: Upload | None = None
        self._reader: BodyReader | None = None

    @property
    def fields(self) -> dict[str, str]:
        """The fields that came before the file."""
        return self._form.fields

    @property
    def location(self) -> str:
        """Where the object is."""
        return f"{self._base}/{quote(self._visit.key)}"

    def take(self, piece: bytes) -> None:
        """Take the next piece of the body."""
        data = self._form.feed(piece)
        if not self._form.has_file:
            return
        if self._target is None or self._reader is None:
            self._reader, self._target = self._begin()
        self._size += len(data)
        self._sizes.check_growing(self._size)
        self._target.write(self._reader.take(data))

    def finish(self) -> ObjectInfo:
        """Make the object visible."""
        self._form.finish()
        assert self._target is not None and self._reader is not None
        self._sizes.check_whole(self._size)
        checksum = self._reader.finish()
        return self._target.commit(expected_md5=self._reader.expected_md5, attributes=checksum)

    def abort(self) -> None:
        """Leave nothing behind; does nothing to an object that is visible."""
        if self._target is not None:
            self._target.abort()

    def _begin(self) -> tuple[BodyReader, Upload]:
        visit, fields = self._visit, self.fields
        if not fields.get("key"):
            raise S3Error(
                "InvalidArgument",
                "Bucket POST must contain a field named 'key'. If it is specified, please check the order of"
                " the fields.",
                ArgumentName="key",
            )
        fields["key"] = visit.key = fields["key"].replace(_FILENAME, self._form.filename)
        if fields.get("bucket", visit.bucket) != visit.bucket:
            raise S3Error("InvalidArgument", "The field 'bucket' names another bucket than the address.")
        claim = read_form_claim(fields)
        if claim is not None:
            visit.trust(claim.scheme, claim.access_key, claim.check)
            self._sizes = check_policy(claim.policy, fields, visit.bucket, visit.platform.clock())
        visit.writable()
        check_key(visit.key)
        visit.headers = self._headers()
        about = read_about(visit)
        if fields.get("tagging"):
            tags = {"tagging": read_tag_document(fields["tagging"].encode())}
            about = replace(about, attributes=about.attributes | tags)
        reader = BodyReader(visit)
        return reader, visit.store.upload(
            visit.bucket,
            visit.key,
            content_type=about.content_type,
            metadata=about.metadata,
            attributes=about.attributes,
        )

    def _headers(self) -> dict[str, str]:
        """The fields as the headers of a PUT of the same object; the file's length is not known before."""
        prefix = self._visit.prefix
        known = tuple(prefix + name for name in _OPTIONS)
        headers = {"transfer-encoding": "chunked"}
        for name, value in self.fields.items():
            if name in _HEADERS or name.startswith(known):
                headers[name] = value.encode().decode("latin-1")
        if self.fields.get("acl"):
            headers[f"{prefix}acl"] = self.fields["acl"]
        return headers


async def _answer(visit: Visit, upload: _FormUpload, info: ObjectInfo) -> None:
    etag = f'"{info.etag}"'
    headers = {"etag": etag, **version_header(info), **encryption_header(visit)}
    wanted = upload.fields.get("success_action_redirect") or upload.fields.get("redirect", "")
    redirect = _redirect(wanted, [("bucket", visit.bucket), ("key", visit.key), ("etag", etag)])
    if redirect:
        await visit.answer(303, {**headers, "location": redirect})
        return
    headers["location"] = upload.location
    status = upload.fields.get("success_action_status", "")
    if status == "201":
        content = [
            ("Location", upload.location),
            ("Bucket", visit.bucket),
            ("Key", visit.key),
            ("ETag", etag),
        ]
        await visit.answer_xml("PostResponse", content, status=201, headers=headers)
    else:
        await visit.answer(200 if status == "200" else 204, headers)


def _redirect(wanted: str, pairs: list[tuple[str, str]]) -> str:
    """The page to go to, which learns what was stored; nothing if it is no address."""
    if not (wanted.isascii() and wanted.isprintable()) or " " in wanted:
        return ""
    try:
        parts = urlsplit(wanted)
    except ValueError:
        return ""
    if parts.scheme not in ("http", "https") or not parts.netloc:
        return ""
    query = "&".join(part for part in (parts.query, urlencode(pairs)) if part)
    return parts._replace(query=query).geturl()
