"""What the platform keeps of an attempt that is in Slurm: its submission, and the mirror of its nodes."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainshed.durable import hold_lock, remove_tree, write_durably
from trainshed.engines.slurm.observation import NodeSight
from trainshed.model.attempt import NodeReport
from trainshed.model.home import Home, RunFolder
from trainshed.model.launch_plan import from_json, to_json

__all__ = ["AttemptFolder", "AttemptFolders", "Submission"]

# What was changed so short before it was looked at may have been changed once more in the same tick of the disk's clock.
_SETTLED_NS = 1_000_000_000
_MOST_FOLDERS = 2000
# For so long after a submission a job that Slurm does not show may still be one that it has.
_UNCONFIRMED_SECONDS = 10.0
# The longest pause between two tries to hand over what Slurm does not take just now.
_LONGEST_PAUSE = 60.0
# A stop that the runner does not carry out: after the grace, and this much more, Slurm ends the job.
_STOP_MARGIN, _UPLOAD_MARGIN = 30.0, 1800.0


@dataclass(frozen=True)
class Submission:
    """What was handed to Slurm. The number is a help only: the name is what finds the job again."""

    name: str
    pool: str
    nodes: int
    grace: int
    submitted_at: float
    account: str = ""
    # 0 while nothing is known of an answer.
    id: int = 0
    # Why Slurm does not take it just now, the next step, and how often it was tried in vain.
    refusal: str = ""
    hint: str = ""
    tries: int = 0

    @property
    def pause(self) -> float:
        """For how many seconds it is waited for before it is tried again."""
        if not self.refusal:
            return _UNCONFIRMED_SECONDS
        return float(min(_LONGEST_PAUSE, _UNCONFIRMED_SECONDS * max(1, self.tries)))


class AttemptFolder:
    """The folder of one attempt below the platform's home.

    Whoever looks at many attempts again and again keeps the objects: what has not changed is not read again.
    """

    def __init__(self, home: Home, job_id: str, attempt: int) -> None:
        self._home, self._job_id, self._attempt = home, job_id, attempt
        self.path = home.jobs / job_id / f"attempt-{attempt}"
        # By the files' paths: what they held, and the state in which they were then.
        self._read_before: dict[str, tuple[tuple[int, int, int], Any]] = {}
        # By the nodes' numbers: the state of a folder in which nobody had been yet.
        self._untouched: dict[int, tuple[int, int, int]] = {}

    @property
    def _record(self) -> Path:
        return self.path / "slurm.json"

    def node(self, index: int) -> RunFolder:
        """The mirror of a node's run folder."""
        return self._home.run_folder(self._job_id, self._attempt, index)

    def make(self, nodes: int) -> None:
        """Make the mirrors of all nodes, so that a stop can be left in them at any time."""
        for index in range(nodes):
            self.node(index).path.mkdir(parents=True, exist_ok=True, mode=0o700)

    def read(self) -> Submission | None:
        """What was handed over, or None before that."""
        found: Submission | None = self._read_file(f"{self.path}/slurm.json", Submission)
        return found

    def _read_file(self, path: str, kind: type[Any]) -> Any:
        """A file of JSON as a dataclass; None where there is none."""
        state = _state(path)
        known, value = self._read_before.get(path, (None, None))
        if state is not None and state == known:
            return value
        try:
            value = from_json(kind, json.loads(Path(path).read_bytes()))
        except FileNotFoundError:
            return None
        if state is not None and _has_settled(state):
            self._read_before[path] = state, value
        return value

    def write(self, submission: Submission) -> None:
        """Remember what is handed over."""
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_durably(self._record, to_json(submission))

    def report(self, index: int) -> NodeReport | None:
        """The latest report of a node's runner."""
        found: NodeReport | None = self._read_file(f"{self.path}/node-{index}/status.json", NodeReport)
        return found

    def sight(self, index: int) -> NodeSight:
        """All that the platform itself knows of a node."""
        state = _state(f"{self.path}/node-{index}")
        if state is not None and self._untouched.get(index) == state:
            return NodeSight()
        node = self.node(index)
        asked_at = _modified(node.stop)
        claimed_at = _modified(node.claim)
        # Whoever has taken the node is heard from then on.
        heard_at = max(claimed_at, _modified(node.heard))
        sight = NodeSight(
            self.report(index),
            is_claimed=bool(claimed_at),
            heard_at=heard_at,
            asked_at=asked_at,
            is_given_up=bool(asked_at) and _read(node.stop).get("by") == "slurm",
            told_at=_modified(node.status),
        )
        if sight == NodeSight() and state is not None and _has_settled(state):
            self._untouched[index] = state
        return sight

    def is_untouched(self, nodes: int) -> bool:
        """Whether nobody has been in the nodes' folders since the last sight of them, nor before."""
        return all(
            (known := self._untouched.get(index)) is not None and known == _state(f"{self.path}/node-{index}")
            for index in range(nodes)
        )

    def host(self, index: int) -> str:
        """The machine on which a node's process took its place; empty before that."""
        return str(_read(self.node(index).claim).get("host", ""))

    def run(self) -> int:
        """The number of the Slurm job whose processes took the attempt's nodes; 0 before that."""
        try:
            number = (self.path / "run").read_text("ascii").partition(".")[0]
        except FileNotFoundError:
            return 0
        return int(number) if number.isdigit() else 0

    def ask_to_stop(self, index: int, request: dict[str, str]) -> None:
        """Leave a request to stop for a node, unless there is one."""
        stop = self.node(index).stop
        if not stop.exists() or (_read(stop).get("by") == "slurm" and "by" not in request):
            write_durably(stop, request)

    def has_disobeyed(self, submission: Submission, now: float) -> bool:
        """Whether nodes that were asked to stop have had their time for it."""
        waited = now - min(self.node(index).stop.stat().st_mtime for index in range(submission.nodes))
        reports = [self.report(index) for index in range(submission.nodes)]
        if not any(reports):
            # Nothing of the user's runs yet.
            return waited > _STOP_MARGIN / 2
        brings_home = any(report is not None and report.stage == "uploading" for report in reports)
        return waited > submission.grace + (_UPLOAD_MARGIN if brings_home else _STOP_MARGIN)

    def write_report(self, report: NodeReport, *, unless_ended: bool = False) -> None:
        """Write a node's report in the place of its runner; maybe only if that has not delivered its last one."""
        self.make(report.node_index + 1)
        node = self.node(report.node_index)
        with hold_lock(node.report_lock):
            present = self.report(report.node_index) if unless_ended else None
            if present is None or present.ending is None or present.left_behind:
                write_durably(node.status, to_json(report))

    def folders(self) -> Iterator[RunFolder]:
        """The mirrors that are there."""
        if self.path.is_dir():
            for path in sorted(self.path.iterdir()):
                if path.name.startswith("node-"):
                    yield RunFolder(path)

    def remove(self) -> None:
        """Remove all of it, the submission last: until then the attempt can still be told from a stranger."""
        for folder in list(self.folders()):
            remove_tree(folder.path)
        for name in ("plan.json", "run", self._record.name):
            (self.path / name).unlink(missing_ok=True)
        for parent in (self.path, self.path.parent):
            try:
                parent.rmdir()
            except OSError:
                break


class AttemptFolders:
    """The folders of attempts that are looked at again and again."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._known: dict[tuple[str, int], AttemptFolder] = {}

    def find(self, job_id: str, attempt: int) -> AttemptFolder:
        """The folder of an attempt, the same object as before."""
        folder = self._known.get((job_id, attempt))
        if folder is None:
            if len(self._known) >= _MOST_FOLDERS:
                self._known.clear()
            folder = self._known[job_id, attempt] = AttemptFolder(self._home, job_id, attempt)
        return folder


def _state(path: str) -> tuple[int, int, int] | None:
    """What differs after every change of a file that is only ever replaced, or of the names in a folder."""
    try:
        facts = os.stat(path)
    except FileNotFoundError:
        return None
    return facts.st_mtime_ns, facts.st_ino, facts.st_size


def _has_settled(state: tuple[int, int, int]) -> bool:
    return abs(time.time_ns() - state[0]) > _SETTLED_NS


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _read(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}
