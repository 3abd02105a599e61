"""What the client returns: plain frozen data, as the API sends it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar

from trainshed.model.errors import Unavailable
from trainshed.model.launch_plan import from_json
from trainshed.model.phase import Phase

__all__ = [
    "AccessKey",
    "Attempt",
    "Credentials",
    "Endpoints",
    "Engine",
    "Event",
    "Explanation",
    "FlavorOffer",
    "Identity",
    "Job",
    "KeyPair",
    "LeftFile",
    "LogStreamInfo",
    "Member",
    "MetricPoint",
    "MetricSeries",
    "NewToken",
    "NodeOffer",
    "NotificationTarget",
    "OpenTool",
    "SshAccess",
    "SshKey",
    "Token",
    "User",
    "Workspace",
    "read_result",
]

T = TypeVar("T")


def read_result(kind: type[T], data: Any) -> T:
    """An answer of the API as a result. Fields that a newer platform sends besides are left out."""
    try:
        return from_json(kind, data)
    except (TypeError, AttributeError, KeyError):
        raise Unavailable(
            "The platform's answer cannot be understood.",
            hint="Check that the client is as new as the platform (`trainshed --version`).",
            code="bad_answer",
            where=kind.__name__,
        ) from None


@dataclass(frozen=True)
class Job:
    """A job, as it is at one moment."""

    id: str
    name: str
    phase: str
    detail: str = ""
    owner: str = ""
    workspace_id: str = ""
    flavor: str = ""
    nodes: int = 1
    priority: int = 0
    spec: dict[str, Any] = field(default_factory=dict)
    created_at: float = 0.0
    queued_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    attempt: int = 0
    environment: dict[str, Any] | None = None
    preemptible: bool = False
    restarts: int = 0
    stop_requested: bool = False
    stop_reason: str = ""
    version: int = 0
    # How it ended (outcome, cause, code, message, hint, rank, exit_code), once it has.
    ending: dict[str, Any] | None = None
    # Why it waits (reason, hint, position, ahead, starts_by), while it does.
    wait: dict[str, Any] | None = None
    rehearsal: bool = False

    @property
    def is_ended(self) -> bool:
        """Whether the job has ended for good."""
        return Phase(self.phase).is_terminal

    @property
    def succeeded(self) -> bool:
        """Whether the job has ended well."""
        return self.phase == Phase.COMPLETED

    @property
    def seconds(self) -> float | None:
        """How long it ran, if it has started and ended."""
        if self.started_at is None or self.ended_at is None:
            return None
        return max(0.0, self.ended_at - self.started_at)


@dataclass(frozen=True)
class Explanation:
    """Why a job waits, or how it ended, and the next step."""

    summary: str
    phase: str = ""
    detail: str = ""
    facts: tuple[str, ...] = ()
    hint: str = ""
    answer: dict[str, Any] = field(default_factory=dict)
    # The end of the log that tells why a job failed, and which log that is.
    last_lines: tuple[str, ...] = ()
    stream: str = ""


@dataclass(frozen=True)
class Event:
    """One event of a job's story."""

    id: int
    time: float
    level: str
    source: str
    message: str


@dataclass(frozen=True)
class Attempt:
    """One start of a job."""

    attempt: int
    state: str
    engine: str = ""
    created_at: float = 0.0
    started_at: float | None = None
    ended_at: float | None = None
    placements: tuple[dict[str, Any], ...] = ()
    reports: tuple[dict[str, Any], ...] = ()
    ending: dict[str, Any] | None = None


@dataclass(frozen=True)
class LogStreamInfo:
    """One log of an attempt: `platform`, `rank-0`, `rank-1` …"""

    stream: str
    attempt: int
    size: int = 0
    ended: bool = False
    reason: str = ""


@dataclass(frozen=True)
class LeftFile:
    """A file that a job left in its working folders."""

    path: str
    size: int = 0
    attempt: int = 0
    node: int = 0


