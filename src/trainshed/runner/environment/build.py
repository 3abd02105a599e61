"""Builds environments: one folder per exact set of packages, built once whoever asks, never half."""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from trainshed.durable import sync_folder
from trainshed.model.errors import InvalidInput, TrainshedError
from trainshed.model.launch_plan import Environment
from trainshed.runner.environment.built import (
    MARKER,
    EnvironmentPaths,
    find_environment,
    is_digest,
)
from trainshed.runner.environment.failure import HeldErrors, explain_failure, needs_build
from trainshed.runner.environment.index import read_pip_settings
from trainshed.runner.environment.install_box import (
    InstallBox,
    Log,
    can_sandbox,
    remove_folder,
)
from trainshed.runner.environment.interpreter import Interpreter, find_interpreter
from trainshed.runner.environment.resolution import INSTALL_UID, digest_environment, refuse_secret_index
from trainshed.runner.shims import PATH_FILE

__all__ = ["EnvironmentPaths", "ensure_environment"]

# What a killed installer left in the shared folder, when nobody can be at work with it any more.
_STALE_SECONDS = 24 * 3600


def ensure_environment(
    environment: Environment,
    folder: Path,
    log: Log,
    *,
    on_build: Callable[[], None] | None = None,
    uid: int | None = None,
    install_uid: int = INSTALL_UID,
    sandboxed: bool = True,
    should_stop: Callable[[], bool] = lambda: False,
    seconds: float = 3600.0,
) -> EnvironmentPaths:
    """The environment of a job, built now if this machine does not have it yet.

    Whoever comes second waits for the first and says so in `log`. Started as root, packages are unpacked as
    `install_uid`, and code of packages runs as `uid` (the workspace's own). With `sandboxed` false, a machine
    that has no sandbox does without.
    """
    digest = environment.digest or digest_environment(
        find_interpreter(environment.python), environment.packages
    )
    if not is_digest(digest):
        raise InvalidInput("The environment's digest is not one.", where="environment")
    sandboxed = sandboxed or can_sandbox()
    target = folder / digest
    if (found := find_environment(digest, folder, sandboxed=sandboxed)) is not None:
        return found
    if on_build is not None:
        on_build()
    folder.mkdir(parents=True, exist_ok=True)
    with _hold_lock(folder / "locks" / f"{digest}.lock", log, should_stop):
        if (found := find_environment(digest, folder, sandboxed=sandboxed)) is not None:
            return found
        builder = _Builder(
            environment, digest, folder, log, uid or install_uid, install_uid, sandboxed, should_stop, seconds
        )
        builder.build(target)
    found = find_environment(digest, folder, sandboxed=sandboxed)
    if found is None:
        raise TrainshedError("The environment vanished while it was built.", code="environment_failed")
    return found


