"""PyTorch in a rehearsal: devices of other kinds become the CPU, NCCL and HCCL become Gloo."""

import functools
import os
import sys

from trainshed_start.hooks import report_fault, say
from trainshed_start.torch_accelerator import answers

__all__ = ["add_kind", "change", "kinds"]

# The kinds of devices that are mapped: only what the rehearsed machine would have.
kinds = set()
_BACKENDS = ("nccl", "hccl", "xccl", "mccl", "lccl")


def change(name, torch):
    """Change PyTorch after it was loaded."""
    if os.environ.get("TRAINSHED_DEVICE_KIND", "nvidia") != "ascend":
        kinds.add("cuda")
        for attribute, answer in answers("cuda", torch.cuda.is_available).items():
            setattr(torch.cuda, attribute, answer)
        _name_what_is_left(torch)
    for part in (
        _map_tensors,
        _map_factories,
        _map_loading,
        _map_precision,
        _map_modules,
        _map_communication,
    ):
        try:
            part(torch)
        except Exception as fault:
            report_fault(f"torch ({part.__name__.strip('_')})", fault)


def add_kind(torch, kind):
    """Map a further kind of device, when the script asks for it."""
    if kind not in kinds:
        kinds.add(kind)
        if kind == "cuda":
            for attribute, answer in answers("cuda", torch.cuda.is_available).items():
                setattr(torch.cuda, attribute, answer)


def map_device(device):
    """The device that is used for the one asked for."""
    if isinstance(device, bool):
        return device
    if isinstance(device, int):
        kind = min(kinds) if kinds else ""
    elif isinstance(device, str):
        kind = device.partition(":")[0]
    else:
        kind = getattr(device, "type", "")
    if kind not in kinds:
        return device
    say(f"{kind} devices run as CPU")
    return "cpu"


def _map_tensors(torch):
    move, change_type = torch.Tensor.to, torch.Tensor.type

    @functools.wraps(move)
    def to(self, *arguments, **options):
        arguments, options = _map_arguments(torch, arguments, options)
        return move(self, *arguments, **options)

    @functools.wraps(change_type)
    def type(self, dtype=None, *arguments, **options):
        name = (
            dtype
            if isinstance(dtype, str)
            else getattr(dtype, "__module__", "") + "." + getattr(dtype, "__name__", "")
        )
        if "cuda" in kinds and name.startswith("torch.cuda."):
            say("torch.cuda tensors are tensors of the CPU")
            dtype = "torch." + name.rpartition(".")[2]
        return change_type(self, dtype, *arguments, **options) if dtype is not None else change_type(self)

    def stay(self, *arguments, **options):
        say("Tensor.cuda(), .npu() and .pin_memory() leave tensors where they are: on the CPU")
        return self

    torch.Tensor.to, torch.Tensor.type = to, type
    torch.Tensor.cuda = torch.Tensor.npu = torch.Tensor.pin_memory = stay


def _map_arguments(torch, arguments, options):
    """The arguments of `to`: a device first, by name, or within another tensor."""
    if arguments and isinstance(arguments[0], (str, int, torch.device)):
        arguments = (map_device(arguments[0]), *arguments[1:])
    if options.get("device") is not None:
        options = dict(options, device=map_device(options["device"]))
    return arguments, options


def _map_factories(torch):
    """`torch.zeros(..., device="cuda")` and its like: by the mode that PyTorch has for a default device."""
    from torch.overrides import TorchFunctionMode

    class OnCpu(TorchFunctionMode):
        def __torch_function__(self, function, types, arguments=(), options=None):
            if options:
                if options.get("device") is not None:
                    options = dict(options, device=map_device(options["device"]))
                if options.get("pin_memory"):
                    options = dict(options, pin_memory=False)
            return function(*arguments, **(options or {}))

    OnCpu().__enter__()


def _map_loading(torch):
    load = torch.load

    @functools.wraps(load)
    def mapped(file, map_location=None, *arguments, **options):
        # Also what was saved on another device and is loaded without saying where to.
        location = "cpu" if map_location is None else map_location
        if not callable(location) and not isinstance(location, dict):
            location = map_device(location)
        return load(file, location, *arguments, **options)

    torch.load = mapped


