"""Workspaces, members and users."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from trainshed.model.errors import Conflict, InvalidInput, NotAllowed, NotAuthenticated, NotFound
from trainshed.model.phase import Phase
from trainshed.services import buckets, jobs, sessions, users, workspaces
from trainshed.services.identity import Caller
from trainshed.services.jobs import JobView
from trainshed.services.platform import Platform


def test_a_workspace_has_a_number_of_its_own_for_ever(platform: Platform, admin: Caller) -> None:
    one, two = (workspaces.create_workspace(platform, admin, name) for name in ("one", "two"))
    assert (one.number, two.number, len(one.id)) == (2, 3, 32)
    workspaces.delete_workspace(platform, admin, "two")
    again = workspaces.create_workspace(platform, admin, "two")
    assert again.number == 4
    assert again.id != two.id
    with pytest.raises(Conflict):
        workspaces.create_workspace(platform, admin, "two")
    for wrong in ("", "-x", "a b", "x" * 65, "a\0b", "../x"):
        with pytest.raises(InvalidInput):
            workspaces.create_workspace(platform, admin, wrong)


def test_workspaces_that_are_made_at_once_get_different_numbers(platform: Platform, admin: Caller) -> None:
    def make(number: int) -> bool:
        try:
            workspaces.create_workspace(platform, admin, f"w{number}")
        except Conflict:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        made = sum(pool.map(make, range(8)))
    numbers = [space.number for space in workspaces.list_workspaces(platform, admin)]
    assert len(numbers) == len(set(numbers)) == made + 1
    assert made == 8


def test_a_workspace_in_use_is_not_deleted(
    platform: Platform,
    admin: Caller,
    ann: Caller,
    submit: Callable[..., JobView],
    advance: Callable[..., None],
) -> None:
    buckets.create_bucket(platform, ann, "red-data")
    job = submit(ann)
    with pytest.raises(Conflict, match="red-data"):
        workspaces.delete_workspace(platform, admin, "red")
    buckets.delete_bucket(platform, ann, "red-data")
    with pytest.raises(Conflict, match="under way"):
        workspaces.delete_workspace(platform, admin, "red")
    advance(job.id, Phase.TERMINATED)
    workspaces.delete_workspace(platform, admin, "red")
    with pytest.raises(NotFound):
        workspaces.get_workspace(platform, admin, "red")
    with pytest.raises(NotFound):
        # The caller was known before; the workspace is gone now.
        submit(ann)


def test_a_manager_manages_members_and_nobody_else_does(
    platform: Platform, admin: Caller, ann: Caller, bob: Caller, make_caller: Callable[..., Caller]
) -> None:
    mia = make_caller("mia", "manager", "red")
    workspaces.set_member(platform, mia, "bob", "viewer")
    assert {(m.user_name, m.role) for m in workspaces.list_members(platform, ann)} == {
        ("admin", "manager"), ("ann", "developer"), ("bob", "viewer"), ("mia", "manager")
    }  # fmt: skip
    workspaces.remove_member(platform, mia, "bob")
    with pytest.raises(NotFound):
        workspaces.remove_member(platform, mia, "bob")
    with pytest.raises(NotAllowed):
        workspaces.set_member(platform, ann, "ann", "manager")
    with pytest.raises(NotFound):
        workspaces.set_member(platform, mia, "nobody", "viewer")
    with pytest.raises(InvalidInput) as refusal:
        workspaces.set_member(platform, mia, "ann", "devloper")
    assert "developer" in refusal.value.hint
    for forbidden in (
        lambda: workspaces.create_workspace(platform, mia, "new"),
        lambda: workspaces.delete_workspace(platform, mia, "red"),
    ):
        with pytest.raises(NotAllowed):
            forbidden()


def test_only_administrators_manage_users(platform: Platform, admin: Caller, bob: Caller) -> None:
    view = users.create_user(platform, admin, "new.user@lab", "long enough")
    assert (view.name, view.is_admin, view.disabled_at) == ("new.user@lab", False, None)
    with pytest.raises(Conflict):
        users.create_user(platform, admin, "new.user@lab")
    for wrong in ("", " ", "a b", "x" * 65, "-x", "a\0", "ü", "a/b"):
        with pytest.raises(InvalidInput):
            users.create_user(platform, admin, wrong)
    with pytest.raises(InvalidInput):
        users.create_user(platform, admin, "weak", "short")
    for forbidden in (
        lambda: users.create_user(platform, bob, "x"),
        lambda: users.list_users(platform, bob),
        lambda: users.disable_user(platform, bob, "admin"),
        lambda: users.set_admin(platform, bob, "bob", True),
        lambda: users.set_password(platform, bob, "admin", "taken over!"),
    ):
        with pytest.raises(NotAllowed):
            forbidden()


def test_the_last_administrator_stays(platform: Platform, admin: Caller, bob: Caller) -> None:
    for forbidden in (
        lambda: users.disable_user(platform, admin, "admin"),
        lambda: users.set_admin(platform, admin, "admin", False),
    ):
        with pytest.raises(Conflict):
            forbidden()
    users.set_admin(platform, admin, "bob", True)
    users.set_admin(platform, admin, "admin", False)


def test_one_changes_ones_own_password_with_the_old_one(
    platform: Platform, admin: Caller, ann: Caller
) -> None:
    users.set_password(platform, ann, "ann", "first password")
    session = sessions.sign_in_with_password(platform, "ann", "first password")
    with pytest.raises(NotAuthenticated):
        users.set_password(platform, ann, "ann", "second password", "wrong")
    users.set_password(platform, ann, "ann", "second password", "first password")
    with pytest.raises(NotAuthenticated):
        sessions.authenticate_session(platform, session.cookie)
    sessions.sign_in_with_password(platform, "ann", "second password")


def test_buckets_are_made_once_on_the_whole_platform(
    platform: Platform, ann: Caller, bob: Caller, make_caller: Callable[..., Caller]
) -> None:
    assert buckets.create_bucket(platform, ann, "data-1").workspace_id == ann.workspace_id
    with pytest.raises(Conflict) as refusal:
        buckets.create_bucket(platform, ann, "data-1")
    assert refusal.value.code == "bucket_exists"
    with pytest.raises(Conflict) as refusal:
        buckets.create_bucket(platform, bob, "data-1")
    assert refusal.value.code == "bucket_name_taken"
    eve = make_caller("eve", "viewer", "red")
    assert buckets.readable_bucket(platform, eve, "data-1")
    for forbidden in (
        lambda: buckets.writable_bucket(platform, eve, "data-1"),
        lambda: buckets.create_bucket(platform, eve, "data-2"),
        lambda: buckets.delete_bucket(platform, eve, "data-1"),
    ):
        with pytest.raises(NotAllowed):
            forbidden()
    assert jobs.list_jobs(platform, eve) == []
