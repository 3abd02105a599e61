"""Inputs on their whole way: shared trees and folders of the machine, seen by a real job."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainshed.model.phase import Phase

LOOK = textwrap.dedent(
    """
    import os, sys
    data = sys.argv[1].partition("=")[2]
    print(len(os.listdir(data)), open(f"{data}/0.bin").read(), flush=True)
    for name, flags in (("0.bin", os.O_WRONLY | os.O_APPEND), ("new.bin", os.O_WRONLY | os.O_CREAT)):
        try:
            os.write(os.open(f"{data}/{name}", flags, 0o644), b"changed")
            print(name, "written", flush=True)
        except OSError as error:
            print(name, "refused", error.errno, flush=True)
    """
)


def test_a_job_changes_its_view_of_an_input_and_the_next_job_sees_the_input(station: Any) -> None:
    for number in range(30):
        station.platform.store.put("results", f"set/{number}.bin", b"original")
    for what in ("staged in", "already on this machine"):
        job_id = station.submit(LOOK, inputs={"data": "obs://results/set/"})
        assert station.wait(job_id).phase is Phase.COMPLETED
        assert station.log(job_id) == b"30 original\n0.bin written\nnew.bin written\n"
        assert what in station.log(job_id, "platform").decode()
    assert station.result("set/0.bin") == b"original"
    assert station.platform.store.verify().is_whole


def test_a_folder_of_the_machine_is_seen_and_cannot_be_changed(
    make_station: Callable[..., Any], tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    (shared / "set").mkdir(parents=True)
    (shared / "set" / "0.bin").write_text("of the host")
    (shared / "set" / "out").symlink_to("/etc")
    for path in (shared / "set", shared / "set" / "0.bin"):
        path.chmod(0o777)
    station = make_station(host_folders=(str(shared),))
    station.start()
    job_id = station.submit(LOOK, inputs={"data": f"file://{shared}/set/"})
    job = station.wait(job_id)
    assert job.phase is Phase.COMPLETED, station.log(job_id, "platform")
    assert station.log(job_id) == b"2 of the host\n0.bin refused 30\nnew.bin refused 30\n"
    assert sorted(os.listdir(shared / "set")) == ["0.bin", "out"]
    assert (shared / "set" / "0.bin").read_text() == "of the host"


def test_a_folder_that_became_a_link_is_not_followed(
    make_station: Callable[..., Any], tmp_path: Path
) -> None:
    shared, private = tmp_path / "shared", tmp_path / "private"
    private.mkdir()
    shared.mkdir()
    (private / "0.bin").write_text("a secret")
    (shared / "set").symlink_to(private)
    station = make_station(host_folders=(str(shared),))
    station.start()
    for path in (f"{shared}/set", str(private), str(tmp_path)):
        job_id = station.submit(LOOK, inputs={"data": f"file://{path}/"})
        assert station.wait(job_id).phase is Phase.FAILED
        assert b"a secret" not in station.log(job_id)
        said = station.log(job_id, "platform").decode()
        assert "in the way" in said or "not offered" in said
