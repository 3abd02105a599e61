"""The embedded store under kill -9, full disks, forks and many processes at once."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import IO, Any

import pytest

from trainshed.model.errors import NotFound, Unavailable
from trainshed.store.embedded.store import EmbeddedStore
from trainshed.store.embedded.transactions import Transactions


def start(
    code: str, *arguments: str | Path, stdout: IO[bytes] | int = subprocess.PIPE
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)], stdout=stdout, text=True
    )


def read(store: EmbeddedStore, key: str) -> bytes:
    with store.open("data", key) as file:
        return file.read()


def check_wholeness(store: EmbeddedStore) -> None:
    """Every row has its blob with the right bytes, every blob its row, and nothing else lies around."""
    for info in store.walk("data"):
        data = read(store, info.key)
        assert hashlib.md5(data).hexdigest() == info.etag and len(data) == info.size
    with store._transactions.read() as connection:
        rows = {row[0] for row in connection.execute("SELECT blob FROM objects WHERE blob != ''")}
        assert connection.execute("SELECT count(*) FROM garbage").fetchone() == (0,)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert {path.name for path in (store.folder / "blobs").rglob("*") if path.is_file()} == rows
    assert list((store.folder / "incoming").iterdir()) == []


WRITERS = """
    import os, sys, threading, random
    from pathlib import Path
    from trainshed.store.embedded.store import EmbeddedStore

    store = EmbeddedStore(Path(sys.argv[1]))
    lock = threading.Lock()

    def write(number):
        turn = 0
        while True:
            turn += 1
            # Half of them overwrite one another, so that blobs are removed at the same time.
            key = f"{sys.argv[2]}-{number}-{turn}" if turn % 2 else f"shared-{number % 2}"
            body = f"{key} {turn} ".encode() * random.choice([1, 50, 30000])
            with lock:
                os.write(1, f"begin {key}\\n".encode())
            store.put("data", key, body)
            if turn % 7 == 0:
                store.copy("data", key, "data", key + "-copy")
            with lock:
                os.write(1, f"done {key} {len(body)}\\n".encode())

    for number in range(6):
        threading.Thread(target=write, args=(number,)).start()
