"""Between rows of the database and frozen dataclasses."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from sqlalchemy import Row

__all__ = ["from_row", "to_values"]

T = TypeVar("T")


def from_row(kind: type[T], row: Row[Any]) -> T:
    """The dataclass whose fields are columns of the row."""
    values = row._mapping
    return kind(**{item.name: values[item.name] for item in dataclasses.fields(kind)})  # type: ignore[arg-type]


def to_values(value: Any) -> dict[str, Any]:
    """The dataclass as values of columns, one level deep."""
    return {item.name: getattr(value, item.name) for item in dataclasses.fields(value)}
