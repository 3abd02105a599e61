"""The queue policy: which waiting jobs start now, where, and why the others wait.

One pure function on plain data. The control loop acts on its answer and `explain` shows it, so what users
are told is what happens. Order: priority, then age. All nodes of a job start together or not at all (gang).
A smaller job may overtake one that does not fit, until that one has waited for `patience` seconds: from then
on nothing behind it starts on the machines it could use, so that large jobs do not starve. The same holds for a job
for which others have to leave: those that may be preempted, of a lower priority, the lowest and youngest first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from trainshed.model.flavor import Flavor, Node
from trainshed.model.size import count_cores

__all__ = [
    "Admission",
    "Held",
    "Placement",
    "QueuePlan",
    "Request",
    "Wait",
    "choose_victims",
    "could_ever_fit",
    "plan_queue",
]

PATIENCE_SECONDS = 600.0
# For more waiting jobs at once nobody is asked to leave: the next pass looks again.
_MOST_CONSIDERED = 50


@dataclass(frozen=True)
class Request:
    """A waiting job, as the queue sees it."""

    job_id: str
    name: str
    priority: int
    queued_at: float
    nodes: int
    flavor: Flavor
    # Others are leaving to make room for it.
    has_claim: bool = False


@dataclass(frozen=True)
class Placement:
    """What one node of a job gets of a machine."""

    node: str
    devices: tuple[int, ...]
    cpus: float
    memory_mb: int
    # How the other nodes reach it, where that is not the job's own loopback network.
    address: str = ""
    # The addresses of its devices on their own network, where they have one.
    device_addresses: tuple[str, ...] = ()
    # The first port of the block that the job has on the machine's network; 0 where it has a network of its own.
    ports: int = 0


@dataclass(frozen=True)
class Held:
    """A job that holds devices now. `ends_by` is when its time limit ends it, if it has one."""

    job_id: str
    name: str
    kind: str
    placements: tuple[Placement, ...]
    ends_by: float | None = None
    priority: int = 0
    started_at: float = 0.0
    is_preemptible: bool = False
    # It has been asked to stop, for whatever reason.
    is_leaving: bool = False


@dataclass(frozen=True)
class Admission:
    """This job starts now, with one placement per node."""

    job_id: str
    placements: tuple[Placement, ...]


@dataclass(frozen=True)
class Wait:
    """This job waits: why, who is ahead of it, and when it may start at the latest, if that is known."""

    job_id: str
    reason: str
    hint: str = ""
    position: int = 0
    ahead: tuple[str, ...] = ()
    starts_by: float | None = None
    impossible: bool = False


@dataclass(frozen=True)
class QueuePlan:
    """The policy's answer for one moment."""

    admissions: tuple[Admission, ...]
    waits: tuple[Wait, ...]


@dataclass
class _Free:
    """What is left of a machine while the plan is made."""

    node: Node
    cpus: float
    memory_mb: int
    devices: dict[str, list[int]] = field(default_factory=dict)

    @classmethod
    def all_of(cls, node: Node) -> _Free:
        devices: dict[str, list[int]] = {}
        for device in node.devices:
            devices.setdefault(device.kind, []).append(device.index)
        return cls(node, node.cpus, node.memory_mb, devices)

    def fits(self, flavor: Flavor) -> bool:
        # Cores are compared with a grain of salt: they come from divisions such as 64 / 6.
        return (
            len(self.devices.get(flavor.kind, ())) >= flavor.devices
            and self.cpus + 1e-6 >= flavor.cpus
            and self.memory_mb >= flavor.memory_mb
        )

    def take(self, flavor: Flavor) -> Placement:
        chosen = tuple(sorted(self.devices.get(flavor.kind, ()))[: flavor.devices])
        self._use(flavor.kind, chosen, flavor.cpus, flavor.memory_mb)
        return Placement(self.node.name, chosen, flavor.cpus, flavor.memory_mb)

    def hold(self, kind: str, placement: Placement) -> None:
        self._use(kind, placement.devices, placement.cpus, placement.memory_mb)

    def release(self, kind: str, placement: Placement) -> None:
        free = self.devices.setdefault(kind, [])
        free.extend(index for index in placement.devices if index not in free)
        self.cpus += placement.cpus
        self.memory_mb += placement.memory_mb

    def _use(self, kind: str, devices: tuple[int, ...], cpus: float, memory_mb: int) -> None:
        if devices:
            self.devices[kind] = [index for index in self.devices.get(kind, ()) if index not in devices]
        self.cpus -= cpus
        self.memory_mb -= memory_mb

    def copy(self) -> _Free:
        return _Free(
            self.node, self.cpus, self.memory_mb, {kind: list(left) for kind, left in self.devices.items()}
        )


