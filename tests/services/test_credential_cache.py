"""Credentials are remembered while nothing changes, and not one request longer."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest
from sqlalchemy import Engine, event

from trainshed.db.engine import begin
from trainshed.model.errors import NotAuthenticated
from trainshed.services.access_keys import authenticate_access_key, delete_access_key, issue_access_key
from trainshed.services.credential_cache import CredentialCache, cache_of
from trainshed.services.identity import authenticate_token
from trainshed.services.platform import Platform
from trainshed.services.setup import first_start
from trainshed.services.tokens import issue_token


def count_statements(engine: Engine, work: Callable[[], object]) -> int:
    count = 0

    def tick(*_: object) -> None:
        nonlocal count
        count += 1

    event.listen(engine, "before_cursor_execute", tick)
    try:
        work()
    finally:
        event.remove(engine, "before_cursor_execute", tick)
    return count


@pytest.fixture
def token(platform: Platform) -> str:
    return first_start(platform).token


def test_a_known_credential_costs_no_query(platform: Platform, token: str) -> None:
    caller = authenticate_token(platform, token)
    queries = count_statements(platform.engine, lambda: authenticate_token(platform, token))
    assert authenticate_token(platform, token) == caller
    is_embedded = platform.engine.url.get_backend_name() == "sqlite"
    assert queries == 0 if is_embedded else queries > 0


def test_what_is_revoked_is_refused_at_once(platform: Platform, token: str) -> None:
    caller = authenticate_token(platform, token)
    with begin(platform.engine) as connection:
        pair = issue_access_key(platform, connection, caller.user_id, caller.workspace_id, "k")
        second = issue_token(
            connection, platform.clock(), caller.user_id, caller.workspace_id, "t", ["*"], 100.0
        )
    for _ in range(3):
        assert authenticate_access_key(platform, pair.access_key).secret_key == pair.secret_key
        assert authenticate_token(platform, second.token) == caller
    delete_access_key(platform, caller, pair.access_key)
    with pytest.raises(NotAuthenticated):
        authenticate_access_key(platform, pair.access_key)
    with begin(platform.engine) as connection:
        connection.exec_driver_sql(f"UPDATE users SET disabled_at = 1 WHERE id = '{caller.user_id}'")
    for one in (token, second.token):
        with pytest.raises(NotAuthenticated):
            authenticate_token(platform, one)


def test_time_passes_for_remembered_ones_too(platform: Platform, token: str) -> None:
    caller = authenticate_token(platform, token)
    with begin(platform.engine) as connection:
        short = issue_token(
            connection, platform.clock(), caller.user_id, caller.workspace_id, "t", ["*"], 100.0
        )
    authenticate_token(platform, short.token)
    platform.clock.now += 101  # type: ignore[attr-defined]
    for _ in range(2):
        with pytest.raises(NotAuthenticated) as caught:
            authenticate_token(platform, short.token)
        assert caught.value.code == "token_expired"


def test_another_process_that_writes_is_noticed(platform: Platform, token: str) -> None:
    if platform.engine.url.get_backend_name() != "sqlite":
        return
    authenticate_token(platform, token)
    code = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('DELETE FROM tokens'); c.commit()"
    )
    subprocess.run([sys.executable, "-c", code, str(platform.engine.url.database)], check=True, timeout=120)
    with pytest.raises(NotAuthenticated):
        authenticate_token(platform, token)


def test_what_was_read_while_something_changed_is_not_kept(platform: Platform, token: str) -> None:
    cache = CredentialCache(platform.engine)
    loads = []

    def load() -> str:
        loads.append(1)
        with begin(platform.engine) as connection:
            connection.exec_driver_sql("UPDATE users SET created_at = created_at + 1")
        return "value"

    for _ in range(3):
        assert cache.find("kind", "name", load) == "value"
    assert len(loads) == 3
    with pytest.raises(ZeroDivisionError):
        cache.find("kind", "other", lambda: 1 / 0)
    assert cache_of(platform.engine) is cache_of(platform.engine)


def test_threads_that_end_leave_no_connection_open(platform: Platform, token: str) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        thread = threading.Thread(target=authenticate_token, args=(platform, token))
        thread.start()
        thread.join(90)
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) < before + 10
