"""How folders of the machine are written, and which are allowed."""

from __future__ import annotations

import pytest

from trainshed.model.errors import InvalidInput
from trainshed.model.host_folder import find_allowed, host_url, parse_host_url
from trainshed.model.job_spec import parse_job_spec
from trainshed.model.settings import read_settings


def test_a_url_names_a_path_and_back() -> None:
    assert parse_host_url("file:///data/shared/x/") == "/data/shared/x"
    assert parse_host_url("file://localhost/data/a%20b%23") == "/data/a b#"
    assert parse_host_url(host_url("/data/a b#?é")) == "/data/a b#?é"


@pytest.mark.parametrize(
    "text",
    [
        "file://",
        "file:///",
        "file://data/x",
        "file://other-host/data",
        "file:///data/../etc",
        "file:///data/%2e%2e/etc",
        "file:///data/x%00",
        "file:///data?x=1",
        "file:///data#x",
        "file://[broken/data",
    ],
)
def test_what_is_no_plain_absolute_folder_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_host_url(text)
    with pytest.raises(InvalidInput, match=r"inputs\.data"):
        parse_job_spec({"command": "true", "inputs": {"data": text}})


def test_outputs_are_never_folders_of_the_machine() -> None:
    with pytest.raises(InvalidInput):
        parse_job_spec({"command": "true", "outputs": {"data": "file:///data/x/"}})


def test_a_folder_is_allowed_with_all_below_it_and_nothing_beside_it() -> None:
    allowed = ("/data/shared", "/mnt/sets")
    assert find_allowed("/data/shared", allowed) == ("/data/shared", ())
    assert find_allowed("/mnt/sets/a/b", allowed) == ("/mnt/sets", ("a", "b"))
    assert find_allowed("/data/shared-not", allowed) is None
    assert find_allowed("/data", allowed) is None
    assert find_allowed("/data/x", ()) is None


def test_the_setting_is_a_list_in_the_file_and_divided_by_colons_in_the_environment() -> None:
    assert read_settings({"host_folders": ["/data/a/", "/b"]}, {}, {}).host_folders == ("/data/a", "/b")
    variables = {"TRAINSHED_HOST_FOLDERS": "/data/a:/b"}
    assert read_settings({}, variables, {}).host_folders == ("/data/a", "/b")
    assert read_settings({}, {"TRAINSHED_HOST_FOLDERS": ""}, {}).host_folders == ()
    for wrong in (["relative"], ["/"], [3], 7, ["/data/.."]):
        with pytest.raises(InvalidInput):
            read_settings({"host_folders": wrong}, {}, {})
