"""Which folders of the machine a job may name, and who may."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from trainshed.model.errors import NotAllowed, NotFound, TrainshedError
from trainshed.model.job_spec import parse_job_spec
from trainshed.services import jobs
from trainshed.services.identity import Caller
from trainshed.services.platform import Platform


@pytest.fixture
def offering(platform: Platform, tmp_path: Path) -> Platform:
    """A platform that offers `shared`, in which one link leads out and one stays."""
    for name in ("shared/set", "private"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "shared" / "file.txt").write_text("")
    (tmp_path / "shared" / "out").symlink_to(tmp_path / "private")
    (tmp_path / "shared" / "within").symlink_to(tmp_path / "shared" / "set")
    (tmp_path / "link").symlink_to(tmp_path / "shared")
    settings = dataclasses.replace(platform.settings, host_folders=(str(tmp_path / "link"),))
    return dataclasses.replace(platform, settings=settings)


def submit(platform: Platform, caller: Caller, path: Path) -> str:
    spec = parse_job_spec({"command": "true", "inputs": {"data": f"file://{path}/"}})
    shown: dict[str, str] = jobs.submit(platform, caller, spec).spec["inputs"]
    return shown["data"]


def test_a_folder_is_kept_by_its_real_path(offering: Platform, ann: Caller, tmp_path: Path) -> None:
    real = f"file://{tmp_path.resolve()}/shared"
    assert submit(offering, ann, tmp_path / "shared" / "set") == f"{real}/set/"
    assert submit(offering, ann, tmp_path / "link" / "set") == f"{real}/set/"
    assert submit(offering, ann, tmp_path / "shared" / "within") == f"{real}/set/"
    assert submit(offering, ann, tmp_path / "shared") == f"{real}/"


def refusal(platform: Platform, caller: Caller, path: Path) -> TrainshedError:
    with pytest.raises((NotAllowed, NotFound)) as caught:
        submit(platform, caller, path)
    fault = caught.value
    assert isinstance(fault, TrainshedError)
    return fault


def test_what_is_not_offered_is_refused_and_its_existence_not_told(
    offering: Platform, platform: Platform, ann: Caller, tmp_path: Path
) -> None:
    texts = set()
    for name in ("private", "shared/out", "nothing", "shared-not"):
        fault = refusal(offering, ann, tmp_path / name)
        assert (fault.code, fault.where) == ("host_folder_forbidden", "inputs.data")
        texts.add(fault.message.replace(str(tmp_path / name), "X") + fault.hint)
    assert len(texts) == 1
    assert refusal(offering, ann, tmp_path / "shared" / "missing").code == "no_such_input"
    assert refusal(offering, ann, tmp_path / "shared" / "file.txt").code == "no_such_input"
    # Without the setting there are no such inputs at all.
    assert "host_folders" in refusal(platform, ann, tmp_path / "shared").hint


def test_the_platforms_own_home_is_never_offered(offering: Platform, ann: Caller) -> None:
    home = offering.home.path
    careless = dataclasses.replace(
        offering, settings=dataclasses.replace(offering.settings, host_folders=(str(home.parent),))
    )
    for path in (home, home / "store", home.parent):
        assert refusal(careless, ann, path).code == "host_folder_forbidden"


def test_a_viewer_may_not(offering: Platform, make_caller: Callable[..., Caller], tmp_path: Path) -> None:
    eve = make_caller("eve", "viewer", "red")
    assert isinstance(refusal(offering, eve, tmp_path / "shared"), NotAllowed)
