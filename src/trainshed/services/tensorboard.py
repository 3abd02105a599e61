"""TensorBoard for a job: which folders it shows, the link that opens it, and its end."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trainshed.db.attempts import AttemptRow, attempt_of
from trainshed.db.engine import read
from trainshed.db.jobs import JobRow, find_job
from trainshed.db.users import user_by_id
from trainshed.db.workspaces import workspace_by_id
from trainshed.dialects.apulis import unix_name
from trainshed.durable import write_durably
from trainshed.model.errors import Conflict, InvalidInput, NotFound
from trainshed.model.launch_plan import KeptFolder, NodeLaunch, from_json, to_json
from trainshed.model.names import parse_obs_url
from trainshed.model.pools import pool_of
from trainshed.model.tool import ToolPlan, ToolSource
from trainshed.runner.kept_folders import kept_folder_path
from trainshed.runner.leftovers import LEFTOVERS
from trainshed.runner.log_archive import ARCHIVE_BUCKET, archive_prefix
from trainshed.runner.staging import StagedFolders
from trainshed.runner.tools.event_mirror import is_shown
from trainshed.runner.work_folders import WorkFolders
from trainshed.services.access import require
from trainshed.services.buckets import readable_bucket
from trainshed.services.identity import Caller
from trainshed.services.platform import Platform
from trainshed.services.store_place import find_store
from trainshed.services.tool_server import ensure_tool_server
from trainshed.services.tool_tickets import issue, revoke
from trainshed.store.tenancy import require_own_bucket

__all__ = ["OpenTool", "open_tensorboard", "plan_tensorboard", "stop_tensorboard", "tool_folder"]

_MOST_LOOKED_AT = 20_000


@dataclass(frozen=True)
class OpenTool:
    """A link that opens a tool once, in a browser."""

    url: str
    # What is shown, as the job or the store names it.
    shows: list[str]
    # Whether there are any events yet; a running job may still write them.
    has_events: bool


@dataclass(frozen=True)
class _Place:
    """A folder that can be shown: where it lies, and what the job calls it."""

    source: ToolSource
    target: str


def open_tensorboard(platform: Platform, caller: Caller, ref: str, logdir: str = "") -> OpenTool:
    """Make TensorBoard ready for a job; the link in the answer opens it once and is good for five minutes."""
    job = _find(platform, caller, ref)
    plan, shows, has_events = plan_tensorboard(platform, caller, job, logdir)
    if not has_events and job.phase.is_terminal:
        raise NotFound(
            f"'{job.name}' has written no events for TensorBoard to its outputs or its working folder.",
            hint="Name the place: `trainshed tensorboard JOB --logdir obs://bucket/folder/`.",
            code="no_events",
            where="logdir",
        )
    folder = tool_folder(platform, plan.id)
    folder.mkdir(mode=0o711, parents=True, exist_ok=True)
    write_durably(folder / "plan.json", to_json(plan))
    base = ensure_tool_server(platform)
    word = issue(
        platform,
        "link",
        tool=plan.id,
        job_id=job.id,
        workspace_id=job.workspace_id,
        user_id=caller.user_id,
    )
    return OpenTool(f"{base}/t/{plan.id}/?ticket={word}", shows, has_events)


def stop_tensorboard(platform: Platform, caller: Caller, ref: str) -> int:
    """End every TensorBoard of a job; all links and cookies for it are worthless. The number of them."""
    job = _find(platform, caller, ref)
    count = 0
    for folder in _tool_folders(platform):
        try:
            plan = from_json(ToolPlan, json.loads((folder / "plan.json").read_text("utf-8")))
        except (OSError, ValueError):
            continue
        if plan.job_id == job.id:
            revoke(platform, plan.id)
            # The tool server ends a tool whose plan is gone.
            (folder / "plan.json").unlink(missing_ok=True)
            count += 1
    return count


def tool_folder(platform: Platform, tool: str) -> Path:
    """The folder of a hosted tool."""
    return platform.home.run / "tools" / tool


def plan_tensorboard(
    platform: Platform, caller: Caller, job: JobRow, logdir: str = ""
) -> tuple[ToolPlan, list[str], bool]:
    """What TensorBoard shows for a job: the plan, the folders by their names, and whether there are events."""
    with read(platform.engine) as connection:
        attempt = attempt_of(connection, job.id, job.attempt) if job.attempt else None
        workspace = workspace_by_id(connection, job.workspace_id)
        owner = user_by_id(connection, job.owner_id)
    if logdir.startswith(("obs://", "s3://")):
        url = parse_obs_url(logdir).as_folder()
        readable_bucket(platform, caller, url.bucket)
        places = [_Place(ToolSource("logs", bucket=url.bucket, key=url.key), logdir)]
        folder = "/logs/logs"
    else:
        if attempt is None:
            raise Conflict(
                f"'{job.name}' has not started yet, so it has written nothing.",
                hint="Try again when it runs.",
                code="job_not_started",
            )
        places = list(_places(platform, job, attempt, owner.name if owner else ""))
        folder = "/logs"
        if logdir:
            place, rest = _choose(places, logdir)
            places, folder = [place], f"/logs/{place.source.name}{rest}"
    sources = tuple(place.source for place in places)
    known = json.dumps([job.id, job.attempt, folder, _to_json_list(sources)])
    root = os.geteuid() == 0
    plan = ToolPlan(
        id=hashlib.sha256(known.encode()).hexdigest()[:24],
        job_id=job.id,
        workspace_id=job.workspace_id,
        folder=folder,
        sources=sources,
        store_url=find_store(platform.home, platform.settings),
        environments=str(platform.home.environments),
        uid=platform.settings.job_uid_base + (workspace.number if workspace else 0) if root else None,
        install_uid=platform.settings.install_uid,
        allow_unsandboxed=platform.settings.allow_unsandboxed,
    )
    shows = [place.target or "files that the job left" for place in places]
    return plan, shows, any(_has_events(platform, source) for source in sources)


def _to_json_list(sources: tuple[ToolSource, ...]) -> list[object]:
    """Sources as plain data."""
    return [to_json(source) for source in sources]


def _find(platform: Platform, caller: Caller, ref: str) -> JobRow:
    require(caller, "job.read")
    with read(platform.engine) as connection:
        job = find_job(connection, caller.workspace_id, ref)
    require(caller, "job.read", job)
    return job


def _places(platform: Platform, job: JobRow, attempt: AttemptRow, owner: str) -> Iterator[_Place]:
    """The folders of a job: of its machine while it runs, of the store when it has ended."""
    yield from _kept_places(platform, job, owner)
    for node in range(len(attempt.placements)):
        part = f"node-{node}-" if node else ""
        if job.phase.is_terminal:
            prefix = archive_prefix(job.id, attempt.attempt, node) + LEFTOVERS
            # Their keys are whole paths of the job.
            yield _Place(ToolSource(f"{part}working-folder", bucket=ARCHIVE_BUCKET, key=prefix), "")
        else:
            yield from _live_places(platform, job, attempt.attempt, node, part)
    if job.phase.is_terminal:
        for name, text in job.spec.get("outputs", {}).items():
            url = parse_obs_url(text).as_folder()
            try:
                require_own_bucket(platform.store, url.bucket, job.workspace_id)
            except NotFound:
                continue
            yield _Place(ToolSource(name, bucket=url.bucket, key=url.key), f"/job/outputs/{name}")


def _live_places(platform: Platform, job: JobRow, attempt: int, node: int, part: str) -> Iterator[_Place]:
    folder = platform.home.run_folder(job.id, attempt, node)
    try:
        launch = from_json(NodeLaunch, json.loads(folder.launch.read_text("utf-8")))
    except (OSError, ValueError):
        return
    staged = StagedFolders(folder.root)
    work = WorkFolders(launch, folder, staged)
    for output in launch.outputs:
        path = staged.output(output.name)
        if path.is_dir() and not path.is_symlink():
            yield _Place(ToolSource(f"{part}{output.name}", host_path=str(path)), output.path)
    for number, found in enumerate(work.folders):
        name = f"{part}working-folder" + (f"-{number}" if number else "")
        yield _Place(ToolSource(name, host_path=str(found.path)), found.target)


def _kept_places(platform: Platform, job: JobRow, owner: str) -> Iterator[_Place]:
    """The folder that scripts of Apulis write to: below the owner's home, which outlives the job."""
    if job.spec.get("dialect") != "apulis" or not owner:
        return
    user = unix_name(owner)
    home = KeptFolder("home", user, f"/home/{user}")
    pool = pool_of(job.spec, platform.settings.all_pools)
    if pool is not None and pool.engine != "local":
        # Readable from here where the platform's machine has the pool's shared folder, too.
        path = kept_folder_path(Path(pool.shared_folder or os.devnull) / job.workspace_id, home)
    else:
        path = kept_folder_path(platform.home.kept_folders(job.workspace_id), home)
    # A link in the place of a folder is not followed: it would be one of the host's.
    for name in ("", "tensorboard", job.id, "logs"):
        path = path / name if name else path
        if path.is_symlink() or not path.is_dir():
            return
    yield _Place(ToolSource("tensorboard", host_path=str(path)), f"{home.path}/tensorboard/{job.id}/logs")


