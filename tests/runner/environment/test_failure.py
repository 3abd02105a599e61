from __future__ import annotations

import pytest

from trainshed.model.errors import Unavailable
from trainshed.runner.environment.failure import EnvironmentFailed, HeldErrors, explain_failure, needs_build

MISSING = """error: No solution found when resolving dependencies
  cause: Because no-such-thing was not found in the package registry and you require no-such-thing, we can conclude
"""
VERSION = """error: No solution found when resolving dependencies
  cause: Because there is no version of six==99 and you require six==99, we can conclude
"""
WHEELS = """error: No solution found when resolving dependencies
  cause: Because docopt==0.6.2 has no usable wheels and you require docopt==0.6.2, we can conclude

hint: Wheels are required for `docopt` because building from source is disabled for all packages (i.e., with `--no-build`)
"""


@pytest.mark.parametrize(
    ("output", "package", "words"),
    [
        (MISSING, "no-such-thing", "not in the package index"),
        (VERSION, "six", "six==99 does not exist"),
        (WHEELS, "docopt", "no wheel"),
        (
            "error: Failed to build `a==1.0`\n  x\n  ValueError: no moon\nhint: y\n",
            "a",
            "ValueError: no moon",
        ),
        ("error: Couldn't parse requirement\n  cause: Unexpected end", "", "parse requirement"),
        ("", "", "without a word"),
    ],
)
def test_the_package_and_the_reason_are_named(output: str, package: str, words: str) -> None:
    error = explain_failure(output)
    assert isinstance(error, EnvironmentFailed)
    assert error.package == package
    assert words in error.message
    assert "\n" not in error.message and error.hint and error.output == output


def test_an_index_out_of_reach_and_a_full_disk_are_not_the_users_fault() -> None:
    error = explain_failure(
        "error: Request failed\n  cause: Failed to fetch: https://a:b@index.invalid/x\n  cause: dns error"
    )
    assert isinstance(error, Unavailable) and "index.invalid" in error.message and "a:b" not in error.message
    assert explain_failure("error: write\n cause: No space left on device (os error 28)").code == "disk_full"


def test_only_a_lack_of_wheels_asks_for_a_build() -> None:
    assert needs_build(WHEELS)
    assert not needs_build(MISSING)


def test_errors_are_held_until_they_are_known_to_count() -> None:
    lines: list[bytes] = []
    held = HeldErrors(lines.append)
    for line in (b"a\n", b"error: x\n", b"  cause: y\n"):
        held(line)
    assert lines == [b"a\n"]
    held.release()
    assert lines == [b"a\n", b"error: x\n", b"  cause: y\n"]
