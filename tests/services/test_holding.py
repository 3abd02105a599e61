"""Holding a job open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trainshed.db.attempts import AttemptRow, insert_attempt
from trainshed.db.engine import begin
from trainshed.model.errors import Conflict, InvalidInput, NotFound
from trainshed.services.holding import hold_job
from trainshed.services.identity import Caller
from trainshed.services.jobs import JobView
from trainshed.services.platform import Platform

Submit = Callable[..., JobView]


@pytest.fixture
def held(platform: Platform, ann: Caller, submit: Submit, clock: Any) -> JobView:
    view = submit(ann, dialect="apulis", command="train && sleep infinity", boot="")
    reports = [{"held_since": clock.now - 50}, {"held_since": clock.now - 30}]
    with begin(platform.engine) as connection:
        insert_attempt(
            connection, AttemptRow(view.id, 1, "local", [], "running", created_at=clock.now, reports=reports)
        )
    return view


def test_it_counts_from_now(platform: Platform, ann: Caller, held: JobView, row_of: Any, clock: Any) -> None:
    hold_job(platform, ann, held.id, 600)
    assert row_of(held.id).spec["hold"] == 630
    clock.now += 100
    hold_job(platform, ann, held.name, 0)
    assert row_of(held.id).spec["hold"] == 130


def test_a_job_that_still_trains_is_held_from_its_end(
    platform: Platform, ann: Caller, submit: Submit, row_of: Any
) -> None:
    view = submit(ann, dialect="apulis", command="train && sleep infinity", boot="")
    hold_job(platform, ann, view.id, 7200)
    assert row_of(view.id).spec["hold"] == 7200


def test_what_cannot_be_held(
    platform: Platform, ann: Caller, submit: Submit, held: JobView, bob: Caller
) -> None:
    with pytest.raises(InvalidInput, match="7 days"):
        hold_job(platform, ann, held.id, 8 * 86400)
    with pytest.raises(Conflict, match="not held open"):
        hold_job(platform, ann, submit(ann).id, 60)
    with pytest.raises(NotFound):
        hold_job(platform, bob, held.id, 60)
