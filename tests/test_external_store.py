"""A whole platform on a real SeaweedFS: the same commands, jobs and clients, and an endpoint that dies."""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seaweedfs import start_server
from trainshed.store.external.address import Credentials, parse_place
from trainshed.store.external.wire import Wire

SCRIPT = """
import os, sys, time
import moxing as mox

given = dict(argument[2:].split("=", 1) for argument in sys.argv[1:])
names = sorted(os.listdir(given["data_url"]))
print("inputs", len(names), open(os.path.join(given["data_url"], names[0])).read(), flush=True)
mox.file.copy_parallel("obs://data/in/", "/cache/again")
mox.file.write("obs://data/mox/note.txt", "written")
mox.file.append("obs://data/mox/note.txt", " and more")
print(mox.file.read("obs://data/mox/note.txt"), len(os.listdir("/cache/again")), flush=True)
until = time.time() + float(given["wait"])
number = 0
while time.time() < until or number < 300:
    number += 1
    print("line", number, "x" * 10_000, flush=True)
    time.sleep(0.01)
with open(os.path.join(given["train_url"], "model.bin"), "wb") as file:
    file.write(bytes(17 << 20) + b"end")
with open(os.path.join(given["train_url"], "lines"), "w") as file:
    file.write(str(number))
os.chmod(os.path.join(given["train_url"], "lines"), 0o755)
print("done", number, flush=True)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A SeaweedFS that this module may kill, with the bucket `shed`."""
    server = start_server(tmp_path_factory.mktemp("seaweedfs"))
    try:
        endpoint = server.endpoint
        keys = Credentials(endpoint.access_key, endpoint.secret_key)
        wire = Wire(parse_place("s3://shed", endpoint=endpoint.url), keys)
        wire.ask("PUT")
        wire.close()
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="module")
def variables(server: Any) -> dict[str, str]:
    """What an administrator sets."""
    return {
        "TRAINSHED_STORE_ENDPOINT": server.endpoint.url,
        "TRAINSHED_STORE_ACCESS_KEY": server.endpoint.access_key,
        "TRAINSHED_STORE_SECRET_KEY": server.endpoint.secret_key,
        "TRAINSHED_LOG_SEGMENT_MB": "1",
    }


