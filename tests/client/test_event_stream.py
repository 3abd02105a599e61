from __future__ import annotations

from trainshed.client.event_stream import ServerEvent, parse_events


def test_events_in_any_split() -> None:
    wire = ': hello\n\nid: 5\ndata: {"text":"a\u2028b"}\n\nevent: end\ndata: x\ndata: y\n\n: bye\n'.encode()
    expected = [
        None,
        ServerEvent("message", "5", '{"text":"a\u2028b"}'),
        ServerEvent("end", "5", "x\ny"),
        None,
    ]
    for size in (1, 2, 3, 7, len(wire)):
        pieces = [wire[start : start + size] for start in range(0, len(wire), size)]
        assert list(parse_events(pieces)) == expected


def test_half_an_event_is_not_handed_out() -> None:
    assert list(parse_events([b"data: half\n"])) == []
