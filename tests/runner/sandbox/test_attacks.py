"""What a hostile job tries, with a real sandbox, started by root and by an ordinary user."""

from __future__ import annotations

import os
import socket
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# Looks for a marker in every name and, outside of the system's programs, in every file's content.
SEARCH = """
import os, sys
marker = {marker!r}
skipped = ("/usr", "/sys", sys.base_prefix)
seen = 0
for here, folders, files in os.walk("/"):
    if here == "/proc":
        folders[:] = [name for name in folders if name.isdigit() or name == "self"]
    if here.startswith("/proc/") and here.count("/") >= 3 and here.split("/")[3] in ("task", "net", "map_files"):
        folders[:] = []
        continue
    for name in folders + files:
        seen += 1
        if marker in name:
            print("NAME", here, name)
    if here.startswith(skipped):
        continue
    for name in files:
        path = os.path.join(here, name)
        if name in ("kmsg", "pagemap", "mem", "clear_refs", "exe") or (here.startswith("/dev") and "shm" not in here):
            continue
        if "cmdline" in path:
            continue
        try:
            if not os.path.isfile(path): continue
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            data = os.read(descriptor, 1 << 20)
            os.close(descriptor)
        except OSError:
            continue
        if marker.encode() in data:
            print("CONTENT", path)
print("searched", seen > 1000)
"""


@pytest.fixture
def planted(host: Any) -> Iterator[str]:
    """A secret in every place of the host where one may lie."""
    # Written in two halves in the search script, so that the script does not find itself.
    marker = f"secret{uuid.uuid4().hex}"
    places = [host.base, Path("/tmp"), Path("/var/tmp"), Path("/dev/shm")]
    if os.geteuid() == 0:
        places += [
            Path(name) for name in ("/root", "/etc", "/opt", "/srv", "/var", "/home", "/run", "/mnt", "/")
        ]
    files = [place / f"{marker}.txt" for place in places if place.is_dir()]
    for file in files:
        host.write(file, marker)
    yield marker
    for file in files:
        file.unlink()


def test_no_secret_of_the_host_is_found(host: Any, planted: str) -> None:
    marker = f"{planted[:10]}' '{planted[10:]}"
    script = SEARCH.replace("{marker!r}", f"'{marker}'")
    answer, log = host.run(script, environment={"PLATFORM_KEY": planted, planted: "name"})
    assert log.splitlines() == ["searched True"], log
    assert answer["exits"]["0"]["exit_code"] == 0


def test_the_search_would_find_a_secret(host: Any, planted: str) -> None:
    """The test above can fail: a folder that is shared is searched."""
    marker = f"{planted[:10]}' '{planted[10:]}"
    script = SEARCH.replace("{marker!r}", f"'{marker}'")
    shared = host.make_folder("shared")
    host.write(shared / "file", planted)
    _, log = host.run(script, mounts=[[str(shared), "/home/shared", False]])
    assert "CONTENT /home/shared/file" in log


def test_the_environment_is_the_job_s_alone(host: Any) -> None:
    _, log = host.run("import os; print(sorted(os.environ))", environment={"PLATFORM_KEY": "x"})
    assert "PLATFORM_KEY" not in log
    assert {"HOME", "LANG", "LOGNAME", "PATH", "USER"} <= set(eval(log)) <= {
        "HOME", "LANG", "LC_CTYPE", "LOGNAME", "PATH", "USER",
    }  # fmt: skip


def test_no_rights_are_left(host: Any) -> None:
    _, log = host.run(
        """
        import ctypes, os
        status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
        for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            assert int(status[name], 16) == 0, name
        assert status["NoNewPrivs"].strip() == "1"
        assert os.getuid() == os.geteuid() == 1000 and os.getgroups() in ([], [1000]), (os.getuid(), os.getgroups())
        libc = ctypes.CDLL(None, use_errno=True)
        def refused(result):
            assert result == -1, "allowed"
        for flag in (0x10000000, 0x00020000, 0x20000000, 0x40000000, 0x10000000 | 0x00020000):
            refused(libc.unshare(flag))
        refused(libc.mount(b"none", b"/tmp", b"tmpfs", 0, None))
        refused(libc.mount(b"/tmp", b"/usr", None, 4096, None))
        refused(libc.mount(None, b"/usr", None, 32 | 4096, None))
        refused(libc.umount2(b"/tmp", 2))
        refused(libc.chroot(b"/tmp"))
        refused(libc.sethostname(b"x", 1))
        refused(libc.setuid(0))
        for path in ("/etc/shadow", "/etc/sudoers", "/proc/kcore", "/dev/mem", "/dev/sda", "/dev/vda", "/proc/1/environ"):
            try: open(path, "rb").read(1); print("read", path)
            except OSError: pass
        for path in ("/proc/sys/kernel/hostname", "/proc/sysrq-trigger", "/proc/sys/user/max_user_namespaces", "/usr/bin/env",
                     "/etc/passwd", "/run/trainshed/init.pyc", "/sys/devices/system/cpu/cpu0/online"):
            try: open(path, "ab"); print("opened", path)
            except OSError: pass
        try: os.mknod("/tmp/disk", 0o60600, os.makedev(254, 0)); print("made a device")
        except OSError: pass
        print("held")
        """
    )
    assert log == "held\n"


