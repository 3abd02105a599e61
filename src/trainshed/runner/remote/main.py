"""One node of a job on a machine that only a cluster's scheduler reaches: from the check-in to the delivered report.

Three processes: this one, which waits; the runner, which runs the node as it would beside the platform; and the
courier, which carries what the runner writes. The first lives as long as there is something to deliver: when it
ends, the scheduler may take the machine.
"""

from __future__ import annotations

import errno
import importlib
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainshed.durable import remove_tree
from trainshed.model.errors import Conflict, HostUnfit, NotAuthenticated, TrainshedError
from trainshed.model.home import RunFolder
from trainshed.runner.remote.child import fork_child
from trainshed.runner.remote.early_runner import EarlyRunner, keep_what_is_loaded
from trainshed.runner.remote.node_folder import (
    UNDELIVERED,
    find_root,
    forget_old_runs,
    keep_runner,
    make_run_folder,
    take_lock,
)

if TYPE_CHECKING:
    from trainshed.model.attempt import Ending
    from trainshed.runner.remote.platform_link import PlatformLink
    from trainshed.store.outage import Patience

# Whatever else this process needs is loaded while the runner's process loads what that one needs.

__all__ = ["main", "run_node"]

TOKEN_VARIABLE = "TRAINSHED_RUNNER_TOKEN"
# What the start script's users read from the exit code (`engines.engine` names them too).
EXIT_NO_PLATFORM, EXIT_REFUSED, EXIT_UNFIT, EXIT_UNDELIVERED = 82, 83, 84, 85
# A platform that is away for an hour is waited for, before the job begins and while it runs.
_CHECK_IN_SECONDS = 2 * 3600.0
_COURIER_STARTS = 20
_HARDLY_ANY_ROOM = 256 << 10


class _Asked(Exception):
    """The scheduler wants this process to end."""


def main(arguments: list[str]) -> int:
    """`python -m trainshed.runner.remote.main --url URL --node N`, with the attempt's token in the environment."""
    import argparse

    parser = argparse.ArgumentParser(prog="trainshed runner")
    parser.add_argument("--url", required=True, help="the platform's API")
    parser.add_argument("--node", type=int, required=True, help="which node of the job this is, from 0")
    parser.add_argument("--ca", default="", help="a file with the CA that signed the platform's certificate")
    options = parser.parse_args(arguments)
    return run_node(options.url, options.node, options.ca)


def run_node(url: str, number: int, ca: str = "") -> int:
    """Run a node of a job; the exit code tells the scheduler and the platform how that went."""
    _know_own_folder()
    node = _Node(url, os.environ.pop(TOKEN_VARIABLE, ""), number, ca)
    try:
        return node.run()
    except _Asked:
        return 128 + signal.SIGTERM
    except (NotAuthenticated, Conflict) as refused:
        _say(str(refused))
        return EXIT_REFUSED
    except HostUnfit as unfit:
        node.tell_failure(unfit)
        return 1 if unfit.code == "stopped" else EXIT_UNFIT
    except TrainshedError as fault:
        _say(str(fault))
        return EXIT_NO_PLATFORM
    except OSError as fault:
        node.tell_failure(_unfit(fault))
        return EXIT_UNFIT


