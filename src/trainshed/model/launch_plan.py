"""The launch plan: everything a runner needs to know to run one node of one attempt.

Plain dataclasses, so that a runner on a cluster node starts without any third-party package. A plan holds
no secret: their values travel in a file of their own, beside the plan.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

__all__ = [
    "CheckpointFolder",
    "Environment",
    "GeneratedFile",
    "InputFolder",
    "KeptFolder",
    "Limits",
    "LogObject",
    "NodeLaunch",
    "OutputFolder",
    "Peer",
    "ProcessPlan",
    "from_json",
    "learn_types",
    "to_json",
]

T = TypeVar("T")


@dataclass(frozen=True)
class InputFolder:
    """An input: an object or a folder of the store, and the path at which the job finds it.

    With `host_path`, it is that folder of the machine instead, and cannot be written to.
    """

    name: str
    bucket: str
    key: str
    path: str
    host_path: str = ""


@dataclass(frozen=True)
class OutputFolder:
    """An output: a folder of the job that is uploaded below a prefix of the store at the end."""

    name: str
    bucket: str
    prefix: str
    path: str


@dataclass(frozen=True)
class CheckpointFolder:
    """The folder in which a job keeps its checkpoints from attempt to attempt.

    With a bucket they lie where the job says, else in the job's own part of the archive.
    """

    path: str
    bucket: str = ""
    prefix: str = ""


@dataclass(frozen=True)
class KeptFolder:
    """A folder that outlives the job and that nodes and jobs share: a user's home, or a workspace's data.

    `owner` is the name of the user whose home it is; a workspace's data have none.
    """

    kind: Literal["home", "data"]
    owner: str
    path: str


@dataclass(frozen=True)
class LogObject:
    """A name below `log_url` under which a log of the node is exported, while the job runs and at its end."""

    stream: str
    name: str


@dataclass(frozen=True)
class Peer:
    """A node of the job as the others reach it: its address, and its host names, its own one first."""

    address: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class GeneratedFile:
    """A file that the platform writes for the job, at a path inside the sandbox."""

    path: str
    content: str
    mode: int = 0o644


@dataclass(frozen=True)
class ProcessPlan:
    """One process of the job: a rank."""

    rank: int
    local_rank: int
    arguments: tuple[str, ...]
    variables: dict[str, str]
    directory: str


@dataclass(frozen=True)
class Environment:
    """A Python environment: the interpreter's version and the exact packages, resolved at submit."""

    engine: str
    python: str
    packages: tuple[str, ...] = ()
    digest: str = ""


@dataclass(frozen=True)
class Limits:
    """What a node's sandbox may use; 0 is no limit."""

    memory_mb: int = 0
    cpus: float = 0
    processes: int = 0
    seconds: int = 0
    grace: int = 30
    # How long before the end of `seconds` the processes are warned, and by which signal; 0 is never.
    warn: int = 0
    warn_signal: str = "USR1"
    # After how long a silence of all nodes the job has failed.
    hang: int = 0
    # After how long a node that uses neither device nor processor says so; 0 is never.
    idle: int = 0
    # How long a node whose processes only sleep is held open for its users.
    hold: int = 0


@dataclass(frozen=True)
class NodeLaunch:
    """One node of one attempt of a job."""

    job_id: str
    job_name: str
    workspace_id: str
    attempt: int
    node_index: int
    node_count: int
    world_size: int
    # The code snapshot: a prefix in the store, and where it lies inside the sandbox.
    code_bucket: str
    code_prefix: str
    code_path: str
    processes: tuple[ProcessPlan, ...]
    environment: Environment
    inputs: tuple[InputFolder, ...] = ()
    outputs: tuple[OutputFolder, ...] = ()
    files: tuple[GeneratedFile, ...] = ()
    # Device indices of the machine that this node may use, and their kind.
    device_kind: Literal["cpu", "nvidia", "ascend"] = "cpu"
    devices: tuple[int, ...] = ()
    rehearsal: bool = False
    network: Literal["none", "platform", "open"] = "platform"
    limits: Limits = field(default_factory=Limits)
    # Where the log is exported to when the job names a destination, else empty.
    log_bucket: str = ""
    log_prefix: str = ""
    # What it is called there; where this is empty, every log by the names of job, attempt, node and rank.
    log_objects: tuple[LogObject, ...] = ()
    # Names of the variables whose values lie in the secrets file.
    secret_names: tuple[str, ...] = ()
    # All nodes of the job, in their order: this one is `peers[node_index]`.
    peers: tuple[Peer, ...] = ()
    # The first of the ports that belong to this job, and the one at which every node answers ssh (0: none).
    port_base: int = 0
    ssh_port: int = 0
    # Who the job's processes are, inside the sandbox.
    user: str = "trainshed"
    uid: int = 1000
    home: str = "/home/trainshed"
    # Empty folders of this node alone, and folders that are kept and shared.
    folders: tuple[str, ...] = ()
    kept: tuple[KeptFolder, ...] = ()
    # A folder that shows a link to every entry of the code folder, or empty.
    code_links: str = ""
    checkpoints: CheckpointFolder | None = None
    # Whether the job may write to /etc, /opt, /usr/local and /var, into a layer of its own.
    has_system_layer: bool = False


def to_json(value: Any) -> Any:
    """A dataclass as plain JSON data: as it is when it has been written and read again."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    names = _NAMES.get(kind)
    if names is not None:
        return {name: to_json(getattr(value, name)) for name in names}
    if isinstance(value, dict):
        return {name: to_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if dataclasses.is_dataclass(kind):
        _NAMES[kind] = tuple(item.name for item in dataclasses.fields(kind))
        return to_json(value)
    return value


def from_json(kind: type[T], data: Any) -> T:
    """Read back what `to_json` wrote. Fields that this version does not know are left out, missing ones
    take their default: a runner and a server of neighbouring versions understand each other."""
    read = _reader(kind)
    return typing.cast(T, data if read is None else read(data))


def learn_types(*kinds: Any) -> None:
    """Prepare to read these dataclasses, and all that they hold: done once, it is not done at the first read."""
    for kind in kinds:
        _reader(kind)


_PLAIN = frozenset({str, int, float, bool, type(None)})
_NAMES: dict[Any, tuple[str, ...]] = {}
# What reads a value of a type; None where it is taken as it is.
_READERS: dict[Any, Callable[[Any], Any] | None] = {}


def _reader(kind: Any) -> Callable[[Any], Any] | None:
    if kind not in _READERS:
        _READERS[kind] = _make_reader(kind)
    return _READERS[kind]


def _make_reader(kind: Any) -> Callable[[Any], Any] | None:
    if dataclasses.is_dataclass(kind):
        readers = {name: _reader(hint) for name, hint in typing.get_type_hints(kind).items()}

        def read_fields(data: Any) -> Any:
            return typing.cast(Any, kind)(
                **{
                    name: value if (read := readers[name]) is None else read(value)
                    for name, value in data.items()
                    if name in readers
                }
            )

        return read_fields
    origin, options = typing.get_origin(kind), typing.get_args(kind)
    if origin in (tuple, list):
        item = _reader(options[0])
        return origin if item is None else lambda data: origin([item(each) for each in data])
    if origin in (typing.Union, types.UnionType):
        some = _reader(next(option for option in options if option is not type(None)))
        return None if some is None else lambda data: None if data is None else some(data)
    return None
