"""The platform's copy of a remote node's run folder: what a runner elsewhere writes, as if it had run here.

Logs and metrics are appended at offsets, so that sending a piece twice does no harm. Whoever reads logs, metrics
or reports finds the same files as of a runner on this machine.
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trainshed.durable import hold_lock, write_durably
from trainshed.model.errors import Conflict, InvalidInput, Unavailable
from trainshed.model.home import Home, RunFolder
from trainshed.model.launch_plan import from_json
from trainshed.runner.log_archive import punch_hole
from trainshed.services.vault import write_once

__all__ = ["Claim", "Mirror", "Piece", "silent_nodes"]

# The files that a runner may send, by their paths in the run folder.
_SENT = re.compile(
    r"logs/(platform|rank-\d{1,9})\.log|logs/files/[A-Za-z0-9_][A-Za-z0-9_.@+,=-]{0,200}"
    r"|metrics\.jsonl|system\.jsonl|runner\.log|ssh\.off"
)
_MOST_FILES = 2000
# A node that has nothing new to say comes every second or two all the same; after an outage, within 15 seconds.
_SILENT_SECONDS = 20.0


@dataclass(frozen=True)
class Claim:
    """Which process on which machine is a node of an attempt. Only the first one that asks gets it."""

    node: int
    nonce: str
    host: str
    address: str
    devices: tuple[int, ...] = ()
    # Ports of the machine on which somebody listens already.
    busy_ports: tuple[int, ...] = ()
    # The devices' addresses on the network that they have among themselves, by index.
    device_addresses: tuple[tuple[int, str], ...] = ()
    # How many seconds the machine's clock is behind the platform's.
    clock_lag: float = 0.0
    # Which start of the scheduler the process belongs to, by the scheduler's own number; empty where it has none.
    run: str = ""
    # What it has in common with other nodes that are the same machine; empty where that is not known.
    machine: str = ""


@dataclass(frozen=True)
class Piece:
    """Bytes of one file, and where they belong in it."""

    path: str
    offset: int
    data: bytes


class Mirror:
    """The run folder of one remote node on this machine."""

    def __init__(self, home: Home, job_id: str, attempt: int, node: int) -> None:
        self.folder: RunFolder = home.run_folder(job_id, attempt, node)

    def claim(self, claim: Claim) -> Claim:
        """Take the node for a process; refused when another one has it. The same one may ask again."""
        self.folder.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._join_run(claim)
        write_once(self._claim_file, json.dumps(asdict(claim)).encode())
        present = self.read_claim()
        if present is None or present.nonce != claim.nonce:
            raise Conflict(
                f"Node {claim.node} of this attempt is run by another process"
                + (f", on {present.host}." if present else "."),
                hint="An attempt runs once. This process ends; the platform starts another attempt if need be.",
                code="claimed",
            )
        return present

    def _join_run(self, claim: Claim) -> None:
        """All nodes of an attempt come from one start of the scheduler: half of one and half of another never meet."""
        if not claim.run:
            return
        file = self.folder.path.parent / "run"
        write_once(file, claim.run.encode())
        present = file.read_text("utf-8")
        if present != claim.run:
            raise Conflict(
                f"This attempt runs as the scheduler's job {present}, not as {claim.run}.",
                hint="An attempt runs once. This process ends; the platform starts another attempt if need be.",
                code="claimed",
            )

    def note_heard(self) -> None:
        """Remember that the node's process was heard just now."""
        try:
            os.utime(self.folder.heard)
        except FileNotFoundError:
            self.folder.heard.touch(mode=0o600)

    def read_claim(self) -> Claim | None:
        """Who has the node, or None while nobody does."""
        try:
            return from_json(Claim, json.loads(self._claim_file.read_bytes()))
        except FileNotFoundError:
            return None

    def require_claim(self, nonce: str) -> Claim:
        """Refuse a process that has not taken this node."""
        claim = self.read_claim()
        if claim is None or claim.nonce != nonce:
            raise Conflict(
                "This node is not run by the process that reports for it.",
                hint="The process ends; what it did is not taken.",
                code="claimed",
            )
        return claim

    def append(self, pieces: Iterable[Piece]) -> None:
        """Put pieces where they belong. A piece behind the end of its file leaves a gap, which the archive fills."""
        for piece in pieces:
            path = self._path(piece.path)
            try:
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
                descriptor = os.open(path, flags, 0o600)
                try:
                    view, offset = memoryview(piece.data), piece.offset
                    while view:
                        count = os.pwrite(descriptor, view, offset)
                        view, offset = view[count:], offset + count
                finally:
                    os.close(descriptor)
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise Unavailable(
                        "The platform's disk is full.",
                        hint="The runner sends it again later.",
                        code="disk_full",
                    ) from error
                raise

    def forget_archived(self, name: str, end: int) -> None:
        """Give back the room of the first bytes of a log, which the node has archived itself."""
        descriptor = os.open(self._path(name), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            punch_hole(descriptor, min(end, os.fstat(descriptor).st_size))
        finally:
            os.close(descriptor)

    def sizes(self) -> dict[str, int]:
        """How far each file has come."""
        found: dict[str, int] = {}
        own = self.folder
        for path in (own.metrics, own.system_metrics, own.runner_log, own.ssh_off):
            _measure(path, self.folder.path, found)
        for folder in (self.folder.platform_log.parent, self.folder.file_logs):
            try:
                with os.scandir(folder) as entries:
                    names = [entry.path for entry in entries if entry.is_file(follow_symlinks=False)]
            except FileNotFoundError:
                continue
            for name in names[:_MOST_FILES]:
                _measure(Path(name), self.folder.path, found)
        return found

    def write_report(self, report: dict[str, Any]) -> bool:
        """Replace the node's report; a last one is only replaced by another last one. Whether it was."""
        with hold_lock(self.folder.report_lock):
            if report.get("ending") is None and self.has_ended():
                return False
            write_durably(self.folder.status, report)
        return True

    def has_ended(self) -> bool:
        """Whether the node's final report is here."""
        try:
            return json.loads(self.folder.status.read_bytes()).get("ending") is not None
        except FileNotFoundError:
            return False

    def set_ready(self) -> None:
        """The node has all it needs to begin."""
        self._ready_file.touch(mode=0o600)

    def is_ready(self) -> bool:
        """Whether the node could begin."""
        return self._ready_file.exists()

    def asked_to_stop(self) -> dict[str, Any] | None:
        """The request to stop, if there is one."""
        try:
            asked: dict[str, Any] = json.loads(self.folder.stop.read_bytes())
        except FileNotFoundError:
            return None
        except ValueError:
            return {"reason": "The job was stopped.", "outcome": "stopped"}
        return asked

    @property
    def _claim_file(self) -> Path:
        return self.folder.claim

    @property
    def _ready_file(self) -> Path:
        return self.folder.path / "ready"

    def _path(self, name: str) -> Path:
        if not _SENT.fullmatch(name):
            raise InvalidInput(f"'{name[:80]}' is no file that a runner sends.", where="path")
        return self.folder.path / name


def silent_nodes(
    home: Home, job_id: str, attempt: int, nodes: int, now: float
) -> list[tuple[int, str, float]]:
    """Nodes elsewhere that have not ended and have not been heard for a while: each with its machine and how long."""
    found = []
    for index in range(nodes):
        mirror = Mirror(home, job_id, attempt, index)
        try:
            seconds = now - mirror.folder.heard.stat().st_mtime
        except FileNotFoundError:
            continue
        claim = mirror.read_claim()
        if seconds > _SILENT_SECONDS and not mirror.has_ended():
            found.append((index, claim.host if claim else "", seconds))
    return found


def _measure(path: Path, root: Path, found: dict[str, int]) -> None:
    try:
        found[str(path.relative_to(root))] = path.stat().st_size
    except FileNotFoundError:
        return
