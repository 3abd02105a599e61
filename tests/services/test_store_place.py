"""Where a home keeps its objects, and that it stays there."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from trainshed.daemon.home_folder import platform_environment
from trainshed.model.errors import Conflict, HostUnfit, InvalidInput
from trainshed.model.home import Home
from trainshed.model.settings import Settings, read_settings
from trainshed.services.store_place import check_store_settings, external_address, find_store, settle_store
from trainshed.store import open_store
from trainshed.store.external.address import read_credentials

SETTINGS = Settings(
    store_url="s3://lab/shed",
    store_endpoint="http://127.0.0.1:1",
    store_access_key="access",
    store_secret_key="very-secret",
)


def test_a_home_without_a_word_keeps_its_objects_itself(home: Home) -> None:
    assert find_store(home, Settings()) == f"file://{home.store}" and external_address(home) is None
    assert not home.external_store.exists()


def test_a_home_remembers_its_external_store_and_the_keys(home: Home) -> None:
    url = find_store(home, SETTINGS)
    assert "very-secret" not in url and "access" not in url.replace("store_access", "")
    assert stat.S_IMODE(home.external_store.stat().st_mode) == 0o600
    address = external_address(home)
    assert address is not None and (address.place, address.endpoint) == (
        "s3://lab/shed",
        "http://127.0.0.1:1",
    )
    assert read_credentials(address).secret_key == "very-secret"
    # Without any settings it is still the same one; with new keys those count.
    assert find_store(home, Settings()) == url
    settle_store(home, Settings(store_url="s3://lab/shed/", store_access_key="a2", store_secret_key="s2"))
    assert read_credentials(address).secret_key == "s2"
    open_store(url).close()


@pytest.mark.parametrize("place", ["s3://lab", "s3://lab/other", "s3://another/shed"])
def test_a_home_does_not_change_its_store(home: Home, place: str) -> None:
    find_store(home, SETTINGS)
    before = home.external_store.read_bytes()
    with pytest.raises(Conflict, match="s3://lab/shed"):
        settle_store(home, Settings(store_url=place, store_access_key="a", store_secret_key="s"))
    assert home.external_store.read_bytes() == before


def test_a_home_with_objects_of_its_own_keeps_them(home: Home) -> None:
    open_store(find_store(home, Settings())).close()
    with pytest.raises(Conflict, match="keeps its objects in"):
        settle_store(home, SETTINGS)
    assert not home.external_store.exists()


def test_a_damaged_record_is_told(home: Home) -> None:
    home.external_store.write_text("{")
    with pytest.raises(HostUnfit):
        find_store(home, Settings())


def test_settings_that_could_only_fail_later_are_refused(home: Home) -> None:
    check_store_settings(Settings())
    check_store_settings(SETTINGS)
    for wrong in (
        {"store_url": "lab"},
        {"store_endpoint": "host"},
        {"store_secret_key": ""},
        {"quota_gb": 5},
        {"quota_objects": 5},
    ):
        given = {**{name: getattr(SETTINGS, name) for name in Settings.__dataclass_fields__}, **wrong}
        with pytest.raises(InvalidInput):
            check_store_settings(Settings(**given))
    with pytest.raises(InvalidInput, match="needs keys"):
        settle_store(home, Settings(store_url="s3://lab/shed"))


def test_keys_come_from_file_and_variables_and_go_to_no_process(tmp_path: Path) -> None:
    variables = {
        "TRAINSHED_STORE_SECRET_KEY": "very-secret",
        "TRAINSHED_STORE_URL": "s3://lab",
        "PATH": "/bin",
    }
    settings = read_settings({"store_access_key": "access"}, variables, {})
    assert (settings.store_access_key, settings.store_secret_key) == ("access", "very-secret")
    passed = platform_environment(variables, settings)
    assert "very-secret" not in json.dumps(passed) and "access" not in passed.values()
    assert (passed["TRAINSHED_STORE_URL"], passed["PATH"]) == ("s3://lab", "/bin")
