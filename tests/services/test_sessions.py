"""Signing in to the console."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from trainshed.model.errors import NotAllowed, NotAuthenticated, NotFound
from trainshed.services import sessions, tokens, users
from trainshed.services.identity import Caller, authenticate_token
from trainshed.services.platform import Platform


def test_a_login_link_works_once(platform: Platform, ann: Caller) -> None:
    code = sessions.create_login_link(platform, ann)
    opened = sessions.sign_in_with_link(platform, code)
    session = sessions.authenticate_session(platform, opened.cookie)
    assert session.caller == opened.caller == ann
    with pytest.raises(NotAuthenticated) as refusal:
        sessions.sign_in_with_link(platform, code)
    assert refusal.value.code == "bad_login_link"
    for wrong in ("", "x", "\0", "\ud800"):
        with pytest.raises(NotAuthenticated):
            sessions.sign_in_with_link(platform, wrong)
        with pytest.raises(NotAuthenticated):
            sessions.authenticate_session(platform, wrong)


def test_of_two_who_use_a_link_at_once_one_gets_in(platform: Platform, ann: Caller) -> None:
    code = sessions.create_login_link(platform, ann)

    def sign_in(_: int) -> bool:
        try:
            sessions.sign_in_with_link(platform, code)
        except NotAuthenticated:
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(sign_in, range(6))) == 1


def test_links_and_sessions_expire(platform: Platform, ann: Caller, clock) -> None:  # type: ignore[no-untyped-def]
    code = sessions.create_login_link(platform, ann)
    opened = sessions.sign_in_with_link(platform, sessions.create_login_link(platform, ann))
    clock.now += sessions.LINK_SECONDS + 1
    with pytest.raises(NotAuthenticated):
        sessions.sign_in_with_link(platform, code)
    sessions.authenticate_session(platform, opened.cookie)
    clock.now += sessions.SESSION_SECONDS
    with pytest.raises(NotAuthenticated):
        sessions.authenticate_session(platform, opened.cookie)


def test_only_an_administrator_makes_links_for_others(
    platform: Platform, admin: Caller, ann: Caller, bob: Caller
) -> None:
    with pytest.raises(NotAllowed):
        sessions.create_login_link(platform, bob, "ann")
    with pytest.raises(NotAllowed):
        sessions.create_login_link(platform, bob, "nobody")
    with pytest.raises(NotFound):
        sessions.create_login_link(platform, admin, "nobody")
    narrow = authenticate_token(
        platform, tokens.create_token(platform, ann, "n", ["jobs:*", "account:write"]).token
    )
    with pytest.raises(NotAllowed):
        sessions.create_login_link(platform, narrow)
    code = sessions.create_login_link(platform, admin, "ann")
    assert sessions.sign_in_with_link(platform, code).caller.user_name == "ann"


def test_forms_carry_the_sessions_own_token(platform: Platform, ann: Caller) -> None:
    one = sessions.sign_in_with_link(platform, sessions.create_login_link(platform, ann))
    two = sessions.sign_in_with_link(platform, sessions.create_login_link(platform, ann))
    session = sessions.authenticate_session(platform, one.cookie)
    sessions.check_csrf(session, one.csrf)
    for wrong in ("", two.csrf, one.cookie, "\ud800"):
        with pytest.raises(NotAllowed):
            sessions.check_csrf(session, wrong)


def test_signing_out_ends_one_session(platform: Platform, ann: Caller) -> None:
    one = sessions.sign_in_with_link(platform, sessions.create_login_link(platform, ann))
    two = sessions.sign_in_with_link(platform, sessions.create_login_link(platform, ann))
    sessions.sign_out(platform, one.cookie)
    with pytest.raises(NotAuthenticated):
        sessions.authenticate_session(platform, one.cookie)
    sessions.authenticate_session(platform, two.cookie)


def test_a_session_moves_only_into_workspaces_of_its_user(
    platform: Platform, make_caller, bob: Caller
) -> None:  # type: ignore[no-untyped-def]
    ann = make_caller("ann", "developer", "red")
    green = make_caller("ann", "viewer", "green")
    opened = sessions.sign_in_with_link(platform, sessions.create_login_link(platform, ann))
    moved = sessions.switch_workspace(platform, opened.cookie, green.workspace_id)
    assert (moved.caller.workspace_id, moved.caller.role) == (green.workspace_id, "viewer")
    for wrong in (bob.workspace_id, "", "\0"):
        with pytest.raises(NotFound):
            sessions.switch_workspace(platform, opened.cookie, wrong)


def test_passwords(platform: Platform, admin: Caller, ann: Caller) -> None:
    users.set_password(platform, admin, "ann", "correct horse")
    assert sessions.sign_in_with_password(platform, "ann", "correct horse").caller == ann
    token = sessions.token_for_password(platform, "ann", "correct horse", "red").token
    assert authenticate_token(platform, token).user_id == ann.user_id
    with pytest.raises(NotFound):
        sessions.token_for_password(platform, "ann", "correct horse", "default")
    for name, password in (
        ("ann", "wrong horse"),
        ("ann", ""),
        ("nobody", "correct horse"),
        ("a\0", "x"),
        ("ann", "\ud800"),
        ("admin", ""),
    ):
        with pytest.raises(NotAuthenticated) as refusal:
            sessions.sign_in_with_password(platform, name, password)
        assert refusal.value.code == "bad_password"


def test_guessing_is_stopped_for_a_while(platform: Platform, admin: Caller, clock) -> None:  # type: ignore[no-untyped-def]
    users.create_user(platform, admin, "guessed", "correct horse")
    for _ in range(10):
        with pytest.raises(NotAuthenticated):
            sessions.sign_in_with_password(platform, "guessed", "x")
    with pytest.raises(NotAuthenticated) as refusal:
        sessions.sign_in_with_password(platform, "guessed", "correct horse")
    assert refusal.value.code == "too_many_attempts"
    clock.now += 301
    with pytest.raises(NotAllowed):
        # The right password at last; but the user belongs to no workspace.
        sessions.sign_in_with_password(platform, "guessed", "correct horse")