def plan_queue(
    waiting: Iterable[Request],
    held: Sequence[Held],
    nodes: Sequence[Node],
    now: float,
    patience: float = PATIENCE_SECONDS,
    *,
    explain: bool = True,
    only: str = "",
) -> QueuePlan:
    """Decide for every waiting job whether it starts now, and say why if it does not.

    Who needs only the admissions turns `explain` off, and who asks for one job names it in `only`: reasons cost far
    more than the decision.
    """
    machines = _machines(nodes, held)
    admissions: list[Admission] = []
    waits: list[Wait] = []
    position = 0
    reserved: dict[str, Request] = {}
    order = sorted(waiting, key=lambda request: (-request.priority, request.queued_at, request.job_id))
    # Who stands before a job in the queue, kept short: an answer for people, not a second queue.
    ahead: list[str] = []
    # What is free only shrinks while the plan is made: what did not fit once does not fit later.
    refused: set[tuple[int, Flavor]] = set()
    for request in order:
        shape = (request.nodes, request.flavor)
        if shape not in refused:
            usable = [free for name, free in machines.items() if name not in reserved]
            placements = _place(request, usable)
            if placements is not None:
                admissions.append(Admission(request.job_id, placements))
                continue
            refused.add(shape)
        if explain:
            position += 1
            if not only or request.job_id == only:
                wait = _explain(request, machines, reserved, held, nodes)
                waits.append(replace(wait, position=position, ahead=tuple(ahead[:10])))
            ahead.append(request.name)
        has_claim = request.has_claim or now - request.queued_at >= patience
        if has_claim and could_ever_fit(request.nodes, request.flavor, nodes):
            for name, free in machines.items():
                if _Free.all_of(free.node).fits(request.flavor):
                    reserved.setdefault(name, request)
    return QueuePlan(tuple(admissions), tuple(waits))


def choose_victims(
    waiting: Iterable[Request], held: Sequence[Held], nodes: Sequence[Node]
) -> list[tuple[Held, Request]]:
    """Who has to leave so that jobs of a higher priority can start, and for whom each of them does.

    Nobody leaves in vain: only if the job then fits, with those who are leaving already and with as few as possible.
    """
    offers = [job for job in held if job.is_preemptible and not job.is_leaving]
    # The lowest priority first; of two equal ones the one that loses less.
    offers.sort(key=lambda job: (job.priority, -job.started_at))
    if not offers:
        return []
    stays = [job for job in held if not job.is_leaving]
    chosen: list[tuple[Held, Request]] = []
    machines = _machines(nodes, stays)
    order = sorted(waiting, key=lambda item: (-item.priority, item.queued_at, item.job_id))
    for request in order[:_MOST_CONSIDERED]:
        if request.priority <= offers[0].priority:
            break
        gone = [job for job, _ in chosen]
        able = [job for job in offers if job.priority < request.priority and job not in gone]
        victims = _fewest(request, machines, able)
        if victims is None:
            continue
        chosen += [(job, request) for job in victims]
        _release(machines, victims)
        _place(request, list(machines.values()))
    return chosen


def _fewest(request: Request, machines: dict[str, _Free], offers: Sequence[Held]) -> list[Held] | None:
    """Those of the offers without whom the job does not fit; None where it does not fit even without all of them."""

    def fits_without(victims: Sequence[Held]) -> bool:
        trial = {name: free.copy() for name, free in machines.items()}
        _release(trial, victims)
        return _place(request, list(trial.values())) is not None

    victims: list[Held] = []
    for job in (None, *offers):
        victims += [job] if job is not None else []
        if fits_without(victims):
            break
    else:
        return None
    for job in list(victims):
        fewer = [other for other in victims if other is not job]
        if fits_without(fewer):
            victims = fewer
    return victims


def _machines(nodes: Sequence[Node], held: Sequence[Held]) -> dict[str, _Free]:
    machines = {node.name: _Free.all_of(node) for node in nodes if node.state == "ready"}
    for job in held:
        for placement in job.placements:
            if placement.node in machines:
                machines[placement.node].hold(job.kind, placement)
    return machines


def _release(machines: dict[str, _Free], jobs: Sequence[Held]) -> None:
    for job in jobs:
        for placement in job.placements:
            if placement.node in machines:
                machines[placement.node].release(job.kind, placement)


def could_ever_fit(nodes_wanted: int, flavor: Flavor, nodes: Iterable[Node]) -> bool:
    """Whether the job would start if it were alone on all machines, drained ones included."""
    machines = [_Free.all_of(node) for node in nodes]
    return _place(Request("", "", 0, 0.0, nodes_wanted, flavor), machines) is not None


