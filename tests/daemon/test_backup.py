"""Backup and restore with a real database and a real store."""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import resource
import sqlite3
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainshed.daemon.backup import write_backup
from trainshed.daemon.home_folder import HomeLock, make_home, write_marker
from trainshed.daemon.restore import restore_backup
from trainshed.model.errors import Conflict, HostUnfit, InvalidInput, NotFound, TrainshedError
from trainshed.model.home import Home
from trainshed.model.settings import Settings
from trainshed.services.platform import Platform, open_platform
from trainshed.services.setup import first_start


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[Platform]:
    home = make_home(tmp_path / "home")
    write_marker(home)
    home.settings.write_text("token_days = 7\n")
    platform = open_platform(home, Settings())
    first_start(platform)
    platform.store.create_bucket("data", "w1")
    for number in range(20):
        platform.store.put("data", f"file-{number}", os.urandom(1000 + number))
    platform.store.put("data", "empty/", b"")
    yield platform
    platform.close()


def content_of(home: Home) -> dict[str, str]:
    """Every object of a home's store with its checksum."""
    platform = open_platform(home, Settings())
    try:
        found = {}
        for info in platform.store.walk("data"):
            with platform.store.open("data", info.key) as file:
                found[info.key] = hashlib.sha256(file.read()).hexdigest()
        return found
    finally:
        platform.close()


@pytest.mark.parametrize("name", ["backup.tar", "backup.tar.gz"])
def test_what_was_saved_comes_back(platform: Platform, tmp_path: Path, name: str) -> None:
    summary = write_backup(platform.home, tmp_path / name)
    assert summary.objects == 20
    assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    restored = Home(tmp_path / "restored")
    outcome = restore_backup(tmp_path / name, restored)
    assert outcome.objects == 20 and outcome.moved_to is None
    assert content_of(restored) == content_of(platform.home)
    assert len(content_of(restored)) == 21
    assert restored.settings.read_text() == "token_days = 7\n"
    assert restored.master_key.read_bytes() == platform.home.master_key.read_bytes()
    assert restored.master_key.stat().st_mode & 0o777 == 0o600
    assert restored.path.stat().st_mode & 0o777 == 0o700
    users = sqlite3.connect(restored.path / "trainshed.sqlite")
    assert users.execute("SELECT name FROM users").fetchall() == [("admin",)]
    users.close()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == sorted([name, "home", "restored"])


def test_a_backup_of_a_store_that_changes_holds_every_blob_its_index_names(
    platform: Platform, tmp_path: Path
) -> None:
    stop = threading.Event()

    def churn() -> None:
        number = 0
        while not stop.is_set():
            platform.store.put("data", f"file-{number % 20}", os.urandom(2000))
            platform.store.delete("data", f"file-{(number + 7) % 20}")
            number += 1

    worker = threading.Thread(target=churn)
    worker.start()
    try:
        for number in range(5):
            write_backup(platform.home, tmp_path / f"{number}.tar")
    finally:
        stop.set()
        worker.join()
    for number in range(5):
        restored = Home(tmp_path / f"restored-{number}")
        restore_backup(tmp_path / f"{number}.tar", restored)
        # Reading every object fails when its blob is not there.
        content_of(restored)
    assert not (platform.home.path / "backup-in-progress").exists()


def test_a_file_that_exists_is_not_replaced_by_accident(platform: Platform, tmp_path: Path) -> None:
    target = tmp_path / "b.tar"
    target.write_text("precious")
    with pytest.raises(Conflict):
        write_backup(platform.home, target)
    assert target.read_text() == "precious"
    write_backup(platform.home, target, replace=True)
    assert tarfile.is_tarfile(target)
    with pytest.raises(NotFound):
        write_backup(platform.home, tmp_path / "nowhere" / "b.tar")
    with pytest.raises(NotFound):
        write_backup(Home(tmp_path / "nothing"), tmp_path / "c.tar")


