"""Creating: snapshot the code and resolve the environment, so that the job can be repeated exactly."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

from trainshed.control.context import Control
from trainshed.db.engine import begin, read
from trainshed.db.jobs import JobRow, change_job, job_by_id
from trainshed.db.nodes import all_nodes
from trainshed.model.attempt import Ending
from trainshed.model.engines import EngineMatch, match_engine
from trainshed.model.errors import NotFound, TrainshedError
from trainshed.model.flavor import preset_flavors
from trainshed.model.launch_plan import Environment, to_json
from trainshed.model.names import parse_obs_url
from trainshed.model.notification import event_of_phase
from trainshed.model.phase import Detail, Phase
from trainshed.model.pools import nodes_of, pool_of
from trainshed.model.rank_lint import lint_ranks
from trainshed.model.rehearsal_load import warn_of_load
from trainshed.runner.doorbell import ring_doorbell
from trainshed.runner.environment.resolution import choose_requirements
from trainshed.store.tenancy import require_own_bucket

__all__ = ["Creation", "create_job"]

SNAPSHOT_BUCKET = ".jobs"
_LARGEST_REQUIREMENTS = 1 << 20
# So many files of a code folder are looked at, and scripts up to this size.
_MOST_FILES, _LARGEST_SCRIPT = 1000, 256 << 10


class Creation:
    """Creates jobs: those that need no installs at once, the others in threads of their own."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._pool = ThreadPoolExecutor(max_workers=2, thread_name_prefix="creation")
        self._under_way: dict[str, Future[None]] = {}

    def advance(self, job: JobRow) -> None:
        """Move a job in phase Creating one step on."""
        if job.stop_requested:
            _finish(
                self._control, job, Phase.TERMINATED, Ending("stopped", "stop", "stopped", job.stop_reason)
            )
            return
        running = self._under_way.get(job.id)
        if running is not None and not running.done():
            return
        self._under_way[job.id] = self._pool.submit(self._create, job)

    def close(self) -> None:
        """Give up what is under way; it is done again by the next loop."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _create(self, job: JobRow) -> None:
        try:
            create_job(self._control, job)
        finally:
            self._under_way.pop(job.id, None)
            ring_doorbell(str(self._control.home.doorbell))


def create_job(control: Control, job: JobRow) -> None:
    """Creating -> Pending, or Failed with the reason."""
    try:
        bucket, prefix = _snapshot(control, job)
        environment = job.environment
        if environment is None:
            environment = to_json(_resolve(control, job, bucket, prefix))
        match = _match(control, job)
        warnings = _look_for_trouble(control, job, bucket, prefix)
    except TrainshedError as fault:
        if fault.status >= 500 and fault.code != "host_unfit":
            # The store or the database is busy: the job stays in Creating and is tried again.
            return
        _finish(control, job, Phase.FAILED, Ending("failed", "user", fault.code, fault.message, fault.hint))
        return
    with begin(control.database) as connection:
        changed = change_job(
            connection,
            job,
            phase=Phase.PENDING,
            detail=Detail.QUEUED.value,
            code_bucket=bucket,
            code_prefix=prefix,
            environment=environment,
            queued_at=control.clock(),
        )
        if changed is not None:
            control.tell(connection, changed, "The code is snapshotted; the job waits for its turn.")
            if match is not None and match.note:
                control.tell(connection, changed, match.note)
            for warning in warnings:
                control.tell(connection, changed, warning, "warning")


def _snapshot(control: Control, job: JobRow) -> tuple[str, str]:
    """Where the job's own, unchangeable copy of the code lies."""
    if job.code_prefix:
        return job.code_bucket, job.code_prefix
    code = job.spec.get("code", "")
    if not code:
        return "", ""
    source = parse_obs_url(code).as_folder()
    require_own_bucket(control.store, source.bucket, job.workspace_id)
    prefix = f"{job.id}/code/"
    # An external store copies object by object: what an earlier try left must not mix with this one.
    control.store.delete_prefix(SNAPSHOT_BUCKET, prefix)
    control.store.copy_prefix(source.bucket, source.key, SNAPSHOT_BUCKET, prefix)
    return SNAPSHOT_BUCKET, prefix


def _resolve(control: Control, job: JobRow, bucket: str, prefix: str) -> Environment:
    requirements: str | None = None
    boot = job.spec.get("boot", "")
    if prefix:
        folder = prefix + (boot.rsplit("/", 1)[0] + "/" if "/" in boot else "")
        listing = control.store.list(bucket, folder, delimiter="/")
        name = choose_requirements([info.key.removeprefix(folder) for info in listing.objects])
        if name:
            with control.store.open(bucket, folder + name) as file:
                requirements = file.read(_LARGEST_REQUIREMENTS).decode("utf-8", "replace")
    return control.resolve(job.spec.get("engine", "python"), requirements, job)


def _match(control: Control, job: JobRow) -> EngineMatch | None:
    """The engine that runs for the one asked for; nothing for a rerun whose engine is not offered any more."""
    try:
        return match_engine(job.spec.get("engine", "python"), control.settings.engines)
    except NotFound:
        return None


def _look_for_trouble(control: Control, job: JobRow, bucket: str, prefix: str) -> list[str]:
    """What may go wrong with the job; nothing of it keeps the job from running."""
    warnings = []
    if job.rehearsal:
        pool = pool_of(job.spec, control.settings.all_pools)
        with read(control.database) as connection:
            machines = nodes_of(pool, all_nodes(connection)) if pool else []
        devices = next((item.processes for item in preset_flavors(machines) if item.name == job.flavor), 1)
        processes = int(job.spec.get("processes", 0)) or devices
        match = _match(control, job)
        warnings += warn_of_load(match.engine.name if match else "", processes, job.nodes, machines)
    if job.nodes < 2 or not prefix:
        return warnings
    for info in control.store.list(bucket, prefix, limit=_MOST_FILES).objects:
        if info.key.endswith(".sh") and info.size <= _LARGEST_SCRIPT:
            with control.store.open(bucket, info.key) as file:
                text = file.read(_LARGEST_SCRIPT).decode("utf-8", "replace")
            warnings += lint_ranks(text, info.key.removeprefix(prefix), job.nodes)
    return warnings


def _finish(control: Control, job: JobRow, phase: Phase, ending: Ending) -> None:
    with begin(control.database) as connection:
        fresh = job_by_id(connection, job.id)
        if fresh is None or fresh.phase is not Phase.CREATING:
            return
        changed = change_job(
            connection, fresh, phase=phase, detail="", ending=to_json(ending), ended_at=control.clock()
        )
        if changed is not None:
            level = "error" if phase is Phase.FAILED else "info"
            control.tell(connection, changed, f"{phase}: {ending.message} {ending.hint}".strip(), level)
            control.notify(connection, changed, event_of_phase(phase))
