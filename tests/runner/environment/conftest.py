"""A wheelhouse of hand-made packages, so that installs are real and need no network."""

from __future__ import annotations

import base64
import hashlib
import io
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from trainshed.runner.environment.interpreter import find_interpreter

BACKEND = """
import base64, hashlib, os, zipfile

def run(place):
    result = {}
    exec(open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "payload.py")).read(), {"result": result})
    return result["text"] if "text" in result else ""

def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    text = run("wheel")
    name = "NAME-VERSION-py3-none-any.whl"
    files = {
        "NAME.py": "TEXT = %r\\n" % text,
        "NAME-VERSION.dist-info/METADATA": "Metadata-Version: 2.1\\nName: NAME\\nVersion: VERSION\\n",
        "NAME-VERSION.dist-info/WHEEL": "Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    }
    record = ""
    with zipfile.ZipFile(os.path.join(wheel_directory, name), "w") as archive:
        for path, content in files.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(content.encode()).digest()).rstrip(b"=").decode()
            record += "%s,sha256=%s,%d\\n" % (path, digest, len(content.encode()))
            archive.writestr(path, content)
        archive.writestr("NAME-VERSION.dist-info/RECORD", record + "NAME-VERSION.dist-info/RECORD,,\\n")
    return name
"""


class Wheelhouse:
    """A folder of packages that pip's setting find-links points to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()

    def add_wheel(self, name: str, version: str = "1.0", *, module: str = "", requires: str = "") -> None:
        info = f"{name}-{version}.dist-info"
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        metadata += f"Requires-Dist: {requires}\n" if requires else ""
        files = {
            f"{name}.py": module or f"VERSION = {version!r}\n",
            f"{info}/METADATA": metadata,
            f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            f"{info}/entry_points.txt": f"[console_scripts]\n{name}-tool = {name}:main\n",
        }
        record = ""
        with zipfile.ZipFile(self.path / f"{name}-{version}-py3-none-any.whl", "w") as archive:
            for path, content in files.items():
                digest = (
                    base64.urlsafe_b64encode(hashlib.sha256(content.encode()).digest()).rstrip(b"=").decode()
                )
                record += f"{path},sha256={digest},{len(content.encode())}\n"
                archive.writestr(path, content)
            archive.writestr(f"{info}/RECORD", f"{record}{info}/RECORD,,\n")

    def add_source(self, name: str, payload: str, version: str = "1.0") -> None:
        """A package without a wheel; `payload` runs when it is built, and may set result["text"]."""
        files = {
            "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
            f'[project]\nname = "{name}"\nversion = "{version}"\n',
            "PKG-INFO": f"Metadata-Version: 2.2\nName: {name}\nVersion: {version}\n",
            "backend.py": BACKEND.replace("NAME", name).replace("VERSION", version),
            "payload.py": payload,
        }
        with tarfile.open(self.path / f"{name}-{version}.tar.gz", "w:gz") as archive:
            for path, content in files.items():
                entry = tarfile.TarInfo(f"{name}-{version}/{path}")
                entry.size = len(content.encode())
                archive.addfile(entry, io.BytesIO(content.encode()))


@pytest.fixture
def wheelhouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Wheelhouse:
    """An index of our own instead of the machine's."""
    house = Wheelhouse(tmp_path / "wheelhouse")
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(house.path))
    # uv asks for pip's own wheel nowhere else, when the interpreter does not bring one.
    if not any(find_interpreter().bundled_wheels.glob("pip-*.whl")):
        house.add_wheel("pip", "99.0")
    return house


@pytest.fixture
def lines() -> list[str]:
    """What was logged."""
    return []


@pytest.fixture
def log(lines: list[str]) -> Callable[[bytes], None]:
    """A log that ends up in `lines`."""
    return lambda data: lines.append(data.decode())
