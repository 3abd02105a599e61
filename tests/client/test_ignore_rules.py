from __future__ import annotations

import pytest

from trainshed.client.ignore_rules import parse_ignore_rules


@pytest.mark.parametrize(
    ("pattern", "path", "is_folder", "ignored"),
    [
        ("*.pt", "model.pt", False, True),
        ("*.pt", "deep/down/model.pt", False, True),
        ("*.pt", "model.pth", False, False),
        ("/data", "data", True, True),
        ("/data", "src/data", True, False),
        ("data/", "data", False, False),
        ("data/", "src/data", True, True),
        ("src/*.txt", "src/a.txt", False, True),
        ("src/*.txt", "src/deep/a.txt", False, False),
        ("src/**/a.txt", "src/a.txt", False, True),
        ("src/**/a.txt", "src/x/y/a.txt", False, True),
        ("logs/**", "logs/x/y", False, True),
        ("run[0-9]", "run7", True, True),
        ("run[!0-9]", "run7", True, False),
        ("a?c", "abc", False, True),
        ("a?c", "a/c", False, False),
        (r"\#x", "#x", False, True),
        ("# only a comment", "only", False, False),
        ("[", "[", False, True),
        ("a+b(c", "a+b(c", False, True),
    ],
)
def test_pattern(pattern: str, path: str, is_folder: bool, ignored: bool) -> None:
    assert parse_ignore_rules(pattern).ignores(path, is_folder) is ignored


def test_defaults_hold_without_a_file() -> None:
    rules = parse_ignore_rules("")
    assert rules.ignores(".git", True)
    assert rules.ignores("src/__pycache__", True)
    assert rules.ignores(".venv", True)
    assert not rules.ignores("train.py", False)
    assert not rules.ignores(".github", True)


def test_the_last_matching_line_decides() -> None:
    rules = parse_ignore_rules("*.json\n!config.json\n")
    assert rules.ignores("a.json", False)
    assert not rules.ignores("config.json", False)
