"""How fast do objects go in and out, beside a real SeaweedFS and `cp -r`?

10,000 files of 100 KB and 4 files of 256 MB, up and down, with s5cmd and obstore as clients. All ways take turns
within each round, so that a busy minute hits all of them; what counts are the ratios. SeaweedFS acknowledges a write
before it is on the disk; --synced adds one that is told to wait for it, as our store does. Client and server share the
cores here; what a server would do whose clients are elsewhere is told by the processor time it takes per file.

    .venv/bin/python benchmarks/objects.py [--rounds 3] [--files 10000] [--large 4] [--synced] [--json FILE]

SeaweedFS is installed into an environment of its own below .cache/, or named with --weed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from measured_store import MeasuredStore, SeaweedFS, SyncedSeaweedFS, TrainshedStore, find_weed
from report import add_json_option, describe_machine, print_table, say, write_json

_IN_FLIGHT = 32
_LARGE_IN_FLIGHT = 4
_PIECE = 1 << 20


@dataclass(frozen=True)
class Load:
    """A folder of files of one size."""

    name: str
    folder: Path
    count: int
    size: int


def make_load(folder: Path, name: str, count: int, size: int) -> Load:
    """Files whose bytes differ, so that nothing can be saved."""
    place = folder / name
    place.mkdir(parents=True)
    block = os.urandom(min(size, 1 << 20))
    for number in range(count):
        with (place / f"{number:06}.bin").open("wb") as file:
            file.write(number.to_bytes(8, "big"))
            left = size - 8
            while left > 0:
                file.write(block[:left])
                left -= len(block)
    return Load(name, place, count, size)


# --- clients ---


def s5cmd(store: MeasuredStore, *arguments: str) -> None:
    """Run s5cmd against a store."""
    program = Path(sys.executable).with_name("s5cmd")
    command = [str(program), "--log", "error", "--numworkers", str(_IN_FLIGHT), *arguments]
    done = subprocess.run(
        command, env=store.client_environment(), capture_output=True, text=True, timeout=1800, check=False
    )
    if done.returncode:
        raise RuntimeError(f"s5cmd {' '.join(arguments[:1])} failed: {done.stderr[-1000:]}")


def obstore(store: MeasuredStore, way: str, folder: Path, bucket: str) -> None:
    """Run obstore against a store, in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, "--obstore", way, str(folder), bucket],
        env=store.client_environment(),
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"obstore {way} ended with {done.returncode}: {done.stderr[-1000:]}")


async def run_obstore(way: str, folder: Path, bucket: str) -> None:
    """What that process does."""
    import obstore as library
    from obstore.store import S3Store

    store = S3Store(
        bucket,
        endpoint=os.environ["S3_ENDPOINT_URL"],
        client_options={"allow_http": True, "timeout": "600s"},
        virtual_hosted_style_request=False,
    )
    if way == "up":
        names = sorted(path.name for path in folder.iterdir())
        large = names and (folder / names[0]).stat().st_size > 32 << 20
    else:
        found = await library.list(store).collect_async()
        names = sorted(item["path"] for item in found)
        large = bool(found) and found[0]["size"] > 32 << 20
    slots = asyncio.Semaphore(_LARGE_IN_FLIGHT if large else _IN_FLIGHT)

    async def move(name: str) -> None:
        async with slots:
            if way == "up":
                await library.put_async(store, name, folder / name)
                return
            answer = await library.get_async(store, name)
            with (folder / name).open("wb") as file:
                async for piece in answer.stream(_PIECE):
                    file.write(piece)

    await asyncio.gather(*(move(name) for name in names))


# --- measuring ---