class _Node:
    """The process that waits."""

    def __init__(self, url: str, token: str, node: int, ca: str) -> None:
        self._url = url
        self._token = token
        self._node = node
        self._ca = ca
        self._nonce = os.urandom(16).hex()
        self._is_asked = False
        self._runner = 0
        # How long the platform may be away before what the job made is left lying here.
        self._patience = 24 * 3600.0
        signal.signal(signal.SIGTERM, self._on_sigterm)
        # Meant for the job when somebody sends them to all (`scancel --signal=USR1`); its processes hear them themselves.
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, signal.SIG_IGN)

    def run(self) -> int:
        """Check in, run, deliver, clean up."""
        root = find_root(os.environ)
        # Where the platform's uv lies, if the machine has none.
        os.environ["PATH"] = f"{os.environ.get('PATH') or os.defpath}:{root / 'bin'}"
        in_use = keep_runner(__file__)
        _load_shared()
        runner = EarlyRunner()
        try:
            self._runner = runner.pid
            ticket = self._check_in(root)
            self._patience = float(ticket["site"]["patience"])
            launch = ticket["launch"]
            folder = make_run_folder(root, launch["job_id"], launch["attempt"], self._node)
        except BaseException:
            runner.forget()
            raise
        try:
            lock = take_lock(folder)
            environment = self._prepare(folder, root, ticket)
            runner.begin(folder)
            self._start_tidying(root, ticket["site"]["caches"])
            if self._is_asked:
                os.kill(self._runner, signal.SIGTERM)
            outcome = self._wait(folder, launch)
            for descriptor in (lock, environment, in_use):
                if descriptor >= 0:
                    os.close(descriptor)
            return outcome
        finally:
            if not (folder.path / UNDELIVERED).exists():
                remove_tree(folder.path)

    def _check_in(self, root: Path) -> dict[str, Any]:
        """Take the node; what to run there."""
        from trainshed.runner.remote.node_facts import describe_machine

        link = self._link(self._new_patience())
        facts = describe_machine(self._url, os.environ)
        meanwhile = threading.Thread(target=_use_the_wait, args=(root,), daemon=True)
        meanwhile.start()
        try:
            return link.check_in(facts, check=self._check, say=_say)
        except TrainshedError:
            # Whoever waits for a platform that is away gives up when the machine is taken away.
            self._check()
            raise
        finally:
            # Connections are not shared with the processes that begin now, nor are locks of a thread.
            link.close()
            meanwhile.join()
            keep_what_is_loaded()

    def _prepare(self, folder: RunFolder, root: Path, ticket: dict[str, Any]) -> int:
        """Leave in the folder what the runner reads, and bring here what it needs. A descriptor that keeps its
        environment from being removed."""
        from trainshed.runner.remote.carried_code import write_code
        from trainshed.runner.remote.node_caches import has_environment, hold_environment
        from trainshed.runner.remote.site_files import write_files

        write_files(folder, root, ticket, self._token)
        write_code(folder, ticket.get("code", ()))
        launch = ticket["launch"]
        digest = launch["environment"]["digest"]
        environment = hold_environment(root, digest)
        if not has_environment(root, digest) or launch["ssh_port"]:
            link = self._link(self._new_patience())
            _provide_uv(link, root)
            if launch["ssh_port"]:
                from trainshed.runner.remote.ssh_packages import provide_ssh_packages

                fault = provide_ssh_packages(link, root, ticket["site"]["ssh_packages"])
                if fault:
                    _tell_owner(folder, f"ssh cannot be offered: {fault}")
            link.close()
        return environment

    def _start_tidying(self, root: Path, limits: dict[str, float]) -> None:
        from trainshed.runner.remote.node_caches import is_tidy, tidy_node

        if not is_tidy(root):
            fork_child(lambda: tidy_node(root, limits, nice=10) and 0)

    def tell_failure(self, fault: TrainshedError) -> None:
        """Say here and to the platform why this node does not begin."""
        from trainshed.runner.remote.node_facts import node_name

        _say(str(fault))
        try:
            self._link(None).tell_failure(fault, node_name(os.environ))
        except (TrainshedError, ConnectionError) as silent:
            _say(f"the platform does not know that: {silent}")

    def _wait(self, folder: RunFolder, launch: dict[str, Any]) -> int:
        """Wait for the runner and the courier, each of which may die before its time."""
        from trainshed.runner.remote.courier import DELIVERED, GIVEN_UP, UNWANTED

        courier, starts = self._start_courier(folder, is_first=True), 1
        is_running, delivered = True, None
        while is_running or delivered is None:
            pid, status = os.wait()
            code = os.waitstatus_to_exitcode(status)
            if pid == self._runner:
                if _ending(folder) is None:
                    # It was killed: what it left is brought home in its place.
                    self._runner = fork_child(lambda: _salvage(folder, self._node), dies_with_parent=True)
                    pid, _ = os.waitpid(self._runner, 0)
                is_running, self._runner = False, 0
                if _ending(folder) is None and delivered is None:
                    os.kill(courier, signal.SIGKILL)
                    os.waitpid(courier, 0)
                    delivered = UNWANTED
                elif not launch["outputs"] and not _left_behind(folder):
                    # Nothing of it is of use to anybody: it is removed while the courier brings the last report.
                    remove_tree(folder.root)
            elif pid == courier:
                if code in (DELIVERED, UNWANTED, GIVEN_UP) or starts >= _COURIER_STARTS:
                    delivered = code
                    if is_running and self._runner:
                        os.kill(self._runner, signal.SIGTERM)
                else:
                    time.sleep(1)
                    courier, starts = self._start_courier(folder), starts + 1
        ending = _ending(folder)
        if _left_behind(folder):
            # Outputs that the store did not take: they stay here for somebody to find.
            _keep(folder)
            _say(f"what could not be brought home lies in {folder.path}")
        if delivered == GIVEN_UP:
            # The only copy of what the job made: it stays here for somebody to find.
            _keep(folder)
            _say(f"the platform could not be reached; what the job made lies in {folder.path}")
            return EXIT_UNDELIVERED
        if delivered != DELIVERED:
            return 1
        # The platform knows all. For the scheduler a job of one node has failed where it has; of several nodes each
        # ends in its own time, and a bad end of one would end the others at once.
        has_failed = ending is None or ending["outcome"] != "completed"
        return 1 if has_failed and launch["node_count"] == 1 else 0

    def _start_courier(self, folder: RunFolder, *, is_first: bool = False) -> int:
        from trainshed.runner.remote.courier import Courier

        def carry() -> int:
            # The scheduler's SIGTERM is for the job; the news of its end must still get out.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            link = self._link(None)
            return Courier(folder, link, patience=self._patience, is_first=is_first).run()

        return fork_child(carry)

    def _link(self, patience: Patience | None) -> PlatformLink:
        from trainshed.runner.remote.platform_link import PlatformLink

        return PlatformLink(self._url, self._token, self._node, self._nonce, ca=self._ca, patience=patience)

    def _new_patience(self) -> Patience:
        from trainshed.store.outage import Patience

        return Patience(_CHECK_IN_SECONDS, lambda: self._is_asked, _say)

    def _on_sigterm(self, *_: object) -> None:
        self._is_asked = True
        if self._runner:
            os.kill(self._runner, signal.SIGTERM)

    def _check(self) -> None:
        if self._is_asked:
            raise _Asked


