"""Which code travels with a plan: what is small, near, and needs no closer look."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from trainshed.services.carried_code import carry_code
from trainshed.store import open_store
from trainshed.store.object_store import ObjectStore


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    store = open_store(f"file://{tmp_path / 'store'}")
    store.create_bucket("code", "ours")
    return store


def test_small_code_is_carried_whole(store: ObjectStore) -> None:
    store.put("code", "one/train.py", b"print(1)\n")
    store.put("code", "one/lib/run.sh", b"#!/bin/sh\n", metadata={"mode": "755"})
    store.put("code", "other/secret.py", b"no")
    found = {
        path: (is_program, base64.b64decode(data))
        for path, is_program, data in carry_code(store, "code", "one/")
    }
    assert found == {"train.py": (False, b"print(1)\n"), "lib/run.sh": (True, b"#!/bin/sh\n")}


def test_much_code_and_odd_names_are_left_to_the_staging(store: ObjectStore) -> None:
    store.put("code", "large/a", bytes(65 << 10))
    for number in range(17):
        store.put("code", f"many/{number}", b"x")
    store.put("code", "odd/a", b"x")
    store.put("code", "odd/../b", b"x")
    for prefix in ("large/", "many/", "odd/", "nothing/", "", "large"):
        assert carry_code(store, "code", prefix) == ()
