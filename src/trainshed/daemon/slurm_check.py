"""Can this platform use the cluster? Each finding says what was found and how to mend it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from trainshed.daemon.doctor import Finding
from trainshed.daemon.slurm_accounts import examine_accounts, know_accounts
from trainshed.daemon.slurm_trial import examine_platform, try_pool
from trainshed.engines.slurm.answers import read_gres, read_nodes, read_partitions
from trainshed.engines.slurm.commands import Commands, SlurmRefusal
from trainshed.engines.slurm.reasons import explain_refusal
from trainshed.model.errors import HostUnfit, InvalidInput, TrainshedError, Unavailable, suggest
from trainshed.model.home import Home
from trainshed.model.pools import Pool
from trainshed.model.settings import Settings
from trainshed.services.public_urls import api_url, obs_url

__all__ = ["check_pools", "examine_slurm"]

_PROGRAMS = ("sbatch", "squeue", "scontrol", "scancel")
_OLDEST = (20, 11)
# Seconds for which a controller should know of an end: a restart of the platform takes as long.
_SHORT_MEMORY = 60
# A start does not wait long for a controller that is away.
_START_SECONDS = 10.0
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def check_pools(settings: Settings, commands: Commands | None = None) -> None:
    """Refuse pools that the cluster does not have. A controller that is away is no reason: it may come back."""
    pools = [pool for pool in settings.all_pools if pool.engine == "slurm"]
    if not pools:
        return
    commands = commands or Commands(seconds=_START_SECONDS)
    missing = [finding for finding in _examine_programs(commands) if finding.level == "bad"]
    if missing:
        raise HostUnfit(
            f"The pool '{pools[0].name}' is in Slurm, whose command {missing[0].subject} is not on this machine.",
            hint=missing[0].fix,
            code="slurm_missing",
        )
    try:
        partitions = read_partitions(commands.run("scontrol", "-o", "show", "partitions").out)
    except TrainshedError:
        return
    for pool in pools:
        for name in pool.partition.split(",") if pool.partition else ():
            if name not in partitions:
                raise InvalidInput(
                    f"The pool '{pool.name}' names the partition '{name}', which the cluster does not have.",
                    hint=f"{suggest(name, partitions)} `sinfo -s` shows them.",
                    code="unknown_partition",
                    where=f"settings.toml: pools.{pool.name}",
                )


def examine_slurm(
    settings: Settings,
    commands: Commands | None = None,
    *,
    home: Home | None = None,
    names: Iterable[str] = (),
    wait: float = 0.0,
) -> list[Finding]:
    """Look at everything that the engine needs.

    `names` are the platform's users. With `wait`, a tiny test job looks at a machine of each pool, and is waited for
    so many seconds; else nothing is started in the cluster.
    """
    commands = commands or Commands()
    findings = list(_examine_programs(commands))
    if any(finding.level == "bad" for finding in findings):
        return findings
    findings += _examine_controller(commands)
    if any(finding.level == "bad" for finding in findings):
        return findings
    try:
        cluster = _ask_cluster(commands)
    except TrainshedError as fault:
        return [*findings, Finding("bad", "controller", fault.message, fault.hint)]
    pools = [pool for pool in settings.all_pools if pool.engine == "slurm"]
    if not pools:
        fix = "Add [pools.NAME] with engine = 'slurm' to settings.toml, or use `trainshed up --engine slurm`."
        findings.append(Finding("bad", "pools", "no pool of this platform is in Slurm", fix))
    ways = list(_examine_ways(settings, "127.0.0.1" not in cluster.nodes))
    if wait and home is not None:
        ways += examine_platform(home, settings)
    findings += ways
    for pool in pools:
        found = list(_examine_pool(commands, pool, cluster, tuple(names)))
        findings += found
        if wait and home is not None and not any(item.level == "bad" for item in (*found, *ways)):
            account = next(iter(know_accounts(pool, names).users))
            partition = cluster.partition_of(pool)
            findings += try_pool(commands, pool, partition, account, home, settings, wait)
    return findings


@dataclass(frozen=True)
class _Cluster:
    """What the controller says of itself."""

    partitions: dict[str, dict[str, str]]
    nodes: str

    def partition_of(self, pool: Pool) -> str:
        """The partition of a pool; empty where the cluster has no default one."""
        default = (name for name, row in self.partitions.items() if row.get("Default") == "YES")
        return pool.partition or next(default, "")


def _ask_cluster(commands: Commands) -> _Cluster:
    partitions = read_partitions(commands.run("scontrol", "-o", "show", "partitions").out)
    return _Cluster(partitions, commands.run("scontrol", "-o", "show", "nodes").out)


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
    number = re.search(r"(\d+)\.(\d+)", version)
    if number and (int(number[1]), int(number[2])) < _OLDEST:
        fix = "Newer ones are tested: 22.05 at every change. Try a small job first."
        yield Finding("warn", "controller", f"{version} is older than any that was tried", fix)
    try:
        commands.run("sacct", "-n", "-X", "-S", "now-1minutes")
    except TrainshedError:
        age = re.search(
            r"^MinJobAge\s*=\s*(\d+)", commands.run("scontrol", "show", "config").out, re.MULTILINE
        )
        seconds = int(age[1]) if age else 0
        if seconds < _SHORT_MEMORY:
            fix = (
                "Set MinJobAge=300 in slurm.conf, or use slurmdbd: else nobody can say later how a job ended."
            )
            words = f"none, and Slurm forgets jobs {seconds} s after their end"
            yield Finding("warn", "accounting", words, fix)
        else:
            yield Finding(
                "ok", "accounting", f"none; squeue and scontrol know jobs for {seconds} s after their end"
            )
    else:
        yield Finding("ok", "accounting", "sacct is asked about jobs that Slurm has forgotten")


def _examine_pool(
    commands: Commands, pool: Pool, cluster: _Cluster, names: tuple[str, ...]
) -> Iterator[Finding]:
    subject = f"pool {pool.name}"
    wanted = cluster.partition_of(pool)
    for name in wanted.split(",") if wanted else [""]:
        if name not in cluster.partitions:
            there = ", ".join(sorted(cluster.partitions))
            what = f"there is no partition '{name}'" if name else "the cluster has no default partition"
            yield Finding("bad", subject, what, f"Set `partition` to one of: {there}.")
            return
        state = cluster.partitions[name].get("State", "")
        if state != "UP":
            yield Finding(
                "warn", subject, f"the partition {name} is {state.lower()}", "Ask its administrator."
            )
    nodes = read_nodes(cluster.nodes, pool.name, wanted, pool.gres)
    ready = [node for node in nodes if node.state == "ready"]
    devices = sum(len(node.devices) for node in nodes)
    yield Finding(
        "ok" if ready else "warn",
        subject,
        f"partition {wanted}: {len(ready)} of {len(nodes)} machines ready, {devices} devices",
        "" if ready else "`sinfo -R` shows why the machines are not ready.",
    )
    strange = sorted(set(read_gres(cluster.nodes, wanted)) - set(pool.gres.values()))
    if strange:
        fix = f'If they are accelerators: gres = {{ nvidia = "…", ascend = "{strange[0]}" }} in the pool.'
        yield Finding(
            "warn", subject, f"its machines have devices that no flavor uses: {', '.join(strange)}", fix
        )
    found = list(examine_accounts(commands, pool, names))
    yield from found
    if any(item.level == "bad" for item in found):
        return
    for account in sorted(know_accounts(pool, names).users):
        yield _try_submission(commands, pool, wanted, account)


def _try_submission(commands: Commands, pool: Pool, partition: str, account: str) -> Finding:
    """Ask Slurm whether it would take a job of one core; nothing is submitted."""
    subject = f"pool {pool.name}"
    options = ["--test-only", "--nodes=1", "--ntasks=1", "--chdir=/"]
    options += [
        f"--{name}={value}"
        for name, value in (("partition", partition), ("account", pool.account), ("qos", pool.qos))
        if value
    ]
    # In the script, not in the command: that one must be exactly what the sudo rule allows.
    lines = [f"#SBATCH {option}" for option in (*options, *pool.options)]
    script = "\n".join(["#!/bin/sh", *lines, "true"]) + "\n"
    whom = f"as {account}" if account else "as the platform's own account"
    try:
        commands.run("sbatch", "--parsable", given=script, account=account)
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
