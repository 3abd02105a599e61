"""Parts of Python's library that others load and seldom use: a runner loads them when they are used.

`dataclasses` loads `inspect`, and with it the tables of Python's own compiler, for classes that have no docstring; `pathlib`
loads what reads IP addresses, and `shutil` three ways to compress. Together that takes longer than a node's check-in.
"""

from __future__ import annotations

import sys
from types import ModuleType

__all__ = ["put_off", "start_quickly"]

_SELDOM = ("bz2", "inspect", "ipaddress", "locale", "lzma", "textwrap", "zlib")


class _LateModule(ModuleType):
    """Stands for a module until somebody wants something of it."""

    def __getattr__(self, name: str) -> object:
        own = self.__name__
        if sys.modules.get(own) is self:
            sys.modules.pop(own, None)
        # Where another thread is loading it at this moment, this waits for that one.
        __import__(own)
        return getattr(sys.modules[own], name)


def start_quickly(folder: str) -> None:
    """Before anything else of the runner in a folder is loaded: let it load as little as it can."""
    put_off()
    from trainshed.runner.remote.late_classes import put_off_methods
    from trainshed.runner.remote.method_memo import use_memo

    use_memo(folder)
    put_off_methods()


def put_off() -> None:
    """From now on, load those modules late that are not there yet."""
    for name in _SELDOM:
        sys.modules.setdefault(name, _LateModule(name))
