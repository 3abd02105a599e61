"""What a user asks for: one training job, as a file, as JSON or from Python."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError

from trainshed.model.errors import InvalidInput, TrainshedError, suggest
from trainshed.model.host_folder import is_host_url, parse_host_url
from trainshed.model.names import check_job_name, check_relative_path, parse_obs_url

__all__ = [
    "DIALECTS_WITH_CODE_NAME",
    "JobSpec",
    "is_folder_name",
    "parse_duration",
    "parse_job_spec",
    "render_duration",
]

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LONGEST_FOLDER_NAME = 100
_FOLDER_NAME = re.compile(r"[\w][\w.-]*")
_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|sec|m|min|h|d)?", re.IGNORECASE)
_UNIT_SECONDS = {"s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_RESERVED_VARIABLES = ("TRAINSHED_", "LD_PRELOAD", "LD_LIBRARY_PATH_ORIG")

# Those in which the code folder has its own name inside the job.
DIALECTS_WITH_CODE_NAME = ("modelarts-v1", "modelarts-v2", "xihe")

Scalar = str | int | float | bool


def parse_duration(value: object) -> int:
    """Seconds from `90`, `"90s"`, `"45m"`, `"2h"` or `"7d"`."""
    if isinstance(value, bool):
        raise ValueError("a duration such as 45m or 2h is needed")
    if isinstance(value, int | float):
        return int(value)
    match = _DURATION.fullmatch(str(value).strip())
    if match is None:
        raise ValueError("a duration such as 45m or 2h is needed")
    return int(float(match[1]) * _UNIT_SECONDS[(match[2] or "s").lower()])


def render_duration(seconds: int) -> str:
    """The way a person writes a duration: `2h`, `90m`, `45s`; `parse_duration` reads it again."""
    for unit in ("d", "h", "m"):
        if seconds and seconds % _UNIT_SECONDS[unit] == 0:
            return f"{seconds // _UNIT_SECONDS[unit]}{unit}"
    return f"{seconds}s"


class JobSpec(BaseModel):
    """A training job: its code, its data, and what it runs on."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(
        default="", description="Unique in the workspace; made up from the boot file if left out."
    )
    dialect: Literal["native", "modelarts-v1", "modelarts-v2", "xihe", "apulis"] = Field(
        default="native", description="Whose conventions the script was written for: its paths and variables."
    )
    code: str = Field(
        default="",
        description="The code folder: a local folder (uploaded at submit) or obs://bucket/folder/. "
        "It is snapshotted at submit.",
    )
    code_name: str = Field(
        default="",
        description="What the code folder is called inside the job, in dialects that show its name; its own name "
        "if left out.",
    )
    boot: str = Field(
        default="", description="The file in the code folder that starts the training, .py or .sh."
    )
    command: str = Field(
        default="", description="A shell command to run on every node instead of a boot file."
    )
    worker_command: str = Field(
        default="", description="The command of all nodes but the first, where theirs is another one."
    )
    processes: int = Field(
        default=0,
        ge=0,
        le=64,
        description="How often the boot file is started on each node; 0 is once per device.",
    )
    engine: str = Field(
        default="python", description="The preset environment; `trainshed engines` lists them."
    )
    parameters: dict[str, Scalar] = Field(
        default_factory=dict, description="Passed to the boot file as --name=value, in this order."
    )
    inputs: dict[str, str] = Field(
        default_factory=dict,
        description="name -> obs:// folder or object, or a file:/// folder that the administrator offers; "
        "the local path is passed as --name=PATH.",
    )
    outputs: dict[str, str] = Field(
        default_factory=dict,
        description="name -> obs:// folder; a local folder is passed as --name=PATH and uploaded at the end.",
    )
    flavor: str = Field(default="cpu.1", description="What each node gets; `trainshed flavors` lists them.")
    nodes: int = Field(default=1, ge=1, le=1024, description="How many nodes.")
    pool: str = Field(
        default="",
        max_length=64,
        description="Which machines it runs on; `trainshed nodes` shows the pools. Left out: the platform's default.",
    )
    access: dict[str, Literal["parameter", "env"]] = Field(
        default_factory=dict,
        description="How the path of an input or output is told (dialect modelarts-v2): name -> parameter or env.",
    )
    environment: dict[str, str] = Field(default_factory=dict, description="Extra environment variables.")
    framework_log_level: Literal["", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL", "NULL"] = Field(
        default="", description="How much MindSpore and Ascend log (GLOG_v, ASCEND_GLOBAL_LOG_LEVEL)."
    )
    mapping: bool = Field(
        default=True,
        description="In a rehearsal: whether device names and back ends in the script are mapped to the CPU's.",
    )
    ssh: bool = Field(
        default=False, description="Whether the nodes answer ssh; those of a job of several nodes always do."
    )
    hold: Annotated[int, BeforeValidator(parse_duration)] = Field(
        default=1800,
        ge=0,
        le=7 * 86400,
        description="How long a job is held open when all that is left of its command is `sleep` (dialect apulis).",
    )
    secrets: dict[str, SecretStr] = Field(
        default_factory=dict,
        description="Environment variables whose values are encrypted at rest and masked in logs and answers.",
    )
    log_url: str = Field(default="", description="obs:// folder to which the logs are written as well.")
    network: Literal["none", "platform", "open"] = Field(
        default="platform",
        description="What the job can reach: nothing, the platform's own API and store, or the host's network.",
    )
    priority: int = Field(default=0, ge=-100, le=100, description="Higher goes first; the default is 0.")
    preemptible: bool = Field(
        default=False,
        description="May be stopped for a job of higher priority; it goes back to the queue without using up its "
        "`restarts`.",
    )
    time_limit: Annotated[int, BeforeValidator(parse_duration)] = Field(
        default=0, ge=0, description="Of each attempt: seconds, or 45m, 2h, 7d; 0 is no limit."
    )
    warn_before: Annotated[int, BeforeValidator(parse_duration)] = Field(
        default=0,
        ge=0,
        description="So long before the time limit, 5m for example, every process that handles `warn_signal` gets it, "
        "on all nodes; 0 is never.",
    )
    warn_signal: Literal["USR1", "USR2"] = Field(
        default="USR1", description="The signal that warns of the time limit."
    )
    on_time_limit: Literal["fail", "restart"] = Field(
        default="fail",
        description="What follows when the time limit is reached: the job has failed, or it goes back to the queue and "
        "uses up one of its `restarts`.",
    )
    hang_after: Annotated[int, BeforeValidator(parse_duration)] = Field(
        default=0,
        ge=0,
        description="Seconds, or 30m, 2h, after which a job fails when no rank of any node has written to its log or "
        "used the processor; 0 waits for ever.",
    )
    idle_after: Annotated[int, BeforeValidator(parse_duration)] = Field(
        default=0,
        ge=0,
        description="Seconds, or 30m, 2h, after which the job counts as idle when no node has used a device or the "
        "processor, whatever its log says; 0 is the administrator's default.",
    )
    idle_action: Literal["notify", "stop"] = Field(
        default="notify",
        description="What happens to an idle job: its owner is told, or it is stopped as well.",
    )
    checkpoints: str = Field(
        default="",
        description="obs:// folder of the job's checkpoints: there at the start of every attempt in the folder that "
        "TRAINSHED_CHECKPOINT names, brought home at its end. With `restarts` the platform keeps them by itself.",
    )
    grace: Annotated[int, BeforeValidator(parse_duration)] = Field(
        default=30, ge=0, le=3600, description="Seconds between SIGTERM and SIGKILL when the job is stopped."
    )
    restarts: int = Field(
        default=0,
        ge=0,
        le=100,
        description="How often the job is started again after a failure that was not its own (platform, node).",
    )
    description: str = Field(default="", max_length=1000, description="Free text.")

    @model_validator(mode="after")
    def _fields_agree(self) -> JobSpec:
        if self.name:
            _checked("name", check_job_name, self.name)
        if self.boot and self.command:
            raise _refusal("boot", "contradicts `command`: give one of the two")
        if not self.boot and not self.command:
            raise _refusal("boot", "is missing: name the file that starts the training, or give a `command`")
        if self.boot:
            if not self.code:
                raise _refusal("code", "is missing: the boot file must be in a code folder")
            _checked("boot", check_relative_path, self.boot, "boot")
            if not self.boot.endswith((".py", ".sh")):
                raise _refusal("boot", "must be a .py or .sh file; use `command` for anything else")
        if self.command and self.parameters and not self.dialect.startswith("modelarts"):
            raise _refusal("parameters", "go with `boot`; write them into the command instead")
        if self.worker_command and not self.command:
            raise _refusal("worker_command", "goes with `command`, which the first node runs")
        if self.command and self.processes:
            raise _refusal("processes", "go with `boot`; a command runs once on each node")
        if self.warn_before and not self.warn_before < self.time_limit:
            raise _refusal(
                "warn_before",
                "must be shorter than `time_limit`" if self.time_limit else "goes with `time_limit`",
                "It warns of the time limit: `time_limit: 2h` with `warn_before: 5m`, for example.",
            )
        if self.warn_signal != "USR1" and not self.warn_before:
            raise _refusal("warn_signal", "goes with `warn_before`, which says when it is sent")
        if self.on_time_limit == "restart" and not self.restarts:
            raise _refusal(
                "on_time_limit",
                "goes with `restarts`, which says how often the job may go on after its time limit",
            )
        if self.idle_action != "notify" and not self.idle_after:
            raise _refusal("idle_action", "goes with `idle_after`, which says when a job counts as idle")
        if self.code_name and not is_folder_name(self.code_name):
            raise _refusal("code_name", "is not the name of a folder: letters, digits, '_', '-' and '.'")
        if self.access and self.dialect != "modelarts-v2":
            raise _refusal("access", "is for the dialect modelarts-v2; others pass paths as --name=PATH")
        if self.hold != JobSpec.model_fields["hold"].default and self.dialect != "apulis":
            raise _refusal(
                "hold",
                f"is for the dialect apulis; a job of {self.dialect} ends with its processes",
                "Leave it out; a `sleep` at the end of a command holds a job as long as its time_limit allows.",
            )
        for label in self.access:
            if label not in self.inputs and label not in self.outputs:
                raise _refusal(f"access.{label}", "names neither an input nor an output of this job")
        for field in ("parameters", "inputs", "outputs"):
            for label in getattr(self, field):
                if not _LABEL.fullmatch(label):
                    raise _refusal(
                        f"{field}.{label}", "is not a usable name: letters, digits, '_', '-' and '.'"
                    )
        taken: dict[str, str] = {}
        for field in ("inputs", "outputs", "parameters"):
            for label in getattr(self, field):
                if label in taken:
                    raise _refusal(f"{field}.{label}", f"is already the name of one of the {taken[label]}")
                taken[label] = field
        for label, url in self.inputs.items():
            _checked(f"inputs.{label}", parse_host_url if is_host_url(url) else parse_obs_url, url)
        for label, url in self.outputs.items():
            _checked(f"outputs.{label}", parse_obs_url, url)
        if self.checkpoints:
            _checked("checkpoints", parse_obs_url, self.checkpoints)
        if self.log_url:
            _checked("log_url", parse_obs_url, self.log_url)
        for field in ("environment", "secrets"):
            for variable in getattr(self, field):
                if not _VARIABLE.fullmatch(variable):
                    raise _refusal(f"{field}.{variable}", "is not the name of an environment variable")
                if variable.startswith(_RESERVED_VARIABLES):
                    raise _refusal(f"{field}.{variable}", "is set by the platform; choose another name")
        both = set(self.environment) & set(self.secrets)
        if both:
            raise _refusal(f"secrets.{min(both)}", "is set in `environment` as well: give it once")
        return self

    def to_public_dict(self) -> dict[str, Any]:
        """The spec without its defaults and with its secrets masked: what is stored and shown."""
        data = self.model_dump(mode="json", exclude_defaults=True)
        if "secrets" in data:
            data["secrets"] = dict.fromkeys(self.secrets, "**********")
        return data


