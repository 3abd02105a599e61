from __future__ import annotations

import hashlib
import io
import os
import tarfile
from pathlib import Path

import pytest

from trainshed.client.code_folder import CodeFolder, scan_code_folder
from trainshed.model.code_digest import digest_code
from trainshed.model.errors import Conflict, InvalidInput, NotFound


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    code = tmp_path / "code"
    (code / "pkg").mkdir(parents=True)
    (code / "train.py").write_text("print('hi')\n")
    (code / "run.sh").write_text("#!/bin/sh\n")
    (code / "run.sh").chmod(0o755)
    (code / "pkg" / "数据.py").write_bytes(b"\x00\xff" * 700)
    (code / "__pycache__").mkdir()
    (code / "__pycache__" / "x.pyc").write_bytes(b"1")
    (code / ".git").mkdir()
    (code / ".git" / "HEAD").write_text("ref")
    return code


def unpack(code: CodeFolder) -> dict[str, tuple[bool, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(b"".join(code.tar())), mode="r:") as tar:
        found = {}
        for member in tar:
            file = tar.extractfile(member)
            assert file is not None
            found[member.name] = (bool(member.mode & 0o100), file.read())
        return found


def test_scan_and_tar_agree(folder: Path) -> None:
    code = scan_code_folder(folder, "train.py")
    assert [file.path for file in code.files] == ["pkg/数据.py", "run.sh", "train.py"]
    content = unpack(code)
    assert content == {
        "pkg/数据.py": (False, b"\x00\xff" * 700),
        "run.sh": (True, b"#!/bin/sh\n"),
        "train.py": (False, b"print('hi')\n"),
    }
    assert code.digest == digest_code(
        (path, executable, hashlib.sha256(data).hexdigest()) for path, (executable, data) in content.items()
    )
    assert code.size == sum(len(data) for _, data in content.values())


def test_digest_depends_on_content_name_and_mode_only(folder: Path, tmp_path: Path) -> None:
    first = scan_code_folder(folder).digest
    os.utime(folder / "train.py", (1, 1))
    assert scan_code_folder(folder).digest == first
    (folder / "train.py").chmod(0o755)
    changed = scan_code_folder(folder).digest
    assert changed != first
    (folder / "train.py").rename(folder / "main.py")
    assert scan_code_folder(folder).digest not in (first, changed)


def test_long_paths_survive_the_tar(folder: Path) -> None:
    deep = folder / ("d" * 120) / ("e" * 120)
    deep.mkdir(parents=True)
    (deep / ("f" * 100 + ".py")).write_text("x")
    assert f"{'d' * 120}/{'e' * 120}/{'f' * 100}.py" in unpack(scan_code_folder(folder))


def test_empty_folder_is_valid(tmp_path: Path) -> None:
    code = scan_code_folder(tmp_path)
    assert code.files == ()
    assert unpack(code) == {}


def test_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="does not exist") as fault:
        scan_code_folder(tmp_path / "nowhere")
    assert fault.value.where == "code"


def test_file_in_place_of_folder(folder: Path) -> None:
    with pytest.raises(NotFound, match="is a file, not a folder"):
        scan_code_folder(folder / "train.py")


def test_missing_boot_file_names_the_closest(folder: Path) -> None:
    with pytest.raises(NotFound) as fault:
        scan_code_folder(folder, "trian.py")
    assert fault.value.where == "boot"
    assert "train.py" in fault.value.hint


def test_ignored_boot_file_is_explained(folder: Path) -> None:
    (folder / ".trainshedignore").write_text("*.py\n")
    with pytest.raises(InvalidInput, match="left out by"):
        scan_code_folder(folder, "train.py")


def test_ignore_file(folder: Path) -> None:
    (folder / ".trainshedignore").write_text("pkg/\n")
    assert [file.path for file in scan_code_folder(folder).files] == [
        ".trainshedignore",
        "run.sh",
        "train.py",
    ]


def test_link_inside_is_followed(folder: Path) -> None:
    (folder / "alias.py").symlink_to("train.py")
    (folder / "lib").symlink_to("pkg")
    content = unpack(scan_code_folder(folder))
    assert content["alias.py"] == (False, b"print('hi')\n")
    assert content["lib/数据.py"][1] == b"\x00\xff" * 700


@pytest.mark.parametrize("target", ["/etc/passwd", "../secret", "/etc"])
def test_link_that_leads_out_is_refused(folder: Path, target: str) -> None:
    (folder.parent / "secret").write_text("s")
    (folder / "out").symlink_to(target)
    with pytest.raises(InvalidInput, match="leads out of the code folder"):
        scan_code_folder(folder)


def test_links_that_lead_nowhere_or_round_are_refused(folder: Path) -> None:
    (folder / "gone").symlink_to("missing")
    with pytest.raises(InvalidInput, match="points to nothing"):
        scan_code_folder(folder)
    (folder / "gone").unlink()
    (folder / "pkg" / "up").symlink_to("..")
    with pytest.raises(InvalidInput, match="leads back"):
        scan_code_folder(folder)


def test_ignored_link_is_left_alone(folder: Path) -> None:
    (folder / "out").symlink_to("/etc/passwd")
    (folder / ".trainshedignore").write_text("/out\n")
    assert "out" not in unpack(scan_code_folder(folder))


def test_special_file_is_refused(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    with pytest.raises(InvalidInput, match="not a regular file"):
        scan_code_folder(folder)


def test_name_that_is_not_utf8_is_refused(folder: Path) -> None:
    (Path(os.fsdecode(os.fsencode(folder) + b"/bad\xff.py"))).write_text("x")
    with pytest.raises(InvalidInput, match="not UTF-8"):
        scan_code_folder(folder)


@pytest.mark.parametrize("content", ["print('ha')\n", "longer than before", "x"])
def test_file_that_changes_during_upload_is_refused(folder: Path, content: str) -> None:
    code = scan_code_folder(folder)
    (folder / "train.py").write_text(content)
    with pytest.raises(Conflict, match=r"train\.py.*changed"):
        b"".join(code.tar())


def test_file_that_vanishes_during_upload_is_refused(folder: Path) -> None:
    code = scan_code_folder(folder)
    (folder / "train.py").unlink()
    with pytest.raises(InvalidInput, match="cannot be read"):
        b"".join(code.tar())
