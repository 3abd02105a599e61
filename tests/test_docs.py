"""The documentation mentions everything there is, and its examples are real."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from trainshed.cli.main import COMMANDS
from trainshed.client.job_file import read_job_file
from trainshed.model.job_spec import JobSpec, parse_job_spec
from trainshed.model.phase import Detail, Phase
from trainshed.model.settings import Settings

ROOT = Path(__file__).resolve().parent.parent


def load_script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


check_docs = load_script("check_docs")


def table_rows(page: str) -> dict[str, list[str]]:
    """First cell (without backquotes) -> the other cells, of all tables of a page."""
    rows = {}
    for line in (ROOT / page).read_text("utf-8").splitlines():
        if line.startswith("|"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            for name in cells[0].split(", "):
                rows[name.strip("`")] = cells[1:]
    return rows


@pytest.mark.parametrize("field", JobSpec.model_fields)
def test_every_field_of_a_job_is_documented(field: str) -> None:
    assert field in table_rows("docs/job-file.md")
    assert field in (ROOT / "docs/examples/full.yaml").read_text("utf-8") or field == "command"


@pytest.mark.parametrize("field", dataclasses.fields(Settings), ids=lambda field: field.name)
def test_every_setting_is_documented_with_its_default(field: dataclasses.Field[Any]) -> None:
    row = table_rows("docs/settings.md").get(field.name)
    assert row is not None, f"docs/settings.md does not mention {field.name}"
    default = field.default
    shown = (
        str(default).lower()
        if isinstance(default, bool)
        else {"": "empty", (): "none"}.get(default, f"{default}")
    )
    assert row[0].strip("`") == shown


def test_no_setting_or_field_is_documented_that_does_not_exist() -> None:
    settings = {field.name for field in dataclasses.fields(Settings)}
    assert set(table_rows("docs/settings.md")) - settings <= {"setting", "---"}
    text = (ROOT / "docs/job-file.md").read_text("utf-8").split("## What a script finds")[0]
    named = set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))
    assert named == set(JobSpec.model_fields)


@pytest.mark.parametrize("phase", [*Phase, *(detail for detail in Detail if detail)])
def test_every_phase_and_detail_is_documented(phase: str) -> None:
    assert str(phase) in (ROOT / "docs/job-states.md").read_text("utf-8")


def test_every_dependency_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    lists = [project["dependencies"], *project["optional-dependencies"].values()]
    names = {re.split(r"[\[<>=~! ]", entry, maxsplit=1)[0] for entries in lists for entry in entries}
    documented = set(table_rows("docs/dependencies.md"))
    assert names <= documented, f"no reason for {sorted(names - documented)}"


@pytest.mark.parametrize(
    "path", sorted((ROOT / "docs" / "examples").glob("*.yaml")), ids=lambda path: path.name
)
def test_the_examples_of_job_files_are_jobs(path: Path) -> None:
    spec = parse_job_spec(read_job_file(path))
    assert not spec.code or (Path(spec.code) / spec.boot).is_file()


def test_the_example_of_settings_is_one(tmp_path: Path) -> None:
    from trainshed.model.settings import read_settings

    text = (ROOT / "docs/settings.md").read_text("utf-8")
    block = re.search(r"```toml\n(.*?)```", text, re.DOTALL)
    assert block is not None
    settings = read_settings(tomllib.loads(block[1]), {}, {})
    assert settings.engines[0].name == "vision"


def test_every_command_that_the_documentation_uses_exists() -> None:
    commands = {name for section in COMMANDS.values() for name in section}
    for page in check_docs.list_pages(ROOT):
        for used in re.findall(r"(?m)^\s*trainshed ([a-z]+)\b", page.read_text("utf-8")):
            assert used in commands, f"{page.name}: trainshed {used}"


def test_the_pages_have_no_fault() -> None:
    faults = [fault for page in check_docs.list_pages(ROOT) for fault in check_docs.check_page(page, ROOT)]
    assert faults + check_docs.check_twins(ROOT) + check_docs.check_lists(ROOT) == []


def test_the_check_finds_faults(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(
        "# One\n[good](b.md#two-words) [gone](c.md) [no](b.md#three) [out](../../x.md)\nsee /root/secret/place\n"
        "```\n[not a link](nowhere.md)\n```\n"
    )
    (tmp_path / "b.md").write_text("# Two *words*\n")
    (tmp_path / "README.md").write_text("# A\n## B\n")
    (tmp_path / "README.zh-CN.md").write_text("# A\n")
    faults = check_docs.check_page(tmp_path / "a.md", tmp_path)
    assert len(faults) == 4, faults
    assert check_docs.check_twins(tmp_path) == ["README.md and README.zh-CN.md have different chapters"]
    (tmp_path / "README.zh-CN.md").write_text("# A\n## B\n```sh\ntrainshed up\n```\n")
    (tmp_path / "README.md").write_text("# A\n## B\n```sh\ntrainshed up   # other words\n```\n")
    assert check_docs.check_twins(tmp_path) == []
    (tmp_path / "README.md").write_text("# A\n## B\n```sh\ntrainshed down\n```\n")
    assert check_docs.check_twins(tmp_path) == ["README.md and README.zh-CN.md show different commands"]
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("[x](named.md#part)\n")
    for name in ("named.md", "forgotten.md"):
        (tmp_path / "docs" / name).write_text("# Part\n")
    assert check_docs.check_lists(tmp_path) == ["docs/index.md does not mention forgotten.md"]


def test_the_service_unit_leaves_runners_alone() -> None:
    unit = (ROOT / "deploy/trainshed.service").read_text("utf-8")
    assert "\nKillMode=process\n" in unit and "\nDelegate=yes\n" in unit


def test_the_map_shows_every_room() -> None:
    rooms = {path.parent.name for path in (ROOT / "src" / "trainshed").glob("*/__init__.py")}
    assert rooms <= {name.rstrip("/") for name in table_rows("ARCHITECTURE.md")}
