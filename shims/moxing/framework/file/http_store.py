"""Any S3 or OBS service, over HTTP."""

import hashlib
import http.client
import os
import re
import socket
import ssl
import threading
import time
import xml.etree.ElementTree as ElementTree
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from urllib.parse import unquote_plus, urlsplit

from moxing.framework.file.errors import MoxFileReadException, MoxFileRespException, Response
from moxing.framework.file.object_store import CHUNK, Found, Info, ObjectStore, run_in_threads
from moxing.framework.file.signature import encode_path, encode_query, sign

__all__ = ["HttpSettings", "HttpStore"]

PART = 16 << 20
MOST_PARTS = 9000
_AGAIN = (429, 500, 502, 503, 504)
_MD5 = re.compile(r'"?[0-9a-f]{32}"?$')
_MISMATCH = "ChecksumMismatch"
_ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+|\[.*\]|localhost")


class HttpSettings:
    """Where the service is and who we are there."""

    def __init__(
        self, server, access_key, secret_key, token="", secure=True, verify=True, region="us-east-1"
    ):
        if "://" not in server:
            server = ("https://" if secure else "http://") + server
        parts = urlsplit(server)
        self.secure = parts.scheme == "https"
        self.host = parts.hostname or "localhost"
        self.port = parts.port or (443 if self.secure else 80)
        self.access_key, self.secret_key, self.token = access_key, secret_key, token
        self.verify, self.region = verify, region
        self.tries, self.wait, self.timeout = 5, 0.2, 60.0
        # An address has no names below it; a service with a port of its own seldom has.
        self.path_style = bool(parts.port) or bool(_ADDRESS.match(self.host))


