"""How long until a job's input is ready: for the first job, for the second one, and beside `cp -r`?

A store on this machine holds many small files and few huge ones. In turns: `cp -r` of the same files, a copy out
of the store (what a job without a sandbox gets), the first staging (a tree of links is built), the second one (the
tree is there), and bringing outputs home, once new and once unchanged.

    .venv/bin/python benchmarks/staging.py [--files 10000] [--large 4] [--rounds 3] [--json FILE]
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from report import add_json_option, describe_machine, print_table, say, write_json

from trainshed.model.launch_plan import Environment, InputFolder, NodeLaunch
from trainshed.runner.site import Site
from trainshed.runner.staging import stage
from trainshed.store import open_store
from trainshed.store.object_store import ObjectStore
from trainshed.store.transfer import upload_tree

_SMALL_BYTES = 100_000
_LARGE_BYTES = 256 << 20
_PER_FOLDER = 500
_WORKSPACE = "benchmark"


def make_files(folder: Path, count: int, size: int) -> None:
    """Files of random bytes, some hundred to a folder."""
    for number in range(count):
        path = folder / f"{number // _PER_FOLDER:04}" / f"{number:06}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            for begin in range(0, size, 1 << 20):
                file.write(os.urandom(min(1 << 20, size - begin)))


def launch_of(key: str) -> NodeLaunch:
    """A job with one input and nothing else."""
    return NodeLaunch(
        job_id="benchmark",
        job_name="benchmark",
        workspace_id=_WORKSPACE,
        attempt=1,
        node_index=0,
        node_count=1,
        world_size=1,
        code_bucket="",
        code_prefix="",
        code_path="/job/code",
        processes=(),
        environment=Environment("python", "3.11"),
        inputs=(InputFolder("data", "data", key, "/job/inputs/data"),),
    )


class Bench:
    """One set of files, and the ways to bring it somewhere."""

    def __init__(self, base: Path, store: ObjectStore, name: str, count: int, size: int) -> None:
        self.name, self.count, self.bytes = name, count, count * size
        self._base, self._store, self._key = base, store, f"{name}/"
        self._source = base / f"source-{name}"
        self._target = base / "target"
        say(f"making {count} files of {size / 1e6:g} MB")
        make_files(self._source, count, size)
        self._with_cache = Site("", "", input_cache=str(base / "cache"))
        self._without = Site("", "")
        self.seconds: dict[str, list[float]] = {}

    def run(self) -> None:
        """Measure every way once, each from a clean start and with nothing left to write."""
        launch, cache = launch_of(self._key), self._base / "cache"
        self._measure("upload", lambda: upload_tree(self._store, self._source, "data", self._key))
        self._measure(
            "upload again, unchanged",
            lambda: upload_tree(self._store, self._source, "data", self._key, only_changed=True),
        )
        self._measure("cp -r", lambda: subprocess.run(["cp", "-r", self._source, self._target], check=True))
        self._measure("staging by copy", lambda: self._stage(launch, self._without))
        self._measure("first staging", lambda: self._stage(launch, self._with_cache))
        self._measure("second staging", lambda: self._stage(launch, self._with_cache))
        shutil.rmtree(cache)
        self._store.delete_prefix("data", self._key)

    def _stage(self, launch: NodeLaunch, site: Site) -> None:
        stage(launch, self._store, site, self._target, lambda text: None).close()

    def _measure(self, way: str, action: Callable[[], object]) -> None:
        shutil.rmtree(self._target, ignore_errors=True)
        os.sync()
        began = time.perf_counter()
        action()
        self.seconds.setdefault(way, []).append(time.perf_counter() - began)

    def rows(self) -> list[list[object]]:
        """What is shown: median seconds, rates, and how much faster than `cp -r`."""
        plain = statistics.median(self.seconds["cp -r"])
        rows: list[list[object]] = []
        for way, seconds in self.seconds.items():
            middle = statistics.median(seconds)
            rows.append([way, middle, self.count / middle, self.bytes / 1e6 / middle, plain / middle])
        return rows


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, default=10_000, help="how many files of 100 KB")
    parser.add_argument("--large", type=int, default=4, help="how many files of 256 MB")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="the disk to measure; the temporary folder if left out")
    add_json_option(parser)
    options = parser.parse_args()
    machine = describe_machine()
    with tempfile.TemporaryDirectory(prefix="trainshed-staging-", dir=options.folder) as name:
        base = Path(name)
        store = open_store(f"file://{base / 'store'}")
        store.ensure_bucket("data", _WORKSPACE)
        sets = [
            Bench(base, store, "small", options.files, _SMALL_BYTES),
            Bench(base, store, "large", options.large, _LARGE_BYTES),
        ]
        for number in range(options.rounds):
            for one in sets:
                say(f"round {number + 1}: {one.name}")
                one.run()
        store.close()
    head = ["way", "seconds", "files/s", "MB/s", "x cp -r"]
    for one in sets:
        print_table(
            f"{one.count} files, {one.bytes / 1e6:.0f} MB ({options.rounds} rounds)", head, one.rows()
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"\npeak memory {peak:.0f} MB")
    results = {one.name: one.seconds for one in sets}
    write_json(options.json, "staging", machine, {"seconds": results, "peak_memory_mb": peak})


if __name__ == "__main__":
    main()
