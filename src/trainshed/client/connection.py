"""Which platform to talk to, and with which token: options, the environment, then the connection file."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trainshed.durable import replace_file
from trainshed.model.errors import InvalidInput, NotAuthenticated, NotFound
from trainshed.model.home import Home

__all__ = ["Connection", "clean_url", "connection_file", "find_connection", "save_connection"]


@dataclass(frozen=True)
class Connection:
    """Where the platform answers, and the token that opens it."""

    url: str
    obs_url: str = ""
    # Kept out of every representation: tracebacks and logs must not show it.
    token: str = field(default="", repr=False)
    # A file with the CA to trust beside the system's own, or empty.
    ca: str = ""


def connection_file(home: str | Path | None = None, environment: Mapping[str, str] = os.environ) -> Path:
    """The file in which `trainshed up` and `trainshed login` leave the connection."""
    folder = home or environment.get("TRAINSHED_HOME") or Path.home() / ".trainshed"
    return Home(Path(folder)).client


def find_connection(
    url: str | None = None,
    token: str | None = None,
    home: str | Path | None = None,
    environment: Mapping[str, str] = os.environ,
    ca: str | Path | None = None,
) -> Connection:
    """The connection that was given, else the environment's, else the one in the connection file."""
    # A home that was named outright is meant, whatever the environment says.
    named = {} if home else environment
    url = clean_url(url or named.get("TRAINSHED_URL") or "")
    token = token or named.get("TRAINSHED_TOKEN") or ""
    obs_url = clean_url(named.get("TRAINSHED_OBS_URL") or "")
    authority = os.path.expanduser(ca or named.get("TRAINSHED_CA") or "")
    if url and token:
        return Connection(url, obs_url, token, authority)
    path = connection_file(home, environment)
    saved = _read(path)
    if saved is None:
        if url:
            raise NotAuthenticated(
                f"There is no token for {url}.",
                hint=f"Set TRAINSHED_TOKEN, or run `trainshed login {url}`.",
                where=str(path),
            )
        raise NotFound(
            "No platform found.",
            hint="Start one here with `trainshed up`, or connect to one with `trainshed login URL`.",
            code="no_platform",
            where=str(path),
        )
    if url and url != saved.url:
        # A token goes only to the platform that issued it, never to another address.
        raise NotAuthenticated(
            f"The saved token belongs to {saved.url}, not to {url}.",
            hint=f"Set TRAINSHED_TOKEN, or run `trainshed login {url}`.",
            where=str(path),
        )
    return Connection(saved.url, obs_url or saved.obs_url, token or saved.token, authority or saved.ca)


def save_connection(connection: Connection, home: str | Path | None = None) -> Path:
    """Write the connection file, readable by its owner only, and a copy of the CA; returns its path."""
    path = connection_file(home).absolute()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    data = {"url": connection.url, "obs_url": connection.obs_url, "token": connection.token}
    if connection.ca:
        from trainshed.client.trust import read_authority

        # A copy: files that were downloaded once are tidied away.
        kept = path.with_name("ca.pem")
        replace_file(kept, read_authority(connection.ca).encode())
        data["ca"] = str(kept)
    replace_file(path, json.dumps(data, indent=2).encode())
    return path


def clean_url(url: str) -> str:
    """The URL of a platform without a slash at its end."""
    url = url.strip().rstrip("/")
    if url and not url.startswith(("http://", "https://")):
        raise InvalidInput(
            f"'{url[:120]}' is not the URL of a platform.", hint="Write it as http://host:7480.", where="url"
        )
    return url


def _read(path: Path) -> Connection | None:
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as fault:
        raise InvalidInput(
            f"The connection file cannot be read: {getattr(fault, 'strerror', '') or 'it is not UTF-8'}.",
            hint="Check its owner and mode, or run `trainshed login URL` again.",
            where=str(path),
        ) from None
    try:
        data = json.loads(text)
        url, obs_url, token, ca = (str(data.get(name, "")) for name in ("url", "obs_url", "token", "ca"))
    except (ValueError, AttributeError):
        data = {}
        url = obs_url = token = ca = ""
    if not url or not token:
        raise InvalidInput(
            "The connection file is damaged: it names no url or no token.",
            hint="Run `trainshed login URL` again (on the platform's own machine: `trainshed up`).",
            where=str(path),
        )
    return Connection(clean_url(url), clean_url(obs_url), token, ca)
