"""The store as a job inside Trainshed reaches it: through the runner's broker, at the disk's speed."""

import errno
import json
import os
import socket
import struct
import sys
import time

from moxing.framework.file.errors import (
    MoxFileNameDuplicateException,
    MoxFileNotExistsException,
    MoxFileReadException,
    MoxFileRespException,
    Response,
)
from moxing.framework.file.object_store import CHUNK, Found, Info, ObjectStore, run_in_threads

__all__ = ["BrokerStore", "find_broker"]

_PATH = "/run/trainshed/broker.sock"


def find_broker():
    """The broker's socket, or nothing outside of a job."""
    path = os.environ.get("TRAINSHED_BROKER") or _PATH
    return path if os.path.exists(path) else ""


class _PathRefused(Exception):
    """The broker does not copy to or from this path; we can, piece by piece."""


class BrokerStore(ObjectStore):
    """Asks the broker. Every request has a connection of its own, so that threads and forks do not matter."""

    def __init__(self, path):
        self._path = path

    # --- single operations ---

    def info(self, bucket, key):
        """What lies at a key."""
        answer = self._ask("info", bucket=bucket, key=key)
        return Info(answer["kind"], answer["size"], answer["modified_at"])

    def list_page(self, bucket, prefix, delimiter, after):
        """One page of objects and folders, and where the next one begins."""
        answer = self._ask("list", bucket=bucket, prefix=prefix, delimiter=delimiter, after=after, limit=1000)
        return [Found(*item) for item in answer["objects"]], answer["folders"], answer["next"]

    def read(self, bucket, key, start, length):
        """Some bytes of an object, and its whole size."""
        answer = self._ask("read", bucket=bucket, key=key, start=start, length=length)
        return answer["data"], answer["size"]

    def write(self, bucket, key, pieces, size=None):
        """Store an object."""
        self._ask("write", pieces, bucket=bucket, key=key)

    def append(self, bucket, key, pieces):
        """Put bytes behind those of an object."""
        tries = 10 if isinstance(pieces, list) else 1
        for left in range(tries - 1, -1, -1):
            try:
                self._ask("append", pieces, bucket=bucket, key=key)
                return
            except MoxFileRespException as error:
                # Another node of the job appended at the same moment.
                if not left or error.resp.status not in (409, 412):
                    raise
                time.sleep(0.01 * (tries - left))

    def make_folder(self, bucket, key):
        """Make an empty folder."""
        self._ask("make_folder", bucket=bucket, key=key)

    def remove(self, bucket, key):
        """Remove an object."""
        self._ask("remove", bucket=bucket, key=key)

    def remove_tree(self, bucket, prefix):
        """Remove all that lies below a prefix."""
        self._ask("remove_tree", bucket=bucket, prefix=prefix)

    def copy(self, bucket, key, to_bucket, to_key):
        """Copy an object."""
        self._ask("copy", bucket=bucket, key=key, to_bucket=to_bucket, to_key=to_key)

    # --- copies, by the broker where it can ---

    def copy_tree(self, bucket, prefix, to_bucket, to_prefix, threads):
        """Copy all that lies below a prefix to another."""
        self._ask("copy_tree", bucket=bucket, prefix=prefix, to_bucket=to_bucket, to_prefix=to_prefix)

    def download(self, bucket, key, path):
        """Bring an object into a file."""
        try:
            self._ask("download", bucket=bucket, key=key, path=_real(path))
        except _PathRefused:
            super().download(bucket, key, path)

    def upload(self, path, bucket, key):
        """Store a file as an object."""
        try:
            self._ask("upload", path=os.path.realpath(path), bucket=bucket, key=key)
        except (_PathRefused, MoxFileNameDuplicateException):
            # Not a plain file in a folder of the job's: whatever it is, we can open it or say why not.
            super().upload(path, bucket, key)

    def download_tree(self, bucket, prefix, path, threads):
        """Bring all that lies below a prefix into a folder."""
        try:
            answer = self._ask("download_tree", bucket=bucket, prefix=prefix, path=os.path.realpath(path))
        except _PathRefused:
            super().download_tree(bucket, prefix, path, threads)
            return
        for name, reason in answer["skipped"]:
            if "folder" in reason:
                raise MoxFileNameDuplicateException(f"{bucket}/{name}: {reason}")
            _say(f"left out {bucket}/{name}: {reason}")

    def upload_tree(self, path, bucket, prefix, threads):
        """Store all that lies in a folder below a prefix. Links to files become the files they lead to."""
        try:
            answer = self._ask("upload_tree", path=os.path.realpath(path), bucket=bucket, prefix=prefix)
        except _PathRefused:
            super().upload_tree(path, bucket, prefix, threads)
            return
        if not answer["skipped_count"]:
            return
        links = []
        for name in _links_in(path):
            if os.path.isfile(os.path.join(path, name)):
                links.append(name)
            else:
                _say(f"left out {path}/{name}: the link leads to no file")
        run_in_threads(
            links, lambda name: self.upload(os.path.join(path, name), bucket, prefix + name), threads
        )

    # --- the protocol ---

    def _ask(self, operation, pieces=None, **fields):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(self._path)
            self._send(connection, operation, pieces, fields)
            with connection.makefile("rb") as file:
                answer = _read_answer(file, operation)
        finally:
            connection.close()
        fault = answer.get("error")
        if fault is not None:
            raise _translate(fault, fields)
        return answer

    def _send(self, connection, operation, pieces, fields):
        request = json.dumps(dict(fields, op=operation)).encode("ascii")
        try:
            connection.sendall(struct.pack(">I", len(request)) + request)
            if pieces is not None:
                for piece in pieces:
                    view = memoryview(piece)
                    for start in range(0, len(view), CHUNK):
                        part = view[start : start + CHUNK]
                        connection.sendall(struct.pack(">I", len(part)))
                        connection.sendall(part)
                connection.sendall(struct.pack(">I", 0))
        except (BrokenPipeError, ConnectionResetError):
            pass  # Refused before all was sent: the answer says why.


