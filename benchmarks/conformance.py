"""How much of the public S3 and OBS references does a store keep to?

Runs the table of `tests/api/obs/conformance` against our store and against a real SeaweedFS beside it, and prints for
each operation how many cases hold. SeaweedFS gets three identities: one with all rights on its own buckets, one that may
read and list them, and one with all rights on other buckets.

    .venv/bin/python benchmarks/conformance.py [--only CHAPTER] [--failures] [--weed FILE] [--json FILE] [--write-docs]

`--write-docs` writes the result to docs/obs-conformance.md.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from measured_store import SeaweedFS, find_weed
from report import add_json_option, describe_machine, print_table, say, write_json

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "api" / "obs" / "conformance"))

from s3_table import CHAPTERS, Case, Stage, Target, prepare, run_case  # noqa: E402
from s3_table.page import PAGE, render_page  # noqa: E402
from s3_table.signing import KeyPair  # noqa: E402


class GuardedSeaweedFS(SeaweedFS):
    """A SeaweedFS with users who may do different things."""

    users = ("dev", "viewer", "stranger")

    def pair(self, user: str) -> KeyPair:
        """The keys of a user."""
        return KeyPair(f"AK{user.upper():0<18}", f"{user}-secret-of-the-conformance-benchmark-0123")

    def command(self) -> list[str]:
        command = super().command()
        rights = {
            # Names that no bucket may have are refused for that, not for want of rights.
            "dev": ["Admin:co*", "Admin:-*", "Admin:192.168.*"],
            "viewer": ["Read:conf*", "List:conf*"],
            "stranger": ["Admin:else*"],
        }
        identities = [
            {
                "name": user,
                "credentials": [
                    {"accessKey": self.pair(user).access_key, "secretKey": self.pair(user).secret_key}
                ],
                "actions": actions,
            }
            for user, actions in rights.items()
        ]
        (self.folder / "s3.json").write_text(json.dumps({"identities": identities}))
        return [*command, "-s3.domainName=localhost"]


@contextmanager
def our_store() -> Iterator[Target]:
    """Our store process with the users of the tests."""
    loader = SourceFileLoader("store_server", str(ROOT / "tests" / "store_server.py"))
    shared = sys.modules["store_server"] = ModuleType("store_server")
    loader.exec_module(shared)
    folder = Path(tempfile.mkdtemp(prefix="conformance-"))
    server: Any = shared.make_server(folder)
    try:
        keys = {name: KeyPair(pair.access_key, pair.secret_key) for name, pair in server.keys.items()}
        yield Target("Trainshed", server.url, keys)
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def seaweedfs(weed: Path) -> Iterator[Target]:
    """A real SeaweedFS."""
    store = GuardedSeaweedFS(weed)
    with store:
        yield Target("SeaweedFS", store.url, {user: store.pair(user) for user in store.users})


def play(target: Target, only: str) -> dict[str, str]:
    """What is wrong with each case; nothing where it holds."""
    say(f"{target.name}: {target.url}")
    prepare(target)
    faults = {}
    cases = [case for chapter, cases in CHAPTERS.items() if only in ("", chapter) for case in cases]
    for number, case in enumerate(cases, 1):
        try:
            faults[str(case)] = run_case(case, Stage(target, number))
        except Exception as error:
            # A store that answers what its client cannot read, or does not answer, does not keep to the table.
            faults[str(case)] = f"{type(error).__name__}: {error}"
    target.close()
    return faults


def count(cases: list[Case], faults: dict[str, str]) -> int:
    """How many of the cases hold."""
    return sum(not faults[str(case)] for case in cases)


def main() -> None:
    """Play the table twice, and print both columns."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", choices=["", *CHAPTERS], metavar="CHAPTER")
    parser.add_argument("--failures", action="store_true", help="print every case that does not hold")
    parser.add_argument(
        "--weed", type=Path, metavar="FILE", help="the program of SeaweedFS; else it is installed"
    )
    parser.add_argument("--write-docs", action="store_true", help=f"write the result to {PAGE}")
    add_json_option(parser)
    options = parser.parse_args()
    machine = describe_machine()
    results = {}
    with our_store() as target:
        results[target.name] = play(target, options.only)
    with seaweedfs(find_weed(options.weed, ROOT / ".cache")) as target:
        results[target.name] = play(target, options.only)
    rows, totals = [], [0] * (1 + len(results))
    for chapter, cases in CHAPTERS.items():
        if options.only not in ("", chapter):
            continue
        for operation in dict.fromkeys(case.operation for case in cases):
            chosen = [case for case in cases if case.operation == operation]
            row = [len(chosen), *(count(chosen, faults) for faults in results.values())]
            rows.append((f"{chapter}: {operation}", *row))
            totals = [total + number for total, number in zip(totals, row, strict=True)]
    print_table("Cases that hold", ["operation", "cases", *results], [*rows, ("all", *totals)])
    if options.failures:
        for name, faults in results.items():
            print(f"\n{name} does not hold:")
            for case, fault in faults.items():
                if fault:
                    print(f"  {case}: {' '.join(fault.split())[:300]}")
    if options.write_docs and not options.only:
        (ROOT / PAGE).write_text(
            render_page({case: not fault for case, fault in results["SeaweedFS"].items()}), "utf-8"
        )
    write_json(options.json, "conformance", machine, results)


if __name__ == "__main__":
    main()
