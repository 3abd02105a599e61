"""Brings checkpoints home while a job trains: a machine that loses power does not lose them.

Nothing of the job waits for it. A file is taken when it is whole: unchanged between two looks, or replaced by
another one under its name meanwhile, as scripts do that write aside and rename. What is still being written is left
out; where it takes the place of a file that is home already, that one stays the last until the next look.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from trainshed.model.errors import TrainshedError
from trainshed.model.launch_plan import NodeLaunch
from trainshed.runner.checkpoint_look import Stamp, checkpoint_folder, look_into, read_staged, stamp_of
from trainshed.runner.checkpoint_versions import KeptFile, Version, live_prefix, write_versions
from trainshed.runner.log_archive import ARCHIVE_BUCKET
from trainshed.store.folder_tree import FileGone, FolderTree
from trainshed.store.object_store import ObjectStore
from trainshed.store.tenancy import require_own_bucket

__all__ = ["LiveCheckpoints"]

_QUIET_SECONDS = 5.0
_STOP_SECONDS = 5.0
_PIECE = 1 << 20
# Versions of nodes that are not equally fast still meet at one of their last ones.
_KEPT_VERSIONS = 3
# Files that are held open between two looks, so that one that is replaced meanwhile can still be read.
_MOST_HELD = 128
_MOST_FILES = 10_000
_MOST_POSTPONED = 3


class _Stopped(Exception):
    """The job has ended: its checkpoints are brought home by others now."""


class LiveCheckpoints:
    """A thread that looks into the checkpoint folder every `every` seconds; with 0 it does nothing.

    `clock_lag` is by how much this machine's clock is behind the platform's: nodes of one job look at the same moments.
    """

    def __init__(
        self,
        launch: NodeLaunch,
        store: ObjectStore,
        root: Path,
        *,
        every: float,
        limit: int,
        say: Callable[[str], None],
        clock_lag: float = 0.0,
        quiet: float = _QUIET_SECONDS,
    ) -> None:
        self._launch = launch
        self._store = store
        self._folder = checkpoint_folder(root)
        self._staged = read_staged(root)
        self._every = max(every, 3 * quiet) if every else 0.0
        self._limit = limit
        self._say = say
        self._clock_lag = clock_lag
        self._quiet = quiet
        self._versions: list[Version] = []
        # What is home: each file's stamp, and where it lies.
        self._home: dict[str, tuple[Stamp, KeptFile]] = {}
        self._last: dict[str, Stamp] = {}
        self._told: set[str] = set()
        self._is_failing = False
        # How often the folder was left as it was because a file of it was being written.
        self._postponed = 0
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, unless the job keeps no checkpoints or they are not wanted before its end."""
        if self._launch.checkpoints is not None and self._every:
            self._thread = threading.Thread(target=self._run, name="live-checkpoints", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End, in the middle of a file too: the whole folder is brought home now."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(_STOP_SECONDS)

    def _run(self) -> None:
        rest = 0.0
        while True:
            now = time.time() + self._clock_lag
            moment = int((now + rest + self._quiet) // self._every) + 1
            if self._stopped.wait(moment * self._every - self._quiet - now):
                return
            began = time.monotonic()
            try:
                self.look(moment)
                self._is_failing = False
            except _Stopped:
                return
            except (TrainshedError, OSError) as fault:
                # The next turn tries again, and the end of the job does so in earnest.
                if not self._is_failing:
                    self._say(f"checkpoints could not be brought home yet: {fault}")
                self._is_failing = True
            # Half of the time belongs to others who want to send something.
            rest = max(0.0, time.monotonic() - began - 2 * self._quiet)

    def look(self, moment: int) -> None:
        """Bring home what the folder holds at this moment, if it can be had whole."""
        with ExitStack() as held, FolderTree(self._folder) as tree:
            before = look_into(self._folder)
            if len(before) > _MOST_FILES:
                self._tell_once("there are too many checkpoint files to bring them home while the job trains")
                return
            files = self._hold(tree, before, held)
            if self._stopped.wait(2 * self._quiet):
                raise _Stopped
            whole = self._find_whole(before, look_into(self._folder), files)
            if whole is None:
                return
            size = sum(stamp[1] for stamp in whole.values())
            if self._limit and size > self._limit and not self._place_of_its_own:
                return  # The end of the attempt says so.
            if whole == self._last:
                self._extend(moment)
                return
            if not all(
                self._bring(tree, path, whole[path], files) for path in sorted(whole, key=self._age(whole))
            ):
                return
        self._last = whole
        self._note(moment, whole)

    def _hold(self, tree: FolderTree, seen: dict[str, Stamp], held: ExitStack) -> dict[str, int]:
        """The files that are not home yet, open: whatever becomes of their names, their bytes can be read."""
        files: dict[str, int] = {}
        for path, stamp in seen.items():
            if len(files) >= _MOST_HELD:
                break
            if not self._is_home(path, stamp) and self._staged.get(path) != stamp:
                try:
                    files[path] = tree.open_file(path)
                except FileGone:
                    continue
                held.callback(os.close, files[path])
        return files

    def _find_whole(
        self, before: dict[str, Stamp], after: dict[str, Stamp], files: dict[str, int]
    ) -> dict[str, Stamp] | None:
        """What was whole at the first look; None when it is better to wait for the next one."""
        if self._launch.node_count > 1:
            # Parts of several nodes belong together only where none of them is being written.
            return before if before == after else None
        whole = {}
        for path, stamp in before.items():
            now = after.get(path)
            is_same = now == stamp
            is_replaced = now is None or now[0] != stamp[0]
            if is_replaced and path in files:
                # As it was when it had the name: whoever wrote it was done with it.
                is_same = stamp_of(os.fstat(files[path])) == stamp
            if is_same or self._is_home(path, stamp):
                whole[path] = stamp
            elif path in self._last:
                if self._postponed < _MOST_POSTPONED:
                    self._postponed += 1
                    return None
                # A log, most likely, which is written all the time: the others do not wait for it.
                whole[path] = self._last[path]
        self._postponed = 0
        return whole

    def _bring(self, tree: FolderTree, path: str, stamp: Stamp, files: dict[str, int]) -> bool:
        """Send one file, unless it is home; whether all of it is what was seen."""
        if self._is_home(path, stamp):
            return True
        is_staged = self._staged.get(path) == stamp
        if is_staged and (self._launch.node_index or self._place_of_its_own):
            return True
        try:
            file = os.dup(files[path]) if path in files else tree.open_file(path)
        except FileGone:
            return False
        try:
            facts = os.fstat(file)
            if stamp_of(facts) != stamp:
                return False
            is_program = bool(facts.st_mode & stat.S_IXUSR)
            bucket, key = self._place_of(path)
            metadata = {"mode": "755"} if is_program else {}
            self._store.put(bucket, key, self._pieces(file, stamp), metadata=metadata)
            self._home[path] = (stamp, KeptFile(path, key, stamp[1], is_program, is_staged))
            return True
        finally:
            os.close(file)

    def _pieces(self, file: int, stamp: Stamp) -> Iterator[bytes]:
        done = 0
        while done < stamp[1]:
            if self._stopped.is_set():
                raise _Stopped
            data = os.pread(file, min(_PIECE, stamp[1] - done), done)
            if not data or stamp_of(os.fstat(file)) != stamp:
                # Nothing of it becomes an object: it is being written again.
                raise OSError("a checkpoint was changed while it was read")
            done += len(data)
            yield data

    def _note(self, moment: int, whole: dict[str, Stamp]) -> None:
        """Make what was sent the latest version, and forget what no version needs any more."""
        if self._place_of_its_own:
            self._forget_vanished(whole)
            return
        files = tuple(self._home[path][1] for path in sorted(whole) if path in self._home)
        self._versions = [*self._versions, Version(moment, moment, files)][-_KEPT_VERSIONS:]
        self._write()
        self._home = {path: found for path, found in self._home.items() if path in whole}
        needed = {file.key for version in self._versions for file in version.files}
        for info in list(self._store.walk(ARCHIVE_BUCKET, self._own_prefix)):
            if info.key not in needed:
                self._store.delete(ARCHIVE_BUCKET, info.key)
        self._tell_once("checkpoints are brought home while the job trains")

    def _extend(self, moment: int) -> None:
        """The folder is still what it was: that matters to the other nodes only."""
        if self._versions and self._launch.node_count > 1:
            latest = self._versions[-1]
            self._versions[-1] = Version(latest.first, moment, latest.files)
            self._write()

    def _write(self) -> None:
        if self._stopped.is_set():
            raise _Stopped
        write_versions(self._store, self._launch, self._versions)

    def _forget_vanished(self, whole: dict[str, Stamp]) -> None:
        """Remove what was sent to the job's own place and is not in its folder any more: scripts keep the last few."""
        assert self._launch.checkpoints is not None
        for path in [path for path in self._home if path not in whole]:
            if path not in self._staged:
                self._store.delete(self._launch.checkpoints.bucket, self._home[path][1].key)
            del self._home[path]

    def _place_of(self, path: str) -> tuple[str, str]:
        plan = self._launch.checkpoints
        assert plan is not None
        if not plan.bucket:
            return ARCHIVE_BUCKET, f"{self._own_prefix}{os.urandom(8).hex()}"
        require_own_bucket(self._store, plan.bucket, self._launch.workspace_id)
        return plan.bucket, plan.prefix + path

    def _is_home(self, path: str, stamp: Stamp) -> bool:
        return path in self._home and self._home[path][0] == stamp

    def _tell_once(self, words: str) -> None:
        if words not in self._told:
            self._told.add(words)
            self._say(words)

    @staticmethod
    def _age(whole: dict[str, Stamp]) -> Callable[[str], int]:
        # What was written last may speak of the others: it is sent last.
        return lambda path: whole[path][2]

    @property
    def _place_of_its_own(self) -> bool:
        return bool(self._launch.checkpoints and self._launch.checkpoints.bucket)

    @property
    def _own_prefix(self) -> str:
        return f"{live_prefix(self._launch.job_id, self._launch.attempt)}node-{self._launch.node_index}/"
