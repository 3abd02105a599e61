"""The common ground of all requests and answers of the native API."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

__all__ = ["Model", "RequestModel"]


class Model(BaseModel):
    """An answer."""

    model_config = ConfigDict(frozen=True)


class RequestModel(BaseModel):
    """A request: a field that is not known is refused, not ignored."""

    model_config = ConfigDict(frozen=True, extra="forbid")
