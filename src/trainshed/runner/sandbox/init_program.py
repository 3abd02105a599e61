"""The program that runs first inside a sandbox: the modules of `inside`, compiled into one file."""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
import marshal
from types import ModuleType

from trainshed.runner.sandbox.inside import children, init, launchers, processes

__all__ = ["INIT_PROGRAM", "compile_init"]

# Where it lies inside.
INIT_PROGRAM = "/run/trainshed/init.pyc"
# Each module comes after those that it imports.
_MODULES = (processes, launchers, children, init)
# Puts the modules where their imports of each other find them, without looking for files.
_LOADER = """
import sys
for name, code in "MODULES":
    sys.modules[name] = module = type(sys)(name)
    exec(code, module.__dict__)
module.main(*map(int, sys.argv[1:]))
"""


@functools.cache
def compile_init() -> bytes:
    """Init as compiled code in a file's form: compiling it anew inside would take 5 ms of every start."""
    modules = tuple((module.__name__, _read_code(module)) for module in _MODULES)
    loader = compile(_LOADER, INIT_PROGRAM, "exec")
    constants = tuple(modules if item == "MODULES" else item for item in loader.co_consts)
    return importlib.util.MAGIC_NUMBER + bytes(12) + marshal.dumps(loader.replace(co_consts=constants))


def _read_code(module: ModuleType) -> object:
    return importlib.machinery.SourceFileLoader(module.__name__, module.__file__ or "").get_code(
        module.__name__
    )
