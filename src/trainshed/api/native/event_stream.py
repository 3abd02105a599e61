"""Server-sent events: how one looks on the wire, and how bytes of a log become text safely."""

from __future__ import annotations

import base64
import json
from typing import Any

__all__ = ["EVENT_STREAM", "HEARTBEAT", "encode_bytes", "format_event", "safe_length"]

EVENT_STREAM = "text/event-stream"
HEARTBEAT = b": still here\n\n"


def format_event(data: Any, *, kind: str = "", event_id: str | int = "") -> bytes:
    """One event. The data is JSON, so it never holds a line break."""
    head = (f"event: {kind}\n" if kind else "") + (f"id: {event_id}\n" if event_id != "" else "")
    return f"{head}data: {json.dumps(data, ensure_ascii=False, separators=(',', ':'))}\n\n".encode()


def encode_bytes(data: bytes) -> dict[str, str]:
    """Bytes of a log as JSON can hold them: as text if they are UTF-8, else in base64."""
    try:
        return {"text": data.decode("utf-8")}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode("ascii")}


def safe_length(data: bytes) -> int:
    """How many bytes can be sent now so that no UTF-8 character is cut in two at the end."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0b1100_0000 == 0b1000_0000:
            continue
        # Bytes that begin no character (0xC0, 0xC1, 0xF5 and above) have nothing to wait for.
        needed = 0 if byte < 0xC2 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4 if byte < 0xF5 else 0
        return len(data) - back if needed > back else len(data)
    return len(data)
