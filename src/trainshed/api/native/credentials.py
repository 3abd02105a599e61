"""Everything that another tool needs to speak to the platform directly."""

from __future__ import annotations

from fastapi import APIRouter, Request

from trainshed.api.authentication import CallerOf, PlatformOf
from trainshed.api.native.addresses import api_url, obs_url
from trainshed.api.native.models import Model
from trainshed.services.access_keys import default_access_key

__all__ = ["router"]

router = APIRouter(tags=["access"])


class Endpoints(Model):
    """Where the platform answers, and the id of the caller's workspace there."""

    url: str
    obs_url: str
    project_id: str
    user_name: str


class Credentials(Endpoints):
    """Endpoints and the caller's everyday access key."""

    access_key: str
    secret_key: str


@router.get("/endpoints", summary="Show the platform's addresses")
def get_endpoints(platform: PlatformOf, caller: CallerOf, request: Request) -> Endpoints:
    """Where the API and the object store answer."""
    return Endpoints(
        url=api_url(platform.settings, request),
        obs_url=obs_url(platform.settings, request),
        project_id=caller.workspace_id,
        user_name=caller.user_name,
    )


@router.post("/credentials", summary="Get your access key and endpoints")
def get_credentials(platform: PlatformOf, caller: CallerOf, request: Request) -> Credentials:
    """Your everyday access key, made at the first time that it is asked for, with all endpoints."""
    pair = default_access_key(platform, caller)
    ends = get_endpoints(platform, caller, request)
    return Credentials(**ends.model_dump(), access_key=pair.access_key, secret_key=pair.secret_key)
