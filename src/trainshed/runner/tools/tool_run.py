"""One hosted tool, from its plan to its end: environment, files, sandbox, server on a Unix socket.

python -m trainshed.runner.tools.tool_run FOLDER PARENT_PID
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from trainshed.durable import write_durably
from trainshed.model.engines import EnginePreset
from trainshed.model.errors import TrainshedError
from trainshed.model.launch_plan import Limits, from_json, to_json
from trainshed.model.tool import ToolPlan, ToolState
from trainshed.runner.environment.build import EnvironmentPaths, ensure_environment
from trainshed.runner.environment.resolution import resolve
from trainshed.runner.sandbox import Mount, Sandbox, SandboxProcess, SandboxSpec, claim_namespace
from trainshed.runner.tools.event_mirror import EventMirror
from trainshed.store import open_store

__all__ = ["TENSORBOARD", "ToolFolder", "main"]

# setuptools: TensorBoard asks it for its plugins, and later versions no longer answer.
TENSORBOARD = EnginePreset(
    "tensorboard", "", ("tensorboard>=2.16", "setuptools<81"), "What TensorBoard itself runs in."
)
_PR_SET_PDEATHSIG = 1
_REFRESH_SECONDS = 20.0
_START_SECONDS = 120.0
_TICK = 0.5
_SOCKET_FOLDER = "/tool/socket"
_PROGRAM = "/opt/trainshed/tools/tensorboard_program.py"
_LIMITS = Limits(memory_mb=4096, cpus=2, processes=256, grace=2)


@dataclass(frozen=True)
class ToolFolder:
    """The folder of one tool: its plan, its state, its socket, its log."""

    path: Path

    @property
    def plan(self) -> Path:
        """The plan, as JSON."""
        return self.path / "plan.json"

    @property
    def state(self) -> Path:
        """How far it has come, as JSON."""
        return self.path / "state.json"

    @property
    def socket(self) -> Path:
        """Where it answers."""
        return self.path / "socket" / "tool.sock"

    @property
    def log(self) -> Path:
        """What it says."""
        return self.path / "tool.log"

    def read_state(self) -> ToolState:
        """How far it has come."""
        try:
            return from_json(ToolState, json.loads(self.state.read_text("utf-8")))
        except (OSError, ValueError):
            return ToolState("starting")


class _Ended(Exception):
    """The tool was asked to end."""


class _ToolRun:
    def __init__(self, folder: ToolFolder) -> None:
        self._folder = folder
        self._plan = from_json(ToolPlan, json.loads(folder.plan.read_text("utf-8")))
        self._mirrors: list[EventMirror] = []

    def walk(self) -> None:
        """Run until SIGTERM, or until the tool has ended by itself; the state tells why."""
        try:
            self._say(ToolState("installing"))
            environment = self._install()
            self._say(ToolState("starting"))
            self._serve(environment)
        except _Ended:
            return
        except TrainshedError as fault:
            self._say(ToolState("failed", str(fault)))
        except OSError as fault:
            self._say(ToolState("failed", f"It could not be started: {fault}."))

    def _say(self, state: ToolState) -> None:
        write_durably(self._folder.state, to_json(state))

    def _install(self) -> EnvironmentPaths:
        plan = self._plan
        environments = Path(plan.environments)
        sandboxed = not plan.allow_unsandboxed
        with self._folder.log.open("ab", buffering=0) as file:

            def log(data: bytes) -> None:
                file.write(data)

            environment = resolve(
                TENSORBOARD,
                folder=environments,
                uid=plan.uid,
                install_uid=plan.install_uid,
                sandboxed=sandboxed,
                log=log,
            )
            return ensure_environment(
                environment,
                environments,
                log,
                uid=plan.uid,
                install_uid=plan.install_uid,
                sandboxed=sandboxed,
            )

    def _mounts(self) -> list[Mount]:
        plan = self._plan
        mounts = []
        store = None
        for source in plan.sources:
            if source.host_path:
                mounts.append(Mount(Path(source.host_path), f"/logs/{source.name}"))
                continue
            store = store or open_store(plan.store_url)
            mirror = self._folder.path / "mirror" / source.name
            self._mirrors.append(EventMirror(store, source.bucket, source.key, mirror))
            self._mirrors[-1].refresh()
            mounts.append(Mount(mirror, f"/logs/{source.name}"))
        return mounts

    def _serve(self, environment: EnvironmentPaths) -> None:
        plan, folder = self._plan, self._folder
        for path in (folder.socket.parent, folder.path / "root"):
            path.mkdir(parents=True, exist_ok=True)
            os.chmod(path, 0o755)
            if plan.uid is not None:
                os.chown(path, plan.uid, plan.uid)
        folder.socket.unlink(missing_ok=True)
        program = Path(__file__).with_name("tensorboard_program.py")
        sandbox = Sandbox(
            SandboxSpec(
                run_root=folder.path / "root",
                mounts=(
                    *self._mounts(),
                    Mount(folder.socket.parent, _SOCKET_FOLDER, writable=True),
                    Mount(program, _PROGRAM),
                    Mount(environment.path_on_host, environment.target),
                ),
                hostname="tensorboard",
                network="none",
                limits=_LIMITS,
                outside_uid=plan.uid,
                interpreter_prefix=environment.interpreter_prefix or Path(sys.base_prefix),
                allow_unsandboxed=plan.allow_unsandboxed,
            )
        )
        sandbox.prepare()
        if sandbox.kind == "none":
            raise TrainshedError(
                "Tools are only hosted inside a sandbox.", hint="`trainshed doctor` tells what is missing."
            )
        target = environment.target
        process = SandboxProcess(
            rank=0,
            arguments=(
                f"{target}/bin/python",
                _PROGRAM,
                f"{_SOCKET_FOLDER}/{folder.socket.name}",
                plan.folder,
                f"/t/{plan.id}",
            ),
            variables={
                "PATH": f"{target}/bin:/usr/bin:/bin",
                "HOME": "/home/trainshed",
                "LANG": "C.UTF-8",
                "PYTHONDONTWRITEBYTECODE": "1",
            },
            directory="/tmp",
            log=folder.log,
        )
        try:
            sandbox.start([process])
            self._watch(sandbox)
        finally:
            sandbox.close()

    def _watch(self, sandbox: Sandbox) -> None:
        began = time.monotonic()
        next_refresh = began + _REFRESH_SECONDS
        is_ready = False
        poller = select.poll()
        poller.register(sandbox.fileno(), select.POLLIN)
        while not sandbox.ended:
            poller.poll(_TICK * 1000)
            sandbox.poll()
            now = time.monotonic()
            if not is_ready and self._folder.socket.exists():
                is_ready = True
                self._say(ToolState("ready"))
            if not is_ready and now > began + _START_SECONDS:
                break
            if now >= next_refresh:
                for mirror in self._mirrors:
                    mirror.refresh()
                next_refresh = time.monotonic() + _REFRESH_SECONDS
        raise TrainshedError(f"TensorBoard has ended: {self._last_words()}")

    def _last_words(self) -> str:
        try:
            text = self._folder.log.read_bytes()[-2000:].decode("utf-8", "replace")
        except OSError:
            text = ""
        lines = [line for line in text.splitlines() if line.strip()]
        return lines[-1][:300] if lines else "it said nothing"


def main(arguments: list[str]) -> int:
    """Run the tool whose plan lies in the folder, as long as the parent lives."""
    folder, parent = ToolFolder(Path(arguments[0])), int(arguments[1])
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        return 1

    def end(*_: object) -> None:
        raise _Ended

    signal.signal(signal.SIGTERM, end)
    claim_namespace()
    _ToolRun(folder).walk()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
