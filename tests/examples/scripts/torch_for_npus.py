"""A script for Ascend devices by torch_npu; it ends with `all is well`."""

import torch
import torch_npu
from torch_npu.contrib import transfer_to_npu  # noqa: F401

assert torch.npu.is_available() and torch_npu.npu.device_count() == 8
device = torch.device("npu:3")
torch.npu.set_device(device)
assert torch.zeros(2, device=device).device.type == "cpu"
assert torch.ones(1).npu().device.type == "cpu"
assert torch.nn.Linear(1, 1).to("npu").weight.device.type == "cpu"
with torch.npu.amp.autocast():
    pass
# transfer_to_npu lets scripts for GPUs run.
assert torch.cuda.is_available() and torch.ones(1, device="cuda").to("cuda:1").device.type == "cpu"
try:
    import torch_npu.profiler
except ImportError as fault:
    print(fault)
print("all is well", flush=True)
