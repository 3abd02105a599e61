"""What a node keeps for later jobs is removed by age and by size, and never under a running job."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from pathlib import Path

import pytest

from trainshed.model.errors import HostUnfit
from trainshed.runner.remote.node_caches import has_environment, hold_environment, is_tidy, tidy_node
from trainshed.runner.remote.node_facts import address_in, device_addresses, machine_id, own_addresses
from trainshed.runner.remote.node_folder import forget_old_runs, keep_runner, require_shared_folder

OLD, NEW = "a" * 64, "b" * 64
LIMITS = {
    "input_seconds": 3600.0,
    "input_bytes": 1e9,
    "environment_seconds": 86400.0,
    "environment_bytes": 1e9,
}


def make_environment(root: Path, digest: str, size: int = 4096) -> Path:
    folder = root / "environments" / digest
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").write_bytes(bytes(size))
    return folder


def use(root: Path, digest: str, ago: float) -> None:
    os.close(hold_environment(root, digest))
    moment = time.time() - ago
    os.utime(root / "environments" / "locks" / f"{digest}.used", (moment, moment))


def test_old_environments_go_and_used_ones_stay(tmp_path: Path) -> None:
    old, new = make_environment(tmp_path, OLD), make_environment(tmp_path, NEW)
    use(tmp_path, OLD, 2 * 86400)
    use(tmp_path, NEW, 60)
    assert tidy_node(tmp_path, LIMITS) == 1
    assert not old.exists() and new.exists()
    assert not list((tmp_path / "environments").glob("removed-*"))


def test_what_is_here_and_whole_need_not_be_built(tmp_path: Path) -> None:
    marker = make_environment(tmp_path, OLD) / ".trainshed.json"
    assert not has_environment(tmp_path, OLD)
    marker.write_text(json.dumps({"executable": sys.executable}))
    assert has_environment(tmp_path, OLD) and not has_environment(tmp_path, NEW)
    marker.write_text(json.dumps({"executable": str(tmp_path / "gone")}))
    assert not has_environment(tmp_path, OLD) and not has_environment(tmp_path, "../x")


def test_a_machine_is_tidied_once_an_hour(tmp_path: Path) -> None:
    assert not is_tidy(tmp_path)
    tidy_node(tmp_path, LIMITS)
    assert is_tidy(tmp_path) and not is_tidy(tmp_path, every=0)


def test_a_runner_is_not_removed_under_its_job(tmp_path: Path) -> None:
    runner = tmp_path / "runner-0123"
    (runner / "trainshed").mkdir(parents=True)
    held = keep_runner(str(runner / "trainshed" / "main.py"))
    moment = time.time() - 40 * 86400
    os.utime(runner, (moment, moment))
    forget_old_runs(tmp_path)
    assert runner.exists()
    os.close(held)
    forget_old_runs(tmp_path)
    assert not runner.exists()
    assert keep_runner(__file__) == -1


def test_an_environment_of_a_running_job_stays_however_old(tmp_path: Path) -> None:
    folder = make_environment(tmp_path, OLD)
    held = hold_environment(tmp_path, OLD)
    moment = time.time() - 90 * 86400
    os.utime(tmp_path / "environments" / "locks" / f"{OLD}.used", (moment, moment))
    assert tidy_node(tmp_path, {**LIMITS, "environment_bytes": 0}) == 0
    assert folder.exists()
    os.close(held)
    assert tidy_node(tmp_path, {**LIMITS, "environment_bytes": 0}, every=0) == 1
    assert not folder.exists()


def test_the_least_used_go_first_when_there_is_too_much(tmp_path: Path) -> None:
    first, second = make_environment(tmp_path, OLD, 1 << 20), make_environment(tmp_path, NEW, 1 << 20)
    use(tmp_path, OLD, 600)
    use(tmp_path, NEW, 60)
    assert tidy_node(tmp_path, {**LIMITS, "environment_bytes": float(3 << 19)}) == 1
    assert second.exists() and not first.exists()


def test_a_node_is_tidied_once_an_hour_and_by_one_at_a_time(tmp_path: Path) -> None:
    assert tidy_node(tmp_path, LIMITS) == 0
    folder = make_environment(tmp_path, OLD)
    use(tmp_path, OLD, 2 * 86400)
    assert tidy_node(tmp_path, LIMITS) == 0
    assert folder.exists()
    assert tidy_node(tmp_path, LIMITS, every=0) == 1


def test_nothing_is_held_where_an_environment_has_no_name(tmp_path: Path) -> None:
    assert hold_environment(tmp_path, "") == hold_environment(tmp_path, "../../x") == -1
    assert not list(tmp_path.iterdir())


def test_old_packages_for_ssh_go(tmp_path: Path) -> None:
    old, new = tmp_path / "ssh-packages-1", tmp_path / "ssh-packages-2"
    for folder in (old, new):
        folder.mkdir()
    os.utime(old, (0, 0))
    assert tidy_node(tmp_path, LIMITS) == 1
    assert new.exists() and not old.exists()


def test_the_addresses_of_devices_are_the_machines_own(tmp_path: Path) -> None:
    for path in ("dev/davinci0", "dev/davinci1", "etc/hccn.conf"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).touch()
    (tmp_path / "etc/hccn.conf").write_text("address_0=10.1.0.1\naddress_1=10.1.0.2\n")
    assert device_addresses(tmp_path) == {0: "10.1.0.1", 1: "10.1.0.2"}
    assert device_addresses(tmp_path / "nothing") == {}


def test_a_machine_knows_what_its_nodes_have_in_common(tmp_path: Path) -> None:
    assert machine_id() == machine_id() and re.fullmatch(r"[0-9a-f]{32}-[0-9]+", machine_id())
    assert machine_id(tmp_path) == ""


def test_a_machine_meets_others_on_the_network_that_the_pool_names(tmp_path: Path) -> None:
    assert "127.0.0.1" in own_addresses()
    (tmp_path / "fib_trie").write_text(
        "Main:\n  +-- 10.1.0.0/16 2 0 2\n     |-- 10.1.0.7\n        /32 host LOCAL\n"
        "     |-- 10.1.255.255\n        /32 link BROADCAST\n     |-- 192.168.0.7\n        /32 host LOCAL\n"
    )
    (tmp_path / "if_inet6").write_text("fd000000000000000000000000000007 02 40 00 80 ib0\n")
    assert own_addresses(tmp_path) == ["10.1.0.7", "192.168.0.7", "fd00::7"]
    assert address_in("", tmp_path) == ""
    assert address_in("192.168.0.0/24", tmp_path) == "192.168.0.7"
    assert address_in("fd00::/64", tmp_path) == "fd00::7"
    with pytest.raises(HostUnfit, match="no address in 172"):
        address_in("172.16.0.0/12", tmp_path)


def test_a_machine_without_the_shared_folder_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o2770)
    assert require_shared_folder(tmp_path) == 0o2770
    with pytest.raises(HostUnfit, match="is not on this machine"):
        require_shared_folder(tmp_path / "gone")
