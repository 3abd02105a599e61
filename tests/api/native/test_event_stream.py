from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trainshed.api.native.event_stream import encode_bytes, format_event, safe_length
from trainshed.client.event_stream import parse_events


@given(st.text(), st.integers(0, 100))
def test_any_cut_of_text_is_mended(text: str, cut: int) -> None:
    data = text.encode()[: cut or None]
    kept = data[: safe_length(data)]
    kept.decode("utf-8")
    assert len(data) - len(kept) < 4


@given(st.binary())
def test_junk_is_held_back_by_three_bytes_at_most(data: bytes) -> None:
    assert 0 <= len(data) - safe_length(data) < 4


@given(st.text(), st.integers(0))
def test_an_event_survives_the_wire(text: str, number: int) -> None:
    wire = format_event({"text": text}, kind="piece", event_id=number)
    (event,) = parse_events([wire])
    assert event is not None
    assert (event.kind, event.id) == ("piece", str(number))


def test_bytes_are_text_where_they_can_be() -> None:
    assert encode_bytes("ü".encode()) == {"text": "ü"}
    assert encode_bytes(b"\xff") == {"base64": "/w=="}
