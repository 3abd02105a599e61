from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from trainshed.runner.environment.index import PackageIndex, mask_credentials, read_pip_settings


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def read(tmp_path: Path, **variables: str) -> PackageIndex:
    return read_pip_settings(variables, home=tmp_path / "home", prefix=tmp_path / "venv", root=tmp_path)


def test_without_settings_the_installer_decides(tmp_path: Path) -> None:
    assert read(tmp_path) == PackageIndex()
    assert set(read(tmp_path).uv_variables()) == {"UV_INDEX_STRATEGY", "UV_HTTP_TIMEOUT"}


def test_files_are_read_in_the_order_of_pip_and_variables_win(tmp_path: Path) -> None:
    write(
        tmp_path / "etc/pip.conf",
        "[global]\nindex-url = https://machine.invalid/simple\ntimeout = 7\ncert = /c\n",
    )
    write(tmp_path / "home/.pip/pip.conf", "[global]\nindex_url = https://old.invalid/simple\n")
    write(tmp_path / "home/.config/pip/pip.conf", "[global]\nindex-url = https://user.invalid/simple\n")
    assert read(tmp_path).index_url == "https://user.invalid/simple"
    write(tmp_path / "venv/pip.conf", "[install]\nindex-url = https://venv.invalid/simple\n")
    write(
        tmp_path / "own.conf", "[global]\nindex-url = https://own.invalid/simple\n[install]\nno-index = yes\n"
    )
    index = read(tmp_path, PIP_CONFIG_FILE=str(tmp_path / "own.conf"))
    # A command's own section goes before the global one, whatever file it stands in.
    assert index.index_url == "https://venv.invalid/simple"
    assert (index.timeout, index.cert, index.no_index) == (7, "/c", True)
    index = read(tmp_path, PIP_INDEX_URL="https://variable.invalid/simple", PIP_DEFAULT_TIMEOUT="180")
    assert index.index_url == "https://variable.invalid/simple"
    assert read(tmp_path, PIP_CONFIG_FILE="/dev/null") == PackageIndex()


def test_lists_are_lists_and_a_broken_file_is_no_crash(tmp_path: Path) -> None:
    write(
        tmp_path / "home/.config/pip/pip.conf",
        "[global]\nextra-index-url =\n    https://a.invalid/simple\n    file:///b/simple\nfind-links = /x /y\n"
        "trusted-host = h1 h2\n",
    )
    write(tmp_path / "venv/pip.conf", "this is no configuration")
    index = read(tmp_path)
    assert index.extra_index_urls == ("https://a.invalid/simple", "file:///b/simple")
    assert index.find_links == ("/x", "/y")
    variables = index.uv_variables()
    assert variables["UV_INDEX"] == "https://a.invalid/simple file:///b/simple"
    assert variables["UV_INSECURE_HOST"] == "h1 h2"
    # pip passes over folders that are not there; uv would stop.
    assert "UV_FIND_LINKS" not in variables


def test_pip_itself_reads_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order of files is pip's, and pip is the judge of it."""
    write(tmp_path / "home/.config/pip/pip.conf", "[global]\nindex-url = https://user.invalid/simple\n")
    write(tmp_path / "own.conf", "[install]\nindex-url = https://own.invalid/simple\n")
    script = (
        "from pip._internal.commands import create_command\n"
        "c = create_command('install'); print(c.parser.parse_args([])[0].index_url)\n"
    )
    variables = {
        "HOME": str(tmp_path / "home"),
        "PIP_CONFIG_FILE": str(tmp_path / "own.conf"),
        "PATH": "/usr/bin",
    }
    base = getattr(sys, "_base_executable", sys.executable)
    answer = subprocess.run(
        [base, "-c", script], env=variables, capture_output=True, text=True, timeout=120, check=False
    )
    if answer.returncode == 0:
        assert answer.stdout.strip() == read_pip_settings(variables, prefix=Path("/nowhere")).index_url


def test_places_on_this_machine_are_made_visible(tmp_path: Path) -> None:
    simple, links = tmp_path / "mirror" / "simple", tmp_path / "links"
    simple.mkdir(parents=True)
    links.mkdir()
    for name in ("files", "private"):
        (tmp_path / "mirror" / name).mkdir()
    index = PackageIndex(extra_index_urls=(f"file://{simple}", "file:///not/there"), find_links=(str(links),))
    assert index.folders == (simple, tmp_path / "mirror/files", links), (
        "nothing else that lies beside an index"
    )
    assert index.uv_variables()["UV_FIND_LINKS"] == str(links)


def test_passwords_are_known_and_masked() -> None:
    index = PackageIndex("https://me:p%40ss@index.invalid/simple", proxy="http://u:other@proxy.invalid:1")
    assert {"p%40ss", "p@ss", "other"} <= set(index.secrets)
    assert index.mask("failed: https://me:p%40ss@index.invalid and p@ss") == (
        "failed: https://me:****@index.invalid and ****"
    )
    assert index.pip_variables() == {}
    assert mask_credentials(index.index_url) == "https://****@index.invalid/simple"
    assert index.hosts == (("index.invalid", 443),)


def test_a_job_gets_the_indexes_that_it_can_reach() -> None:
    index = PackageIndex("https://index.invalid/simple", ("file:///local", "http://more.invalid:81/simple"))
    assert index.pip_variables() == {
        "PIP_INDEX_URL": "https://index.invalid/simple",
        "PIP_EXTRA_INDEX_URL": "http://more.invalid:81/simple",
    }
    assert index.hosts == (("index.invalid", 443), ("more.invalid", 81))
