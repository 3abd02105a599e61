"""Jobs in the database: unique names, guarded changes, the order of the queue, pages."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Engine, text

from trainshed.db import tables
from trainshed.db.attempts import AttemptRow, attempts_of, insert_attempt
from trainshed.db.engine import begin, read
from trainshed.db.events import add_event, events_of
from trainshed.db.jobs import (
    JobRow,
    active_jobs,
    change_job,
    count_jobs,
    deleted_jobs,
    ended_jobs,
    find_job,
    forget_job,
    insert_job,
    job_by_id,
    jobs_of_code,
    list_jobs,
)
from trainshed.db.workspaces import WorkspaceRow, insert_workspace
from trainshed.model.errors import Conflict, InvalidInput, NotFound
from trainshed.model.phase import Phase

Make = Callable[..., JobRow]


def store(engine: Engine, *rows: JobRow) -> None:
    with begin(engine) as connection:
        for row in rows:
            insert_job(connection, row)


def test_a_row_comes_back_as_it_was(engine: Engine, make_job: Make) -> None:
    row = make_job(
        spec={"parameters": {"z": 1, "a": True, "m": "ü\0"}},
        environment={"packages": ["numpy==1"]},
        ending={"outcome": "failed"},
        queued_at=1.123456789012,
        stop_reason="日本",
        preemptible=True,
    )
    store(engine, row)
    with read(engine) as connection:
        found = job_by_id(connection, row.id)
    assert found == row
    assert found is not None
    assert isinstance(found.phase, Phase)
    # The order of parameters is the order of the script's arguments.
    assert list(found.spec["parameters"]) == ["z", "a", "m"]


def test_a_name_is_unique_among_the_jobs_that_are_there(engine: Engine, make_job: Make) -> None:
    first, second = make_job(name="same"), make_job(name="same")
    store(engine, first)
    with pytest.raises(Conflict) as refusal:
        store(engine, second)
    assert refusal.value.code == "name_taken"
    assert "delete" in refusal.value.hint
    with begin(engine) as connection:
        assert change_job(connection, first, deleted_at=5.0)
    store(engine, second)
    with begin(engine) as connection:
        insert_workspace(connection, WorkspaceRow("b" * 32, 2, "other", 1.0))
    store(engine, make_job(name="same", workspace_id="b" * 32))


def test_a_job_is_found_by_name_id_or_unique_beginning(engine: Engine, make_job: Make) -> None:
    one = make_job(id="aaaa1111-0000-4000-8000-000000000000", name="one")
    two = make_job(id="aaaa2222-0000-4000-8000-000000000000", name="two")
    # A name that is the beginning of another job's id means the job of that name.
    three = make_job(name="aaaa1")
    store(engine, one, two, three)
    with read(engine) as connection:
        space = one.workspace_id
        assert find_job(connection, space, "one") == one
        assert find_job(connection, space, one.id) == one
        assert find_job(connection, space, "aaaa2") == two
        assert find_job(connection, space, "aaaa1") == three
        with pytest.raises(InvalidInput, match="Several"):
            find_job(connection, space, "aaaa")
        for unknown in ("aaa", "four", "", "a\0b", "\ud800aaa", "%aaaa", "x" * 5000):
            with pytest.raises(NotFound):
                find_job(connection, space, unknown)
        with pytest.raises(NotFound):
            find_job(connection, "c" * 32, one.id)


def test_who_misspells_a_name_is_told_the_nearest_of_the_own_workspace(
    engine: Engine, make_job: Make
) -> None:
    store(engine, make_job(name="digits"), make_job(name="resnet50"))
    with read(engine) as connection:
        with pytest.raises(NotFound) as caught:
            find_job(connection, make_job().workspace_id, "digit")
        assert caught.value.hint == "Did you mean 'digits'? `trainshed jobs` lists them."
        for workspace, name in ((make_job().workspace_id, "bert"), ("c" * 32, "digit")):
            with pytest.raises(NotFound) as caught:
                find_job(connection, workspace, name)
            assert caught.value.hint == "`trainshed jobs` lists them."


def test_a_stale_change_changes_nothing(engine: Engine, make_job: Make) -> None:
    row = make_job()
    store(engine, row)
    with begin(engine) as connection:
        changed = change_job(connection, row, phase=Phase.PENDING, queued_at=7.0)
        assert changed is not None
        assert changed.version == 2
    with begin(engine) as connection:
        assert change_job(connection, row, detail="late") is None
    with read(engine) as connection:
        assert job_by_id(connection, row.id) == changed


def test_of_many_changes_at_once_one_wins(engine: Engine, make_job: Make) -> None:
    row = make_job()
    store(engine, row)

    def change(number: int) -> bool:
        with begin(engine) as connection:
            return change_job(connection, row, detail=f"by {number}") is not None

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(change, range(16))) == 1


def test_a_step_that_phases_do_not_know_is_refused(engine: Engine, make_job: Make) -> None:
    row = make_job()
    store(engine, row)
    with pytest.raises(Conflict), begin(engine) as connection:
        change_job(connection, row, phase=Phase.COMPLETED)
    with read(engine) as connection:
        assert job_by_id(connection, row.id) == row


def test_active_jobs_come_in_the_order_of_the_queue(engine: Engine, make_job: Make) -> None:
    late = make_job(created_at=30.0, phase=Phase.PENDING)
    early = make_job(created_at=10.0, phase=Phase.PENDING)
    urgent = make_job(created_at=40.0, priority=5)
    running = make_job(created_at=20.0, phase=Phase.RUNNING)
    ended = [make_job(phase=phase) for phase in Phase if phase.is_terminal]
    store(engine, late, early, urgent, running, *ended)
    with read(engine) as connection:
        assert active_jobs(connection) == [urgent, early, running, late]
        assert count_jobs(connection)[Phase.PENDING] == 2


def test_active_jobs_are_found_by_an_index(engine: Engine, make_job: Make) -> None:
    store(engine, *(make_job(phase=Phase.COMPLETED) for _ in range(300)), make_job())
    query = f"SELECT * FROM jobs WHERE NOT ({tables.ENDED_PHASES_SQL}) ORDER BY priority DESC, created_at, id"
    with begin(engine) as connection:
        if engine.dialect.name == "sqlite":
            plan = connection.execute(text(f"EXPLAIN QUERY PLAN {query}")).all()
        else:
            connection.execute(text("ANALYZE jobs"))
            plan = connection.execute(text(f"EXPLAIN {query}")).all()
    assert "ix_jobs_active" in str(plan)


def test_pages_go_through_all_jobs_without_gaps(engine: Engine, make_job: Make) -> None:
    # Several jobs of the same moment: the id decides.
    rows = [make_job(created_at=float(number // 4)) for number in range(22)]
    store(engine, *rows)
    seen: list[str] = []
    before = None
    with read(engine) as connection:
        while page := list_jobs(connection, rows[0].workspace_id, limit=5, before=before):
            seen += [row.id for row in page]
            before = page[-1].id
    expected = sorted(rows, key=lambda row: (row.created_at, row.id), reverse=True)
    assert seen == [row.id for row in expected]


def test_pages_filter_by_phase_and_know_only_their_workspace(engine: Engine, make_job: Make) -> None:
    done, open_job = make_job(phase=Phase.COMPLETED), make_job()
    gone = make_job(phase=Phase.COMPLETED, deleted_at=1.0)
    store(engine, done, open_job, gone)
    with read(engine) as connection:
        assert list_jobs(connection, done.workspace_id, Phase.COMPLETED) == [done]
        assert list_jobs(connection, "c" * 32) == []
        with pytest.raises(NotFound):
            list_jobs(connection, "c" * 32, before=done.id)


def test_ended_jobs_come_oldest_first(engine: Engine, make_job: Make) -> None:
    rows = [make_job(phase=Phase.FAILED, ended_at=float(end)) for end in (30, 10, 20)]
    store(engine, *rows, make_job(phase=Phase.RUNNING))
    with read(engine) as connection:
        assert [row.ended_at for row in ended_jobs(connection, 30.0, 10)] == [10.0, 20.0]
        assert [row.ended_at for row in ended_jobs(connection, 100.0, 1)] == [10.0]


def test_a_forgotten_job_takes_everything_with_it(engine: Engine, make_job: Make) -> None:
    row = make_job(phase=Phase.FAILED, code_prefix="abc/")
    store(engine, row)
    with begin(engine) as connection:
        insert_attempt(connection, AttemptRow(row.id, 1, "local", [], "ended", 1.0))
        add_event(connection, row.id, 1.0, "info", "test", "hello")
        forget_job(connection, row.id)
        assert job_by_id(connection, row.id) is not None, "only a deleted job may be forgotten"
        assert jobs_of_code(connection, "abc/") == 1
        row_deleted = change_job(connection, row, deleted_at=2.0)
        assert deleted_jobs(connection, 10) == [row_deleted]
        assert jobs_of_code(connection, "abc/") == 0
        forget_job(connection, row.id)
        assert job_by_id(connection, row.id) is None
        assert attempts_of(connection, row.id) == []
        assert events_of(connection, row.id) == []
