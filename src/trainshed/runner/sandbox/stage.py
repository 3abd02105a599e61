"""The stage: every folder and file a job may see, gathered where bubblewrap can bind them from.

The stage is a small in-memory file system inside the runner's private mount namespace. A job started by
root runs as a user who cannot enter the platform's home; what it may see is bound onto the stage, which it
can reach by exact name only. All of it vanishes with the runner.

No path is looked up here by following a link that a job could have made: below the run folder every step
is taken with O_NOFOLLOW, and mount points and generated files inside a job's folders are made the same way.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from trainshed.model.errors import HostUnfit, InvalidInput
from trainshed.model.launch_plan import GeneratedFile
from trainshed.runner.sandbox import namespace
from trainshed.runner.sandbox.spec import Mount, OverlayMount, SandboxSpec
from trainshed.runner.sandbox.tree_copy import CopyWatch, copy_file, copy_tree

__all__ = ["Binding", "Stage"]

STAGE_FOLDERS = ("/run/trainshed-stage", "/var/lib/trainshed-stage", "/mnt/trainshed-stage")
PRIVATE_FOLDERS = (("tmp", "/tmp"), ("var-tmp", "/var/tmp"), ("cache", "/cache"))
STAGE_FLAGS, STAGE_OPTIONS = namespace.MS_NOSUID | namespace.MS_NODEV, "mode=0711,size=64m"
LARGEST_COPY = 512 * 1024
FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_mounted: dict[str, int] = {}
_count = 0


@dataclass(frozen=True)
class Binding:
    """One bind mount that bubblewrap makes."""

    source: str
    target: str
    writable: bool


class Stage:
    """Gathers what a spec names; `bindings` is what bubblewrap then binds, outermost first."""

    def __init__(self, spec: SandboxSpec, watch: CopyWatch = lambda state: None) -> None:
        self._watch = watch
        self.spec = spec
        self.bindings: list[Binding] = []
        self.copied: list[str] = []
        self._next = 0
        self._helpers: list[int] = []
        self._users: dict[tuple[int, int], int] = {}
        self._owner = owner_of(spec)
        self._folder = Path()
        self._etc = ""

    def build(
        self,
        program: tuple[str, bytes],
        etc: list[str],
        files: list[GeneratedFile],
        platform_mounts: list[Mount],
    ) -> None:
        """Bind, mount and write everything; needs `namespace.enter_private_namespace()` first.

        `program` is init's path and content, `etc` names what of the host's /etc the job sees, and `files`
        are those of /etc that are written for it.
        """
        global _count
        _count += 1
        self._folder = mount_stage(self.spec) / str(_count)
        self._folder.mkdir(mode=0o711)
        namespace.mount("tmpfs", self._folder, "tmpfs", STAGE_FLAGS, STAGE_OPTIONS)
        mask = os.umask(0o022)
        self._compose_etc(etc, files)
        os.umask(mask)
        asked: list[Mount | OverlayMount] = [*self.spec.mounts, *self.spec.overlays]
        taken = {item.target for item in asked}
        private = [
            Mount(self.spec.run_root / name, target, writable=True)
            for name, target in (*PRIVATE_FOLDERS, ("home", self.spec.home))
            if target not in taken
        ]
        items = [*platform_mounts, *private, *asked]
        items.sort(key=lambda item: item.target.count("/"))
        for item in items:
            check_target(item.target)
            source = self._mount(item) if isinstance(item, OverlayMount) else self._bind(item)
            writable = isinstance(item, OverlayMount) or item.writable
            self._make_mount_point(item.target, source)
            self.bindings.append(Binding(str(source), item.target, writable))
        self._place(program[0], program[1], 0o644)
        for file in self.spec.files:
            self._write(file)
        for users in self._users.values():
            os.close(users)
        self._users.clear()

    def close(self) -> None:
        """Take the mounts away before the runner ends, so that the run folder can be removed."""
        try:
            namespace.unmount(self._folder)
        except OSError:
            pass
        for item in self.spec.overlays:
            clear_work_folder(item.work)
        for helper in self._helpers:
            try:
                os.waitpid(helper, 0)
            except ChildProcessError:
                pass
        self._helpers.clear()

    def _new_leaf(self, is_folder: bool) -> Path:
        leaf = self._folder / str(self._next)
        self._next += 1
        if is_folder:
            leaf.mkdir(mode=0o700)
        else:
            leaf.touch(mode=0o600)
        return leaf

    def _compose_etc(self, names: list[str], files: list[GeneratedFile]) -> None:
        """Small files of /etc are copied into one folder: a mount for each would take most of the start."""
        self._etc = str(self._new_leaf(is_folder=True))
        os.chmod(self._etc, 0o755)
        self.bindings.append(Binding(self._etc, "/etc", writable=self.spec.has_writable_etc))
        for name in names:
            copy = f"{self._etc}/{name.removeprefix('/etc/')}"
            try:
                found = os.stat(name)
                if not found.st_mode & stat.S_IROTH:
                    continue  # as root we could read it; the job must not
                os.makedirs(os.path.dirname(copy), exist_ok=True)
                if stat.S_ISREG(found.st_mode) and found.st_size <= LARGEST_COPY:
                    copy_file(name, copy)
                else:
                    os.mkdir(copy) if stat.S_ISDIR(found.st_mode) else Path(copy).touch()
                    self.bindings.append(Binding(name, name, writable=False))
            except (FileNotFoundError, NotADirectoryError, PermissionError):
                continue
        for file in files:
            (Path(self._etc) / file.path.removeprefix("/etc/")).write_text(file.content)
        if self.spec.has_writable_etc and self._owner:
            descriptor = os.open(self._etc, FOLDER)
            try:
                give_tree(descriptor, *self._owner)
            finally:
                os.close(descriptor)

    def _bind(self, item: Mount) -> Path:
        descriptor = self._open(item.source, create=item.writable)
        try:
            is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
            if item.writable and self._owner and self._is_ours(item.source):
                give_tree(descriptor, *self._owner)
            if not self._owner and not item.source.is_relative_to("/proc"):
                return item.source  # bubblewrap can go there itself, with our own rights
            leaf = self._new_leaf(is_folder)
            namespace.bind(descriptor, leaf)
        finally:
            os.close(descriptor)
        return leaf

    def _mount(self, item: OverlayMount) -> Path:
        lower = self._open(item.lower)
        upper = self._open(item.upper, create=True)
        work = self._open(item.work, create=True)
        try:
            leaf = self._new_leaf(is_folder=True)
            upper_path, work_path = f"/proc/self/fd/{upper}", f"/proc/self/fd/{work}"
            if self._owner:
                os.chown(upper_path, *self._owner)
            try:
                lower_path = self._show_as_owned(lower)
                namespace.mount_overlay(lower_path, upper_path, work_path, leaf)
            except OSError:
                # No overlay here (kernel or file system): a copy gives the job the same view.
                copy_tree(lower, upper, item.target, self._watch)
                if self._owner:
                    give_tree(upper, *self._owner)
                namespace.bind(upper, leaf)
                self.copied.append(item.target)
        finally:
            for descriptor in (lower, upper, work):
                os.close(descriptor)
        return leaf

    def _show_as_owned(self, lower: int) -> str:
        """The tree with the job's user as its owner: else it could not write into folders of root's."""
        if not self._owner:
            return f"/proc/self/fd/{lower}"
        found = os.fstat(lower)
        owner = found.st_uid, found.st_gid
        if owner not in self._users:
            self._users[owner], helper = namespace.open_user_namespace(owner, self._owner)
            self._helpers.append(helper)
        leaf = self._new_leaf(is_folder=True)
        namespace.bind_with_owner(lower, leaf, self._users[owner])
        return str(leaf)

    def _open(self, path: Path, create: bool = False) -> int:
        if not self._is_ours(path):
            try:
                return os.open(path, os.O_PATH | os.O_CLOEXEC)
            except OSError as error:
                raise HostUnfit(f"The sandbox needs {path}: {error.strerror}.") from error
        run_folder = self.spec.run_root.parent
        try:
            return open_beneath(run_folder, path.relative_to(run_folder).parts, create=create)
        except OSError as error:
            raise HostUnfit(f"The sandbox cannot use {path}: {error.strerror}.", code="sandbox") from error

    def _is_ours(self, path: Path) -> bool:
        return path.is_relative_to(self.spec.run_root.parent)

    def _find_cover(self, target: str) -> Binding | None:
        covers = [item for item in self.bindings if target.startswith(item.target.rstrip("/") + "/")]
        return max(covers, key=lambda item: len(item.target), default=None)

    def _make_mount_point(self, target: str, source: Path) -> None:
        """Make the mount point inside a folder of the job; bubblewrap would follow links on its way."""
        cover = self._find_cover(target)
        if cover is None:
            return
        *folders, name = target[len(cover.target.rstrip("/")) + 1 :].split("/")
        try:
            parent = self._open_in(cover, tuple(folders))
        except OSError as error:
            raise refuse(target, error) from error
        try:
            is_folder = source.is_dir()
            if cover.writable or cover.source == self._etc:
                make_entry(parent, name, is_folder, self._owner)
            found = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
            if stat.S_ISLNK(found) or stat.S_ISDIR(found) != is_folder:
                raise refuse(target, OSError("something else is there"))
        except OSError as error:
            raise refuse(target, error) from error
        finally:
            os.close(parent)

    def _open_in(self, cover: Binding, folders: tuple[str, ...]) -> int:
        owner = self._owner if cover.writable else None
        return open_beneath(Path(cover.source), folders, create=cover.writable, owner=owner)

    def _write(self, file: GeneratedFile) -> None:
        check_target(file.path)
        content = file.content.encode()
        cover = self._find_cover(file.path)
        if cover is not None and cover.writable and cover.target not in self.spec.shared_targets:
            *folders, name = file.path[len(cover.target.rstrip("/")) + 1 :].split("/")
            try:
                parent = self._open_in(cover, tuple(folders))
                try:
                    write_new(parent, name, content, file.mode, self._owner)
                finally:
                    os.close(parent)
            except OSError as error:
                raise refuse(file.path, error) from error
            return
        self._place(file.path, content, file.mode)

    def _place(self, target: str, content: bytes, mode: int) -> None:
        """A file of the platform's, which the job can read and not change."""
        leaf = self._new_leaf(is_folder=False)
        leaf.write_bytes(content)
        if self._owner:
            os.chown(leaf, *self._owner)
        leaf.chmod(mode)
        self._make_mount_point(target, leaf)
        self.bindings = [item for item in self.bindings if item.target != target]
        self.bindings.append(Binding(str(leaf), target, writable=False))


