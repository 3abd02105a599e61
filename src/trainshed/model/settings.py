"""The platform's settings: one typed table of name, default and help."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from trainshed.model.engines import EnginePreset, read_engines
from trainshed.model.errors import InvalidInput, suggest
from trainshed.model.host_folder import check_host_folders
from trainshed.model.host_name import check_host_names
from trainshed.model.pools import Pool, list_pools, read_pools

__all__ = ["ENVIRONMENT_PREFIX", "Settings", "read_settings"]

ENVIRONMENT_PREFIX = "TRAINSHED_"


def _setting(default: Any, help: str) -> Any:
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True)
class Settings:
    """Every setting can stand in `settings.toml` or in the environment as TRAINSHED_<NAME>."""

    host: str = _setting("127.0.0.1", "Address that the API, the console and the object store listen on.")
    port: int = _setting(7480, "Port of the API and the console.")
    obs_port: int = _setting(7481, "Port of the object store.")
    store_processes: int = _setting(
        0,
        "Processes that serve the object store when one is too busy; 0 is half of the cores, at most 8.",
    )
    ssh_port: int = _setting(0, "Port for plain ssh clients, which enter jobs by registered keys; 0 is none.")
    tls: bool = _setting(False, "Speak TLS on both ports, with a certificate from the platform's own CA.")
    tls_certificate: str = _setting(
        "", "Certificate file (PEM, with its chain) in place of one from the platform's own CA."
    )
    tls_key: str = _setting("", "File of the private key that belongs to tls_certificate.")
    host_names: tuple[str, ...] = _setting(
        (), "Names and addresses of this machine that the platform's own certificate holds."
    )
    tools_port: int = _setting(
        7482,
        "Port of hosted tools (TensorBoard), opened when one is used; 0 takes a free one, -1 hosts none.",
    )
    tools_idle_minutes: int = _setting(30, "Minutes after which a hosted tool that nobody uses is ended.")
    public_tools_url: str = _setting(
        "", "URL under which people reach hosted tools; never the one of the API."
    )
    public_url: str = _setting("", "URL under which people reach the API, if it is not http://host:port.")
    public_obs_url: str = _setting("", "URL under which people reach the object store.")
    database_url: str = _setting(
        "", "Database to use instead of the embedded one: postgresql://user@host/name."
    )
    store_url: str = _setting(
        "", "External object store to use instead of the embedded one: s3://bucket/prefix."
    )
    store_encrypted: bool = _setting(
        False,
        "Says that the disk below the object store is encrypted: clients that ask for AES256 are served then.",
    )
    store_endpoint: str = _setting(
        "",
        "URL of the external store's endpoint, if it is not Amazon's: https://host or https://{bucket}.host.",
    )
    store_region: str = _setting("us-east-1", "Region of the external store.")
    store_access_key: str = _setting("", "Access key of the external store.")
    store_secret_key: str = _setting("", "Secret key of the external store.")
    rehearse: str = _setting("", "Pretend devices for a rehearsal, such as ascend:8.")
    open_network: bool = _setting(True, "Whether jobs may ask for the host's network (network: open).")
    allow_unsandboxed: bool = _setting(False, "Run jobs without a sandbox where bubblewrap is missing.")
    job_uid_base: int = _setting(
        200000, "Started as root, the jobs of workspace n run as the user id of this number plus n."
    )
    log_segment_mb: int = _setting(16, "Size at which a piece of a log moves from the spool to the store.")
    code_limit_mb: int = _setting(2048, "Size that the code folder of a job may have, all files together.")
    disk_reserve_mb: int = _setting(512, "Room on the disk that a job must leave free, or it is stopped.")
    leftovers_mb: int = _setting(
        100, "Megabytes of files left in a node's working folder that are kept with the job; 0 keeps none."
    )
    checkpoints_gb: int = _setting(
        20, "Gigabytes of checkpoints that a node keeps for the next attempt of its job; 0 is no limit."
    )
    checkpoint_seconds: int = _setting(
        60,
        "Seconds after which a cluster's node brings new checkpoints home while its job trains; 0 is only at its end.",
    )
    runner_patience_minutes: float = _setting(
        1440.0,
        "Minutes that a cluster's node waits for a platform that is away, to hand over what a job made.",
    )
    token_days: int = _setting(90, "Days after which a token of a user expires.")
    keep_run_folders_hours: int = _setting(
        24, "Hours after which an ended attempt's working folders are removed."
    )
    input_cache_hours: int = _setting(
        24, "Hours that an input stays ready for the next job after its last use."
    )
    input_cache_gb: int = _setting(
        200, "Disk space for inputs kept ready; on the store's own disk they take next to none."
    )
    node_environment_days: int = _setting(
        30, "Days that a cluster's node keeps a built environment after its last use."
    )
    node_environment_gb: int = _setting(
        100, "Disk space for built environments on a cluster's node; the least used go first."
    )
    quota_gb: int = _setting(0, "Gigabytes that a workspace may keep in the object store; 0 is no limit.")
    quota_objects: int = _setting(0, "Objects that a workspace may keep; 0 is no limit.")
    smtp_url: str = _setting(
        "",
        "Mail server for notifications: smtp://user:password@host:587 (STARTTLS where it offers it) or smtps://.",
    )
    smtp_from: str = _setting("", "Sender of mails; by default trainshed@ and the machine's name.")
    webhooks_may_be_private: bool = _setting(
        False, "Whether notifications may be sent to addresses of private networks and of this machine."
    )
    idle_notify_minutes: int = _setting(
        0,
        "Minutes without use of devices and processor after which a job's owner is told, where the job itself says "
        "nothing (idle_after); 0 is never.",
    )
    idle_stop_minutes: int = _setting(
        0, "Minutes without use of devices and processor after which any job is stopped; 0 is never."
    )
    kept_quota_gb: int = _setting(
        0, "Gigabytes that the home and data folders of a workspace's jobs may hold; 0 is no limit."
    )
    host_folders: tuple[str, ...] = _setting(
        (), "Folders of the machine that jobs may read as inputs (file:///folder/)."
    )
    install_uid: int = _setting(199999, "Started as root, packages are installed as this user id.")
    requirements_may_name_index: bool = _setting(
        False, "Whether a job's requirement file may name a package index of its own (--index-url)."
    )
    engines: tuple[EnginePreset, ...] = _setting(
        (), "Preset engines beside the built-in ones: [engines.NAME] with python, packages, description."
    )

    engine: str = _setting("local", "What runs jobs that name no pool: local (this machine) or slurm.")
    pools: tuple[Pool, ...] = _setting(
        (), "Groups of machines: [pools.NAME] with engine, partition, account, qos, options, python, run_as."
    )

    @property
    def all_pools(self) -> tuple[Pool, ...]:
        """Every pool that jobs can name, the one of `engine` included."""
        return list_pools(self.pools, self.engine)

    @property
    def serves_tls(self) -> bool:
        """Whether both ports speak TLS: it was asked for, or a certificate was given."""
        return self.tls or bool(self.tls_certificate)


def read_settings(
    file: Mapping[str, Any], environment: Mapping[str, str], given: Mapping[str, Any]
) -> Settings:
    """Settings from the file, overridden by the environment, overridden by what was given on the command line."""
    known = {setting.name: setting for setting in fields(Settings)}
    values: dict[str, Any] = {}
    for name, value in file.items():
        if name not in known:
            raise InvalidInput(
                f"There is no setting '{name}'.",
                hint=suggest(name, known),
                code="unknown_setting",
                where="settings.toml",
            )
        values[name] = _typed(name, value, "settings.toml")
    for name in known:
        text = environment.get(ENVIRONMENT_PREFIX + name.upper())
        if text is not None:
            values[name] = _typed(name, text, ENVIRONMENT_PREFIX + name.upper())
    values.update({name: value for name, value in given.items() if value is not None})
    return Settings(**values)


def _typed(name: str, value: Any, where: str) -> Any:
    default = getattr(Settings, name)
    if name == "engines":
        return read_engines(value, where)
    if name == "pools":
        return read_pools(value, where)
    if name == "engine" and value not in ("local", "slurm"):
        raise InvalidInput(
            f"There is no engine '{str(value)[:40]}'.", hint="Use local or slurm.", where=where
        )
    if name == "host_names":
        return check_host_names(value, where)
    if name == "host_folders":
        return check_host_folders(value, where)
    if isinstance(default, bool):
        if isinstance(value, bool):
            return value
        if str(value).lower() in ("1", "true", "yes", "on"):
            return True
        if str(value).lower() in ("0", "false", "no", "off", ""):
            return False
        raise InvalidInput(f"The setting '{name}' is true or false, not '{value}'.", where=where)
    if isinstance(default, int):
        try:
            return int(value)
        except (TypeError, ValueError):
            raise InvalidInput(f"The setting '{name}' is a number, not '{value}'.", where=where) from None
    if isinstance(default, float):
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number) or number < 0:
            raise InvalidInput(f"The setting '{name}' is a number, 0 or more, not '{value}'.", where=where)
        return number
    return str(value)
