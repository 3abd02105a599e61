"""Objects that are committed together: each as if it came alone."""

from __future__ import annotations

import errno
import hashlib
import subprocess
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from trainshed.model.errors import Conflict, InvalidInput, NotFound, TooLarge
from trainshed.store.embedded import together, transactions
from trainshed.store.embedded.group_sync import sync_together
from trainshed.store.embedded.store import EmbeddedStore
from trainshed.store.embedded.together import WholeObject, commit_together
from trainshed.store.object_store import Condition, ObjectInfo


def whole(
    store: EmbeddedStore, key: str, data: bytes, *, md5: str = "", condition: Condition | None = None
) -> WholeObject:
    upload = store.upload("data", key, condition=condition)
    upload.write(data)
    return upload.finish(expected_md5=md5, attributes={"late": key})


def read(store: EmbeddedStore, key: str) -> bytes:
    with store.open("data", key) as file:
        return file.read()


def files(store: EmbeddedStore) -> tuple[int, int]:
    """How many blobs there are, and how many files that are still coming in."""
    blobs = [path for path in (store.folder / "blobs").rglob("*") if path.is_file()]
    coming = [
        path for path in (store.folder / "incoming").rglob("*") if path.is_file() and path.suffix != ".lock"
    ]
    return len(blobs), len(coming)


def test_all_are_there_afterwards(store: EmbeddedStore) -> None:
    outcomes = commit_together([whole(store, f"k{number}", b"x" * number) for number in range(40)])
    assert [outcome.size for outcome in outcomes if isinstance(outcome, ObjectInfo)] == list(range(40))
    assert all(read(store, f"k{number}") == b"x" * number for number in range(40))
    assert store.info("data", "k7").attributes == {"late": "k7"}
    # An empty object has no file.
    assert files(store) == (39, 0)
    assert store.total_usage().objects == 40


def test_one_that_is_refused_leaves_the_others_and_no_trace(store: EmbeddedStore) -> None:
    store.put("data", "old", b"old")
    outcomes = commit_together(
        [
            whole(store, "first", b"1"),
            whole(store, "wrong", b"2", md5=hashlib.md5(b"other").hexdigest()),
            whole(store, "old", b"3", condition=Condition(if_none_match="*")),
            whole(store, "last", b"4"),
        ]
    )
    assert isinstance(outcomes[1], InvalidInput) and outcomes[1].code == "checksum_mismatch"
    assert isinstance(outcomes[2], Conflict) and outcomes[2].code == "precondition_failed"
    assert [read(store, key) for key in ("first", "last", "old")] == [b"1", b"4", b"old"]
    assert files(store) == (3, 0) and store.total_usage().objects == 3


def test_what_is_hashed_while_the_disk_works_is_judged_all_the_same(store: EmbeddedStore) -> None:
    def late(key: str, md5: str = "") -> WholeObject:
        upload = store.upload("data", key, with_sha256=True)
        upload.write(b"begin ")
        upload.write_last(bytearray(key.encode()))
        return upload.finish(expected_md5=md5)

    right = hashlib.md5(b"begin right").hexdigest()
    kept, refused, empty = commit_together(
        [late("right", right), late("wrong", right), whole(store, "empty", b"")]
    )
    assert isinstance(kept, ObjectInfo) and kept.etag == right and read(store, "right") == b"begin right"
    assert isinstance(refused, InvalidInput) and refused.code == "checksum_mismatch"
    assert isinstance(empty, ObjectInfo) and empty.etag == hashlib.md5(b"").hexdigest()
    assert files(store) == (1, 0) and store.verify().is_whole


def test_the_last_one_of_a_key_wins(store: EmbeddedStore) -> None:
    outcomes = commit_together([whole(store, "k", b"one"), whole(store, "k", b"two")])
    assert [outcome.etag for outcome in outcomes if isinstance(outcome, ObjectInfo)] == [
        hashlib.md5(data).hexdigest() for data in (b"one", b"two")
    ]
    assert read(store, "k") == b"two" and files(store) == (1, 0)


