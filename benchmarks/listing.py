"""Does a page of a listing cost what the page holds, or what the bucket holds?

One bucket each of 1,000, 100,000 and 1,000,000 keys in one store; the first page of 1,000 keys and one from deep
inside, with and without a delimiter, from the store itself and over HTTP.

    .venv/bin/python benchmarks/listing.py [--sizes 1000,100000,1000000] [--rounds 15] [--json FILE]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from measured_store import TrainshedStore
from report import add_json_option, describe_machine, print_table, say, summarize, write_json

from trainshed.client.objects import ObjectClient
from trainshed.store.embedded.store import EmbeddedStore

PAGE = 1000
_BATCH = 20_000


def fill(store: EmbeddedStore, bucket: str, count: int) -> None:
    """Keys as a dataset has them: folders of 1,000 files. The index is the same as with uploads."""
    insert = (
        "INSERT INTO objects (bucket_id, key, blob, size, md5, sha256, content_type, metadata, modified_at)"
        f" VALUES ((SELECT id FROM buckets WHERE name = '{bucket}'), ?, '', 107000,"
        " 'd41d8cd98f00b204e9800998ecf8427e', '', 'application/octet-stream', '', 1.0)"
    )
    for start in range(0, count, _BATCH):
        rows = [
            (f"train/{n // 1000:05}/{n:09}.jpg".encode(),) for n in range(start, min(count, start + _BATCH))
        ]
        store._transactions.write(lambda c, rows=rows: c.executemany(insert, rows))  # type: ignore[misc]


def measure(work: Callable[[], object], rounds: int) -> list[float]:
    """Milliseconds of each round, after one that does not count."""
    work()
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        times.append((time.perf_counter() - began) * 1000)
    return times


def main() -> None:
    """Measure and tell."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", default="1000,100000,1000000", help="keys of the buckets, comma-separated")
    parser.add_argument("--rounds", type=int, default=15)
    add_json_option(parser)
    options = parser.parse_args()
    sizes = [int(size) for size in options.sizes.split(",")]
    machine = describe_machine()
    results: dict[str, dict[str, dict[str, float]]] = {}
    server = TrainshedStore()
    with server, ObjectClient(server.url, server.token) as client:
        store = EmbeddedStore(server.home.store)
        for size in sizes:
            say(f"filling a bucket with {size} keys")
            client.make_bucket(f"keys-{size}")
            fill(store, f"keys-{size}", size)
        times: dict[tuple[str, int], list[float]] = {}
        for _ in range(options.rounds):
            for size in sizes:
                bucket = f"keys-{size}"
                deep = f"train/{size // 2 // 1000:05}/{size // 2 - 1:09}.jpg" if size > PAGE else ""
                for way, work in {
                    "store, first page": lambda b=bucket: store.list(b),
                    "store, deep page": lambda b=bucket, a=deep: store.list(b, after=a),
                    "store, folders": lambda b=bucket: store.list(b, "train/", delimiter="/"),
                    "HTTP, first page": lambda b=bucket: client.list(b),
                    "HTTP, deep page": lambda b=bucket, a=deep: client.list(b, after=a),
                }.items():
                    times.setdefault((way, size), []).extend(measure(work, 1))
        store.close()
    rows = []
    for way in dict.fromkeys(way for way, _ in times):
        results[way] = {str(size): summarize(times[way, size]) for size in sizes}
        medians = [results[way][str(size)]["median"] for size in sizes]
        rows.append([way, *medians, max(medians[1:]) / medians[0] if way != "store, folders" else None])
    head = ["page of 1,000 keys (ms, median)", *(f"{size:,} keys" for size in sizes), "ratio"]
    print_table("A page of a listing", head, rows)
    print("  (folders: 1, 100 and 1,000 of them, so that the page itself grows)")
    write_json(options.json, "listing", machine, results)


if __name__ == "__main__":
    main()
