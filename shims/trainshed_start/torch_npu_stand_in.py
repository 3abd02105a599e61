"""A stand-in for `torch_npu` in a rehearsal: `torch.npu` answers, and its devices are the CPU."""

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

from trainshed_start.hooks import say

__all__ = ["find_spec"]

_PARTS = ("torch_npu", "torch_npu.npu", "torch_npu.contrib", "torch_npu.contrib.transfer_to_npu")


def find_spec(name):
    """The specification of the stand-in or of a part of it; parts that it does not have are named."""
    if name in _PARTS:
        return ModuleSpec(name, _Loader(), is_package=True)
    say(f"{name} cannot be mapped: the stand-in for torch_npu has no such part")
    return None


class _Loader:
    """Fills the module that the import system made."""

    def create_module(self, spec):
        """The usual kind of module."""
        return sys.modules.get("torch.npu") if spec.name == "torch_npu.npu" else None

    def exec_module(self, module):
        """Have `torch` know npu devices."""
        import torch

        from trainshed_start.torch_devices import add_kind

        name = module.__spec__.name
        if name == "torch_npu":
            say("torch_npu is a stand-in: npu devices run as CPU")
            module.__version__ = "0.0+trainshed"
            module.npu = _make_npu(torch)
        elif name == "torch_npu.contrib.transfer_to_npu":
            say("transfer_to_npu: cuda devices run as CPU, too")
            add_kind(torch, "cuda")


def _make_npu(torch):
    from trainshed_start.torch_accelerator import answers
    from trainshed_start.torch_devices import add_kind

    npu = ModuleType("torch.npu")
    for name, answer in answers("npu", lambda: False).items():
        setattr(npu, name, answer)
    npu.amp = ModuleType("torch.npu.amp")
    npu.amp.autocast = lambda *arguments, **options: torch.autocast("npu", *arguments, **options)
    npu.amp.GradScaler = lambda *arguments, **options: torch.amp.GradScaler("npu", *arguments, **options)
    torch.utils.rename_privateuse1_backend("npu")
    torch._register_device_module("npu", npu)
    sys.modules["torch.npu"] = sys.modules["torch_npu.npu"] = npu
    add_kind(torch, "npu")
    return npu
