"""The first start can die at any moment and be repeated."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from trainshed.db.engine import read
from trainshed.db.users import list_users
from trainshed.db.workspaces import list_workspaces
from trainshed.model.errors import HostUnfit, NotFound
from trainshed.services import setup
from trainshed.services.access_keys import authenticate_access_key
from trainshed.services.identity import authenticate_token
from trainshed.services.platform import Platform
from trainshed.services.sessions import sign_in_with_link
from trainshed.services.setup import finish_first_start, first_start, issue_admin_access
from trainshed.services.vault import seal, unseal


def test_the_first_start_makes_an_administrator_who_can_begin(platform: Platform) -> None:
    made = first_start(platform)
    assert made is not None
    caller = authenticate_token(platform, made.token)
    assert (caller.is_admin, caller.user_name, caller.workspace_id) == (True, "admin", made.workspace_id)
    assert authenticate_access_key(platform, made.access_key).secret_key == made.secret_key
    assert sign_in_with_link(platform, made.login_code).caller == caller
    with read(platform.engine) as connection:
        assert [(space.name, space.number) for space in list_workspaces(connection)] == [("default", 1)]
    assert stat.S_IMODE(platform.home.master_key.stat().st_mode) == 0o600
    assert stat.S_IMODE((platform.home.run / "first-start.json").stat().st_mode) == 0o600


def test_a_start_that_died_hands_over_the_same_at_the_next_try(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> bool:
        raise KeyboardInterrupt

    # Dead before anything reached the database.
    with monkeypatch.context() as patch:
        patch.setattr(setup, "_store", die)
        with pytest.raises(KeyboardInterrupt):
            first_start(platform)
    made = first_start(platform)
    assert made is not None
    authenticate_token(platform, made.token)
    # Dead before the credentials were handed over.
    assert first_start(platform) == made
    finish_first_start(platform)
    assert first_start(platform) is None


def test_credentials_are_forgotten_once_the_command_line_has_them(platform: Platform) -> None:
    assert first_start(platform) is not None
    platform.home.client.write_text("{}")
    assert first_start(platform) is None
    platform.home.client.unlink()
    assert first_start(platform) is None


def test_a_torn_file_of_an_earlier_try_is_replaced(platform: Platform) -> None:
    platform.home.run.mkdir(exist_ok=True)
    (platform.home.run / "first-start.json").write_text('{"user_name": "adm')
    made = first_start(platform)
    assert made is not None
    authenticate_token(platform, made.token)
    assert first_start(platform) == made


def test_many_first_starts_at_once_make_one_administrator(platform: Platform) -> None:
    with ThreadPoolExecutor(5) as pool:
        made = list(pool.map(lambda _: first_start(platform), range(5)))
    with read(platform.engine) as connection:
        assert [user.name for user in list_users(connection)] == ["admin"]
    for one in made:
        assert one is not None
        authenticate_token(platform, one.token)


def test_whoever_owns_the_home_gets_back_in(platform: Platform) -> None:
    with pytest.raises(NotFound):
        issue_admin_access(platform)
    first_start(platform)
    again = issue_admin_access(platform)
    assert authenticate_token(platform, again.token).is_admin
    assert sign_in_with_link(platform, again.login_code).caller.is_admin


def test_secrets_open_only_with_their_key_and_purpose(platform: Platform) -> None:
    first_start(platform)
    sealed = seal(platform, b"geheim", "a")
    assert b"geheim" not in sealed
    assert sealed != seal(platform, b"geheim", "a")
    assert unseal(platform, sealed, "a") == b"geheim"
    for damaged, purpose in (
        (sealed, "b"),
        (sealed[:-1], "a"),
        (b"", "a"),
        (b"\x01", "a"),
        (sealed[:-1] + bytes([sealed[-1] ^ 1]), "a"),
    ):
        with pytest.raises(HostUnfit):
            unseal(platform, damaged, purpose)


def test_a_lost_master_key_is_not_replaced(platform: Platform) -> None:
    first_start(platform)
    platform.home.master_key.unlink()
    with pytest.raises(HostUnfit, match="missing") as refusal:
        seal(platform, b"x", "a")
    assert "backup" in refusal.value.hint
    assert not platform.home.master_key.exists()
    platform.home.master_key.write_bytes(b"short")
    with pytest.raises(HostUnfit, match="damaged"):
        seal(platform, b"x", "a")
