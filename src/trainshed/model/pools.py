"""Pools: named groups of machines, each with the engine that runs jobs there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_network
from typing import Any, Literal

from trainshed.model.errors import InvalidInput, NotAllowed, NotFound, suggest
from trainshed.model.flavor import Flavor, Node, preset_flavors

__all__ = [
    "LOCAL_POOL",
    "Pool",
    "account_of",
    "default_pool",
    "find_pool",
    "flavors_of",
    "list_pools",
    "nodes_of",
    "pool_of",
    "read_pools",
]

LOCAL_POOL = "local"
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
# Names of partitions, accounts and the like end up in a batch script's header.
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._,@+-]{0,127}")
_ACCOUNT = re.compile(r"[A-Za-z_][A-Za-z0-9._-]{0,63}")
_ACCOUNT_OR_NONE = re.compile(f"({_ACCOUNT.pattern})?")
_OPTION = re.compile(r"--[a-z][a-z-]*(=[^\n]{1,512})?")
_FIELDS = (
    *("engine", "partition", "account", "qos", "options", "python"),
    *("run_as", "accounts", "account_group", "gres"),
    *("node_folder", "shared_folder", "addresses"),
)
# What the platform sets itself: by these it finds its jobs again and knows how they end.
_OWN_OPTIONS = frozenset(
    f"--{name}"
    for name in (
        *(
            "job-name",
            "nodes",
            "ntasks",
            "ntasks-per-node",
            "export",
            "requeue",
            "no-requeue",
            "array",
            "wrap",
        ),
        *(
            "parsable",
            "partition",
            "account",
            "qos",
            "dependency",
            "uid",
            "gid",
            "wait",
            "test-only",
            "cluster",
        ),
        *("clusters", "chdir", "cpus-per-task", "gres", "time", "het-group", "get-user-env", "export-file"),
    )
)


@dataclass(frozen=True)
class Pool:
    """A group of machines that jobs can name, and how jobs get there."""

    name: str
    engine: Literal["local", "slurm"] = "local"
    # Of Slurm: the partition (empty: the cluster's default one), the account and the quality of service to charge.
    partition: str = ""
    account: str = ""
    qos: str = ""
    # Further options of sbatch, as they would stand in a batch script.
    options: tuple[str, ...] = ()
    # The interpreter that starts runners on the machines.
    python: str = "python3"
    # As whom jobs are submitted: the platform's own account, or the owner's: by `accounts`, else by the same name.
    run_as: Literal["service", "user"] = "service"
    accounts: dict[str, str] = field(default_factory=dict)
    # The Unix group to which accounts of the same name must belong; empty: any ordinary account.
    account_group: str = ""
    # What the site calls the devices of each kind.
    gres: dict[str, str] = field(default_factory=lambda: {"nvidia": "gpu", "ascend": "npu"})
    # Where jobs and caches lie on each machine (empty: its TMPDIR), and a folder that all of them share, for what
    # jobs of some dialects keep from one to the next.
    node_folder: str = ""
    shared_folder: str = ""
    # The network on which nodes of a job meet, such as 10.1.0.0/16; empty: the one on their way to the platform.
    addresses: str = ""


def read_pools(tables: Any, where: str = "settings.toml") -> tuple[Pool, ...]:
    """The pools that a settings file names: [pools.NAME] with engine, partition and so on."""
    if not isinstance(tables, Mapping):
        raise InvalidInput(
            "The setting 'pools' is a table.",
            hint='Write [pools.my-name] and engine = "slurm".',
            where=where,
        )
    pools = tuple(_read_pool(str(name), table, f"{where}: pools.{name}") for name, table in tables.items())
    local = [pool.name for pool in pools if pool.engine == "local"]
    if len(local) > 1:
        raise InvalidInput(
            f"The pools {', '.join(local)} are all this machine.",
            hint="One pool of the engine local is enough.",
            where=where,
        )
    return pools


def list_pools(given: Iterable[Pool], engine: str = "local") -> tuple[Pool, ...]:
    """All pools there are: the given ones, and the one that the default engine brings along."""
    pools = tuple(given)
    if any(pool.engine == engine for pool in pools):
        return pools
    own = Pool(LOCAL_POOL) if engine == "local" else Pool("slurm", "slurm", run_as="user")
    return (own, *pools)


def default_pool(pools: Iterable[Pool]) -> Pool:
    """The pool of jobs that name none: this machine where it takes jobs, else the first one."""
    pools = tuple(pools) or (Pool(LOCAL_POOL),)
    return next((pool for pool in pools if pool.engine == "local"), pools[0])


def find_pool(name: str, pools: Iterable[Pool]) -> Pool:
    """The pool of that name, or the default one for no name; an unknown one is refused with the closest name."""
    pools = tuple(pools)
    if not name:
        return default_pool(pools)
    table = {pool.name: pool for pool in pools}
    if name not in table:
        raise NotFound(
            f"There is no pool '{name[:80]}'.",
            hint=f"{suggest(name, table)} `trainshed nodes` shows the machines of each.",
            code="unknown_pool",
            where="pool",
        )
    return table[name]


def pool_of(spec: Mapping[str, Any], pools: Iterable[Pool]) -> Pool | None:
    """The pool of a job that was accepted before; None when the pool is gone from the settings."""
    try:
        return find_pool(str(spec.get("pool", "")), pools)
    except NotFound:
        return None


def account_of(pool: Pool, owner: str) -> str:
    """The name of the Unix account under which a user's jobs run in a pool; empty is the platform's own.

    Only the settings are asked: whether there is such an account, and whether it may be used, is another question.
    """
    if pool.run_as == "service":
        return ""
    account = pool.accounts.get(owner, owner)
    if not _ACCOUNT.fullmatch(account) or account == "root":
        raise NotAllowed(
            f"The user '{owner}' has no Unix account in the pool '{pool.name}'.",
            hint=f'Ask the administrator to add it to [pools.{pool.name}]: accounts = {{ {owner} = "…" }}.',
            code="no_account",
            where="pool",
        )
    return account


def nodes_of(pool: Pool, nodes: Iterable[Node]) -> list[Node]:
    """The machines of a pool."""
    if pool.engine == "local":
        return [node for node in nodes if node.engine == "local"]
    return [node for node in nodes if node.engine == pool.engine and node.pool == pool.name]


def flavors_of(pool: Pool, nodes: Iterable[Node]) -> list[Flavor]:
    """The flavors that the machines of a pool can serve."""
    return preset_flavors(nodes_of(pool, nodes))


def _read_pool(name: str, table: Any, where: str) -> Pool:
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f"'{name[:80]}' is not a pool's name.",
            hint="Use lower-case letters, digits, '.', '_' and '-'.",
            where=where,
        )
    if not isinstance(table, Mapping):
        raise InvalidInput("A pool is a table.", hint='Write engine = "slurm" below it.', where=where)
    for label in table:
        if label not in _FIELDS:
            raise InvalidInput(
                f"A pool has no field '{label}'.", hint=suggest(str(label), _FIELDS), where=where
            )
    if "engine" not in table:
        raise InvalidInput(
            f"The pool '{name}' does not say which engine runs its jobs.",
            hint='Write engine = "slurm" (a cluster) or engine = "local" (this machine) below it.',
            where=where,
        )
    engine = str(table["engine"])
    if engine not in ("local", "slurm"):
        raise InvalidInput(
            f"There is no engine '{engine[:40]}' for a pool.", hint="Use local or slurm.", where=where
        )
    if name in ("local", "slurm") and name != engine:
        raise InvalidInput(
            f"A pool named '{name}' cannot be one of the engine {engine}: that name is taken.",
            hint="Give it another name.",
            where=where,
        )
    run_as = str(table.get("run_as", "user"))
    if run_as not in ("service", "user"):
        raise InvalidInput(
            f"run_as is 'user' or 'service', not '{run_as[:40]}'.",
            hint="user: each job under its owner's Unix account; service: all jobs under the platform's own.",
            where=where,
        )
    gres = {"nvidia": "gpu", "ascend": "npu", **_read_words(table.get("gres", {}), "gres", where)}
    if set(gres) != {"nvidia", "ascend"}:
        raise InvalidInput("gres names the devices nvidia and ascend.", where=where)
    accounts = _read_words(table.get("accounts", {}), "accounts", where, _ACCOUNT_OR_NONE)
    if "root" in accounts.values():
        raise InvalidInput("No job may run as root.", hint="Give every user an own account.", where=where)
    return Pool(
        name,
        "local" if engine == "local" else "slurm",
        partition=_read_word(table.get("partition", "" if engine == "local" else name), "partition", where),
        account=_read_word(table.get("account", ""), "account", where),
        qos=_read_word(table.get("qos", ""), "qos", where),
        options=_read_options(table.get("options", ()), where),
        python=_read_program(table.get("python", "python3"), where),
        run_as="user" if run_as == "user" else "service",
        accounts=accounts,
        account_group=_read_word(table.get("account_group", ""), "account_group", where),
        node_folder=_read_folder(table.get("node_folder", ""), "node_folder", where),
        shared_folder=_read_folder(table.get("shared_folder", ""), "shared_folder", where),
        addresses=_read_network(table.get("addresses", ""), where),
        gres=gres,
    )


def _read_word(value: Any, label: str, where: str) -> str:
    if value == "" or (isinstance(value, str) and _WORD.fullmatch(value)):
        return str(value)
    raise InvalidInput(f"{label} is a name, not '{str(value)[:80]}'.", where=where)


def _read_words(value: Any, label: str, where: str, pattern: re.Pattern[str] = _WORD) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise InvalidInput(
            f"{label} is a table of names.", hint=f'Write {label} = {{ alice = "al" }}.', where=where
        )
    for word in value.values():
        if not isinstance(word, str) or not pattern.fullmatch(word):
            raise InvalidInput(f"{label}: '{str(word)[:80]}' is not a usable name.", where=where)
    return {str(key): str(word) for key, word in value.items()}


def _read_options(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise InvalidInput("options are a list.", hint='Write options = ["--constraint=fast"].', where=where)
    for option in value:
        if not isinstance(option, str) or not _OPTION.fullmatch(option):
            raise InvalidInput(
                f"'{str(option)[:80]}' is not an option of sbatch.", hint="Write --name=value.", where=where
            )
        if option.partition("=")[0] in _OWN_OPTIONS:
            raise InvalidInput(
                f"The platform sets {option.partition('=')[0]} itself.",
                hint="Use the pool's own field where there is one: partition, account, qos.",
                where=where,
            )
    return tuple(value)


def _read_folder(value: Any, label: str, where: str) -> str:
    if value == "" or (isinstance(value, str) and re.fullmatch(r"/[A-Za-z0-9_./+@-]{1,1023}", value)):
        return str(value).rstrip("/")
    raise InvalidInput(
        f"{label} is the path of a folder of the machines, not '{str(value)[:80]}'.",
        hint=f'Write {label} = "/scratch/trainshed": letters, digits and _ . / + @ -.',
        where=where,
    )


def _read_network(value: Any, where: str) -> str:
    try:
        return str(ip_network(value)) if value != "" else ""
    except ValueError:
        raise InvalidInput(
            f"addresses is a network, not '{str(value)[:80]}'.",
            hint='Write addresses = "10.1.0.0/16": where nodes of a job meet.',
            where=where,
        ) from None


def _read_program(value: Any, where: str) -> str:
    text = str(value)
    if not re.fullmatch(r"[A-Za-z0-9_./+-]{1,256}", text):
        raise InvalidInput(f"'{text[:80]}' is not the path of an interpreter.", where=where)
    return text
