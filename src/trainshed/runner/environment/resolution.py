"""Turns an engine and a requirement file into an exact set of packages, when a job is submitted."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from trainshed.model.engines import EnginePreset
from trainshed.model.errors import TrainshedError
from trainshed.model.launch_plan import Environment
from trainshed.runner.environment.failure import EnvironmentFailed, HeldErrors, explain_failure, needs_build
from trainshed.runner.environment.index import PackageIndex, read_pip_settings
from trainshed.runner.environment.install_box import InstallBox, Log, can_sandbox, remove_folder
from trainshed.runner.environment.interpreter import Interpreter, find_interpreter, find_uv
from trainshed.runner.environment.requirements import (
    CheckedRequirements,
    check_requirements,
    choose_requirements,
    requirement_file_names,
)

__all__ = [
    "INSTALL_UID",
    "choose_requirements",
    "digest_environment",
    "refuse_secret_index",
    "requirement_file_names",
    "resolve",
]

INSTALL_UID = 199999
_CACHE_SECONDS = 24 * 3600
_LARGEST_SET = 1 << 20
# One line of a resolved set: an exact version or the URL of one file or commit.
_EXACT = re.compile(r"[A-Za-z0-9][\w.-]*(\[[\w.,-]*\])?(==[\w.!+-]+| @ (git\+)?https?://[^\s\"'`\\]+)")


def resolve(
    engine: EnginePreset,
    requirements: str | None = None,
    *,
    folder: Path,
    uid: int | None = None,
    install_uid: int = INSTALL_UID,
    allow_index: bool = False,
    sandboxed: bool = True,
    log: Log = lambda data: None,
    should_stop: Callable[[], bool] = lambda: False,
    seconds: float = 300.0,
    variables: Mapping[str, str] | None = None,
) -> Environment:
    """The exact environment of a job: every package with its version, and a digest of all of it.

    `folder` is the platform's folder of environments. An engine without packages and a job without
    requirements need no resolver; an engine alone is answered from a cache for a day. With `sandboxed` false,
    a machine that has no sandbox does without.
    """
    interpreter = find_interpreter(engine.python)
    checked = check_requirements(requirements or "", allow_index=allow_index)
    wanted = "".join(f"{package}\n" for package in engine.packages) + checked.text
    if not wanted:
        return _environment(engine, interpreter, ())
    index = read_pip_settings(variables)
    cached = None if checked.text else _cache_file(folder, wanted, interpreter, index)
    if cached is not None and (packages := _read_cache(cached)) is not None:
        return _environment(engine, interpreter, packages)
    box = InstallBox(
        shed=folder / "work",
        interpreter=interpreter,
        index=index,
        uid=install_uid,
        sandboxed=sandboxed or can_sandbox(),
        should_stop=should_stop,
        seconds=seconds,
    )
    packages = _compile(box, CheckedRequirements(wanted, checked.leaves_index), uid or install_uid, log)
    if cached is not None:
        _write_cache(cached, packages)
    return _environment(engine, interpreter, packages)


def digest_environment(interpreter: Interpreter, packages: tuple[str, ...]) -> str:
    """The name of an environment: equal for equal interpreters, machines and packages."""
    # The number is that of the recipe: environments of another recipe are not used any more.
    facts = [2, interpreter.implementation, interpreter.version, interpreter.platform, sorted(packages)]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def refuse_secret_index(index: PackageIndex, output: str) -> None:
    """Code of a package could read the index's password, so that none is built beside one."""
    if index.secrets:
        failure = explain_failure(output)
        raise EnvironmentFailed(
            f"{failure.message} Packages are not built from source here, because the package index has a password.",
            hint="Use a version that has a wheel, or put a wheel of it into the index.",
            package=getattr(failure, "package", ""),
            output=output,
        )


def _environment(engine: EnginePreset, interpreter: Interpreter, packages: tuple[str, ...]) -> Environment:
    return Environment(engine.name, interpreter.version, packages, digest_environment(interpreter, packages))


