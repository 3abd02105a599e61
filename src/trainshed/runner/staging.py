"""Brings a job's code and inputs from the store to where the job will see them."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from trainshed.model.errors import HostUnfit, NotFound
from trainshed.model.launch_plan import NodeLaunch
from trainshed.model.size import count_files, format_size
from trainshed.runner.sandbox.stage import give_tree
from trainshed.runner.sandbox.tree_copy import CopyState, CopyWatch
from trainshed.runner.site import Site

# The store's part is loaded where something is brought from there: many jobs begin without it.
if TYPE_CHECKING:
    from trainshed.store.object_store import ObjectStore
    from trainshed.store.staged_tree import StagedTree, TreeFacts

__all__ = ["StagedFolders", "StagingWatch", "give_to", "stage", "watch_copies"]

# What is so small is copied: a view of a shared tree would cost more than it saves.
_FEW_FILES, _FEW_BYTES = 16, 4 << 20
# Room on the disk that a copy of inputs leaves to everything else.
_SPARE_BYTES = 256 << 20
_SAY_EVERY = 5.0
_LOOK_EVERY = 0.5
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class StagedFolders:
    """The folders of the run folder that become visible inside the sandbox.

    What has a tree is seen as a view of that tree instead: the tree is not changed, and changes go to a layer
    of the job's own.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.code = root / "code"
        self.inputs = root / "inputs"
        self.outputs = root / "outputs"
        self.run = root / "run"
        # By the folder in whose place the tree is seen.
        self.trees: dict[Path, StagedTree] = {}
        # Descriptors of folders of the machine that are seen there instead, read-only.
        self.host_folders: dict[Path, int] = {}

    def input(self, name: str) -> Path:
        """The folder of one input."""
        return self.inputs / name

    def output(self, name: str) -> Path:
        """The folder of one output."""
        return self.outputs / name

    def close(self) -> None:
        """The job has ended: the trees may be removed."""
        for tree in self.trees.values():
            tree.close()
        self.trees.clear()
        for descriptor in self.host_folders.values():
            os.close(descriptor)
        self.host_folders.clear()


