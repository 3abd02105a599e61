"""Preparing a home: all or nothing."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from trainshed.daemon.home_folder import find_holder
from trainshed.daemon.startup import Prepared, prepare, render_banner
from trainshed.model.errors import Conflict, TrainshedError
from trainshed.model.home import Home

PORTS = {"port": 0, "obs_port": 0}


def test_the_first_start_hands_over_a_link_and_a_token(tmp_path: Path) -> None:
    prepared = prepare(tmp_path / "home", PORTS, {})
    saved = json.loads(prepared.home.client.read_bytes())
    assert saved["url"] == prepared.url and saved["obs_url"] == prepared.obs_url and saved["token"]
    assert prepared.login_link.startswith(f"{prepared.url}/login?code=")
    with pytest.raises(Conflict, match=f"already running, pid {os.getpid()}"):
        prepare(tmp_path / "home", PORTS, {})
    prepared.lock.release()
    again = prepare(tmp_path / "home", PORTS, {})
    again.lock.release()
    assert again.login_link == ""
    assert json.loads(again.home.client.read_bytes())["token"] == saved["token"]


def test_a_token_that_does_not_open_the_platform_is_replaced(tmp_path: Path) -> None:
    first = prepare(tmp_path / "home", PORTS, {})
    first.lock.release()
    first.home.client.write_text(json.dumps({"url": "http://elsewhere:1", "token": "ts_stranger"}))
    second = prepare(tmp_path / "home", PORTS, {})
    second.lock.release()
    assert json.loads(second.home.client.read_bytes())["token"] not in ("", "ts_stranger")
    assert second.login_link


def test_the_banner_tells_what_a_person_needs(tmp_path: Path) -> None:
    prepared = prepare(tmp_path / "home", {**PORTS, "rehearse": "ascend:8"}, {})
    prepared.lock.release()
    banner = render_banner(prepared, detached=True)
    for part in (
        prepared.url,
        prepared.obs_url,
        prepared.login_link,
        str(tmp_path / "home"),
        "ascend:8",
        "down",
    ):
        assert part in banner
    assert "Ctrl-C" in render_banner(prepared, detached=False)
    assert isinstance(prepared, Prepared)


def test_a_first_start_that_fails_leaves_nothing(tmp_path: Path) -> None:
    # No file may grow beyond this: the same as a disk that fills up while the database is made.
    code = f"""
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
from pathlib import Path
from trainshed.daemon.startup import prepare
import trainshed.services.platform, trainshed.services.setup
resource.setrlimit(resource.RLIMIT_FSIZE, (16384, {resource.getrlimit(resource.RLIMIT_FSIZE)[1]}))
from trainshed.model.errors import TrainshedError
try:
    prepare(Path({str(tmp_path / "home")!r}), {PORTS!r}, {{}})
except TrainshedError as fault:
    print("refused:", fault)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.startswith("refused:"), done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == []
    prepare(tmp_path / "home", PORTS, {}).lock.release()


def test_a_database_that_cannot_be_reached_is_one_clear_error(tmp_path: Path) -> None:
    environment = {"TRAINSHED_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/nothing"}
    with pytest.raises(TrainshedError, match="atabase"):
        prepare(tmp_path / "home", PORTS, environment)
    assert find_holder(Home(tmp_path / "home")) is None
    prepare(tmp_path / "home", PORTS, {}).lock.release()
