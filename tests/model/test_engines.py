from __future__ import annotations

from typing import Any

import pytest

from trainshed.model.engines import (
    PRESETS,
    EnginePreset,
    find_engine,
    list_engines,
    match_engine,
    read_engines,
)
from trainshed.model.errors import InvalidInput, NotFound
from trainshed.model.settings import read_settings


def test_presets_are_listed_by_name() -> None:
    names = [engine.name for engine in list_engines()]
    assert names == sorted(engine.name for engine in PRESETS)
    assert {"python", "numpy", "pytorch", "mindspore", "paddle", "tensorflow"} <= set(names)


def test_an_unknown_engine_is_refused_with_the_closest_name() -> None:
    with pytest.raises(NotFound, match="Did you mean 'pytorch'"):
        find_engine("pytorsh")


def test_the_settings_file_adds_and_replaces_engines() -> None:
    file = {
        "engines": {"mine": {"python": "3.12", "packages": ["polars>=1", "torch[opt]==2.13.0"]}, "numpy": {}}
    }
    engines = read_settings(file, {}, {}).engines
    assert find_engine("mine", engines) == EnginePreset("mine", "3.12", ("polars>=1", "torch[opt]==2.13.0"))
    assert find_engine("numpy", engines).packages == ()
    assert [engine.name for engine in list_engines(engines)].count("numpy") == 1


@pytest.mark.parametrize(
    "tables",
    [
        "text",
        {"Bad Name": {}},
        {"../x": {}},
        {"a": "text"},
        {"a": {"pakages": []}},
        {"a": {"python": "two"}},
        {"a": {"packages": "numpy"}},
        {"a": {"packages": ["--index-url=https://example.invalid"]}},
        {"a": {"packages": ["/etc/passwd"]}},
        {"a": {"packages": ["numpy\n-e ."]}},
        {"a": {"packages": [3]}},
    ],
)
def test_engines_that_make_no_sense_are_refused(tables: Any) -> None:
    with pytest.raises(InvalidInput):
        read_engines(tables)


@pytest.mark.parametrize(
    ("asked", "runs", "version"),
    [
        ("Mindspore-0.5-python3.7-aarch64", "mindspore", "0.5"),
        ("MindSpore-1.3-cann_5.0.2-python3.7-euleros2.8-aarch64", "mindspore", "1.3"),
        ("mindspore_1.3.0-cann_5.0.2-py_3.7-euler_2.8.3-aarch64", "mindspore", "1.3.0"),
        ("mindspore_1.7.0-cann_5.1.0-py_3.7-euler_2.8.3-aarch64", "mindspore", "1.7.0"),
        ("mindspore_1.3.0-cuda_10.1-py_3.7-ubuntu_1804-x86_64", "mindspore", "1.3.0"),
        ("Mindspore-1.3-python3.7-aarch64", "mindspore", "1.3"),
        ("Ascend-Powered-Engine", "mindspore", ""),
        ("Ascend-Powered-Engine mindspore_1.7.0-cann_5.1.0", "mindspore", "1.7.0"),
        ("Ascend-Powered-Engine/tensorflow_1.15-cann_5.1.0", "tensorflow", "1.15"),
        ("MPI", "mindspore", ""),
        ("MindSpore-GPU", "mindspore", ""),
        ("PyTorch-1.8.0", "pytorch", "1.8.0"),
        ("pytorch_1.8.0-cuda_10.2-py_3.7-ubuntu_18.04-x86_64", "pytorch", "1.8.0"),
        ("TF-1.13.1-python3.6", "tensorflow", "1.13.1"),
        ("Horovod-0.16.2-TF-1.13.1-python3.6", "tensorflow", "1.13.1"),
        ("horovod_0.20.0-tensorflow_2.1.0-cuda_10.1", "tensorflow", "2.1.0"),
        ("PaddlePaddle 2.0.1", "paddle", "2.0.1"),
    ],
)
def test_names_of_other_platforms_lead_to_the_nearest_engine(asked: str, runs: str, version: str) -> None:
    found = match_engine(asked)
    assert (found.engine.name, found.asked, found.asked_version) == (runs, asked, version)
    assert asked in found.note and "runs." in found.note


@pytest.mark.parametrize("name", ["pytorch", "MindSpore", " Numpy "])
def test_a_name_of_ours_in_any_case_needs_no_note(name: str) -> None:
    assert match_engine(name).note == ""


@pytest.mark.parametrize(
    "name", ["XGBoost-Sklearn", "Caffe-1.0.0-python2.7", "Horovod", "mindsporex", "", "mpich"]
)
def test_a_framework_that_is_not_there_is_refused(name: str) -> None:
    with pytest.raises(NotFound, match="There is no engine"):
        match_engine(name)


def test_of_several_versions_the_nearest_runs() -> None:
    extra = [
        EnginePreset("ms-old", "3.8", ("mindspore==1.8.1",)),
        EnginePreset("ms-older", "3.7", ("mindspore==1.3.0", "numpy")),
    ]
    asked = {
        "mindspore_1.7.0-cann": "ms-old",
        "mindspore-1.3": "ms-older",
        "mindspore-2.9": "mindspore",
        "MPI": "mindspore",
    }
    assert {name: match_engine(name, extra).engine.name for name in asked} == asked
