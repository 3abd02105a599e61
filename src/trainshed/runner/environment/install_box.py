"""The sandbox in which packages are fetched, built and installed.

Two kinds of runs. A *trusted* run starts uv and nothing of the packages (wheels only: unpacking runs no
code); it has the network and the cache that all share. An *untrusted* run may execute a package's own
setup code; it sees a private folder only and reaches the network through `IndexProxy`.
"""

from __future__ import annotations

import functools
import json
import os
import secrets
import select
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainshed.model.errors import HostUnfit, TrainshedError
from trainshed.runner.environment.built import ENVIRONMENT_PATH
from trainshed.runner.environment.index import PackageIndex
from trainshed.runner.environment.index_proxy import IndexProxy
from trainshed.runner.environment.interpreter import Interpreter, find_uv
from trainshed.runner.sandbox.bubblewrap import SYSTEM_FILES, SYSTEM_LINKS

__all__ = ["BoxRun", "InstallBox", "Log", "can_sandbox", "remove_folder"]

Log = Callable[[bytes], None]

_UV = "/opt/uv/uv"
_SHED = "/shed"
_PROXY_PORT = 3128
_LOG_LIMIT = 4 << 20
_KEPT_OUTPUT = 256 << 10
_LINE_LIMIT = 4000
# What name resolution needs beside the files that every sandbox shows.
_RESOLVER_FILES = ("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf")

# Runs inside, before anything else: gives up root, and listens on loopback for the proxy outside. The
# environment's own interpreter runs it, which may be as old as 3.7.
_INSIDE = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
uid, port, path, command = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:]
if uid:
    resource.setrlimit(resource.RLIMIT_NPROC, (8192, 8192))
    os.setgroups([]); os.setresgid(uid, uid, uid); os.setresuid(uid, uid, uid)
os.umask(0o022)
if port:
    import socket, threading
    listener = socket.socket()
    listener.bind(("127.0.0.1", port))
    listener.listen(64)
    if os.fork() == 0:
        def pump(source, target):
            try:
                while True:
                    data = source.recv(65536)
                    if not data:
                        break
                    target.sendall(data)
            except OSError:
                pass
            try:
                target.shutdown(socket.SHUT_WR)
            except OSError:
                pass
        while True:
            inner = listener.accept()[0]
            outer = socket.socket(socket.AF_UNIX)
            try:
                outer.connect(path)
            except OSError:
                inner.close()
                continue
            for pair in ((inner, outer), (outer, inner)):
                threading.Thread(target=pump, args=pair, daemon=True).start()
    listener.close()
