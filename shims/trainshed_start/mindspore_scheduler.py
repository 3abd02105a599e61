"""MindSpore's scheduler, as a process of its own: `python mindspore_scheduler.py PID-OF-RANK-0`.

Two processes: one that serves, and its parent, which ends it when rank 0 and everybody who was connected are
gone. Left alone, a scheduler waits for minutes for ranks that were killed.
"""

import os
import signal
import sys
import time

__all__ = ["count_connections", "count_own_connections", "is_listening", "serve"]

_PR_SET_PDEATHSIG = 1
_ESTABLISHED = "01"
_LISTENING = "0A"
# Columns of the kernel's table of connections.
_LOCAL, _REMOTE, _STATE, _INODE = 1, 2, 3, 9


def serve():
    """Be the scheduler until every rank has left."""
    try:
        init_cluster = _native_init()
    except Exception as fault:
        sys.stdout.write(f"the whole of MindSpore is loaded, because: {fault}\n")
        sys.stdout.flush()
        from mindspore.communication import init as init_cluster
    init_cluster()


def count_connections(port):
    """How many connections this network namespace has to a server on that port."""
    return sum(row[_STATE] == _ESTABLISHED and _port(row[_LOCAL]) == port for row in _sockets())


def count_own_connections(port):
    """How many of them are this process's."""
    own = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            own.add(os.readlink("/proc/self/fd/" + name))
        except OSError:
            continue
    return sum(
        row[_STATE] == _ESTABLISHED and _port(row[_REMOTE]) == port and f"socket:[{row[_INODE]}]" in own
        for row in _sockets()
    )


def is_listening(port):
    """Whether this network namespace has a server on that port."""
    return any(row[_STATE] == _LISTENING and _port(row[_LOCAL]) == port for row in _sockets())


def _sockets():
    for name in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(name) as file:
                rows = [row.split() for row in file.readlines()[1:]]
        except OSError:
            continue
        yield from rows


def _port(address):
    return int(address.rpartition(":")[2], 16)


def _native_init():
    """The scheduler is native code: it needs a second and no Python of MindSpore's, which needs ten."""
    import importlib.util
    import types

    folders = importlib.util.find_spec("mindspore").submodule_search_locations
    package = types.ModuleType("mindspore")
    package.__path__ = list(folders)
    sys.modules["mindspore"] = package
    try:
        from mindspore._c_expression import init_cluster
    except Exception:
        for name in [name for name in sys.modules if name.split(".")[0] == "mindspore"]:
            del sys.modules[name]
        raise
    return init_cluster


def _die_with_parent():
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _watch(child, rank_0):
    """Wait for the scheduler's end, or bring it about when nobody is left to serve."""
    port = int(os.environ["MS_SCHED_PORT"])
    idle = 0
    while True:
        ended, _ = os.waitpid(child, os.WNOHANG)
        if ended:
            return
        alone = os.getppid() != rank_0 and not count_connections(port)
        idle = idle + 1 if alone else 0
        if idle >= 4:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return
        time.sleep(0.25)


def main():
    """Serve in a child, and watch over it."""
    child = os.fork()
    if child == 0:
        _die_with_parent()
        serve()
    else:
        _watch(child, int(sys.argv[1]))


if __name__ == "__main__":
    main()
