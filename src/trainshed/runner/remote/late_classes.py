"""Dataclasses get their methods when the first object of them is made, not when their module is loaded.

Of the classes that a runner knows, a short job uses a third. What `@dataclass` does for each of them, even with its methods
[compiled beforehand](method_memo.py), takes more time than all else in their modules.
"""

from __future__ import annotations

import dataclasses
import sys
from _thread import RLock
from collections.abc import Callable
from typing import Any

__all__ = ["put_off_methods"]

_FIELDS, _INIT, _SET = "__dataclass_fields__", "__init__", "_set_new_attribute"
_KIND, _KINDS = "_is_type", ("ClassVar", "InitVar", "KW_ONLY")
# What this does with `dataclasses` was tried with these; any other Python starts a little later.
_TRIED = ((3, 11), (3, 12), (3, 13))
_lock = RLock()


class _LateFields:
    """Where `dataclasses` looks for a class's fields: to ask for them finishes the class."""

    def __init__(self, finish: Callable[[], None], owner: type) -> None:
        self._finish = finish
        self._owner = owner

    def __get__(self, instance: object, kind: type | None = None) -> Any:
        self._finish()
        return getattr(self._owner, _FIELDS)


def put_off_methods() -> None:
    """From now on, let `@dataclass` do its work late. Where this Python's `dataclasses` may be built otherwise, all is as ever."""
    decorate: Callable[..., Any] = dataclasses.dataclass
    set_now: Callable[[type, str, Any], bool] | None = vars(dataclasses).get(_SET)
    if set_now is None or sys.version_info[:2] not in _TRIED:
        return
    stand_ins: dict[type, Any] = {}
    finished: dict[type, Any] = {}

    def set_attribute(cls: type, name: str, value: Any) -> bool:
        if name == _INIT and cls in stand_ins and vars(cls).get(name) is stand_ins[cls]:
            # It comes last: other threads make no objects of a class that is half done.
            value.__qualname__ = f"{cls.__qualname__}.{name}"
            finished[cls] = value
            return False
        return set_now(cls, name, value)

    def put_off(cls: type, options: dict[str, Any]) -> type:
        def finish() -> None:
            with _lock:
                if vars(cls).get(_INIT) is stand_ins[cls] and cls not in finished:
                    decorate(cls, **options)
                    setattr(cls, _INIT, finished[cls])

        def __init__(self: Any, *values: Any, **named: Any) -> None:
            finish()
            finished[cls](self, *values, **named)

        stand_ins[cls] = __init__
        setattr(cls, _INIT, __init__)
        setattr(cls, _FIELDS, _LateFields(finish, cls))
        # One that has no docstring would get its signature for one, which takes a look at all of its methods.
        cls.__doc__ = cls.__doc__ or cls.__name__
        return cls

    def dataclass(cls: type | None = None, /, **options: Any) -> Any:
        def choose(cls: type) -> type:
            is_plain = _INIT not in vars(cls) and options.get("init", True) and not options.get("slots")
            return put_off(cls, options) if is_plain else decorate(cls, **options)

        return choose if cls is None else choose(cls)

    is_kind: Callable[..., bool] | None = vars(dataclasses).get(_KIND)
    if is_kind is not None:

        def is_kind_quickly(annotation: str, *rest: Any) -> bool:
            # Asked three times of each field, by a pattern. The runner's classes call these kinds by their names.
            return any(word in annotation for word in _KINDS) and is_kind(annotation, *rest)

        vars(dataclasses)[_KIND] = is_kind_quickly
    vars(dataclasses)[_SET] = set_attribute
    vars(dataclasses)["dataclass"] = dataclass