def timed(work: Callable[[], object]) -> float:
    """Seconds of some work."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def check_download(load: Load, folder: Path) -> None:
    """A fast download of wrong bytes is none."""
    names = sorted(path.name for path in folder.iterdir())
    if len(names) != load.count:
        raise RuntimeError(f"{len(names)} of {load.count} files arrived")
    for name in (names[0], names[-1]):
        if (folder / name).read_bytes() != (load.folder / name).read_bytes():
            raise RuntimeError(f"{name} is not what was sent")


class Course:
    """All ways through all loads, in turns."""

    def __init__(
        self, base: Path, stores: list[MeasuredStore], loads: list[Load], clients: list[str]
    ) -> None:
        self._base = base
        self._stores = stores
        self._loads = loads
        self._clients = clients
        self._number = 0
        self.seconds: dict[str, list[float]] = {}
        # The processor time of the server, in the same places.
        self.server_seconds: dict[str, list[float]] = {}

    def run(self, round_number: int) -> None:
        """One round; the stores change places each time."""
        stores = self._stores if round_number % 2 == 0 else self._stores[::-1]
        for load in self._loads:
            for client in self._clients:
                for store in stores:
                    self._through(store, client, load)
            self._copy(load)

    def _through(self, store: MeasuredStore, client: str, load: Load) -> None:
        self._number += 1
        bucket = f"bench-{load.name}-{client}-{self._number}"
        target = self._base / "down"
        target.mkdir()
        s5cmd(store, "mb", f"s3://{bucket}")
        try:
            say(f"{store.name}, {client}, {load.name}")
            used = [store.cpu_seconds()]
            if client == "s5cmd":
                up = timed(lambda: s5cmd(store, "cp", f"{load.folder}/", f"s3://{bucket}/"))
                used.append(store.cpu_seconds())
                down = timed(lambda: s5cmd(store, "cp", f"s3://{bucket}/*", f"{target}/"))
            else:
                up = timed(lambda: obstore(store, "up", load.folder, bucket))
                used.append(store.cpu_seconds())
                down = timed(lambda: obstore(store, "down", target, bucket))
            used.append(store.cpu_seconds())
            check_download(load, target)
            way = f"{store.name} {client}"
            self._note(self.seconds, way, load, up, down)
            self._note(self.server_seconds, way, load, used[1] - used[0], used[2] - used[1])
        finally:
            shutil.rmtree(target)
            s5cmd(store, "rm", f"s3://{bucket}/*")

    def _copy(self, load: Load) -> None:
        target = self._base / "copy"
        command = ["cp", "-r", str(load.folder), str(target)]
        seconds = timed(lambda: subprocess.run(command, check=True, timeout=600))
        shutil.rmtree(target)
        self._note(self.seconds, "cp -r", load, seconds, seconds)

    @staticmethod
    def _note(book: dict[str, list[float]], way: str, load: Load, up: float, down: float) -> None:
        book.setdefault(f"{way}|{load.name}|up", []).append(up)
        book.setdefault(f"{way}|{load.name}|down", []).append(down)


def show(course: Course, loads: list[Load], clients: list[str]) -> dict[str, float]:
    """Tables for people; returns the ratios to SeaweedFS."""
    median = {name: statistics.median(values) for name, values in course.seconds.items()}
    used = {name: statistics.median(values) for name, values in course.server_seconds.items()}
    for load in loads:
        per_second = load.count if load.size < 1 << 20 else load.count * load.size / 2**20
        unit = "files/s" if load.size < 1 << 20 else "MiB/s"
        rows = []
        for way in dict.fromkeys(name.split("|")[0] for name in median):
            row: list[object] = [way]
            for direction in ("up", "down"):
                place = f"{way}|{load.name}|{direction}"
                row += [per_second / median[place], used[place] / load.count * 1000 if place in used else ""]
            rows.append(row)
        print_table(
            f"{load.count} x {load.size // 1000} KB ({unit}, and the server's processor time in ms per file; median)",
            ["way", "up", "server", "down", "server"],
            rows,
        )
    ratios = compare(median, loads, clients)
    server_ratios = compare(used, loads, clients)
    if ratios:
        rows = [[what, ratio, server_ratios[what]] for what, ratio in ratios.items()]
        print_table(
            "How many times as fast as SeaweedFS, and as its server", ["what", "ratio", "server"], rows
        )
    return {**ratios, **{f"server time: {what}": ratio for what, ratio in server_ratios.items()}}


def compare(median: dict[str, float], loads: list[Load], clients: list[str]) -> dict[str, float]:
    """How many times our seconds the other store took."""
    ratios = {}
    for load in loads:
        for peer, suffix in (("SeaweedFS", ""), ("SeaweedFS, synced", ", both synced")):
            for client in clients:
                for direction in ("up", "down"):
                    ours, theirs = (
                        median.get(f"{name} {client}|{load.name}|{direction}") for name in ("Trainshed", peer)
                    )
                    if ours and theirs:
                        ratios[f"{load.name} {direction}, {client}{suffix}"] = theirs / ours
    return ratios


def main() -> None:
    """Measure and tell."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--files", type=int, default=10_000, help="files of 100 KB")
    parser.add_argument("--large", type=int, default=4, help="files of 256 MB")
    parser.add_argument("--clients", default="s5cmd,obstore")
    parser.add_argument("--weed", type=Path, help="the program of SeaweedFS, if it is installed already")
    parser.add_argument("--no-seaweedfs", action="store_true", help="leave SeaweedFS out")
    parser.add_argument("--synced", action="store_true", help="and a SeaweedFS that syncs every write")
    parser.add_argument("--obstore", nargs=3, help=argparse.SUPPRESS)
    add_json_option(parser)
    options = parser.parse_args()
    if options.obstore:
        way, folder, bucket = options.obstore
        asyncio.run(run_obstore(way, Path(folder), bucket))
        # The library's own threads sometimes outlive the interpreter and abort the process then.
        os._exit(0)
    machine = describe_machine()
    clients = options.clients.split(",")
    base = Path(tempfile.mkdtemp(prefix="bench-"))
    running: list[MeasuredStore] = []
    try:
        stores: list[MeasuredStore] = [TrainshedStore()]
        if not options.no_seaweedfs:
            weed = find_weed(options.weed, Path(__file__).parents[1] / ".cache")
            stores.append(SeaweedFS(weed))
            if options.synced:
                stores.append(SyncedSeaweedFS(weed))
        loads = []
        if options.files:
            loads.append(make_load(base / "data", "small", options.files, 100_000))
        if options.large:
            loads.append(make_load(base / "data", "large", options.large, 256_000_000))
        for store in stores:
            running.append(store.__enter__() and store)
        course = Course(base, stores, loads, clients)
        for number in range(options.rounds):
            course.run(number)
        ratios = show(course, loads, clients)
        memory = {store.name: store.peak_mb() for store in stores}
        print_table("Peak memory of the server (MB)", ["store", "MB"], memory.items())
        results = {"seconds": course.seconds, "ratios": ratios, "peak_memory_mb": memory}
        write_json(options.json, "objects", machine, results)
    finally:
        for store in running:
            store.__exit__(None, None, None)
        shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    main()