def clear_work_folder(work: Path) -> None:
    """Remove what the kernel left: folders without any permission, at which a plain removal would fail."""
    for name in ("work", "index"):
        try:
            (work / name).chmod(0o700)
            (work / name).rmdir()
        except OSError:
            pass


def owner_of(spec: SandboxSpec) -> tuple[int, int] | None:
    """The (uid, gid) that the job's files must belong to, when it is not our own."""
    if os.geteuid() != 0 or spec.outside_uid is None:
        return None
    return spec.outside_uid, spec.outside_uid if spec.outside_gid is None else spec.outside_gid


def mount_stage(spec: SandboxSpec) -> Path:
    """The stage of this process, mounted on first use."""
    for known, pid in _mounted.items():
        if pid == os.getpid():
            return Path(known)
    places = STAGE_FOLDERS if os.geteuid() == 0 else (str(spec.run_root.parent / "stage"),)
    reason = ""
    for place in places:
        try:
            Path(place).mkdir(mode=0o711, parents=True, exist_ok=True)
            namespace.mount("tmpfs", place, "tmpfs", STAGE_FLAGS, STAGE_OPTIONS)
        except OSError as error:
            reason = f"{place}: {error.strerror}"
            continue
        _mounted[place] = os.getpid()
        return Path(place)
    raise HostUnfit(
        f"No place for the sandbox's stage ({reason}).", hint="Make /run writable for the platform."
    )


