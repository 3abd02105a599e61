"""The pulse of jobs is read again only when somebody has committed something."""

from __future__ import annotations

from typing import Any

from trainshed.db.engine import begin
from trainshed.db.jobs import change_job, job_by_id
from trainshed.model.job_spec import parse_job_spec
from trainshed.services import jobs
from trainshed.services.pulse import PulseReader


def test_pulses_are_as_new_as_the_last_commit(platform: Any, admin: Any) -> None:
    first, second = (
        jobs.submit(platform, admin, parse_job_spec({"command": "true", "flavor": "cpu.1"})).id
        for _ in range(2)
    )
    reader = PulseReader(platform)
    # Another database has no such question: there, all is read each time.
    is_embedded = platform.engine.url.get_backend_name() == "sqlite"
    assert not reader.is_current([first])
    assert reader.read([first])[first].version == 1
    assert reader.is_current([first]) is is_embedded
    # Of this one nothing was read yet.
    assert not reader.is_current([first, second])
    assert set(reader.read([first, second])) == {first, second}
    with begin(platform.engine) as connection:
        row = job_by_id(connection, first)
        assert row is not None
        assert change_job(connection, row, detail="something else") is not None
    assert not reader.is_current([first])
    assert reader.read([first])[first].version == 2
    assert reader.is_current([first]) is is_embedded
