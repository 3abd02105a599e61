"""Runs at the start of every Python process of a job, before the script's first line.

Started by the path file of the job's environment. It puts one finder in front of the import system, which waits
for the modules named here: nothing is imported that the script does not import itself, and this file is kept short,
because every process reads it. Standard library only, for Python 3.7 and later. A fault of ours is one line on
standard error; the script goes on without the help.

`TRAINSHED_HOOKS` switches: `off` all of it, or a list of names with a minus, such as `-torch,-paddle-flags`.
"""

import os
import sys

__all__ = ["begin"]

# What `hooks` knows to help with.
_FRAMEWORKS = ("mindspore", "torch", "torch_npu", "paddle", "tensorflow", "horovod")
_OF_HOSTS = ("npu_bridge", "npu_device", "acl", "te", "tbe")
_WATCHED = frozenset((*_FRAMEWORKS, *_OF_HOSTS))


def begin():
    """Do what the start of a process needs. Called by the path file, which some interpreters read twice."""
    variables = os.environ
    if (
        any(isinstance(finder, _Finder) for finder in sys.meta_path)
        or variables.get("TRAINSHED_HOOKS") == "off"
    ):
        return
    if getattr(sys, "argv", ("",))[0].endswith(".sh"):
        from trainshed_start.hooks import run_shell_script

        run_shell_script(sys.argv)
    if "TRAINSHED_JOB_ID" in variables:
        sys.meta_path.insert(0, _Finder())
        import atexit

        atexit.register(_leave)


def _leave():
    """Registered before anything of the script's own, and so called after it."""
    cluster = sys.modules.get("trainshed_start.mindspore_cluster")
    if cluster is not None:
        cluster.leave()


class _Finder:
    """Lets a watched module load as it always does, and has it changed afterwards."""

    def find_spec(self, name, path=None, target=None):
        """What the import system asks first, for every module."""
        if name.partition(".")[0] not in _WATCHED:
            return None
        from trainshed_start.hooks import find_spec

        return find_spec(self, name, path, target)
