"""TensorBoard itself, for a job that runs and for one that has ended."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from trainshed.client import Client

pytestmark = pytest.mark.slow

# Writes a valid event file without any package: TFRecord frames around two kinds of protocol buffers.
TRAIN = """
import argparse, os, struct, time

def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)

def record(data):
    length = struct.pack("<Q", len(data))
    return length + crc32c(length) + data + crc32c(data)

def field(number, data):
    return bytes([number << 3 | 2, len(data)]) + data

def event(step, tag, value):
    summary = field(1, field(1, tag.encode()) + bytes([2 << 3 | 5]) + struct.pack("<f", value))
    return b"\\\\x09" + struct.pack("<d", 1.0 + step) + b"\\\\x10" + bytes([step]) + field(5, summary)

parser = argparse.ArgumentParser()
parser.add_argument("--train_url")
folder = os.path.join(parser.parse_args().train_url, "summary")
os.makedirs(folder)
with open(os.path.join(folder, "events.out.tfevents.1.host"), "wb") as file:
    file.write(record(b"\\\\x09" + bytes(8) + field(3, b"brain.Event:2")))
    for step in range(5):
        file.write(record(event(step, "loss", 1 / (step + 1))))
print("written", flush=True)
time.sleep(float(os.environ["WAIT"]))
""".replace("\\\\x", "\\x")


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory, support: Any) -> Iterator[Any]:
    path = tmp_path_factory.mktemp("platform") / "home"
    try:
        yield support.start_platform(path, environment={**os.environ, "TRAINSHED_TOOLS_PORT": "0"})
    finally:
        support.stop_platform(path)


@pytest.fixture
def client(platform: Any) -> Iterator[Client]:
    """A client of the platform, and a bucket."""
    with platform.client() as opened:
        platform.cli("obs", "mb", "obs://events")
        yield opened


def submit(client: Client, tmp_path: Path, name: str, wait: float) -> Any:
    """Run a job that writes events."""
    (tmp_path / "train.py").write_text(TRAIN)
    fields = {
        "outputs": {"train_url": f"obs://events/{name}/"},
        "environment": {"WAIT": str(wait)},
        "grace": 1,
    }
    return client.submit({"name": name, "code": str(tmp_path), "boot": "train.py", **fields})


def visit(url: str, support: Any) -> tuple[httpx.Client, str]:
    """Open a link as a browser does, and wait until TensorBoard answers."""
    browser = httpx.Client(follow_redirects=True)
    base = url.partition("?")[0]
    assert browser.get(url).status_code in (200, 503)
    support.wait_until(lambda: browser.get(base).status_code == 200, seconds=180)
    return browser, base


def scalars(browser: httpx.Client, base: str, run: str) -> list[Any]:
    """The points that TensorBoard has read."""
    answer = browser.get(f"{base}data/plugin/scalars/scalars", params={"run": run, "tag": "loss"})
    return list(json.loads(answer.text)) if answer.status_code == 200 else []


def test_for_an_ended_job_and_its_end(platform: Any, client: Client, tmp_path: Path, support: Any) -> None:
    job = client.wait(submit(client, tmp_path, "ended", 0).id)
    assert job.phase == "Completed"
    opened = client.open_tensorboard("ended")
    assert opened.has_events and client.get("ended")
    browser, base = visit(opened.url, support)
    assert not base.startswith(platform.url)
    support.wait_until(lambda: len(scalars(browser, base, "train_url/summary")) == 5)
    # The link is used up, and without the cookie there is nothing to see.
    assert httpx.get(opened.url).status_code == 401
    assert httpx.get(base).status_code == 401
    tool = platform.home.run / "tools" / base.rstrip("/").rpartition("/")[2]
    assert (tool / "socket").is_dir()
    assert client.stop_tensorboard("ended") == 1
    assert browser.get(base).status_code == 401
    support.wait_until(lambda: not (tool / "socket").exists())
    browser.close()


def test_for_a_running_job_live(platform: Any, client: Client, tmp_path: Path, support: Any) -> None:
    job = submit(client, tmp_path, "live", 600)
    log = platform.home.run_folder(job.id, 1, 0).rank_log(0)
    support.wait_until(lambda: log.exists() and "written" in log.read_text())
    opened = client.open_tensorboard("live", "/job/outputs/train_url")
    assert opened.shows == ("/job/outputs/train_url",)
    browser, base = visit(opened.url, support)
    support.wait_until(lambda: len(scalars(browser, base, "summary")) == 5)
    server = json.loads((platform.home.run / "tools" / "server.json").read_text())["pid"]
    client.stop("live")
    client.wait("live")
    browser.close()
    # With the platform its tools end, too.
    support.stop_platform(platform.home.path)
    support.wait_until(lambda: not support.is_alive(server))
