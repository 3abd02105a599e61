"""Unix accounts under which jobs are submitted: which one is a user's, and whether it may be used."""

from __future__ import annotations

import grp
import os
import pwd
import re
from pathlib import Path

from trainshed.model.errors import NotAllowed
from trainshed.model.pools import Pool, account_of

__all__ = ["find_account", "first_ordinary_uid", "own_account"]

_LOGIN_DEFAULTS = Path("/etc/login.defs")
_FIRST_UID = 1000
# nobody, and what some systems call by that number in 16 bits.
_NOBODY = (65534, 65535, 2**32 - 2)


def find_account(pool: Pool, owner: str) -> str:
    """The Unix account under which a user's jobs run in a pool; empty is the platform's own.

    Refused are users without an account, and accounts that belong to no person: root, those of the system, and the
    platform's own, which could read everybody's data.
    """
    name = account_of(pool, owner)
    if not name:
        return ""
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise _refuse(
            f"The user '{owner}' has no Unix account in the pool '{pool.name}': this machine knows no '{name}'.",
            f"Ask the administrator to make the account '{name}', to name another one in accounts of "
            f'[pools.{pool.name}], or to choose one account for all (run_as = "service").',
        ) from None
    if entry.pw_uid == os.geteuid() and entry.pw_uid != 0:
        raise _refuse(
            f"The account '{name}' is the platform's own: no user's job may run under it.",
            f"Name another account in accounts of [pools.{pool.name}], or let all jobs run under the platform's own "
            'account (run_as = "service").',
        )
    if entry.pw_uid < first_ordinary_uid() or entry.pw_uid in _NOBODY:
        raise _refuse(
            f"The account '{name}' (uid {entry.pw_uid}) belongs to the system: no job may run under it.",
            f"Name a person's account in accounts of [pools.{pool.name}].",
        )
    if pool.account_group and name != pool.accounts.get(owner) and not _is_member(entry, pool.account_group):
        raise _refuse(
            f"The account '{name}' is not in the Unix group '{pool.account_group}', whose members may run jobs.",
            f"Ask the administrator: usermod -aG {pool.account_group} {name}",
        )
    return name


def own_account() -> str:
    """The name of the account under which this process runs."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def first_ordinary_uid(path: Path = _LOGIN_DEFAULTS) -> int:
    """The lowest number of an account that belongs to a person on this machine."""
    try:
        found = re.search(r"^\s*UID_MIN\s+(\d+)", path.read_text("utf-8", "replace"), re.MULTILINE)
    except OSError:
        return _FIRST_UID
    # A file that says 0 must not open the door to root.
    return max(1, int(found[1])) if found else _FIRST_UID


def _is_member(entry: pwd.struct_passwd, group: str) -> bool:
    try:
        number = grp.getgrnam(group).gr_gid
    except KeyError:
        return False
    return number in os.getgrouplist(entry.pw_name, entry.pw_gid)


def _refuse(message: str, hint: str) -> NotAllowed:
    return NotAllowed(message, hint=hint, code="no_account", where="pool")
