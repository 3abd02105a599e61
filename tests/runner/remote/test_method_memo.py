"""Dataclasses whose methods were compiled before are the same as ever."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import dataclasses, sys
from trainshed.runner.remote.method_memo import use_memo, write_memo

folder, what = sys.argv[1:]
if what == "write":
    write_memo(folder)
    sys.exit()
use_memo(folder)
compiled = []
sys.addaudithook(lambda event, given: compiled.append(given) if event == "compile" else None)
from trainshed.model.launch_plan import InputFolder, NodeLaunch, learn_types, to_json

item = InputFolder("data", "bucket", "key/", "/in")
methods = len([each for each in compiled if each[0] is not None and b"__create_fn__" in bytes(str(each[0]), "utf-8")])
compiled.clear()
learn_types(NodeLaunch)
print(methods, len(compiled))
print(item == InputFolder(**to_json(item)), hash(item) == hash(dataclasses.replace(item)), item)
try:
    item.name = "other"
except dataclasses.FrozenInstanceError:
    print("frozen")

@dataclasses.dataclass(order=True)
class Unknown:
    number: int = 3

print(Unknown() < Unknown(4), Unknown())
"""
SHOWN = "InputFolder(name='data', bucket='bucket', key='key/', path='/in', host_path='')"


def test_methods_come_from_the_memo_and_are_the_same(tmp_path: Path) -> None:
    run(tmp_path, "write")
    lines = run(tmp_path, "use")
    assert lines == ["0 0", f"True True {SHOWN}", "frozen", "True Unknown(number=3)"]


def test_without_a_memo_or_with_a_torn_one_all_is_as_ever(tmp_path: Path) -> None:
    expected = [f"True True {SHOWN}", "frozen", "True Unknown(number=3)"]
    assert run(tmp_path, "use")[1:] == expected
    (tmp_path / f"methods.{sys.implementation.cache_tag}").write_bytes(b"torn")
    assert run(tmp_path, "use")[1:] == expected


def run(folder: Path, what: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder), what],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
