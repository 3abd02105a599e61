"""Workspaces and their members."""

from __future__ import annotations

from fastapi import APIRouter, Response
from pydantic import Field

from trainshed.api.authentication import CallerOf, PlatformOf
from trainshed.api.native.models import Model, RequestModel
from trainshed.services import workspaces
from trainshed.services.workspaces import MemberView, WorkspaceView

__all__ = ["router"]

router = APIRouter(tags=["workspaces"])


class WorkspaceList(Model):
    """Workspaces that the caller can see."""

    workspaces: list[WorkspaceView]


class WorkspaceRequest(RequestModel):
    """A workspace to be made."""

    name: str


class MemberList(Model):
    """The members of a workspace."""

    members: list[MemberView]


class MemberRequest(RequestModel):
    """A member's role."""

    role: str = Field(description="viewer, developer or manager.")


@router.get("/workspaces", summary="List workspaces")
def list_workspaces(platform: PlatformOf, caller: CallerOf) -> WorkspaceList:
    """Your workspaces; all of them for an administrator. An id is the project_id of the cloud APIs."""
    return WorkspaceList(workspaces=workspaces.list_workspaces(platform, caller))


@router.post("/workspaces", status_code=201, summary="Add a workspace")
def create_workspace(platform: PlatformOf, caller: CallerOf, body: WorkspaceRequest) -> WorkspaceView:
    """Add a workspace, for administrators; you become its manager."""
    return workspaces.create_workspace(platform, caller, body.name)


@router.get("/workspaces/{workspace}", summary="Show a workspace")
def get_workspace(platform: PlatformOf, caller: CallerOf, workspace: str) -> WorkspaceView:
    """One workspace, by its name or id."""
    return workspaces.get_workspace(platform, caller, workspace)


@router.delete("/workspaces/{workspace}", status_code=204, summary="Delete a workspace")
def delete_workspace(platform: PlatformOf, caller: CallerOf, workspace: str) -> Response:
    """Delete a workspace that has no buckets and no jobs under way, for administrators."""
    workspaces.delete_workspace(platform, caller, workspace)
    return Response(status_code=204)


@router.get("/workspaces/{workspace}/members", summary="List members")
def list_members(platform: PlatformOf, caller: CallerOf, workspace: str) -> MemberList:
    """The members of a workspace and their roles."""
    return MemberList(members=workspaces.list_members(platform, caller, workspace))


@router.put("/workspaces/{workspace}/members/{user}", summary="Add a member or change a role")
def set_member(
    platform: PlatformOf, caller: CallerOf, workspace: str, user: str, body: MemberRequest
) -> MemberView:
    """Make a user a member of a workspace, or change the member's role; for its managers."""
    return workspaces.set_member(platform, caller, user, body.role, workspace)


@router.delete("/workspaces/{workspace}/members/{user}", status_code=204, summary="Remove a member")
def remove_member(platform: PlatformOf, caller: CallerOf, workspace: str, user: str) -> Response:
    """Take a user out of a workspace; their tokens and keys for it are gone."""
    workspaces.remove_member(platform, caller, user, workspace)
    return Response(status_code=204)
