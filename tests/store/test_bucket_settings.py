"""Settings that are kept with a bucket."""

from __future__ import annotations

import pytest

from trainshed.model.errors import NotFound
from trainshed.store.object_store import ObjectStore


def test_settings_are_kept_with_the_bucket(store: ObjectStore) -> None:
    assert store.bucket_document("data", "policy") == ""
    store.set_bucket_document("data", "policy", "<a/>")
    store.set_bucket_document("data", "policy", "<b/>")
    store.set_bucket_document("data", "cors", "<c/>")
    assert store.bucket_document("data", "policy") == "<b/>"
    store.set_bucket_document("data", "policy", "")
    assert store.bucket_document("data", "policy") == "" and store.bucket_document("data", "cors") == "<c/>"
    store.delete_bucket("data")
    store.create_bucket("data", "w1")
    assert store.bucket_document("data", "cors") == ""
    for _ in "ab":
        with pytest.raises(NotFound):
            store.set_bucket_document("nowhere", "cors", "x")
