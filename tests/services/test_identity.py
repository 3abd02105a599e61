"""Credentials: only the right ones, only as long as they are valid."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import text

from trainshed.db.engine import begin, read
from trainshed.model.errors import InvalidInput, NotAllowed, NotAuthenticated, NotFound
from trainshed.model.phase import Phase
from trainshed.services import access_keys, sessions, tokens, users, workspaces
from trainshed.services.access_keys import authenticate_access_key
from trainshed.services.identity import Caller, authenticate_token
from trainshed.services.job_credentials import create_job_credentials, revoke_job_credentials
from trainshed.services.jobs import JobView
from trainshed.services.platform import Platform


def test_unknown_tokens_are_refused(platform: Platform, admin: Caller) -> None:
    for token in ("", "tsh_", "tsh_" + "x" * 43, "x" * 47, "tsh_\0", "tsh_\ud800", "tsh_" + "y" * 100_000):
        with pytest.raises(NotAuthenticated):
            authenticate_token(platform, token)


def test_a_token_acts_for_its_user_until_it_expires(platform: Platform, ann: Caller, clock) -> None:  # type: ignore[no-untyped-def]
    made = tokens.create_token(platform, ann, "laptop", ["jobs:read", "objects:*"], days=2)
    assert made.token.startswith("tsh_")
    assert made.token not in repr(made)
    caller = authenticate_token(platform, made.token)
    assert (caller.user_name, caller.workspace_id, caller.role) == ("ann", ann.workspace_id, "developer")
    assert caller.scopes == {"jobs:read", "objects:*"}
    clock.now += 2 * 86400 - 1
    authenticate_token(platform, made.token)
    clock.now += 1
    with pytest.raises(NotAuthenticated) as refusal:
        authenticate_token(platform, made.token)
    assert refusal.value.code == "token_expired"


def test_a_token_is_stored_as_a_hash_only(platform: Platform, ann: Caller) -> None:
    made = tokens.create_token(platform, ann, "laptop")
    with read(platform.engine) as connection:
        rows = str(connection.execute(text("SELECT * FROM tokens")).all())
    assert made.id in rows
    assert made.token.removeprefix("tsh_") not in rows


def test_a_token_gives_no_more_than_it_was_made_with(platform: Platform, ann: Caller) -> None:
    narrow = authenticate_token(
        platform, tokens.create_token(platform, ann, "n", ["jobs:read", "account:write"]).token
    )
    tokens.create_token(platform, narrow, "same", ["jobs:read"])
    for scopes in (["*"], ["jobs:*"], ["jobs:write"], ["admin"]):
        with pytest.raises(NotAllowed):
            tokens.create_token(platform, narrow, "more", scopes)
    without = authenticate_token(platform, tokens.create_token(platform, ann, "n", ["jobs:*"]).token)
    with pytest.raises(NotAllowed):
        tokens.create_token(platform, without, "any", ["jobs:read"])
    with pytest.raises(NotAllowed):
        access_keys.default_access_key(platform, without)


def test_bad_tokens_are_not_made(platform: Platform, ann: Caller) -> None:
    for name, scopes, days in (
        ("", ["*"], 1),
        ("x" * 65, ["*"], 1),
        ("a\nb", ["*"], 1),
        ("a", [], 1),
        ("a", ["jobs:raed"], 1),
        ("a", ["*"], 0),
        ("a", ["*"], -1),
        ("a", ["*"], 1e9),
    ):
        with pytest.raises(InvalidInput):
            tokens.create_token(platform, ann, name, scopes, days)


def test_a_revoked_token_is_dead_and_nobody_revokes_anothers(
    platform: Platform, ann: Caller, bob: Caller
) -> None:
    made = tokens.create_token(platform, ann, "laptop")
    with pytest.raises(NotFound):
        tokens.revoke_token(platform, bob, made.id)
    assert made.id in [view.id for view in tokens.list_tokens(platform, ann)]
    assert made.id not in [view.id for view in tokens.list_tokens(platform, bob)]
    tokens.revoke_token(platform, ann, made.id)
    with pytest.raises(NotAuthenticated):
        authenticate_token(platform, made.token)


def test_a_change_of_role_counts_at_once(
    platform: Platform, admin: Caller, make_caller: Callable[..., Caller]
) -> None:
    cat = make_caller("cat", "manager", "red")
    token = tokens.create_token(platform, cat, "t").token
    key = access_keys.create_access_key(platform, cat, "k")
    workspaces.set_member(platform, admin, "cat", "viewer", "red")
    assert authenticate_token(platform, token).role == "viewer"
    assert authenticate_access_key(platform, key.access_key).caller.role == "viewer"
    workspaces.remove_member(platform, admin, "cat", "red")
    with pytest.raises(NotAuthenticated):
        authenticate_token(platform, token)
    with pytest.raises(NotAuthenticated):
        authenticate_access_key(platform, key.access_key)


def test_a_disabled_user_is_out_at_once(platform: Platform, admin: Caller, ann: Caller) -> None:
    token = tokens.create_token(platform, ann, "t").token
    session = sessions.sign_in_with_link(platform, sessions.create_login_link(platform, ann))
    link = sessions.create_login_link(platform, admin, "ann")
    users.disable_user(platform, admin, "ann")
    with pytest.raises(NotAuthenticated):
        authenticate_token(platform, token)
    with pytest.raises(NotAuthenticated):
        sessions.authenticate_session(platform, session.cookie)
    with pytest.raises(NotAuthenticated):
        sessions.sign_in_with_link(platform, link)
    users.enable_user(platform, admin, "ann")
    with pytest.raises(NotAuthenticated):
        authenticate_token(platform, token)


def test_access_keys_are_encrypted_and_belong_to_one_user(
    platform: Platform, ann: Caller, bob: Caller
) -> None:
    pair = access_keys.create_access_key(platform, ann, "tool")
    owner = authenticate_access_key(platform, pair.access_key)
    assert (owner.secret_key, owner.caller.user_id) == (pair.secret_key, ann.user_id)
    with read(platform.engine) as connection:
        stored = b"".join(connection.execute(text("SELECT sealed_secret FROM access_keys")).scalars())
    assert pair.secret_key.encode() not in stored
    with pytest.raises(NotFound):
        access_keys.delete_access_key(platform, bob, pair.access_key)
    assert access_keys.default_access_key(platform, ann) == access_keys.default_access_key(platform, ann)
    access_keys.delete_access_key(platform, ann, pair.access_key)
    for unknown in (pair.access_key, "", "a\0b", "\ud800"):
        with pytest.raises(NotAuthenticated):
            authenticate_access_key(platform, unknown)


def test_a_job_acts_with_its_own_credentials_until_it_ends(
    platform: Platform, ann: Caller, submit: Callable[..., JobView], advance: Callable[..., None]
) -> None:
    job = submit(ann)
    made = create_job_credentials(platform, job.id)
    # The control loop died after this and does it again: what the runner has must stay valid.
    assert create_job_credentials(platform, job.id) == made
    by_token, by_key = (
        authenticate_token(platform, made.token),
        authenticate_access_key(platform, made.access_key),
    )
    assert by_token == by_key.caller
    assert by_key.secret_key == made.secret_key
    assert (by_token.job_id, by_token.workspace_id, by_token.role) == (job.id, ann.workspace_id, "developer")
    assert not by_token.is_admin
    assert by_token.scopes == {"objects:*", "metrics:write"}
    assert tokens.list_tokens(platform, ann) == [
        v for v in tokens.list_tokens(platform, ann) if v.name == "test"
    ]
    advance(job.id, Phase.PENDING, Phase.RUNNING, Phase.FAILED)
    for refused in (
        lambda: authenticate_token(platform, made.token),
        lambda: authenticate_access_key(platform, made.access_key),
    ):
        with pytest.raises(NotAuthenticated):
            refused()
    with begin(platform.engine) as connection:
        revoke_job_credentials(connection, job.id)
    with read(platform.engine) as connection:
        assert connection.execute(text("SELECT count(*) FROM tokens WHERE job_id IS NOT NULL")).scalar() == 0


def test_credentials_of_an_administrators_job_are_no_administrator(
    platform: Platform, admin: Caller, submit: Callable[..., JobView]
) -> None:
    caller = authenticate_token(platform, create_job_credentials(platform, submit(admin).id).token)
    assert not caller.is_admin
    with pytest.raises(NotAllowed):
        users.list_users(platform, caller)
    with pytest.raises(NotAllowed):
        tokens.create_token(platform, caller, "escape")


def test_a_token_for_another_workspace_needs_membership_there(
    platform: Platform, admin: Caller, ann: Caller, bob: Caller, make_caller: Callable[..., Caller]
) -> None:
    make_caller("ann", "viewer", "green")
    token = tokens.create_token(platform, ann, "green", workspace="green").token
    assert authenticate_token(platform, token).role == "viewer"
    for wrong in ("blue", bob.workspace_id, "nonsense", "\0"):
        with pytest.raises(NotFound):
            tokens.create_token(platform, ann, "x", workspace=wrong)
    narrow = authenticate_token(platform, tokens.create_token(platform, ann, "n", ["account:write"]).token)
    with pytest.raises(NotFound):
        tokens.create_token(platform, narrow, "x", ["account:write"], workspace="green")
    there = authenticate_token(platform, tokens.create_token(platform, admin, "x", workspace="blue").token)
    assert (there.workspace_id, there.role) == (bob.workspace_id, "manager")