def is_folder_name(name: str) -> bool:
    """Whether a code folder may have that name inside a job."""
    return len(name) <= _LONGEST_FOLDER_NAME and bool(_FOLDER_NAME.fullmatch(name))


def parse_job_spec(data: object) -> JobSpec:
    """Check a job spec; the first fault is refused with its path, the reason and a hint."""
    if not isinstance(data, dict):
        raise InvalidInput(
            "A job is a mapping of fields to values.",
            hint="Start with `name:`, `code:` and `boot:`.",
            where="job",
        )
    try:
        return JobSpec.model_validate(data)
    except ValidationError as fault:
        first = fault.errors()[0]
        path = ".".join(str(part) for part in first["loc"]) or str(first.get("ctx", {}).get("path", "job"))
        if first["type"] == "extra_forbidden":
            raise InvalidInput(
                f"There is no field '{path}' in a job.",
                hint=suggest(path, JobSpec.model_fields),
                code="unknown_field",
                where=path,
            ) from None
        message = first["msg"].removeprefix("Value error, ").replace("Input should be", "it should be")
        raise InvalidInput(
            f"'{path}' {message}." if first["type"] == "refusal" else f"'{path}': {message}.",
            hint=str(first.get("ctx", {}).get("hint", "")) or _describe(path, first),
            where=path,
        ) from None


def _describe(path: str, fault: Any) -> str:
    """The next step after a value that a field does not take: the nearest one that it takes, and what it means."""
    name = path.partition(".")[0]
    field = JobSpec.model_fields.get(name)
    if field is None or fault["type"] == "refusal":
        return ""
    if fault["type"] == "literal_error" and isinstance(fault["input"], str) and "." not in path:
        return suggest(fault["input"], get_args(field.annotation))
    return f"About `{name}`: {field.description}" if field.description else ""


def _refusal(path: str, message: str, hint: str = "") -> PydanticCustomError:
    # The message is given as a context value: braces in a user's text are no placeholders.
    return PydanticCustomError("refusal", "{message}", {"path": path, "message": message, "hint": hint})


def _checked(path: str, check: Any, *arguments: Any) -> None:
    try:
        check(*arguments)
    except TrainshedError as fault:
        raise PydanticCustomError(
            "invalid", "{message}", {"path": path, "message": fault.message.rstrip("."), "hint": fault.hint}
        ) from None
