from __future__ import annotations

from typing import Any

import pytest

from trainshed.model.engines import PRESETS, EnginePreset, find_engine, list_engines, read_engines
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