def _compile(box: InstallBox, wanted: CheckedRequirements, untrusted_uid: int, log: Log) -> tuple[str, ...]:
    """First with wheels alone, which runs no code of a package; then, if need be, with building."""
    output = ""
    if not wanted.leaves_index:
        held = HeldErrors(log)
        code, output, packages = _run_compile(box, wanted.text, held)
        if code == 0:
            return packages
        if not needs_build(output):
            held.release()
            raise explain_failure(output)
    refuse_secret_index(box.index, output)
    private = box.shed / "private" / f"resolve.{os.getpid()}.{secrets.token_hex(4)}"
    _remove_leftovers(private.parent)
    own = InstallBox(
        shed=private,
        interpreter=box.interpreter,
        index=box.index,
        uid=untrusted_uid,
        trusted=False,
        sandboxed=box.sandboxed,
        should_stop=box.should_stop,
        seconds=box.seconds,
    )
    try:
        code, output, packages = _run_compile(own, wanted.text, log)
    finally:
        remove_folder(private)
    if code != 0:
        raise explain_failure(output)
    return packages


def _run_compile(box: InstallBox, text: str, log: Log) -> tuple[int, str, tuple[str, ...]]:
    request = box.shed / "requests" / secrets.token_hex(8)
    with box:
        box.make_folder(request)
        try:
            source, target = request / "requirements.in", request / "requirements.out"
            source.write_text(text, "utf-8")
            source.chmod(0o644)
            command = [box.uv, "pip", "compile", box.inside(source), "--output-file", box.inside(target)]
            command += ["--no-header", "--no-annotate", "--quiet", "--no-strip-extras"]
            command += ["--python", str(box.interpreter.executable)]
            command += ["--no-build"] if box.trusted else []
            command += ["--no-index"] if box.index.no_index else []
            run = box.run(command, log)
            return run.code, run.output, _read_set(target) if run.code == 0 else ()
        finally:
            remove_folder(request)


def _read_set(file: Path) -> tuple[str, ...]:
    """The resolved set. A package's code ran beside this file: it is read with care."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise TrainshedError("The resolver left no result.", code="environment_failed") from error
    with os.fdopen(descriptor, "rb") as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise TrainshedError("The resolver left no result.", code="environment_failed")
        text = stream.read(_LARGEST_SET).decode("utf-8", "replace")
    packages = []
    for line in text.splitlines():
        content = line.split(" ;")[0].strip()
        if not content or content.startswith(("#", "-")):
            continue
        if not _EXACT.fullmatch(content):
            raise EnvironmentFailed(
                f"The resolver answered with '{content[:120]}', which is no exact version."
            )
        packages.append(content)
    return tuple(sorted(packages))


def _cache_file(folder: Path, wanted: str, interpreter: Interpreter, index: PackageIndex) -> Path:
    version = find_uv().stat().st_mtime_ns
    facts = [1, wanted, interpreter.version, interpreter.platform, list(index.urls), index.no_index, version]
    return folder / "resolutions" / f"{hashlib.sha256(json.dumps(facts).encode()).hexdigest()}.json"


def _read_cache(file: Path) -> tuple[str, ...] | None:
    try:
        if time.time() - file.stat().st_mtime > _CACHE_SECONDS:
            return None
        packages = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return tuple(str(package) for package in packages) if isinstance(packages, list) else None


def _write_cache(file: Path, packages: tuple[str, ...]) -> None:
    """A cache that cannot be written costs time, never a job."""
    temporary = file.with_name(f".{secrets.token_hex(8)}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(list(packages)), "utf-8")
        temporary.replace(file)
    except OSError:
        temporary.unlink(missing_ok=True)


def _remove_leftovers(folder: Path) -> None:
    """Folders of resolvers that were killed."""
    for path in folder.glob("resolve.*.*"):
        pid = path.name.split(".")[1]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            remove_folder(path)
