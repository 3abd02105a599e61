"""Scripts written for ModelArts and Xihe, run by a real platform that rehearses eight devices."""

from __future__ import annotations

import base64
import hashlib
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.slow

TRAIN = """
import argparse, json, os
import moxing as mox
import tiny_package

parser = argparse.ArgumentParser()
parser.add_argument("--data_url", required=True)
parser.add_argument("--train_url", required=True)
parser.add_argument("--epoch_size", type=int, required=True)
args = parser.parse_args()
rank, device = os.environ["RANK_ID"], os.environ["DEVICE_ID"]
local = os.path.join("/cache/data", device)
mox.file.copy_parallel(src_url=args.data_url, dst_url=local)
table = os.environ["RANK_TABLE_FILE"]
with open(table) as file:
    servers = json.load(file)["server_list"]
with open(table, "a") as file:
    file.write("\\n")
names = ("GLOG_v", "ASCEND_GLOBAL_LOG_LEVEL", "HOME", "USER", "JOB_ID", "RANK_SIZE", "SINGLESERVER_MODE")
seen = {name: os.environ.get(name) for name in names}
seen.update(cwd=os.getcwd(), uid=os.getuid(), data=os.listdir(local), devices=len(servers[0]["device"]))
mox.file.write(os.path.join(args.train_url, "seen_%s.json" % rank), json.dumps(seen))
"""
# As in the guide of the benchmark, with a wheel of our own in place of the vendor's.
PRE_START = """#!/bin/bash
set -x
echo "Start to intall the run package"
LOCAL_DIR=$(cd "$(dirname "$0")";pwd)
echo $LOCAL_DIR
TRAIN_PY_PATH=$(readlink -f `find ./ -name train.py`)
BASE_PATH=`dirname $TRAIN_PY_PATH`
pip install $BASE_PATH/run/tiny*.whl
echo "replace origin packet!!! done ret:$? !!!"
sudo chmod +x $BASE_PATH/run/*.run
CANN_RUN_PACKET=`find $BASE_PATH/run/ -name Ascend-cann-nnae*.run`
sudo $CANN_RUN_PACKET --upgrade
echo "table $RANK_TABLE_FILE: $(ls $RANK_TABLE_FILE)"
export GLOG_v=3
set +x
export SINGLESERVER_MODE=True
"""
CANN = """#!/bin/bash
mkdir -p /usr/local/Ascend && echo "upgraded $*" >/usr/local/Ascend/version && cat /usr/local/Ascend/version
"""


def write_wheel(folder: Path) -> None:
    files = {
        "tiny_package.py": "VALUE = 1\n",
        "tiny_package-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: tiny-package\nVersion: 1.0\n",
        "tiny_package-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
    }
    record = ""
    with zipfile.ZipFile(folder / "tiny_package-1.0-py3-none-any.whl", "w") as archive:
        for path, content in files.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(content.encode()).digest()).rstrip(b"=").decode()
            record += f"{path},sha256={digest},{len(content)}\n"
            archive.writestr(path, content)
        archive.writestr(
            "tiny_package-1.0.dist-info/RECORD", f"{record}tiny_package-1.0.dist-info/RECORD,,\n"
        )