def _place(request: Request, machines: list[_Free]) -> tuple[Placement, ...] | None:
    """A placement for every node of the job, or None; machines change only if all of them fit."""
    trial = [free.copy() for free in machines]
    chosen: list[tuple[int, Placement]] = []
    for _ in range(request.nodes):
        used = dict(chosen)
        rehearsed = next((index for index in used if _pretends(trial[index].node, request.flavor)), None)
        if rehearsed is not None:
            # A rehearsal of 2 x 8 devices on a laptop that declares 8: every node has the same ones.
            chosen.append((rehearsed, used[rehearsed]))
            continue
        fitting = [
            index
            for index, free in enumerate(trial)
            if free.fits(request.flavor) and (free.node.shareable or index not in used)
        ]
        if not fitting:
            return None
        # The machine with the least left over: large holes stay for large jobs.
        best = min(fitting, key=lambda index: (_left(trial[index], request.flavor), trial[index].node.name))
        chosen.append((best, trial[best].take(request.flavor)))
    for index, free in enumerate(machines):
        free.cpus, free.memory_mb, free.devices = (
            trial[index].cpus,
            trial[index].memory_mb,
            trial[index].devices,
        )
    return tuple(placement for _, placement in chosen)


def _pretends(node: Node, flavor: Flavor) -> bool:
    """Whether the devices that the flavor asks for exist only in rehearsal on this machine."""
    devices = [device for device in node.devices if device.kind == flavor.kind]
    return bool(devices) and node.shareable and all(device.pretend for device in devices)


def _left(free: _Free, flavor: Flavor) -> tuple[int, float]:
    return len(free.devices.get(flavor.kind, ())) - flavor.devices, free.cpus - flavor.cpus


def _explain(
    request: Request,
    machines: dict[str, _Free],
    reserved: dict[str, Request],
    held: Sequence[Held],
    nodes: Sequence[Node],
) -> Wait:
    wanted = (
        f"{request.nodes} x ({request.flavor.describe()})" if request.nodes > 1 else request.flavor.describe()
    )
    if not could_ever_fit(request.nodes, request.flavor, nodes):
        return Wait(
            request.job_id,
            f"No machine of this platform can ever give {wanted}.",
            hint="Stop the job and choose a smaller flavor or fewer nodes; `trainshed nodes` shows what is there.",
            impossible=True,
        )
    down = [node for node in nodes if node.state != "ready"]
    if down and not could_ever_fit(request.nodes, request.flavor, [n for n in nodes if n.state == "ready"]):
        names = ", ".join(
            f"{node.name} ({node.state}{': ' + node.reason if node.reason else ''})" for node in down[:3]
        )
        return Wait(
            request.job_id, f"Needs machines that are not ready: {names}.", hint="Ask the administrator."
        )
    blocker = next(iter(reserved.values()), None)
    if blocker is not None and _place(request, [free.copy() for free in machines.values()]) is not None:
        return Wait(
            request.job_id,
            f"Job '{blocker.name}' has waited long for {blocker.flavor.describe()} and goes first.",
            hint="A higher priority would move this job before it.",
        )
    return Wait(
        request.job_id,
        f"Needs {wanted}; free now: {_describe_free(request.flavor, machines.values())}.",
        hint="Jobs of a lower priority are leaving for it."
        if request.has_claim
        else _describe_holders(request.flavor, held),
        starts_by=_forecast(request, machines, held),
    )


def _describe_free(flavor: Flavor, machines: Iterable[_Free]) -> str:
    rows = []
    for free in machines:
        devices = f"{len(free.devices.get(flavor.kind, ()))} {flavor.kind}, " if flavor.devices else ""
        rows.append(
            f"{free.node.name}: {devices}{count_cores(max(0.0, free.cpus))}, "
            f"{max(0, free.memory_mb) / 1024:.1f} GiB"
        )
    return "; ".join(rows[:4]) + (f" and {len(rows) - 4} more" if len(rows) > 4 else "")


def _describe_holders(flavor: Flavor, held: Sequence[Held]) -> str:
    names = [job.name for job in held if not flavor.devices or job.kind == flavor.kind]
    if not names:
        return ""
    return (
        "In use by "
        + ", ".join(f"'{name}'" for name in names[:5])
        + (" and others." if len(names) > 5 else ".")
    )


def _forecast(request: Request, machines: dict[str, _Free], held: Sequence[Held]) -> float | None:
    """When the job fits at the latest, if only jobs with a time limit end."""
    later = {name: free.copy() for name, free in machines.items()}
    for job in sorted((job for job in held if job.ends_by is not None), key=lambda job: job.ends_by or 0.0):
        _release(later, [job])
        if _place(request, [free.copy() for free in later.values()]) is not None:
            return job.ends_by
    return None