def _map_precision(torch):
    autocast, scaler = torch.amp.autocast_mode.autocast, torch.amp.grad_scaler.GradScaler
    begin, scale = autocast.__init__, scaler.__init__

    @functools.wraps(begin)
    def without_autocast(self, device_type, *arguments, **options):
        if device_type not in kinds:
            return begin(self, device_type, *arguments, **options)
        say(f'autocast("{device_type}") computes in full precision')
        return begin(self, "cpu", enabled=False)

    @functools.wraps(scale)
    def without_scaling(self, device="cuda", *arguments, **options):
        if device not in kinds:
            return scale(self, device, *arguments, **options)
        say("GradScaler does not scale: gradients are computed in full precision")
        return scale(self, "cpu", enabled=False)

    autocast.__init__, scaler.__init__ = without_autocast, without_scaling


def _map_modules(torch):
    module, parallel = torch.nn.Module, torch.nn.parallel.DistributedDataParallel
    move, begin = module.to, parallel.__init__

    @functools.wraps(move)
    def to(self, *arguments, **options):
        arguments, options = _map_arguments(torch, arguments, options)
        return move(self, *arguments, **options)

    def stay(self, device=None):
        say("Module.cuda() and .npu() leave modules where they are: on the CPU")
        return self

    @functools.wraps(begin)
    def without_devices(self, module, device_ids=None, output_device=None, *arguments, **options):
        if device_ids or output_device is not None:
            say("DistributedDataParallel(device_ids=...) has no meaning on a CPU and is left out")
        return begin(self, module, None, None, *arguments, **options)

    def keep(cls, module, process_group=None):
        say(
            "SyncBatchNorm cannot be mapped: BatchNorm with the statistics of each rank alone stands in for it"
        )
        return module

    module.to, module.cuda, module.npu = to, stay, stay
    parallel.__init__ = without_devices
    torch.nn.SyncBatchNorm.convert_sync_batchnorm = classmethod(keep)


def _map_communication(torch):
    if not torch.distributed.is_available():
        return
    from torch.distributed import distributed_c10d as c10d

    def put(function):
        for module in (c10d, torch.distributed):
            setattr(module, function.__name__, function)

    begin, group, reduce, wait = c10d.init_process_group, c10d.new_group, c10d.all_reduce, c10d.barrier

    @functools.wraps(begin)
    def init_process_group(backend=None, *arguments, **options):
        options.pop("device_id", None)
        return begin(_map_backend(backend), *arguments, **options)

    @functools.wraps(group)
    def new_group(*arguments, **options):
        options.pop("device_id", None)
        options["backend"] = _map_backend(options.get("backend"))
        return group(*arguments, **options)

    @functools.wraps(reduce)
    def all_reduce(tensor, op=c10d.ReduceOp.SUM, group=None, async_op=False):
        if op != c10d.ReduceOp.AVG:
            return reduce(tensor, op, group, async_op)
        say("all_reduce(AVG) is a sum and a division: Gloo has no average")
        reduce(tensor, c10d.ReduceOp.SUM, group)
        tensor.div_(c10d.get_world_size(group))
        return _Done() if async_op else None

    @functools.wraps(wait)
    def barrier(group=None, async_op=False, device_ids=None):
        return wait(group, async_op)

    for function in (init_process_group, new_group, all_reduce, barrier):
        put(function)
    if kinds:
        for name in ("is_nccl_available", "is_hccl_available"):
            setattr(torch.distributed, name, lambda: True)


def _map_backend(backend):
    if isinstance(backend, str) and any(name in backend.lower() for name in _BACKENDS):
        say(f'init_process_group("{backend}") communicates by gloo, on the CPU')
        return "gloo"
    return backend


class _Done:
    """The handle of a communication that is over."""

    def wait(self, timeout=None):
        """It is over."""
        return True

    def is_completed(self):
        """It is."""
        return True


def _name_what_is_left(torch):
    """Whatever else needs a device ends in PyTorch's own error; before it, the log says that it was not mapped."""
    begin = torch.cuda._lazy_init

    @functools.wraps(begin)
    def named():
        asker = sys._getframe(1)
        say(
            f"{asker.f_globals.get('__name__')}.{asker.f_code.co_name} cannot be mapped: it needs a real device"
        )
        return begin()

    torch.cuda._lazy_init = named
