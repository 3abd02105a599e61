"""Inputs, outputs and parameters of a job, as folders and as arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from trainshed.model.host_folder import is_host_url, parse_host_url
from trainshed.model.launch_plan import InputFolder, OutputFolder
from trainshed.model.names import parse_obs_url

__all__ = ["input_folders", "name_arguments", "output_folders", "path_of", "render_value"]


def input_folders(spec: dict[str, Any], locate: Callable[[str], str]) -> tuple[InputFolder, ...]:
    """The job's inputs, each at the path that `locate` gives its name."""
    return tuple(_input(name, text, locate(name)) for name, text in spec.get("inputs", {}).items())


def output_folders(spec: dict[str, Any], locate: Callable[[str], str]) -> tuple[OutputFolder, ...]:
    """The job's outputs, each at the path that `locate` gives its name."""
    return tuple(
        OutputFolder(name, url.bucket, url.as_folder().key, locate(name))
        for name, url in ((name, parse_obs_url(text)) for name, text in spec.get("outputs", {}).items())
    )


def path_of(folder: InputFolder | OutputFolder) -> str:
    """What the script is told: the folder, or the file itself where an input is a single object."""
    if isinstance(folder, InputFolder) and folder.key and not folder.key.endswith("/"):
        return f"{folder.path}/{folder.key.rsplit('/', 1)[-1]}"
    return folder.path


def name_arguments(named: Iterable[tuple[str, Any]]) -> tuple[str, ...]:
    """Values as arguments: --name=value."""
    return tuple(f"--{name}={render_value(value)}" for name, value in named)


def render_value(value: Any) -> str:
    """A value of a job file as an argument or a variable."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _input(name: str, text: str, path: str) -> InputFolder:
    if is_host_url(text):
        return InputFolder(name, "", "", path, host_path=parse_host_url(text))
    url = parse_obs_url(text)
    return InputFolder(name, url.bucket, url.key, path)
