"""LeNet goes on learning MNIST from a pretrained checkpoint: the adapted script of Xihe's guide.

The arguments are parsed strictly, as there: the platform passes `pretrain_url` (a file), `data_url` (a folder) and
`output_path`, because the job names them, and nothing else. What differs from the guide:

* `mindvision` ended with MindSpore 1; what the guide takes from it is in `mnist_lenet.py`.
* Graph mode, which was the default for this script's version and is not any more.
* One epoch in place of ten; `EPOCHS` in the environment changes it, and `STEPS` ends an epoch early.
"""

import argparse
import os

import mindspore.nn as nn
from mindspore import GRAPH_MODE, load_checkpoint, load_param_into_net, set_context
from mindspore.train import CheckpointConfig, Model, ModelCheckpoint
from mnist_lenet import LossMonitor, Mnist, lenet


def parse_args():
    """Where the checkpoint and the data are, and where the model goes."""
    parser = argparse.ArgumentParser(
        description="train mnist", formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--pretrain_url", type=str, default="", help="the pretrained checkpoint")
    parser.add_argument("--data_url", type=str, default="", help="the training data")
    parser.add_argument("--output_path", default="", type=str, help="the path model saved")
    return parser.parse_args()


def train(args_opt):
    """Load, train, save."""
    set_context(mode=GRAPH_MODE)
    param_dict = load_checkpoint(args_opt.pretrain_url)
    network = lenet(num_classes=10, pretrained=False)
    not_loaded, _ = load_param_into_net(network, param_dict)
    print("parameters without a pretrained value:", not_loaded)
    net_loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    net_opt = nn.Momentum(network.trainable_params(), learning_rate=0.01, momentum=0.9)
    model = Model(network, loss_fn=net_loss, optimizer=net_opt, metrics={"accuracy"})

    download_train = Mnist(
        path=args_opt.data_url,
        split="train",
        batch_size=32,
        repeat_num=1,
        shuffle=True,
        resize=32,
        download=True,
    )
    dataset_train = download_train.run()
    steps = int(os.environ.get("STEPS", "0"))
    if steps:
        dataset_train = dataset_train.take(steps)

    size = dataset_train.get_dataset_size()
    config_ck = CheckpointConfig(save_checkpoint_steps=size, keep_checkpoint_max=10)
    ckpoint = ModelCheckpoint(prefix="lenet", directory=args_opt.output_path, config=config_ck)
    epochs = int(os.environ.get("EPOCHS", "1"))
    model.train(
        epochs,
        dataset_train,
        callbacks=[ckpoint, LossMonitor(0.01, max(1, size // 5))],
        dataset_sink_mode=False,
    )
    accuracy = model.eval(Mnist(path=args_opt.data_url, split="test").run(), dataset_sink_mode=False)[
        "accuracy"
    ]
    print("accuracy:", accuracy)


if __name__ == "__main__":
    train(parse_args())
