"""A script for GPUs, with most of what such scripts do; it ends with `all is well`."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

assert torch.cuda.is_available() and torch.cuda.device_count() == 2
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
assert torch.cuda.current_device() == local_rank
torch.cuda.manual_seed_all(1)
dist.init_process_group("nccl", device_id=torch.device("cuda", local_rank))
device = torch.device("cuda", local_rank)

net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)).to(device)
net = nn.SyncBatchNorm.convert_sync_batchnorm(net)
net = DistributedDataParallel(net.cuda(local_rank), device_ids=[local_rank], output_device=local_rank)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
begin.record()
for _ in range(5):
    images = torch.randn(16, 4, device=device)
    labels = torch.zeros(16, dtype=torch.long).cuda(non_blocking=True)
    with torch.autocast("cuda"):
        loss = nn.functional.cross_entropy(net(images.to("cuda:0")), labels)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
end.record()
torch.cuda.synchronize()
assert begin.elapsed_time(end) > 0

number = torch.ones(1).cuda() * (local_rank + 1)
dist.all_reduce(number, op=dist.ReduceOp.AVG)
assert number.item() == 1.5
dist.barrier(device_ids=[local_rank])

file = f"/tmp/model-{local_rank}.pt"
torch.save(net.state_dict(), file)
for place in (device, f"cuda:{local_rank}", None):
    torch.load(file, map_location=place)
with torch.device("cuda"):
    assert torch.zeros(2).device.type == "cpu"
with torch.cuda.device(0), torch.cuda.stream(torch.cuda.Stream()):
    pass
assert torch.ones(2).type(torch.FloatTensor).pin_memory().to(0).device.type == "cpu"


@torch.jit.script
def compiled(x: torch.Tensor) -> torch.Tensor:
    """Compiled code sees PyTorch's own functions."""
    return torch.zeros(2, device=x.device) + x


compiled(torch.ones(2))
try:
    torch.cuda.get_device_properties(0)
except AssertionError as fault:
    print("as without a device:", fault, flush=True)
dist.destroy_process_group()
print("all is well", flush=True)
