"""How fast does a script copy its data out of the store, beside `cp -r` of the same files?

Inside a job, in turns: `mox.file.copy_parallel` from the store into /cache, and `cp -r` of the same objects, which the job
also has as an input. Both read the very same blobs, and before each turn these are dropped from the page cache (cold), or
read once (warm).

    .venv/bin/python benchmarks/copies.py [--files 10000] [--large 4] [--rounds 3] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path

from measured_platform import MeasuredPlatform
from report import add_json_option, describe_machine, print_table, say, write_json
from staging import make_files

from trainshed import Client
from trainshed.model.settings import Settings
from trainshed.services.identity import authenticate_token
from trainshed.services.platform import open_platform
from trainshed.store.transfer import upload_tree

_SCRIPT = """\
import json, os, shutil, subprocess, sys, time
import moxing as mox

words = dict(word.lstrip("-").split("=", 1) for word in sys.argv[1:])
source, rounds = words["data_url"], int(words["rounds"])

def visit(work):
    for folder, _, names in os.walk(source):
        for name in names:
            file = os.open(os.path.join(folder, name), os.O_RDONLY)
            work(file)
            os.close(file)

def drop(file):
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)

def warm(file):
    while os.read(file, 1 << 20):
        pass

ways = [
    ("copy_parallel", lambda target: mox.file.copy_parallel(words["url"], target)),
    ("cp -r", lambda target: subprocess.run(["cp", "-r", source, target], check=True)),
]
for number in range(rounds):
    for state, prepare in (("cold", drop), ("warm", warm)):
        for name, copy in ways if number % 2 == 0 else ways[::-1]:
            os.sync()
            visit(prepare)
            began = time.perf_counter()
            copy("/cache/target")
            seconds = time.perf_counter() - began
            count = sum(len(names) for _, _, names in os.walk("/cache/target"))
            print("RESULT " + json.dumps([name, state, seconds, count]), flush=True)
            shutil.rmtree("/cache/target")
"""


def fill_store(platform: MeasuredPlatform, token: str, source: Path, key: str) -> None:
    """Put files into a bucket of the administrator's workspace."""
    opened = open_platform(platform.home, Settings())
    try:
        if not opened.store.buckets():
            caller = authenticate_token(opened, token)
            opened.store.create_bucket("benchmark", caller.workspace_id)
        upload_tree(opened.store, source, "benchmark", key)
    finally:
        opened.close()


def run(client: Client, code: Path, key: str, count: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of every way, by its name."""
    job = client.submit(
        {
            "code": str(code),
            "boot": "bring.py",
            "flavor": "cpu.1",
            "inputs": {"data_url": f"obs://benchmark/{key}"},
            "parameters": {"url": f"obs://benchmark/{key}", "rounds": rounds},
        }
    )
    ended = client.wait(job.id, timeout=1800)
    text = b"".join(client.logs(job.id)).decode()
    if ended.phase != "Completed":
        raise RuntimeError(f"the job is {ended.phase}: {client.explain(job.id)}\n{text[-2000:]}")
    seconds: dict[str, list[float]] = {}
    for line in text.splitlines():
        if line.startswith("RESULT "):
            name, state, taken, found = json.loads(line.removeprefix("RESULT "))
            if found != count:
                raise RuntimeError(f"{name} brought {found} of {count} files")
            seconds.setdefault(f"{name}, {state}", []).append(taken)
    return seconds


def main() -> None:
    """Measure and tell."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, default=10_000, help="how many files of 100 KB")
    parser.add_argument("--large", type=int, default=4, help="how many files of 256 MB")
    parser.add_argument("--rounds", type=int, default=3)
    add_json_option(parser)
    options = parser.parse_args()
    machine = describe_machine()
    results: dict[str, dict[str, list[float]]] = {}
    with ExitStack() as stack:
        base = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-copies-")))
        base.chmod(0o755)
        code = base / "code"
        code.mkdir()
        (code / "bring.py").write_text(_SCRIPT)
        platform = stack.enter_context(MeasuredPlatform())
        client = stack.enter_context(platform.client())
        token = json.loads(platform.home.client.read_bytes())["token"]
        for name, count, size in (("small", options.files, 100_000), ("large", options.large, 256_000_000)):
            if not count:
                continue
            say(f"{count} files of {size / 1e6:g} MB")
            make_files(base / name, count, size)
            fill_store(platform, token, base / name, f"{name}/")
            found = results[name] = run(client, code, f"{name}/", count, options.rounds)
            rows: list[list[object]] = []
            for way, seconds in sorted(found.items()):
                middle = statistics.median(seconds)
                plain = statistics.median(found[f"cp -r, {way.rpartition(' ')[2]}"])
                rows.append([way, middle, count / middle, count * size / 1e6 / middle, plain / middle])
            head = ["way", "seconds", "files/s", "MB/s", "x cp -r"]
            print_table(f"{count} files of {size // 1000} KB ({options.rounds} rounds)", head, rows)
    write_json(options.json, "copies", machine, {"seconds": results})


if __name__ == "__main__":
    main()
