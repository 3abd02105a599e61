"""A site with real accounts, sudo and accounting: each user's jobs under an account of their own, and nobody else's."""

from __future__ import annotations

import grp
import json
import os
import pwd
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import slurm_site
import slurm_yard
from trainshed.engines.slurm.sudo_rule import render_sudo_rule

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can make accounts and sudo rules"),
]

TOKEN = b"TRAINSHED_RUNNER_TOKEN="
SCRIPT = """
import os, signal, sys, time
def go(*_):
    raise InterruptedError
signal.signal(signal.SIGUSR1, go)
print("rank", os.environ["RANK"], "token", os.environ.get("TRAINSHED_RUNNER_TOKEN"), flush=True)
try:
    time.sleep(float(next(word for word in sys.argv if word.startswith("--wait=")).split("=")[1]))
except InterruptedError:
    pass
with open(os.environ["TRAINSHED_OUTPUT_OUT"] + "/model-" + os.environ["RANK"], "w") as file:
    file.write("weights")
"""
JOB = """
name: {name}
code: ./code
boot: train.py
pool: lab
nodes: {nodes}
flavor: {flavor}
grace: 2
parameters: {{wait: {wait}}}
outputs: {{out: obs://results/{name}/}}
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A cluster and a platform, set up as the guide says; ann and bob have accounts, eve has none."""
    # Not below pytest's own folder, nor a private one for temporary files: other accounts may not enter these.
    import tempfile

    with (
        tempfile.TemporaryDirectory(prefix="slurm-site-", dir="/tmp") as folder,
        slurm_site.open_site(Path(folder)) as site,
    ):
        site.write_settings(
            f'[pools.lab]\nengine = "slurm"\npartition = "all"\npython = "{site.interpreter}"\n'
            f'accounts = {{ ann = "{site.names["ann"]}", bob = "{site.names["bob"]}" }}\n'
            f'shared_folder = "{make_shared_folder(site)}"\n'
        )
        up = site.host("up", "--detach", "--port", "0", "--obs-port", "0")
        assert up.returncode == 0, up.stderr
        for name in ("ann", "bob", "eve"):
            site.add_user(name)
        assert site.host("obs", "mb", "results").returncode == 0
        site.install_rule()
        yield site


def make_shared_folder(site: Any) -> Path:
    """A folder of all machines that a group of both users shares, as the guide says."""
    group = grp.getgrgid(pwd.getpwnam(site.names["ann"]).pw_gid)
    subprocess.run(["usermod", "-aG", group.gr_name, site.names["bob"]], check=True, timeout=120)
    shared = Path(site.folder) / "shared"
    shared.mkdir()
    os.chown(shared, 0, group.gr_gid)
    shared.chmod(0o2770)
    return shared


def submit(
    site: Any,
    support: Any,
    user: str,
    folder: Path,
    name: str,
    wait: float = 0,
    nodes: int = 1,
    cpus: int = 1,
) -> Any:
    (folder / "code").mkdir(exist_ok=True)
    (folder / "code/train.py").write_text(SCRIPT)
    (folder / "job.yaml").write_text(
        JOB.format(name=name, wait=wait, nodes=nodes, flavor="ascend.1" if cpus == 1 else f"cpu.{cpus}")
    )
    return site.cli(support, user, "submit", "job.yaml", cwd=folder)


def phase(site: Any, support: Any, user: str, name: str) -> str:
    return str(site.cli(support, user, "show", name, "--json").json()["phase"])


def tokens_on_the_nodes(uid: int) -> set[bytes]:
    """The tokens of an account's runners that live, as root sees them."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if path.parent.stat().st_uid != uid:
                continue
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        found |= {word.removeprefix(TOKEN) for word in words if word.startswith(TOKEN)}
    return found


# What another user of the cluster can try: every process, every file of Slurm, every command.
SPY = """
import glob, os, subprocess, sys
token = sys.stdin.read().encode()
assert token
seen = []
for pattern in ("/proc/[0-9]*/environ", "/proc/[0-9]*/cmdline"):
    for path in glob.glob(pattern):
        try:
            if token in open(path, "rb").read():
                seen.append(path)
        except OSError:
            pass
