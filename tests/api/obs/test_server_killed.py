"""The store process killed while 200 clients send at once over HTTP."""

from __future__ import annotations

import hashlib
import http.client
import os
import threading
from typing import Any
from urllib.parse import urlsplit

import pytest

CLIENTS = 200
# Every fourth sends all but its last byte, and waits.
UNFINISHED = 4
KILL_AFTER = 60


class Sender(threading.Thread):
    """One client with one object."""

    def __init__(self, number: int, url: str, acknowledged: threading.Semaphore) -> None:
        super().__init__(daemon=True)
        self.key = f"killed/{number:03}"
        # Small ones, which are stored in one go, and such that are written piece by piece.
        self.data = os.urandom(1000 if number % 3 else 700_000)
        self.is_finished = number % UNFINISHED != 0
        self.etag = ""
        self._url = urlsplit(url)
        self._acknowledged = acknowledged

    def run(self) -> None:
        connection = http.client.HTTPConnection(self._url.netloc, timeout=120)
        try:
            connection.putrequest("PUT", f"{self._url.path}?{self._url.query}")
            connection.putheader("Content-Length", str(len(self.data)))
            connection.endheaders()
            connection.send(self.data if self.is_finished else self.data[:-1])
            answer = connection.getresponse()
            answer.read()
            if answer.status == 200:
                self.etag = answer.headers["etag"].strip('"')
                self._acknowledged.release()
        except (OSError, http.client.HTTPException):
            pass
        finally:
            connection.close()


@pytest.mark.slow
def test_every_acknowledged_object_is_intact_and_no_other_is_half_there(server: Any, s3: Any) -> None:
    acknowledged = threading.Semaphore(0)
    senders = []
    for number in range(CLIENTS):
        place = {"Bucket": "data", "Key": f"killed/{number:03}"}
        senders.append(Sender(number, s3.generate_presigned_url("put_object", place), acknowledged))
    # One that is there already and must survive the attempt to replace it.
    s3.put_object(Bucket="data", Key=senders[0].key, Body=b"before")
    for sender in senders:
        sender.start()
    for _ in range(KILL_AFTER):
        assert acknowledged.acquire(timeout=120)
    server.restart()
    for sender in senders:
        sender.join(60)
        assert not sender.is_alive()
    certain = {sender.key: sender for sender in senders if sender.etag}
    assert len(certain) >= KILL_AFTER
    assert all(sender.is_finished for sender in certain.values())
    by_key = {sender.key: sender for sender in senders}
    seen = {}
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket="data", Prefix="killed/"):
        seen.update({entry["Key"]: entry for entry in page.get("Contents", [])})
    assert set(certain) <= set(seen)
    for key in seen:
        body = s3.get_object(Bucket="data", Key=key)["Body"].read()
        sender = by_key[key]
        if key == senders[0].key:
            assert body == b"before"
            continue
        # One whose answer was lost on its way may be there, but whole; an unfinished one never.
        assert sender.is_finished and body == sender.data
        assert hashlib.md5(body).hexdigest() == seen[key]["ETag"].strip('"')
    # What was under way left nothing in the way of those who try again.
    for sender in senders[:8]:
        s3.put_object(Bucket="data", Key=sender.key, Body=sender.data)
        assert s3.get_object(Bucket="data", Key=sender.key)["Body"].read() == sender.data
    assert server.process.poll() is None