os.execvp(command[0], command)
"""


@dataclass(frozen=True)
class BoxRun:
    """How a run ended: its exit code and the end of what it printed."""

    code: int
    output: str


@dataclass
class InstallBox:
    """Runs uv for one environment. `shed` is the one folder that a run may write into."""

    shed: Path
    interpreter: Interpreter
    index: PackageIndex
    # The user that a run is, where the platform is root.
    uid: int = 0
    trusted: bool = True
    sandboxed: bool = True
    should_stop: Callable[[], bool] = lambda: False
    seconds: float = 1800.0
    # The environment's folder within the shed, if the run has one.
    environment: str = ""
    cache: str = "cache"
    _proxy: IndexProxy | None = field(default=None, repr=False)

    def __enter__(self) -> InstallBox:
        for name in (self.cache, "tmp", self.environment):
            if name:
                self.make_folder(self.shed / name)
        if not self.trusted and self.sandboxed:
            self._proxy = IndexProxy(self.shed / "proxy.sock", self.index)
            self._proxy.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._proxy is not None:
            self._proxy.stop()

    @property
    def uv(self) -> str:
        """The uv program, as a run sees it."""
        return _UV if self.sandboxed else str(find_uv())

    @property
    def environment_path(self) -> str:
        """The environment's folder, as a run sees it."""
        return ENVIRONMENT_PATH if self.sandboxed else str(self.shed / self.environment)

    def inside(self, path: Path) -> str:
        """A path below the shed, as a run sees it."""
        return f"{_SHED}/{path.relative_to(self.shed)}" if self.sandboxed else str(path)

    def run(self, command: Sequence[str], log: Log, *, network: bool = True) -> BoxRun:
        """Run a command to its end; every line it prints goes to `log` without the index's passwords."""
        arguments = self._arguments(command, network) if self.sandboxed else list(command)
        reader, writer = os.pipe()
        if self.sandboxed:
            arguments[1:1] = ["--info-fd", str(writer)]
        try:
            process = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=self._variables(network),
                cwd="/",
                pass_fds=(writer,) if self.sandboxed else (),
            )
        except OSError as error:
            os.close(reader)
            raise HostUnfit(f"Cannot start {arguments[0]}: {error.strerror}.", code="sandbox") from error
        finally:
            os.close(writer)
        namespace = _watch_namespace(reader) if self.sandboxed else None
        os.close(reader)
        try:
            return self._follow(process, log)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
            if process.stdout:
                process.stdout.close()
            if namespace is not None:
                # Whatever the run left behind is gone before anybody touches its files.
                select.select([namespace], [], [], 30)
                os.close(namespace)

    def _follow(self, process: subprocess.Popen[bytes], log: Log) -> BoxRun:
        """Read until the program has ended and its output is drained."""
        pipe = process.stdout
        assert pipe is not None
        os.set_blocking(pipe.fileno(), False)
        deadline = time.monotonic() + self.seconds
        kept, rest, logged, ended_at = "", b"", 0, 0.0
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while True:
                ready = selector.select(0.1)
                data = (os.read(pipe.fileno(), 65536) or None) if ready else b""
                if data is None:
                    break
                *lines, rest = (rest + data).split(b"\n")
                if len(rest) > _LINE_LIMIT:
                    lines, rest = [*lines, rest], b""
                for line in lines:
                    text = self.index.mask(line[:_LINE_LIMIT].decode("utf-8", "replace").rstrip())
                    kept = (kept + text + "\n")[-_KEPT_OUTPUT:]
                    if logged < _LOG_LIMIT:
                        log(text.encode() + b"\n")
                    logged += len(text) + 1
                if process.poll() is not None and not ready:
                    # A process that was left behind may hold the pipe open for a moment longer.
                    ended_at = ended_at or time.monotonic()
                    if time.monotonic() - ended_at > 1:
                        break
                if self.should_stop():
                    process.send_signal(signal.SIGKILL)
                    raise TrainshedError("The installation was stopped.", code="stopped")
                if time.monotonic() > deadline:
                    process.send_signal(signal.SIGKILL)
                    raise TrainshedError(
                        f"The installation took longer than {self.seconds / 60:.0f} minutes and was ended.",
                        code="environment_timeout",
                    )
        if rest:
            text = self.index.mask(rest.decode("utf-8", "replace").rstrip())
            kept += text + "\n"
            log(text.encode() + b"\n")
        return BoxRun(process.wait(), kept)

    def _variables(self, network: bool) -> dict[str, str]:
        shed = _SHED if self.sandboxed else str(self.shed)
        variables = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": f"{shed}/tmp",
            "TMPDIR": f"{shed}/tmp",
            "LANG": "C.UTF-8",
            "NO_COLOR": "1",
            "UV_CACHE_DIR": f"{shed}/{self.cache}",
            "UV_NO_CONFIG": "1",
            "UV_NO_PROGRESS": "1",
            "UV_PYTHON_DOWNLOADS": "never",
            "UV_LINK_MODE": "hardlink",
            **self.index.uv_variables(),
        }
        if self._proxy is not None:
            own = f"http://127.0.0.1:{_PROXY_PORT}"
            variables |= {"HTTPS_PROXY": own, "HTTP_PROXY": own, "ALL_PROXY": own, "NO_PROXY": ""}
        if not network:
            variables["UV_OFFLINE"] = "1"
        return variables

    def _arguments(self, command: Sequence[str], network: bool) -> list[str]:
        program = shutil.which("bwrap")
        if program is None:
            raise HostUnfit(
                "bubblewrap (bwrap) is missing; packages are installed in its sandbox.",
                hint="Install the package bubblewrap.",
                code="sandbox",
            )
        uid = self.uid if os.geteuid() == 0 else 0
        shared_network = network and self.trusted
        mounts = list(self._mounts())
        arguments = [program, "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
        arguments += ["--die-with-parent", "--new-session", "--hostname", "trainshed-install"]
        if os.geteuid() != 0:
            arguments += ["--unshare-user", "--cap-drop", "ALL"]
        if not shared_network:
            arguments.append("--unshare-net")
        # First, because packages may lie below /tmp on the host.
        arguments += ["--proc", "/proc", "--dev", "/dev"]
        for folder in ("/dev/shm", "/tmp"):
            arguments += ["--perms", "1777", "--size", str(256 << 20), "--tmpfs", folder]
        # Parents of mounts would be made for root only, and the run is not root.
        targets = ["/opt", _SHED, *(target for _, _, target in mounts)]
        for folder in _parents(targets):
            arguments += ["--perms", "0755", "--dir", folder]
        for path in map(Path, SYSTEM_LINKS):
            if path.is_symlink():
                arguments += ["--symlink", os.readlink(path), str(path)]
            elif path.is_dir():
                arguments += ["--ro-bind", str(path), str(path)]
        for kind, source, target in mounts:
            arguments += [kind, source, target]
        if self.environment:
            # A symbolic link and no mount: hard links from the cache need both in one mount.
            arguments += ["--symlink", f"{_SHED}/{self.environment}", ENVIRONMENT_PATH]
        port = _PROXY_PORT if self._proxy is not None and network else 0
        python = [str(self.interpreter.executable), "-I", "-S", "-c", _INSIDE]
        return [
            *arguments,
            "--chdir",
            "/",
            "--",
            *python,
            str(uid),
            str(port),
            f"{_SHED}/proxy.sock",
            *command,
        ]

    def _mounts(self) -> Iterable[tuple[str, str, str]]:
        yield "--ro-bind", "/usr", "/usr"
        for path in (*SYSTEM_FILES, *(_RESOLVER_FILES if self.trusted else ())):
            if os.path.exists(path):
                yield "--ro-bind", os.path.realpath(path), path
        prefix = str(self.interpreter.prefix)
        if prefix != "/usr" and not prefix.startswith("/usr/"):
            yield "--ro-bind", prefix, prefix
        for folder in self.index.folders:
            if not str(folder).startswith("/usr/"):
                yield "--ro-bind", str(folder), str(folder)
        for file in {self.index.uv_variables().get(name, "") for name in ("SSL_CERT_FILE", "SSL_CERT_DIR")}:
            if file and os.path.exists(file) and not file.startswith(("/etc/ssl/certs", "/usr/")):
                yield "--ro-bind", os.path.realpath(file), file
        yield "--ro-bind", os.path.realpath(find_uv()), _UV
        yield "--bind", str(self.shed), _SHED

    def make_folder(self, folder: Path) -> None:
        """Make a folder below the shed that a run may write into."""
        folder.mkdir(parents=True, exist_ok=True)
        if os.geteuid() == 0 and self.uid and self.sandboxed:
            os.chown(folder, self.uid, self.uid)


@functools.cache
def can_sandbox() -> bool:
    """Whether bubblewrap is installed and this machine lets it work."""
    command = ["bwrap", "--unshare-user", "--unshare-pid", "--ro-bind", "/", "/", "--proc", "/proc", "true"]
    if os.geteuid() == 0:
        command.remove("--unshare-user")
    try:
        return subprocess.run(command, capture_output=True, timeout=20, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _watch_namespace(reader: int) -> int | None:
    """A descriptor that becomes readable when the last process of the sandbox is gone."""
    data = b""
    while piece := os.read(reader, 4096):
        data += piece
    try:
        return os.pidfd_open(json.loads(data)["child-pid"])
    except (ValueError, KeyError, OSError):
        return None


def remove_folder(folder: Path) -> None:
    """Remove a folder whatever it holds: made unwritable by a build, or still written to by a dying one."""
    for _ in range(5):
        if not folder.exists() and not folder.is_symlink():
            return
        trash = folder.with_name(f".trash-{secrets.token_hex(6)}")
        try:
            folder.rename(trash)
        except OSError:
            trash = folder
        # Root may remove anything, and must not change modes along paths that others made.
        for path, names, _files in os.walk(trash) if os.geteuid() else ():
            for name in names:
                child = os.path.join(path, name)
                if not os.path.islink(child):
                    try:
                        os.chmod(child, 0o700)
                    except OSError:
                        pass
        shutil.rmtree(trash, ignore_errors=True)
        if not trash.exists():
            return
        time.sleep(0.05)


def _parents(targets: Iterable[str]) -> list[str]:
    found: dict[str, None] = {}
    for target in targets:
        for parent in reversed(Path(target).parents):
            if str(parent) not in ("/", "/usr", "/proc", "/dev", "/tmp") and not str(parent).startswith(
                "/usr/"
            ):
                found[str(parent)] = None
    found["/opt"] = None
    return list(found)
