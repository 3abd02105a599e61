"""Under which addresses people reach the platform, seen from where the request came."""

from __future__ import annotations

from starlette.requests import HTTPConnection

from trainshed.model.settings import Settings

__all__ = ["api_url", "obs_url"]


def api_url(settings: Settings, request: HTTPConnection) -> str:
    """The API's address: as the administrator set it, else the one that this request used."""
    return settings.public_url.rstrip("/") or str(request.base_url).rstrip("/")


def obs_url(settings: Settings, request: HTTPConnection) -> str:
    """The object store's address: as the administrator set it, else on the host that this request used."""
    if settings.public_obs_url:
        return settings.public_obs_url.rstrip("/")
    host = request.url.hostname or settings.host
    return f"{request.url.scheme}://{f'[{host}]' if ':' in host else host}:{settings.obs_port}"
