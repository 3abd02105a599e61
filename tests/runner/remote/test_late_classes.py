"""Dataclasses that get their methods late, and modules that are loaded late, are the same to whoever uses them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import trainshed

CLASSES = """
import dataclasses, sys, threading
from trainshed.runner.remote.late_classes import put_off_methods

put_off_methods()
from dataclasses import KW_ONLY, InitVar, asdict, dataclass, field, fields, is_dataclass, replace
from typing import ClassVar


@dataclass(frozen=True)
class Base:
    one: int
    several: tuple = ()
    named: dict = field(default_factory=dict)


@dataclass(frozen=True)
class More(Base):
    last: int = 3


@dataclass(order=True)
class Counted:
    '''It does something of its own.'''

    number: int = 3

    def __post_init__(self):
        self.twice = 2 * self.number


class Plain(Base):
    def __init__(self):
        super().__init__(7)


@dataclass
class Unusual:
    kind: "ClassVar[str]" = "unusual"
    given: "InitVar[int]"
    _: "KW_ONLY"
    kept: "int" = 0

    def __post_init__(self, given):
        self.kept += given


@dataclass(frozen=True, slots=True)
class Slim:
    one: int


print("__repr__" in vars(More), is_dataclass(Base), "__repr__" in vars(More))
more = More(1, (2,))
print(more, more == More(1, (2,)), more != More(1), "__repr__" in vars(More))
print(replace(more, last=4), asdict(more), [each.name for each in fields(More)], Base(1) == Base(1))
print(Counted(5).twice, Counted() < Counted(4), Plain(), Slim(1), hash(Base(1, named=())) == hash(Base(1, named=())))
print(Unusual(2, kept=3), [each.name for each in fields(Unusual)], Unusual.kind)
match more:
    case More(one, several):
        print(one, several)
for wrong in (lambda: setattr(more, "one", 2), lambda: Base(), lambda: Base(1, colour=2)):
    try:
        wrong()
    except (dataclasses.FrozenInstanceError, TypeError) as fault:
        print(type(fault).__name__, fault)


@dataclass
class Shared:
    number: int


made = []
threads = [threading.Thread(target=lambda: made.append(Shared(number=1))) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(made), all(each == Shared(1) for each in made))
"""
MODULES = """
import sys
from trainshed.runner.remote.late_library import put_off

put_off()
import dataclasses, pathlib, shutil
print(type(sys.modules["lzma"]).__name__, type(sys.modules["zlib"]).__name__)
import zlib
print(zlib.decompress(zlib.compress(b"whole")), type(sys.modules["zlib"]).__name__)
import inspect
print(inspect.signature(pathlib.Path.touch))
from ipaddress import ip_address
print(ip_address("127.0.0.1").is_loopback)
try:
    inspect.no_such_name
except AttributeError as fault:
    print(fault)
"""


def test_late_classes_are_the_same_to_whoever_uses_them() -> None:
    assert run(CLASSES) == [
        "False True False",
        "More(one=1, several=(2,), named={}, last=3) True True True",
        "More(one=1, several=(2,), named={}, last=4) {'one': 1, 'several': (2,), 'named': {}, 'last': 3} "
        "['one', 'several', 'named', 'last'] True",
        "10 True Plain(one=7, several=(), named={}) Slim(one=1) True",
        "Unusual(kept=5) ['kept'] unusual",
        "1 (2,)",
        "FrozenInstanceError cannot assign to field 'one'",
        "TypeError Base.__init__() missing 1 required positional argument: 'one'",
        "TypeError Base.__init__() got an unexpected keyword argument 'colour'",
        "8 True",
    ]


def test_late_modules_are_there_when_they_are_used() -> None:
    assert run(MODULES) == [
        "_LateModule _LateModule",
        "b'whole' module",
        "(self, mode=438, exist_ok=True)",
        "True",
        "module 'inspect' has no attribute 'no_such_name'",
    ]


def run(program: str) -> list[str]:
    # As runners are started: without what else is installed, which may have loaded anything.
    done = subprocess.run(
        [sys.executable, "-S", "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(trainshed.__file__).parents[1])},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
