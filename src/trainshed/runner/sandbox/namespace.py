"""Linux namespaces and mounts, through the C library."""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path

from trainshed.model.errors import HostUnfit

__all__ = [
    "bind",
    "bind_with_owner",
    "claim_namespace",
    "enter_private_namespace",
    "enter_user_namespace",
    "join_network",
    "mount",
    "mount_overlay",
    "open_user_namespace",
    "unmount",
    "unshare_network",
]

CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWNET = 0x00020000, 0x10000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 4096, 16384, 1 << 18
MNT_DETACH = 2
# These system calls came after the tables were unified: one number on every architecture.
SYS_OPEN_TREE, SYS_MOVE_MOUNT, SYS_MOUNT_SETATTR = 428, 429, 442
OPEN_TREE_CLONE, OPEN_TREE_CLOEXEC, MOVE_MOUNT_F_EMPTY_PATH = 1, os.O_CLOEXEC, 4
AT_FDCWD, AT_EMPTY_PATH = -100, 0x1000
MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID, MOUNT_ATTR_NODEV, MOUNT_ATTR_IDMAP = 1, 2, 4, 0x00100000

_libc = ctypes.CDLL(None, use_errno=True)
_private_in = 0


class _MountAttributes(ctypes.Structure):
    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


def enter_private_namespace(users: int = -1) -> None:
    """Give this process mounts of its own, which vanish with it. A second call does nothing.

    An ordinary user gets a user namespace as well, in which the ids stay what they are: a new one, or the one
    that `users` is a descriptor of. The kernel allows that only while the process has a single thread.
    """
    global _private_in
    if _private_in == os.getpid():
        return
    if os.geteuid() != 0:
        if users < 0:
            enter_user_namespace()
        else:
            wait_for_threads()
            _check(_libc.setns(users, CLONE_NEWUSER), "enter the user namespace of the job's network")
    _check(_libc.unshare(CLONE_NEWNS), "create a mount namespace")
    _private_in = os.getpid()
    mount("none", "/", None, MS_REC | MS_PRIVATE)


def enter_user_namespace() -> None:
    """Give this process a user namespace of its own, in which its ids stay what they are."""
    uid, gid = os.geteuid(), os.getegid()
    wait_for_threads()
    _check(_libc.unshare(CLONE_NEWUSER), "create a user namespace")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")


def unshare_network() -> None:
    """Give the calling thread, and no other, a new and empty network."""
    _check(_libc.unshare(CLONE_NEWNET), "create a network namespace")


def join_network(descriptor: int) -> None:
    """Take the calling thread, and no other, into a network."""
    _check(_libc.setns(descriptor, CLONE_NEWNET), "enter the job's network")


def _check(result: int, deed: str) -> None:
    if result != 0:
        reason = os.strerror(ctypes.get_errno())
        raise HostUnfit(f"This process may not {deed}: {reason}.", hint=describe_namespace_fix())


def claim_namespace() -> None:
    """Enter the private namespace now, if the machine allows it. To be called at the very start of a
    runner, while it surely has one thread; where it is not possible, preparing a sandbox says why."""
    try:
        enter_private_namespace()
    except (HostUnfit, OSError):
        pass


def wait_for_threads(seconds: float = 5.0) -> None:
    """Wait for threads that have been joined, or are about to end, to be gone for the kernel too."""
    deadline = time.monotonic() + seconds
    while len(os.listdir("/proc/self/task")) > 1:
        if time.monotonic() > deadline:
            raise HostUnfit(
                "The runner has threads, and the kernel gives a user namespace to single threads only.",
                hint="This is a mistake of the platform's: please report it.",
                code="sandbox",
            )
        time.sleep(0.001)


