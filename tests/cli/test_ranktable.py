"""`trainshed ranktable`, as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from trainshed.cli.ranktable import ranktable


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(ranktable, arguments)
    return result.exit_code, result.output


def test_print_check_and_merge(tmp_path: Path) -> None:
    files = []
    for number in (1, 2):
        hccn = tmp_path / f"hccn-{number}.conf"
        hccn.write_text("".join(f"address_{slot}=192.168.{slot}.{number}\n" for slot in range(8)))
        code, text = run(
            "print", "--server", f"10.0.0.{number}", "--hccn", str(hccn), "--form", "CAB"[number]
        )
        assert code == 0
        path = tmp_path / f"{number}.json"
        path.write_text(text)
        files.append(str(path))
    code, text = run("merge", *files)
    merged = tmp_path / "merged.json"
    merged.write_text(text)
    assert code == 0 and json.loads(text)["server_list"][1]["device"][7] == {
        "device_id": "7",
        "device_ip": "192.168.7.2",
        "rank_id": "15",
    }
    code, text = run("check", str(merged))
    assert code == 0 and "2 servers, 16 devices" in text and "nothing is wrong" in text


def test_a_faulty_table_fails_the_check(tmp_path: Path) -> None:
    _, text = run("print", "--server", "10.0.0.1", "--devices", "2")
    table = tmp_path / "t.json"
    table.write_text(text.replace('"rank_id": "1"', '"rank_id": "0"'))
    code, said = run("check", str(table), "--json")
    assert code == 1 and "several devices" in json.loads(said)["faults"][0]


def test_lint(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text("export RANK_ID=$i\n")
    code, text = run("lint", str(script))
    assert code == 1 and "run.sh:1" in text
    assert run("lint", "--nodes", "1", str(script))[0] == 0
