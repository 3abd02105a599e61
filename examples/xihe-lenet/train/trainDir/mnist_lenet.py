"""What the guide takes from `mindvision`: the data set, the network and the monitor, for MindSpore 2."""

import os
import time

import mindspore.dataset as ds
import mindspore.dataset.transforms as transforms
import mindspore.dataset.vision as vision
from mindspore import Callback, nn
from mindspore import dtype as mstype


class Mnist:
    """The images of a split, ready for LeNet."""

    def __init__(
        self, path, split="train", batch_size=32, repeat_num=1, shuffle=None, resize=32, download=False
    ):
        self.path, self.split, self.batch_size = os.path.join(path, split), split, batch_size
        self.repeat_num, self.shuffle, self.resize = repeat_num, shuffle, resize
        if download and not os.path.isdir(self.path):
            raise RuntimeError("training code does not download: put the data set at " + self.path)

    def run(self):
        """The batches."""
        data = ds.MnistDataset(self.path, usage=self.split, shuffle=self.shuffle)
        size = (self.resize, self.resize)
        data = data.map([vision.Resize(size), vision.Rescale(1 / 255.0, 0.0), vision.HWC2CHW()], "image")
        data = data.map(transforms.TypeCast(mstype.int32), "label")
        return data.batch(self.batch_size, drop_remainder=True).repeat(self.repeat_num)


class LeNet5(nn.Cell):
    """Two convolutions and three dense layers."""

    def __init__(self, num_class=10, num_channel=1):
        super().__init__()
        self.conv1 = nn.Conv2d(num_channel, 6, 5, pad_mode="valid")
        self.conv2 = nn.Conv2d(6, 16, 5, pad_mode="valid")
        self.fc1 = nn.Dense(16 * 5 * 5, 120)
        self.fc2 = nn.Dense(120, 84)
        self.fc3 = nn.Dense(84, num_class)
        self.relu = nn.ReLU()
        self.max_pool2d = nn.MaxPool2d(kernel_size=2, stride=2)
        self.flatten = nn.Flatten()

    def construct(self, x):
        """Ten numbers for every image."""
        x = self.max_pool2d(self.relu(self.conv1(x)))
        x = self.max_pool2d(self.relu(self.conv2(x)))
        x = self.flatten(x)
        return self.fc3(self.relu(self.fc2(self.relu(self.fc1(x)))))


def lenet(num_classes=10, pretrained=False):
    """The network; its first weights come from the checkpoint that the job names."""
    assert not pretrained, "training code does not download"
    return LeNet5(num_classes)


class LossMonitor(Callback):
    """Prints loss and learning rate in the form that the platform's standard evaluation reads."""

    def __init__(self, lr_init, per_print_times=1):
        super().__init__()
        self.lr, self.every, self.losses, self.began = lr_init, per_print_times, [], 0.0

    def on_train_epoch_begin(self, run_context):
        """Begin the mean of an epoch."""
        self.losses = []

    def on_train_step_begin(self, run_context):
        """Begin the time of a step."""
        self.began = time.time()

    def on_train_step_end(self, run_context):
        """Print every so many steps, and at the end of an epoch."""
        run = run_context.original_args()
        loss = float(run.net_outputs.asnumpy())
        self.losses.append(loss)
        step = (run.cur_step_num - 1) % run.batch_num + 1
        if step % self.every == 0 or step == run.batch_num:
            mean = sum(self.losses) / len(self.losses)
            print(
                f"Epoch:[{run.cur_epoch_num:3d}/{run.epoch_num:3d}], step:[{step:5d}/{run.batch_num:5d}], "
                f"loss:[{loss:5.3f}/{mean:5.3f}], time:{1000 * (time.time() - self.began):5.3f} ms, lr:{self.lr:5.5f}",
                flush=True,
            )
