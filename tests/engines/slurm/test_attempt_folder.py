"""The folder of an attempt: what is not read again is the same as what would be read."""

from __future__ import annotations

import os
import time
from pathlib import Path

from trainshed.durable import write_durably
from trainshed.engines.slurm.attempt_folder import AttemptFolder, AttemptFolders, Submission
from trainshed.engines.slurm.observation import NodeSight
from trainshed.model.attempt import Ending, NodeReport
from trainshed.model.home import Home


def _age(path: Path) -> None:
    """As if it had been changed a while ago."""
    then = time.time() - 60
    os.utime(path, (then, then))


def test_what_changes_is_seen_at_once_and_what_does_not_is_not_read_again(tmp_path: Path) -> None:
    folder = AttemptFolders(Home(tmp_path)).find("job", 1)
    assert folder.read() is None and folder.sight(0) == NodeSight()
    folder.make(1)
    folder.write(Submission("name", "lab", 1, 30, 5.0))
    _age(folder.path / "slurm.json")
    first = folder.read()
    assert first is not None and folder.read() is first
    folder.write(Submission("name", "lab", 1, 30, 5.0, id=7))
    changed = folder.read()
    assert changed is not None and changed.id == 7
    node = folder.node(0)
    _age(node.path)
    assert folder.sight(0) == folder.sight(0) == NodeSight()
    folder.ask_to_stop(0, {"reason": "r", "outcome": "stopped"})
    assert folder.sight(0).asked_at > 0
    node.claim.write_text('{"host": "n1"}')
    assert folder.sight(0).is_claimed
    folder.write_report(NodeReport("job", 1, 0, 5, "training"))
    _age(node.status)
    assert folder.report(0) is folder.report(0) and not folder.sight(0).has_ended
    folder.write_report(NodeReport("job", 1, 0, 5, "ended", ending=Ending("completed")))
    assert folder.sight(0).has_ended
    # Whoever else looks sees the same.
    assert AttemptFolder(Home(tmp_path), "job", 1).sight(0) == folder.sight(0)


def test_changes_within_one_tick_of_the_clock_are_not_missed(tmp_path: Path) -> None:
    folder = AttemptFolder(Home(tmp_path), "job", 1)
    folder.make(1)
    for number in range(50):
        write_durably(
            folder.path / "slurm.json",
            {"name": f"n{number:02d}", "pool": "", "nodes": 1, "grace": 1, "submitted_at": 0.0},
        )
        found = folder.read()
        assert found is not None and found.name == f"n{number:02d}"


def test_a_submission_that_is_refused_is_tried_less_and_less_often() -> None:
    waiting = Submission("name", "lab", 1, 30, 0.0)
    assert waiting.pause == 10.0
    pauses = [
        Submission("name", "lab", 1, 30, 0.0, refusal="no", tries=tries).pause for tries in (0, 1, 3, 50)
    ]
    assert pauses == [10.0, 10.0, 30.0, 60.0]
