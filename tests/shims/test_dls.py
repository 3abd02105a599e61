"""The functions of utils.sh and the start script of custom images, run by bash."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainshed.runner.shims import shims_folder

DLS = shims_folder() / "dls"


def bash(script: str, folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", f"source {DLS}/utils.sh\n{script}", "script", *arguments],
        cwd=folder,
        env={"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home folder as a job of modelarts-v1 has it."""
    folder = tmp_path / "work"
    (folder / "user-job-dir" / "demo").mkdir(parents=True)
    (folder / "run_train.sh").write_text(f"source {DLS}/run_train.sh\n")
    (folder / "utils.sh").write_text(f"source {DLS}/utils.sh\n")
    (folder / "modelarts-downloader.py").write_text(
        f'import runpy\nrunpy.run_path("{DLS}/downloader.py", run_name="__main__")\n'
    )
    return folder


def test_variables_of_other_jobs_are_forgotten(tmp_path: Path) -> None:
    done = bash(
        'unset_job_env_except_self "abc123-20200101"; env',
        tmp_path,
        ABC123_20200101_PORT="mine",
        XYZ789_20200101_PORT="theirs",
        KUBERNETES_PORT="theirs",
        DLS_TASK_INDEX="0",
    )
    assert "mine" in done.stdout and "DLS_TASK_INDEX=0" in done.stdout
    assert "theirs" not in done.stdout


def test_small_functions(tmp_path: Path) -> None:
    script = """
        dls_fix_dns && decrypt_dls_aes_env
        dls_get_executor a/train.py; dls_get_executor run.sh
        dls_create_log deep/er/x.log; echo one | dls_logger deep/er/x.log
        echo two | dls_logger deep/er/x.log append; echo three | dls_logger ""
        cat deep/er/x.log; echo four | dls_logger deep/er/x.log; cat deep/er/x.log
    """
    done = bash(script, tmp_path)
    assert done.stdout.split() == ["no", "related", "env", "found", "python", "bash", "one", "two", "four"]
    assert done.stderr == ""


def test_the_code_is_copied_from_a_local_folder_or_is_there(tmp_path: Path) -> None:
    (tmp_path / "app" / "sub").mkdir(parents=True)
    (tmp_path / "app" / "sub" / "x.py").write_text("x")
    (tmp_path / "here").mkdir()
    done = bash(f"dls_get_app {tmp_path}/app", tmp_path / "here")
    assert done.returncode == 0 and (tmp_path / "here/app/sub/x.py").read_text() == "x"
    again = bash(f"dls_get_app {tmp_path}/here/app", tmp_path / "here")
    assert again.returncode == 0 and "the code is at" in again.stdout
    (tmp_path / "here/demo").mkdir()
    own = bash(
        "dls_get_app s3://b/demo/", tmp_path / "here", DLS_APP_URL="s3://b/demo/", DLS_USE_DOWNLOADER="1"
    )
    assert own.returncode == 0 and "the code is at" in own.stdout
    assert bash("dls_get_app /no/such/folder", tmp_path / "here").returncode != 0


def run_train(home: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(home / "run_train.sh"), *arguments],
        cwd="/",
        env={
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "DLS_JOB_ID": "job1",
            **variables,
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_run_train_runs_the_command_where_the_code_is(home: Path) -> None:
    demo = home / "user-job-dir" / "demo"
    (demo / "own.py").write_text("x = 1\n")
    script = "import os, demo.own; print(os.getcwd()); raise SystemExit(7)"
    done = run_train(home, "python", "-c", script, DLS_APP_URL=str(demo))
    assert done.returncode == 7, done.stderr
    lines = done.stdout.splitlines()
    assert [line.partition(":")[0] for line in lines[1:6]] == ["user", "pwd", "app_url", "log_url", "command"]
    assert lines[-1] == str(home / "user-job-dir")
    assert run_train(home, "true", DLS_APP_URL="/no/such/app").returncode == 127


def test_the_form_of_ascend_images(home: Path) -> None:
    demo = home / "user-job-dir" / "demo"
    (demo / "train.py").write_text("import sys; print(sys.argv[1:]); raise SystemExit(3)")
    log = home / "log" / "train.log"
    done = run_train(
        home,
        "s3://b/demo/",
        "demo/train.py",
        str(log),
        "--data_url=s3://b/x/",
        DLS_APP_URL="s3://b/demo/",
    )
    assert done.returncode == 3, done.stderr
    assert log.read_text() == "['--data_url=s3://b/x/']\n"
    assert done.stdout.endswith(log.read_text())


def test_the_downloader_copies_files_and_folders(home: Path, tmp_path: Path) -> None:
    (tmp_path / "from/sub").mkdir(parents=True)
    (tmp_path / "from/sub/a.txt").write_text("a")
    (tmp_path / "to").mkdir()

    def copy(*arguments: str) -> int:
        return subprocess.run(
            [sys.executable, str(home / "modelarts-downloader.py"), *arguments],
            env={"PYTHONPATH": str(shims_folder()), "PATH": os.environ["PATH"], "MOX_SILENT_MODE": "1"},
            cwd=tmp_path / "to",
            capture_output=True,
            timeout=120,
            check=False,
        ).returncode

    assert copy("-r", "-s", str(tmp_path / "from"), "-d", "./", "--type", "common", "--trace") == 0
    assert copy("-r", "--skip-creating-dir", "-s", str(tmp_path / "from"), "-d", str(tmp_path / "flat")) == 0
    assert copy("-s", str(tmp_path / "from/sub/a.txt"), "-d", "./", "--verbose") == 0
    for path in ("to/from/sub/a.txt", "flat/sub/a.txt", "to/a.txt"):
        assert (tmp_path / path).read_text() == "a"
    assert copy("-s", str(tmp_path / "nothing"), "-d", "./") == 1
    assert copy("-r", "-s", str(tmp_path / "nothing"), "-d", "./") == 1
