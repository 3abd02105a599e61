"""How a runner is started on a machine that has nothing of the platform but Python and the way to it."""

from __future__ import annotations

import shlex
from collections.abc import Callable

from trainshed.engines.engine import (
    EXIT_NO_PLATFORM,
    EXIT_NO_PYTHON,
    AttemptLaunch,
    RemoteStart,
)
from trainshed.services.attempt_tokens import attempt_token
from trainshed.services.platform import Platform
from trainshed.services.public_urls import api_url
from trainshed.services.runner_bundle import find_bundle

__all__ = ["remote_start", "render_start_script"]

_END = "END_OF_BOOTSTRAP"
# For every Python from 3.6 on: it has to be able to say that it is too old. It fetches the runner once per machine and
# version, and becomes it. A platform that restarts is waited for; a wrong digest is never run.
_BOOTSTRAP = r"""
import hashlib, os, ssl, sys, tempfile, time
from urllib.error import HTTPError
from urllib.request import Request, urlopen

url, digest, authority = sys.argv[1:4]

def fail(code, words):
    sys.stderr.write("trainshed: %s\n" % words)
    sys.exit(code)

if sys.version_info < (3, 11):
    fail(NO_PYTHON, "this Python is %d.%d; the runner needs 3.11 or newer" % sys.version_info[:2])
base = os.environ.get("TRAINSHED_NODE_FOLDER") or os.environ.get("TMPDIR") or tempfile.gettempdir()
folder = os.path.join(os.path.abspath(base), "trainshed-%d" % os.geteuid())
file = os.path.join(folder, "runner-%s.pyz" % digest[:16])

def is_whole():
    try:
        with open(file, "rb") as found:
            return hashlib.sha256(found.read()).hexdigest() == digest
    except OSError:
        return False

def fetch():
    token = os.environ.get("TRAINSHED_RUNNER_TOKEN", "")
    request = Request(url + "/api/v1/runners/bundle?digest=" + digest, headers={"Authorization": "Bearer " + token})
    trust = ssl.create_default_context()
    if authority:
        trust.load_verify_locations(cadata=authority)
    return urlopen(request, timeout=60, context=trust if url.startswith("https") else None).read()

try:
    os.makedirs(folder, mode=0o700, exist_ok=True)
    facts = os.lstat(folder)
    if facts.st_uid != os.geteuid() or facts.st_mode & 0o022:
        fail(NO_PLATFORM, "%s is not this user's own folder" % folder)
    pause, began = 1, time.time()
    while not is_whole():
        why = ""
        try:
            data = fetch()
            if hashlib.sha256(data).hexdigest() != digest:
                fail(NO_PLATFORM, "what came from %s is not the runner that was meant" % url)
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
        if time.time() - began > 3600:
            fail(NO_PLATFORM, "the platform at %s cannot be reached from this machine: %s" % (url, why))
        time.sleep(pause)
        pause = min(30, pause * 2)
    if authority:
        trusted = os.path.join(folder, "authority-%s.pem" % hashlib.sha256(authority.encode()).hexdigest()[:16])
        with open("%s.%d" % (trusted, os.getpid()), "w") as target:
            target.write(authority)
        os.rename("%s.%d" % (trusted, os.getpid()), trusted)
except OSError as error:
    fail(NO_PLATFORM, "this machine has no room for the runner: %s" % error)
node = os.environ.get("SLURM_NODEID", os.environ.get("TRAINSHED_NODE", "0"))
arguments = [sys.executable, file, "--url", url, "--node", node]
os.execv(sys.executable, arguments + (["--ca", trusted] if authority else []))
"""


def remote_start(platform: Platform) -> Callable[[AttemptLaunch], RemoteStart]:
    """What an engine asks for every attempt: how its nodes' runners are started."""

    def start(launch: AttemptLaunch) -> RemoteStart:
        settings = platform.settings
        try:
            authority = platform.home.tls_authority.read_text("ascii") if settings.serves_tls else ""
        except FileNotFoundError:
            authority = ""
        script = render_start_script(api_url(settings), find_bundle(platform.home).digest, authority)
        token = attempt_token(platform, launch.job_id, launch.attempt)
        return RemoteStart(script, {"TRAINSHED_RUNNER_TOKEN": token})

    return start


def render_start_script(url: str, digest: str, authority: str = "") -> str:
    """The shell lines that start one node's runner; all of them may be seen."""
    program = _BOOTSTRAP.replace("NO_PYTHON", str(EXIT_NO_PYTHON)).replace(
        "NO_PLATFORM", str(EXIT_NO_PLATFORM)
    )
    program = program.replace("REFUSED", "83").strip("\n")
    python = '"${TRAINSHED_PYTHON:-python3}"'
    return "\n".join(
        (
            f"command -v {python} >/dev/null 2>&1 || {{",
            f'    echo "trainshed: there is no ${{TRAINSHED_PYTHON:-python3}} on $(uname -n)" >&2; exit {EXIT_NO_PYTHON}',
            "}",
            f"bootstrap=$(cat <<'{_END}'",
            program,
            _END,
            ")",
            f'exec {python} -c "$bootstrap" {shlex.quote(url)} {digest} {shlex.quote(authority)}',
        )
    )
