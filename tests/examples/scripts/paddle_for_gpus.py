"""A script for GPUs with Paddle; it ends with `all is well`."""

import numpy as np
import paddle
from paddle.distributed import fleet

assert paddle.is_compiled_with_cuda() and paddle.device.cuda.device_count() == 2
fleet.init(is_collective=True)
rank = fleet.worker_index()
paddle.set_device(f"gpu:{rank}")
place = paddle.CUDAPlace(rank)
net = paddle.nn.Linear(32, 2)
net = paddle.nn.SyncBatchNorm.convert_sync_batchnorm(net)
optimizer = fleet.distributed_optimizer(paddle.optimizer.SGD(0.01, parameters=net.parameters()))
model = fleet.distributed_model(net)
for _ in range(3):
    images = paddle.to_tensor(np.ones((8, 32), "float32") * (rank + 1), place=place)
    loss = model(images).mean()
    loss.backward()
    optimizer.step()
    optimizer.clear_grad()
paddle.device.cuda.synchronize()
assert paddle.to_tensor([1.0], place="gpu:0").cuda().place.is_cpu_place()
assert paddle.device.get_device() == "cpu"
print("weights", float(net.weight.sum()), flush=True)
print("all is well", flush=True)
