"""The end of a node's run: what the job made is brought home, its logs last."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainshed.model.attempt import Ending
from trainshed.model.home import RunFolder
from trainshed.model.launch_plan import NodeLaunch
from trainshed.runner.endings import farewell, with_output_fault
from trainshed.runner.homecoming import export_logs, log_streams, upload_logs, upload_metrics, upload_outputs
from trainshed.runner.leftovers import upload_leftovers
from trainshed.runner.log_archive import archive_prefix
from trainshed.runner.log_shipping import LogShipping
from trainshed.runner.reporter import PlatformLog, Reporter
from trainshed.runner.site import Site
from trainshed.runner.staging import StagedFolders
from trainshed.runner.work_folders import WorkFolders

if TYPE_CHECKING:
    from trainshed.store.object_store import ObjectStore

__all__ = ["Closing"]


@dataclass
class Closing:
    """Brings one node's run to its end. Whatever happens, a final report is the last thing written."""

    launch: NodeLaunch
    site: Site
    folder: RunFolder
    reporter: Reporter
    log: PlatformLog
    secrets: Mapping[str, str]
    # The store, and what carries logs there, when they are asked for: to have none is a fault like others.
    open_store: Callable[[], ObjectStore]
    shipping: Callable[[], LogShipping]
    note: Callable[[str], None]

    def close(self, ending: Ending, folders: StagedFolders | None, work: WorkFolders | None) -> None:
        """Bring home what there is, and report. Without folders nothing was staged, without `work` nothing ran."""
        left_behind: list[str] = []
        try:
            ending = self._bring_results(ending, folders, work, left_behind)
            self.log.say(farewell(ending))
            self._bring_logs(left_behind)
        except Exception as fault:
            import traceback

            self.note(traceback.format_exc())
            left_behind.append(f"unexpected: {fault}")
        sizes = {stream: _size(path) for stream, path in log_streams(self.launch, self.folder).items()}
        if not left_behind:
            # As long as a log is not archived, its secrets are needed to mask them.
            self.folder.secrets.unlink(missing_ok=True)
        self.reporter.end(ending, sizes, tuple(left_behind))

    def _bring_results(
        self, ending: Ending, folders: StagedFolders | None, work: WorkFolders | None, left_behind: list[str]
    ) -> Ending:
        """Outputs, checkpoints and files of the working folder; how the run ends after that."""
        if folders is not None and self.launch.outputs:
            self.reporter.enter("uploading")
            fault = upload_outputs(self.launch, self.open_store(), folders, self.log)
            if fault is not None:
                from trainshed.runner.resting_place import tell_way

                left_behind.append(f"outputs: {fault}")
                ending = with_output_fault(ending, fault, tell_way(self.folder))
        if work is not None:
            store, root = self.open_store(), self.folder.root
            if self.launch.checkpoints is not None:
                from trainshed.runner.checkpoints import bring_checkpoints

                fault = bring_checkpoints(self.launch, store, root, self.site.checkpoint_bytes, self.log.say)
                if fault is not None:
                    left_behind.append(f"checkpoints: {fault}")
            fault = upload_leftovers(
                work,
                store,
                archive_prefix(self.launch.job_id, self.launch.attempt, self.launch.node_index),
                limit=self.site.leftovers_bytes,
                secrets=self.secrets.values(),
                say=self.log.say,
            )
            if fault is not None:
                left_behind.append(f"files of the working folder: {fault}")
        if folders is not None:
            folders.close()
        return ending

    def _bring_logs(self, left_behind: list[str]) -> None:
        shipping, store = self.shipping(), self.open_store()
        shipping.finish()
        fault = upload_logs(self.launch, shipping.archive, self.folder, self.note)
        if fault is not None:
            left_behind.append(f"logs: {fault}")
        fault = export_logs(self.launch, store, shipping.archive, self.folder, self.note)
        if fault is not None:
            words = f"the log was not written to log_url: {fault}"
            self.reporter.enter("uploading", words, level="warning")
        fault = upload_metrics(self.launch, store, self.folder)
        if fault is not None:
            left_behind.append(f"metrics: {fault}")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