def test_a_disk_that_takes_no_more_leaves_nothing_behind(platform: Platform, tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    resource.setrlimit(resource.RLIMIT_FSIZE, (20000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    try:
        with pytest.raises(HostUnfit, match="could not be"):
            write_backup(platform.home, tmp_path / "target" / "b.tar")
    finally:
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert list((tmp_path / "target").iterdir()) == []
    assert not (platform.home.path / "backup-in-progress").exists()


def damage(archive: Path, how: str) -> None:
    data = bytearray(archive.read_bytes())
    if how == "cut":
        archive.write_bytes(data[: len(data) // 2])
    elif how == "tail":
        archive.write_bytes(data[:-12000])
    elif how == "bit":
        # In the middle of a member's content: the tar itself stays readable.
        data[len(data) // 2] ^= 1
        archive.write_bytes(data)
    elif how == "empty":
        archive.write_bytes(b"")
    elif how == "text":
        archive.write_text("this is no archive\n" * 1000)


@pytest.mark.parametrize("how", ["cut", "tail", "bit", "empty", "text"])
@pytest.mark.parametrize("name", ["b.tar", "b.tar.gz"])
def test_a_damaged_archive_is_refused_and_nothing_is_touched(
    platform: Platform, tmp_path: Path, how: str, name: str
) -> None:
    write_backup(platform.home, tmp_path / name)
    damage(tmp_path / name, how)
    before = content_of(platform.home)
    platform.close()
    with pytest.raises(InvalidInput) as caught:
        restore_backup(tmp_path / name, platform.home, force=True)
    assert caught.value.code == "damaged_backup"
    assert content_of(platform.home) == before
    assert sorted(entry.name for entry in tmp_path.iterdir()) == sorted([name, "home"])


@pytest.mark.parametrize(
    "member", ["../escape", "/etc/escape", "store/blobs/../../escape", "run/up.lock", "link"]
)
def test_an_archive_cannot_place_files_elsewhere(tmp_path: Path, member: str) -> None:
    archive = tmp_path / "evil.tar"
    with tarfile.open(archive, "w") as tar:
        entry = tarfile.TarInfo("home.json" if member == "link" else member)
        if member == "link":
            entry.type = tarfile.SYMTYPE
            entry.linkname = "/etc/passwd"
        else:
            entry.size = 3
        tar.addfile(entry, io.BytesIO(b"bad"))
    with pytest.raises(InvalidInput, match="does not belong there"):
        restore_backup(archive, Home(tmp_path / "restored"))
    assert [entry.name for entry in tmp_path.iterdir()] == ["evil.tar"]


def test_a_home_in_use_is_not_replaced(platform: Platform, tmp_path: Path) -> None:
    archive = tmp_path / "b.tar"
    write_backup(platform.home, archive)
    with pytest.raises(Conflict, match="is not empty"):
        restore_backup(archive, platform.home)
    lock = HomeLock.take(platform.home)
    with pytest.raises(Conflict, match="is running"):
        restore_backup(archive, platform.home, force=True)
    lock.release()
    runner = platform.home.run_folder("job", 1, 0)
    runner.path.mkdir(parents=True)
    descriptor = os.open(runner.lock, os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.raises(Conflict, match="still work"):
        restore_backup(archive, platform.home, force=True)
    os.close(descriptor)
    before = content_of(platform.home)
    platform.close()
    outcome = restore_backup(archive, platform.home, force=True)
    assert outcome.moved_to is not None
    assert content_of(Home(outcome.moved_to)) == before == content_of(platform.home)


def test_a_missing_archive_is_named(tmp_path: Path) -> None:
    with pytest.raises(TrainshedError, match="There is no file"):
        restore_backup(tmp_path / "nothing.tar", Home(tmp_path / "home"))
    assert list(tmp_path.iterdir()) == []


def test_a_home_with_an_external_store_finds_it_again(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home")
    write_marker(home)
    settings = Settings(store_url="s3://lab/shed", store_access_key="access", store_secret_key="secret")
    opened = open_platform(home, settings)
    first_start(opened)
    opened.close()
    assert write_backup(home, tmp_path / "backup.tar").objects == 0
    restored = Home(tmp_path / "restored")
    restore_backup(tmp_path / "backup.tar", restored)
    assert restored.external_store.read_bytes() == home.external_store.read_bytes()
    assert restored.external_store.stat().st_mode & 0o777 == 0o600 and not restored.store.exists()
