"""A tiny job that looks at a machine of the cluster from inside and says what a runner would lack there."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from trainshed.engines.engine import EXIT_NO_PLATFORM, EXIT_NO_PYTHON
from trainshed.engines.slurm.sudo_rule import SECRET_VARIABLES
from trainshed.model.pools import Pool

__all__ = ["TRIAL_NAME", "Remark", "judge_trial", "read_trial", "render_trial", "trial_variables"]

# Of the form that the sudo rule lets pass, and of no platform.
TRIAL_NAME = "trainshed-0-check-1"
_END = "END_OF_TRIAL"
_SKEW_SECONDS = 30
# For every Python from 3.6 on. What it found goes into the job's comment, which Slurm shows to its submitter: there need be
# no shared file system and no way from the machine to the platform.
_PROGRAM = r"""
import base64, json, os, platform, shutil, ssl, stat, subprocess, sys, tempfile, time
from email.utils import parsedate_to_datetime
from urllib.request import urlopen

given = json.loads(base64.b64decode(os.environ["TRAINSHED_TRIAL"]).decode())
found = {"host": os.environ.get("SLURMD_NODENAME") or platform.node(), "python": platform.python_version()}
found["user"] = os.geteuid()
found["token"] = os.environ.get(given["secret"]) == given["value"]
for name in ("api", "obs"):
    trust = ssl.create_default_context()
    if given["authority"]:
        trust.load_verify_locations(cadata=given["authority"])
    url = given[name] + "/healthz"
    try:
        answer = urlopen(url, timeout=10, context=trust if url.startswith("https") else None)
        found[name] = ""
        if name == "api" and answer.headers.get("Date"):
            found["skew"] = round(time.time() - parsedate_to_datetime(answer.headers["Date"]).timestamp())
    except Exception as error:
        found[name] = str(error)[:100] or type(error).__name__
base = os.environ.get("TRAINSHED_NODE_FOLDER") or os.environ.get("TMPDIR") or tempfile.gettempdir()
folder = os.path.join(os.path.abspath(base), "trainshed-%d" % os.geteuid())
try:
    os.makedirs(folder, mode=0o700, exist_ok=True)
    facts = os.lstat(folder)
    own = facts.st_uid == os.geteuid() and stat.S_ISDIR(facts.st_mode) and not facts.st_mode & 0o022
    found["folder"] = "" if own else "%s is another user's" % folder
    found["free"] = shutil.disk_usage(folder).free // 1000000000
except OSError as error:
    found["folder"] = str(error)[:100]
bwrap = shutil.which("bwrap", path=os.environ.get("PATH", "") + ":/usr/bin:/usr/local/bin")
if bwrap is None:
    found["sandbox"] = "bubblewrap is not installed"
else:
    done = subprocess.run(
        [bwrap, "--unshare-user", "--unshare-pid", "--unshare-net", "--ro-bind", "/", "/", "--", "/bin/true"],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, universal_newlines=True)
    found["sandbox"] = "" if done.returncode == 0 else done.stderr.strip()[:100] or "it does not work"
words = base64.urlsafe_b64encode(json.dumps(found).encode()).decode()
subprocess.call(["scontrol", "update", "JobId=" + os.environ["SLURM_JOB_ID"], "Comment=trial." + words])
if sys.version_info < (3, 11):
    sys.exit(NO_PYTHON)
sys.exit(NO_PLATFORM if found["api"] or found["obs"] else 0)
"""


@dataclass(frozen=True)
class Remark:
    """Something that a machine told of itself: is it well, what was found, and how to mend it."""

    level: Literal["ok", "warn", "bad"]
    message: str
    fix: str = ""


def trial_variables(api: str, obs: str, authority: str = "") -> dict[str, str]:
    """The variables of a trial; the first stands for the secret that a runner's start gets in the same way."""
    value = "trial"
    given = {"api": api, "obs": obs, "authority": authority, "secret": SECRET_VARIABLES[0], "value": value}
    return {SECRET_VARIABLES[0]: value, "TRAINSHED_TRIAL": _pack(given)}


