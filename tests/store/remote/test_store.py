"""A runner's store over HTTP: a real store process, a real attempt, and what its token opens and does not open."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import store_server
from trainshed.db.attempts import AttemptRow, change_attempt, insert_attempt
from trainshed.db.engine import begin, read
from trainshed.db.jobs import JobRow, insert_job
from trainshed.db.users import user_by_name
from trainshed.db.workspaces import list_workspaces
from trainshed.model.errors import Conflict, NotAuthenticated, NotFound, TrainshedError, Unavailable
from trainshed.model.phase import Phase
from trainshed.model.settings import Settings
from trainshed.runner.checkpoints import latest_attempt
from trainshed.runner.log_archive import LogArchive
from trainshed.services.attempt_tokens import attempt_token
from trainshed.services.platform import Platform, open_platform
from trainshed.store import open_store
from trainshed.store.object_store import Condition, ObjectStore
from trainshed.store.outage import Patience
from trainshed.store.staged_tree import TreeCache, measure
from trainshed.store.transfer import download_tree, upload_tree

server = store_server.server


@dataclass
class Site:
    """The platform behind the store process, and an attempt of a job."""

    platform: Platform
    server: Any
    folder: Path
    job: JobRow
    attempt: AttemptRow
    opened: list[ObjectStore] = field(default_factory=list)

    def open(self, token: str | None = None, patience: Patience | None = None) -> ObjectStore:
        """The store, as a runner with this token sees it."""
        file = self.folder / f"token-{uuid.uuid4().hex}"
        file.write_text(attempt_token(self.platform, self.job.id, 1) if token is None else token)
        self.opened.append(open_store(f"{self.server.url}?token={file}", patience))
        return self.opened[-1]


def add_job(platform: Platform, name: str = "dev") -> tuple[JobRow, AttemptRow]:
    """A job that runs, and its first attempt."""
    with begin(platform.engine) as connection:
        user = user_by_name(connection, name)
        assert user is not None
        workspace = list_workspaces(connection)[0]
        job_id = str(uuid.uuid4())
        job = JobRow(
            job_id, workspace.id, f"job-{job_id[:8]}", user.id, Phase.RUNNING, {}, "cpu.1", 1, time.time(),
            attempt=1, code_bucket=".code", code_prefix=f"{job_id}/",
        )  # fmt: skip
        attempt = AttemptRow(job_id, 1, "slurm", [], "running", time.time())
        insert_job(connection, job)
        insert_attempt(connection, attempt)
    platform.store.put(".code", f"{job_id}/train.py", b"print(1)")
    return job, attempt


@pytest.fixture
def site(server: Any, tmp_path: Path) -> Iterator[Site]:
    platform = open_platform(server.home, Settings())
    try:
        with read(platform.engine) as connection:
            workspace = list_workspaces(connection)[0].id
        platform.store.ensure_bucket("data", workspace)
        site = Site(platform, server, tmp_path, *add_job(platform))
        yield site
        for store in site.opened:
            store.close()
    finally:
        platform.close()


def test_objects_come_and_go(site: Site) -> None:
    store = site.open()
    info = store.put("data", "a/b c+d%.txt", b"hello", content_type="text/plain", metadata={"mode": "755"})
    assert (info.size, info.metadata) == (5, {"mode": "755"})
    assert store.info("data", "a/b c+d%.txt") == info
    with store.open("data", "a/b c+d%.txt", 1, 3) as file:
        assert file.read() == b"ell"
    store.put_folder("data", "a/empty")
    page = store.list("data", "a/", delimiter="/")
    assert [item.key for item in page.objects] == ["a/b c+d%.txt", "a/empty/"][: len(page.objects)]
    assert store.copy("data", "a/b c+d%.txt", "data", "a/2").size == 5
    assert store.copy_prefix("data", "a/", "data", "z/") == 3
    assert store.delete("data", "a/2") and not store.delete("data", "a/2")
    assert store.delete_prefix("data", "z/") == 3
    with pytest.raises(NotFound):
        store.info("data", "a/2")
    with pytest.raises(NotFound):
        store.bucket("nobodys")


def test_a_large_object_travels_in_parts(site: Site, tmp_path: Path) -> None:
    store = site.open()
    data = b"".join(bytes([number % 251]) * 1000 for number in range(40_000))
    source = tmp_path / "source"
    source.mkdir()
    (source / "large.bin").write_bytes(data)
    (source / "run.sh").write_bytes(b"#!/bin/sh\n")
    (source / "run.sh").chmod(0o755)
    upload_tree(store, source, "data", "tree/")
    assert len(store.piece_sizes("data", "tree/large.bin")) > 1
    download_tree(store, "data", "tree/", tmp_path / "target")
    assert (tmp_path / "target/large.bin").read_bytes() == data
    assert (tmp_path / "target/run.sh").stat().st_mode & 0o100
    again = upload_tree(store, source, "data", "tree/", only_changed=True)
    assert (again.files, again.unchanged) == (0, 2)
    tree = TreeCache(tmp_path / "cache").obtain(store, "data", "tree/")
    assert tree is not None and (tree.folder / "large.bin").read_bytes() == data
    assert tree.facts.files == measure(store, "data", "tree/").files == 2
    tree.close()


def test_conditions_and_appends(site: Site) -> None:
    store = site.open()
    store.delete("data", "once")
    store.put("data", "once", b"1", condition=Condition(if_none_match="*"))
    with pytest.raises(TrainshedError):
        store.put("data", "once", b"2", condition=Condition(if_none_match="*"))
    for position, piece in ((0, b"one"), (3, b"two")):
        with store.append("data", "grows", position) as upload:
            upload.write(piece)
            upload.commit()
    assert store.info("data", "grows").is_appendable
    with store.open("data", "grows") as file:
        assert file.read() == b"onetwo"
    with pytest.raises(Conflict), store.append("data", "grows", 3) as upload:
        upload.write(b"xxx")
        upload.commit()
    store.delete("data", "grows")


def test_a_runner_reads_its_code_and_keeps_its_archive_and_nothing_else(site: Site) -> None:
    store = site.open()
    other, _ = add_job(site.platform)
    job = site.job.id
    with store.open(".code", f"{job}/train.py") as file:
        assert file.read() == b"print(1)"
    spool = site.folder / "spool"
    spool.write_bytes(b"line\n" * 1000)
    LogArchive(store, f"{job}/attempt-1/node-0/", 1000, ["secret"]).ship("rank-0", spool, final=True)
    assert sum(item.size for item in store.walk(".jobs", f"{job}/attempt-1/")) == 5000
    (site.folder / "checkpoints").mkdir()
    (site.folder / "checkpoints/last.ckpt").write_bytes(b"weights")
    upload_tree(store, site.folder / "checkpoints", ".jobs", f"{job}/checkpoints/attempt-1/node-0/")
    store.put(".jobs", f"{job}/checkpoints/attempt-1/node-0.complete", b"")
    assert latest_attempt(store, job, 1, 2) == 1
    refused: list[Callable[[], object]] = [
        lambda: store.put(".code", f"{job}/train.py", b"other"),
        lambda: store.info(".code", f"{other.id}/train.py"),
        lambda: store.list(".code"),
        lambda: store.list(".jobs"),
        lambda: store.list(".jobs", job[:-1]),
        lambda: store.list(".jobs", f"{other.id}/"),
        lambda: store.put(".jobs", f"{other.id}/attempt-1/node-0/rank-0/0", b"forged"),
        lambda: store.delete_prefix(".jobs", ""),
        lambda: store.copy(".code", f"{other.id}/train.py", "data", "stolen"),
        lambda: store.copy_prefix(".jobs", f"{other.id}/", "data", "stolen/"),
        lambda: store.copy("data", "x", ".jobs", f"{other.id}/x"),
    ]
    for ask in refused:
        with pytest.raises(NotFound):
            ask()


def test_only_the_current_attempts_token_opens_the_store(site: Site) -> None:
    good = attempt_token(site.platform, site.job.id, 1)
    other, _ = add_job(site.platform)
    code = good.rpartition(".")[2]
    for wrong in (
        "tsr_",
        good[:-1],
        good + "x",
        f"tsr_{other.id}.1.{code}",
        f"tsr_{site.job.id}.2.{code}",
        attempt_token(site.platform, site.job.id, 2),
    ):
        with pytest.raises(NotAuthenticated):
            site.open(wrong).bucket("data")
    store = site.open()
    assert store.bucket("data").name == "data"
    # Of the platform's own buckets nothing is told, and nothing is asked.
    assert store.bucket(".jobs").workspace_id == ""
    with begin(site.platform.engine) as connection:
        change_attempt(connection, site.attempt, state="ended")
    with pytest.raises(NotAuthenticated, match="is over"):
        store.bucket("data")


def test_another_workspaces_bucket_does_not_exist(site: Site) -> None:
    with read(site.platform.engine) as connection:
        known = [item.id for item in list_workspaces(connection)]
    stranger = next(item for item in known if item != site.job.workspace_id)
    site.platform.store.ensure_bucket("theirs", stranger)
    with pytest.raises(NotFound):
        site.open().bucket("theirs")


def test_a_store_that_is_away_is_waited_for(site: Site) -> None:
    said: list[str] = []
    store = site.open(patience=Patience(60, say=said.append))
    store.put("data", "before", b"1")
    site.server.process.kill()
    site.server.process.wait()
    with pytest.raises(Unavailable):
        site.open().bucket("data")
    back = threading.Timer(1.0, site.server.restart)
    back.start()
    try:
        assert store.put("data", "after", b"22").size == 2
    finally:
        back.join()
    assert said and "cannot be reached" in said[0]