@dataclass(frozen=True)
class OpenTool:
    """A link that opens a tool of a job once, in a browser."""

    url: str
    shows: tuple[str, ...] = ()
    has_events: bool = False


@dataclass(frozen=True)
class MetricPoint:
    """One value of a metric."""

    time: float
    value: float
    step: int | None = None
    epoch: float | None = None
    rank: int = 0


@dataclass(frozen=True)
class MetricSeries:
    """All points of one metric of a job."""

    name: str
    points: tuple[MetricPoint, ...] = ()
    # Of how many points in all these are a selection.
    count: int = 0


@dataclass(frozen=True)
class FlavorOffer:
    """What a node of a job can get."""

    name: str
    kind: str
    devices: int
    cpus: float
    memory_mb: int
    description: str = ""
    # Of which pool: the same name may mean more elsewhere.
    pool: str = ""


@dataclass(frozen=True)
class Engine:
    """A preset environment."""

    name: str
    python: str = ""
    packages: tuple[str, ...] = ()
    description: str = ""


@dataclass(frozen=True)
class NodeOffer:
    """A machine that runs jobs."""

    name: str
    pool: str
    cpus: float
    memory_mb: int
    devices: tuple[dict[str, Any], ...] = ()
    engine: str = ""
    state: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Identity:
    """Who the caller is."""

    user_id: str
    user_name: str
    is_admin: bool
    workspace_id: str
    workspace: str = ""
    role: str = ""
    scopes: tuple[str, ...] = ()
    job_id: str = ""


@dataclass(frozen=True)
class Endpoints:
    """Where the platform answers."""

    url: str
    obs_url: str
    project_id: str = ""


@dataclass(frozen=True)
class AccessKey:
    """An access key without its secret half."""

    access_key: str
    name: str
    created_at: float = 0.0


@dataclass(frozen=True)
class NotificationTarget:
    """A place where you are told about jobs. `secret` is only there right after it was added."""

    id: str
    kind: str
    address: str
    covers: str
    owner: str
    events: list[str]
    created_at: float
    last_event: str = ""
    last_state: str = ""
    last_error: str = ""
    secret: str = ""


@dataclass(frozen=True)
class SshKey:
    """A public key that opens your jobs."""

    fingerprint: str
    name: str
    key: str
    created_at: float = 0.0


@dataclass(frozen=True)
class SshAccess:
    """What an ssh client needs to enter a node of a job."""

    job_id: str
    job_name: str
    node: int
    nodes: int
    user: str
    host_key: str
    certificate: str = ""


@dataclass(frozen=True)
class KeyPair:
    """An access key that was just made."""

    access_key: str
    secret_key: str = field(repr=False)


@dataclass(frozen=True)
class Credentials:
    """All that a tool needs to speak to the platform directly. The secrets stay out of its representation."""

    url: str
    obs_url: str
    project_id: str
    user_name: str = ""
    access_key: str = ""
    token: str = field(default="", repr=False)
    secret_key: str = field(default="", repr=False)


@dataclass(frozen=True)
class Token:
    """A token without its secret part."""

    id: str
    name: str
    scopes: tuple[str, ...] = ()
    created_at: float = 0.0
    expires_at: float | None = None


@dataclass(frozen=True)
class NewToken:
    """A token that was just made: the only time that its text is shown."""

    id: str
    name: str
    token: str = field(repr=False)
    scopes: tuple[str, ...] = ()
    expires_at: float | None = None


@dataclass(frozen=True)
class User:
    """A user of the platform."""

    id: str
    name: str
    is_admin: bool = False
    created_at: float = 0.0
    disabled: bool = False


@dataclass(frozen=True)
class Workspace:
    """A workspace: whose members share jobs and buckets. Its id is the project_id of the cloud APIs."""

    id: str
    name: str
    created_at: float = 0.0
    role: str = ""


@dataclass(frozen=True)
class Member:
    """A member of a workspace."""

    user_id: str
    user_name: str
    role: str
