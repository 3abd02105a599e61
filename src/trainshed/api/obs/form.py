"""A browser's form on its way in: its fields, and then the bytes of its file as they arrive."""

from __future__ import annotations

import re

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from trainshed.api.obs.errors import S3Error

__all__ = ["FormReader"]

# As S3 has it: all that comes before the file, and what comes behind it.
_MAX_FIELDS = 20 << 10
_MAX_TRAILING = 20 << 10
# What a part costs beside its name and value, so that empty ones are not free.
_PART_COST = 32


class FormReader:
    """Takes a `multipart/form-data` body in pieces. Fields behind the file are left out, as S3 does."""

    def __init__(self, content_type: str) -> None:
        kind, options = parse_options_header(content_type)
        if kind != b"multipart/form-data":
            raise S3Error(
                "PreconditionFailed",
                "At least one of the pre-conditions you specified did not hold",
                Condition="Bucket POST must be of the enclosure-type multipart/form-data",
            )
        boundary = options.get(b"boundary", b"")
        if not boundary:
            raise malformed_form()
        # Names in lower case.
        self.fields: dict[str, str] = {}
        # The file's name as the client has it, without folders.
        self.filename = ""
        self.has_file = False
        self.is_whole = False
        self._size = 0
        self._trailing = 0
        self._name = ""
        self._is_file = False
        self._value = bytearray()
        self._header = (bytearray(), bytearray())
        self._disposition = ""
        self._file_data: list[bytes] = []
        try:
            self._parser = MultipartParser(
                boundary,
                {
                    "on_part_begin": self._begin_part,
                    "on_part_data": self._take_data,
                    "on_part_end": self._end_part,
                    "on_header_field": lambda data, start, end: self._header[0].extend(data[start:end]),
                    "on_header_value": lambda data, start, end: self._header[1].extend(data[start:end]),
                    "on_header_end": self._end_header,
                    "on_headers_finished": self._begin_content,
                    "on_end": self._end,
                },
            )
        except FormParserError:
            raise malformed_form() from None

    def feed(self, piece: bytes) -> bytes:
        """Take the next piece of the body; returns the bytes of the file that it has."""
        if self.is_whole:
            self._count_trailing(len(piece))
            return b""
        try:
            self._parser.write(piece)
        except FormParserError:
            raise malformed_form() from None
        data = b"".join(self._file_data)
        self._file_data.clear()
        return data

    def finish(self) -> None:
        """Refuse a form that broke off or brought no file."""
        if not self.is_whole:
            raise malformed_form()
        if not self.has_file:
            raise _file_count()

    # --- called by the parser ---

    def _begin_part(self) -> None:
        self._header = (bytearray(), bytearray())
        self._disposition = ""
        self._value = bytearray()
        self._is_file = False
        self._count(_PART_COST)

    def _end_header(self) -> None:
        name, value = self._header
        self._count(len(name) + len(value))
        if name.strip().lower() == b"content-disposition":
            self._disposition = value.decode("latin-1")
        self._header = (bytearray(), bytearray())

    def _begin_content(self) -> None:
        kind, options = parse_options_header(self._disposition)
        if kind != b"form-data" or b"name" not in options:
            raise malformed_form()
        self._name = _decode(options[b"name"]).lower()
        if self._name == "file":
            if self.has_file:
                raise _file_count()
            self.has_file = self._is_file = True
            # Only what follows the last slash, whichever way it leans.
            self.filename = re.split(r"[/\\]", _decode(options.get(b"filename", b"")))[-1]

    def _take_data(self, data: bytes, start: int, end: int) -> None:
        if self._is_file:
            self._file_data.append(data[start:end])
            return
        self._count(end - start)
        if not self.has_file:
            self._value.extend(data[start:end])

    def _end_part(self) -> None:
        if self.has_file:
            return
        if self._name in self.fields:
            raise S3Error(
                "InvalidArgument",
                f"POST requires exactly one value per field: '{self._name[:80]}' is there twice.",
                ArgumentName=self._name[:80],
            )
        self.fields[self._name] = _decode(bytes(self._value))

    def _end(self) -> None:
        self.is_whole = True

    def _count(self, size: int) -> None:
        if self.has_file:
            self._count_trailing(size)
            return
        self._size += size
        if self._size > _MAX_FIELDS:
            raise S3Error(
                "MaxPostPreDataLengthExceededError",
                "Your POST request fields preceding the upload file were too large.",
            )

    def _count_trailing(self, size: int) -> None:
        self._trailing += size
        if self._trailing > _MAX_TRAILING:
            raise malformed_form()


def malformed_form() -> S3Error:
    """The error for a body that is no form."""
    return S3Error(
        "MalformedPOSTRequest", "The body of your POST request is not well-formed multipart/form-data."
    )


def _file_count() -> S3Error:
    return S3Error(
        "IncorrectNumberOfFilesInPostRequest", "POST requires exactly one file upload per request."
    )


def _decode(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise malformed_form() from None
