"""Every error of the native API in one form: {"error": {"code", "message", "hint", "where"}}."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from trainshed.model.errors import TrainshedError

__all__ = ["ErrorAnswer", "ErrorBody", "answer_error", "install_error_handlers"]


class ErrorBody(BaseModel):
    """What went wrong, where, and the next step."""

    code: str = Field(description="A stable word for machines.")
    message: str = Field(description="One sentence for people.")
    hint: str = Field(default="", description="The next step to take.")
    where: str = Field(default="", description="The field, file or thing that is at fault.")


class ErrorAnswer(BaseModel):
    """The body of every answer that is not a success."""

    error: ErrorBody


def answer_error(fault: TrainshedError) -> JSONResponse:
    """The answer that tells a client about an error."""
    headers = {"WWW-Authenticate": "Bearer"} if fault.status == 401 else None
    return JSONResponse({"error": fault.to_dict()}, status_code=fault.status, headers=headers)


def install_error_handlers(app: FastAPI) -> None:
    """Answer our own errors, refused fields and unknown routes in the one form."""

    @app.exception_handler(TrainshedError)
    async def known(_: Request, fault: TrainshedError) -> JSONResponse:
        return answer_error(fault)

    @app.exception_handler(RequestValidationError)
    async def refused(_: Request, fault: RequestValidationError) -> JSONResponse:
        return _answer(400, _describe(fault))

    @app.exception_handler(HTTPException)
    async def http(request: Request, fault: HTTPException) -> JSONResponse:
        path = request.url.path
        if fault.status_code == 404:
            body = {
                "code": "unknown_path",
                "message": f"There is nothing at {path[:200]}.",
                "hint": "GET /api/v1/openapi.json lists all paths.",
                "where": path[:200],
            }
        elif fault.status_code == 405:
            body = {
                "code": "method_not_allowed",
                "message": f"{request.method} is not possible at {path[:200]}.",
                "hint": "GET /api/v1/openapi.json lists the methods of each path.",
                "where": path[:200],
            }
        else:
            body = {"code": "invalid_request", "message": str(fault.detail), "hint": "", "where": ""}
        return _answer(fault.status_code, body, dict(fault.headers or {}))


def _answer(status: int, body: dict[str, str], headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": body}, status_code=status, headers=headers)


def _describe(fault: RequestValidationError) -> dict[str, str]:
    """The first fault of a request, with the path of its field."""
    first: dict[str, Any] = dict(fault.errors()[0])
    loc = [str(part) for part in first["loc"]]
    place, path = loc[0], ".".join(loc[1:])
    hint = ""
    if first["type"] == "json_invalid":
        reason = first.get("ctx", {}).get("error", "it cannot be read")
        return {
            "code": "invalid_json",
            "message": f"The body is not JSON: {reason}.",
            "hint": "",
            "where": f"body, character {loc[1] if len(loc) > 1 else 0}",
        }
    message = str(first["msg"]).removeprefix("Value error, ")
    if first["type"] == "missing":
        message = f"'{path}' is missing." if path else "The request has no body."
    elif first["type"] == "extra_forbidden":
        message = f"There is no field '{path}' in this request."
        hint = "GET /api/v1/openapi.json describes the fields."
    elif first["type"] == "model_attributes_type":
        message = "The body must be a JSON object."
        hint = "Send it with the header 'Content-Type: application/json'."
    else:
        message = f"'{path}': {message}." if path else f"{message}."
    return {
        "code": "unknown_field" if first["type"] == "extra_forbidden" else "invalid_input",
        "message": message,
        "hint": hint,
        "where": path if place == "body" else f"{place}: {path}",
    }
