"""Homes that can and cannot be used."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from trainshed.daemon.home_folder import (
    HOME_FORMAT,
    HomeLock,
    load_settings,
    make_home,
    read_marker,
    settings_environment,
    write_marker,
)
from trainshed.model.errors import Conflict, HostUnfit, InvalidInput
from trainshed.model.home import Home


def test_a_new_home_is_private_and_marked(tmp_path: Path) -> None:
    home = make_home(tmp_path / "a" / "b")
    write_marker(home)
    assert home.path.stat().st_mode & 0o777 == 0o700
    assert read_marker(home)["format"] == HOME_FORMAT
    assert make_home(home.path) == home


def test_a_folder_with_other_files_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(InvalidInput, match=r"thesis\.tex"):
        make_home(tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_file_is_no_home(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("x")
    with pytest.raises(InvalidInput, match="not a folder"):
        make_home(tmp_path / "home")
    with pytest.raises(HostUnfit):
        make_home(tmp_path / "home" / "below")


def test_a_home_of_a_newer_version_is_refused(home: Home) -> None:
    home.marker.write_text(json.dumps({"format": HOME_FORMAT + 1, "version": "9.9"}))
    with pytest.raises(HostUnfit, match=r"made by Trainshed 9\.9, which is newer"):
        make_home(home.path)
    assert not home.run.exists()


def test_a_damaged_marker_is_refused(home: Home) -> None:
    home.marker.write_text("{")
    with pytest.raises(HostUnfit, match="cannot be read"):
        make_home(home.path)


def test_a_home_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    # /proc refuses every user, root as well.
    with pytest.raises(HostUnfit, match="home"):
        make_home(Path("/proc/trainshed-home"))


def test_only_one_may_hold_the_lock(home: Home) -> None:
    make_home(home.path)
    lock = HomeLock.take(home)
    with pytest.raises(Conflict, match=f"already running, pid {os.getpid()}"):
        HomeLock.take(home)
    lock.release()
    HomeLock.take(home).release()


def test_settings_come_from_file_environment_and_command_line(home: Home) -> None:
    home.settings.write_text('port = 1000\nobs_port = 1001\nhost = "0.0.0.0"\n')
    settings = load_settings(home, {"TRAINSHED_PORT": "2000"}, {"obs_port": 3001, "host": None})
    assert (settings.port, settings.obs_port, settings.host) == (2000, 3001, "0.0.0.0")
    assert load_settings(home, settings_environment(settings), {}) == settings


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("port = ", "settings.toml cannot be read"),
        ("prot = 1", "Did you mean 'port'"),
        ("port = 70000", "not a port"),
    ],
)
def test_bad_settings_are_refused(home: Home, content: str, message: str) -> None:
    home.settings.write_text(content)
    with pytest.raises(InvalidInput) as caught:
        load_settings(home, {}, {})
    assert message in str(caught.value)