@pytest.fixture(scope="module")
def platform(support: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A platform with eight pretend Ascend devices and a little data."""
    path = tmp_path_factory.mktemp("platform") / "home"
    data = tmp_path_factory.mktemp("data")
    (data / "a.bin").write_text("a")
    (data / "start.ckpt").write_text("weights")
    try:
        running = support.start_platform(path, "--rehearse", "ascend:8")
        for arguments in (("mb", "guide"), ("cp", "-r", data, "obs://guide/data/")):
            done = running.cli("obs", *arguments)
            assert done.exit_code == 0, done.output
        yield running
    finally:
        support.stop_platform(path)


def submit(platform: Any, folder: Path, files: dict[str, str], **fields: Any) -> str:
    """Submit a job of these files and follow it to its end; returns its log."""
    code = folder / "resnet"
    code.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (code / name).parent.mkdir(parents=True, exist_ok=True)
        (code / name).write_text(content)
    job = folder / "job.yaml"
    job.write_text(yaml.safe_dump({"code": str(code), **fields}))
    done = platform.cli("submit", job, "--follow", timeout=120)
    assert done.exit_code == 0, done.output
    output: str = done.stdout
    return output


def read_object(platform: Any, url: str, folder: Path) -> str:
    target = folder / "fetched"
    done = platform.cli("obs", "cp", url, target)
    assert done.exit_code == 0, done.output
    return target.read_text()


def list_names(platform: Any, prefix: str) -> list[str]:
    done = platform.cli("obs", "ls", "-r", prefix)
    assert done.exit_code == 0, done.output
    return [line.rpartition("/")[2] for line in done.stdout.splitlines()]


def test_eight_devices_of_modelarts_v1_after_the_benchmarks_pre_start_script(
    platform: Any, tmp_path: Path
) -> None:
    (tmp_path / "resnet/run").mkdir(parents=True)
    write_wheel(tmp_path / "resnet/run")
    files = {"train.py": TRAIN, "ma-pre-start.sh": PRE_START, "run/Ascend-cann-nnae_5.run": CANN}
    log = submit(
        platform,
        tmp_path,
        files,
        name="bench",
        dialect="modelarts-v1",
        boot="train.py",
        inputs={"data_url": "obs://guide/data/"},
        outputs={"train_url": "obs://guide/v1/"},
        parameters={"epoch_size": 5},
        flavor="ascend.8",
        framework_log_level="ERROR",
        log_url="obs://guide/v1-log/",
    )
    assert "replace origin packet!!! done ret:0 !!!" in log
    assert "upgraded --upgrade" in log
    assert "table /user/config: jobstart_hccl.json" in log
    assert platform.cli("obs", "cp", "-r", "obs://guide/v1/", tmp_path / "v1").exit_code == 0
    identity = ""
    for rank in range(8):
        seen = json.loads((tmp_path / "v1" / f"seen_{rank}.json").read_text())
        identity = seen.pop("JOB_ID")
        assert seen == {
            "GLOG_v": "3",  # what the script exports goes before framework_log_level
            "ASCEND_GLOBAL_LOG_LEVEL": "3",
            "HOME": "/home/work",
            "USER": "work",
            "RANK_SIZE": "8",
            "SINGLESERVER_MODE": "True",
            "cwd": f"/home/work/workspace/device{rank}",
            "uid": 1101,
            "data": seen["data"],
            "devices": 8,
        }
        assert sorted(seen["data"]) == ["a.bin", "start.ckpt"]
    names = list_names(platform, "obs://guide/v1-log/")
    assert f"{identity}-job-bench-0.log" in names
    assert f"{identity}-proc-rank-7-device-7.txt" in names
    exported = read_object(platform, f"obs://guide/v1-log/{identity}-job-bench-0.log", tmp_path)
    assert exported.startswith("[Modelarts Service Log]user: uid=1101(work)")
    assert "app_url: /home/work/user-job-dir/resnet\n" in exported


def test_the_start_command_of_the_custom_image_guide(platform: Any, tmp_path: Path) -> None:
    run = (
        'echo "task $DLS_TASK_INDEX of $DLS_TASK_NUMBER, epochs $epochs, data $DLS_DATA_URL, in $PWD"\n'
        "python train.py\n"
    )
    log = submit(
        platform,
        tmp_path,
        {"run.sh": run, "train.py": "import os; print('trained by', os.getuid())"},
        dialect="modelarts-v1",
        command="bash /home/work/run_train.sh python /home/work/user-job-dir/run.sh",
        parameters={"epochs": 3},
        inputs={"data_url": "obs://guide/data/"},
    )
    assert "task 0 of 1, epochs 3, data s3://guide/data/, in /home/work/user-job-dir" in log
    assert "trained by 1101" in log


def test_the_start_command_of_ascend_images_starts_a_process_per_device(
    platform: Any, tmp_path: Path
) -> None:
    code = tmp_path / "resnet"
    code.mkdir()
    (code / "train.py").write_text(
        "import os, sys\n"
        "names = ('JOB_ID', 'DEVICE_ID', 'RANK_ID', 'RANK_SIZE', 'RANK_TABLE_FILE')\n"
        "print('rank', *[os.environ[name] for name in names], os.getcwd(), *sys.argv[1:])\n"
    )
    assert platform.cli("obs", "cp", "-r", code, "obs://guide/code/resnet/").exit_code == 0
    job = tmp_path / "job.yaml"
    command = "/bin/bash /home/work/run_train.sh s3://guide/code/resnet/ resnet/train.py '/tmp/log/train.log' --lr=1"
    fields = {"dialect": "modelarts-v1", "code": "obs://guide/code/resnet/", "flavor": "ascend.4"}
    job.write_text(yaml.safe_dump({"command": command, **fields}))
    done = platform.cli("submit", job, "--follow", timeout=120)
    assert done.exit_code == 0, done.output
    said = sorted(line.split() for line in done.stdout.splitlines() if line.startswith("rank "))
    assert [line[2:] for line in said] == [
        [
            str(n),
            str(n),
            "4",
            "/home/work/rank_table/jobstart_hccl.json",
            f"/home/work/workspace/device{n}",
            "--lr=1",
        ]
        for n in range(4)
    ]
    assert "the code is at /home/work/user-job-dir/resnet" in done.stdout


def test_modelarts_v2_brings_inputs_and_takes_outputs(platform: Any, tmp_path: Path) -> None:
    script = """
import argparse, os, sys
parser = argparse.ArgumentParser()
parser.add_argument("--train_url", required=True)
parser.add_argument("--lr", type=float, required=True)
args = parser.parse_args()
assert os.environ["data_url"] == "/home/ma-user/modelarts/inputs/data_url_0", os.environ["data_url"]
assert sorted(os.listdir(os.environ["data_url"])) == ["a.bin", "start.ckpt"]
assert os.getcwd() == os.environ["WORKSPACE"] == "/home/ma-user/modelarts/user-job-dir/resnet"
assert __file__.startswith(os.environ["MA_JOB_DIR"]), __file__
assert os.path.expanduser("~") == "/home/ma-user" and os.getuid() == 1000
assert os.path.isdir(os.environ["MA_LOG_DIR"])
with open(os.path.join(args.train_url, "model.txt"), "w") as file:
    file.write("%s %s" % (args.lr, os.environ["VC_WORKER_HOSTS"]))
"""
    submit(
        platform,
        tmp_path,
        {"sub/train.py": script},
        dialect="modelarts-v2",
        boot="sub/train.py",
        inputs={"data_url": "obs://guide/data/"},
        outputs={"train_url": "obs://guide/v2/"},
        access={"data_url": "env"},
        parameters={"lr": 0.5},
        flavor="cpu.1",
        log_url="obs://guide/v2-log/",
    )
    text = read_object(platform, "obs://guide/v2/model.txt", tmp_path)
    host = text.split()[1]
    identity = host.partition(".")[2]
    assert text == f"0.5 {identity}-worker-0.{identity}"
    names = list_names(platform, "obs://guide/v2-log/")
    assert set(names) == {f"{identity}-worker-0.log", f"{identity}-worker-0-platform.log"}


def test_xihe_gives_a_file_a_folder_and_an_output(platform: Any, tmp_path: Path) -> None:
    script = """
import argparse, os
parser = argparse.ArgumentParser()
parser.add_argument("--pretrain_url", type=str, default="")
parser.add_argument("--data_url", type=str, default="")
parser.add_argument("--output_path", default="", type=str)
args = parser.parse_args()
with open(args.pretrain_url) as file:
    assert file.read() == "weights"
assert "a.bin" in os.listdir(args.data_url)
folder = os.path.join(args.output_path, "new_folder")
os.makedirs(folder)
with open(os.path.join(folder, "lenet.ckpt"), "w") as file:
    file.write("better weights")
"""
    submit(
        platform,
        tmp_path,
        {"trainDir/train.py": script},
        dialect="xihe",
        boot="trainDir/train.py",
        inputs={"pretrain_url": "obs://guide/data/start.ckpt", "data_url": "obs://guide/data/"},
        outputs={"output_path": "obs://guide/xihe/"},
        flavor="ascend.1",
    )
    assert read_object(platform, "obs://guide/xihe/new_folder/lenet.ckpt", tmp_path) == "better weights"


def test_the_log_at_its_destination_grows_while_the_job_runs(
    platform: Any, support: Any, tmp_path: Path
) -> None:
    job = tmp_path / "job.yaml"
    fields = {"dialect": "modelarts-v2", "command": "echo begun; sleep 600", "log_url": "obs://live-logs/"}
    job.write_text(yaml.safe_dump({"name": "live", **fields}))
    assert platform.cli("obs", "mb", "live-logs").exit_code == 0
    assert platform.cli("submit", job).exit_code == 0
    try:
        found = support.wait_until(
            lambda: [
                name for name in list_names(platform, "obs://live-logs/") if name.endswith("-worker-0.log")
            ],
            seconds=180,
        )
        assert read_object(platform, f"obs://live-logs/{found[0]}", tmp_path) == "begun\n"
        assert platform.cli("show", "live", "--json").json()["phase"] == "Running"
    finally:
        platform.cli("stop", "live")


def test_two_servers_that_train_each_for_itself(platform: Any, tmp_path: Path) -> None:
    """SINGLESERVER_MODE of Ais-Bench: sixteen ranks, two tables, each rewritten by the ranks of its node."""
    example = Path(__file__).parents[2] / "examples" / "ais-bench-resnet" / "train.py"
    boot = """
import json, os
from train import use_own_server_only, write_number
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--train_url", required=True)
url = parser.parse_args().train_url
world = os.environ["RANK_SIZE"]
server = use_own_server_only()
assert server == os.environ["BATCH_TASK_CURRENT_HOST_IP"], server
with open(os.environ["RANK_TABLE_FILE"]) as file:
    table = json.load(file)
assert table["server_count"] == "1" and len(table["server_list"][0]["device"]) == 8
assert (world, os.environ["RANK_SIZE"]) == ("16", "8")
write_number(os.path.join(url, server), "throughput_%s.json" % os.environ["RANK_ID"], 10.5)
"""
    submit(
        platform,
        tmp_path,
        {
            "boot.py": boot,
            "train.py": example.read_text(),
            "ma-pre-start.sh": "export SINGLESERVER_MODE=True\n",
        },
        dialect="modelarts-v1",
        boot="boot.py",
        outputs={"train_url": "obs://guide/single/"},
        flavor="ascend.8",
        nodes=2,
    )
    assert platform.cli("obs", "cp", "-r", "obs://guide/single/", tmp_path / "single").exit_code == 0
    found = sorted(
        str(path.relative_to(tmp_path / "single")) for path in (tmp_path / "single").rglob("*.json")
    )
    assert found == [f"127.0.0.{server}/throughput_{rank}.json" for server in (2, 3) for rank in range(8)]


def test_the_first_rank_that_fails_ends_the_others(platform: Any, tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text(
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('asked to end', flush=True), os._exit(0)))\n"
        "rank = os.environ['RANK_ID']\n"
        "open('/tmp/ready-' + rank, 'w').close()\n"
        # Not before the others have said what to do when they are asked to end.
        "while rank == '2':\n"
        "    if all(os.path.exists('/tmp/ready-%d' % other) for other in range(4)):\n        sys.exit(41)\n"
        "    time.sleep(0.05)\n"
        "time.sleep(300)\n"
    )
    job = tmp_path / "job.yaml"
    fields = {"dialect": "modelarts-v2", "code": str(code), "boot": "train.py", "flavor": "ascend.4"}
    job.write_text(yaml.safe_dump({"name": "broken", **fields}))
    done = platform.cli("submit", job, "--follow", timeout=120)
    assert done.exit_code == 1
    assert done.stdout.count("asked to end") == 3
    shown = platform.cli("show", "broken", "--json").json()
    assert shown["phase"] == "Failed"
    assert "41" in json.dumps(shown["ending"]) and "rank 2" in json.dumps(shown["ending"]).lower()
