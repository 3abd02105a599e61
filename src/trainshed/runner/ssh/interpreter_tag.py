"""Which compiled modules an interpreter can load."""

from __future__ import annotations

import sys
import sysconfig

__all__ = ["interpreter_tag"]


def interpreter_tag() -> str:
    """This interpreter in one word, such as `cpython-311-x86_64-linux-gnu`: equal ones load each other's modules."""
    return str(
        sysconfig.get_config_var("SOABI") or f"{sys.implementation.cache_tag}-{sysconfig.get_platform()}"
    )