def check_target(target: str) -> None:
    """Refuse a path that could not mean what it says."""
    if not target.startswith("/") or os.path.normpath(target) != target or target == "/":
        raise InvalidInput(f"'{target}' cannot be a path inside a job.", hint="Use a plain absolute path.")


def refuse(target: str, error: OSError) -> InvalidInput:
    """The error for a path that the job's own files stand in the way of."""
    return InvalidInput(
        f"The platform cannot place {target} in the job: {error.strerror or error}.",
        hint="A file or a symbolic link of the code or the inputs has the same path: rename it.",
    )


def open_beneath(
    root: Path, parts: tuple[str, ...], *, create: bool = False, owner: tuple[int, int] | None = None
) -> int:
    """Open a path below `root` without following any link on the way; missing folders can be made."""
    current = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    for index, part in enumerate(parts):
        is_last = index == len(parts) - 1
        flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC | (0 if is_last else os.O_DIRECTORY)
        try:
            try:
                following = os.open(part, flags, dir_fd=current)
            except FileNotFoundError:
                if not create:
                    raise
                make_entry(current, part, True, owner)
                following = os.open(part, FOLDER, dir_fd=current)
        finally:
            os.close(current)
        current = following
        if stat.S_ISLNK(os.fstat(current).st_mode):
            os.close(current)
            raise NotADirectoryError(20, "a symbolic link is in the way", str(Path(root, *parts)))
    return current


