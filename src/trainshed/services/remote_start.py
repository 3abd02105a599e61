"""How a runner is started on a machine that has nothing of the platform but Python and the way to it."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable

from trainshed.engines.engine import (
    EXIT_NO_PLATFORM,
    EXIT_NO_PYTHON,
    EXIT_REFUSED,
    EXIT_UNFIT,
    AttemptLaunch,
    RemoteStart,
)
from trainshed.services.attempt_tokens import attempt_token
from trainshed.services.platform import Platform
from trainshed.services.public_urls import api_url
from trainshed.services.runner_bundle import find_bundle

__all__ = ["remote_start", "render_start_script"]

_LOOK_SECONDS = 1.0
# For every Python from 3.6 on: it has to be able to say that it is too old. It fetches the runner once per machine and
# version, and becomes it: without a look at what else is installed for this Python. A platform that restarts is waited for; a wrong digest is never run.
_BOOTSTRAP = r'''
# trainshed.runner: one node of a job
import os, sys

url, digest, authority = sys.argv[1:4]
node = os.environ.get("SLURM_NODEID", os.environ.get("TRAINSHED_NODE", "0"))
base = os.environ.get("TRAINSHED_NODE_FOLDER") or os.environ.get("TMPDIR") or "/tmp"
folder = os.path.join(os.path.abspath(base), "trainshed-%d" % os.geteuid())
file = os.path.join(folder, "runner-%s.pyz" % digest[:16])
unpacked, trusted = file[:-4], ""

def run():
    sys.dont_write_bytecode = True
    # What is loaded now stays: until it is, nobody looks for garbage in it.
    import gc
    gc.disable()
    # The runner has only the standard library beside it, whatever the environment of this machine adds.
    foreign = os.environ.pop("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = [unpacked] + [path for path in sys.path if path and path not in foreign]
    from trainshed.runner.remote.late_library import start_quickly
    start_quickly(unpacked)
    from trainshed.runner.remote.main import run_node
    code = run_node(url, int(node), trusted)
    sys.stderr.flush()
    # Nothing is left to be cleared up.
    os._exit(code)

def is_usual():
    try:
        facts = os.lstat(folder)
        is_own = facts.st_uid == os.geteuid() and not facts.st_mode & 0o022
        if authority or sys.version_info < (3, 11) or not is_own:
            return False
        os.stat(os.path.join(unpacked, "complete"))
        for used in (file, unpacked):
            os.utime(used)
        return True
    except OSError:
        return False

# The usual case, and the quick one: another job has brought the runner here. What follows is not even read then.
if is_usual():
    run()
exec(r"""
def fail(code, words, name="", hint=""):
    sys.stderr.write("trainshed: %s\n" % words)
    try:
        if name:
            import json, socket
            host = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
            said = {"node": int(node), "host": host, "code": name, "message": words, "hint": hint}
            ask("failed-start", json.dumps(said).encode(), 20)
    except Exception as error:
        sys.stderr.write("trainshed: the platform does not know that: %s\n" % error)
    sys.exit(code)

def ask(path, data=None, seconds=60):
    import ssl
    from urllib.request import Request, urlopen
    headers = {"Authorization": "Bearer " + os.environ.get("TRAINSHED_RUNNER_TOKEN", "")}
    if data:
        headers["Content-Type"] = "application/json"
    trust = ssl.create_default_context()
    if authority:
        trust.load_verify_locations(cadata=authority)
    request = Request(url + "/api/v1/runners/" + path, data, headers)
    return urlopen(request, timeout=seconds, context=trust if url.startswith("https") else None).read()

if sys.version_info < (3, 11):
    words = "this Python is %d.%d; the runner needs 3.11 or newer" % sys.version_info[:2]
    fail(NO_PYTHON, words, "no_python", "Set python of the pool to one that is new enough.")

def is_whole():
    try:
        with open(file, "rb") as found:
            return hashlib.sha256(found.read()).hexdigest() == digest
    except OSError:
        return False