"""


@pytest.mark.slow
def test_kill_in_the_middle_of_many_writes(tmp_path: Path) -> None:
    chance = random.Random(7)
    folder = tmp_path / "store"
    EmbeddedStore(folder).create_bucket("data", "w")
    acknowledged: dict[str, int] = {}
    begun: set[str] = set()
    for round_number in range(6):
        journals = [tmp_path / f"{round_number}{name}" for name in "ab"]
        writers = []
        for journal in journals:
            with journal.open("wb") as file:
                writers.append(start(WRITERS, folder, journal.name, stdout=file))
        deadline = time.monotonic() + 90
        # On a slow disk few are done in a fixed time.
        while not all(journal.read_text().count("done ") >= 12 for journal in journals):
            assert time.monotonic() < deadline, [journal.read_text() for journal in journals]
            time.sleep(0.01)
        time.sleep(chance.random() * 0.5)
        for writer in writers:
            writer.kill()
            assert writer.wait(timeout=120) == -signal.SIGKILL
        for journal in journals:
            for line in journal.read_text().splitlines():
                word, key, *size = line.split()
                begun.add(key)
                if word == "done":
                    acknowledged[key] = int(size[0])
        store = EmbeddedStore(folder)
        check_wholeness(store)
        present = {info.key: info for info in store.walk("data")}
        for key, size in acknowledged.items():
            assert key in present
            if not key.startswith("shared"):
                assert present[key].size == size
        assert {key.removesuffix("-copy") for key in present} <= begun
        store.close()
    assert len(acknowledged) > 50


HOLD_AN_UPLOAD = """
    import sys, time
    from pathlib import Path
    from trainshed.store.embedded.store import EmbeddedStore

    store = EmbeddedStore(Path(sys.argv[1]))
    upload = store.upload("data", "slow")
    upload.write(b"half")
    if sys.argv[2] == "linked":
        upload._blob.publish()
    print("ready", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("moment", ["writing", "linked"])
def test_garbage_collection_spares_the_living_and_clears_the_dead(store: EmbeddedStore, moment: str) -> None:
    other = start(HOLD_AN_UPLOAD, store.folder, moment)
    try:
        assert other.stdout is not None and other.stdout.readline() == "ready\n"
        assert store.collect_garbage() == 0
        assert len([path for path in (store.folder / "incoming").rglob("*") if path.is_file()]) == 2
        blobs = [path for path in (store.folder / "blobs").rglob("*") if path.is_file()]
        assert len(blobs) == (1 if moment == "linked" else 0)
    finally:
        other.kill()
        other.communicate(timeout=120)
    assert store.collect_garbage() == 1
    check_wholeness(store)
    with pytest.raises(NotFound):
        store.info("data", "slow")


def test_what_a_killed_process_of_an_earlier_version_left_is_cleared(store: EmbeddedStore) -> None:
    """Its files lay in the session's folder itself."""
    blob = "ab" + "0" * 30
    session = store.folder / "incoming" / "1-0123456789ab"
    session.mkdir()
    session.with_name(session.name + ".lock").touch()
    (session / blob).write_bytes(b"half")
    (store.folder / "blobs" / "ab").mkdir(exist_ok=True)
    (store.folder / "blobs" / "ab" / blob).hardlink_to(session / blob)
    assert store.collect_garbage() == 1
    check_wholeness(store)


def test_a_blob_whose_row_was_committed_outlives_its_writer(store: EmbeddedStore) -> None:
    """Killed between the commit and the removal of the incoming name."""
    code = """
        import os, sys
        from pathlib import Path
        from trainshed.store.embedded import blob_file, store

        blob_file.BlobWriter.settle = lambda self: os._exit(9)
        store.EmbeddedStore(Path(sys.argv[1])).put("data", "k", b"kept")
    """
    writer = start(code, store.folder)
    writer.communicate(timeout=120)
    assert writer.returncode == 9
    assert store.collect_garbage() == 0
    assert read(store, "k") == b"kept"
    check_wholeness(store)


@pytest.mark.parametrize("error", [KeyboardInterrupt, sqlite3.OperationalError])
def test_a_write_with_an_unknown_end_keeps_its_blob(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    """The interrupt comes just behind the commit: the row is there, so the bytes must be too."""
    run = Transactions._apply

    def apply(connection: sqlite3.Connection, pending: Any) -> None:
        run(connection, pending)
        connection.execute("COMMIT")
        raise error("late")

    with monkeypatch.context() as patch:
        patch.setattr(Transactions, "_apply", staticmethod(apply))
        with pytest.raises((KeyboardInterrupt, Unavailable)):
            store.put("data", "k", b"bytes")
    assert read(store, "k") == b"bytes"
    store.put("data", "next", b"goes on")
    assert store.verify().is_whole


def test_killed_before_the_old_blob_was_removed(store: EmbeddedStore) -> None:
    store.put("data", "k", b"old")
    code = """
        import os, sys
        from pathlib import Path
        from trainshed.store.embedded.store import EmbeddedStore

        EmbeddedStore._remove = lambda self, blobs: os._exit(9)
        EmbeddedStore(Path(sys.argv[1])).put("data", "k", b"new")
    """
    writer = start(code, store.folder)
    writer.communicate(timeout=120)
    assert writer.returncode == 9
    assert read(store, "k") == b"new"
    assert store.collect_garbage() == 1
    store.close()
    check_wholeness(store)


def test_two_processes_fight_for_one_key(store: EmbeddedStore) -> None:
    code = """
        import sys
        from pathlib import Path
        from trainshed.store.embedded.store import EmbeddedStore

        store = EmbeddedStore(Path(sys.argv[1]))
        for turn in range(60):
            store.put("data", "one", sys.argv[2].encode() * 10000)
            with store.open("data", "one") as file:
                data = file.read()
            assert data in (b"a" * 10000, b"b" * 10000)
        store.close()
    """
    writers = [start(code, store.folder, name) for name in "ab"]
    for writer in writers:
        writer.communicate(timeout=120)
        assert writer.returncode == 0
    store.collect_garbage()
    store.close()
    check_wholeness(store)
    assert len([path for path in (store.folder / "blobs").rglob("*") if path.is_file()]) == 1


def test_collecting_and_checking_while_others_write_harms_nothing(store: EmbeddedStore) -> None:
    code = """
        import sys, threading
        from pathlib import Path
        from trainshed.store.embedded.store import EmbeddedStore

        store = EmbeddedStore(Path(sys.argv[1]))

        def write(number):
            for turn in range(40):
                key = f"{sys.argv[2]}-{number}-{turn % 3}"
                body = f"{key}-{turn}".encode() * 500
                store.put("data", key, body)
                store.copy("data", key, "data", key + "-copy")
                with store.open("data", key) as file:
                    assert file.read() == body
                if turn % 5 == 0:
                    assert store.delete("data", key)

        threads = [threading.Thread(target=write, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        store.close()
    """
    writers = [start(code, store.folder, name) for name in "ab"]
    rounds = 0
    while any(writer.poll() is None for writer in writers):
        store.collect_garbage()
        report = store.verify()
        assert report.is_whole and report.orphans == (), report
        rounds += 1
    for writer in writers:
        writer.communicate(timeout=120)
        assert writer.returncode == 0
    assert rounds > 2
    store.collect_garbage()
    store.close()
    check_wholeness(store)


def test_many_processes_may_create_the_store_at_once(tmp_path: Path) -> None:
    code = """
        import sys
        from pathlib import Path
        from trainshed.store.embedded.store import EmbeddedStore

        store = EmbeddedStore(Path(sys.argv[1]))
        store.ensure_bucket("data", "w")
        store.put("data", sys.argv[2], b"x")
        store.close()
    """
    makers = [start(code, tmp_path / "store", str(number)) for number in range(5)]
    for maker in makers:
        maker.communicate(timeout=120)
        assert maker.returncode == 0
    store = EmbeddedStore(tmp_path / "store")
    assert len(list(store.walk("data"))) == 5
    check_wholeness(store)
    store.close()


def test_a_forked_child_uses_the_store_of_its_parent(store: EmbeddedStore) -> None:
    store.put("data", "parent", b"1")
    with store.upload("data", "open") as upload:
        upload.write(b"across a fork")
        child = os.fork()
        if child == 0:
            try:
                store.put("data", "child", b"2")
                assert store._blobs._session != ""
                store.close()
                os._exit(0 if read(store, "parent") == b"1" else 1)
            except BaseException:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        upload.commit()
    assert read(store, "child") == b"2" and read(store, "open") == b"across a fork"
    store.close()
    check_wholeness(store)


FILL = """
    import json, resource, sys
    from pathlib import Path
    from trainshed.model.errors import TrainshedError
    from trainshed.store.embedded.store import EmbeddedStore

    store = EmbeddedStore(Path(sys.argv[1]))
    store.create_bucket("data", "w")
    store.put("data", "before", b"x" * 1000)
    if sys.argv[2] == "limit":
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    codes, stored = [], 0
    for number in range(60):
        try:
            store.put("data", f"big/{number}", b"y" * (600_000 if sys.argv[2] == "disk" else 3 << 20))
            stored += 1
        except TrainshedError as error:
            codes.append(error.code)
            assert error.status == 503 and error.hint
    free = 0
    while sys.argv[2] == "disk":
        # Also the index runs into the wall.
        try:
            store.put("data", f"small/{free}", b"z" * 3000)
            free += 1
        except TrainshedError as error:
            codes.append(error.code)
            break
    seen = [info.key for info in store.walk("data")]
    assert len(seen) == stored + free + 1, (len(seen), stored, free)
    for key in seen:
        with store.open("data", key) as file:
            file.read()
    store.delete_prefix("data", "big/")
    store.put("data", "after", b"room again")
    store.collect_garbage()
    store.close()
    left = [p.name for p in (store.folder / "blobs").rglob("*") if p.is_file()]
    print(json.dumps({"codes": sorted(set(codes)), "stored": stored, "blobs": len(left), "free": free,
                      "incoming": [str(p) for p in (store.folder / "incoming").iterdir()]}))
"""


def test_a_file_that_may_not_grow_leaves_nothing(tmp_path: Path) -> None:
    filler = start(FILL, tmp_path / "store", "limit")
    output, _ = filler.communicate(timeout=120)
    assert filler.returncode == 0
    assert json.loads(output) == {"codes": ["disk_full"], "stored": 0, "blobs": 2, "free": 0, "incoming": []}


def test_a_full_disk_is_told_and_recovers(tmp_path: Path) -> None:
    """A real file system of 16 MB, in a mount namespace of its own."""
    mount = 'mount -t tmpfs -o size=16m none "$1" && shift && exec "$@"'
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", mount, "sh", tmp_path, sys.executable, "-c", textwrap.dedent(FILL)]
        + [str(tmp_path / "store"), "disk"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["codes"] == ["disk_full"] and report["incoming"] == []
    assert 5 < report["stored"] < 30 and report["blobs"] == report["free"] + 2
