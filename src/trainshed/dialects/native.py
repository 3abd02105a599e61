"""Trainshed's own conventions: folders below /job, their paths as arguments, a few TRAINSHED_ variables."""

from __future__ import annotations

from typing import Any

from trainshed.dialects.arguments import input_folders, name_arguments, output_folders, path_of
from trainshed.dialects.frameworks import HOST_FILE, render_host_file
from trainshed.dialects.launchers import boot_arguments, command_of
from trainshed.dialects.planned_job import NodeView, PlannedJob, RankView
from trainshed.dialects.world import World, WorldNode
from trainshed.model.launch_plan import GeneratedFile, InputFolder, OutputFolder

__all__ = ["CODE_PATH", "RESERVED_PARAMETERS", "host_names", "plan_node"]

CODE_PATH = "/job/code"
RESERVED_PARAMETERS: frozenset[str] = frozenset()


def host_names(job: PlannedJob, index: int) -> tuple[str, ...]:
    """A node's host names: the job's name with the node's number, and `node-N`."""
    stem = job.name[:50].lower().replace("_", "-").strip("-") or "job"
    return f"{stem}-{index}", f"node-{index}"


def plan_node(job: PlannedJob, world: World, node: WorldNode) -> NodeView:
    """What the native dialect shows on one node."""
    spec = job.spec
    inputs = input_folders(spec, lambda name: f"/job/inputs/{name}")
    outputs = output_folders(spec, lambda name: f"/job/outputs/{name}")
    arguments = _arguments(spec, node, inputs, outputs)
    variables = _folder_variables(inputs, outputs)
    return NodeView(
        code_path=CODE_PATH,
        ranks=tuple(RankView(arguments, CODE_PATH, variables) for _ in range(world.processes)),
        inputs=inputs,
        outputs=outputs,
        files=(GeneratedFile(HOST_FILE, render_host_file(world)),),
    )


def _arguments(
    spec: dict[str, Any],
    node: WorldNode,
    inputs: tuple[InputFolder, ...],
    outputs: tuple[OutputFolder, ...],
) -> tuple[str, ...]:
    if spec.get("command"):
        return command_of(spec, node)
    folders: tuple[InputFolder | OutputFolder, ...] = (*inputs, *outputs)
    named = [(folder.name, path_of(folder)) for folder in folders]
    named += spec.get("parameters", {}).items()
    return (*boot_arguments(f"{CODE_PATH}/{spec['boot']}"), *name_arguments(named))


def _folder_variables(inputs: tuple[InputFolder, ...], outputs: tuple[OutputFolder, ...]) -> dict[str, str]:
    folders: tuple[InputFolder | OutputFolder, ...] = (*inputs, *outputs)
    return {
        f"TRAINSHED_{'INPUT' if isinstance(folder, InputFolder) else 'OUTPUT'}_{_upper(folder.name)}": path_of(
            folder
        )
        for folder in folders
    }


def _upper(name: str) -> str:
    return "".join(char if char.isalnum() else "_" for char in name).upper()
