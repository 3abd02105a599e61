"""Sends a tiny job to every pool and tells what the machines there lack."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterator
from urllib.error import HTTPError
from urllib.request import urlopen

from trainshed.daemon.doctor import Finding
from trainshed.engines.slurm.answers import read_end
from trainshed.engines.slurm.commands import Commands, SlurmRefusal
from trainshed.engines.slurm.reasons import explain_refusal
from trainshed.engines.slurm.trial import TRIAL_NAME, judge_trial, read_trial, render_trial, trial_variables
from trainshed.model.errors import TrainshedError, Unavailable
from trainshed.model.home import Home
from trainshed.model.pools import Pool
from trainshed.model.settings import Settings
from trainshed.services.public_urls import api_url, obs_url

__all__ = ["examine_platform", "try_pool"]

_LIVE = ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "STAGE_OUT", "RESIZING")
_POLL_SECONDS = 0.3


def examine_platform(home: Home, settings: Settings) -> Iterator[Finding]:
    """Whether the platform itself answers: machines can reach no more than that."""
    for name, url in (("public_url", api_url(settings)), ("public_obs_url", obs_url(settings))):
        try:
            urlopen(f"{url}/healthz", timeout=5, context=_trust(home, settings, url)).close()
        except HTTPError:
            # It answers.
            continue
        except (OSError, ValueError) as fault:
            fix = f"Start it (`trainshed up`), or correct {name}; then check again."
            yield Finding("bad", name, f"the platform does not answer at {url}: {fault}", fix)


def try_pool(
    commands: Commands,
    pool: Pool,
    partition: str,
    account: str,
    home: Home,
    settings: Settings,
    seconds: float,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Finding]:
    """Run the test job under an account (empty: the platform's own) and wait for what it says."""
    subject = f"pool {pool.name}"
    authority = _authority(home, settings)
    variables = trial_variables(api_url(settings), obs_url(settings), authority)
    try:
        number = commands.run(
            *("sbatch", "--parsable"),
            given=render_trial(pool, partition, variables),
            account=account,
            variables=variables,
        ).out.strip()
    except SlurmRefusal as fault:
        words = explain_refusal(fault.said)
        yield Finding("bad", subject, words.reason, words.hint)
        return
    except Unavailable as fault:
        yield Finding("bad", subject, fault.message, fault.hint)
        return
    number = number.partition(";")[0]
    deadline = time.monotonic() + seconds
    try:
        while True:
            text = commands.run("scontrol", "show", "job", number).out
            end = read_end(text)
            if end is None or end.state not in _LIVE:
                break
            if time.monotonic() > deadline:
                fix = "Give it longer (--wait), or try when machines are free."
                what = "waits" if end.state == "PENDING" else "runs"
                yield Finding(
                    "warn", subject, f"the test job still {what} after {seconds:g} s ({end.reason})", fix
                )
                return
            sleep(_POLL_SECONDS)
    except TrainshedError as fault:
        yield Finding("bad", subject, f"the test job was lost sight of: {fault.message}", fault.hint)
        return
    finally:
        _cancel(commands, number, account)
    code = end.exit_code if end else 0
    for remark in judge_trial(read_trial(text), code, pool, allow_unsandboxed=settings.allow_unsandboxed):
        yield Finding(remark.level, subject, remark.message, remark.fix)


def _cancel(commands: Commands, number: str, account: str) -> None:
    try:
        commands.run("scancel", f"--name={TRIAL_NAME}", number, account=account)
    except TrainshedError:
        # It has ended by itself.
        return


def _authority(home: Home, settings: Settings) -> str:
    try:
        return home.tls_authority.read_text("ascii") if settings.serves_tls else ""
    except FileNotFoundError:
        return ""


def _trust(home: Home, settings: Settings, url: str) -> ssl.SSLContext | None:

    if not url.startswith("https"):
        return None
    context = ssl.create_default_context()
    authority = _authority(home, settings)
    if authority:
        context.load_verify_locations(cadata=authority)
    return context
