"""The program that starts a process of a preset engine, run by bash as in a job."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainshed.runner.shims import shims_folder

START = shims_folder() / "bin" / "start-rank"
SHOW = 'echo "GLOG_v=$GLOG_v PLAIN=[$PLAIN] GONE=${GONE-unset} TABLE=$RANK_TABLE_FILE in $PWD: $*"'


class Node:
    """A code folder, and processes of one node that are started for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.code = folder / "user-job-dir" / "demo"
        self.code.mkdir(parents=True)
        (self.code / "train.sh").write_text(SHOW)
        self.id = uuid.uuid4().hex
        self.notes = Path(f"/dev/shm/trainshed-start-{self.id}-0-0")

    def start(self, local: int, **variables: str) -> subprocess.Popen[str]:
        command = ["bash", str(START), "--local-rank", str(local), "--job-dir", str(self.code.parent)]
        command += ["--boot-file", f"{self.code}/train.sh", "--app-url", "s3://bucket/demo/", "--"]
        return subprocess.Popen(
            [*command, "bash", f"{self.code}/train.sh", "--data_url=a b", "c"],
            cwd=self.folder,
            env={
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                "TRAINSHED_JOB_ID": self.id,
                "GONE": "here",
                **variables,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, local: int = 0, **variables: str) -> str:
        output, _ = self.start(local, **variables).communicate(timeout=120)
        return output


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """A node whose processes share what the pre-start script set."""
    made = Node(tmp_path)
    yield made
    for file in made.notes.glob("*"):
        file.unlink()
    if made.notes.exists():
        made.notes.rmdir()


def test_without_a_pre_start_script_the_lines_come_in_order_and_the_arguments_arrive(node: Node) -> None:
    lines = node.run().splitlines()
    words = [line.removeprefix("[Modelarts Service Log]").partition(":")[0] for line in lines[:6]]
    assert words == ["user", "pwd", "app_url", "boot_file", "log_url", "command"]
    assert all(line.startswith("[Modelarts Service Log]") for line in lines[:-1])
    assert lines[-1].endswith(f"in {node.folder}: --data_url=a b c")
    # Other processes of the node say nothing of it.
    assert len(node.run(local=1).splitlines()) == 1
    assert not node.notes.exists()


def test_what_the_script_exports_reaches_every_process_of_the_node(node: Node) -> None:
    (node.code / "ma-pre-start.sh").write_text(
        'echo "me $0 in $PWD"\nsleep 0.3\nexport GLOG_v=3\ndeclare -x PLAIN="two\nlines"\nunset GONE\nNOT_EXPORTED=1\n'
    )
    waiting = [node.start(local, GLOG_v="1") for local in (1, 2)]
    first = node.run(GLOG_v="1")
    others = [process.communicate(timeout=120)[0] for process in waiting]
    wanted = f"GLOG_v=3 PLAIN=[two\nlines] GONE=unset TABLE= in {node.folder}: --data_url=a b c\n"
    assert first.endswith(wanted)
    assert others == [wanted, wanted]
    assert f"me {node.code}/ma-pre-start.sh in {node.code.parent}" in first
    # Values of variables may be secrets: what is no longer needed is not kept.
    assert [path.name for path in node.notes.iterdir()] == ["changes"]


@pytest.mark.parametrize("end", ["exit 3", "set -e; false; echo never", "no-such-command"])
def test_a_script_that_fails_is_a_warning_and_the_training_starts(node: Node, end: str) -> None:
    (node.code / "ma-pre-start.sh").write_text(f"export GLOG_v=2\n{end}\n")
    output = node.run()
    assert "[Modelarts Service Log]WARNING: ma-pre-start.sh ended with" in output
    assert "GLOG_v=2" in output.splitlines()[-1]
    assert "never" not in output


def test_a_script_that_becomes_another_program_loses_its_variables_and_says_so(node: Node) -> None:
    (node.code / "ma-pre-start.sh").write_text("export GLOG_v=2\nexec true\n")
    output = node.run(GLOG_v="1")
    assert "its variables are lost" in output
    assert "GLOG_v=1" in output.splitlines()[-1]


def test_a_python_script_does_it_too(node: Node) -> None:
    (node.code / "ma-pre-start.py").write_text(
        "import os, sys\nprint('argv', sys.argv)\nos.environ['GLOG_v'] = '3'\ndel os.environ['GONE']\nsys.exit(5)\n"
    )
    output = node.run()
    assert "WARNING: ma-pre-start.py ended with 5" in output
    assert output.splitlines()[-1].startswith("GLOG_v=3 PLAIN=[] GONE=unset")


def test_pip_without_an_index_says_what_to_do(node: Node, tmp_path: Path) -> None:
    (node.code / "ma-pre-start.sh").write_text("pip install there-is-no-such-package\nexport GLOG_v=2\n")
    output = node.run(PIP_NO_INDEX="1", PIP_CONFIG_FILE="/dev/null", PIP_FIND_LINKS="")
    assert "this job reaches no package index" in output
    assert "GLOG_v=2" in output.splitlines()[-1]


def test_the_program_is_executable() -> None:
    for program in (shims_folder() / "bin").iterdir():
        if program.is_file():
            assert os.access(program, os.X_OK), program


def test_the_exit_code_is_that_of_the_training(node: Node) -> None:
    (node.code / "train.sh").write_text("kill -9 $$")
    process = node.start(0)
    process.communicate(timeout=120)
    assert process.returncode == -9
