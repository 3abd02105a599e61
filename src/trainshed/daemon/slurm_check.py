"""Can this platform use the cluster? Each finding says what was found and how to mend it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from urllib.parse import urlsplit

from trainshed.daemon.doctor import Finding
from trainshed.engines.slurm.answers import read_nodes, read_partitions
from trainshed.engines.slurm.commands import Commands, SlurmRefusal
from trainshed.engines.slurm.reasons import explain_refusal
from trainshed.model.errors import TrainshedError, Unavailable
from trainshed.model.pools import Pool
from trainshed.model.settings import Settings
from trainshed.services.public_urls import api_url, obs_url

__all__ = ["examine_slurm"]

_PROGRAMS = ("sbatch", "squeue", "scontrol", "scancel")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def examine_slurm(settings: Settings, commands: Commands | None = None) -> list[Finding]:
    """Look at everything that the engine needs. Nothing is started in the cluster."""
    commands = commands or Commands()
    findings = list(_examine_programs(commands))
    if any(finding.level == "bad" for finding in findings):
        return findings
    findings += _examine_controller(commands)
    if any(finding.level == "bad" for finding in findings):
        return findings
    partitions = read_partitions(commands.run("scontrol", "-o", "show", "partitions").out)
    text = commands.run("scontrol", "-o", "show", "nodes").out
    pools = [pool for pool in settings.all_pools if pool.engine == "slurm"]
    if not pools:
        fix = "Add [pools.NAME] with engine = 'slurm' to settings.toml, or use `trainshed up --engine slurm`."
        findings.append(Finding("bad", "pools", "no pool of this platform is in Slurm", fix))
    for pool in pools:
        findings += _examine_pool(commands, pool, partitions, text)
    findings += _examine_ways(settings, "127.0.0.1" not in text)
    return findings


def _examine_programs(commands: Commands) -> Iterator[Finding]:
    for name in _PROGRAMS:
        place = commands.find(name)
        if place is None:
            fix = "Install Slurm's client commands (Debian, Ubuntu: apt-get install slurm-client)."
            yield Finding("bad", name, "not installed on this machine", fix)
        else:
            yield Finding("ok", name, place)


def _examine_controller(commands: Commands) -> Iterator[Finding]:
    try:
        version = commands.run("scontrol", "--version").out.strip()
        commands.run("squeue", "-h", "-u", str(os.geteuid()))
    except SlurmRefusal as fault:
        yield Finding("bad", "controller", fault.said[:200], "Is SLURM_CONF right on this machine?")
        return
    except Unavailable as fault:
        fix = "Check slurm.conf and munge on this machine: `scontrol ping`, `munge -n | unmunge`."
        yield Finding("bad", "controller", fault.message, fix)
        return
    yield Finding("ok", "controller", f"answers ({version})")
    try:
        commands.run("sacct", "-n", "-X", "-S", "now-1minutes")
    except TrainshedError:
        yield Finding("ok", "accounting", "none; squeue and scontrol are used")
    else:
        yield Finding("ok", "accounting", "sacct is asked about jobs that Slurm has forgotten")


def _examine_pool(
    commands: Commands, pool: Pool, partitions: dict[str, dict[str, str]], text: str
) -> Iterator[Finding]:
    subject = f"pool {pool.name}"
    wanted = pool.partition or next(
        (name for name, row in partitions.items() if row.get("Default") == "YES"), ""
    )
    for name in wanted.split(",") if wanted else [""]:
        if name not in partitions:
            there = ", ".join(sorted(partitions))
            what = f"there is no partition '{name}'" if name else "the cluster has no default partition"
            yield Finding("bad", subject, what, f"Set `partition` to one of: {there}.")
            return
        state = partitions[name].get("State", "")
        if state != "UP":
            yield Finding(
                "warn", subject, f"the partition {name} is {state.lower()}", "Ask its administrator."
            )
    nodes = read_nodes(text, pool.name, wanted, pool.gres)
    ready = [node for node in nodes if node.state == "ready"]
    devices = sum(len(node.devices) for node in nodes)
    level = "ok" if ready else "warn"
    yield Finding(
        "ok" if level == "ok" else "warn",
        subject,
        f"partition {wanted}: {len(ready)} of {len(nodes)} machines ready, {devices} devices",
        "" if ready else "`sinfo -R` shows why the machines are not ready.",
    )
    accounts = sorted(set(pool.accounts.values())) if pool.run_as == "user" else [""]
    if not accounts:
        yield Finding(
            "bad", subject, "run_as is 'user', and no user has an account", "Fill in `accounts` of the pool."
        )
    for account in accounts:
        yield _try_submission(commands, pool, wanted, account)


def _try_submission(commands: Commands, pool: Pool, partition: str, account: str) -> Finding:
    """Ask Slurm whether it would take a job of one core; nothing is submitted."""
    subject = f"pool {pool.name}"
    options = [f"--partition={partition}"] if partition else []
    options += [
        f"--{name}={value}" for name, value in (("account", pool.account), ("qos", pool.qos)) if value
    ]
    whom = f"as {account}" if account else "as the platform's own account"
    try:
        commands.run(
            *("sbatch", "--test-only", "--nodes=1", "--ntasks=1", "--chdir=/", *options, *pool.options),
            given="#!/bin/sh\ntrue\n",
            account=account,
        )
    except SlurmRefusal as fault:
        words = explain_refusal(fault.said)
        return Finding("bad", subject, f"Slurm takes no job {whom}: {words.reason}", words.hint)
    except Unavailable as fault:
        return Finding("bad", subject, fault.message, fault.hint)
    return Finding("ok", subject, f"Slurm takes jobs {whom}")


def _examine_ways(settings: Settings, are_elsewhere: bool) -> Iterator[Finding]:
    for name, url in (("public_url", api_url(settings)), ("public_obs_url", obs_url(settings))):
        host = urlsplit(url).hostname or ""
        if host in _LOOPBACK and are_elsewhere:
            fix = f"Set `host` to an address that the machines reach, and {name} to its URL."
            yield Finding("bad", name, f"{url} means each machine itself", fix)
        else:
            yield Finding("ok", name, f"{url} is what the machines will use")
