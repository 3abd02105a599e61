"""ssh between the nodes of a job, with the machine's own ssh client; and MPI over it."""

from __future__ import annotations

import hashlib
import json
import shlex
import subprocess
import sys
import textwrap
import time
from typing import Any

import pytest

from trainshed.model.ssh import AUTHORIZED_KEYS, CLIENT_KEY, HOST_KEY, PUBLIC_KEY
from trainshed.services.ssh_keys import make_pair

# The first node asks, the second waits until it is told to end.
WAIT = """
import os, time
while not os.path.exists("/tmp/over"):
    time.sleep(0.05)
"""
ASK = """
import json, os, subprocess
def run(*arguments, **options):
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120, **options)
    return [done.returncode, done.stdout, done.stderr]
found = {}
"""
OVER = """
print(json.dumps(found))
run("ssh", "node-1", "touch /tmp/over")
"""


def make_keys(seed: bytes = b"k" * 32) -> dict[str, str]:
    private, public = make_pair(seed, "job")
    host, _ = make_pair(b"h" * 32, "host")
    return {CLIENT_KEY: private, PUBLIC_KEY: public, HOST_KEY: host, AUTHORIZED_KEYS: public}


def ask(host: Any, script: str, **request: Any) -> dict[str, Any]:
    """What a script on the first of two nodes found out."""
    variables = {"PATH": "/usr/local/bin:/usr/bin:/bin", "COLOUR": "green", "RANK": "0"}
    nodes = [
        host.start(
            run=f"node-{node}",
            node=node,
            nodes=2,
            keys=make_keys(),
            processes=[{"arguments": ["/usr/bin/python3", "-c", code], "variables": variables}],
            **request,
        )
        for node, code in enumerate((ASK + textwrap.dedent(script) + OVER, WAIT))
    ]
    for node in nodes:
        node.finish()
    found: dict[str, Any] = json.loads(nodes[0].log())
    return found


def test_commands_run_on_the_other_node_with_the_jobs_variables(host: Any) -> None:
    found = ask(
        host,
        r"""
        found["command"] = run("ssh", "node-1", "hostname; pwd; echo $COLOUR-$RANK; echo oops >&2; exit 7")
        found["by_address"] = run("ssh", "127.0.0.3", "hostname")
        found["by_alias"] = run("ssh", "n1", "hostname")
        found["own"] = run("ssh", "node-0", "hostname")
        found["input"] = run("ssh", "node-1", "tr a-z A-Z", input="hello")
        found["signal"] = run("ssh", "node-1", "kill -KILL $$")[0]
        found["unknown"] = run("ssh", "node-1", "no-such-program")[0]
        found["terminal"] = run("ssh", "-tt", "node-1", "test -t 0 && stty size && exit 3")[:2]
        found["shell"] = run("ssh", "node-1", input="hostname\nexit 4\n")
        found["files"] = sorted(os.listdir(os.path.expanduser("~/.ssh")))
        found["mode"] = oct(os.stat(os.path.expanduser("~/.ssh/id_ed25519")).st_mode)
        """,
    )
    assert found["command"] == [7, "node-1\n/home/trainshed\ngreen-\n", "oops\n"]
    assert found["by_address"] == found["by_alias"] == [0, "node-1\n", ""]
    assert found["own"] == [0, "node-0\n", ""]
    assert found["input"] == [0, "HELLO", ""]
    assert (found["signal"], found["unknown"]) == (255, 127)
    assert found["terminal"] == [3, "24 80\n"]
    assert found["shell"][:2] == [4, "node-1\n"]
    assert found["files"] == ["config", "id_ed25519", "id_ed25519.pub"]
    assert found["mode"] == "0o100600"