def _load_shared() -> None:
    """What this process needs first and the runner's process as well: loaded once for both."""
    for name in (
        "runner.remote.node_facts",
        "runner.remote.platform_link",
        "runner.site",
        "store.folder_tree",
    ):
        importlib.import_module(f"trainshed.{name}")


def _use_the_wait(root: Path) -> None:
    """While the platform makes its plan: make room, and load what comes next."""
    forget_old_runs(root)
    for name in ("carried_code", "courier", "node_caches", "site_files"):
        importlib.import_module(f"trainshed.runner.remote.{name}")


def _salvage(folder: RunFolder, node: int) -> int:
    from trainshed.runner.salvage import salvage_node
    from trainshed.runner.sandbox import claim_namespace

    # Nobody brings things home in this one's place: it goes on until the scheduler's SIGKILL.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.umask(0o022)
    claim_namespace()
    salvage_node(folder, _no_room(folder, node), is_patient=True)
    return 0


def _no_room(folder: RunFolder, node: int) -> Ending | None:
    """Why a runner died that had no room left to say so."""
    from trainshed.model.attempt import Ending
    from trainshed.runner.remote.node_facts import node_name

    disk = os.statvfs(folder.path)
    if disk.f_bavail * disk.f_frsize > _HARDLY_ANY_ROOM:
        return None
    return Ending(
        "failed",
        "node",
        "no_room",
        f"{node_name(os.environ)}: this machine has no room left for the job.",
        "Make room, or let TRAINSHED_NODE_FOLDER name a folder of the machines that has some.",
        node=node,
        time=time.time(),
    )


def _provide_uv(link: PlatformLink, root: Path) -> None:
    """See to it that environments can be built: with the machine's uv, or with the platform's."""
    from trainshed.runner.environment.interpreter import find_uv

    own = root / "bin"
    try:
        find_uv()
    except HostUnfit:
        own.mkdir(exist_ok=True)
        link.fetch_uv(own / "uv")


def _keep(folder: RunFolder) -> None:
    """Let the folder be left for somebody to find, without what only the runner may know."""
    (folder.path / UNDELIVERED).touch()
    for path in (folder.secrets, folder.path / "token"):
        path.unlink(missing_ok=True)


def _ending(folder: RunFolder) -> dict[str, Any] | None:
    try:
        ending: dict[str, Any] | None = json.loads(folder.status.read_bytes()).get("ending")
    except (OSError, ValueError):
        return None
    return ending


def _left_behind(folder: RunFolder) -> bool:
    try:
        return bool(json.loads(folder.status.read_bytes()).get("left_behind"))
    except (OSError, ValueError):
        return False


def _know_own_folder() -> None:
    """Let Python know in which virtual environment it is: started without its site, it does not look."""
    folder = os.path.dirname(os.path.dirname(sys.executable))
    if os.path.exists(os.path.join(folder, "pyvenv.cfg")):
        sys.prefix = sys.exec_prefix = folder


def _unfit(fault: OSError) -> HostUnfit:
    """What keeps this machine from running the node, in words."""
    if fault.errno in (errno.ENOSPC, errno.EDQUOT):
        return HostUnfit(
            f"This machine has no room for the job: {fault}.",
            hint="Make room, or set TRAINSHED_NODE_FOLDER to a folder of the nodes that has some.",
            code="no_room",
        )
    return HostUnfit(f"This machine cannot run the job: {fault}.", code="node_folder")


def _tell_owner(folder: RunFolder, words: str) -> None:
    from trainshed.runner.reporter import PlatformLog

    log = PlatformLog(folder.platform_log)
    log.say(words)
    log.close()


def _say(text: str) -> None:
    sys.stderr.write(f"trainshed: {text}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