def render_trial(pool: Pool, partition: str, variables: dict[str, str]) -> str:
    """The batch script of a trial: one core of one machine, for a minute at most."""
    options = [f"--job-name={TRIAL_NAME}", "--nodes=1", "--ntasks=1", "--time=2", "--no-requeue"]
    options += [
        f"--{name}={value}"
        for name, value in (("partition", partition), ("account", pool.account), ("qos", pool.qos))
        if value
    ]
    options += ["--chdir=/", "--output=/dev/null", "--error=/dev/null", *pool.options]
    program = _PROGRAM.replace("NO_PYTHON", str(EXIT_NO_PYTHON)).replace("NO_PLATFORM", str(EXIT_NO_PLATFORM))
    lines = [
        "#!/bin/sh",
        *(f"#SBATCH {option}" for option in options),
        "",
        # What is not secret need not pass sudo.
        f"TRAINSHED_TRIAL={variables['TRAINSHED_TRIAL']}",
        "export TRAINSHED_TRIAL",
        *(
            [f"TRAINSHED_NODE_FOLDER={pool.node_folder}", "export TRAINSHED_NODE_FOLDER"]
            if pool.node_folder
            else []
        ),
        f"command -v {pool.python} >/dev/null 2>&1 || exit {EXIT_NO_PYTHON}",
        f"exec {pool.python} - <<'{_END}'",
        program.strip("\n"),
        _END,
    ]
    return "\n".join(lines) + "\n"


def read_trial(text: str) -> dict[str, Any] | None:
    """What the machine found, from `scontrol show job`; None where it could not say."""
    comment = re.search(r"\bComment=trial\.([A-Za-z0-9_=-]+)", text)
    if comment is None:
        return None
    try:
        found = json.loads(base64.urlsafe_b64decode(comment[1]))
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def judge_trial(
    found: dict[str, Any] | None, exit_code: int, pool: Pool, *, allow_unsandboxed: bool = False
) -> Iterator[Remark]:
    """What follows from a trial, each fault with its fix."""
    if found is None:
        if exit_code == EXIT_NO_PYTHON:
            yield Remark(
                "bad",
                f"the machine has no {pool.python}",
                "Set `python` of the pool to Python 3.11 or newer.",
            )
        else:
            yield Remark(
                "bad",
                f"the test job ended with code {exit_code} and said nothing",
                "Is scontrol installed on the machines, and may a job change its own comment?",
            )
        return
    host = str(found.get("host", "the machine"))
    version = str(found.get("python", ""))
    if exit_code == EXIT_NO_PYTHON:
        fix = "Set `python` of the pool to the path of Python 3.11 or newer on the machines."
        yield Remark("bad", f"{host}: {pool.python} is Python {version}", fix)
    else:
        yield Remark("ok", f"{host}: Python {version}, uid {found.get('user')}")
    if not found.get("token"):
        fix = "The sudo rule must keep it: `trainshed engine sudoers` prints one that does."
        yield Remark("bad", f"{host}: the variable {SECRET_VARIABLES[0]} did not arrive", fix)
    for name, setting in (("api", "public_url"), ("obs", "public_obs_url")):
        if found.get(name):
            fix = (
                f"Set `host` and {setting} to an address that the machines reach; open the port in firewalls."
            )
            yield Remark("bad", f"{host}: {setting} cannot be reached: {found[name]}", fix)
        else:
            yield Remark("ok", f"{host}: reaches {setting}")
    skew = found.get("skew")
    if isinstance(skew, int) and abs(skew) > _SKEW_SECONDS:
        fix = "Let the machines and the platform keep the same time (chrony, ntp)."
        yield Remark("warn", f"{host}: its clock is {abs(skew)} s {'ahead' if skew > 0 else 'behind'}", fix)
    if found.get("folder"):
        fix = "Set `node_folder` of the pool to a folder of the machines with room for jobs."
        yield Remark("bad", f"{host}: no place for jobs: {found['folder']}", fix)
    else:
        yield Remark("ok", f"{host}: {found.get('free', '?')} GB free for jobs")
    if found.get("sandbox"):
        fix = "Install bubblewrap 0.8 or newer on the machines, and allow user namespaces."
        if allow_unsandboxed:
            yield Remark("warn", f"{host}: jobs run without a sandbox: {found['sandbox']}", fix)
        else:
            fix += " Or set allow_unsandboxed."
            yield Remark("bad", f"{host}: jobs cannot be walled off: {found['sandbox']}", fix)
    else:
        yield Remark("ok", f"{host}: jobs run in a sandbox")


def _pack(data: dict[str, str]) -> str:
    return base64.b64encode(json.dumps(data).encode()).decode()
