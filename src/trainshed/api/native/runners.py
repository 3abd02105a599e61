"""Runners on other machines: they check in, are told what to run, and send what they have to say.

They carry the token of their attempt, which opens nothing else of this API. A report is one request: a line of JSON
that names the pieces, and then their bytes one after the other.
"""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Annotated, Any

import anyio.to_thread
from fastapi import APIRouter, Depends, Query, Request, WebSocket
from fastapi.responses import FileResponse, JSONResponse
from pydantic import Field
from starlette.requests import HTTPConnection

from trainshed.api.authentication import PlatformOf
from trainshed.api.native.models import Model, RequestModel
from trainshed.api.native.tunnel import carry, close_with_words
from trainshed.model.errors import InvalidInput, NotAuthenticated, TrainshedError
from trainshed.services import failed_start, runner_bundle, runner_gateway, ssh_packages
from trainshed.services.attempt_tokens import AttemptCaller, authenticate_attempt
from trainshed.services.platform import Platform
from trainshed.services.runner_mirror import Claim, Piece

__all__ = ["router"]

router = APIRouter(prefix="/runners", tags=["runners"])


def _current_runner(request: Request, platform: PlatformOf) -> AttemptCaller:
    return authenticate_attempt(platform, _token(request))


async def _current_token(request: Request) -> str:
    return _token(request)


def _token(request: HTTPConnection) -> str:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise NotAuthenticated("A runner sends the token of its attempt.", code="no_credential")
    return token.strip()


RunnerOf = Annotated[AttemptCaller, Depends(_current_runner)]
# Where every node of every job comes by: they look for the attempt themselves, without another thread in between.
TokenOf = Annotated[str, Depends(_current_token)]


class CheckIn(RequestModel):
    """What a process on a node says of itself."""

    node: int = Field(ge=0, lt=1_000_000)
    nonce: str = Field(min_length=16, max_length=64, pattern="^[0-9a-f]+$")
    host: str = Field(min_length=1, max_length=255, pattern=r"^[A-Za-z0-9._-]+$")
    address: str = Field(min_length=1, max_length=64, pattern=r"^[0-9A-Fa-f.:]+$")
    devices: list[int] = Field(default=[], max_length=1024)
    busy_ports: list[int] = Field(default=[], max_length=20_000)
    device_addresses: dict[int, Annotated[str, Field(max_length=64, pattern=r"^[0-9A-Fa-f.:]+$")]] = Field(
        default={}, max_length=1024
    )
    clock: float
    run: str = Field(default="", max_length=64, pattern=r"^[0-9.]*$")
    machine: str = Field(default="", max_length=80, pattern=r"^[0-9a-f-]*$")


class Waiting(Model):
    """Some nodes have not checked in yet; `stop` says that they need not."""

    waiting_for: list[int]
    stop: dict[str, str] | None = None


class FailedStart(RequestModel):
    """Why a process will not run its node."""

    node: int = Field(ge=0, lt=1_000_000)
    nonce: str = Field(default="", max_length=64, pattern="^[0-9a-f]*$")
    host: str = Field(default="", max_length=255, pattern=r"^[A-Za-z0-9._-]*$")
    code: str = Field(min_length=1, max_length=40, pattern="^[a-z_]+$")
    message: str = Field(min_length=1, max_length=2000)
    hint: str = Field(default="", max_length=1000)


@router.post("/check-in", summary="Take a node of an attempt", response_model=None)
def check_in(platform: PlatformOf, token: TokenOf, body: CheckIn) -> JSONResponse:
    """202 until all nodes are there; then the node's launch plan, its secrets and the site's facts."""
    runner = authenticate_attempt(platform, token)
    claim = Claim(
        body.node,
        body.nonce,
        body.host,
        body.address,
        tuple(body.devices),
        tuple(body.busy_ports),
        device_addresses=tuple(sorted(body.device_addresses.items())),
        run=body.run,
        machine=body.machine,
    )
    answer = runner_gateway.check_in(platform, runner, claim, body.clock)
    if isinstance(answer, runner_gateway.Waiting):
        waiting = Waiting(waiting_for=list(answer.missing), stop=answer.stop)
        return JSONResponse(waiting.model_dump(), status_code=202)
    return JSONResponse(runner_gateway.ticket_to_json(answer))