def _read_answer(file, operation):
    head = file.read(4)
    if len(head) < 4:
        raise MoxFileReadException(Response(503, "broker_gone", "The runner of this job has ended."))
    answer = json.loads(file.read(struct.unpack(">I", head)[0]).decode("ascii"))
    if operation == "read" and "error" not in answer:
        answer["data"] = file.read(answer["length"])
        if len(answer["data"]) < answer["length"]:
            raise MoxFileReadException(Response(200, "cut_off", "The object's bytes stopped coming."))
    return answer


def _translate(fault, fields):
    """The exception for an error of the broker's."""
    code, message = fault["code"], " ".join(filter(None, (fault["message"], fault["hint"])))
    if code == "path_refused":
        return _PathRefused()
    if code == "clash":
        return MoxFileNameDuplicateException("{}: {}".format(fields.get("path"), message))
    if code == "local_failed":
        number = fault.get("errno") or errno.EIO
        if number in (errno.ENOTDIR, errno.ELOOP, errno.EEXIST, errno.EISDIR):
            return MoxFileNameDuplicateException("{}: {}".format(fields.get("path"), os.strerror(number)))
        if number == errno.ENOENT:
            return MoxFileNotExistsException(number, os.strerror(number), fields.get("path"))
        return OSError(number, os.strerror(number), fields.get("path"))
    return MoxFileRespException(Response(fault["status"], code, message))


def _real(path):
    """A path without links on the way; a link in the file's own place is replaced, as a rename does."""
    folder, name = os.path.split(os.path.abspath(path))
    return os.path.join(os.path.realpath(folder), name)


def _links_in(path):
    for folder, folders, files in os.walk(path, followlinks=False):
        for name in files + folders:
            full = os.path.join(folder, name)
            if os.path.islink(full):
                yield os.path.relpath(full, path)


def _say(text):
    sys.stderr.write(f"WARNING:root:{text}\n")