def test_the_kernel_s_keys_are_not_inherited(host: Any) -> None:
    script = """
        import ctypes, os
        libc = ctypes.CDLL(None, use_errno=True)
        number = {"x86_64": 250, "aarch64": 219}[os.uname().machine]
        for ring in (-1, -2, -3, -4, -5):
            key = libc.syscall(number, 10, ring, b"user", b"platform", 0)
            if key > 0:
                buffer = ctypes.create_string_buffer(100)
                libc.syscall(number, 11, key, buffer, 100)
                print("found", key, buffer.value)
        for path in ("/proc/keys", "/proc/timer_list"):
            try: print(path, open(path).read())
            except OSError: pass
        print("searched")
        """
    _, log = host.run(script, key="secret")
    assert log == "searched\n"


def test_a_blob_cannot_be_changed(host: Any) -> None:
    store = host.make_folder("store")
    blob = host.write(store / "blob", "the truth", 0o644)
    tree = host.make_folder("tree")
    os.link(blob, tree / "data.txt")
    before = blob.stat()
    _, log = host.run(
        """
        import os
        path = "/data/data.txt"
        reader = os.open(path, os.O_RDONLY)
        try: os.fchmod(reader, 0o777)
        except OSError: pass
        for attempt in (f"/proc/self/fd/{reader}", path):
            try: open(attempt, "r+").write("a lie")
            except OSError as error: print(attempt, error)
        os.chmod(path, 0o777)
        os.link(path, "/data/other"); open("/data/other", "a").write("more")
        os.rename(path, "/data/moved"); open("/data/moved", "w").write("worse")
        os.setxattr("/data/moved", "user.note", b"x")
        try: os.chown("/data/moved", 1000, 1000)
        except OSError: pass
        for line in open("/proc/self/mountinfo"):
            if "overlay" in line:
                for option in line.split()[-1].split(","):
                    if option.startswith("lowerdir=") and os.path.isdir(option[9:]) and os.listdir(option[9:]):
                        print("lower is visible", option)
        print("tried")
        """,
        overlays=[[str(tree), "/data"]],
    )
    assert "tried" in log and "lower is visible" not in log, log
    after = blob.stat()
    assert blob.read_text() == "the truth"
    assert (after.st_mode, after.st_uid, after.st_nlink, after.st_mtime_ns) == (
        before.st_mode, before.st_uid, before.st_nlink, before.st_mtime_ns,
    )  # fmt: skip
    assert os.listdir(tree) == ["data.txt"]


def test_a_read_only_mount_cannot_be_changed(host: Any) -> None:
    folder = host.make_folder("environment")
    file = host.write(folder / "module.py", "good = True", 0o666)
    folder.chmod(0o777)
    _, log = host.run(
        """
        import os
        reader = os.open("/env/module.py", os.O_RDONLY)
        for act in (
            lambda: open("/env/module.py", "a"), lambda: open(f"/proc/self/fd/{reader}", "r+"),
            lambda: os.fchmod(reader, 0o777), lambda: os.unlink("/env/module.py"), lambda: open("/env/new", "w"),
            lambda: os.link("/env/module.py", "/tmp/link"), lambda: os.rename("/env/module.py", "/env/x"),
        ):
            try: act(); print("allowed")
            except OSError: print("refused")
        """,
        mounts=[[str(folder), "/env", False]],
    )
    assert log.split() == ["refused"] * 7
    assert file.read_text() == "good = True" and os.listdir(folder) == ["module.py"]


