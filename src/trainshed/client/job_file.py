"""Job files: a job spec as YAML (or JSON), with the line and column of every fault."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainshed.model.errors import InvalidInput, NotFound

__all__ = ["is_local_code", "locate_field", "read_job_file", "resolve_job"]


def read_job_file(path: str | Path, environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """The job that a file describes. Its code folder is meant relative to the file."""
    path = Path(path)
    text = _read_text(path)
    data = _parse(text, path)
    if not isinstance(data, dict):
        raise InvalidInput(
            "A job file is a mapping of fields to values.",
            hint="Start with `name:`, `code:` and `boot:`.",
            where=str(path),
        )
    return resolve_job(data, path.parent, environment, str(path))


def resolve_job(
    data: Mapping[str, Any], base: Path, environment: Mapping[str, str] = os.environ, where: str = "secrets"
) -> dict[str, Any]:
    """The job with its code folder made absolute, and secrets without a value taken from the environment."""
    job = dict(data)
    code = job.get("code")
    if isinstance(code, str) and is_local_code(code):
        job["code"] = str(base.absolute() / Path(code).expanduser())
    secrets = job.get("secrets")
    if isinstance(secrets, dict):
        job["secrets"] = {name: _secret(name, value, environment, where) for name, value in secrets.items()}
    return job


def is_local_code(code: str) -> bool:
    """Whether the code lies in a folder of this machine, and not in the object store."""
    return bool(code) and not code.startswith(("obs://", "s3://", "snapshot:"))


def locate_field(path: str | Path, field: str) -> str:
    """`file:line:column` of a field such as `inputs.data_url`, or just the file when it is not there."""
    import yaml

    try:
        node: Any = yaml.compose(Path(path).read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except (OSError, ValueError, yaml.YAMLError):
        return str(path)
    mark = None
    while field and isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            name = str(key.value)
            if field == name or field.startswith(name + "."):
                mark, node, field = key.start_mark, value, field[len(name) + 1 :]
                break
        else:
            break
    return f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise NotFound(
            f"There is no job file '{path}'.",
            hint="`trainshed run … --dry-run` prints one to start from.",
            code="no_job_file",
            where=str(path),
        ) from None
    except UnicodeDecodeError:
        raise InvalidInput("The job file is not UTF-8 text.", where=str(path)) from None
    except OSError as fault:
        raise InvalidInput(
            f"The job file cannot be read: {(fault.strerror or 'unknown').lower()}.", where=str(path)
        ) from None


def _parse(text: str, path: Path) -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        """YAML in which a field that is given twice is a fault: the first would be lost silently."""

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            seen: set[Any] = set()
            for key, _ in node.value:
                if key.tag != "tag:yaml.org,2002:merge" and key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the field '{key.value}' is given twice", key.start_mark
                    )
                if isinstance(key, yaml.ScalarNode):
                    seen.add(key.value)
            return super().construct_mapping(node, deep=deep)

    try:
        return yaml.load(text, Loader=Loader)
    except yaml.MarkedYAMLError as fault:
        mark = fault.problem_mark or fault.context_mark
        place = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)
        reason = fault.problem or fault.context or "it cannot be parsed"
        line = text.splitlines()[mark.line].strip() if mark and mark.line < len(text.splitlines()) else ""
        raise InvalidInput(
            f"The job file is not valid YAML: {reason}.",
            hint=f"Look at the line: {line[:120]}" if line else "Look at the end of the file.",
            code="bad_yaml",
            where=place,
        ) from None
    except yaml.YAMLError as fault:
        raise InvalidInput(
            f"The job file is not valid YAML: {fault}.", code="bad_yaml", where=str(path)
        ) from None


def _secret(name: Any, value: Any, environment: Mapping[str, str], where: str) -> Any:
    if value is not None:
        return value
    if str(name) not in environment:
        raise InvalidInput(
            f"The secret '{name}' has no value and is not set in the environment.",
            hint=f"Set it: export {name}=…",
            where=where,
        )
    return environment[str(name)]
