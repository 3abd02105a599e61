"""Reading and following logs over a real server, across broken connections and restarts of the API."""

from __future__ import annotations

import base64
import json
import os
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from trainshed.client import Client
from trainshed.client.event_stream import parse_events
from trainshed.db.engine import begin
from trainshed.model.errors import NotFound, TrainshedError
from trainshed.model.home import RunFolder
from trainshed.model.phase import Phase

JUNK = "grün 数据 🚂\r\n".encode() + bytes(range(256)) + b"\r 50%\r100%\n" + b"x" * 5000 + b"\n\xe6\x95"


def append(folder: RunFolder, data: bytes, rank: int = 0) -> None:
    with folder.rank_log(rank).open("ab") as file:
        file.write(data)


def test_streams(client: Client, submit: Callable[..., str], api: Any) -> None:
    job_id = submit()
    assert client.log_streams(job_id) == []
    folder = api.begin_attempt(job_id)
    append(folder, b"12345")
    found = {info.stream: info for info in client.log_streams(job_id)}
    assert set(found) == {"rank-0", "platform"}
    assert found["rank-0"].size == 5
    assert not found["rank-0"].ended


def test_exact_bytes_without_following(client: Client, submit: Callable[..., str], api: Any) -> None:
    job_id = submit()
    folder = api.begin_attempt(job_id)
    append(folder, JUNK)
    log = client.logs(job_id)
    assert b"".join(log) == JUNK
    assert "so far" in log.reason
    assert log.ending["code"] == "so_far"
    assert b"".join(client.logs(job_id, offset=100)) == JUNK[100:]
    assert b"".join(client.logs(job_id, "platform")) == b"staging\n"
    api.end_attempt(job_id)
    log = client.logs(job_id)
    assert b"".join(log) == JUNK
    assert log.reason == "job Completed"


def test_json_pieces(submit: Callable[..., str], api: Any) -> None:
    job_id = submit()
    whole = "数据🚂" * 1000
    append(api.begin_attempt(job_id), whole.encode())
    api.end_attempt(job_id)
    got, offset = "", 0
    for _ in range(1000):
        answer = (
            api.http()
            .get(f"/api/v1/jobs/{job_id}/logs/rank-0", params={"offset": offset, "limit": 101})
            .json()
        )
        # Pieces end at the border of a character, so text stays text.
        got += answer["text"]
        offset = answer["next_offset"]
        if answer["ended"]:
            break
    assert got == whole
    assert answer["reason"] == "job Completed"


def test_unknown_stream_and_attempt(client: Client, submit: Callable[..., str], api: Any) -> None:
    job_id = submit()
    api.begin_attempt(job_id)
    for stream in ("rank-7", "nonsense", "../../etc/passwd", "node-9/platform", "rank-0/../x"):
        with pytest.raises(NotFound):
            list(client.logs(job_id, stream, follow=True))
    with pytest.raises(NotFound):
        list(client.logs(job_id, attempt=5))


def test_follow_from_before_the_start_to_the_end(
    client: Client, submit: Callable[..., str], api: Any
) -> None:
    job_id = submit()
    log = client.logs(job_id, follow=True)
    pieces: list[bytes] = []
    reader = threading.Thread(target=lambda: pieces.extend(log))
    reader.start()
    time.sleep(0.4)
    folder = api.begin_attempt(job_id)
    written = b""
    for index in range(20):
        data = JUNK if index % 5 == 0 else f"line {index}\n".encode()
        append(folder, data)
        written += data
        time.sleep(0.05)
    deadline = time.monotonic() + 90
    while not pieces:
        assert time.monotonic() < deadline, "the log must arrive while it is written"
        time.sleep(0.05)
    append(folder, b"last\n")
    api.end_attempt(job_id, phase=Phase.FAILED)
    reader.join(90)
    assert not reader.is_alive()
    assert b"".join(pieces) == written + b"last\n"
    assert log.reason == "job Failed: It is over."


