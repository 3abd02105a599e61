"""Care for the store: the hourly round, and the commands on its machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from trainshed.cli.main import cli
from trainshed.daemon.store_upkeep import apply_default_quota, keep_tidy, tidy_store
from trainshed.model.errors import TooLarge
from trainshed.model.home import Home
from trainshed.model.settings import Settings
from trainshed.services.platform import open_platform
from trainshed.services.setup import first_start
from trainshed.store.embedded.store import EmbeddedStore

RULE = (
    "<LifecycleConfiguration><Rule><Status>Enabled</Status><Prefix>old/</Prefix>"
    "<Expiration><Date>2020-01-01T00:00:00Z</Date></Expiration></Rule></LifecycleConfiguration>"
)


def run(*arguments: str | Path, code: int = 0) -> str:
    done = CliRunner().invoke(cli, list(map(str, arguments)), prog_name="trainshed")
    assert done.exit_code == code, done.output
    return done.output


def filled(home: Home) -> EmbeddedStore:
    store = EmbeddedStore(home.store)
    store.create_bucket("data", "w1")
    store.put("data", "k", b"good bytes")
    store.put("data", "old/k", b"over")
    return store


def test_verify_finds_damage_and_sets_it_aside(home: Home) -> None:
    store = filled(home)
    assert "Every object is as it was stored." in run("obs", "verify", "--home", home.path)
    (blob,) = [
        path for path in (home.store / "blobs").rglob("*") if path.is_file() and path.stat().st_size == 10
    ]
    blob.chmod(0o600)
    blob.write_bytes(b"evil bytes")
    output = run("obs", "verify", "--home", home.path, code=1)
    assert "damaged: obs://data/k" in output and "--quarantine" in output
    report = json.loads(run("obs", "verify", "--home", home.path, "--quarantine", "--json", code=1))
    assert report["damaged"] == ["obs://data/k"] and not report["is_whole"] and report["objects"] == 2
    assert [path.name for path in (home.store / "quarantine").iterdir()] == [blob.name]
    report = json.loads(run("obs", "verify", "--home", home.path, "--json", code=1))
    assert report["missing"] == ["obs://data/k"] and report["damaged"] == []
    store.put("data", "k", b"good bytes")
    run("obs", "verify", "--home", home.path)
    store.close()


def test_gc_applies_the_rules(home: Home) -> None:
    store = filled(home)
    store.set_bucket_document("data", "lifecycle", RULE)
    report = json.loads(run("obs", "gc", "--home", home.path, "--json"))
    assert report == {"expired_objects": 1, "removed_files": 0}
    assert [info.key for info in store.walk("data")] == ["k"]
    assert "0 objects" in run("obs", "gc", "--home", home.path)
    store.close()


def test_a_home_without_a_store_is_told(tmp_path: Path) -> None:
    for command in ("verify", "gc"):
        done = CliRunner().invoke(cli, ["obs", command, "--home", str(tmp_path)])
        assert done.exit_code != 0 and not (tmp_path / "store").exists()


def test_quotas_come_from_the_settings_or_from_the_command(home: Home) -> None:
    platform = open_platform(home, Settings())
    first_start(platform)
    workspace = json.loads(run("obs", "quota", "default", "--home", home.path, "--json"))
    assert workspace == {"bytes": 0, "objects": 0, "max_bytes": 0, "max_objects": 0}
    apply_default_quota(platform.store, Settings(quota_objects=1))
    shown = json.loads(run("obs", "quota", "default", "--home", home.path, "--json"))
    assert shown["max_objects"] == 1
    run("obs", "quota", "default", "--gb", "2", "--objects", "5", "--home", home.path)
    shown = json.loads(run("obs", "quota", "default", "--objects", "0", "--home", home.path, "--json"))
    assert (shown["max_bytes"], shown["max_objects"]) == (2 << 30, 0)
    assert "2 GB" in run("obs", "quota", "default", "--home", home.path)
    shown = json.loads(run("obs", "quota", "default", "--default", "--home", home.path, "--json"))
    assert (shown["max_bytes"], shown["max_objects"]) == (0, 1)
    run("obs", "quota", "nobody", "--home", home.path, code=1)
    run("obs", "quota", "default", "--default", "--gb", "1", "--home", home.path, code=1)
    platform.store.create_bucket("data", "w9")
    platform.store.put("data", "one", b"")
    with pytest.raises(TooLarge):
        platform.store.put("data", "two", b"")
    platform.close()


def test_the_hourly_round(home: Home) -> None:
    store = filled(home)
    store.set_bucket_document("data", "lifecycle", RULE)
    stop = keep_tidy(store)
    stop.set()
    tidy_store(store)
    assert [info.key for info in store.walk("data")] == ["k"]
    store.close()
    # A store that cannot be used is a line in the log, not the end of the process.
    (home.store / "index.sqlite").unlink()
    tidy_store(store)
