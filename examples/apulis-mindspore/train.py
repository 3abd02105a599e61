"""A small network learns MNIST in data parallel on all NPUs of the job.

Written for Ascend. In a rehearsal the platform maps the device to the CPU and the collective library to its CPU form;
nothing here knows of it.
"""

import argparse
import os

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
from mindspore import nn
from mindspore.communication import get_group_size, get_rank, init

parser = argparse.ArgumentParser()
parser.add_argument("--dataset_path", required=True)
parser.add_argument("--steps", type=int, default=8)
parser.add_argument("--batch_size", type=int, default=32)
arguments = parser.parse_args()

ms.set_seed(1)
ms.set_context(mode=ms.GRAPH_MODE, device_target="Ascend", device_id=int(os.environ["DEVICE_ID"]))
init("hccl")
rank, size = get_rank(), get_group_size()
ms.set_auto_parallel_context(
    parallel_mode=ms.ParallelMode.DATA_PARALLEL, gradients_mean=True, device_num=size
)

images = ds.MnistDataset(arguments.dataset_path, usage="train", num_shards=size, shard_id=rank)
images = images.map(lambda image: (image.astype(np.float32) / 255.0).reshape(-1), "image")
images = images.map(lambda label: label.astype(np.int32), "label")
images = images.batch(arguments.batch_size, drop_remainder=True).take(arguments.steps)

network = nn.SequentialCell(nn.Dense(784, 32), nn.ReLU(), nn.Dense(32, 10))
loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
optimizer = nn.Momentum(network.trainable_params(), learning_rate=0.1, momentum=0.9)
step = nn.TrainOneStepCell(nn.WithLossCell(network, loss), optimizer)
if size > 1:
    # Model.train would put this in; written out, it shows where the ranks meet.
    reducer = nn.DistributedGradReducer(optimizer.parameters, mean=True, degree=size)
    step.grad_reducer, step.reducer_flag = reducer, True
step.set_train()
for number, (image, label) in enumerate(images.create_tuple_iterator(), start=1):
    value = float(step(image, label).asnumpy())
    print(f"epoch: 1 step: {number}, loss is {value}", flush=True)
weights = sum(float(np.abs(item.asnumpy()).sum()) for item in network.get_parameters())
print(f"rank {rank} of {size}: weights {weights:.6f}", flush=True)