def test_files_and_connections_go_through(host: Any) -> None:
    found = ask(
        host,
        r"""
        import hashlib, socket, time
        data = os.urandom(3_000_001)
        open("/tmp/data", "wb").write(data)
        found["digest"] = hashlib.sha256(data).hexdigest()
        found["scp"] = run("scp", "-q", "/tmp/data", "node-1:/tmp/by-sftp")
        found["old"] = run("scp", "-q", "-O", "/tmp/data", "node-1:/tmp/by-scp")
        found["rsync"] = run("rsync", "-a", "/tmp/data", "node-1:/tmp/by-rsync")
        found["pipe"] = run("sh", "-c", "ssh node-1 'cat > /tmp/by-pipe' < /tmp/data")
        found["sums"] = run("ssh", "node-1", "sha256sum /tmp/by-*")[1].split()[::2]
        # A service that listens on the other node's own address, reached through a forwarded port of this one.
        serve = "import socket; s = socket.create_server(('127.0.0.3', 4000)); print(1, flush=True); s.accept()[0].send(b'yes')"
        server = subprocess.Popen(["ssh", "node-1", f'python3 -c "{serve}"'], stdout=subprocess.PIPE)
        server.stdout.readline()
        tunnel = subprocess.Popen(["ssh", "-N", "-L", "127.0.0.2:5000:127.0.0.3:4000", "node-1"])
        caller = socket.socket()
        deadline = time.monotonic() + 90
        while caller.connect_ex(("127.0.0.2", 5000)) and time.monotonic() < deadline:
            time.sleep(0.05)
        found["tunnel"] = caller.recv(10).decode()
        tunnel.kill()
        tunnel.wait()
        server.kill()
        server.communicate()
        """,
    )
    for way in ("scp", "old", "rsync", "pipe"):
        assert found[way] == [0, "", ""], way
    assert found["sums"] == [found["digest"]] * 4
    assert len(found["digest"]) == hashlib.sha256().digest_size * 2
    assert found["tunnel"] == "yes"


def test_nobody_comes_in_without_the_jobs_key_and_the_end_of_the_server_ends_nothing(host: Any) -> None:
    stranger, _ = make_pair(b"s" * 32, "stranger")
    script = f"""
        open("/tmp/stranger", "w", opener=lambda path, flags: os.open(path, flags, 0o600)).write({stranger!r})
        options = ["-F", "/dev/null", "-p", "29403", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"]
        found["stranger"] = run("ssh", *options, "-o", "BatchMode=yes", "-i", "/tmp/stranger", "127.0.0.3", "hostname")
        # Whoever comes in can end the server as they can end all else of the job; the next connection starts it again.
        run("ssh", "node-1", "pkill -KILL -f /opt/trainshed/ssh/server.py")
        found["again"] = run("ssh", "node-1", "hostname")
    """
    found = ask(host, script)
    assert found["stranger"][0] == 255
    assert "Permission denied" in found["stranger"][2]
    assert found["again"] == [0, "node-1\n", ""]


