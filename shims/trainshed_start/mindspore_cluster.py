"""MindSpore on CPUs with several ranks: `init()` finds its scheduler, without a launcher of MindSpore's own.

On Ascend the ranks meet by the rank table. On CPUs they meet at a scheduler process, named by MS_ variables. Both
come from here at the call of `init()`: the variables from the ranks that the launch (or the script's own launcher)
gave, the scheduler from whoever is rank 0. Whoever was started by `msrun` meets elsewhere and is left alone.
"""

import functools
import os
import socket
import subprocess
import sys
import time

from trainshed_start import mindspore_exit
from trainshed_start.hooks import is_rehearsal, report_fault, say
from trainshed_start.mindspore_scheduler import count_connections, count_own_connections, is_listening

__all__ = ["change", "leave", "prepare"]

_LONGEST_WAIT = 600.0
# Ranks import at different speeds, and the scheduler starts with rank 0.
_LONGEST_WAIT_FOR_SCHEDULER = 120.0
_scheduler = None


def prepare(name):
    """Before MindSpore loads: the way out is looked after from the start."""
    if name == "mindspore":
        mindspore_exit.prepare()


def change(name, module):
    """Have `init()` look after the cluster first."""
    if name != "mindspore.communication.management":
        return
    init = module.init

    @functools.wraps(init)
    def joining(*arguments, **options):
        try:
            # A real device has a cluster of its own; a rehearsal has none.
            if is_rehearsal() or module.context.get_context("device_target") == "CPU":
                _join()
                if os.environ.get("MS_ROLE") == "MS_WORKER":
                    mindspore_exit.postpone()
        except Exception as fault:
            report_fault("mindspore.communication.init", fault)
        return init(*arguments, **options)

    module.init = joining


def leave():
    """Leave the cluster: rank 0 last of all, because the scheduler may end with its node."""
    _stay_for_the_others()
    mindspore_exit.leave()


def _join():
    meeting_point = os.environ.get("TRAINSHED_MS_SCHED", "")
    host, _, port = meeting_point.rpartition(":")
    if not host:
        return
    role = os.environ.get("MS_ROLE", "")
    if not role:
        size = _number("OMPI_COMM_WORLD_SIZE", "RANK_SIZE", "WORLD_SIZE")
        rank = _number("OMPI_COMM_WORLD_RANK", "RANK_ID", "RANK")
        if size is None or rank is None:
            return
        os.environ.update(
            {
                "MS_ROLE": "MS_WORKER",
                "MS_NODE_ID": str(_repair(rank, size)),
                "MS_WORKER_NUM": str(size),
                "MS_SCHED_HOST": host,
                "MS_SCHED_PORT": port,
            }
        )
    elif role != "MS_WORKER" or meeting_point != _chosen_meeting_point():
        # The work of another launcher, which has a scheduler of its own.
        return
    if os.environ.get("MS_NODE_ID") == "0" and not _listens(host, int(port)):
        _start_scheduler()
    if host.startswith("127."):
        _await_scheduler(int(port))


def _await_scheduler(port):
    """Whoever asks too early is told so by pages of warnings, and asks again only after a while."""
    deadline = time.monotonic() + _LONGEST_WAIT_FOR_SCHEDULER
    while not is_listening(port) and time.monotonic() < deadline:
        if _scheduler is not None and _scheduler.poll() is not None:
            return
        time.sleep(0.1)


def _chosen_meeting_point():
    return os.environ.get("MS_SCHED_HOST", "") + ":" + os.environ.get("MS_SCHED_PORT", "")


def _repair(rank, size):
    """Scripts for two machines that number their ranks from 0 on each of them would never meet."""
    nodes, node = _number("TRAINSHED_NODES") or 1, _number("TRAINSHED_NODE") or 0
    per_node = size // nodes
    if is_rehearsal() and nodes > 1 and node > 0 and per_node * nodes == size and rank < per_node:
        true = node * per_node + rank
        say(
            f"RANK_ID={rank} on node {node} is a rank of node 0: the script numbers its ranks from 0 on every node. "
            f"It goes on as rank {true}; on real devices export RANK_ID=$((node * {per_node} + i))"
        )
        return true
    return rank


def _start_scheduler():
    global _scheduler
    here = os.path.dirname(os.path.abspath(__file__))
    variables = dict(os.environ, MS_ROLE="MS_SCHED", TRAINSHED_HOOKS="off")
    variables.pop("MS_NODE_ID", None)
    with _open_log() as log:
        _scheduler = subprocess.Popen(
            [sys.executable, os.path.join(here, "mindspore_scheduler.py"), str(os.getpid())],
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _open_log():
    """The scheduler's log: beside the script's own files, or where the platform keeps its files."""
    folders = [os.getcwd(), os.path.dirname(os.environ.get("TRAINSHED_METRICS_FILE", ""))]
    for folder in filter(None, folders):
        try:
            return open(os.path.join(folder, "mindspore_scheduler.log"), "ab")
        except OSError:
            continue
    return open(os.devnull, "wb")


def _stay_for_the_others():
    """The ranks that still work need the scheduler to leave the cluster well, and it ends with this node's last rank."""
    if _scheduler is None or mindspore_exit.has_failed():
        return
    deadline = time.monotonic() + _LONGEST_WAIT
    told = time.monotonic() + 5.0
    port = int(os.environ["MS_SCHED_PORT"])
    while _scheduler.poll() is None and time.monotonic() < deadline:
        if count_connections(port) <= count_own_connections(port):
            return
        if told is not None and time.monotonic() > told:
            told = None
            say("rank 0 is done and stays until the other ranks have left MindSpore's scheduler", "trainshed")
        time.sleep(0.1)


def _listens(host, port):
    try:
        socket.create_connection((host, port), timeout=2.0).close()
    except OSError:
        return False
    return True


def _number(*names):
    for name in names:
        value = os.environ.get(name, "")
        if value.isdigit():
            return int(value)
    return None
