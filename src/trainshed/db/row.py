"""Between rows of the database and frozen dataclasses."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, TypeVar, cast

from sqlalchemy import Row

__all__ = ["from_row", "to_values"]

T = TypeVar("T")


def from_row(kind: type[T], row: Row[Any], **converted: Any) -> T:
    """The dataclass whose fields are columns of the row; `converted` values replace those of the row."""
    values = row._mapping
    return kind(**{name: values[name] for name in _names(cast(Any, kind))} | converted)


@functools.cache
def _names(kind: type[Any]) -> tuple[str, ...]:
    # Asked for every row of every query: looking them up takes longer than reading the row.
    return tuple(item.name for item in dataclasses.fields(kind))


def to_values(value: Any) -> dict[str, Any]:
    """The dataclass as values of columns, one level deep."""
    return {item.name: getattr(value, item.name) for item in dataclasses.fields(value)}
