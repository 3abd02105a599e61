"""MindSpore in a rehearsal: what asks for Ascend or a GPU runs on the CPU."""

import functools

from trainshed_start.hooks import say

__all__ = ["change"]

_DEVICES = ("Ascend", "GPU", "Davinci")
_BACKENDS = ("hccl", "nccl")
# Options of a context that only such devices know, some of them of early versions.
_OPTIONS_OF_DEVICES = (
    "aoe_config",
    "aoe_tune_mode",
    "ascend_config",
    "auto_tune_mode",
    "disable_format_transform",
    "enable_auto_mixed_precision",
    "enable_dynamic_memory",
    "enable_gpu_summary",
    "enable_hccl",
    "enable_ir_fusion",
    "enable_loop_sink",
    "enable_mem_reuse",
    "enable_reduce_precision",
    "enable_task_sink",
    "gpu_config",
    "max_device_memory",
    "mempool_block_size",
    "op_timeout",
    "variable_memory_max_size",
)


def change(name, module):
    """Change one module of MindSpore after it was loaded."""
    if name == "mindspore.context":
        module.set_context = _map_context(module.set_context)
    elif name == "mindspore.device_manager":
        module.set_device = _map_device(module.set_device)
    elif name == "mindspore.train.model":
        module.Model.__init__ = _map_precision(module.Model.__init__)
    elif name == "mindspore.communication.management":
        module.init = _map_backend(module.init, "backend_name")
        if hasattr(module, "_init_with_store"):
            module._init_with_store = _map_backend(module._init_with_store, "backend")


def _map_context(set_context):
    @functools.wraps(set_context)
    def mapped(**options):
        if options.get("device_target") in _DEVICES:
            say('device_target="{}" runs as CPU'.format(options["device_target"]))
            options["device_target"] = "CPU"
        for option in _OPTIONS_OF_DEVICES:
            if option in options:
                say(f"set_context({option}=...) has no meaning on a CPU and is left out")
                del options[option]
        return set_context(**options) if options else None

    return mapped


def _map_device(set_device):
    @functools.wraps(set_device)
    def mapped(device_target, device_id=None):
        if device_target in _DEVICES:
            say(f'set_device("{device_target}") runs as CPU')
            return set_device("CPU")
        return set_device(device_target, device_id)

    return mapped


def _map_precision(initialize):
    @functools.wraps(initialize)
    def mapped(self, *arguments, **options):
        level = options.get("amp_level", "O0")
        if level not in ("O0", "O1"):
            say(f'Model(amp_level="{level}") runs in full precision ("O0")')
            options["amp_level"] = "O0"
        return initialize(self, *arguments, **options)

    return mapped


def _map_backend(init, parameter):
    @functools.wraps(init)
    def mapped(*arguments, **options):
        asked = arguments[0] if arguments else options.get(parameter)
        if asked in _BACKENDS:
            say(f'init("{asked}") communicates by mccl, on the CPU')
            if arguments:
                arguments = ("mccl", *arguments[1:])
            else:
                options[parameter] = "mccl"
        return init(*arguments, **options)

    return mapped
