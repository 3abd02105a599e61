"""The bubblewrap command line: a root file system built from an allow-list."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from trainshed.model.errors import HostUnfit
from trainshed.model.launch_plan import GeneratedFile
from trainshed.runner.sandbox.spec import Mount, SandboxSpec
from trainshed.runner.sandbox.stage import Binding

__all__ = [
    "build_arguments",
    "find_bubblewrap",
    "list_etc",
    "list_platform_mounts",
    "render_identity_files",
]

INSTALL = "Debian, Ubuntu: apt install bubblewrap; Fedora, RHEL: dnf install bubblewrap"

# What of the host a job sees beside its own folders. Nothing here may hold a secret: certificates and
# no keys, library paths and no configuration of services.
SYSTEM_LINKS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
SYSTEM_FILES = (
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/ca-certificates.conf",
    "/etc/crypto-policies",
    "/etc/fonts",
    "/etc/gai.conf",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/magic",
    "/etc/mime.types",
    "/etc/openmpi",
    "/etc/OpenCL",
    "/etc/os-release",
    "/etc/pki/ca-trust",
    "/etc/pki/tls/cert.pem",
    "/etc/pki/tls/certs",
    "/etc/pki/tls/openssl.cnf",
    "/etc/protocols",
    "/etc/services",
    "/etc/shells",
    "/etc/ssl/cert.pem",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/timezone",
)
# Files of /proc that tell about other processes of the same user, or of the host.
HIDDEN = ("/proc/keys", "/proc/timer_list", "/proc/sched_debug", "/proc/latency_stats")
# CPU and NUMA topology: OpenMP and cpuinfo (PyTorch) misjudge the machine without it.
TOPOLOGY = ("/sys/devices/system/cpu", "/sys/devices/system/node")
# What device libraries read to find the devices and how they are connected.
DEVICE_FILES = (
    "/sys/bus/pci",
    "/sys/class/infiniband",
    "/sys/class/net",
    "/sys/devices",
    "/sys/module/nvidia",
)
DEVICE_SETTINGS = ("/etc/ascend_install.info", "/etc/hccn.conf", "/etc/nccl.conf")


def find_bubblewrap() -> str:
    """The bubblewrap program of this machine."""
    for folder in os.environ.get("PATH", "/usr/bin:/bin:/usr/local/bin").split(":"):
        path = os.path.join(folder, "bwrap")
        if folder and os.access(path, os.X_OK):
            return path
    raise HostUnfit(
        "bubblewrap is not installed: jobs cannot be walled off from this machine.",
        hint=f"Install it ({INSTALL}), or start the platform with --allow-unsandboxed.",
    )


def build_arguments(spec: SandboxSpec, bindings: list[Binding], info: int) -> list[str]:
    """Every option of bubblewrap for a spec whose folders are staged."""
    arguments = ["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    if spec.network != "open" and spec.shared_network < 0:
        arguments += ["--unshare-net"]
    arguments += ["--disable-userns", "--die-with-parent", "--as-pid-1", "--cap-drop", "ALL", "--clearenv"]
    arguments += [
        "--uid",
        str(spec.inside_uid),
        "--gid",
        str(spec.inside_gid),
        "--hostname",
        spec.hostname[:63],
    ]
    arguments += ["--info-fd", str(info), "--ro-bind", "/usr", "/usr"]
    for path in SYSTEM_LINKS:
        if os.path.islink(path):
            arguments += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            arguments += ["--ro-bind", path, path]
    arguments += ["--proc", "/proc", "--dev", "/dev"]
    for path in HIDDEN:
        if os.path.exists(path):
            # Devices do not work on a plain bind mount: whoever opens it is refused.
            arguments += ["--ro-bind", "/dev/null", path]
    if spec.limits.memory_mb:
        arguments += ["--size", str(spec.limits.memory_mb << 20)]
    arguments += ["--perms", "1777", "--tmpfs", "/dev/shm"]
    for path in DEVICE_FILES if spec.devices else TOPOLOGY:
        if os.path.exists(path):
            arguments += ["--ro-bind", path, path]
    for device in spec.devices:
        arguments += ["--dev-bind", str(device), str(device)]
    for binding in bindings:
        arguments += ["--bind" if binding.writable else "--ro-bind", binding.source, binding.target]
    return [*arguments, "--remount-ro", "/", "--chdir", "/"]


def list_etc(spec: SandboxSpec) -> list[str]:
    """What of the host's /etc the job sees, where it exists."""
    return [*SYSTEM_FILES, *(DEVICE_SETTINGS if spec.devices else ())]


def list_platform_mounts(spec: SandboxSpec) -> list[Mount]:
    """The interpreters that init and the job run on, where they lie outside of /usr."""
    prefixes = {Path(sys.base_prefix).resolve()}
    if spec.interpreter_prefix is not None:
        prefixes.add(spec.interpreter_prefix)
    return [Mount(prefix, str(prefix)) for prefix in sorted(prefixes) if not prefix.is_relative_to("/usr")]


def render_identity_files(spec: SandboxSpec) -> list[GeneratedFile]:
    """The small files of /etc that say who and where the job is."""
    user, uid, gid = spec.user_name, spec.inside_uid, spec.inside_gid
    passwd = (
        "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n"
        f"{user}:x:{uid}:{gid}:{user}:{spec.home}:/bin/bash\n"
        "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
    )
    group = f"root:x:0:\n{user}:x:{gid}:\nnogroup:x:65534:\n"
    own_name = "" if spec.peers else f" {spec.hostname}"
    hosts = f"127.0.0.1 localhost{own_name}\n::1 localhost ip6-localhost\n"
    hosts += "".join(f"{peer.address} {' '.join(peer.names)}\n" for peer in spec.peers)
    hosts += "".join(f"{address} {name}\n" for address, name in spec.hosts)
    # The sandbox's own resolver; where there is none, the question is refused at once.
    resolver = "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n"
    if spec.network == "open":
        try:
            resolver = Path("/etc/resolv.conf").read_text(errors="replace")
        except OSError:
            pass
    return [
        GeneratedFile("/etc/passwd", passwd),
        GeneratedFile("/etc/group", group),
        GeneratedFile("/etc/hosts", hosts),
        GeneratedFile("/etc/hostname", f"{spec.hostname}\n"),
        GeneratedFile("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n"),
        GeneratedFile("/etc/resolv.conf", resolver),
    ]
