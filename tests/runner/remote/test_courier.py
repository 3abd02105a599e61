"""The courier: what it sends, in which order, and what it does when the platform is away or does not want it."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from trainshed.durable import write_durably
from trainshed.model.errors import NotAuthenticated, Unavailable
from trainshed.model.home import RunFolder
from trainshed.runner.doorbell import ring_doorbell
from trainshed.runner.log_archive import punch_hole
from trainshed.runner.remote.courier import DELIVERED, GIVEN_UP, UNWANTED, Courier
from trainshed.runner.remote.node_folder import bell_file


class Gateway:
    """A platform that keeps what it is sent, and is away as often as it is told to."""

    def __init__(self, folder: RunFolder) -> None:
        self.files: dict[str, bytearray] = {}
        self.reports: list[dict[str, Any]] = []
        self.away = 0
        self.stop: dict[str, Any] | None = None
        self.refuses = False
        self.calls = 0
        self._folder = folder

    def report(
        self, pieces: Any = (), report: dict[str, Any] | None = None, *, ready: bool = False
    ) -> dict[str, Any]:
        self.calls += 1
        if self.refuses:
            raise NotAuthenticated("Attempt 1 of this job is over.", code="attempt_over")
        if self.away:
            self.away -= 1
            raise Unavailable("away", code="store_unreachable")
        for path, offset, data in pieces:
            file = self.files.setdefault(path, bytearray())
            file.extend(bytes(max(0, offset + len(data) - len(file))))
            file[offset : offset + len(data)] = data
        if report is not None:
            self.reports.append(report)
        return {
            "sizes": {path: len(data) for path, data in self.files.items()},
            "go": ready,
            "stop": self.stop,
        }


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path)
    folder.file_logs.mkdir(parents=True)
    return folder


def finish(folder: RunFolder) -> None:
    write_durably(folder.status, {"stage": "ended", "ending": {"outcome": "completed"}})


def test_everything_arrives_and_the_final_report_is_last(folder: RunFolder) -> None:
    gateway = Gateway(folder)
    text = os.urandom(6 << 20)
    folder.rank_log(0).write_bytes(text)
    folder.file_log("worker_0.log").write_bytes(b"launcher\n")
    folder.metrics.write_bytes(b"{}\n")
    finish(folder)
    gateway.away = 2
    assert Courier(folder, gateway).run() == DELIVERED  # type: ignore[arg-type]
    assert bytes(gateway.files["logs/rank-0.log"]) == text
    assert bytes(gateway.files["logs/files/worker_0.log"]) == b"launcher\n"
    assert [report["stage"] for report in gateway.reports] == ["ended"]


def test_the_first_courier_asks_for_nothing(folder: RunFolder) -> None:
    gateway = Gateway(folder)
    gateway.files["logs/rank-0.log"] = bytearray(b"of nobody")
    folder.rank_log(0).write_bytes(b"the first line\n")
    finish(folder)
    assert Courier(folder, gateway, is_first=True).run() == DELIVERED  # type: ignore[arg-type]
    assert bytes(gateway.files["logs/rank-0.log"]) == b"the first line\n"


def test_a_second_courier_goes_on_where_the_first_one_died(folder: RunFolder) -> None:
    gateway = Gateway(folder)
    gateway.files["logs/rank-0.log"] = bytearray(b"already ")
    folder.rank_log(0).write_bytes(b"ALREADY there")
    finish(folder)
    Courier(folder, gateway).run()  # type: ignore[arg-type]
    assert bytes(gateway.files["logs/rank-0.log"]) == b"already there"


def test_an_end_is_rung_for_and_brought_at_once(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainshed.runner.remote.courier._LEAST_PAUSE", 3600.0)
    gateway = Gateway(folder)
    folder.rank_log(0).write_bytes(b"line\n")
    courier = Courier(folder, gateway, is_first=True)  # type: ignore[arg-type]
    carrying = threading.Thread(target=courier.run, daemon=True)
    carrying.start()
    finish(folder)
    ring_doorbell(str(bell_file(folder)))
    carrying.join(60)
    assert not carrying.is_alive() and bytes(gateway.files["logs/rank-0.log"]) == b"line\n"
    # All in one exchange: nobody had carried anything before.
    assert [report["stage"] for report in gateway.reports] == ["ended"] and gateway.calls == 1


def test_a_stage_alone_waits_for_a_line_or_a_while(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainshed.runner.remote.courier._NEWS_SECONDS", 3600.0)
    gateway = Gateway(folder)
    courier = Courier(folder, gateway, is_first=True)  # type: ignore[arg-type]
    write_durably(folder.status, {"stage": "training"})
    assert courier._carry() == (False, True) and gateway.calls == 0
    folder.rank_log(0).write_bytes(b"line\n")
    assert courier._carry() == (False, True)
    assert bytes(gateway.files["logs/rank-0.log"]) == b"line\n"
    assert [report["stage"] for report in gateway.reports] == ["training"]
    assert courier._carry() == (False, False) and gateway.calls == 1
    monkeypatch.setattr("trainshed.runner.remote.courier._NEWS_SECONDS", 0.0)
    assert courier._carry() == (False, False) and gateway.calls == 2
    finish(folder)
    assert courier._carry()[0] and gateway.reports[-1]["stage"] == "ended"


def test_what_was_archived_meanwhile_is_left_out(folder: RunFolder) -> None:
    gateway = Gateway(folder)
    folder.rank_log(0).write_bytes(b"a" * 8192 + b"rest")
    descriptor = os.open(folder.rank_log(0), os.O_RDWR)
    punch_hole(descriptor, 8192)
    os.close(descriptor)
    finish(folder)
    Courier(folder, gateway).run()  # type: ignore[arg-type]
    assert gateway.files["logs/rank-0.log"].endswith(b"rest")
    assert len(gateway.files["logs/rank-0.log"]) == 8196


def test_a_stop_is_brought_back_and_an_unwanted_runner_is_stopped(folder: RunFolder) -> None:
    gateway = Gateway(folder)
    gateway.stop = {"reason": "enough", "outcome": "stopped"}
    finish(folder)
    Courier(folder, gateway).run()  # type: ignore[arg-type]
    assert json.loads(folder.stop.read_bytes())["reason"] == "enough"
    folder.stop.unlink()
    gateway.refuses = True
    assert Courier(folder, gateway).run() == UNWANTED  # type: ignore[arg-type]
    assert "is over" in json.loads(folder.stop.read_bytes())["reason"]


def test_a_job_at_work_is_never_given_up_but_its_results_do_not_wait_for_ever(folder: RunFolder) -> None:
    gateway = Gateway(folder)
    gateway.away = 1_000_000
    write_durably(folder.status, {"stage": "training"})
    courier = Courier(folder, gateway, patience=0.5)  # type: ignore[arg-type]
    outcomes: list[int] = []
    thread = threading.Thread(target=lambda: outcomes.append(courier.run()))
    thread.start()
    thread.join(1.5)
    assert thread.is_alive() and not folder.stop.exists()
    finish(folder)
    thread.join(90)
    assert outcomes == [GIVEN_UP]
