"""LeNet learns MNIST on one or eight Ascend devices, with the data in object storage.

The pattern is that of the MindSpore guide for ModelArts: the script gets `data_url` and `train_url`, copies the data
to /cache with MoXing, finds its place by DEVICE_ID and RANK_SIZE, and copies its results back. It knows nothing of
Trainshed. What differs from the guide:

* MNIST and LeNet in place of CIFAR-10 and ResNet-50, so that a rehearsal on a CPU ends in a minute.
* `init()` before the distributed strategy: MindSpore 0.5 did without it, MindSpore 2 does not.
* Dataset operations are in `mindspore.dataset.vision` and `.transforms`, where MindSpore 2 has them.
* `--steps` stops early; 0 is the whole data set.
"""

import argparse
import os

import mindspore.dataset as ds
import mindspore.dataset.transforms as transforms
import mindspore.dataset.vision as vision
import moxing as mox
from lenet import LeNet5
from mindspore import Model, context, nn, set_seed
from mindspore import dtype as mstype
from mindspore.communication import init
from mindspore.context import ParallelMode
from mindspore.train import CheckpointConfig, LossMonitor, ModelCheckpoint

device_id = int(os.getenv("DEVICE_ID"))
device_num = int(os.getenv("RANK_SIZE"))


def create_dataset(dataset_path, batch_size=32):
    """The images of a folder, of this device's share where there are several."""
    if device_num == 1:
        dataset = ds.MnistDataset(dataset_path, shuffle=True)
    else:
        dataset = ds.MnistDataset(dataset_path, shuffle=True, num_shards=device_num, shard_id=device_id)
    dataset = dataset.map(
        [vision.Resize((32, 32)), vision.Rescale(1 / 255.0, 0.0), vision.HWC2CHW()], "image"
    )
    dataset = dataset.map(transforms.TypeCast(mstype.int32), "label")
    return dataset.batch(batch_size, drop_remainder=True)


def lenet_train(args):
    """Train, measure, and take the results home."""
    set_seed(1)
    context.set_context(mode=context.GRAPH_MODE, device_target="Ascend")
    # adapt to cloud: define local data path
    local_data_path = "/cache/data"
    output_path = "/cache/output"
    if device_num > 1:
        init()
        context.set_auto_parallel_context(
            device_num=device_num, parallel_mode=ParallelMode.DATA_PARALLEL, gradients_mean=True
        )
        # adapt to cloud: define distributed local data path
        local_data_path = os.path.join(local_data_path, str(device_id))
        output_path = os.path.join(output_path, str(device_id))

    # adapt to cloud: download data from obs to local location
    print("Download data.")
    mox.file.copy_parallel(src_url=args.data_url, dst_url=local_data_path)

    train_dataset = create_dataset(os.path.join(local_data_path, "train"))
    if args.steps:
        train_dataset = train_dataset.take(args.steps)
    network = LeNet5()
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    optimizer = nn.Momentum(network.trainable_params(), learning_rate=0.01, momentum=0.9)
    model = Model(network, loss_fn=loss, optimizer=optimizer, metrics={"accuracy"})
    steps = train_dataset.get_dataset_size()
    checkpoints = ModelCheckpoint(
        prefix="lenet", directory=output_path, config=CheckpointConfig(save_checkpoint_steps=steps)
    )
    model.train(
        args.epoch_size,
        train_dataset,
        callbacks=[LossMonitor(max(1, steps // 10)), checkpoints],
        dataset_sink_mode=False,
    )
    result = model.eval(create_dataset(os.path.join(local_data_path, "eval")), dataset_sink_mode=False)
    print("accuracy:", result["accuracy"])

    # adapt to cloud: upload the results
    train_url = args.train_url if device_num == 1 else os.path.join(args.train_url, str(device_id))
    mox.file.copy_parallel(src_url=output_path, dst_url=train_url)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="LeNet train.")
    # adapt to cloud: get obs data path
    parser.add_argument("--data_url", required=True, default=None, help="Location of data.")
    # adapt to cloud: get obs output path
    parser.add_argument("--train_url", required=True, default=None, help="Location of training outputs.")
    parser.add_argument("--epoch_size", type=int, default=1, help="Train epoch size.")
    parser.add_argument("--steps", type=int, default=0, help="Batches of an epoch; 0 is all of them.")
    args_opt, unknown = parser.parse_known_args()

    lenet_train(args_opt)