def test_of_two_that_must_be_first_one_wins(store: EmbeddedStore) -> None:
    first = Condition(if_none_match="*")
    outcomes = commit_together([whole(store, "k", data, condition=first) for data in (b"one", b"two")])
    assert isinstance(outcomes[0], ObjectInfo) and isinstance(outcomes[1], Conflict)
    assert read(store, "k") == b"one" and files(store) == (1, 0)


def test_a_quota_lets_in_as_many_as_fit(store: EmbeddedStore) -> None:
    store.set_quota("w1", 0, 2)
    store.create_bucket("limited", "w1")
    uploads = []
    for number in range(4):
        upload = store.upload("limited", f"k{number}")
        upload.write(b"x")
        uploads.append(upload.finish())
    outcomes = commit_together(uploads)
    assert [isinstance(outcome, TooLarge) for outcome in outcomes] == [False, False, True, True]
    assert [info.key for info in store.list("limited").objects] == ["k0", "k1"]
    assert files(store) == (2, 0)


def test_a_bucket_that_went_meanwhile_refuses_its_own_only(store: EmbeddedStore) -> None:
    store.create_bucket("gone", "w1")
    upload = store.upload("gone", "k")
    upload.write(b"x")
    lost = upload.finish()
    store.delete_bucket("gone")
    outcomes = commit_together([lost, whole(store, "kept", b"y")])
    assert isinstance(outcomes[0], NotFound) and read(store, "kept") == b"y" and files(store) == (1, 0)


def test_what_was_answered_survives_a_kill(store: EmbeddedStore) -> None:
    """Killed in the middle of the second group: the first is whole, nothing of the second is seen."""
    code = """
        import os, sys
        from pathlib import Path
        from trainshed.store.embedded import blob_file
        from trainshed.store.embedded.store import EmbeddedStore
        from trainshed.store.embedded.together import commit_together

        store = EmbeddedStore(Path(sys.argv[1]))

        def group(name):
            uploads = []
            for number in range(20):
                upload = store.upload("data", f"{name}{number}")
                upload.write(name.encode() * number)
                uploads.append(upload.finish())
            return uploads

        commit_together(group("a"))
        second, publish, seen = group("b"), blob_file.BlobFile.publish, []

        def die(self):
            seen.append(self)
            return publish(self) if len(seen) < 10 else os._exit(9)

        blob_file.BlobFile.publish = die
        commit_together(second)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(Path(store.folder))], timeout=120, check=False
    )
    assert done.returncode == 9
    assert files(store)[1] == 19
    assert store.collect_garbage() == 19
    assert sorted(info.key for info in store.walk("data")) == sorted(f"a{number}" for number in range(20))
    assert all(read(store, f"a{number}") == b"a" * number for number in range(20))
    assert files(store) == (19, 0)


def test_a_file_that_the_disk_lost_is_refused_and_the_others_are_kept(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sync(files: Sequence[int], meanwhile: Callable[[], None]) -> list[OSError | None]:
        outcomes = sync_together(files, meanwhile)
        return [OSError(errno.EIO, "lost"), OSError(errno.ENOSPC, "full"), *outcomes[2:]]

    monkeypatch.setattr(together, "sync_together", sync)
    outcomes = commit_together([whole(store, name, name.encode()) for name in ("lost", "full", "kept")])
    assert [getattr(outcome, "code", "") for outcome in outcomes] == ["store_failed", "disk_full", ""]
    assert [info.key for info in store.list("data").objects] == ["kept"]
    assert files(store) == (1, 0)


def test_a_folder_that_could_not_be_synced_is_synced_again_before_the_rows(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(transactions, "sync_folder", synced.append)
    assert isinstance(commit_together([whole(store, "first", b"1")])[0], ObjectInfo)
    assert synced == [], "once is enough"
    monkeypatch.setattr(
        together,
        "sync_together",
        lambda files, meanwhile: [
            *sync_together(files, meanwhile)[:1],
            *[OSError(5, "")] * (len(files) - 1),
        ],
    )
    assert isinstance(commit_together([whole(store, "second", b"2")])[0], ObjectInfo)
    assert synced and {folder.parent.name for folder in synced} <= {"blobs", store.folder.name}
