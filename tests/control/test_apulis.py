"""Jobs of the Apulis dialect: kept folders, private ones, a system to write to, and being held open."""

from __future__ import annotations

from typing import Any

import pytest

from trainshed.model.phase import Phase


def run(station: Any, command: str, **spec: Any) -> Any:
    return station.wait(station.submit("", dialect="apulis", command=command, **spec))


@pytest.mark.slow
def test_home_and_data_are_shared_and_outlive_jobs_while_cache_and_tmp_do_not(station: Any) -> None:
    first = station.submit(
        "",
        dialect="apulis",
        nodes=2,
        command="set -e; echo $DLWS_ROLE_IDX > /data/node-$DLWS_ROLE_IDX; echo mine > ~/note-$DLWS_ROLE_IDX; "
        "touch /cache/$DLWS_ROLE_IDX /tmp/$DLWS_ROLE_IDX; "
        "for i in $(seq 1 1000); do [ -e /data/node-0 ] && [ -e /data/node-1 ] && break; sleep 0.1; done; "
        "ls /data /cache /tmp",
    )
    assert station.wait(first).phase is Phase.COMPLETED
    log = station.log(first).decode()
    assert log.split() == ["/cache:", "0", "/data:", "node-0", "node-1", "/tmp:", "0"]
    job = run(station, "set -e; cat ~/note-0 ~/note-1 /data/node-1; ls -A /cache /tmp; cat ~/ib_config")
    assert job.phase is Phase.COMPLETED
    assert station.log(job.id).decode().split() == [
        "mine",
        "mine",
        "1",
        "/cache:",
        "/tmp:",
        "ib-worker-0",
        "slots=1",
    ]


@pytest.mark.slow
def test_sudo_and_a_system_to_write_to_end_with_the_job(station: Any) -> None:
    job = run(
        station,
        "sudo -E bash -c 'set -e; for d in /etc /opt /usr/local/bin /var/log; do echo $A > $d/mine; cat $d/mine; done; "
        "id -un'",
        environment={"A": "x"},
    )
    assert job.phase is Phase.COMPLETED, station.log(job.id)
    assert station.log(job.id).decode().split() == ["x", "x", "x", "x", "admin"]
    again = run(station, "ls /etc/mine /opt/mine /usr/local/bin/mine /var/log/mine 2>/dev/null; true")
    assert station.log(again.id) == b""


@pytest.mark.slow
def test_a_job_of_which_only_sleep_is_left_is_held_open_and_then_completed(station: Any) -> None:
    job_id = station.submit(
        "", dialect="apulis", hold=2, command="sudo -E bash -c 'echo trained && sleep infinity'"
    )
    job = station.wait(job_id)
    assert job.phase is Phase.COMPLETED
    assert station.log(job_id) == b"trained\n"
    assert any("held open" in event.message for event in station.events(job_id))


@pytest.mark.slow
def test_a_user_failure_before_the_sleep_is_a_failure(station: Any) -> None:
    job = run(station, "bash -c 'exit 3' && sleep infinity", hold=2)
    assert job.phase is Phase.FAILED and job.ending is not None and job.ending["exit_code"] == 3