class HttpStore(ObjectStore):
    """Requests with Version 4 signatures; each thread keeps a connection, and what fails on the way is tried again."""

    def __init__(self, settings):
        self.settings = settings
        self._local = threading.local()

    # --- looking ---

    def info(self, bucket, key):
        """What lies at a key."""
        if key and not key.endswith("/"):
            status, headers, _ = self._ask("HEAD", bucket, key, accept=(404,))
            if status != 404:
                return Info("file", int(headers.get("content-length", 0)), _read_date(headers))
        prefix = key.rstrip("/") + "/" if key else ""
        query = {"prefix": prefix, "max-keys": "1", "encoding-type": "url"}
        _, _, data = self._ask("GET", bucket, "", query)
        objects, _, _ = _read_listing(data)
        if objects:
            return Info("folder", 0, objects[0].modified_at)
        return Info("" if key else "folder", 0, 0.0)

    def list_page(self, bucket, prefix, delimiter, after):
        """One page of objects and folders, and where the next one begins."""
        query = {"prefix": prefix, "max-keys": "1000", "encoding-type": "url"}
        if delimiter:
            query["delimiter"] = delimiter
        if after:
            query["marker"] = after
        _, _, data = self._ask("GET", bucket, "", query)
        return _read_listing(data)

    def read(self, bucket, key, start, length):
        """Some bytes of an object, and its whole size."""
        span = {"range": f"bytes={start}-{start + length - 1}"}
        status, headers, data = self._ask("GET", bucket, key, headers=span, accept=(416,))
        if status == 416:
            return b"", start
        total = headers.get("content-range", "").rpartition("/")[2]
        if status == 206 and total.isdigit():
            return data, int(total)
        return data[start : start + length], len(data)

    def read_all(self, bucket, key):
        """The bytes of an object, piece by piece: all of one version, and compared with its ETag at the end."""
        start, size, tag, digest = 0, None, "", _new_md5()
        while size is None or start < size:
            span = {"range": f"bytes={start}-{start + CHUNK - 1}"}
            if tag:
                span["if-match"] = tag
            status, headers, data = self._ask("GET", bucket, key, headers=span, accept=(416,))
            if status == 416:
                return
            tag, total = headers.get("etag", ""), headers.get("content-range", "").rpartition("/")[2]
            if status != 206:
                # A service that knows no ranges sends all of it.
                data = data[start:]
            size = int(total) if status == 206 and total.isdigit() else start + len(data)
            if not data:
                break
            start += len(data)
            if digest is not None:
                digest.update(data)
            yield data
        if digest is not None and _is_md5(tag, headers) and digest.hexdigest() != tag.strip('"'):
            text = f"what came as {bucket}/{key} is not what was stored"
            raise MoxFileReadException(Response(503, _MISMATCH, text))

    def download(self, bucket, key, path):
        """Bring an object into a file, which appears when it is whole."""
        for left in range(self.settings.tries - 1, -1, -1):
            try:
                return super().download(bucket, key, path)
            except (MoxFileReadException, MoxFileRespException) as error:
                # Overwritten in the middle, or damaged on the way: once more from the beginning.
                if not left or not (error.resp.status == 412 or error.resp.errorCode == _MISMATCH):
                    raise
        return None

    # --- changing ---

    def write(self, bucket, key, pieces, size=None):
        """Store an object: in one request, or in parts when it is large."""
        pieces = iter(pieces)
        first = _gather(pieces, PART)
        if len(first) < PART:
            self._ask("PUT", bucket, key, body=first)
            return
        part_size = max(PART, (size or 0) // MOST_PARTS + 1)
        _, _, data = self._ask("POST", bucket, key, {"uploads": ""}, body=b"")
        upload = _text(ElementTree.fromstring(data), "UploadId")
        try:
            tags = {}

            def parts():
                number, body = 1, first
                while body:
                    yield number, body
                    number, body = number + 1, _gather(pieces, part_size)

            def send(part):
                query = {"partNumber": str(part[0]), "uploadId": upload}
                _, headers, _ = self._ask("PUT", bucket, key, query, body=part[1])
                tags[part[0]] = headers["etag"]

            _run_bounded(parts(), send)
            listing = "".join(
                f"<Part><PartNumber>{number}</PartNumber><ETag>{tags[number]}</ETag></Part>"
                for number in sorted(tags)
            )
            body = (f"<CompleteMultipartUpload>{listing}</CompleteMultipartUpload>").encode()
            _, _, data = self._ask("POST", bucket, key, {"uploadId": upload}, body=body)
            if b"<Error" in data:
                raise MoxFileRespException(_read_error(500, data))
        except BaseException:
            self._ask("DELETE", bucket, key, {"uploadId": upload}, accept=(404,))
            raise

    def append(self, bucket, key, pieces):
        """Put bytes behind those of an object. S3 cannot, so that it is written anew."""

        def all_pieces():
            if self.info(bucket, key).kind == "file":
                for piece in self.read_all(bucket, key):
                    yield piece
            for piece in pieces:
                yield piece

        self.write(bucket, key, all_pieces())

    def make_folder(self, bucket, key):
        """Make an empty folder."""
        if key.strip("/"):
            self._ask("PUT", bucket, key.rstrip("/") + "/", body=b"")

    def remove(self, bucket, key):
        """Remove an object."""
        self._ask("DELETE", bucket, key, accept=(404,))

    def copy(self, bucket, key, to_bucket, to_key):
        """Copy an object within the service."""
        source = {"x-amz-copy-source": encode_path(f"/{bucket}/{key}")}
        _, _, data = self._ask("PUT", to_bucket, to_key, headers=source, body=b"")
        if b"<Error" in data:
            raise MoxFileRespException(_read_error(500, data))

    # --- HTTP ---

    def _ask(self, method, bucket, key, query=None, headers=None, body=b"", accept=()):
        settings = self.settings
        wait = settings.wait
        for left in range(settings.tries - 1, -1, -1):
            try:
                status, found, data = self._exchange(method, bucket, key, query or {}, headers or {}, body)
            except (OSError, http.client.HTTPException) as error:
                self._forget_connection()
                if not left or isinstance(error, ssl.SSLCertVerificationError):
                    text = f"{settings.host} cannot be reached: {error}"
                    raise MoxFileReadException(Response(503, "unreachable", text)) from error
            else:
                if status < 300 or status in accept:
                    return status, found, data
                if status not in _AGAIN or not left:
                    raise MoxFileRespException(_read_error(status, data))
            time.sleep(wait)
            wait *= 2
        raise AssertionError("unreachable")

    def _exchange(self, method, bucket, key, query, headers, body):
        settings = self.settings
        host, path = settings.host, "/" + key
        if settings.path_style:
            path = f"/{bucket}/{key}" if key or query else "/" + bucket
        else:
            host = f"{bucket}.{host}"
        shown = host if settings.port in (80, 443) else f"{host}:{settings.port}"
        path, text = encode_path(path), encode_query(query)
        if method in ("PUT", "POST"):
            headers = dict(headers)
            headers["content-length"] = str(len(body))
        digest = hashlib.sha256(body).hexdigest()
        signed = sign(
            method,
            shown,
            path,
            text,
            headers,
            digest,
            settings.access_key,
            settings.secret_key,
            settings.region,
            settings.token,
        )
        connection = self._connect(host)
        connection.request(method, path + ("?" + text if text else ""), body or None, signed)
        answer = connection.getresponse()
        data = answer.read()
        if answer.will_close:
            self._forget_connection()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, data

    def _connect(self, host):
        known = getattr(self._local, "known", None)
        if known is not None and known[0] == (os.getpid(), host):
            return known[1]
        settings = self.settings
        if settings.secure:
            context = ssl.create_default_context()
            if not settings.verify:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            connection = http.client.HTTPSConnection(
                host, settings.port, timeout=settings.timeout, context=context
            )
        else:
            connection = http.client.HTTPConnection(host, settings.port, timeout=settings.timeout)
        connection.connect()
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._local.known = ((os.getpid(), host), connection)
        return connection

    def _forget_connection(self):
        known = getattr(self._local, "known", None)
        self._local.known = None
        if known is not None:
            known[1].close()


def _new_md5():
    try:
        return hashlib.md5()
    except ValueError:
        # Forbidden on this system.
        return None


def _is_md5(tag, headers):
    """Whether an ETag is the MD5 of the bytes: not of objects in parts, and not where the service encrypts them with
    keys of its own."""
    secret = headers.get("x-amz-server-side-encryption", "") + headers.get("x-obs-server-side-encryption", "")
    customer = "x-amz-server-side-encryption-customer-algorithm" in headers
    return bool(_MD5.match(tag)) and "kms" not in secret and not customer


def _run_bounded(parts, send):
    """Send parts in four threads; a part is only read when a thread is free for it, so memory is bounded."""
    room = threading.Semaphore(4)

    def admitted():
        for part in parts:
            room.acquire()
            yield part

    def work(part):
        try:
            send(part)
        finally:
            room.release()

    run_in_threads(admitted(), work, 4)


def _gather(pieces, size):
    """The next `size` bytes of an iterator of pieces, fewer at its end. Pieces divide parts evenly."""
    gathered = bytearray()
    for piece in pieces:
        gathered += piece
        if len(gathered) >= size:
            break
    return bytes(gathered)


def _read_listing(data):
    root = ElementTree.fromstring(data)
    objects, folders = [], []
    for item in root:
        kind = item.tag.rpartition("}")[2]
        if kind == "Contents":
            moment = _text(item, "LastModified").replace("Z", "+0000")
            form = "%Y-%m-%dT%H:%M:%S.%f%z" if "." in moment else "%Y-%m-%dT%H:%M:%S%z"
            modified = datetime.strptime(moment, form).astimezone(timezone.utc).timestamp()
            objects.append(Found(unquote_plus(_text(item, "Key")), int(_text(item, "Size")), modified))
        elif kind == "CommonPrefixes":
            folders.append(unquote_plus(_text(item, "Prefix")))
    if _text(root, "IsTruncated") != "true":
        return objects, folders, ""
    after = unquote_plus(_text(root, "NextMarker"))
    return objects, folders, after or max([found.key for found in objects[-1:]] + folders[-1:])


def _read_error(status, data):
    try:
        root = ElementTree.fromstring(data)
        return Response(status, _text(root, "Code"), _text(root, "Message"))
    except ElementTree.ParseError:
        return Response(status, "", data[:200].decode("utf-8", "replace"))


def _text(element, name):
    for item in element:
        if item.tag.rpartition("}")[2] == name:
            return item.text or ""
    return ""


def _read_date(headers):
    try:
        return parsedate_to_datetime(headers.get("last-modified", "")).timestamp()
    except (TypeError, ValueError):
        return 0.0
