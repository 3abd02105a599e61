"""Lifecycle rules at work."""

from __future__ import annotations

import time

from trainshed.store.embedded.store import EmbeddedStore

DAY = 86400.0


def set_rule(store: EmbeddedStore, *bodies: str) -> None:
    rules = "".join(f"<Rule><Status>Enabled</Status>{body}</Rule>" for body in bodies)
    store.set_bucket_document(
        "data", "lifecycle", f"<LifecycleConfiguration>{rules}</LifecycleConfiguration>"
    )


def keys(store: EmbeddedStore) -> list[str]:
    return [info.key for info in store.walk("data")]


def test_more_than_a_page_goes(store: EmbeddedStore) -> None:
    store.put("data", "a", b"x")
    store._write(
        lambda c: c.executemany(
            "INSERT INTO objects (bucket_id, key, blob, size, md5, sha256, content_type, metadata, modified_at)"
            " VALUES ((SELECT id FROM buckets WHERE name = 'data'), ?, '', 0, '', '', '', '', 0)",
            ((b"b%05d" % number,) for number in range(2500)),
        )
    )
    set_rule(store, "<Expiration><Date>2020-01-01T00:00:00Z</Date></Expiration>")
    assert store.expire_objects() == 2501 and keys(store) == []


def test_older_versions_lone_markers_and_uploads_go(store: EmbeddedStore) -> None:
    store.set_versioning("data", "Enabled")
    for body in (b"1", b"22", b"333"):
        store.put("data", "k", body)
    store.put("data", "gone", b"x")
    store.delete("data", "gone")
    store.create_upload("data", "never")
    set_rule(
        store,
        "<NoncurrentVersionExpiration><NoncurrentDays>5</NoncurrentDays></NoncurrentVersionExpiration>",
        "<Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration>",
        "<AbortIncompleteMultipartUpload><DaysAfterInitiation>1</DaysAfterInitiation>"
        "</AbortIncompleteMultipartUpload>",
    )
    assert store.expire_objects(time.time() + 2 * DAY) == 1
    assert store.list_uploads("data").uploads == () and len(store.list_versions("data").versions) == 5
    # Two older versions and the removed one; then the marker hides nothing.
    assert store.expire_objects(time.time() + 7 * DAY) == 4
    (left,) = store.list_versions("data").versions
    assert (left.info.key, left.info.size, left.is_latest) == ("k", 3, True)
    assert len([path for path in (store.folder / "blobs").rglob("*") if path.is_file()]) == 1