@pytest.mark.parametrize(("nodes", "network"), [(1, "none"), (1, "open"), (2, "platform")])
def test_the_platform_reaches_the_server_through_the_run_folder(host: Any, nodes: int, network: str) -> None:
    running = [
        host.start(WAIT.replace("/tmp/over", f"/tmp/over-{node}"), **request)
        for node in range(nodes)
        for request in [
            {"run": f"node-{node}", "node": node, "nodes": nodes, "keys": make_keys(), "network": network}
        ]
    ]
    for node, one in enumerate(running):
        gate = one.folder / "ssh.sock"
        deadline = time.monotonic() + 90
        while not gate.exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        (one.folder / "id").touch(0o600)
        (one.folder / "id").write_text(make_keys()[CLIENT_KEY])
        done = subprocess.run(
            [
                *("ssh", "-F", "/dev/null", "-i", str(one.folder / "id"), "-o", "BatchMode=yes"),
                *(
                    "-o",
                    "StrictHostKeyChecking=no",
                    "-o",
                    "UserKnownHostsFile=/dev/null",
                    "-o",
                    "LogLevel=ERROR",
                ),
                *("-o", f"ProxyCommand={sys.executable} -c {shlex.quote(CONNECT)} {gate}"),
                *("me@job", f"hostname; touch /tmp/over-{node}"),
            ],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert (done.returncode, done.stdout) == (0, f"node-{node}\n"), done.stderr
    for one in running:
        one.finish()
        assert not (one.folder / "ssh.sock").exists()


CONNECT = """
import os, socket, sys, threading
gate = socket.socket(socket.AF_UNIX)
gate.connect(sys.argv[1])
def send():
    while data := os.read(0, 65536):
        gate.sendall(data)
threading.Thread(target=send, daemon=True).start()
while data := gate.recv(65536):
    os.write(1, data)
"""


MPI = """
import ctypes, json, socket
mpi = ctypes.CDLL("libmpi.so.40", mode=ctypes.RTLD_GLOBAL)
def symbol(name):
    return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(mpi, name)))
world = symbol("ompi_mpi_comm_world")
mpi.MPI_Init(None, None)
rank, total = ctypes.c_int(), ctypes.c_int()
mpi.MPI_Comm_rank(world, ctypes.byref(rank))
mine = ctypes.c_int(rank.value + 1)
mpi.MPI_Allreduce(
    ctypes.byref(mine), ctypes.byref(total), 1, symbol("ompi_mpi_int"), symbol("ompi_mpi_op_sum"), world
)
name = socket.gethostname()
print(json.dumps([rank.value, name, socket.gethostbyname(name), total.value]), flush=True)
mpi.MPI_Finalize()
"""


@pytest.mark.slow
def test_mpirun_starts_ranks_on_both_nodes_which_reach_each_other(host: Any) -> None:
    script = f"""
        os.environ |= {{
            "OMPI_MCA_btl_tcp_if_include": "lo",
            "OMPI_MCA_oob_tcp_if_include": "lo",
            "OMPI_MCA_pml": "ob1",
            "OMPI_MCA_osc": "^ucx",
        }}
        open("/tmp/hosts", "w").write("node-0 slots=1\\nnode-1 slots=1\\n")
        found["mpi"] = run("mpirun", "--hostfile", "/tmp/hosts", "-np", "2", "python3", "-c", {MPI!r})
    """
    code, out, errors = ask(host, script)["mpi"]
    assert code == 0, errors
    assert sorted(map(json.loads, out.splitlines())) == [
        [0, "node-0", "127.0.0.2", 3],
        [1, "node-1", "127.0.0.3", 3],
    ]


def test_a_node_that_starts_late_is_never_refused(host: Any) -> None:
    """All doors are open before any rank begins, however long the other sandbox takes to come up."""
    ask_first = ASK + 'found["first"] = run("ssh", "node-1", "hostname")' + OVER
    nodes = [
        host.start(
            run=f"node-{node}",
            node=node,
            nodes=2,
            keys=make_keys(),
            dawdle=node * 2.0,
            processes=[{"arguments": ["/usr/bin/python3", "-c", code]}],
        )
        for node, code in enumerate((ask_first, WAIT))
    ]
    for node in nodes:
        node.finish()
    assert json.loads(nodes[0].log())["first"] == [0, "node-1\n", ""]


def test_a_command_that_ends_the_node_is_told_how_it_ended(host: Any) -> None:
    found = ask(
        host,
        """
        # A shell that somebody has left open holds nothing up.
        shell = subprocess.Popen(["ssh", "-tt", "node-1"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        shell.stdout.read(1)
        found["last"] = run("ssh", "node-1", "touch /tmp/over; sleep 0.7; echo told; exit 7")
        found["shell"] = [shell.stdout.read().decode(), shell.wait(60)]
        """,
    )
    assert found["last"] == [7, "told\n", ""]
    words, code = found["shell"]
    assert code == 255 and "The job has ended on this node." in words
