"""Which modules are changed after they were loaded, by what, and how that is told."""

import os
import sys

__all__ = ["find_spec", "is_rehearsal", "report_fault", "run_shell_script", "say", "switched_on"]

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
_OF_HOSTS = {
    "torch_npu": "torch_npu_stand_in",
    "npu_bridge": "",
    "npu_device": "",
    "acl": "",
    "te": "",
    "tbe": "",
    "horovod": "",
}
_busy = set()


def is_rehearsal():
    """Whether the job runs on a CPU in place of the devices that it asked for."""
    return os.environ.get("TRAINSHED_REHEARSAL") == "1"


def switched_on(name):
    """Whether a part is switched on."""
    switches = os.environ.get("TRAINSHED_HOOKS", "").lower().replace(" ", "").split(",")
    return "off" not in switches and "-" + name not in switches


def say(text, kind="trainshed rehearsal"):
    """Write a line to the log once: not again from the node's other ranks, nor from processes started by this one."""
    try:
        for name in ("LOCAL_RANK", "PADDLE_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "DEVICE_ID"):
            if os.environ.get(name, "").isdigit():
                if int(os.environ[name]) > 0:
                    return
                break
        import zlib

        key = f"{zlib.crc32(text.encode('utf-8', 'replace')):x}"
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


def run_shell_script(arguments):
    """`python run.sh`, as a guide's boot command has it, becomes `bash run.sh`."""
    script = arguments[0]
    if not os.path.isfile(script) or not switched_on("shell"):
        return
    say(f"{script} is a shell script: bash runs it instead of python", "trainshed")
    try:
        os.execv("/bin/bash", ["bash", *arguments])
    except OSError as fault:
        report_fault(script, fault)


def find_spec(asker, name, path, target):
    """What the import system is told of a module: what it would find anyway, with our change to follow."""
    is_stand_in = name.startswith("torch_npu.")
    if name in _busy or (name not in _HOOKS and name not in _OF_HOSTS and not is_stand_in):
        return None
    _busy.add(name)
    try:
        spec = _ask_others(asker, name, path, target)
        if spec is None:
            return _stand_in(name)
        changers = [
            changer
            for switch, changer, rehearsal_only in _HOOKS.get(name, ())
            if switched_on(switch) and (is_rehearsal() or not rehearsal_only)
        ]
        if changers and spec.loader is not None:
            _follow(spec, changers)
        return spec
    except Exception as fault:
        report_fault("import " + name, fault)
        return None
    finally:
        _busy.discard(name)


def _ask_others(asker, name, path, target):
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        if finder is not asker and find is not None:
            spec = find(name, path, target)
            if spec is not None:
                return spec
    return None


def _follow(spec, changers):
    """Have the loader call our changers after it ran the module. On its instance: its type stays what it is."""
    load = spec.loader.exec_module
    for changer in changers:
        prepare = getattr(_load(changer), "prepare", None)
        if prepare is not None:
            prepare(spec.name)

    def exec_module(module):
        load(module)
        for changer in changers:
            try:
                _load(changer).change(spec.name, module)
            except Exception as fault:
                report_fault(spec.name, fault)

    spec.loader.exec_module = exec_module


def _stand_in(name):
    """For a module of a device's host that is missing: a stand-in, or a line that there is none."""
    top = name.partition(".")[0]
    if top not in _OF_HOSTS or not is_rehearsal() or not switched_on(top.replace("_", "-")):
        return None
    if _OF_HOSTS[top]:
        return _load(_OF_HOSTS[top]).find_spec(name)
    say(f"the module {name} cannot be mapped: it works on hosts with such devices only")
    return None


def _load(name):
    return __import__("trainshed_start." + name, fromlist=["change"])
