"""Under which addresses people and cluster nodes reach the platform."""

from __future__ import annotations

from trainshed.model.settings import Settings

__all__ = ["api_url", "obs_url"]


def api_url(settings: Settings) -> str:
    """Where people reach the API and the console."""
    return settings.public_url.rstrip("/") or _own_url(settings, settings.port)


def obs_url(settings: Settings) -> str:
    """Where people reach the object store."""
    return settings.public_obs_url.rstrip("/") or _own_url(settings, settings.obs_port)


def _own_url(settings: Settings, port: int) -> str:
    address = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)
    scheme = "https" if settings.serves_tls else "http"
    return f"{scheme}://{f'[{address}]' if ':' in address else address}:{port}"
