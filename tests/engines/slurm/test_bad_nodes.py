"""Machines that fail again and again."""

from __future__ import annotations

from pathlib import Path

from trainshed.engines.slurm.bad_nodes import BadNodes


def test_three_failed_starts_within_an_hour_and_one_good_one(tmp_path: Path) -> None:
    book = BadNodes(tmp_path / "run" / "nodes.json")
    for now in (0.0, 1.0, 2.0):
        # The same start, told again and again, is one failure.
        book.blame({"n1": "a/0"}, now)
    assert book.names(3.0) == []
    book.blame({"n1": "b/0", "n2": "b/1"}, 10.0)
    book.blame({"n1": "c/0"}, 20.0)
    assert book.names(21.0) == ["n1"]
    # The first failure is an hour ago.
    assert book.names(3601.0) == []
    book.forgive(["n1", "n9"], 22.0)
    assert book.names(22.0) == []
    assert BadNodes(tmp_path / "run" / "nodes.json")._read(22.0) == {"n2": {"b/1": 10.0}}


def test_a_book_that_cannot_be_read_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "nodes.json"
    for rubbish in ("", "[1]", '{"n1": [1, 2]}', '{"n1": {"a": "x"}}'):
        path.write_text(rubbish)
        book = BadNodes(path)
        assert book.names(0.0) == []
        book.blame({"n1": "a"}, 0.0)
        assert "n1" in path.read_text()
