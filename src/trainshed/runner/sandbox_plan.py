"""Which folders, files and limits the sandbox of a node gets."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from trainshed.model.home import RunFolder
from trainshed.model.launch_plan import NodeLaunch
from trainshed.runner.environment.build import EnvironmentPaths
from trainshed.runner.inventory import device_paths
from trainshed.runner.sandbox import Forward, Mount, OverlayMount, SandboxSpec
from trainshed.runner.shims import SHIMS_PATH, shims_folder
from trainshed.runner.site import Site
from trainshed.runner.staging import StagedFolders

__all__ = ["plan_sandbox"]


def plan_sandbox(
    launch: NodeLaunch, site: Site, folder: RunFolder, folders: StagedFolders, environment: EnvironmentPaths
) -> SandboxSpec:
    """The sandbox of one node, from its launch plan and from what lies on the machine."""
    mounts = [
        Mount(folders.run, "/job/run", writable=True),
        Mount(shims_folder(), SHIMS_PATH, writable=False),
    ]
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
    return SandboxSpec(
        run_root=folder.root,
        mounts=tuple(mounts),
        overlays=tuple(overlays),
        files=launch.files,
        hostname=f"{launch.job_name[:50]}-{launch.node_index}".lower().replace("_", "-").strip("-"),
        network=launch.network,
        forwards=tuple(Forward(item.port, item.host, item.port) for item in site.ports),
        limits=launch.limits,
        outside_uid=site.uid,
        devices=() if launch.rehearsal else tuple(device_paths(launch.device_kind, launch.devices)),
        interpreter_prefix=environment.interpreter_prefix or Path(sys.base_prefix),
        allow_unsandboxed=site.allow_unsandboxed,
    )


def _lay_over(lower: Path, layer: Path, target: str, site: Site) -> OverlayMount:
    """A view of a shared folder whose changes go to a layer of the job's own."""
    upper, work = layer / "upper", layer / "work"
    for path in (upper, work):
        path.mkdir(parents=True, exist_ok=True)
        if site.uid is not None:
            os.chown(path, site.uid, site.uid)
    return OverlayMount(lower, upper, work, target)