@router.post("/failed-start", summary="Say why a node does not begin", status_code=204)
def tell_failed_start(platform: PlatformOf, runner: RunnerOf, body: FailedStart) -> None:
    """The words end up in the job's own story; the attempt ends."""
    failed_start.take_failed_start(platform, runner, failed_start.FailedStart(**body.model_dump()))


@router.post("/report", summary="Send logs, metrics and the state of a node", response_model=None)
async def report(
    platform: PlatformOf,
    token: TokenOf,
    request: Request,
    node: Annotated[int, Query(ge=0)],
    nonce: Annotated[str, Query(max_length=64)],
) -> JSONResponse:
    """Pieces of files go where they belong; the answer tells how far each file has come, and whether to stop."""
    body = await request.body()
    return await anyio.to_thread.run_sync(_take_report, platform, token, node, nonce, body)


def _take_report(platform: Platform, token: str, node: int, nonce: str, body: bytes) -> JSONResponse:
    runner = authenticate_attempt(platform, token)
    head, _, rest = body.partition(b"\n")
    try:
        said: dict[str, Any] = json.loads(head)
        pieces, position = [], 0
        for path, offset, length in said.get("pieces", []):
            data = rest[position : position + int(length)]
            if int(offset) < 0 or int(length) < 0 or len(data) != length or int(offset) > 1 << 50:
                raise ValueError("a piece is cut off")
            pieces.append(Piece(str(path), int(offset), data))
            position += int(length)
        told = said.get("report")
        if told is not None and not isinstance(told, dict):
            raise ValueError("no report")
    except (ValueError, TypeError, AttributeError):
        raise InvalidInput(
            "The report cannot be read.", hint="A line of JSON, then the pieces' bytes.", where="body"
        ) from None
    heard = runner_gateway.take_report(
        platform, runner, node, nonce, pieces=pieces, report=told, ready=bool(said.get("ready"))
    )
    return JSONResponse({"sizes": heard.sizes, "go": heard.go, "stop": heard.stop, "ssh": heard.ssh})


@router.websocket("/ssh/{name}")
async def answer_ssh(websocket: WebSocket, name: str, node: int, nonce: str) -> None:
    """A node calls back: the bytes between its ssh server and whoever waits under this name."""
    platform: Platform = websocket.app.state.platform

    def answer() -> socket.socket:
        runner = authenticate_attempt(platform, _token(websocket))
        return runner_gateway.answer_ssh(platform, runner, node, nonce, name)

    try:
        connection = await asyncio.to_thread(answer)
    except TrainshedError as fault:
        # Accepted first: whoever is refused before that never learns why.
        await websocket.accept()
        await close_with_words(websocket, 1008, fault.message)
        return
    try:
        await websocket.accept()
        await carry(websocket, connection)
    finally:
        connection.close()


@router.get("/bundle", summary="Download the runner as one file", response_class=FileResponse)
def get_bundle(
    platform: PlatformOf,
    runner: RunnerOf,
    digest: Annotated[str, Query(max_length=64, pattern="^[0-9a-f]*$")] = "",
) -> FileResponse:
    """What a node runs: `python3 FILE`. Its name holds the digest of its content; an older one can be asked for."""
    bundle = runner_bundle.find_old_bundle(platform.home, digest)
    return FileResponse(bundle.path, media_type="application/zip", filename=bundle.path.name)


@router.get("/uv", summary="Download the program that builds environments", response_class=FileResponse)
def get_uv(
    platform: PlatformOf, runner: RunnerOf, machine: Annotated[str, Query(max_length=64)]
) -> FileResponse:
    """The platform's own uv, if it runs on that kind of machine (`x86_64`, `aarch64`)."""
    return FileResponse(runner_bundle.find_uv_for(machine), media_type="application/octet-stream")


@router.get("/ssh-packages", summary="Download the ssh server's packages", response_class=FileResponse)
def get_ssh_packages(
    platform: PlatformOf, runner: RunnerOf, tag: Annotated[str, Query(max_length=128)]
) -> FileResponse:
    """What a node needs to answer ssh, if its Python (`cpython-311-x86_64-linux-gnu`) loads the platform's modules."""
    return FileResponse(ssh_packages.find_ssh_packages(platform.home, tag), media_type="application/zip")