def make_entry(parent: int, name: str, is_folder: bool, owner: tuple[int, int] | None) -> None:
    """Make an empty folder or file, unless something has that name. In a folder that nodes share, another one may
    make it at the same moment."""
    try:
        if is_folder:
            os.mkdir(name, 0o755, dir_fd=parent)
        else:
            os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644, dir_fd=parent))
    except FileExistsError:
        return
    if owner:
        os.chown(name, *owner, dir_fd=parent, follow_symlinks=False)


def write_new(parent: int, name: str, content: bytes, mode: int, owner: tuple[int, int] | None) -> None:
    """Write a file in place of whatever has its name, link or file."""
    try:
        os.unlink(name, dir_fd=parent)
    except FileNotFoundError:
        pass
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
    with os.fdopen(os.open(name, flags, 0o600, dir_fd=parent), "wb") as file:
        file.write(content)
        if owner:
            os.fchown(file.fileno(), *owner)
        os.fchmod(file.fileno(), mode)


def give_tree(descriptor: int, uid: int, gid: int) -> None:
    """Give a tree to the job's user. A file with a second hard link may be someone else's: left alone."""
    found = os.fstat(descriptor)
    if not stat.S_ISDIR(found.st_mode):
        if found.st_nlink == 1:
            os.chown(f"/proc/self/fd/{descriptor}", uid, gid)
        return
    folder = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for _, folders, files, here in os.fwalk(".", dir_fd=folder, follow_symlinks=False):
            os.fchown(here, uid, gid)
            for name in (*folders, *files):
                entry = os.stat(name, dir_fd=here, follow_symlinks=False)
                if entry.st_uid != uid and (stat.S_ISDIR(entry.st_mode) or entry.st_nlink == 1):
                    os.chown(name, uid, gid, dir_fd=here, follow_symlinks=False)
    finally:
        os.close(folder)
