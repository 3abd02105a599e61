"""A small ResNet that reports its throughput and accuracy as Ais-Bench's training scripts do.

Every rank writes `throughput_<rank>.json` to `train_url`, the first one `ranksize.json` and `accuracy.json`; each file
is one bare number. With SINGLESERVER_MODE=True (an `export` line in ma-pre-start.sh) every server trains for itself:
the rank table is cut down to the own server, and results go to `<server_id>/`. What differs from the benchmark's own
ResNet-50 on ImageNet:

* A network of nine layers and MNIST, so that a rehearsal on a CPU ends in a minute.
* Settings are read from a flat file without a YAML package, which today's MindSpore does not bring along.
* `init()` and dataset operations are where MindSpore 2 has them.
"""

import argparse
import json
import os
import time

import moxing as mox

HERE = os.path.dirname(os.path.abspath(__file__))


def read_config():
    """The settings of the file that `config_path` names, and the arguments in front of them."""
    parser = argparse.ArgumentParser(description="Ais-Bench ResNet.")
    parser.add_argument("--config_path", default="resnet_mnist_config.yaml")
    parser.add_argument("--data_url", required=True)
    parser.add_argument("--train_url", required=True)
    for name in ("enable_modelarts", "run_distribute", "run_eval"):
        parser.add_argument("--" + name)
    for name in ("epoch_size", "device_num", "steps"):
        parser.add_argument("--" + name, type=int)
    args, _ = parser.parse_known_args()
    config = {}
    with open(os.path.join(HERE, args.config_path)) as file:
        for line in file:
            name, colon, value = line.partition("#")[0].partition(":")
            if colon:
                config[name.strip()] = value.strip()
    config.update({name: str(value) for name, value in vars(args).items() if value is not None})
    return config


def is_on(config, name):
    """Whether a switch is set."""
    return config.get(name, "").lower() == "true"


def use_own_server_only():
    """SINGLESERVER_MODE: cut the rank table down to this server and count ranks from 0 again."""
    path = os.environ["RANK_TABLE_FILE"]
    index = int(os.environ.get("VC_TASK_INDEX") or os.environ.get("DLS_TASK_INDEX") or 0)
    with open(path) as file:
        table = json.load(file)
    # A rank of the same server may have been quicker: then the table has one server already.
    server = table["server_list"][index if len(table["server_list"]) > 1 else 0]
    size = len(server["device"])
    for number, device in enumerate(server["device"]):
        device["rank_id"] = str(number)
    table.update(server_count="1", server_list=[server])
    unfinished = "{}.{}".format(path, os.environ["RANK_ID"])
    with open(unfinished, "w") as file:
        json.dump(table, file)
    os.replace(unfinished, path)
    os.environ["RANK_ID"] = str(int(os.environ["RANK_ID"]) % size)
    os.environ["RANK_SIZE"] = str(size)
    return server["server_id"]


def sync_data(data_url, data_path):
    """The first process of the node copies the data; the others wait for it."""
    lock = "/tmp/copy_sync.lock0"
    if int(os.environ.get("DEVICE_ID", "0")) == 0 and not os.path.exists(lock):
        mox.file.copy_parallel(data_url, data_path)
        open(lock, "w").close()
    while not os.path.exists(lock):
        time.sleep(0.2)


def write_number(url, name, number):
    """One bare number in a file of its own."""
    mox.file.write(os.path.join(url, name), str(number))


def train(config):
    """Train and measure; returns images per second and, where asked for, the accuracy."""
    import mindspore.dataset as ds
    import mindspore.dataset.transforms as transforms
    import mindspore.dataset.vision as vision
    from mindspore import Model, context, nn, set_seed
    from mindspore import dtype as mstype
    from mindspore.communication import init
    from mindspore.context import ParallelMode
    from mindspore.train import Callback
    from resnet import resnet

    rank, size = int(os.environ["RANK_ID"]), int(os.environ["RANK_SIZE"])
    batch_size, epochs = int(config["batch_size"]), int(config["epoch_size"])
    set_seed(1)
    context.set_context(mode=context.GRAPH_MODE, device_target="Ascend")
    if is_on(config, "run_distribute") and size > 1:
        init()
        context.set_auto_parallel_context(
            device_num=size, parallel_mode=ParallelMode.DATA_PARALLEL, gradients_mean=True
        )

    def create_dataset(folder, shards):
        data = ds.MnistDataset(folder, shuffle=True, num_shards=shards, shard_id=rank if shards else None)
        data = data.map([vision.Rescale(1 / 255.0, 0.0), vision.HWC2CHW()], "image")
        data = data.map(transforms.TypeCast(mstype.int32), "label")
        return data.batch(batch_size, drop_remainder=True)

    class Throughput(Callback):
        """Times the steps after the first, which compiles the network."""

        def __init__(self):
            super().__init__()
            self.first, self.last, self.steps = 0.0, 0.0, 0

        def on_train_step_end(self, run_context):
            """Another step."""
            self.last = time.time()
            if not self.first:
                self.first = self.last
                return
            self.steps += 1
            if self.steps % 20 == 0:
                print(f"step: {self.steps}, images per second: {self.rate():.1f}", flush=True)

        def rate(self):
            """Images per second."""
            return self.steps * batch_size / (self.last - self.first) if self.last > self.first else 0.0

    train_data = create_dataset("/cache/data/train", size if size > 1 else None)
    if int(config["steps"]):
        train_data = train_data.take(int(config["steps"]))
    network = resnet(int(config["class_num"]))
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    optimizer = nn.Momentum(network.trainable_params(), float(config["lr"]), float(config["momentum"]))
    model = Model(network, loss_fn=loss, optimizer=optimizer, metrics={"acc"})
    throughput = Throughput()
    model.train(epochs, train_data, callbacks=[throughput], dataset_sink_mode=False)
    accuracy = None
    if is_on(config, "run_eval") and rank == 0:
        accuracy = model.eval(create_dataset("/cache/data/val", None), dataset_sink_mode=False)["acc"]
    return throughput.rate(), accuracy


def main():
    """Prepare, train, write the results."""
    config = read_config()
    server, train_url = "", config["train_url"]
    if os.environ.get("SINGLESERVER_MODE") == "True":
        server = use_own_server_only()
    rank, size = os.environ["RANK_ID"], os.environ["RANK_SIZE"]
    if is_on(config, "enable_modelarts"):
        sync_data(config["data_url"], "/cache/data")
    throughput, accuracy = train(config)
    target = os.path.join(train_url, server) if server else train_url
    mox.file.make_dirs(target)
    write_number(target, f"throughput_{rank}.json", throughput)
    print(f"throughput_ratio: {throughput:.1f}")
    if rank == "0":
        write_number(train_url, "ranksize.json", size)
    if accuracy is not None:
        index = os.environ.get("VC_TASK_INDEX") or os.environ.get("DLS_TASK_INDEX") or "0"
        write_number(train_url, f"accuracy_{server or index}.json", accuracy)
        if not server:
            write_number(train_url, "accuracy.json", accuracy)
        print(f"accuracy: {accuracy:.4f}")


if __name__ == "__main__":
    main()