for root in sys.argv[3:]:
    for folder, _, files in os.walk(root):
        for file in files:
            try:
                if token in open(os.path.join(folder, file), "rb").read():
                    seen.append(os.path.join(folder, file))
            except OSError:
                pass
for command in (["scontrol", "-d", "show", "job"], ["squeue", "-O", "all"], ["squeue", "-o", "%all"],
                ["sacct", "-a", "-o", "all"], ["scontrol", "write", "batch_script", sys.argv[1], "-"],
                ["sacct", "-a", "-B", "-j", sys.argv[1]], ["sacct", "-a", "--env-vars", "-j", sys.argv[1]]):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if token in done.stdout + done.stderr:
        seen.append(" ".join(command))
try:
    seen.append(str(os.listdir(sys.argv[2])))
except PermissionError:
    pass
print(seen)
"""


def test_a_job_runs_as_its_owner_and_tells_nobody_else_its_secret(
    site: Any, support: Any, tmp_path: Path
) -> None:
    done = submit(site, support, "ann", tmp_path, "first", wait=250, nodes=2)
    assert done.exit_code == 0, done.output
    tokens = support.wait_until(lambda: tokens_on_the_nodes(site.uid("ann")), seconds=180, what="the runners")
    (token,) = (found.decode() for found in tokens)
    number, user = site.cluster.call("squeue", "-h", "-o", "%i %u").stdout.split()
    assert user == site.names["ann"]
    support.wait_until(
        lambda: phase(site, support, "ann", "first") in ("Running", "Completed", "Failed"),
        seconds=180,
        what="its start",
    )
    place = f"/tmp/trainshed-{site.uid('ann')}"
    spied = site.run_as(
        *("bob", site.interpreter, "-c", SPY, number, place, str(site.cluster.folder), str(site.home)),
        input=token,
    )
    assert spied.stdout.strip() == "[]", spied.stdout + spied.stderr
    # Its own account sees it; else the spy would prove nothing.
    own = site.run_as(
        *("ann", site.interpreter, "-c", SPY, number, "/nowhere-at-all", str(site.cluster.folder)),
        input=token,
    )
    assert "environ" in own.stdout or "FileNotFoundError" in own.stderr, own.stdout + own.stderr
    script = site.cluster.call("scontrol", "write", "batch_script", number, "-").stdout
    assert "#SBATCH --no-requeue" in script and token not in script
    # It waited for all this; now it may end.
    for rank in range(2):
        support.wait_until(
            lambda rank=rank: (
                f"rank {rank}" in site.cli(support, "ann", "logs", "first", "--rank", str(rank)).stdout
            ),
            seconds=120,
            what=f"rank {rank}",
        )
    site.cluster.call("scancel", "--signal=USR1", number)
    support.wait_until(
        lambda: phase(site, support, "ann", "first") in ("Completed", "Failed"), seconds=180, what="its end"
    )
    story = site.cli(support, "ann", "show", "first").output
    assert phase(site, support, "ann", "first") == "Completed", story
    for rank in range(2):
        log = site.cli(support, "ann", "logs", "first", "--rank", str(rank)).stdout
        assert f"rank {rank} token None" in log, log
    listed = site.host("obs", "ls", "-r", "obs://results/first/").stdout
    assert "model-0" in listed and "model-1" in listed
    # All that ran there was ann's, in a folder of hers; what the run left is gone.
    assert os.stat(place).st_uid == site.uid("ann") and os.stat(place).st_mode & 0o777 == 0o700
    support.wait_until(lambda: not list(Path(place).glob("run-*")), what="the run folders' end")


def test_homes_and_data_are_shared_by_accounts_of_one_group(site: Any, support: Any, tmp_path: Path) -> None:
    said = {
        "ann": "echo of-ann > /home/ann/own; echo of-ann > /data/ann; ls /home; mkdir -p /data/both; ls /data",
        "bob": "cat /data/ann; echo of-bob > /data/bob; echo more > /data/both/bob; ls /home; ls /data",
    }
    for user, command in said.items():
        job = {
            "name": f"kept-{user}",
            "dialect": "apulis",
            "pool": "lab",
            "engine": "python",
            "command": command,
        }
        (tmp_path / "job.yaml").write_text(json.dumps({**job, "nodes": 2, "flavor": "cpu.1"}))
        done = site.cli(support, user, "submit", "job.yaml", cwd=tmp_path)
        assert done.exit_code == 0, done.output
        support.wait_until(
            lambda user=user: phase(site, support, user, f"kept-{user}") in ("Completed", "Failed"),
            seconds=120,
        )
        told = site.cli(support, user, "logs", f"kept-{user}", "--rank", "0")
        assert phase(site, support, user, f"kept-{user}") == "Completed", told.output
        said[user] = told.stdout
    assert said["ann"].split() == ["ann", "ann", "both"]
    # The other one's home is not there.
    assert said["bob"].split() == ["of-ann", "bob", "ann", "bob", "both"]
    [workspace] = (Path(site.folder) / "shared").iterdir()
    assert (workspace / "home/ann/own").stat().st_uid == site.uid("ann")
    assert (workspace / "data/bob").stat().st_uid == site.uid("bob")
    # Who made a folder there lets the others write into it.
    assert (workspace / "data/both/bob").read_text() == "more\n"


def test_users_without_an_account_are_refused_when_they_submit(
    site: Any, support: Any, tmp_path: Path
) -> None:
    done = submit(site, support, "eve", tmp_path, "refused")
    assert done.exit_code != 0
    assert "The user 'eve' has no Unix account in the pool 'lab'" in done.output
    assert "accounts of [pools.lab]" in done.output
    # Before anything is made.
    assert site.cli(support, "eve", "list", "--json").stdout.strip() in ("[]", "") or "refused" not in (
        site.cli(support, "eve", "list").stdout
    )


def test_what_waits_and_what_runs_is_cancelled_as_its_owner(site: Any, support: Any, tmp_path: Path) -> None:
    assert submit(site, support, "bob", tmp_path, "endless", wait=600, nodes=3, cpus=8).exit_code == 0
    support.wait_until(
        lambda: "token None" in site.cli(support, "bob", "logs", "endless").stdout,
        seconds=180,
        what="the first line",
    )
    assert submit(site, support, "ann", tmp_path, "behind", cpus=8).exit_code == 0
    support.wait_until(
        lambda: site.names["ann"] in site.cluster.call("squeue", "-h", "-t", "PD", "-o", "%u").stdout,
        seconds=90,
        what="the second job in the queue",
    )
    for user, name in (("ann", "behind"), ("bob", "endless")):
        assert site.cli(support, user, "stop", name).exit_code == 0

    def are_stopped() -> bool:
        return all(
            phase(site, support, user, name) == "Terminated"
            for user, name in (("ann", "behind"), ("bob", "endless"))
        )

    support.wait_until(are_stopped, seconds=180, what="both stops")
    support.wait_until(
        lambda: not site.cluster.call("squeue", "-h").stdout, seconds=90, what="an empty queue"
    )


def test_the_rule_allows_nothing_else(site: Any) -> None:
    ann, bob = site.names["ann"], site.names["bob"]
    sbatch, scancel = "/usr/bin/sbatch", "/usr/bin/scancel"

    def is_allowed(account: str, *line: str, options: tuple[str, ...] = ()) -> bool:
        done = site.run_as("service", "sudo", "-n", *options, "-l", "-u", account, "--", *line)
        return bool(done.returncode == 0)

    name = "--name=trainshed-0123abcd-7c9e6679-7425-40de-944b-e07fc1f90ae7-1"
    assert is_allowed(ann, sbatch, "--parsable") and is_allowed(bob, sbatch, "--parsable")
    assert is_allowed(ann, scancel, name, "17")
    assert is_allowed(ann, scancel, "--state=PENDING", name, "17")
    for line in (
        (sbatch, "--parsable", "--wrap=id"),
        (sbatch, "--parsable", "/etc/passwd"),
        (sbatch,),
        (scancel, "17"),
        (scancel, "--name=hers", "17"),
        (scancel, name, "17", "--user=" + ann),
        (scancel, name, "--name=hers", "17"),
        ("/bin/sh", "-c", "id"),
        ("/usr/bin/srun", "id"),
    ):
        assert not is_allowed(ann, *line), line
    for account in ("root", "nobody", site.names["service"] + "x"):
        assert not is_allowed(account, sbatch, "--parsable"), account
    before = site.rule.read_text()
    try:
        # For a sudo before 1.9.10; and by a group, of which bob alone is a member.
        old = render_sudo_rule(site.names["service"], [], [bob], expressions=False)
        site.rule.write_text(old)
        assert is_allowed(bob, sbatch, "--parsable") and not is_allowed(ann, sbatch, "--parsable")
        assert is_allowed(bob, scancel, name, "17") and is_allowed(
            bob, scancel, "--state=PENDING", name, "17"
        )
        for line in ((sbatch, "--parsable", "--wrap=id"), (scancel, "17"), (scancel, "--name=hers", "17")):
            assert not is_allowed(bob, *line), line
    finally:
        site.rule.write_text(before)
    # Not even a variable that would make sbatch load something.
    given = {
        "LD_PRELOAD": "/tmp/x.so",
        "SLURM_CONF": "/tmp/evil.conf",
        "TRAINSHED_RUNNER_TOKEN": "t",
        "MORE": "1",
    }
    script = "#!/bin/sh\n#SBATCH --test-only --chdir=/\ntrue\n"
    done = site.run_as(
        *("service", "sudo", "-n", "-u", ann, "--preserve-env=MORE", "--", sbatch, "--parsable"),
        input=script,
        environment=given,
    )
    assert done.returncode != 0 and "not allowed to set" in done.stderr
    # And nobody but the platform's account has it.
    done = site.run_as("bob", "sudo", "-n", "-u", ann, "--", sbatch, "--parsable", input=script)
    assert done.returncode != 0


def test_the_check_tells_a_site_that_works_from_one_that_does_not(site: Any) -> None:
    done = site.host("engine", "check", "slurm", "--try", "--json")
    findings = json.loads(done.stdout)
    assert done.returncode == 0, done.stdout
    said = [item["message"] for item in findings]
    for name in ("ann", "bob"):
        assert f"jobs of {name} run as {site.names[name]}" in said
        assert f"sudo lets the platform submit and cancel as {site.names[name]}" in said
        assert f"Slurm takes jobs as {site.names[name]}" in said
    assert any("sacct is asked" in message for message in said)
    assert any(message.endswith(": reaches public_url") for message in said)
    assert any(message.endswith(": jobs run in a sandbox") for message in said)
    assert [item["subject"] for item in findings if "jobs of eve are refused" in item["message"]]
    rule = site.rule.read_text()
    try:
        # A rule that drops the token: jobs would start and be refused by the platform.
        site.rule.write_text(rule.replace("TRAINSHED_RUNNER_TOKEN ", ""))
        lossy = site.host("engine", "check", "slurm")
        assert lossy.returncode == 1 and "sudo does not let TRAINSHED_RUNNER_TOKEN pass" in lossy.stdout
        site.rule.write_text("")
        absent = site.host("engine", "check", "slurm")
        assert absent.returncode == 1 and "trainshed engine sudoers" in absent.stdout
        assert "The cluster can be used." not in absent.stdout
    finally:
        site.rule.write_text(rule)


def test_the_check_tells_what_a_machine_lacks(site: Any, support: Any) -> None:
    settings = (site.home / "settings.toml").read_text()
    try:
        # Read by the check alone: the platform that runs has its own.
        site.write_settings(settings.replace(f'python = "{site.interpreter}"', 'python = "/no/such/python"'))
        without = site.host("engine", "check", "slurm", "--try")
        assert without.returncode == 1 and "the machine has no /no/such/python" in without.stdout
        assert "Set `python` of the pool" in without.stdout
        site.write_settings('public_url = "http://127.0.0.1:9"\n' + settings)
        away = site.host("engine", "check", "slurm", "--try")
        assert away.returncode == 1 and "does not answer at http://127.0.0.1:9" in away.stdout
        site.write_settings(settings.replace('partition = "all"', 'partition = "closed"'))
        closed = site.host("engine", "check", "slurm", "--try", "--wait", "1")
        assert closed.returncode == 0, closed.stdout
        assert "the partition closed is down" in closed.stdout
        assert "the test job still waits after 1 s" in closed.stdout
    finally:
        site.write_settings(settings)
    # Nothing of a check stays behind.
    support.wait_until(lambda: not site.cluster.call("squeue", "-h").stdout, what="an empty queue")


def test_this_machine_is_a_pool_as_well_and_needs_no_account(site: Any, support: Any, tmp_path: Path) -> None:
    done = site.cli(support, "eve", "run", "--name", "here", "--pool", "local", "--command", "echo at home")
    assert done.exit_code == 0, done.output
    support.wait_until(
        lambda: phase(site, support, "eve", "here") in ("Completed", "Failed"), seconds=180, what="its end"
    )
    assert phase(site, support, "eve", "here") == "Completed"
    assert "at home" in site.cli(support, "eve", "logs", "here").stdout


def test_without_the_rule_a_job_waits_and_says_why(site: Any, support: Any, tmp_path: Path) -> None:
    rule = site.rule.read_text()
    site.rule.write_text("")
    try:
        assert submit(site, support, "ann", tmp_path, "early").exit_code == 0
        support.wait_until(
            lambda: "may not run sbatch as" in site.cli(support, "ann", "explain", "early").output,
            seconds=90,
            what="the reason",
        )
    finally:
        site.rule.write_text(rule)
    support.wait_until(
        lambda: phase(site, support, "ann", "early") in ("Completed", "Failed"), seconds=180, what="its end"
    )
    assert phase(site, support, "ann", "early") == "Completed"


def test_a_site_that_hides_jobs_needs_an_operator(site: Any, support: Any, tmp_path: Path) -> None:
    conf = site.cluster.folder / "slurm.conf"
    open_conf = conf.read_text()
    conf.write_text(open_conf + "PrivateData=jobs,usage\n")
    site.cluster.call("scontrol", "reconfigure")
    try:
        checked = site.host("engine", "check", "slurm")
        assert checked.returncode == 1, checked.stdout
        assert "Slurm hides users' jobs from the platform" in checked.stdout
        assert submit(site, support, "ann", tmp_path, "hidden").exit_code == 0
        support.wait_until(
            lambda: "Slurm hides users' jobs" in site.cli(support, "ann", "explain", "hidden").output,
            seconds=90,
            what="the reason",
        )
        # The very command that the hint gives.
        fix = re.search(r"operator: (sacctmgr .*)", checked.stdout)
        assert fix is not None
        site.cluster.call(*fix[1].split())
        support.wait_until(
            lambda: phase(site, support, "ann", "hidden") in ("Completed", "Failed"),
            seconds=180,
            what="its end",
        )
        assert phase(site, support, "ann", "hidden") == "Completed"
        assert site.host("engine", "check", "slurm").returncode == 0
    finally:
        conf.write_text(open_conf)
        site.cluster.call("scontrol", "reconfigure")


def test_a_stranger_s_job_of_the_same_name_is_not_ours(site: Any, support: Any, tmp_path: Path) -> None:
    from trainshed.model.pools import Pool

    # This process is root's, so that the other way to another account is tried as well: without sudo.
    pool = Pool(
        "lab", "slurm", "all", python=sys.executable, run_as="user", accounts={"ann": site.names["ann"]}
    )
    yard = slurm_yard.Yard(site.cluster, tmp_path, (pool,))
    name = f"trainshed-{yard.platform}-mine-1"
    spoof = f"#!/bin/sh\n#SBATCH --job-name={name} --chdir=/ --output=/dev/null\nsleep 300\n"
    taken = site.run_as("bob", "sbatch", "--parsable", input=spoof)
    assert taken.returncode == 0, taken.stderr
    # The place of the reports is root's alone: the start script of ann's job fails at once.
    launch = yard.submit("mine", owner="ann")
    seen = yard.until(launch, "lost")
    assert seen[0].report is None

    def owners() -> list[str]:
        told = site.cluster.call("squeue", "-h", "-t", "all", "-n", name, "-o", "%u %T").stdout
        return sorted(told.splitlines())

    expected = sorted([f"{site.names['bob']} RUNNING", f"{site.names['ann']} FAILED"])
    support.wait_until(lambda: owners() == expected, what="both owners' jobs")
    yard.engine.cancel("mine", 1, reason="not wanted")
    yard.engine.salvage("mine", 1)
    assert yard.engine.discard("mine", 1)
    # And it is not ours to cancel.
    states = site.cluster.call("squeue", "-h", "-u", site.names["bob"], "-o", "%T").stdout.split()
    assert states == ["RUNNING"]
    site.cluster.call("scancel", taken.stdout.strip())
    support.wait_until(lambda: not site.cluster.call("squeue", "-h").stdout, seconds=90, what="its end")


GUIDE = Path(__file__).resolve().parents[1] / "docs/slurm.md"


@pytest.mark.timeout(600)
def test_the_guide_works_as_it_is_written(site: Any, support: Any, tmp_path: Path) -> None:
    """Every command of the guide but those that make an account and install the package."""
    from trainshed.client.directory import sign_in

    chapter = GUIDE.read_text("utf-8").split("## From nothing to the first job")[1].split("\n## ")[0]
    blocks = re.findall(r"```sh\n(.*?)```", chapter, re.DOTALL)
    assert "useradd" in blocks[0] and len(blocks) == 7
    place = site.folder / "var"
    place.mkdir()
    os.chown(place, site.uid("service"), -1)
    port, obs_port = support.free_port(), support.free_port()
    conf, home = site.cluster.environment["SLURM_CONF"], place / "home"
    url = f"http://127.0.0.1:{port}"
    here = {
        'host = "10.0.0.5"': f'host = "127.0.0.1"\nport = {port}\nobs_port = {obs_port}',
        "http://10.0.0.5:7480": f"{url} --token $TOKEN",
        'partition = "a100"': f'partition = "all"\npython = "{site.interpreter}"',
        'alice = "al"': f'alice = "{site.names["ann"]}"',
        "/var/lib/trainshed": str(place),
        "/opt/trainshed/bin/trainshed": f"{site.python} -m trainshed.cli.main",
        "sudo -u trainshed TRAINSHED_HOME": f"sudo -u {site.names['service']} SLURM_CONF={conf} TRAINSHED_HOME",
        "sudo -u trainshed": f"sudo -u {site.names['service']}",
        "/etc/sudoers.d/trainshed": str(site.rule),
        "ts user add alice": "ts user add alice --password correct-horse-battery",
    }
    for old, new in here.items():
        assert old in chapter, old
        blocks = [block.replace(old, new) for block in blocks]
    before = site.rule.read_text()
    try:
        said = _run_script("\n".join(blocks[1:6]), tmp_path, {})
        assert "The cluster can be used." in said, said
        assert f"jobs of alice run as {site.names['ann']}" in said and "/login?code=" in said
        own = {
            "TOKEN": sign_in(url, "alice", "correct-horse-battery"),
            "TRAINSHED_HOME": str(tmp_path / "own"),
        }
        command = f'trainshed() {{ {sys.executable} -m trainshed.cli.main "$@"; }}\n'
        said = _run_script(command + blocks[6], tmp_path, own)
        assert all(f"rank {rank} of 2 on" in said for rank in (0, 1)), said
        assert "#SBATCH --nodes=2" in said and "Completed" in said
    finally:
        site.rule.write_text(before)
        site.host("down", environment={"TRAINSHED_HOME": str(home)})


def _run_script(script: str, folder: Path, variables: dict[str, str]) -> str:
    done = subprocess.run(
        ["bash", "-eu", "-c", script],
        cwd=folder,
        env={**{name: os.environ[name] for name in ("PATH", "HOME")}, **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_what_the_controller_forgot_is_asked_of_accounting(site: Any, tmp_path: Path) -> None:
    from trainshed.engines.engine import EXIT_NO_PYTHON
    from trainshed.model.flavor import Flavor
    from trainshed.model.pools import Pool

    pools = tuple(
        Pool(name, "slurm", partition, python=sys.executable)
        for name, partition in (("lab", "all"), ("urgent", "urgent"))
    )
    yard = slurm_yard.Yard(site.cluster, tmp_path, pools)
    whole = Flavor("cpu.8", "cpu", 0, 8, 0)
    yard.work = f"exit {EXIT_NO_PYTHON}"
    dead = yard.submit("dead")
    yard.until(dead, "lost")
    yard.work = "wait"
    low = yard.submit("low", 1, whole)
    yard.until(low, "alive")
    fallen = yard.submit("fallen", 1, whole)
    yard.until(fallen, "alive")
    cancelled = yard.submit("cancelled", 1, whole)
    yard.until(cancelled, "alive")
    number = site.cluster.call(
        "squeue", "-h", "-n", f"trainshed-{yard.platform}-cancelled-1", "-o", "%i"
    ).stdout.strip()
    host = site.cluster.call(
        "squeue", "-h", "-n", f"trainshed-{yard.platform}-fallen-1", "-o", "%N"
    ).stdout.strip()
    site.cluster.call("scancel", "-s", "KILL", "-f", number, check=False)
    site.cluster.call("scancel", number)
    site.cluster.call("scontrol", "update", f"nodename={host}", "state=down", "reason=broken")

    def ends() -> dict[str, str]:
        done = site.cluster.call(
            "sacct", "-n", "-P", "-X", "-S", "now-1hours", "-o", "JobName%200,State,ExitCode", check=False
        )
        rows = (line.split("|") for line in done.stdout.splitlines())
        return {row[0].rsplit("-", 2)[1]: row[1].split()[0] for row in rows if f"-{yard.platform}-" in row[0]}

    deadline = time.monotonic() + 120
    while ends() != {"dead": "FAILED", "low": "RUNNING", "fallen": "NODE_FAIL", "cancelled": "CANCELLED"}:
        assert time.monotonic() < deadline, ends()
        time.sleep(0.3)
    # It may have come back by itself.
    site.cluster.call("scontrol", "update", f"nodename={host}", "state=resume", check=False)
    yard.work = "done"
    high = yard.submit("high", 3, whole, pool="urgent")
    yard.until(high, "ended")
    deadline = time.monotonic() + 120
    while ends()["low"] != "PREEMPTED":
        assert time.monotonic() < deadline, ends()
        time.sleep(0.3)
    site.cluster.forget_all()
    assert not site.cluster.call("squeue", "-h", "-t", "all").stdout
    again = yard.open()
    codes = {}
    for name in ("dead", "low", "fallen", "cancelled"):
        again.salvage(name, 1)
        (seen,) = again.describe(name, 1, 1)
        assert seen.report is not None and seen.report.ending is not None
        codes[name] = seen.report.ending.code
    assert codes == {
        "dead": "no_python",
        "low": "preempted",
        "fallen": "node_failed",
        "cancelled": "ended_from_outside",
    }
    # Without slurmdbd nobody knows any more, and nothing breaks.
    site.cluster.kill("slurmdbd")
    lost = yard.open()
    (yard.home.jobs / "low/attempt-1/node-0/status.json").unlink()
    lost.salvage("low", 1)
    (seen,) = lost.describe("low", 1, 1)
    assert seen.report is not None and seen.report.ending.code == "runner_lost"


def test_a_first_start_tells_wrong_pools_and_makes_nothing(site: Any, tmp_path: Path) -> None:
    folder = site.folder / "second"
    folder.mkdir(mode=0o700)
    os.chown(folder, site.uid("service"), -1)
    settings = folder / "settings.toml"
    for text, said in (
        ('[pools.gpu]\nengine = "slurm"\npartition = "al"\n', "names the partition 'al'"),
        ('[pools.gpu]\npartition = "all"\n', "which engine"),
        ('[pools.gpu]\nengine = "slurm"\n[pools.gpu]\nengine = "local"\n', "twice"),
    ):
        settings.write_text(text)
        settings.chmod(0o644)
        done = site.run_as(
            *(
                "service",
                str(site.python),
                "-m",
                "trainshed.cli.main",
                "up",
                "--detach",
                "--home",
                str(folder),
            ),
            *("--port", "0", "--obs-port", "0"),
        )
        assert done.returncode != 0 and said in done.stderr, done.stdout + done.stderr
        assert os.listdir(folder) == ["settings.toml"]