def test_follow_of_a_job_that_never_starts(client: Client, submit: Callable[..., str], api: Any) -> None:
    job_id = submit()
    threading.Timer(0.3, api.change, [job_id], {"phase": Phase.TERMINATED, "ended_at": time.time()}).start()
    log = client.logs(job_id, follow=True)
    assert list(log) == []
    assert log.ending["code"] == "not_started"


def test_text_is_never_cut_inside_a_character(submit: Callable[..., str], api: Any) -> None:
    job_id = submit()
    folder = api.begin_attempt(job_id)
    whole = "数据".encode()
    append(folder, whole[:4])
    seen: list[dict[str, Any]] = []
    with api.http().stream(
        "GET",
        f"/api/v1/jobs/{job_id}/logs/rank-0",
        params={"follow": "true"},
        headers={"Accept": "text/event-stream"},
    ) as response:
        for event in parse_events(response.iter_raw()):
            if event is None:
                continue
            seen.append(json.loads(event.data))
            if len(seen) == 1:
                append(folder, whole[4:])
            elif len(seen) == 2:
                break
    assert [item["text"] for item in seen] == ["数", "据"]
    assert [item["offset"] for item in seen] == [0, 3]


def test_resume_by_last_event_id(submit: Callable[..., str], api: Any) -> None:
    job_id = submit()
    folder = api.begin_attempt(job_id)
    append(folder, b"first\nsecond\n")
    path = f"/api/v1/jobs/{job_id}/logs/rank-0"
    headers = {"Accept": "text/event-stream"}

    def events(**more: str) -> list[Any]:
        response = api.http().get(path, headers=headers | more)
        return [event for event in parse_events([response.content]) if event]

    first = events()
    assert first[0].id == "13/1"
    api.end_attempt(job_id, phase=Phase.PENDING)
    # A second attempt begins: the follower still gets the rest of the first one.
    api.begin_attempt(job_id, 2)
    append(api.home.run_folder(job_id, 2, 0), b"other attempt\n")
    resumed = events(**{"Last-Event-ID": "6/1"})
    assert json.loads(resumed[0].data)["text"] == "second\n"
    assert json.loads(resumed[-1].data)["reason"] == "attempt 1 ended, attempt 2 follows"
    assert json.loads(events()[0].data)["text"] == "other attempt\n"
    assert api.http().get(path, headers=headers | {"Last-Event-ID": "x"}).status_code == 400


def test_raw_bytes(submit: Callable[..., str], api: Any) -> None:
    job_id = submit()
    folder = api.begin_attempt(job_id)
    data = random.Random(1).randbytes(1_500_000)
    append(folder, data)
    path, headers = f"/api/v1/jobs/{job_id}/logs/rank-0", {"Accept": "application/octet-stream"}
    response = api.http().get(path, headers=headers)
    assert response.content == data
    assert response.headers["x-content-type-options"] == "nosniff"
    threading.Timer(0.3, lambda: (append(folder, b"tail"), api.end_attempt(job_id))).start()
    assert api.http().get(path, headers=headers, params={"follow": "true", "offset": 1_499_990}).content == (
        data[-10:] + b"tail"
    )


def test_secret_is_masked_while_followed(client: Client, submit: Callable[..., str], api: Any) -> None:
    job_id = submit(secrets={"KEY": "very-secret-value"})
    folder = api.begin_attempt(job_id)
    append(folder, b"key=very-sec")
    pieces: list[bytes] = []
    reader = threading.Thread(target=lambda: pieces.extend(client.logs(job_id, follow=True)))
    reader.start()
    time.sleep(0.5)
    append(folder, b"ret-value\n")
    time.sleep(0.3)
    api.end_attempt(job_id)
    reader.join(90)
    assert b"".join(pieces) == b"key=*****************\n"


