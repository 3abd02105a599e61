"""Tokens, access keys and sign-in."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from pydantic import Field

from trainshed.api.authentication import CallerOf, PlatformOf
from trainshed.api.native.addresses import api_url
from trainshed.api.native.models import Model, RequestModel
from trainshed.services import access_keys, sessions, tokens
from trainshed.services.access_keys import AccessKeyView, KeyPair
from trainshed.services.tokens import NewToken, TokenView

__all__ = ["open_router", "router"]

router = APIRouter(tags=["access"])
# Reached without a credential: the request carries a name and a password instead.
open_router = APIRouter(tags=["access"])


class TokenList(Model):
    """Tokens without their secret part."""

    tokens: list[TokenView]


class TokenRequest(RequestModel):
    """A token to be made."""

    name: str = Field(description="What it is for, 1 to 64 characters.")
    scopes: list[str] = Field(
        default=["*"], description="What it may be used for; never more than the caller's."
    )
    days: float | None = Field(
        default=None, description="How long it is valid; by default as the settings say."
    )


class LoginRequest(RequestModel):
    """A name and a password."""

    user: str
    password: str
    workspace: str = Field(default="", description="The workspace that the token is for; else the first one.")


class LoginLinkRequest(RequestModel):
    """For whom the link is; empty for the caller."""

    user: str = ""


class LoginLink(Model):
    """A link that signs in once."""

    url: str


class KeyList(Model):
    """Access keys without their secret half."""

    access_keys: list[AccessKeyView]


class KeyRequest(RequestModel):
    """An access key to be made."""

    name: str = Field(description="What it is for, 1 to 64 characters.")


@router.get("/tokens", summary="List your tokens")
def list_tokens(platform: PlatformOf, caller: CallerOf) -> TokenList:
    """Your tokens in this workspace, newest first."""
    return TokenList(tokens=tokens.list_tokens(platform, caller))


@router.post("/tokens", status_code=201, summary="Create a token")
def create_token(platform: PlatformOf, caller: CallerOf, body: TokenRequest) -> NewToken:
    """The answer is the only place where the token's text is shown."""
    return tokens.create_token(platform, caller, body.name, body.scopes, body.days)


@router.delete("/tokens/{token_id}", status_code=204, summary="Revoke a token")
def revoke_token(platform: PlatformOf, caller: CallerOf, token_id: str) -> Response:
    """The token is useless from now on."""
    tokens.revoke_token(platform, caller, token_id)
    return Response(status_code=204)


@open_router.post("/login", status_code=201, summary="Get a token for a name and a password")
def login(platform: PlatformOf, body: LoginRequest) -> NewToken:
    """The one request of this API that needs no token."""
    return sessions.token_for_password(platform, body.user, body.password, body.workspace)


@router.post("/login-links", status_code=201, summary="Create a link that signs in to the console once")
def create_login_link(
    platform: PlatformOf, caller: CallerOf, request: Request, body: LoginLinkRequest | None = None
) -> LoginLink:
    """For yourself, or for another user if you are an administrator."""
    code = sessions.create_login_link(platform, caller, body.user if body else "")
    return LoginLink(url=f"{api_url(platform.settings, request)}/login?code={code}")


@router.get("/access-keys", summary="List your access keys")
def list_access_keys(platform: PlatformOf, caller: CallerOf) -> KeyList:
    """Your access-key pairs in this workspace, oldest first, without their secret halves."""
    return KeyList(access_keys=access_keys.list_access_keys(platform, caller))


@router.post("/access-keys", status_code=201, summary="Create an access key")
def create_access_key(platform: PlatformOf, caller: CallerOf, body: KeyRequest) -> KeyPair:
    """A pair with which programs sign requests to the object store."""
    return access_keys.create_access_key(platform, caller, body.name)


@router.delete("/access-keys/{access_key}", status_code=204, summary="Delete an access key")
def delete_access_key(platform: PlatformOf, caller: CallerOf, access_key: str) -> Response:
    """The pair is useless from now on."""
    access_keys.delete_access_key(platform, caller, access_key)
    return Response(status_code=204)
