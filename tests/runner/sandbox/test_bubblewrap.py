"""The command line of bubblewrap, as plain data."""

from __future__ import annotations

from pathlib import Path

from trainshed.model.launch_plan import Limits
from trainshed.runner.sandbox import SandboxSpec
from trainshed.runner.sandbox.bubblewrap import build_arguments, render_identity_files
from trainshed.runner.sandbox.stage import Binding

FORBIDDEN = (
    "/",
    "/etc",
    "/root",
    "/home",
    "/opt",
    "/srv",
    "/var",
    "/run",
    "/tmp",
    "/dev",
    "/proc",
    "/sys",
    "/boot",
)


def list_sources(arguments: list[str]) -> list[str]:
    return [arguments[place + 1] for place, word in enumerate(arguments) if word.endswith("bind")]


def test_no_folder_of_the_host_is_shared_as_a_whole() -> None:
    for network in ("none", "platform", "open"):
        spec = SandboxSpec(Path("/x"), network=network, devices=(Path("/dev/null"),))
        arguments = build_arguments(spec, [], 3)
        assert not set(list_sources(arguments)) & set(FORBIDDEN)
        assert ("--unshare-net" in arguments) == (network != "open")
        for needed in (
            "--unshare-user",
            "--unshare-pid",
            "--disable-userns",
            "--die-with-parent",
            "--clearenv",
        ):
            assert needed in arguments


def test_bindings_come_after_the_system_and_the_root_is_closed_last() -> None:
    bindings = [Binding("/stage/0", "/data", False), Binding("/stage/1", "/out", True)]
    arguments = build_arguments(SandboxSpec(Path("/x"), limits=Limits(memory_mb=2)), bindings, 3)
    text = " ".join(arguments)
    assert text.endswith("--ro-bind /stage/0 /data --bind /stage/1 /out --remount-ro / --chdir /")
    assert "--size 2097152 --perms 1777 --tmpfs /dev/shm" in text


def test_the_host_s_resolver_is_for_open_networks_only() -> None:
    for network in ("none", "platform"):
        files = {
            file.path: file.content
            for file in render_identity_files(SandboxSpec(Path("/x"), network=network))
        }
        assert files["/etc/resolv.conf"].splitlines()[0] == "nameserver 127.0.0.1"
        assert "trainshed:x:1000:1000" in files["/etc/passwd"] and "root:x:0" in files["/etc/passwd"]
