"""A job's end and the message about it are one transaction of the control loop."""

from __future__ import annotations

import uuid
from typing import Any

from trainshed.db import notifications as db
from trainshed.db.engine import begin
from trainshed.db.notifications import TargetRow


def test_each_end_is_told_once(station: Any) -> None:
    target = TargetRow(
        uuid.uuid4().hex,
        station.workspace.id,
        station.user.id,
        "user",
        "webhook",
        "https://example.org/",
        ["completed", "failed"],
        b"",
        0.0,
    )
    with begin(station.platform.engine) as connection:
        db.insert_target(connection, target)
    good = station.submit("print('done')")
    bad = station.submit("raise SystemExit(3)")
    station.wait(good)
    station.wait(bad)
    told = []
    with begin(station.platform.engine) as connection:
        while (message := db.claim_due(connection, 1e12, 1e12)) is not None:
            told.append((message.job_id, message.event, message.body["job"]["ending"].get("exit_code", 0)))
    assert sorted(told, key=lambda item: item[1]) == [(good, "completed", 0), (bad, "failed", 3)]
