"""The commands of this host, with a real platform."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from trainshed.model.home import Home

pytestmark = pytest.mark.slow


def healthz(url: str) -> int:
    try:
        return httpx.get(f"{url}/healthz", timeout=5).status_code
    except httpx.HTTPError:
        return 0


def test_status_shows_every_part_and_little_memory(platform_up: Any) -> None:
    description = platform_up.cli("status", "--json").json()
    assert description["running"] and description["ready"]
    names = [part["name"] for part in description["processes"]]
    assert names == ["supervisor", "api", "store", "control", "fork-server"]
    assert all(part["pid"] and part["memory_mb"] for part in description["processes"])
    assert description["memory_mb"] < 250, description
    assert description["url"] == platform_up.url
    assert healthz(platform_up.url) == 200 and healthz(platform_up.obs_url) == 200
    words = platform_up.cli("status")
    assert words.exit_code == 0 and "fork-server" in words.stdout


def test_a_second_up_says_who_runs(platform_up: Any) -> None:
    result = platform_up.cli("up", "--detach")
    assert result.exit_code == 1
    assert f"already running, pid {platform_up.pids()['supervisor']}" in result.stderr
    assert healthz(platform_up.url) == 200


def test_the_connection_file_is_private_and_its_token_works(platform_up: Any) -> None:
    assert platform_up.home.client.stat().st_mode & 0o777 == 0o600
    result = platform_up.cli("whoami")
    assert result.exit_code == 0 and "admin" in result.stdout


@pytest.mark.parametrize("part", ["api", "store", "control", "fork-server"])
def test_a_killed_part_comes_back(platform_up: Any, support: Any, part: str) -> None:
    before = platform_up.pids()
    os.kill(before[part], signal.SIGKILL)
    support.wait_until(
        lambda: (
            platform_up.pids()[part] not in (0, before[part]) and platform_up.cli("status").exit_code == 0
        ),
        seconds=120,
        what=f"{part} is up again",
    )
    after = platform_up.pids()
    assert {name for name in before if before[name] != after[name]} == {part}
    assert healthz(platform_up.url) == 200 and healthz(platform_up.obs_url) == 200


def test_backup_of_a_running_platform_starts_elsewhere(
    platform_up: Any, support: Any, tmp_path: Path
) -> None:
    archive = tmp_path / "backup.tar.gz"
    saved = platform_up.cli("backup", archive)
    assert saved.exit_code == 0, saved.output
    restored = support.run_cli("restore", archive, home=tmp_path / "restored")
    assert restored.exit_code == 0, restored.output
    again = support.start_platform(tmp_path / "restored")
    try:
        # The token that the old home gave out opens the new one: it is the same platform.
        assert again.token == platform_up.token
        assert again.cli("whoami").exit_code == 0
    finally:
        support.stop_platform(tmp_path / "restored")


def test_doctor_finds_this_host_fit(platform_up: Any) -> None:
    result = platform_up.cli("doctor", "--json")
    assert result.exit_code == 0, result.output
    assert {"system", "bubblewrap", "disk", "port"} <= {finding["subject"] for finding in result.json()}
    assert "This host is fit." in platform_up.cli("doctor").stdout


def test_a_killed_supervisor_takes_its_children_along_and_up_works_at_once(
    tmp_path: Path, support: Any
) -> None:
    port, obs_port = support.free_port(), support.free_port()
    options = ("--port", str(port), "--obs-port", str(obs_port))
    first = support.start_platform(tmp_path / "home", *options)
    try:
        pids = first.pids()
        os.kill(pids["supervisor"], signal.SIGKILL)
        second = support.start_platform(tmp_path / "home", *options)
        assert not any(support.is_alive(pid) for pid in pids.values())
        assert second.url == first.url and second.token == first.token
        assert second.cli("whoami").exit_code == 0
    finally:
        support.stop_platform(tmp_path / "home")


def test_in_the_foreground_ctrl_c_stops_everything(tmp_path: Path, support: Any) -> None:
    home = Home(tmp_path / "home")
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "trainshed.cli.main",
            "up",
            "--home",
            str(home.path),
            "--port",
            "0",
            "--obs-port",
            "0",
        ],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    try:
        support.wait_until(
            lambda: home.state.exists() and json.loads(home.state.read_bytes())["ready"],
            seconds=120,
            what="ready",
        )
        state = json.loads(home.state.read_bytes())
        assert state["pid"] == process.pid
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait(90)
    assert process.returncode == 0
    assert "Trainshed" in said and str(home.path) in said and "Ctrl-C" in said
    assert re.search(r"/login\?code=\S{20,}", said)
    assert not any(support.is_alive(part["pid"]) for part in state["processes"])
    result = support.run_cli("status", home=home)
    assert result.exit_code == 3 and "does not run" in result.stdout


def test_a_port_in_use_is_one_clear_error_and_nothing_is_made(tmp_path: Path, support: Any) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        result = support.run_cli("up", "--port", port, "--detach", home=tmp_path / "home")
    assert result.exit_code == 1
    assert f"Port {port} of 127.0.0.1 is in use" in result.stderr and "--port" in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda home: home.write_text("x"), "is not a folder"),
        (lambda home: (home.mkdir(), (home / "thesis.tex").touch()), "holds other files"),
        (
            lambda home: (home.mkdir(), (home / "home.json").write_text('{"format": 99, "version": "9.0"}')),
            "newer",
        ),
        (lambda home: (home.mkdir(), (home / "settings.toml").write_text("prot = 1")), "Did you mean 'port'"),
        (lambda home: (home.mkdir(), (home / "settings.toml").write_text("port = = 1")), "settings.toml"),
        (lambda home: (home.mkdir(), (home / "settings.toml").write_text('rehearse = "x:1"')), "rehearsal"),
    ],
)
def test_a_home_that_cannot_be_used_is_one_clear_error(
    tmp_path: Path, support: Any, prepare: Any, message: str
) -> None:
    home = tmp_path / "home"
    prepare(home)
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    result = support.run_cli("up", "--detach", "--port", "0", "--obs-port", "0", home=home)
    assert result.exit_code == 1
    assert message in result.stderr and "Traceback" not in result.stderr
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before


def test_down_without_a_platform_is_no_fault(tmp_path: Path, support: Any) -> None:
    result = support.run_cli("down", home=tmp_path / "home")
    assert result.exit_code == 0 and "No platform runs" in result.stdout
    assert not (tmp_path / "home").exists()


def test_backup_and_restore_explain_what_they_cannot_do(tmp_path: Path, support: Any) -> None:
    result = support.run_cli("backup", tmp_path / "b.tar", home=tmp_path / "home")
    assert result.exit_code == 1 and "no home of a platform" in result.stderr
    (tmp_path / "b.tar").write_text("junk")
    result = support.run_cli("restore", tmp_path / "b.tar", home=tmp_path / "home")
    assert result.exit_code == 1 and "damaged" in result.stderr
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("command", ["up", "down", "status", "doctor"])
def test_another_system_is_told_what_works_there(command: str) -> None:
    code = f"import sys; sys.modules['fcntl'] = None; sys.platform = 'darwin'; sys.argv = ['trainshed', {command!r}]"
    code += "\nfrom trainshed.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1
    assert "Linux only" in done.stderr and "trainshed login URL" in done.stderr
