"""The stand-in for Horovod's launcher: its options, its ranks, and how it ends."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from trainshed.runner.shims import shims_folder

PROGRAM = shims_folder() / "bin" / "horovodrun"


def run(*arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [str(PROGRAM), *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def hosts(tmp_path: Path) -> str:
    path = tmp_path / "hosts"
    path.write_text("# the nodes\nlocalhost slots=3\n\n")
    return str(path)


def test_every_slot_gets_its_ranks(hosts: str) -> None:
    shown = "echo $HOROVOD_RANK/$HOROVOD_SIZE $HOROVOD_LOCAL_RANK $OMPI_COMM_WORLD_RANK $RANK of $WORLD_SIZE"
    code, output = run(
        "-np", "3", "-hostfile", hosts, "-p", "22", "--network-interface", "ib0", "bash", "-c", shown
    )
    assert code == 0
    assert sorted(output.splitlines()) == [
        f"[1,{rank}]<stdout>:{rank}/3 {rank} {rank} {rank} of 3" for rank in range(3)
    ]


@pytest.mark.parametrize("option", ["-H=localhost:2", "--hosts=localhost:2"])
def test_hosts_can_be_named_in_place(option: str) -> None:
    name, _, value = option.partition("=")
    code, output = run("-np", "2", name, value, "bash", "-c", "echo $HOROVOD_LOCAL_SIZE")
    assert code == 0 and output.count(":2\n") == 2


def test_the_first_failure_ends_the_others(hosts: str, tmp_path: Path) -> None:
    script = (
        f"cd {tmp_path}; if [ $RANK = 1 ]; then until [ -e 0 ] && [ -e 2 ]; do sleep 0.05; done; exit 7; fi; "
        "touch $RANK; sleep 60"
    )
    code, output = run("-np", "3", "--hostfile", hosts, "bash", "-c", script)
    assert code == 7 and "rank 1 on localhost ended with 7" in output


def test_mistakes_are_told(hosts: str, tmp_path: Path) -> None:
    for arguments, words in (
        (("-np", "4", "-hostfile", hosts, "true"), "4 processes were asked for and the hosts have 3 slots"),
        (("-np", "none", "true"), "-np must be a number"),
        (("-np", "1"), "no command given"),
        (("--nonsense", "true"), "unknown option --nonsense"),
        (("-np", "1", "-p", "ssh", "true"), "-p must be a port"),
        (("-np", "1", "-hostfile", str(tmp_path / "none"), "true"), "cannot be read"),
    ):
        code, output = run(*arguments)
        assert code == 2 and words in output and "usage: horovodrun" in output