class StagingWatch:
    """Says every few seconds how far the staging of one folder is, and ends it when the job is stopped."""

    def __init__(
        self,
        name: str,
        facts: TreeFacts,
        say: Callable[[str], None],
        check_stop: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._facts = facts
        self._say = say
        self._check_stop = check_stop
        self._clock = clock
        self._lock = threading.Lock()
        self._began = clock()
        self._next_word = self._began + _SAY_EVERY
        self._next_look = self._began + _LOOK_EVERY

    def __call__(self, files: int, size: int) -> None:
        """So many files and bytes are done. Raises what `check_stop` raises."""
        now = self._clock()
        if now < self._next_look:
            return
        self._next_look = now + _LOOK_EVERY
        self._check_stop()
        with self._lock:
            if now < self._next_word:
                return
            self._next_word = now + _SAY_EVERY
        self._say(self._describe(files, size, now - self._began))

    def _describe(self, files: int, size: int, seconds: float) -> str:
        total = self._facts
        if not files and not size:
            return f"{self._name}: waiting for another job of this machine that stages the same"
        share = max(size / total.bytes if total.bytes else 0.0, files / total.files if total.files else 0.0)
        left = f", about {seconds / share - seconds:.0f} s left" if 0.01 < share <= 1 else ""
        return f"{self._name}: {files} of {total.files} files, {format_size(size)} of {format_size(total.bytes)}{left}"


def watch_copies(say: Callable[[str], None], check_stop: Callable[[], None]) -> CopyWatch:
    """What hears of trees that the sandbox must copy: says how far they are, and ends them when the job is stopped."""
    watches: dict[str, StagingWatch] = {}

    def watch(state: CopyState) -> None:
        from trainshed.store.staged_tree import TreeFacts

        if state.target not in watches:
            facts = TreeFacts("", "", "", state.total_files, state.total_bytes)
            say(f"{state.target}: no overlay on this machine, copying {format_size(state.total_bytes)}")
            watches[state.target] = StagingWatch(state.target, facts, say, check_stop)
        if state.files or state.bytes:
            watches[state.target](state.files, state.bytes)

    return watch


def stage(
    launch: NodeLaunch,
    open_store: Callable[[], ObjectStore],
    site: Site,
    root: Path,
    say: Callable[[str], None],
    check_stop: Callable[[], None] = lambda: None,
    *,
    has_code: bool = False,
) -> StagedFolders:
    """Make code and inputs ready; a job may change what it sees of them, and nothing else changes.

    Whatever `check_stop` raises ends the staging. `has_code` says that the code lies there already.
    """
    folders = StagedFolders(root)
    for path in (root, folders.code, folders.inputs, folders.outputs, folders.run):
        path.mkdir(parents=True, exist_ok=True, mode=0o755)
    stager = _Stager(open_store, site, folders, say, check_stop)
    try:
        if launch.code_prefix and not has_code:
            stager.bring("code", launch.code_bucket, launch.code_prefix, folders.code)
        for item in launch.inputs:
            if item.host_path:
                stager.open_host_folder(item.name, item.host_path)
                continue
            try:
                stager.bring(f"input {item.name}", item.bucket, item.key, folders.input(item.name))
            except NotFound as fault:
                raise NotFound(
                    f"The input '{item.name}' (obs://{item.bucket}/{item.key}) is not there any more.",
                    hint="Upload it again and rerun the job.",
                    code="input",
                ) from fault
    except BaseException:
        folders.close()
        raise
    for output in launch.outputs:
        folders.output(output.name).mkdir(exist_ok=True)
    return folders


class _Stager:
    """Brings one folder after the other, each by the way that suits it."""

    def __init__(
        self,
        open_store: Callable[[], ObjectStore],
        site: Site,
        folders: StagedFolders,
        say: Callable[[str], None],
        check_stop: Callable[[], None],
    ) -> None:
        self._open_store = open_store
        self._folders = folders
        self._say = say
        self._check_stop = check_stop
        self._site = site
        # Without a wall around the job nothing that is shared may come near it.
        self._cache = Path(site.input_cache) if site.input_cache and not site.allow_unsandboxed else None

    def bring(self, name: str, bucket: str, key: str, target: Path) -> None:
        """Make a folder or object of the store ready in the place of `target`."""
        from trainshed.store.staged_tree import TreeFacts, measure
        from trainshed.store.transfer import download_tree, is_near

        self._check_stop()
        began = time.monotonic()
        target.mkdir(exist_ok=True)
        store = self._open_store()
        facts = measure(store, bucket, key)
        watch = StagingWatch(name, facts, self._say, self._check_stop)
        is_small = facts.files <= _FEW_FILES and facts.bytes <= _FEW_BYTES
        tree = None if is_small or self._cache is None else self._take_tree(self._cache, facts, watch)
        if tree is not None:
            self._folders.trees[target] = tree
            facts, skipped = tree.facts, tree.facts.skipped
            how = (
                f"staged in {time.monotonic() - began:.1f} s" if tree.was_built else "already on this machine"
            )
        else:
            self._make_room(facts.bytes)
            summary = download_tree(store, bucket, key, target, on_progress=watch, verify=not is_near(store))
            facts = TreeFacts("", bucket, key, summary.files, summary.bytes)
            skipped, how = summary.skipped_count, f"copied in {time.monotonic() - began:.1f} s"
        if name != "code":
            self._say(f"{name}: {count_files(facts.files)}, {format_size(facts.bytes)}, {how}")
        if skipped:
            self._say(f"{name}: {skipped} objects were left out: their keys cannot be names of files")

    def open_host_folder(self, name: str, path: str) -> None:
        """Make a folder of this machine ready to be seen as an input, if the administrator offers it."""
        from trainshed.runner.host_folder import open_host_folder

        target = self._folders.input(name)
        target.mkdir(exist_ok=True)
        root = self._folders.root
        self._folders.host_folders[target] = open_host_folder(path, self._site.host_folders, root)
        self._say(f"input {name}: {path} of this machine, read-only")

    def _take_tree(self, cache: Path, facts: TreeFacts, watch: StagingWatch) -> StagedTree | None:
        """The tree of a folder, or None where there can be none and it must be copied."""
        from trainshed.store.staged_tree import TreeCache

        try:
            return TreeCache(cache).obtain(self._open_store(), facts.bucket, facts.key, on_progress=watch)
        except OSError as error:
            if error.errno in _NO_ROOM:
                raise
            self._say(f"the input cache cannot be used ({error.strerror}): copying")
            return None

    def _make_room(self, size: int) -> None:
        """Refuse at once what cannot fit, rather than after an hour of copying."""
        if not size or _free_bytes(self._folders.root) > size + _SPARE_BYTES:
            return
        if self._cache is not None:
            from trainshed.store.staged_tree import TreeCache

            TreeCache(self._cache).sweep(unused_for=0, largest=0)
        free = _free_bytes(self._folders.root)
        if free <= size + _SPARE_BYTES:
            raise HostUnfit(
                f"The node's disk has {free / 1e9:.1f} GB free, and this job's data needs {size / 1e9:.1f} GB.",
                hint="Free some room (`trainshed status` shows it), then rerun the job.",
                code="disk_full",
            )


def _free_bytes(folder: Path) -> int:
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


def give_to(path: Path, uid: int) -> None:
    """Make a user the owner of a tree, without following links and without touching shared files."""
    descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        give_tree(descriptor, uid, uid)
    finally:
        os.close(descriptor)
