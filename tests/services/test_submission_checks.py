"""Jobs that cannot run are refused at once, with the field and the next step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trainshed.model.errors import TrainshedError
from trainshed.services import buckets
from trainshed.services.identity import Caller
from trainshed.services.jobs import JobView
from trainshed.services.platform import Platform

Submit = Callable[..., JobView]


@pytest.mark.parametrize(
    ("fields", "code", "where"),
    [
        ({"flavor": "ascend.3"}, "device_count", "flavor"),
        ({"flavor": "ascend.4", "nodes": 2, "dialect": "modelarts-v1"}, "device_count", "flavor"),
        ({"flavor": "ascend.4", "nodes": 2, "dialect": "xihe"}, "device_count", "flavor"),
        ({"flavor": "ascend.16"}, "unknown_flavor", "flavor"),
        ({"flavor": "ascend.2", "processes": 3}, "rank_count", "processes"),
        (
            {"dialect": "modelarts-v1", "parameters": {"train_url": "x"}},
            "reserved_parameter",
            "parameters.train_url",
        ),
        ({"dialect": "xihe", "parameters": {"aim_repo": "x"}}, "reserved_parameter", "parameters.aim_repo"),
        ({"dialect": "modelarts-v1", "boot": "trian.py"}, "no_boot_file", "boot"),
        ({"inputs": {"data": "obs://red-data/a"}}, "ambiguous_input", "inputs.data"),
    ],
)
def test_what_cannot_run_is_refused(
    platform: Platform, ann: Caller, submit: Submit, fields: dict[str, Any], code: str, where: str
) -> None:
    buckets.create_bucket(platform, ann, "red-data")
    platform.store.put("red-data", "a", b"1")
    platform.store.put("red-data", "a/b", b"1")
    with pytest.raises(TrainshedError) as fault:
        submit(ann, **fields)
    assert (fault.value.code, fault.value.where) == (code, where)
    assert fault.value.hint


def test_an_ambiguous_input_is_taken_once_it_says_which_is_meant(
    platform: Platform, ann: Caller, submit: Submit
) -> None:
    buckets.create_bucket(platform, ann, "red-data")
    platform.store.put("red-data", "a", b"1")
    platform.store.put("red-data", "a/b", b"1")
    view = submit(ann, inputs={"data": "obs://red-data/a/", "one": "obs://red-data/a/b"})
    assert view.spec["inputs"] == {"data": "obs://red-data/a/", "one": "obs://red-data/a/b"}