def describe_namespace_fix() -> str:
    """What an administrator must change for user namespaces to work, read from this machine."""
    for path, bad, good in (
        ("/proc/sys/kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"),
        (
            "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        ("/proc/sys/user/max_user_namespaces", "0", "user.max_user_namespaces=15000"),
    ):
        try:
            if Path(path).read_text().strip() == bad:
                return f"An administrator can allow it: sysctl -w {good} (and a file in /etc/sysctl.d)."
        except OSError:
            continue
    return (
        "Inside a container, start it with user namespaces allowed (for Docker or Podman: "
        "--security-opt seccomp=unconfined --security-opt systempaths=unconfined)."
    )


def mount(source: str, target: str | Path, kind: str | None, flags: int = 0, options: str = "") -> None:
    """mount(2)."""
    result = _libc.mount(
        os.fsencode(source),
        os.fsencode(target),
        kind.encode() if kind else None,
        ctypes.c_ulong(flags),
        os.fsencode(options) if options else None,
    )
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), str(target))


def unmount(target: str | Path) -> None:
    """Take a mount away, even while something still uses it."""
    if _libc.umount2(os.fsencode(target), MNT_DETACH) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), str(target))


def bind(descriptor: int, target: Path) -> None:
    """Make what an open descriptor points at visible at `target`."""
    mount(f"/proc/self/fd/{descriptor}", target, None, MS_BIND | MS_REC)


def bind_with_owner(descriptor: int, target: Path, users: int) -> None:
    """Make a tree visible at `target`, read-only, with its owner shown as another user (see
    `open_user_namespace`); nothing on disk changes."""
    tree = _call(SYS_OPEN_TREE, descriptor, b"", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH)
    try:
        attributes = _MountAttributes(
            attr_set=MOUNT_ATTR_IDMAP | MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
            userns_fd=users,
        )
        size = ctypes.c_size_t(ctypes.sizeof(attributes))
        _call(SYS_MOUNT_SETATTR, tree, b"", AT_EMPTY_PATH, ctypes.byref(attributes), size)
        _call(SYS_MOVE_MOUNT, tree, b"", AT_FDCWD, os.fsencode(target), MOVE_MOUNT_F_EMPTY_PATH)
    finally:
        os.close(tree)


def mount_overlay(lower: str, upper: str, work: str, target: Path) -> None:
    """Mount a writable view of a read-only tree; changes go to `upper`."""
    # Without an index, whatever the machine's default: two files of the tree that share their bytes (hard links
    # to one blob) are two files for the job, and a change of one is no change of the other.
    options = f"lowerdir={lower},upperdir={upper},workdir={work},index=off"
    if os.geteuid() != 0:
        options += ",userxattr"
    mount("overlay", target, "overlay", MS_NOSUID | MS_NODEV, options)


def open_user_namespace(owner: tuple[int, int], shown: tuple[int, int]) -> tuple[int, int]:
    """A user namespace in which the ids (uid, gid) of `owner` stand for those of `shown`, and all others
    for themselves.

    Returns its descriptor, and the pid of a helper that ends by itself and is to be waited for later (its
    end takes longer than all the rest).
    """
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(ready[1], b"1" if _libc.unshare(CLONE_NEWUSER) == 0 else b"0")
            os.close(go[1])
            os.read(go[0], 1)
        finally:
            os._exit(0)
    try:
        if os.read(ready[0], 1) != b"1":
            raise OSError("The kernel refused a user namespace.")
        Path(f"/proc/{child}/uid_map").write_text(render_id_map(owner[0], shown[0]))
        Path(f"/proc/{child}/gid_map").write_text(render_id_map(owner[1], shown[1]))
        return os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC), child
    except BaseException:
        os.close(go[1])
        go = (go[0], -1)
        os.waitpid(child, 0)
        raise
    finally:
        for descriptor in (*ready, *go):
            if descriptor >= 0:
                os.close(descriptor)


def render_id_map(owner: int, shown: int) -> str:
    """The map of a user namespace that shows one id as another. The other id's own files belong to
    nobody then: they must not seem to be the owner's."""
    low, high = sorted((owner, shown))
    gaps = ((0, low), (low + 1, high), (high + 1, 2**32 - 1))
    lines = [f"{first} {first} {last - first}" for first, last in gaps if last > first]
    return "\n".join([*lines, f"{owner} {shown} 1"])


def _call(number: int, *arguments: object) -> int:
    result: int = _libc.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result
