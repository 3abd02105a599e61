"""Runs one sandbox as a runner would, in a process of its own, for the tests of this folder.

The request comes as JSON on the standard input, the answer leaves as JSON on the standard output. With
`--as-user UID` it first becomes that ordinary user, for whom an interpreter below /root is made visible in
a mount namespace of the driver's own.
"""

from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import signal
import sys
import sysconfig
import threading
import time
from pathlib import Path
from typing import Any

from trainshed.model.errors import TrainshedError
from trainshed.model.home import RunFolder
from trainshed.model.launch_plan import Environment, GeneratedFile, Limits, NodeLaunch, Peer
from trainshed.runner.broker import Broker
from trainshed.runner.gang import Gang, is_gang, join_gang
from trainshed.runner.sandbox import (
    Forward,
    Mount,
    OverlayMount,
    Sandbox,
    SandboxEnded,
    SandboxProcess,
    SandboxSpec,
    namespace,
)
from trainshed.runner.site import PlatformPort, Site
from trainshed.runner.ssh import Gate, SshDoor, plan_door
from trainshed.store import open_store

SYS_KEYCTL, SYS_ADD_KEY = {"x86_64": 250, "aarch64": 219}, {"x86_64": 248, "aarch64": 217}


def become(uid: int) -> None:
    python = os.path.realpath(sys.executable)
    namespace.enter_private_namespace()
    source = Path(namespace.__file__).parents[3]
    packages = Path(sysconfig.get_path("platlib"))
    for path in (Path(sys.base_prefix).resolve(), source, packages, Path(__file__).parent):
        reveal(path)
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
    os.environ["PYTHONPATH"] = f"{source}:{packages}"
    os.execv(python, [python, "-B", __file__])


def reveal(path: Path) -> None:
    """Make a folder reachable for everybody, in our own mount namespace only."""
    target = os.open(path, os.O_PATH)
    for folder in reversed(path.parents):
        if not folder.stat().st_mode & 0o001:
            namespace.mount("tmpfs", folder, "tmpfs", 0, "mode=0755")
            path.mkdir(parents=True)
            namespace.bind(target, path)
            break
    os.close(target)


