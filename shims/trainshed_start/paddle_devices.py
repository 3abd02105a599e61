"""Paddle in a rehearsal: GPUs, NPUs and XPUs become the CPU, NCCL and its like become Gloo."""

import functools
import os
import sys

from trainshed_start.hooks import report_fault, say
from trainshed_start.torch_accelerator import count_devices

__all__ = ["change"]

_KINDS = ("gpu", "npu", "xpu", "dcu", "mlu", "ascend", "intel_hpu")
_IDLE = ("synchronize", "empty_cache", "reset_max_memory_allocated", "reset_max_memory_reserved")
_NUMBERS = ("max_memory_allocated", "max_memory_reserved", "memory_allocated", "memory_reserved")


def change(name, paddle):
    """Change Paddle after it was loaded."""
    # Before the first communication: what the launch gave may be for the devices of the real job.
    os.environ["PADDLE_DISTRI_BACKEND"] = "gloo"
    for part in (_map_places, _map_devices, _map_questions, _map_normalization):
        try:
            part(paddle)
        except Exception as fault:
            report_fault(f"paddle ({part.__name__.strip('_')})", fault)


def _map_devices(paddle):
    choose, make = paddle.device.set_device, paddle.to_tensor

    @functools.wraps(choose)
    def set_device(device):
        return choose(_map(device))

    @functools.wraps(make)
    def to_tensor(data, dtype=None, place=None, *arguments, **options):
        return make(data, dtype, _map(place), *arguments, **options)

    def stay(self, *arguments, **options):
        say("Tensor.cuda() leaves tensors where they are: on the CPU")
        return self

    paddle.set_device = paddle.device.set_device = set_device
    paddle.to_tensor = to_tensor
    paddle.Tensor.cuda = stay


def _map(device):
    if not isinstance(device, str) or device.lower().partition(":")[0] not in _KINDS:
        return device
    say(f'the device "{device.partition(":")[0]}" runs as CPU')
    return "cpu"


def _map_places(paddle):
    for name in ("CUDAPlace", "NPUPlace", "XPUPlace", "CustomPlace", "CUDAPinnedPlace"):
        place = _stand_in(name, getattr(paddle.base.core, name, ()), paddle.CPUPlace)
        for module in (paddle, paddle.base):
            setattr(module, name, place)
    paddle.static.cuda_places = lambda device_ids=None: paddle.static.cpu_places(len(device_ids or [0]))


def _stand_in(name, original, cpu_place):
    class Kind(type):
        def __call__(cls, *arguments):
            say(f"{name} runs as CPUPlace")
            return cpu_place()

        def __instancecheck__(cls, place):
            return isinstance(place, original)

    return Kind(name, (), {})


def _map_questions(paddle):
    """A script is told that its devices are there; Paddle's own code is told the truth."""
    ask = paddle.device.is_compiled_with_cuda

    @functools.wraps(ask)
    def is_compiled_with_cuda():
        return True if _asked_by_script() and _rehearses_gpus() else ask()

    def device_count():
        return count_devices() if _asked_by_script() else 0

    def get_device_name(device=None):
        return "device rehearsed on a CPU"

    paddle.is_compiled_with_cuda = paddle.device.is_compiled_with_cuda = is_compiled_with_cuda
    paddle.device.cuda.device_count = device_count
    paddle.device.cuda.get_device_name = get_device_name
    for name in _IDLE:
        setattr(paddle.device.cuda, name, lambda *arguments: None)
    for name in _NUMBERS:
        setattr(paddle.device.cuda, name, lambda *arguments: 0)


def _asked_by_script():
    return sys._getframe(2).f_globals.get("__name__", "").partition(".")[0] != "paddle"


def _rehearses_gpus():
    return os.environ.get("TRAINSHED_DEVICE_KIND", "nvidia") != "ascend"


def _map_normalization(paddle):
    def keep(cls, layer):
        say(
            "SyncBatchNorm cannot be mapped: BatchNorm with the statistics of each rank alone stands in for it"
        )
        return layer

    paddle.nn.SyncBatchNorm.convert_sync_batchnorm = classmethod(keep)