def _choose(places: list[_Place], logdir: str) -> tuple[_Place, str]:
    """The folder that holds a path of the job, and the rest of the path."""
    path = logdir.rstrip("/")
    if not path.startswith("/") or ".." in path.split("/"):
        raise InvalidInput(
            f"'{logdir[:200]}' is neither a path of the job nor an obs:// folder.",
            hint="Give a whole path, such as /job/outputs/train_url/summary.",
            where="logdir",
        )
    fitting = [place for place in places if path == place.target or path.startswith(f"{place.target}/")]
    if not fitting:
        raise NotFound(
            f"TensorBoard cannot see {logdir[:200]}.",
            hint="It sees " + (", ".join(sorted({place.target for place in places})) or "nothing yet") + ".",
            code="unknown_folder",
            where="logdir",
        )
    place = max(fitting, key=lambda place: len(place.target))
    return place, path[len(place.target) :]


def _has_events(platform: Platform, source: ToolSource) -> bool:
    if source.bucket:
        found = platform.store.walk(source.bucket, source.key)
        return any(is_shown(info.key) for _, info in zip(range(_MOST_LOOKED_AT), found, strict=False))
    looked_at = 0
    for _, folders, files in os.walk(source.host_path):
        looked_at += len(files) + len(folders)
        if any("tfevents" in name for name in files):
            return True
        if looked_at > _MOST_LOOKED_AT:
            return False
    return False


def _tool_folders(platform: Platform) -> list[Path]:
    try:
        return [path for path in (platform.home.run / "tools").iterdir() if path.is_dir()]
    except FileNotFoundError:
        return []