try:
    os.makedirs(folder, mode=0o700, exist_ok=True)
    facts = os.lstat(folder)
    if facts.st_uid != os.geteuid() or facts.st_mode & 0o022:
        words = "%s is not a folder of this user alone" % folder
        fail(UNFIT, words, "node_folder", "Remove it, or set TRAINSHED_NODE_FOLDER to another place.")
    if authority:
        import hashlib
        trusted = os.path.join(folder, "authority-%s.pem" % hashlib.sha256(authority.encode()).hexdigest()[:16])
        with open("%s.%d" % (trusted, os.getpid()), "w") as target:
            target.write(authority)
        os.rename("%s.%d" % (trusted, os.getpid()), trusted)
    is_here = os.path.exists(os.path.join(unpacked, "complete")) and os.path.exists(file)
    if is_here:
        for used in (file, unpacked):
            os.utime(used)
    else:
        import hashlib, time
        from urllib.error import HTTPError
        pause, began = 1, time.monotonic()
    while not is_here and not is_whole():
        why = ""
        try:
            data = ask("bundle?digest=" + digest)
            if hashlib.sha256(data).hexdigest() != digest:
                fail(NO_PLATFORM, "what came from %s is not the runner that was meant" % url, "wrong_runner")
            fresh = "%s.%d" % (file, os.getpid())
            with open(fresh, "wb") as target:
                target.write(data)
            os.rename(fresh, file)
            continue
        except HTTPError as error:
            why = "it answered with status %d" % error.code
            if error.code in (401, 403, 404):
                fail(REFUSED if error.code == 401 else NO_PLATFORM, "the platform at %s refused: %s" % (url, why))
        except OSError as error:
            if error.errno in (28, 122):
                raise
            why = str(error)
        if time.monotonic() - began > 7200:
            fail(NO_PLATFORM, "the platform at %s cannot be reached from this machine: %s" % (url, why))
        time.sleep(pause)
        pause = min(30, pause * 2)
except OSError as error:
    name = "no_room" if error.errno in (28, 122) else "node_folder"
    words = "this machine has no %s for the runner: %s" % ("room" if name == "no_room" else "place", error)
    fail(UNFIT, words, name, "Make room, or let TRAINSHED_NODE_FOLDER name a folder of the machines that has some.")
if is_here:
    run()
arguments = [sys.executable, "-S", file, "--url", url, "--node", node] + (["--ca", trusted] if authority else [])
os.execv(sys.executable, arguments)
""")
'''


def remote_start(platform: Platform) -> Callable[[AttemptLaunch], RemoteStart]:
    """What an engine asks for every attempt: how its nodes' runners are started."""

    # To look at all files of the installation takes longer than to hand a job over: many jobs share one look.
    known, good_until = "", float("-inf")

    def find_digest() -> str:
        nonlocal known, good_until
        if time.monotonic() >= good_until:
            known = find_bundle(platform.home).digest
            good_until = time.monotonic() + _LOOK_SECONDS
        return known

    def start(launch: AttemptLaunch) -> RemoteStart:
        settings = platform.settings
        try:
            authority = platform.home.tls_authority.read_text("ascii") if settings.serves_tls else ""
        except FileNotFoundError:
            authority = ""
        script = render_start_script(api_url(settings), find_digest(), authority)
        token = attempt_token(platform, launch.job_id, launch.attempt)
        return RemoteStart(script, {"TRAINSHED_RUNNER_TOKEN": token})

    return start


def render_start_script(url: str, digest: str, authority: str = "") -> str:
    """The shell lines that start one node's runner; all of them may be seen."""
    program = _BOOTSTRAP.replace("NO_PYTHON", str(EXIT_NO_PYTHON)).replace(
        "NO_PLATFORM", str(EXIT_NO_PLATFORM)
    )
    program = program.replace("REFUSED", str(EXIT_REFUSED)).replace("UNFIT", str(EXIT_UNFIT)).strip("\n")
    python = '"${TRAINSHED_PYTHON:-python3}"'
    return "\n".join(
        (
            f"command -v {python} >/dev/null 2>&1 || {{",
            f'    echo "trainshed: there is no ${{TRAINSHED_PYTHON:-python3}} on $(uname -n)" >&2; exit {EXIT_NO_PYTHON}',
            "}",
            # As one word of the shell: to read it into a variable would start two processes.
            f"exec {python} -S -c {shlex.quote(program)} {shlex.quote(url)} {digest} {shlex.quote(authority)}",
        )
    )
