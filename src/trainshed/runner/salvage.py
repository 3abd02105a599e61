"""After a runner died: bring home what its node had made, and write the final report in its place."""

from __future__ import annotations

import json
import time

from trainshed.model.attempt import Ending, NodeReport
from trainshed.model.home import RunFolder
from trainshed.model.launch_plan import from_json
from trainshed.runner.checkpoints import bring_checkpoints
from trainshed.runner.homecoming import export_logs, log_streams, upload_logs, upload_metrics, upload_outputs
from trainshed.runner.launcher_logs import LauncherLogs
from trainshed.runner.leftovers import upload_leftovers
from trainshed.runner.log_archive import LogArchive, archive_prefix
from trainshed.runner.metric_tail import MetricTail
from trainshed.runner.reporter import PlatformLog, Reporter
from trainshed.runner.sandbox import remove_stale_groups
from trainshed.runner.site import read_launch, read_secrets, read_site
from trainshed.runner.staging import StagedFolders
from trainshed.runner.stragglers import end_stragglers
from trainshed.runner.work_folders import WorkFolders
from trainshed.store import open_store
from trainshed.store.outage import Patience

__all__ = ["salvage_node"]


def salvage_node(folder: RunFolder, reason: Ending | None = None, *, is_patient: bool = False) -> None:
    """Do what the dead runner could not do any more. Can itself be killed and started again.

    `reason` is why it died, where somebody knows. With `is_patient` it waits for a store that is away, as the runner would
    have done: nobody else could do it later.
    """
    launch, site = read_launch(folder), read_site(folder)
    remove_stale_groups()
    end_stragglers(folder.rank_log(process.rank) for process in launch.processes)
    reporter = Reporter(folder, launch, site.doorbell, is_durable=site.is_durable)
    report = _last_report(folder)
    if report is not None:
        if report.ending is not None and not report.left_behind:
            return
        reporter.resume(report)
    log = PlatformLog(folder.platform_log)
    store = open_store(site.store_url, Patience(site.store_patience, say=log.say) if is_patient else None)
    # An attempt that has ended keeps its ending: only what it could not bring home is brought now.
    ending = (report.ending if report is not None else None) or reason
    ending = ending or Ending(
        "failed",
        "platform",
        "runner_lost",
        "The program that watched over this node was killed; its processes ended with it.",
        "Rerun the job, or give it `restarts` so that this happens by itself.",
        node=launch.node_index,
    )
    left_behind: list[str] = []
    folders = StagedFolders(folder.root)
    if reporter.report.launched:
        if launch.outputs:
            fault = upload_outputs(launch, store, folders, log)
            if fault is not None:
                left_behind.append(f"outputs: {fault}")
        fault = bring_checkpoints(launch, store, folders.root, site.checkpoint_bytes, log.say)
        if fault is not None:
            left_behind.append(f"checkpoints: {fault}")
        work = WorkFolders(launch, folder, folders)
        LauncherLogs(work, folder).read(final=True)
        fault = upload_leftovers(
            work,
            store,
            archive_prefix(launch.job_id, launch.attempt, launch.node_index),
            limit=site.leftovers_bytes,
            secrets=read_secrets(folder).values(),
            say=log.say,
        )
        if fault is not None:
            left_behind.append(f"files of the working folder: {fault}")
        _read_metrics_again(
            folder, launch_ranks=[process.rank for process in launch.processes], folders=folders
        )
    if report is None or report.ending is None:
        log.say(ending.message)
    archive = LogArchive(
        store,
        archive_prefix(launch.job_id, launch.attempt, launch.node_index),
        site.log_segment_bytes,
        list(read_secrets(folder).values()),
    )
    fault = upload_logs(launch, archive, folder, log.say)
    if fault is not None:
        left_behind.append(f"logs: {fault}")
    fault = export_logs(launch, store, archive, folder, log.say)
    if fault is not None:
        reporter.enter("uploading", f"the log was not written to log_url: {fault}", level="warning")
    fault = upload_metrics(launch, store, folder)
    if fault is not None:
        left_behind.append(f"metrics: {fault}")
    sizes = {
        stream: path.stat().st_size for stream, path in log_streams(launch, folder).items() if path.exists()
    }
    if not left_behind:
        # As long as a log is not archived, its secrets are needed to mask them.
        folder.secrets.unlink(missing_ok=True)
    reporter.end(ending, sizes, tuple(left_behind))


def _last_report(folder: RunFolder) -> NodeReport | None:
    try:
        return from_json(NodeReport, json.loads(folder.status.read_text("utf-8")))
    except FileNotFoundError:
        return None


def _read_metrics_again(folder: RunFolder, launch_ranks: list[int], folders: StagedFolders) -> None:
    """Take in the metrics that the dead runner had not read yet.

    How far it had read is not recorded, so points could appear twice; they are read again from the start
    into a new file instead. Pieces of the log that were archived already are holes of zeros by now, hence
    the old file is kept when it reaches further.
    """
    fresh = folder.metrics.with_name("metrics.again.jsonl")
    fresh.unlink(missing_ok=True)
    tail = MetricTail(
        {rank: folder.rank_log(rank) for rank in launch_ranks},
        folders.run / "metrics.jsonl",
        fresh,
        launch_ranks[0],
    )
    deadline = time.monotonic() + 30
    before = -1
    while time.monotonic() < deadline and fresh.stat().st_size != before:
        before = fresh.stat().st_size
        tail.read()
    tail.read(final=True)
    tail.close()
    if not folder.metrics.exists() or fresh.stat().st_size >= folder.metrics.stat().st_size:
        fresh.replace(folder.metrics)
    else:
        fresh.unlink()
