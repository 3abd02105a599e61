from __future__ import annotations

import pytest

from trainshed.model.errors import InvalidInput, TooLarge
from trainshed.runner.environment.requirements import (
    check_requirements,
    choose_requirements,
    requirement_file_names,
)


def test_the_first_known_file_is_chosen() -> None:
    assert (
        choose_requirements(["train.py", "requirements.txt", "pip-requirements.txt"])
        == "pip-requirements.txt"
    )
    assert choose_requirements(["requirement.txt"]) == "requirement.txt"
    assert choose_requirements(["train.py"]) is None
    assert set(requirement_file_names()) == {
        "pip-requirements.txt",
        "pip-requirement.txt",
        "requirements.txt",
        "requirement.txt",
    }


def test_packages_and_comments() -> None:
    text = "\ufeff# a comment\r\nnumpy>=1.26  # why\n\ntorch==2.13.0 \\\n  --hash=sha256:aa\nx[y] ; python_version > '3'\n"
    checked = check_requirements(text)
    assert checked.text == "numpy>=1.26\ntorch==2.13.0    --hash=sha256:aa\nx[y] ; python_version > '3'\n"
    assert not checked.leaves_index
    assert check_requirements("# nothing\n").text == ""


@pytest.mark.parametrize("line", ["a @ https://example.invalid/a.whl", "git+https://example.invalid/a.git"])
def test_urls_leave_the_index(line: str) -> None:
    assert check_requirements(line).leaves_index


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("-e .", "not supported"),
        ("--editable ./x", "not supported"),
        ("-r other.txt", "not supported"),
        ("-rother.txt", "not supported"),
        ("./local", "is a path"),
        ("/etc", "is a path"),
        ("~/x", "is a path"),
        ("sub/folder", "is a path"),
        ("a @ file:///etc/passwd", "reached"),
        ("file:///etc/passwd", "reached"),
        ("a @ ssh://host/x", "reached"),
        ("git+ssh://git@host/x", "reached"),
        ("-i https://example.invalid/simple", "index of its own"),
        ("-ihttps://example.invalid/simple", "index of its own"),
        ("--index-url=https://example.invalid/simple", "index of its own"),
        ("--extra-index-url https://example.invalid/simple", "index of its own"),
        ("--find-links /etc", "index of its own"),
        ("--trusted-host example.invalid", "index of its own"),
        ("--config-settings x", "not supported"),
        ("a==${SECRET}", "variable"),
    ],
)
def test_lines_that_reach_elsewhere_are_refused(line: str, word: str) -> None:
    with pytest.raises(InvalidInput, match=word) as caught:
        check_requirements(f"numpy\n{line}\n")
    assert caught.value.where == "requirements line 2"
    assert caught.value.hint


def test_an_index_may_be_allowed_but_never_a_folder() -> None:
    assert check_requirements("-i https://example.invalid/simple\n", allow_index=True).leaves_index
    with pytest.raises(InvalidInput):
        check_requirements("--find-links /etc\n", allow_index=True)


def test_a_huge_file_is_refused() -> None:
    with pytest.raises(TooLarge):
        check_requirements("a\n" * 200_000)
