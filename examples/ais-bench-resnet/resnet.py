"""A residual network of nine layers for small images of one channel."""

from mindspore import nn


class Block(nn.Cell):
    """Two convolutions around which the input passes by."""

    def __init__(self, channels_in, channels, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride=stride, pad_mode="same")
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, pad_mode="same")
        self.bn2 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU()
        self.is_changed = stride != 1 or channels_in != channels
        self.down = nn.Conv2d(channels_in, channels, 1, stride=stride, pad_mode="same")

    def construct(self, x):
        """The block's features."""
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        if self.is_changed:
            x = self.down(x)
        return self.relu(out + x)


def resnet(class_num=10):
    """The network."""
    return nn.SequentialCell(
        nn.Conv2d(1, 8, 3, pad_mode="same"),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        Block(8, 8, 1),
        Block(8, 16, 2),
        Block(16, 32, 2),
        nn.AvgPool2d(7),
        nn.Flatten(),
        nn.Dense(32, class_num),
    )