def run(request: dict[str, Any]) -> dict[str, Any]:
    base = Path(request["base"])
    run_folder = base / request.get("run", "node-0")
    root = run_folder / "root"
    root.mkdir(parents=True, exist_ok=True)
    os.environ.update(request.get("environment", {}))
    mounts = [Mount(Path(source), target, rw) for source, target, rw in request.get("mounts", [])]
    gang, door = None, SshDoor()
    if "node" in request:
        peers = tuple(
            Peer(f"127.0.0.{index + 2}", (f"node-{index}", f"n{index}")) for index in range(request["nodes"])
        )
        ports = tuple(PlatformPort(item[0], item[1]) for item in request.get("forwards", []))
        launch = plan_node(request, peers)
        if is_gang(launch):
            gang = join_gang(RunFolder(run_folder), launch, Site("", "", ports))
        if "keys" in request:
            RunFolder(run_folder).secrets.write_text(json.dumps(request["keys"]))
            door = plan_door(launch, RunFolder(run_folder))
            mounts += door.mounts
    held = []
    if "descriptors" in request:
        namespace.claim_namespace()  # As a runner does first of all: what it opens is then its own to mount.
        held = [(os.open(path, os.O_PATH | os.O_CLOEXEC), target) for path, target in request["descriptors"]]
    broker = None
    if "objects" in request:
        store = open_store(f"file://{base / 'store'}")
        store.create_bucket("mine", "ours")
        for key, content in request["objects"].items():
            store.put("mine", key, content.encode())
        broker = Broker(run_folder / "broker.sock")
        if os.geteuid() == 0:
            broker.give_to(65534)
        mounts.append(broker.mount)
    spec = SandboxSpec(
        root,
        mounts=(*mounts, *(Mount(Path(f"/proc/self/fd/{held_open}"), target) for held_open, target in held)),
        overlays=tuple(
            OverlayMount(Path(lower), run_folder / f"upper-{n}", run_folder / f"work-{n}", target)
            for n, (lower, target) in enumerate(request.get("overlays", []))
        ),
        files=(*door.files, *(GeneratedFile(*item) for item in request.get("files", []))),
        network=request.get("network", "none"),
        forwards=tuple(Forward(*item) for item in request.get("forwards", [])),
        hostname=peers[request["node"]].names[0] if "node" in request else "trainshed",
        peers=peers if "node" in request else (),
        shared_network=gang.network if gang else -1,
        limits=Limits(**{"grace": 1, **request.get("limits", {})}),
        outside_uid=65534 if os.geteuid() == 0 else None,
        allow_unsandboxed=request.get("allow_unsandboxed", False),
    )
    for number in request.get("ignored", []):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, request.get("blocked", []))
    if "threads" in request:
        for _ in range(4):
            threading.Thread(target=time.sleep, args=(request["threads"],), daemon=True).start()
    if "key" in request:
        plant_key(request["key"].encode())
    if "before" in request:
        (base / "before" / "root").mkdir(parents=True)
        first = Sandbox(dataclasses.replace(spec, run_root=base / "before" / "root"))
        first.prepare()
        arguments = (os.path.realpath(sys.executable), "-c", request["before"])
        first.start([SandboxProcess(0, arguments, {}, "/", base / "before" / "logs" / "rank-0.log")])
        while not first.ended:
            first.wait(90)
        first.close()
    sandbox = Sandbox(spec)
    processes = [
        SandboxProcess(
            rank,
            tuple(argument.replace("@RUNNER@", str(os.getpid())) for argument in item["arguments"]),
            item.get("variables", {}),
            item.get("directory", "/"),
            run_folder / "logs" / f"rank-{rank}.log",
        )
        for rank, item in enumerate(request["processes"])
    ]
    answer: dict[str, Any] = {"events": [], "message": "", "checked": False}
    sandbox.prepare()
    if gang is not None:
        gang.require_network()
        door = door.listen(gang.network)
        gang.meet(lambda: leave_if_lost(gang), lambda words: None)
    time.sleep(request.get("dawdle", 0.0))
    sandbox.start(processes, door.services(processes))
    if broker is not None:
        broker.start(sandbox.bindings, lambda: store, "ours")
    gate = None
    if door.port:
        gate = Gate.open(run_folder / "ssh.sock", sandbox.init_pid, door.address, door.port)
    deadline = time.monotonic() + 200
    stop = request.get("stop")
    while not sandbox.ended:
        for event in sandbox.wait(0.1):
            answer["events"].append([type(event).__name__, dataclasses.asdict(event)])
            if isinstance(event, SandboxEnded):
                answer["message"] = event.message
        answer["checked"] = sandbox.check_limits() or answer["checked"]
        if gang is not None:
            gang.take_news()
            if gang.ending is not None and not answer.get("ending"):
                answer["ending"] = dataclasses.asdict(gang.ending)
                sandbox.stop(1)
        if stop and stop["line"] in processes[0].log.read_text(errors="replace"):
            sandbox.kill() if stop.get("kill") else sandbox.stop(stop["grace"])
            stop = None
        if time.monotonic() > deadline:
            answer["message"] = "the test's time is over"
            sandbox.kill()
    if gate is not None:
        gate.close()
    answer["usage"] = dataclasses.asdict(sandbox.usage())
    answer["out_of_memory"] = sandbox.out_of_memory()
    sandbox.close()
    if broker is not None:
        broker.close()
        answer["objects"] = [info.key for info in store.walk("mine")]
        store.close()
    answer["exits"] = {rank: dataclasses.asdict(found) for rank, found in sandbox.exits.items()}
    answer["kind"], answer["limits"] = sandbox.kind, sandbox.limits_in_force
    if gang is not None:
        failed = any(found.exit_code for found in sandbox.exits.values())
        gang.leave("failed" if failed else "completed")
    answer["stage_left"] = os.listdir(sandbox._stage._folder) if sandbox._stage else []
    return answer


def leave_if_lost(gang: Gang) -> None:
    """A gang that is lost before it began is answered like one that is lost later."""
    gang.take_news()
    if gang.ending is not None:
        print(json.dumps({"ending": dataclasses.asdict(gang.ending)}))
        sys.stdout.flush()
        os._exit(0)


def plan_node(request: dict[str, Any], peers: tuple[Peer, ...]) -> NodeLaunch:
    return NodeLaunch(
        job_id="job",
        job_name="job",
        workspace_id="ours",
        attempt=1,
        node_index=request["node"],
        node_count=len(peers),
        world_size=len(peers),
        code_bucket="",
        code_prefix="",
        code_path="/code",
        processes=(),
        environment=Environment("python", ""),
        network=request.get("network", "none"),
        peers=peers,
        ssh_port=29403,
    )


def plant_key(secret: bytes) -> None:
    """Put a secret into the kernel's keyring of this session."""
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.syscall(SYS_KEYCTL[os.uname().machine], 1, 0) > 0
    assert libc.syscall(SYS_ADD_KEY[os.uname().machine], b"user", b"platform", secret, len(secret), -3) > 0


def main() -> None:
    if "--as-user" in sys.argv:
        become(int(sys.argv[2]))
    # The test's own death must not leave a runner behind.
    signal.alarm(90)
    try:
        answer = run(json.loads(sys.stdin.readline()))
    except TrainshedError as error:
        answer = {"error": {**error.to_dict(), "kind": type(error).__name__}}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
