"""Which folders, files and limits the sandbox of a node gets."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from trainshed.model.home import RunFolder
from trainshed.model.launch_plan import NodeLaunch
from trainshed.runner.environment.built import EnvironmentPaths
from trainshed.runner.kept_folders import mount_kept_folders
from trainshed.runner.sandbox import Forward, Mount, OverlayMount, SandboxSpec
from trainshed.runner.shims import SHIMS_PATH, shims_folder
from trainshed.runner.site import Site
from trainshed.runner.staging import StagedFolders
from trainshed.runner.system_layer import lay_over_system

__all__ = ["CA_BUNDLE_PATH", "plan_sandbox", "renumber_devices", "trust_variables"]

# The CAs that a job trusts, where the platform speaks TLS.
CA_BUNDLE_PATH = "/opt/trainshed/ca-bundle.pem"
_GPU_VARIABLE = "CUDA_VISIBLE_DEVICES"
# OpenSSL, Go and Rust read the first; requests, boto3, curl, git and our own client one each.
_TRUST_VARIABLES = (
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "AWS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "TRAINSHED_CA",
)


def plan_sandbox(
    launch: NodeLaunch, site: Site, folder: RunFolder, folders: StagedFolders, environment: EnvironmentPaths
) -> SandboxSpec:
    """The sandbox of one node, from its launch plan and from what lies on the machine."""
    mounts = [
        Mount(folders.run, "/job/run", writable=True),
        Mount(shims_folder(), SHIMS_PATH, writable=False),
    ]
    if site.ca_bundle:
        mounts.append(Mount(Path(site.ca_bundle), CA_BUNDLE_PATH))
    overlays = [
        _lay_over(environment.path_on_host, folder.path / "environment-layer", environment.target, site)
    ]
    staged = [(folders.code, launch.code_path)]
    staged += [(folders.input(item.name), item.path) for item in launch.inputs]
    for number, (source, target) in enumerate(staged):
        tree, descriptor = folders.trees.get(source), folders.host_folders.get(source)
        if descriptor is not None:
            # By descriptor: what was checked is what is seen.
            mounts.append(Mount(Path(f"/proc/self/fd/{descriptor}"), target))
        elif tree is None:
            mounts.append(Mount(source, target, writable=True))
        else:
            overlays.append(_lay_over(tree.folder, folder.path / "input-layers" / str(number), target, site))
    mounts += [Mount(folders.output(item.name), item.path, writable=True) for item in launch.outputs]
    if launch.checkpoints is not None:
        from trainshed.runner.checkpoints import checkpoint_folder

        mounts.append(Mount(checkpoint_folder(folders.root), launch.checkpoints.path, writable=True))
    mounts += _own_folders(launch, folders)
    mounts += mount_kept_folders(launch, site)
    if launch.has_system_layer:
        more_mounts, more_overlays = lay_over_system(folder.path / "system-layer", site.uid)
        mounts += more_mounts
        overlays += more_overlays
    return SandboxSpec(
        run_root=folder.root,
        mounts=tuple(mounts),
        overlays=tuple(overlays),
        files=launch.files,
        hostname=_host_name(launch),
        peers=launch.peers,
        network=launch.network,
        hosts=_platform_hosts(launch, site),
        forwards=tuple(Forward(item.port, item.host, item.port) for item in site.ports),
        limits=launch.limits,
        inside_uid=launch.uid,
        inside_gid=launch.uid,
        user_name=launch.user,
        shared_targets=tuple(item.path for item in launch.kept),
        has_writable_etc=launch.has_system_layer,
        home=launch.home,
        outside_uid=site.uid,
        devices=_devices(launch),
        interpreter_prefix=environment.interpreter_prefix or Path(sys.base_prefix),
        allow_unsandboxed=site.allow_unsandboxed,
    )


def _devices(launch: NodeLaunch) -> tuple[Path, ...]:
    if launch.rehearsal or not launch.devices:
        return ()
    from trainshed.runner.inventory import device_paths

    return tuple(device_paths(launch.device_kind, launch.devices))


def trust_variables(site: Site, *, is_walled: bool) -> dict[str, str]:
    """The variables by which programs of a job find the CAs to trust; none where the platform has no TLS."""
    if not site.ca_bundle:
        return {}
    return dict.fromkeys(_TRUST_VARIABLES, CA_BUNDLE_PATH if is_walled else site.ca_bundle)


def renumber_devices(launch: NodeLaunch, variables: dict[str, str], *, is_walled: bool) -> dict[str, str]:
    """The variables of a process, with its GPUs numbered as it sees them.

    NVIDIA's libraries number the devices that they can open, from 0. Behind the wall those are the job's own: the number
    that a GPU has on the machine would name none, or another one. What the user has set stays.
    """
    given = ",".join(str(device) for device in launch.devices)
    if launch.device_kind != "nvidia" or launch.rehearsal or not is_walled:
        return variables
    if variables.get(_GPU_VARIABLE) != given:
        return variables
    return {**variables, _GPU_VARIABLE: ",".join(str(number) for number in range(len(launch.devices)))}


def _host_name(launch: NodeLaunch) -> str:
    if launch.peers:
        return launch.peers[launch.node_index].names[0]
    return f"{launch.job_name[:50]}-{launch.node_index}".lower().replace("_", "-").strip("-")


def _platform_hosts(launch: NodeLaunch, site: Site) -> tuple[tuple[str, str], ...]:
    """The platform's name, where its certificate is for a name: inside the wall it is behind the job's loopback."""
    if not site.host_name or not site.ports or site.host_name == "127.0.0.1":
        return ()
    return ((site.ports[0].host if launch.network == "open" else "127.0.0.1", site.host_name),)


def _own_folders(launch: NodeLaunch, folders: StagedFolders) -> list[Mount]:
    """The empty folders of this node, and the one that shows links to the entries of the code folder."""
    mounts = []
    for number, target in enumerate(launch.folders):
        source = folders.root / "folders" / str(number)
        source.mkdir(parents=True, exist_ok=True)
        mounts.append(Mount(source, target, writable=True))
    if launch.code_links:
        links = folders.root / "code-links"
        links.mkdir(exist_ok=True)
        tree = folders.trees.get(folders.code)
        own_name = launch.code_path.rsplit("/", 1)[-1]
        for entry in os.listdir(tree.folder if tree is not None else folders.code):
            if entry != own_name and not os.path.lexists(links / entry):
                os.symlink(f"{launch.code_path}/{entry}", links / entry)
        mounts.append(Mount(links, launch.code_links, writable=True))
    return mounts


def _lay_over(lower: Path, layer: Path, target: str, site: Site) -> OverlayMount:
    """A view of a shared folder whose changes go to a layer of the job's own."""
    upper, work = layer / "upper", layer / "work"
    for path in (upper, work):
        path.mkdir(parents=True, exist_ok=True)
        if site.uid is not None:
            os.chown(path, site.uid, site.uid)
    return OverlayMount(lower, upper, work, target)
