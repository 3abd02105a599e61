"""What is left over goes away by itself."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import text

from trainshed.db.engine import read
from trainshed.model.errors import NotAuthenticated
from trainshed.model.phase import Phase
from trainshed.services import sessions, tokens
from trainshed.services.identity import Caller, authenticate_token
from trainshed.services.platform import Platform
from trainshed.services.upkeep import tidy_up
from trainshed.store.staged_tree import TreeCache


def test_leftovers_go_away(
    platform: Platform, ann: Caller, submit: Any, advance: Any, row_of: Any, clock: Any
) -> None:
    job = submit(ann)
    advance(job.id, Phase.TERMINATED, deleted_at=1.0)
    made = tokens.create_token(platform, ann, "t", days=1)
    sessions.create_login_link(platform, ann)
    clock.now += 2 * 86400
    tidy_up(platform)
    assert row_of(job.id) is None
    with read(platform.engine) as connection:
        assert (
            connection.execute(text("SELECT count(*) FROM login_links WHERE used_at IS NULL")).scalar() == 0
        )
    with pytest.raises(NotAuthenticated) as refusal:
        authenticate_token(platform, made.token)
    assert refusal.value.code == "token_expired"
    clock.now += 31 * 86400
    tidy_up(platform)
    with pytest.raises(NotAuthenticated) as refusal:
        authenticate_token(platform, made.token)
    assert refusal.value.code == "unknown_credential"


def test_a_cached_input_goes_when_its_objects_do(platform: Platform) -> None:
    store, cache = platform.store, TreeCache(platform.home.input_cache)
    store.create_bucket("inputs-of-a-test", "w")
    folders = {}
    for name in ("kept", "changed", "removed"):
        store.put("inputs-of-a-test", f"{name}/a", b"bytes")
        tree = cache.obtain(store, "inputs-of-a-test", f"{name}/")
        assert tree is not None
        tree.close()
        folders[name] = tree.folder
    store.put("inputs-of-a-test", "changed/b", b"more")
    store.delete_prefix("inputs-of-a-test", "removed/")
    tidy_up(platform)
    assert [name for name, folder in folders.items() if folder.exists()] == ["kept"]
