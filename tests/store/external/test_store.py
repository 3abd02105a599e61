"""What is the external store's own: names of buckets, what it cannot do, forks, upkeep, and another endpoint."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import store_server
from trainshed.model.errors import Conflict, InvalidInput, NotAllowed, NotFound
from trainshed.store.external import bucket_records, upkeep
from trainshed.store.external.address import Credentials, parse_place
from trainshed.store.external.examination import examine_endpoint
from trainshed.store.external.key_names import ESCAPED, PLAIN
from trainshed.store.external.store import ExternalStore
from trainshed.store.external.wire import Refused, Wire
from trainshed.store.object_store import Condition

server = store_server.server


def another(store: ExternalStore) -> ExternalStore:
    """The same place, opened by another process, so to speak."""
    return ExternalStore(store.address, store._wire._credentials)


def read(store: ExternalStore, key: str) -> bytes:
    with store.open("data", key) as file:
        return file.read()


# --- buckets ---


def test_the_name_of_a_removed_bucket_stays_with_its_workspace_for_a_while(
    external: ExternalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    external.create_bucket("mine", "w1")
    other = another(external)
    assert other.bucket("mine").workspace_id == "w1"
    external.delete_bucket("mine")
    with pytest.raises(Conflict):
        external.create_bucket("mine", "w2")
    # A process that still believes in it writes; whoever gets the name sees nothing of that.
    other.put("mine", "late", b"of w1")
    external.create_bucket("mine", "w1")
    assert external.list("mine").objects == ()
    external.delete_bucket("mine")
    other.put("mine", "late", b"of w1")
    monkeypatch.setattr(bucket_records, "_HELD_SECONDS", 0.0)
    assert external.create_bucket("mine", "w2").workspace_id == "w2"
    assert external.list("mine").objects == ()
    other.close()


def test_a_place_belongs_to_one_platform(external: ExternalStore) -> None:
    external.claim("first")
    external.claim("first")
    with pytest.raises(Conflict, match="another platform"):
        external.claim("second")


def test_of_many_who_make_a_bucket_one_wins(external: ExternalStore) -> None:
    ends: list[str] = []

    def make(number: int) -> None:
        store = another(external)
        try:
            ends.append(store.create_bucket("wanted", f"w{number}").workspace_id)
        except Conflict as error:
            ends.append(error.code)
        store.close()

    external._at_once(range(6), make)
    assert (
        sorted(ends)[:5] == ["bucket_exists"] * 5
        and external.bucket("wanted").workspace_id == sorted(ends)[5]
    )


def test_objects_of_others_are_nobodys_bucket(external: ExternalStore) -> None:
    external._wire.ask("PUT", external._layout.folder("finance") + "salaries.csv", body=b"x")
    with pytest.raises(Conflict, match="nobody here owns"):
        external.create_bucket("finance", "w1")
    with pytest.raises(NotFound):
        external.list("finance")
    with pytest.raises(NotAllowed):
        external.put(".trainshed", "store.json", b"{}")
    # Names that are none of ours are not shown among ours.
    external._wire.ask("PUT", external._layout.folder("data") + "a.b-c", body=b"x")
    external.put("data", "a", b"1")
    assert [info.key for info in external.walk("data")] == ["a"]


def test_a_change_of_settings_loses_no_other(external: ExternalStore) -> None:
    stores = [another(external) for _ in range(4)]
    external._at_once(range(4), lambda n: stores[n].set_bucket_document("data", f"name-{n}", f"text {n}"))
    fresh = another(external)
    assert [fresh.bucket_document("data", f"name-{n}") for n in range(4)] == [f"text {n}" for n in range(4)]
    for store in (*stores, fresh):
        store.close()


# --- what cannot be ---


def test_what_cannot_be_is_refused_and_changes_nothing(external: ExternalStore) -> None:
    external.put("data", "k", b"1")
    with pytest.raises(NotAllowed) as caught:
        external.set_versioning("data", "Enabled")
    assert caught.value.code == "not_implemented" and external.bucket("data").versioning == ""
    with pytest.raises(NotFound) as missing:
        external.info("data", "k", "some-version")
    assert missing.value.code == "no_such_version" and external.info("data", "k", "null").size == 1
    with pytest.raises(NotAllowed):
        external.set_quota("w1", 1 << 30, 0)
    external.set_quota("", 0, 0)
    external.put("data", "more", b"22")
    assert (external.usage("w1").bytes, external.usage("w1").objects) == (3, 2)
    with pytest.raises(InvalidInput, match="1024"):
        external.put("data", "x/" * 500, b"1")
    # An endpoint that ignores conditions gets none.
    external._layout._terms = replace(external._layout.terms, has_conditions=False)
    for write in (
        lambda: external.put("data", "k", b"2", condition=Condition(if_none_match="*")),
        lambda: external.append("data", "log", 0),
    ):
        with pytest.raises(NotAllowed):
            write()
    assert read(external, "k") == b"1"


# --- processes, upkeep ---


def test_a_forked_child_makes_connections_of_its_own(external: ExternalStore) -> None:
    external.put("data", "k", b"parent")
    child = os.fork()
    if not child:
        try:
            external.put("data", "child", read(external, "k") + b" and child")
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert status == 0 and read(external, "child") == b"parent and child" and read(external, "k") == b"parent"


def test_uploads_that_were_given_up_are_collected(
    external: ExternalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = external.create_upload("data", "old")
    external.put_part("data", "old", upload.upload_id, 1, b"a")
    # Killed in the middle of a large object.
    writing = external.upload("data", "large")
    writing.write(bytes(17 << 20))
    assert external.collect_garbage() == 0 and len(external.list_uploads("data").uploads) == 1
    assert external.collect_garbage(time.time() + 8 * 86400) == 2
    assert list(external._endpoint_uploads()) == []
    writing.abort()
    monkeypatch.setattr(upkeep, "_ABANDONED_SECONDS", -10.0)
    external.collect_garbage()
    assert external.list_uploads("data").uploads == ()


def test_the_endpoint_is_examined(external: ExternalStore) -> None:
    keys = external._wire._credentials
    probes = list(examine_endpoint(external.address, keys))
    assert [probe.is_well for probe in probes] == [True] * 4 and "escaped" in probes[-1].found
    assert list(external._layout.names_below(external._layout.own("doctor-"))) == []
    (probe,) = examine_endpoint(external.address, Credentials("nobody", "wrong"))
    assert not probe.is_well and "keys" in probe.found and "wrong" not in probe.found
    (probe,) = examine_endpoint(replace(external.address, bucket="not-there"), keys)
    assert not probe.is_well and "no bucket 'not-there'" in probe.found


# --- an endpoint that takes keys for what they are: our own ---


@pytest.fixture
def plain(server: Any) -> Iterator[ExternalStore]:
    pair = server.keys["dev"]
    keys = Credentials(pair.access_key, pair.secret_key)
    wire = Wire(parse_place("s3://outer-bucket", endpoint=server.url), keys)
    try:
        wire.ask("PUT")
    except Refused as refused:
        assert refused.code == "BucketAlreadyOwnedByYou", refused
    wire.close()
    prefix = os.urandom(4).hex()
    store = ExternalStore(parse_place(f"s3://outer-bucket/{prefix}", endpoint=server.url), keys)
    store.create_bucket("data", "w1")
    yield store
    store.close()


def test_keys_are_plain_where_the_endpoint_takes_them_so(
    plain: ExternalStore, external: ExternalStore
) -> None:
    assert (plain._layout.terms.names, external._layout.terms.names) == (PLAIN, ESCAPED)
    keys = [
        "../x",
        "/abs",
        "a",
        "a b+%2e",
        "a-b",
        "a/",
        "a/../b",
        "a//b",
        "a/b",
        "a\nb",
        "a\\b",
        "é",
        "z" * 900,
    ]
    for key in keys:
        plain.put("data", key, key.encode(), metadata={"mode": "755", "名": key[:3]})
    assert [info.key for info in plain.walk("data")] == sorted(keys, key=str.encode)
    assert all(read(plain, key) == key.encode() for key in keys)
    assert plain.info("data", "a//b").metadata == {"mode": "755", "名": "a//"}
    page = plain.list("data", delimiter="/", limit=4)
    assert page.folders == ("../", "/") and [info.key for info in page.objects] == ["a", "a\nb"]
    rest = plain.list("data", delimiter="/", after=page.next_after)
    assert rest.folders == ("a/",) and len(rest.objects) == 5
    assert plain.list("data", delimiter="/", after="a/").folders == ()
    plain._wire.ask("HEAD", f"{plain.address.prefix}data/a//b")
    assert plain.delete_prefix("data", "a") == 9 and len(list(plain.walk("data"))) == 4


def test_parts_appends_and_renames_at_that_endpoint(plain: ExternalStore) -> None:
    upload = plain.create_upload("data", "k")
    parts = [
        plain.put_part("data", "k", upload.upload_id, n, body)
        for n, body in ((1, b"x" * (5 << 20)), (2, b"y"))
    ]
    plain.complete_upload("data", "k", upload.upload_id, [(part.number, part.etag) for part in parts])
    assert list(plain.piece_sizes("data", "k")) == [5 << 20, 1]
    for position, body in ((0, b"one"), (3, b"two")):
        with plain.append("data", "log", position) as append:
            append.write(body)
            append.commit()
    plain.rename("data", "log", "moved")
    assert read(plain, "moved") == b"onetwo" and plain.copy_prefix("data", "", "data", "copy/") == 2
    assert [info.key for info in plain.walk("data", "copy/")] == ["copy/k", "copy/moved"]
    plain.set_attributes("data", "moved", {"tagging": "a=1"})
    assert plain.info("data", "moved").attributes == {"tagging": "a=1"}
