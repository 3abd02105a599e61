"""What a runner elsewhere says to the platform, and what it is told."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from trainshed.model.errors import TrainshedError
from trainshed.store.outage import Patience
from trainshed.store.remote.wire import PlatformWire

__all__ = ["PlatformLink"]

_POLL_SECONDS = 0.3
_CHUNK = 1 << 20


class PlatformLink:
    """The platform's gateway for runners, as one process of one node sees it."""

    def __init__(
        self,
        url: str,
        token: str,
        node: int,
        nonce: str,
        *,
        ca: str = "",
        patience: Patience | None = None,
    ) -> None:
        self._wire = PlatformWire(f"{url.rstrip('/')}/api/v1/runners", token, ca=ca, patience=patience)
        self._node = node
        self._nonce = nonce

    def check_in(
        self,
        facts: dict[str, Any],
        *,
        check: Callable[[], None] = lambda: None,
        say: Callable[[str], None] = lambda text: None,
    ) -> dict[str, Any]:
        """Take the node, and wait until all others are there; what to run. `check` ends the wait by raising."""
        said = False
        while True:
            check()
            body = {"node": self._node, "nonce": self._nonce, "clock": time.time(), **facts}
            answer: dict[str, Any] = self._wire.call(
                "POST",
                "check-in",
                headers={"content-type": "application/json"},
                body=json.dumps(body).encode(),
            )
            if "launch" in answer:
                return answer
            if not said:
                said = True
                say(f"waiting for the nodes {answer.get('waiting_for')} of this job")
            time.sleep(_POLL_SECONDS)

    def report(
        self,
        pieces: Sequence[tuple[str, int, bytes]] = (),
        report: dict[str, Any] | None = None,
        *,
        ready: bool = False,
    ) -> dict[str, Any]:
        """Send pieces of files and the node's report; what the platform says to it."""
        head: dict[str, Any] = {"pieces": [[path, offset, len(data)] for path, offset, data in pieces]}
        if report is not None:
            head["report"] = report
        if ready:
            head["ready"] = True
        body = b"".join([json.dumps(head).encode(), b"\n", *(data for _, _, data in pieces)])
        query = {"node": str(self._node), "nonce": self._nonce}
        answer: dict[str, Any] = self._wire.call("POST", "report", query, body=body)
        return answer

    def fetch_uv(self, target: Path) -> None:
        """Bring the platform's own uv here."""
        fresh = target.with_name(f".{target.name}.{os.getpid()}")
        buffer = memoryview(bytearray(_CHUNK))
        try:
            with (
                self._wire.stream("GET", "uv", {"machine": platform.machine()}) as answer,
                fresh.open("wb") as file,
            ):
                while count := answer.readinto(buffer):
                    file.write(buffer[:count])
            fresh.chmod(0o755)
            fresh.rename(target)
        except ConnectionError as error:
            raise TrainshedError(f"uv could not be fetched from the platform: {error}.") from error
        finally:
            fresh.unlink(missing_ok=True)

    def close(self) -> None:
        """Close all connections."""
        self._wire.close()
