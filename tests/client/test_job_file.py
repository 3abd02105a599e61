from __future__ import annotations

from pathlib import Path

import pytest

from trainshed.client.job_file import locate_field, read_job_file
from trainshed.model.errors import InvalidInput, NotFound


def write(folder: Path, text: str) -> Path:
    path = folder / "job.yaml"
    path.write_text(text)
    return path


def test_code_is_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    job = read_job_file(write(tmp_path, "code: ./src\nboot: train.py\nparameters: {epochs: 3}\n"))
    assert Path(job["code"]) == tmp_path / "src"
    assert job["parameters"] == {"epochs": 3}


def test_code_in_the_store_stays(tmp_path: Path) -> None:
    assert read_job_file(write(tmp_path, "code: obs://b/c/\n"))["code"] == "obs://b/c/"


def test_bad_yaml_tells_line_and_column(tmp_path: Path) -> None:
    path = write(tmp_path, "name: a\ncode: [x\nboot: train.py\n")
    with pytest.raises(InvalidInput) as fault:
        read_job_file(path)
    assert fault.value.where.startswith(f"{path}:3:")
    assert fault.value.code == "bad_yaml"


def test_tab_is_explained(tmp_path: Path) -> None:
    path = write(tmp_path, "name: a\n\tcode: x\n")
    with pytest.raises(InvalidInput) as fault:
        read_job_file(path)
    assert f"{path}:2:" in fault.value.where


def test_field_given_twice_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "name: a\nboot: x.py\nname: b\n")
    with pytest.raises(InvalidInput, match="'name' is given twice") as fault:
        read_job_file(path)
    assert fault.value.where == f"{path}:3:1"


@pytest.mark.parametrize("text", ["", "- a\n", "just text\n", "3"])
def test_not_a_mapping(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidInput, match="is a mapping"):
        read_job_file(write(tmp_path, text))


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no job file"):
        read_job_file(tmp_path / "none.yaml")


def test_binary_file(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidInput, match="UTF-8"):
        read_job_file(tmp_path / "job.yaml")


def test_python_objects_are_not_made(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="not valid YAML"):
        read_job_file(write(tmp_path, "name: !!python/object/apply:os.getcwd []\n"))


def test_secret_without_value_comes_from_the_environment(tmp_path: Path) -> None:
    path = write(tmp_path, "secrets: {KEY: , OTHER: given}\n")
    assert read_job_file(path, {"KEY": "k"})["secrets"] == {"KEY": "k", "OTHER": "given"}
    with pytest.raises(InvalidInput, match="KEY"):
        read_job_file(path, {})


def test_locate_field(tmp_path: Path) -> None:
    path = write(tmp_path, "name: a\ninputs:\n  data_url: obs://x\n")
    assert locate_field(path, "inputs.data_url") == f"{path}:3:3"
    assert locate_field(path, "inputs") == f"{path}:2:1"
    assert locate_field(path, "flavor") == str(path)
