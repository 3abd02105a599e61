"""What the runner of a node elsewhere reads, as an engine beside the platform would have left it."""

from __future__ import annotations

import os
import socket
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import quote

from trainshed.durable import write_whole
from trainshed.model.home import RunFolder
from trainshed.runner.remote.node_caches import input_cache
from trainshed.runner.remote.node_facts import node_name
from trainshed.runner.remote.node_folder import bell_file, require_shared_folder
from trainshed.runner.site import PlatformPort, Site
from trainshed.store.remote.http_connection import as_host

__all__ = ["write_files"]


def write_files(folder: RunFolder, root: Path, ticket: dict[str, Any], token: str) -> None:
    """What the runner reads, as an engine beside the platform would have left it."""
    given = ticket["site"]
    token_file, authority = folder.path / "token", folder.path / "authority.pem"
    token_file.touch(mode=0o600)
    token_file.write_text(token, "ascii")
    store = f"{given['obs_url']}?token={quote(str(token_file))}"
    bundle = ""
    if given["authority"]:
        authority.write_text(given["authority"], "ascii")
        store += f"&ca={quote(str(authority))}"
        bundle = str(_write_bundle(folder, given["authority"]))
    kept_mode = Site.kept_mode
    if ticket["launch"]["kept"] and given["kept_folders"]:
        kept_mode = require_shared_folder(Path(given["kept_folders"]).parent)
    is_root = os.geteuid() == 0
    environments = root / "environments"
    environments.mkdir(exist_ok=True)
    site = Site(
        store_url=store,
        environments=str(environments),
        doorbell=str(bell_file(folder)),
        ports=tuple(PlatformPort(port, _resolve(host)) for host, port in given["ports"]),
        uid=given["uid"] if is_root else None,
        install_uid=given["install_uid"],
        allow_unsandboxed=given["allow_unsandboxed"],
        log_segment_bytes=given["log_segment_bytes"],
        disk_reserve_bytes=given["disk_reserve_bytes"],
        leftovers_bytes=given["leftovers_bytes"],
        checkpoint_bytes=given["checkpoint_bytes"],
        checkpoint_seconds=given["checkpoint_seconds"],
        clock_lag=float(ticket["clock"]) - time.time(),
        host_folders=tuple(given["host_folders"]),
        input_cache=str(input_cache(root)),
        kept_folders=given["kept_folders"] or str(folder.path / "kept"),
        kept_quota_bytes=given["kept_quota_bytes"],
        kept_mode=kept_mode,
        ca_bundle=bundle,
        host_name=given["host_name"],
        is_durable=False,
        machine=node_name(os.environ),
        store_patience=float(given["patience"]),
    )
    write_whole(folder.site, asdict(site))
    write_whole(folder.secrets, ticket["secrets"])
    write_whole(folder.launch, ticket["launch"])


def _write_bundle(folder: RunFolder, authority: str) -> Path:
    """The CAs that the job trusts: the machine's, and the platform's."""
    import ssl

    own = ssl.get_default_verify_paths().cafile
    system = Path(own).read_text("utf-8", "replace") if own and Path(own).is_file() else ""
    path = folder.path / "ca-bundle.pem"
    path.write_text(f"{system}\n{authority}", "utf-8")
    return path


def _resolve(host: str) -> str:
    try:
        return str(socket.getaddrinfo(as_host(host), None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError:
        return host
