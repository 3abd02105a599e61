from __future__ import annotations

import math

import pytest

from trainshed.cli.following import LineWriter
from trainshed.cli.metrics import draw_sparkline
from trainshed.cli.presentation import format_age, format_duration, print_table


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.0 s"), (8.44, "8.4 s"), (59.96, "1m 00s"), (200, "3m 20s"), (7500, "2h 05m"), (273600, "3d 4h")],
)
def test_duration(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_age() -> None:
    assert [format_age(100 - s, 100) for s in (0, 59, 60, 7200, 200000)] == ["0s", "59s", "1m", "2h", "2d"]


def test_table_fits_the_window(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    print_table(
        ("ID", "NAME", "PHASE"),
        [("12345678", "n" * 200, "Completed"), ("87654321", "数据", "Running")],
        elastic="NAME",
        empty="nothing",
    )
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert "12345678" in lines[1] and "Completed" in lines[1] and "…" in lines[1]
    assert "Running" in lines[2]


def test_a_table_that_goes_elsewhere_is_whole(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    columns, row = ("ID", "NAME", "DETAIL"), ("12345678", "n" * 60, "d" * 60)
    print_table(columns, [row], elastic="NAME", empty="nothing")
    assert capsys.readouterr().out.splitlines()[1].split() == list(row)
    monkeypatch.setenv("COLUMNS", "50")
    print_table(columns, [row], elastic="NAME", empty="nothing")
    assert capsys.readouterr().out.splitlines()[1].split() == ["12345678", "nnnnnnn…", "d" * 60]


def test_empty_table(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("A",), [], elastic="A", empty="There is nothing.")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "There is nothing.\n"


def test_sparkline() -> None:
    assert draw_sparkline([]) == ""
    assert draw_sparkline([0, 7]) == "▁█"
    assert draw_sparkline([3, 3, 3]) == "▄▄▄"
    assert draw_sparkline([1, math.nan, 2]) == "▁?█"
    assert draw_sparkline([math.inf]) == "?"
    assert len(draw_sparkline([float(n) for n in range(1000)])) == 20


def test_lines_of_ranks_do_not_mix() -> None:
    out = bytearray()
    first, second = LineWriter("[rank 0] ", out.extend), LineWriter("[rank 1] ", out.extend)
    first.feed(b"ab")
    second.feed(b"x\ny")
    first.feed(b"c\nend")
    second.close()
    first.close()
    assert bytes(out) == b"[rank 1] x\n[rank 0] abc\n[rank 1] y\n[rank 0] end\n"


def test_a_single_rank_is_written_byte_for_byte() -> None:
    out = bytearray()
    writer = LineWriter("", out.extend)
    for piece in (b"\r 10%", b"\xff\x00", b"no end"):
        writer.feed(piece)
    writer.close()
    assert bytes(out) == b"\r 10%\xff\x00no end"


def test_a_line_without_end_is_not_held_for_ever() -> None:
    out = bytearray()
    writer = LineWriter("[rank 0] ", out.extend)
    writer.feed(b"x" * 200_000)
    assert len(out) > 200_000
