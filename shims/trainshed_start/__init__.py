"""Runs at the start of every Python process of a job, before the script's first line.

Started by the path file of the job's environment. It reads a few variables, and at most puts one finder in front
of the import system, which waits for the modules named in `_HOOKS`: nothing is imported that the script does
not import itself. Standard library only, for Python 3.7 and later. A fault of ours is one line on standard error;
the script goes on without the help.

`TRAINSHED_HOOKS` switches: `off` all of it, or a list of names with a minus, such as `-torch,-paddle-flags`.
"""

import os
import sys

__all__ = ["begin", "is_rehearsal", "report_fault", "say", "switched_on"]

# Module -> (name of the switch, our module that changes it, whether that happens in a rehearsal only).
_HOOKS = {
    "mindspore": (
        ("engine", "engine_notice", False),
        ("mindspore-scheduler", "mindspore_cluster", False),
    ),
    "mindspore.context": (("mindspore", "mindspore_devices", True),),
    "mindspore.device_manager": (("mindspore", "mindspore_devices", True),),
    "mindspore.train.model": (("mindspore", "mindspore_devices", True),),
    "mindspore.communication.management": (
        ("mindspore", "mindspore_devices", True),
        ("mindspore-scheduler", "mindspore_cluster", False),
    ),
    "torch": (("engine", "engine_notice", False), ("torch", "torch_devices", True)),
    "paddle": (("engine", "engine_notice", False), ("paddle", "paddle_devices", True)),
    "paddle.distributed.launch": (("paddle-flags", "paddle_launch", False),),
    "tensorflow": (("engine", "engine_notice", False), ("tensorflow", "tensorflow_devices", True)),
}
# Modules that exist on hosts with such devices only: stood in for, or named when they are missing.
_OF_THE_HOST = {
    "torch_npu": "torch_npu_stand_in",
    "npu_bridge": "",
    "npu_device": "",
    "acl": "",
    "te": "",
    "tbe": "",
    "horovod": "",
}


def begin():
    """Do what the start of a process needs. Called by the path file, which some interpreters read twice."""
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    try:
        _run_shell_script()
        if "TRAINSHED_JOB_ID" in os.environ and switched_on(""):
            sys.meta_path.insert(0, _Finder())
    except Exception as fault:
        report_fault("the start of this process", fault)


def is_rehearsal():
    """Whether the job runs on a CPU in place of the devices that it asked for."""
    return os.environ.get("TRAINSHED_REHEARSAL") == "1"


def switched_on(name):
    """Whether a part is switched on; the empty name is all of it."""
    switches = os.environ.get("TRAINSHED_HOOKS", "").lower().replace(" ", "").split(",")
    return "off" not in switches and "-" + name not in switches


def say(text, kind="trainshed rehearsal"):
    """Write a line to the log once: not again from other ranks of the node, nor from processes started by this one."""
    try:
        for name in ("LOCAL_RANK", "PADDLE_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "DEVICE_ID"):
            if os.environ.get(name, "").isdigit():
                if int(os.environ[name]) > 0:
                    return
                break
        import zlib

        key = "{:x}".format(zlib.crc32(text.encode("utf-8", "replace")))
        said = os.environ.get("TRAINSHED_SAID", "").split(",")
        if key in said:
            return
        os.environ["TRAINSHED_SAID"] = ",".join([*filter(None, said), key])
        sys.stderr.write(f"[{kind}] {text}\n")
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):
        pass  # a process without a standard error


def report_fault(where, fault):
    """One line about a fault of ours; the script goes on."""
    try:
        line = f"[trainshed] {where} was not helped along: {type(fault).__name__}: {fault}"
        sys.stderr.write(line.replace("\n", " ") + "\n")
    except (AttributeError, OSError, ValueError):
        pass


def _run_shell_script():
    """`python run.sh`, as a guide's boot command has it, becomes `bash run.sh`."""
    arguments = getattr(sys, "argv", None) or [""]
    script = arguments[0]
    if not script.endswith(".sh") or not os.path.isfile(script) or not switched_on("shell"):
        return
    say(f"{script} is a shell script: bash runs it instead of python", "trainshed")
    try:
        os.execv("/bin/bash", ["bash", *arguments])
    except OSError as fault:
        report_fault(script, fault)


class _Finder:
    """Lets a named module load as it always does, then has our module change it."""

    def __init__(self):
        self._busy = set()

    def find_spec(self, name, path=None, target=None):
        """What the import system asks first, for every module."""
        if name not in _HOOKS and name not in _OF_THE_HOST:
            return None
        if name in self._busy:
            return None
        self._busy.add(name)
        try:
            spec = self._ask_others(name, path, target)
            if spec is None:
                return _stand_in(name)
            hooks = [
                (switch, changer)
                for switch, changer, rehearsal_only in _HOOKS.get(name, ())
                if switched_on(switch) and (is_rehearsal() or not rehearsal_only)
            ]
            if hooks and spec.loader is not None:
                _follow(spec, hooks)
            return spec
        except Exception as fault:
            report_fault("import " + name, fault)
            return None
        finally:
            self._busy.discard(name)

    def _ask_others(self, name, path, target):
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if finder is not self and find is not None:
                spec = find(name, path, target)
                if spec is not None:
                    return spec
        return None


def _follow(spec, hooks):
    """Have the loader call our changers after it ran the module. On its instance: its type stays what it is."""
    load = spec.loader.exec_module
    for _, changer in hooks:
        prepare = getattr(_load(changer), "prepare", None)
        if prepare is not None:
            prepare(spec.name)

    def exec_module(module):
        load(module)
        for _, changer in hooks:
            try:
                _load(changer).change(spec.name, module)
            except Exception as fault:
                report_fault(spec.name, fault)

    spec.loader.exec_module = exec_module


def _stand_in(name):
    """For a module of a device's host that is missing: a stand-in, or a line that there is none."""
    if name not in _OF_THE_HOST or not is_rehearsal() or not switched_on(name.replace("_", "-")):
        return None
    if _OF_THE_HOST[name]:
        from importlib.machinery import ModuleSpec

        return ModuleSpec(name, _load(_OF_THE_HOST[name]).Loader(), is_package=True)
    say(f"the module {name} cannot be mapped: it works on hosts with such devices only")
    return None


def _load(name):
    return __import__("trainshed_start." + name, fromlist=["change"])