@pytest.mark.slow
def test_following_survives_kills_of_the_api(client: Client, submit: Callable[..., str], api: Any) -> None:
    job_id = submit()
    folder = api.begin_attempt(job_id)
    log = client.logs(job_id, follow=True)
    pieces: list[bytes] = []
    reader = threading.Thread(target=lambda: pieces.extend(log))
    reader.start()
    written = b""
    for index in range(3):
        data = f"before kill {index}\n".encode() + os.urandom(50)
        append(folder, data)
        written += data
        time.sleep(0.4)
        api.kill()
        data = f"while dead {index}\n".encode()
        append(folder, data)
        written += data
        api.start()
    api.end_attempt(job_id)
    reader.join(90)
    assert not reader.is_alive()
    assert b"".join(pieces) == written
    assert log.reason == "job Completed"


def test_database_that_is_away_is_no_end(client: Client, submit: Callable[..., str], api: Any) -> None:
    job_id = submit()
    folder = api.begin_attempt(job_id)
    append(folder, b"before\n")
    log = client.logs(job_id, follow=True)
    pieces: list[bytes] = []
    reader = threading.Thread(target=lambda: pieces.extend(log))
    reader.start()
    time.sleep(0.4)
    with begin(api.platform.engine) as connection:
        connection.execute(text("ALTER TABLE attempts RENAME TO attempts_away"))
    append(folder, b"meanwhile\n")
    time.sleep(0.6)
    with begin(api.platform.engine) as connection:
        connection.execute(text("ALTER TABLE attempts_away RENAME TO attempts"))
    api.end_attempt(job_id)
    reader.join(90)
    assert not reader.is_alive()
    assert b"".join(pieces) == b"before\nmeanwhile\n"
    assert log.reason == "job Completed"


def test_job_deleted_while_followed_is_an_error(client: Client, submit: Callable[..., str], api: Any) -> None:
    job_id = submit()
    api.begin_attempt(job_id)
    threading.Timer(0.3, api.change, [job_id], {"deleted_at": time.time()}).start()
    with pytest.raises(TrainshedError, match="no job"):
        list(client.logs(job_id, follow=True))


@pytest.mark.slow
def test_many_followers_cost_no_threads_and_go_away(
    client: Client, submit: Callable[..., str], api: Any
) -> None:
    job_id = submit()
    folder = api.begin_attempt(job_id)
    count = 120

    def threads() -> int:
        return len(list(os.scandir(f"/proc/{api.process.pid}/task")))

    def followers() -> int:
        page = api.http().get("/metrics").text
        return int(
            float(
                next(line for line in page.splitlines() if line.startswith("trainshed_followers ")).split()[1]
            )
        )

    def wait_for(number: int) -> None:
        deadline = time.monotonic() + 90
        while followers() != number:
            assert time.monotonic() < deadline, followers()
            time.sleep(0.1)

    results: list[bytes] = []

    def follow() -> None:
        results.append(b"".join(client.logs(job_id, follow=True)))

    wait_for(0)
    readers = [threading.Thread(target=follow) for _ in range(count)]
    for reader in readers:
        reader.start()
    wait_for(count)
    assert threads() < 80
    append(folder, b"hello all\n")
    # Other requests are answered while everybody follows.
    assert httpx.get(f"{api.url}/healthz").status_code == 200
    api.end_attempt(job_id)
    for reader in readers:
        reader.join(90)
    assert results == [b"hello all\n"] * count
    wait_for(0)


def test_follower_that_leaves_is_forgotten(submit: Callable[..., str], api: Any) -> None:
    job_id = submit()
    append(api.begin_attempt(job_id), b"x\n")
    with api.http().stream(
        "GET", f"/api/v1/jobs/{job_id}/logs/rank-0", params={"follow": "true"}
    ) as response:
        next(response.iter_raw())
    deadline = time.monotonic() + 90
    while "trainshed_followers 0" not in api.http().get("/metrics").text:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_base64_is_used_only_where_needed(submit: Callable[..., str], api: Any) -> None:
    job_id = submit()
    append(api.begin_attempt(job_id), b"\xff\xfe")
    answer = api.http().get(f"/api/v1/jobs/{job_id}/logs/rank-0").json()
    assert base64.b64decode(answer["base64"]) == b"\xff\xfe"
    assert "text" not in answer