def test_another_job_is_out_of_sight(host: Any) -> None:
    marker = f"secret{uuid.uuid4().hex}"
    first = host.start(
        f"""
        import os, socket, time
        listener = socket.socket(socket.AF_UNIX); listener.bind("\\0{marker}"); listener.listen()
        port = socket.socket(); port.bind(("127.0.0.1", 21390)); port.listen()
        for place in ("/tmp", "/cache", "/var/tmp", "/dev/shm", os.environ["HOME"]):
            open(place + "/{marker}", "w").write("{marker}")
        print("ready", flush=True)
        time.sleep(60)
        """,
        run="node-1",
    )
    first.wait_for("ready")
    half = f"{marker[:10]}' '{marker[10:]}"
    search = SEARCH.replace("{marker!r}", f"'{half}'")
    probe = f"""
import os, socket
pids = sorted(int(name) for name in os.listdir("/proc") if name.isdigit())
assert len(pids) <= 3 and pids[0] == 1, pids
for pid in range(1, 400):
    if pid not in pids:
        try: os.kill(pid, 0); print("reached", pid)
        except ProcessLookupError: pass
other = socket.socket(socket.AF_UNIX)
try: other.connect("\\0" + "{marker[:10]}" + "{marker[10:]}"); print("connected")
except OSError: pass
other = socket.socket()
try: other.connect(("127.0.0.1", 21390)); print("connected to the port")
except OSError: pass
"""
    answer, log = host.run(probe + search, run="node-2")
    assert log.splitlines() == ["searched True"], log
    assert answer["exits"]["0"]["exit_code"] == 0
    first.process.kill()
    first.process.communicate()


def test_the_runner_and_init_are_out_of_reach(host: Any) -> None:
    _, log = host.run(
        """
        import ctypes, os
        runner = @RUNNER@
        try: os.kill(runner, 0); print("signalled the runner")
        except OSError: pass
        libc = ctypes.CDLL(None, use_errno=True)
        for pid in (1, runner):
            if libc.ptrace(16, pid, 0, 0) == 0: print("traced", pid)
            for name in ("mem", "environ", "maps", "fd", "cwd", "root"):
                try: os.listdir(f"/proc/{pid}/{name}") if name == "fd" else open(f"/proc/{pid}/{name}", "rb").read(1); print("read", pid, name)
                except OSError: pass
        for number in (9, 15, 19): os.kill(1, number)
        print(sorted(os.listdir("/proc/self/fd"))[:3], len(os.listdir("/proc/self/fd")))
        """
    )
    # The fourth descriptor is that of the listing itself.
    assert log == "['0', '1', '2'] 4\n"


# An ordinary user's log belongs to that user, and so to the job: only a platform of root can refuse this.
@pytest.mark.parametrize("host", ["root"], indirect=True)
def test_the_log_s_past_stays_what_it_was(host: Any) -> None:
    _, log = host.run(
        """
        import os
        print("first line", flush=True)
        for act in (
            lambda: open("/proc/self/fd/1", "r+"), lambda: os.truncate("/proc/self/fd/1", 0),
            lambda: os.fchmod(1, 0o666), lambda: open("/proc/self/fd/2", "rb"),
        ):
            try: act(); print("allowed")
            except OSError: print("refused")
        """
    )
    assert log.split() == ["first", "line"] + ["refused"] * 4


def test_a_fork_bomb_stops_at_the_limit(host: Any) -> None:
    answer, log = host.run(
        """
        import os, time
        made = 0
        try:
            while made < 500:
                if os.fork() == 0: time.sleep(30); os._exit(0)
                made += 1
        except OSError as error:
            print("stopped by", type(error).__name__)
        print(made)
        """,
        limits={"processes": 40},
    )
    words = log.split()
    assert words[:3] == ["stopped", "by", "BlockingIOError"], log
    assert 20 <= int(words[-1]) <= 40
    assert answer["exits"]["0"]["exit_code"] == 0


def test_running_out_of_memory_is_told_apart(host: Any) -> None:
    answer, log = host.run(
        """
        import time
        print("begin", flush=True)
        hog = [b"x" * 10_000_000 for _ in range(60)]
        time.sleep(30)
        """,
        limits={"memory_mb": 200},
    )
    assert answer["out_of_memory"], (answer, log)
    assert answer["exits"]["0"]["signal"] == 9
    assert answer["usage"]["peak_memory_bytes"] < 1_000_000_000
    assert answer["limits"][0] == ("memory:cgroup" if host.user == "root" else "memory:watch")


def test_shared_memory_counts_too(host: Any) -> None:
    answer, log = host.run(
        """
        import mmap, time
        for number in range(60):
            open(f"/dev/shm/{number}", "wb").write(b"x" * 10_000_000)
        shared = mmap.mmap(-1, 400_000_000)
        shared.write(b"x" * 400_000_000)
        time.sleep(20)
        """,
        limits={"memory_mb": 200},
    )
    # A full /dev/shm is an error that the script sees; the control group ends it without asking.
    assert answer["exits"]["0"]["exit_code"] != 0, log


