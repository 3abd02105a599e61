"""As whom jobs of the cluster run: which account is whose, and whether sudo lets the platform submit as it."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from trainshed.daemon.doctor import Finding
from trainshed.engines.slurm.accounts import find_account, own_account
from trainshed.engines.slurm.commands import Commands
from trainshed.engines.slurm.sight import require_sight
from trainshed.engines.slurm.sudo_rule import SECRET_VARIABLES, render_sudo_rule, takes_expressions
from trainshed.model.errors import InvalidInput, NotAllowed, TrainshedError
from trainshed.model.home import Home
from trainshed.model.pools import Pool
from trainshed.model.settings import Settings

__all__ = [
    "KnownAccounts",
    "examine_accounts",
    "know_accounts",
    "list_user_names",
    "owner_of",
    "require_owner",
    "sudo_rule_of",
]

_RULE = (
    "`trainshed engine sudoers` prints the rule; put it into /etc/sudoers.d/trainshed (as root, mode 0440)."
)
_SECONDS = 10


@dataclass(frozen=True)
class KnownAccounts:
    """The accounts of a pool's users, as far as they are known now."""

    # Account -> the users whose jobs run under it; the platform's own is empty.
    users: dict[str, list[str]]
    # Users whose jobs are refused, and why.
    refused: dict[str, NotAllowed]


def list_user_names(home: Home, settings: Settings) -> list[str]:
    """The names of the platform's users; none before its first start."""
    from trainshed.db.engine import open_engine, read
    from trainshed.db.users import list_users

    if not settings.database_url and not (home.path / "trainshed.sqlite").exists():
        return []
    engine = open_engine(settings.database_url or home.database_url)
    try:
        with read(engine) as connection:
            return [user.name for user in list_users(connection) if user.disabled_at is None]
    finally:
        engine.dispose()


def owner_of(home: Home) -> str:
    """The account whose platform it is: the owner of its home, or whoever is about to make that."""
    try:
        return pwd.getpwuid(home.path.stat().st_uid).pw_name
    except (FileNotFoundError, KeyError):
        return own_account()


def require_owner(home: Home) -> None:
    """Refuse to judge a platform as another account: that one's rights say nothing."""
    owner = owner_of(home)
    if owner != own_account():
        raise NotAllowed(
            f"{home.path} is {owner}'s: only as {owner} can be seen what that account may do.",
            hint=f"sudo -u {owner} trainshed engine check slurm --home {home.path}",
            code="not_the_owner",
        )


def know_accounts(pool: Pool, names: Iterable[str]) -> KnownAccounts:
    """Whose jobs run under which account in a pool, for these users and those whom the settings name."""
    if pool.run_as == "service":
        return KnownAccounts({"": sorted(names)}, {})
    users: dict[str, list[str]] = {}
    refused: dict[str, NotAllowed] = {}
    for name in sorted({*names, *pool.accounts}):
        try:
            users.setdefault(find_account(pool, name), []).append(name)
        except NotAllowed as fault:
            refused[name] = fault
    return KnownAccounts(users, refused)


def sudo_rule_of(settings: Settings, names: Iterable[str], service: str) -> str:
    """The file for /etc/sudoers.d with which the account `service` submits for these pools and users."""
    commands = Commands()
    pools = _personal(settings)
    if not pools:
        raise InvalidInput(
            "No pool runs jobs under its users' accounts, so no rule is needed.",
            hint="Give the pool run_as = 'user' (the default).",
            code="no_sudo_rule_needed",
        )
    names = tuple(names)
    # With a group, accounts of the same name are allowed by it; those that the settings name stand by themselves.
    accounts = {
        account
        for pool in pools
        for account in know_accounts(pool, () if pool.account_group else names).users
        if account != service
    }
    return render_sudo_rule(
        service,
        accounts,
        {pool.account_group for pool in pools if pool.account_group},
        sbatch=commands.find("sbatch") or "/usr/bin/sbatch",
        scancel=commands.find("scancel") or "/usr/bin/scancel",
        configuration=os.environ.get("SLURM_CONF", ""),
        expressions=takes_expressions(_ask_sudo(commands, "-V")),
    )


def examine_accounts(commands: Commands, pool: Pool, names: Iterable[str]) -> Iterator[Finding]:
    """Under which accounts the jobs of a pool run, and whether the platform may submit as them."""
    subject = f"pool {pool.name}"
    if pool.run_as == "service":
        message = f"all users' jobs run as the one account '{own_account()}' (run_as = 'service')"
        fix = (
            "Know what it means: Slurm sees one user, its limits and accounting count all of them together, and only "
            "the sandbox keeps jobs apart. With run_as = 'user' each user's jobs run under an account of their own."
        )
        yield Finding("warn", subject, message, fix)
        return
    known = know_accounts(pool, names)
    for name, fault in known.refused.items():
        yield Finding("warn", subject, f"jobs of {name} are refused: {fault.message}", fault.hint)
    for account, users in known.users.items():
        yield Finding("ok", subject, f"jobs of {', '.join(users)} run as {account}")
        if len(users) > 1:
            fix = "Whoever has the account can read what runs under it: give each user one of their own."
            yield Finding("warn", subject, f"{', '.join(users)} share the account {account}", fix)
    if not known.users:
        fix = "Fill in `accounts` of the pool, or give the platform users with the names of Unix accounts."
        yield Finding("bad", subject, "no user of the platform has a Unix account", fix)
    try:
        require_sight(commands)
    except TrainshedError as blind:
        yield Finding("bad", subject, blind.message, blind.hint)
    if os.geteuid() == 0:
        yield Finding("ok", subject, "the platform is root's: it submits as its users without sudo")
        return
    yield from _examine_sudo(commands, subject, known.users)


def _examine_sudo(commands: Commands, subject: str, accounts: Iterable[str]) -> Iterator[Finding]:
    if commands.find("sudo") is None:
        yield Finding("bad", subject, "sudo is not installed", "Install sudo. " + _RULE)
        return
    sbatch, scancel = commands.find("sbatch") or "sbatch", commands.find("scancel") or "scancel"
    rules = _ask_sudo(commands, "-n", "-l")
    for account in accounts:
        for line in ((sbatch, "--parsable"), (scancel, "--name=trainshed-0-check-1", "1")):
            if not _ask_sudo(commands, "-n", "-l", "-u", account, "--", *line):
                words = f"sudo does not let the platform run {' '.join(line)} as {account}"
                yield Finding("bad", subject, words, _RULE)
                break
        else:
            lost = [name for name in SECRET_VARIABLES if name not in rules]
            if lost:
                yield Finding("bad", subject, f"sudo does not let {', '.join(lost)} pass to sbatch", _RULE)
            else:
                yield Finding("ok", subject, f"sudo lets the platform submit and cancel as {account}")


def _ask_sudo(commands: Commands, *options: str) -> str:
    """What sudo answers; empty when it refuses or is not there."""
    program = commands.find("sudo")
    if program is None:
        return ""
    try:
        done = subprocess.run(
            [program, *options],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            stdin=subprocess.DEVNULL,
            cwd="/",
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def _personal(settings: Settings) -> list[Pool]:
    return [pool for pool in settings.all_pools if pool.engine == "slurm" and pool.run_as == "user"]
