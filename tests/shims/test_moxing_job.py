"""Scripts that use `moxing`, run by a real platform in a real sandbox."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "obs-script"

PROBE = """
import os, subprocess, sys, urllib.request
import moxing as mox

data, result = sys.argv[1:3]
# Into each kind of folder that a job has, and back.
for number, folder in enumerate(("/cache/x/y", "/tmp/x", os.path.expanduser("~/x"), "/job/code/x", "/dev/shm/x",
                                 "relative/x", "/job/outputs/train_url/x", "/job/inputs/start/x")):
    mox.file.copy_parallel(data, folder)
    with open(os.path.join(folder, "sub/b.txt"), "a") as file:
        file.write("!")
    assert os.stat(folder).st_uid == os.getuid(), folder
    assert os.stat(os.path.join(folder, "sub/b.txt")).st_uid == os.getuid(), folder
    mox.file.copy_parallel(folder, result + "/%d" % number)
    assert mox.file.read(result + "/%d/sub/b.txt" % number) == "b!"
assert mox.file.read(data + "/sub/b.txt") == "b"

# What is not the job's own.
for place in ("/etc", "/opt/trainshed/shims", "/usr"):
    try:
        mox.file.copy_parallel(data, place + "/x")
        raise SystemExit("written: " + place)
    except OSError:
        pass
for url in ("obs://.code/", "obs://foreign-bucket/"):
    assert not mox.file.exists(url), url

# Other clients find the store by the variables they know.
try:
    urllib.request.urlopen("http://" + os.environ["S3_ENDPOINT"], timeout=10)
except urllib.error.HTTPError as error:
    assert error.code == 403, error
assert os.environ["AWS_ACCESS_KEY_ID"] == os.environ["ACCESS_KEY_ID"] == os.environ["TRAINSHED_ACCESS_KEY"]

# Without the broker the same script goes over HTTP.
code = "import moxing as mox; print(mox.file.read(%r), mox.file.list_directory(%r))" % (data + "/a.txt", data)
done = subprocess.run([sys.executable, "-c", code], env=dict(os.environ, TRAINSHED_BROKER="/nowhere"),
                      stdout=subprocess.PIPE, check=True)
print("over http:", done.stdout.decode().strip())

# A bucket's own host name leads to the store too.
code = ("import os, moxing as mox; mox.file.set_auth(path_style=False, "
        "server='localhost:' + os.environ['S3_ENDPOINT'].rpartition(':')[2]); print(mox.file.read(%r))" % (data + "/a.txt"))
done = subprocess.run([sys.executable, "-c", code], env=dict(os.environ, TRAINSHED_BROKER="/nowhere"),
                      stdout=subprocess.PIPE, check=True)
assert done.stdout == b"a\\n", done.stdout
print("all well")
"""


@pytest.fixture(scope="module")
def data(platform_up: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder of a bucket with a few files."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "sub").mkdir()
    (folder / "a.txt").write_text("a")
    (folder / "sub/b.txt").write_text("b")
    points = tmp_path_factory.mktemp("points")
    for number in range(4):
        xs = [x / 10 for x in range(number, 20, 4)]
        (points / f"{number}.csv").write_text("".join(f"{x},{2 * x + 1}\n" for x in xs))
    for arguments in (
        ("mb", "mox-data"),
        ("cp", "-r", folder, "obs://mox-data/tree/"),
        ("cp", "-r", points, "obs://mox-data/points/"),
    ):
        done = platform_up.cli("obs", *arguments)
        assert done.exit_code == 0, done.output
    return "mox-data"


@pytest.mark.slow
def test_the_script_of_the_guide_runs_unchanged(platform_up: Any, data: str, tmp_path: Path) -> None:
    done = platform_up.cli(
        "run",
        *("--code", EXAMPLE, "--boot", "train.py", "--flavor", "cpu.1", "--network", "none", "--follow"),
        *("--param", f"data_url=s3://{data}/points/", "--param", f"train_url=s3://{data}/run1/"),
        *("--env", "DEVICE_ID=0", "--env", "RANK_SIZE=1"),
        timeout=90,
    )
    assert done.exit_code == 0, done.output
    assert "INFO:root:Using MoXing-v" in done.output and "Upload results." in done.output
    done = platform_up.cli("obs", "cp", f"obs://{data}/run1/model-0.json", tmp_path / "model.json")
    assert done.exit_code == 0, done.output
    model = json.loads((tmp_path / "model.json").read_text())
    assert abs(model["slope"] - 2) < 0.1 and model["loss"] < 0.01


@pytest.mark.slow
def test_moxing_reaches_every_folder_of_a_job_and_no_other(
    platform_up: Any, data: str, tmp_path: Path
) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "probe.py").write_text(PROBE)
    done = platform_up.cli(
        "run",
        *("--code", code, "--flavor", "cpu.1", "--follow"),
        *("--input", f"start=obs://{data}/tree/", "--output", f"train_url=obs://{data}/outputs/"),
        *("--command", f"python probe.py s3://{data}/tree obs://{data}/back"),
        timeout=90,
    )
    assert done.exit_code == 0, done.output
    assert "over http: a ['a.txt', 'sub']" in done.output and "all well" in done.output
    done = platform_up.cli("obs", "ls", "-r", f"obs://{data}/outputs/")
    assert "x/sub/b.txt" in done.output