def test_within_the_limits_nothing_happens(host: Any) -> None:
    answer, _ = host.run("hog = b'x' * 100_000_000", limits={"memory_mb": 400, "cpus": 1, "processes": 50})
    assert answer["exits"]["0"]["exit_code"] == 0 and not answer["out_of_memory"]


def test_links_in_the_code_lead_nowhere(host: Any) -> None:
    victim = host.write(host.base / "victim", "untouched")
    for number, target in enumerate((str(victim), f"/oldroot{victim}", f"../../../../..{victim}")):
        code = host.make_folder(f"code-{number}")
        (code / "table.json").symlink_to(target)
        (code / "out").symlink_to(Path(target).parent)
        for link in ("table.json", "out"):
            host.own(code / link)
        answer, log = host.run(
            "print(open('/code/table.json').read())",
            overlays=[[str(code), "/code"]],
            files=[["/code/table.json", "ranks"]],
            run=f"node-{number}",
        )
        assert log == "ranks\n", (answer, log)
        for request in (
            {"mounts": [[str(host.base / f"node-{number}/root/o"), "/code/out", True]]},
            {"files": [["/code/out/new.json", "x"]]},
        ):
            answer, _ = host.run("pass", overlays=[[str(code), "/code"]], run=f"node-{number}", **request)
            assert answer["error"]["kind"] == "InvalidInput" and "/code/out" in answer["error"]["message"]
        assert victim.read_text() == "untouched"
        assert not (host.base / "new.json").exists()


def test_links_in_the_run_folder_lead_nowhere(host: Any) -> None:
    secret = host.make_folder("secret")
    host.write(secret / "key", "secret")
    host.make_folder("node-0")
    root = host.make_folder("node-0/root")
    (root / "cache").symlink_to(secret)
    host.own(root / "cache")
    for allowed in (False, True):  # nor does it lead out of the sandbox, where that is allowed
        answer, log = host.run("import os; print(os.listdir('/cache'))", allow_unsandboxed=allowed)
        assert "a symbolic link is in the way" in answer["error"]["message"] and log == ""


class Server:
    """A TCP server on the host's loopback that sends back all it gets, after its end."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self.run, daemon=True).start()

    def run(self) -> None:
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self.answer, args=(connection,), daemon=True).start()

    def answer(self, connection: socket.socket) -> None:
        with connection:
            data = bytearray()
            while piece := connection.recv(1 << 16):
                data += piece
            connection.sendall(data)


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.socket.shutdown(socket.SHUT_RDWR)
    made.socket.close()


TALK = """
import socket
def talk(port, data=b"hello"):
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=90) as connection:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            answer = bytearray()
            while piece := connection.recv(1 << 16): answer += piece
            return bytes(answer)
    except OSError as error:
        return type(error).__name__
"""


def test_the_host_s_network_is_out_of_reach(host: Any, server: Server) -> None:
    script = TALK + f"print(talk({server.port}), [name for _, name in socket.if_nameindex()])"
    _, log = host.run(script, network="none")
    assert log == "ConnectionRefusedError ['lo']\n"
    _, log = host.run(script, network="platform", forwards=[[7480, "127.0.0.1", server.port]], run="node-1")
    assert log == "ConnectionRefusedError ['lo']\n"
    _, log = host.run(script, network="open", run="node-2")
    assert log.startswith("b'hello'")


def test_forwarded_ports_lead_to_the_platform_only(host: Any, server: Server) -> None:
    other = Server()
    closed = socket.create_server(("127.0.0.1", 0))
    free = closed.getsockname()[1]
    closed.close()
    _, log = host.run(
        TALK + f"print(talk(7480), talk(7481), talk({other.port}), talk({server.port}))",
        network="platform",
        forwards=[[7480, "127.0.0.1", server.port], [7481, "127.0.0.1", free]],
    )
    other.socket.close()
    assert log.split()[0] == "b'hello'"
    # Nobody listens behind the second one: the connection is cut, with or without an error.
    assert log.split()[1] in ("b''", "ConnectionResetError", "BrokenPipeError", "OSError")
    assert log.split()[2:] == ["ConnectionRefusedError", "ConnectionRefusedError"]


def test_many_and_big_transfers_pass_unharmed(host: Any, server: Server) -> None:
    answer, log = host.run(
        TALK
        + """
import concurrent.futures, random
def check(number):
    data = random.Random(number).randbytes(8_000_000 if number < 6 else number)
    return talk(7480, data) == data
with concurrent.futures.ThreadPoolExecutor(24) as pool:
    results = list(pool.map(check, range(150)))
print(len(results), all(results))
""",
        network="platform",
        forwards=[[7480, "127.0.0.1", server.port]],
    )
    assert log == "150 True\n", (answer, log)
