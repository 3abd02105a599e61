"""Lifecycle rules at work."""

from __future__ import annotations

import time
from collections.abc import Callable

from trainshed.store.object_store import ObjectStore

DAY = 86400.0
Check = Callable[[ObjectStore], None]


def set_rule(store: ObjectStore, *bodies: str) -> None:
    rules = "".join(f"<Rule><Status>Enabled</Status>{body}</Rule>" for body in bodies)
    store.set_bucket_document(
        "data", "lifecycle", f"<LifecycleConfiguration>{rules}</LifecycleConfiguration>"
    )


def keys(store: ObjectStore) -> list[str]:
    return [info.key for info in store.walk("data")]


def test_objects_go_when_their_days_are_over(store: ObjectStore, whole: Check) -> None:
    for key in ("keep", "tmp/a", "tmp/b", "tmp/tagged"):
        store.put("data", key, b"x", attributes={"tagging": "keep=no&x=1"} if "tagged" in key else {})
    assert store.expire_objects(time.time() + 100 * DAY) == 0
    set_rule(
        store,
        "<Prefix>tmp/</Prefix><Expiration><Days>3</Days></Expiration>",
        "<Filter><Tag><Key>keep</Key><Value>no</Value></Tag></Filter><Expiration><Days>1</Days></Expiration>",
    )
    assert store.expire_objects() == 0
    assert store.expire_objects(time.time() + 2 * DAY) == 1
    assert keys(store) == ["keep", "tmp/a", "tmp/b"]
    assert store.expire_objects(time.time() + 4 * DAY) == 2
    assert keys(store) == ["keep"]
    whole(store)


def test_a_rule_that_is_not_understood_removes_nothing(store: ObjectStore) -> None:
    store.put("data", "k", b"x")
    store.set_bucket_document("data", "lifecycle", "<nonsense")
    assert store.expire_objects(time.time() + 100 * DAY) == 0 and keys(store) == ["k"]


def test_uploads_that_were_given_up_go(store: ObjectStore) -> None:
    upload = store.create_upload("data", "never")
    store.put_part("data", "never", upload.upload_id, 1, b"x")
    rule = "<AbortIncompleteMultipartUpload><DaysAfterInitiation>1</DaysAfterInitiation>"
    set_rule(store, f"{rule}</AbortIncompleteMultipartUpload>")
    assert store.expire_objects() == 0 and len(store.list_uploads("data").uploads) == 1
    assert store.expire_objects(time.time() + 3 * DAY) == 1 and store.list_uploads("data").uploads == ()
