"""The sudo rule: exactly these lines. That sudo obeys them is tried in tests/test_slurm_accounts.py."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from trainshed.engines.slurm.sudo_rule import render_sudo_rule, takes_expressions
from trainshed.model.errors import InvalidInput
from trainshed.model.settings import read_settings

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("name", ["sudoers", "sudoers-old"])
def test_the_rule_is_what_was_reviewed(name: str) -> None:
    rule = render_sudo_rule(
        "trainshed",
        ["bob", "al", "bob"],
        ["lab"],
        configuration="/etc/slurm/slurm.conf",
        expressions=name == "sudoers",
    )
    assert rule == (GOLDEN / name).read_text()


def test_the_guide_shows_the_rule_and_settings_that_can_be_read() -> None:
    page = (Path(__file__).parents[3] / "docs/slurm.md").read_text("utf-8")
    lines = [line for line in render_sudo_rule("trainshed", ["al"]).splitlines() if not line.startswith("#")]
    assert "\n".join(lines) in page
    blocks = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    assert blocks
    for block in blocks:
        assert read_settings(tomllib.loads(block), {}, {}).pools


def test_without_a_variable_none_passes_but_the_token() -> None:
    rule = render_sudo_rule("trainshed", ["al"])
    assert 'env_keep += "TRAINSHED_RUNNER_TOKEN"' in rule and "SLURM_CONF" not in rule
    assert "SETENV" in rule and " SETENV" not in rule


@pytest.mark.parametrize(
    ("accounts", "more"),
    [
        (["root"], {}),
        (["ALL"], {}),
        (["al) ALL"], {}),
        (["al\nroot"], {}),
        ([], {}),
        (["al"], {"sbatch": "/opt/my slurm/sbatch"}),
        (["al"], {"configuration": '/etc/x" , SHELL'}),
        (["al"], {"groups": ["a,b"]}),
    ],
)
def test_what_would_open_more_is_refused(accounts: list[str], more: dict[str, str]) -> None:
    with pytest.raises(InvalidInput):
        render_sudo_rule("trainshed", accounts, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("version", "is_new"),
    [("Sudo version 1.9.13p3", True), ("Sudo version 1.9.5p2", False), ("1.10.0", True), ("", False)],
)
def test_old_versions_of_sudo_get_patterns(version: str, is_new: bool) -> None:
    assert takes_expressions(version) is is_new