@pytest.fixture(scope="module")
def platform(
    support: Any, server: Any, variables: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    """A platform whose objects lie at the SeaweedFS, with a code folder and an input."""
    path = tmp_path_factory.mktemp("platform") / "home"
    try:
        platform = support.start_platform(path, "--store", "s3://shed/the lab", environment=variables)
        code, data = path.parent / "code", path.parent / "data"
        code.mkdir()
        data.mkdir()
        (code / "train.py").write_text(SCRIPT)
        for number in range(40):
            (data / f"part-{number:02}.txt").write_text(f"number {number}")
        assert platform.cli("obs", "mb", "data").exit_code == 0
        assert platform.cli("obs", "cp", "-r", data, "obs://data/in/").exit_code == 0
        yield platform
    finally:
        support.stop_platform(path)


def submit(platform: Any, name: str, wait: float, code: str = "") -> None:
    code = code or str(platform.home.path.parent / "code")
    with platform.client() as client:
        client.submit(
            {
                "name": name,
                "code": code,
                "boot": "train.py",
                "parameters": {"wait": str(wait)},
                "inputs": {"data_url": "obs://data/in/"},
                "outputs": {"train_url": f"obs://data/{name}/"},
            }
        )


def check_results(platform: Any, name: str, folder: Path) -> None:
    """Every line that the job wrote is in its log, and its outputs are whole."""
    copied = platform.cli("obs", "cp", "-r", f"obs://data/{name}/", folder)
    assert copied.exit_code == 0, copied.output
    lines = int((folder / "lines").read_text())
    assert (folder / "model.bin").stat().st_size == (17 << 20) + 3 and os.access(folder / "lines", os.X_OK)
    log = platform.cli("logs", name).stdout.splitlines()
    assert "inputs 40 number 0" in log and "written and more 40" in log and f"done {lines}" in log
    numbers = [int(line.split()[1]) for line in log if line.startswith("line ")]
    assert numbers == list(range(1, lines + 1))


@pytest.mark.slow
def test_commands_jobs_and_clients_work_the_same(platform: Any, server: Any, tmp_path: Path) -> None:
    submit(platform, "first", 0)
    with platform.client() as client:
        assert client.wait("first", timeout=180).phase == "Completed"
    check_results(platform, "first", tmp_path / "back")
    # Its code lies in the store: the job gets a copy of its own.
    copied = platform.cli("obs", "cp", "-r", platform.home.path.parent / "code", "obs://data/code/")
    assert copied.exit_code == 0, copied.output
    submit(platform, "second", 0, code="obs://data/code/")
    with platform.client() as client:
        assert client.wait("second", timeout=180).phase == "Completed"
    assert "already on this machine" in platform.cli("logs", "second", "--platform").output

    shown = platform.cli("obs", "ls", "obs://data/")
    assert [line.split()[-1] for line in shown.stdout.splitlines()] == [
        f"obs://data/{name}/" for name in ("code", "first", "in", "mox", "second")
    ]
    pair = platform.cli("credentials", "--format", "json").json()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import boto3
        import botocore.config
    s3 = boto3.client(
        "s3",
        endpoint_url=platform.obs_url,
        region_name="us-east-1",
        aws_access_key_id=pair["access_key"],
        aws_secret_access_key=pair["secret_key"],
        config=botocore.config.Config(s3={"addressing_style": "path"}),
    )
    try:
        (tmp_path / "large").write_bytes(os.urandom(12 << 20))
        s3.upload_file(str(tmp_path / "large"), "data", "boto/large", ExtraArgs={"Metadata": {"a": "1"}})
        s3.put_object(Bucket="data", Key="boto/a//../b", Body=b"odd", Tagging="x=1")
        s3.copy_object(Bucket="data", Key="boto/copy", CopySource="data/boto/large")
        listed = s3.list_objects_v2(Bucket="data", Prefix="boto/")["Contents"]
        assert [entry["Key"] for entry in listed] == ["boto/a//../b", "boto/copy", "boto/large"]
        found = s3.get_object(Bucket="data", Key="boto/copy")
        assert found["Metadata"] == {"a": "1"} and found["Body"].read() == (tmp_path / "large").read_bytes()
        part = s3.get_object(Bucket="data", Key="boto/large", Range="bytes=5-9")["Body"].read()
        assert part == (tmp_path / "large").read_bytes()[5:10]
        assert s3.get_object_tagging(Bucket="data", Key="boto/a//../b")["TagSet"] == [
            {"Key": "x", "Value": "1"}
        ]
        with pytest.raises(s3.exceptions.ClientError) as caught:
            s3.put_bucket_versioning(Bucket="data", VersioningConfiguration={"Status": "Enabled"})
        assert caught.value.response["Error"]["Code"] == "NotImplemented"
        keys = [{"Key": entry["Key"]} for entry in listed]
        assert len(s3.delete_objects(Bucket="data", Delete={"Objects": keys})["Deleted"]) == 3
    finally:
        s3.close()
    assert platform.cli("obs", "gc").exit_code == 0
    refused = platform.cli("obs", "verify")
    assert refused.exit_code != 0 and "s3://shed/the lab" in refused.output
    checked = platform.cli("doctor").stdout
    assert "objects are written, read, listed and removed" in checked


@pytest.mark.slow
def test_a_job_survives_the_death_of_the_endpoint(
    platform: Any, server: Any, support: Any, tmp_path: Path
) -> None:
    submit(platform, "outage", 5)
    with platform.client() as client:
        log = platform.home.run_folder(client.get("outage").id, 1, 0).rank_log(0)
        # By then it has fetched what it needs by itself.
        support.wait_until(lambda: log.exists() and b"\nline 9 " in log.read_bytes(), seconds=180)
        server.kill()
        # It trains on without the endpoint, then waits for it.
        support.wait_until(lambda: client.get("outage").detail == "uploading", seconds=180)
        time.sleep(3)
        assert client.get("outage").phase == "Running"
        assert "cannot be reached" in platform.cli("obs", "ls", "obs://data/").output
        server.start()
        assert client.wait("outage", timeout=180).phase == "Completed"
    check_results(platform, "outage", tmp_path / "back")
    assert "Waiting for it." in platform.cli("logs", "outage", "--platform").output


@pytest.mark.slow
def test_the_secret_key_is_nowhere_but_in_its_file(platform: Any, server: Any) -> None:
    secret = server.endpoint.secret_key.encode()
    for pid in platform.pids().values():
        for name in ("environ", "cmdline"):
            assert secret not in Path(f"/proc/{pid}/{name}").read_bytes()
    holders = [
        path.relative_to(platform.home.path)
        for path in platform.home.path.rglob("*")
        if path.is_file() and not path.is_symlink() and secret in path.read_bytes()
    ]
    assert [str(path) for path in holders] == ["store.json"]
    assert platform.home.external_store.stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
def test_a_home_stays_with_its_store(support: Any, platform: Any, variables: dict[str, str]) -> None:
    path = platform.home.path
    support.stop_platform(path)
    for place in ("s3://shed/another", "s3://other/the lab"):
        moved = support.run_cli("up", "--home", path, "--detach", "--store", place, environment=variables)
        assert moved.exit_code != 0 and "s3://shed/the lab" in moved.output
    stranger = path.with_name("stranger")
    place = "s3://shed/the lab"
    second = support.run_cli("up", "--home", stranger, "--detach", "--store", place, environment=variables)
    assert second.exit_code != 0 and "belongs to another platform" in second.output and not stranger.exists()
    # Without a word about the store, and without its keys, it is the one that it was.
    again = support.start_platform(path)
    assert "obs://data/in/" in again.cli("obs", "ls", "obs://data/").stdout
    assert json.loads(platform.home.external_store.read_bytes())["place"] == "s3://shed/the lab"
