"""What a runner elsewhere says to the platform, and what it is told."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from trainshed.model.errors import HostUnfit, InvalidInput, TrainshedError
from trainshed.store.outage import Patience
from trainshed.store.remote.wire import PlatformWire

if TYPE_CHECKING:
    from trainshed.runner.remote.web_socket import WebSocket

__all__ = ["PlatformLink"]

_POLL_SECONDS = 0.3
# The scheduler starts all nodes at once; one that has not come by then will not come.
_PEERS_SECONDS = 900.0
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
        self._url = f"{url.rstrip('/')}/api/v1/runners"
        self._token = token
        self._ca = ca

    def check_in(
        self,
        facts: dict[str, Any],
        *,
        check: Callable[[], None] = lambda: None,
        say: Callable[[str], None] = lambda text: None,
        peers_seconds: float = _PEERS_SECONDS,
    ) -> dict[str, Any]:
        """Take the node, and wait until all others are there; what to run. `check` ends the wait by raising."""

        def body() -> bytes:
            # Made for each try: after an outage the time of the first one would be a wrong clock.
            said = {"node": self._node, "nonce": self._nonce, "clock": time.time(), **facts}
            return json.dumps(said).encode()

        waiting_since = 0.0
        while True:
            check()
            try:
                answer: dict[str, Any] = self._wire.call(
                    "POST", "check-in", headers={"content-type": "application/json"}, body=body
                )
            except InvalidInput as refused:
                # What this machine says of itself does not go together with the others.
                raise HostUnfit(refused.message, hint=refused.hint, code=refused.code) from None
            if "launch" in answer:
                return answer
            missing = answer.get("waiting_for")
            if answer.get("stop") is not None:
                raise HostUnfit(str(answer["stop"].get("reason") or "The job was stopped."), code="stopped")
            if not waiting_since:
                waiting_since = time.monotonic()
                say(f"waiting for the nodes {missing} of this job")
            if time.monotonic() - waiting_since > peers_seconds:
                raise HostUnfit(
                    f"The other nodes of this job ({missing}) have not come within {peers_seconds:.0f} s.",
                    hint="Their machines could not start a runner: see their own logs, or leave them out.",
                    code="peers_missing",
                )
            time.sleep(_POLL_SECONDS)

    def tell_failure(self, fault: TrainshedError, host: str) -> None:
        """Say why this node will not begin. Tried once: the exit code tells something, too."""
        said = {
            "node": self._node,
            "nonce": self._nonce,
            "host": host,
            "code": fault.code,
            "message": fault.message[:2000],
            "hint": fault.hint[:1000],
        }
        headers = {"content-type": "application/json"}
        with self._wire.send(
            "POST", "failed-start", headers=headers, body=json.dumps(said).encode()
        ) as answer:
            answer.read()

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

    def call_back(self, name: str) -> WebSocket:
        """Open the connection for which somebody waits at the platform."""
        # Few nodes are entered: most do without TLS of their own and WebSockets.
        import ssl

        from trainshed.runner.remote.web_socket import WebSocket

        query = urlencode({"node": str(self._node), "nonce": self._nonce})
        url = f"{self._url}/ssh/{name}?{query}"
        trust = None
        if url.startswith("https"):
            trust = ssl.create_default_context()
            if self._ca:
                trust.load_verify_locations(cafile=self._ca)
        return WebSocket(url, {"Authorization": f"Bearer {self._token}"}, trust)

    def fetch_uv(self, target: Path) -> None:
        """Bring the platform's own uv here."""
        import platform

        self.fetch("uv", {"machine": platform.machine()}, target, mode=0o755)

    def fetch(self, path: str, query: dict[str, str], target: Path, *, mode: int = 0o600) -> None:
        """Bring a file of the platform's here, whole or not at all."""
        fresh = target.with_name(f".{target.name}.{os.getpid()}")
        buffer = memoryview(bytearray(_CHUNK))
        try:
            with (
                self._wire.stream("GET", path, query) as answer,
                fresh.open("wb") as file,
            ):
                while count := answer.readinto(buffer):
                    file.write(buffer[:count])
            fresh.chmod(mode)
            fresh.rename(target)
        except ConnectionError as error:
            raise TrainshedError(f"{path} could not be fetched from the platform: {error}.") from error
        finally:
            fresh.unlink(missing_ok=True)

    def close(self) -> None:
        """Close all connections."""
        self._wire.close()