@dataclass
class _Builder:
    environment: Environment
    digest: str
    folder: Path
    log: Log
    uid: int
    install_uid: int
    sandboxed: bool
    should_stop: Callable[[], bool]
    seconds: float

    def build(self, target: Path) -> None:
        """Build in a folder of its own and put it in place by one rename."""
        started = time.monotonic()
        work = self.folder / "work"
        for place in ("building", "private"):
            for leftover in (work / place).glob(f"{self.digest}.*"):
                # We hold the lock of this digest: who made these is dead.
                remove_folder(leftover)
        for request in (work / "requests").glob("*"):
            if time.time() - request.lstat().st_mtime > _STALE_SECONDS:
                remove_folder(request) if request.is_dir() else request.unlink(missing_ok=True)
        interpreter = self._interpreter()
        name = f"{self.digest}.{os.getpid()}.{secrets.token_hex(4)}"
        self._say(
            f"Building the environment: Python {interpreter.version}, {_count(self.environment.packages)}."
        )
        box = InstallBox(
            shed=work,
            interpreter=interpreter,
            index=read_pip_settings(),
            uid=self.install_uid,
            sandboxed=self.sandboxed,
            should_stop=self.should_stop,
            seconds=self.seconds,
            environment=f"building/{name}",
        )
        private = work / "private" / name
        try:
            built = work / "building" / name
            with box:
                output = self._install(box)
            if output:
                # A package has no wheel: its own code must run to build one.
                remove_folder(built)
                refuse_secret_index(box.index, output)
                self._say("A package has no wheel and is built from source, in a sandbox of its own.")
                own = replace(box, shed=private, uid=self.uid, trusted=False, environment="environment")
                with own:
                    output = self._install(own)
                if output:
                    raise explain_failure(output)
                built = private / "environment"
            self._finish(built, interpreter, target, given=not box.sandboxed or built.parent == private)
        finally:
            remove_folder(work / "building" / name)
            remove_folder(private)
        self._say(f"The environment is ready after {time.monotonic() - started:.1f} s.")

    def _interpreter(self) -> Interpreter:
        version = self.environment.python
        try:
            return find_interpreter(version)
        except TrainshedError:
            # A recorded patch version may be gone after an upgrade of the machine.
            minor = ".".join(version.split(".")[:2])
            found = find_interpreter(minor)
            self._say(f"Python {version} is no longer on this machine; {found.version} is used.")
            return found

    def _install(self, box: InstallBox) -> str:
        """Make the environment and install everything. Returns uv's words if a package must be built first."""
        python = f"{box.environment_path}/bin/python"
        venv = [box.uv, "venv", "--quiet", "--no-project", "--python", str(box.interpreter.executable)]
        venv += [] if box.sandboxed else ["--relocatable"]
        self._run(box, [*venv, box.environment_path], network=False)
        install = [box.uv, "pip", "install", "--python", python, "--no-deps"]
        install += ["--no-build"] if box.trusted else []
        packages = list(self.environment.packages)
        if not any(re.match(r"pip\b(?![\w.-])", package) for package in packages):
            bundled = box.interpreter.bundled_wheels
            if any(bundled.glob("pip-*.whl")):
                own = ["--quiet", "--no-index", "--find-links", str(bundled), "pip"]
                self._run(box, [*install, *own], network=False)
            else:
                packages.append("pip")
        if packages:
            request = box.shed / "requests" / f"{secrets.token_hex(8)}.txt"
            request.parent.mkdir(parents=True, exist_ok=True)
            request.write_text("".join(f"{package}\n" for package in packages), "utf-8")
            request.chmod(0o644)
            held = HeldErrors(self.log)
            try:
                options = ["--no-index"] if box.index.no_index else []
                run = box.run([*install, *options, "--requirement", box.inside(request)], held)
            finally:
                request.unlink(missing_ok=True)
            if run.code != 0:
                if box.trusted and needs_build(run.output):
                    return run.output
                held.release()
                raise explain_failure(run.output)
        self._add_shims(box)
        self._compile(box)
        return ""

    def _compile(self, box: InstallBox) -> None:
        """Byte code once for all jobs. -S: no start-up hook of a package runs. pip and tests are rarely started."""
        library = f"{box.environment_path}/lib/python{box.interpreter.minor}/site-packages"
        command = [str(box.interpreter.executable), "-I", "-S", "-m", "compileall", "-q"]
        command += [
            "-j",
            str(len(os.sched_getaffinity(0))),
            "-x",
            r"/site-packages/(pip|setuptools)/",
            library,
        ]
        # Files that are no Python of this version (templates, old syntax) are no failure.
        box.run(command, lambda data: None, network=False)

    def _add_shims(self, box: InstallBox) -> None:
        """Put the stand-in packages last on the path, where a package of the environment's own goes first, and
        have the start of every process helped along."""
        program = "import sys; open(sys.argv[1], 'w').write(sys.argv[2])"
        file = (
            f"{box.environment_path}/lib/python{box.interpreter.minor}/site-packages/zz-trainshed-shims.pth"
        )
        command = [str(box.interpreter.executable), "-I", "-S", "-c", program, file, PATH_FILE]
        self._run(box, command, network=False)

    def _run(self, box: InstallBox, command: list[str], *, network: bool) -> None:
        run = box.run(command, self.log, network=network)
        if run.code != 0:
            raise explain_failure(run.output)

    def _finish(self, built: Path, interpreter: Interpreter, target: Path, *, given: bool) -> None:
        # Code of a package may have put something else in the folder's place.
        if not stat.S_ISDIR(built.lstat().st_mode):
            raise TrainshedError("The build replaced the environment's folder.", code="environment_failed")
        if given:
            _take_over(built)
        for name in (".lock", ".gitignore", "CACHEDIR.TAG", MARKER):
            (built / name).unlink(missing_ok=True)
        facts = {
            "digest": self.digest,
            "python": interpreter.version,
            "prefix": str(interpreter.prefix),
            "executable": str(interpreter.executable),
            "packages": list(self.environment.packages),
        }
        descriptor = os.open(built / MARKER, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
        with os.fdopen(descriptor, "w") as stream:
            json.dump(facts, stream)
            stream.flush()
            os.fsync(descriptor)
            # All files of the environment, before its name says that it is whole.
            ctypes.CDLL(None, use_errno=True).syncfs(descriptor)
        built.chmod(0o755)
        # An environment whose interpreter is gone, or that a crash of the machine tore.
        remove_folder(target)
        built.rename(target)
        sync_folder(target.parent)

    def _say(self, text: str) -> None:
        self.log(text.encode() + b"\n")


@contextmanager
def _hold_lock(file: Path, log: Log, should_stop: Callable[[], bool]) -> Iterator[None]:
    """One builder per environment. The lock dies with its holder, however that ends."""
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        said = False
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not said:
                    log(b"The same environment is being built already; waiting for it.\n")
                    said = True
                if should_stop():
                    raise TrainshedError("The installation was stopped.", code="stopped") from None
                time.sleep(0.05)
        yield
    finally:
        os.close(descriptor)


def _take_over(folder: Path) -> None:
    """Make the files of a private build readable for all jobs and, as root, nobody's own.

    By descriptors alone: a process that the build left behind may still exchange names for links.
    """
    is_root = os.geteuid() == 0
    for _, _, files, inside in os.fwalk(folder, follow_symlinks=False):
        if is_root:
            os.fchown(inside, 0, 0)
        os.fchmod(inside, 0o755)
        for name in files:
            try:
                descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=inside)
            except OSError:
                # A symbolic link, or nothing that a job could use.
                continue
            try:
                mode = os.fstat(descriptor).st_mode
                if is_root:
                    os.fchown(descriptor, 0, 0)
                os.fchmod(descriptor, 0o755 if mode & 0o100 else 0o644)
            finally:
                os.close(descriptor)


def _count(packages: tuple[str, ...]) -> str:
    if not packages:
        return "no packages beside pip"
    return f"{len(packages)} package{'s' if len(packages) > 1 else ''}"
