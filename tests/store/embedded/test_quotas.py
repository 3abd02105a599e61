"""Quotas: what counts, what is refused, and that nothing of it stays."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from trainshed.model.errors import TooLarge
from trainshed.store.embedded.store import EmbeddedStore
from trainshed.store.object_store import Usage


def refused(work: Callable[[], object]) -> str:
    with pytest.raises(TooLarge) as caught:
        work()
    assert caught.value.code == "quota_exceeded" and caught.value.hint
    return caught.value.where


def test_a_workspace_keeps_no_more_than_it_may(store: EmbeddedStore) -> None:
    store.create_bucket("more", "w1")
    store.create_bucket("other", "w2")
    store.set_quota("w1", 100, 3)
    store.put("data", "a", b"x" * 60)
    assert refused(lambda: store.put("more", "b", b"x" * 41)) == "quota: bytes"
    store.put("more", "b", b"x" * 40)
    store.put("other", "b", b"x" * 1000)
    assert store.usage("w1") == Usage(100, 2, 100, 3) and store.usage("w2") == Usage(1000, 1)
    store.put("data", "c", b"")
    assert refused(lambda: store.put("data", "d", b"")) == "quota: objects"
    assert refused(lambda: store.copy("data", "c", "data", "d")) == "quota: objects"
    assert refused(lambda: store.copy_prefix("data", "", "more", "all/")) in (
        "quota: objects",
        "quota: bytes",
    )
    # What does not grow is always taken, also when the limit is lowered.
    store.set_quota("w1", 10, 1)
    store.put("data", "a", b"x" * 60)
    store.put("data", "a", b"x" * 5)
    assert refused(lambda: store.put("data", "a", b"x" * 6)) == "quota: bytes"
    store.set_quota("w1", None, None)
    store.put("data", "d", b"x" * 500)
    report = store.verify()
    assert report.is_whole and report.orphans == ()
    # The platform's own buckets belong to nobody.
    store.set_quota("", 1, 1)
    store.put(".code", "k", b"xxx")
    refused(lambda: store.put("other", "c", b""))
    store.set_quota("w2", 0, 0)
    store.put("other", "c", b"x" * 10)


def test_parts_and_versions_and_appended_bytes_count(store: EmbeddedStore) -> None:
    store.set_quota("w1", 100, 0)
    upload = store.create_upload("data", "k")
    parts = [store.put_part("data", "k", upload.upload_id, n, b"x" * 40) for n in (1, 2)]
    refused(lambda: store.put_part("data", "k", upload.upload_id, 3, b"x" * 40))
    refused(lambda: store.put("data", "a", b"x" * 21))
    store.complete_upload("data", "k", upload.upload_id, [(part.number, part.etag) for part in parts])
    assert store.usage("w1").bytes == 80
    with store.append("data", "log", 0) as piece:
        piece.write(b"x" * 20)
        piece.commit()

    def grow() -> None:
        with store.append("data", "log", 20) as piece:
            piece.write(b"x")
            piece.commit()

    refused(grow)
    assert store.info("data", "log").size == 20
    store.delete("data", "log")
    store.set_versioning("data", "Enabled")
    store.put("data", "a", b"x" * 15)
    refused(lambda: store.put("data", "a", b"x" * 10))
    assert store.usage("w1").bytes == 95 and store.verify().is_whole


def test_counting_as_one_goes_is_the_same_as_counting_again(store: EmbeddedStore) -> None:
    chance = random.Random(3)
    store.create_bucket("versioned", "w1")
    store.set_versioning("versioned", "Enabled")
    for _ in range(300):
        bucket, key = chance.choice(["data", "versioned"]), chance.choice("abcde")
        match chance.randrange(7):
            case 0 | 1 | 2:
                store.put(bucket, key, b"x" * chance.randrange(50))
            case 3:
                store.delete(bucket, key)
            case 4:
                store.copy_prefix(bucket, key, "data", key + "/")
            case 5:
                upload = store.create_upload(bucket, key)
                part = store.put_part(bucket, key, upload.upload_id, 1, b"x" * chance.randrange(50))
                if chance.random() < 0.5:
                    store.complete_upload(bucket, key, upload.upload_id, [(1, part.etag)])
            case 6:
                versions = store.list_versions("versioned").versions
                if versions:
                    one = chance.choice(versions).info
                    store.remove("versioned", one.key, one.version_id or "null")
    before = store.usage("w1")
    store.recount()
    assert store.usage("w1") == before and before.objects > 5 and before.bytes > 100
    assert store.verify().is_whole and store.verify().orphans == ()
