from __future__ import annotations

import stat
from pathlib import Path

import pytest

from trainshed.client.connection import Connection, connection_file, find_connection, save_connection
from trainshed.model.errors import InvalidInput, NotAuthenticated, NotFound


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    save_connection(Connection("http://here:1", "http://here:2", "tsh_saved"), tmp_path)
    return {"TRAINSHED_HOME": str(tmp_path)}


def test_saved_file_is_private_and_comes_back(home: dict[str, str]) -> None:
    assert find_connection(environment=home) == Connection("http://here:1", "http://here:2", "tsh_saved")
    path = connection_file(environment=home)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]


def test_environment_goes_before_the_file(home: dict[str, str]) -> None:
    environment = home | {"TRAINSHED_URL": "http://there:1/", "TRAINSHED_TOKEN": "tsh_other"}
    assert find_connection(environment=environment) == Connection("http://there:1", "", "tsh_other")


def test_named_home_goes_before_the_environment(home: dict[str, str], tmp_path: Path) -> None:
    environment = {"TRAINSHED_URL": "http://there:1", "TRAINSHED_TOKEN": "tsh_other"}
    assert find_connection(home=tmp_path, environment=environment).token == "tsh_saved"


def test_saved_token_never_goes_to_another_address(home: dict[str, str]) -> None:
    with pytest.raises(NotAuthenticated, match="belongs to http://here:1"):
        find_connection("http://evil:1", environment=home)
    assert find_connection("http://here:1/", environment=home).token == "tsh_saved"


def test_without_a_platform_the_next_step_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotFound) as fault:
        find_connection(environment={"TRAINSHED_HOME": str(tmp_path)})
    assert "trainshed up" in fault.value.hint
    assert "trainshed login" in fault.value.hint


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"url": "http://x"}', "null"])
def test_damaged_file_is_explained(tmp_path: Path, text: str) -> None:
    (tmp_path / "client.json").write_text(text)
    with pytest.raises(InvalidInput, match="damaged"):
        find_connection(environment={"TRAINSHED_HOME": str(tmp_path)})


def test_url_without_scheme_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="not the URL"):
        find_connection("localhost:7480", "tsh_x", environment={})


def test_token_is_not_shown() -> None:
    assert "tsh_secret" not in repr(Connection("http://x", "", "tsh_secret"))
