"""A script as it is written for the cloud: it fetches its data from OBS and brings its results back there.

The lines that deal with OBS and with devices are those of the MindSpore guide; the network is a small one,
in plain Python, so that it runs everywhere.
"""

import argparse
import json
import os

# adapt to cloud: used for downloading data
import moxing as mox

device_id = int(os.getenv("DEVICE_ID"))
device_num = int(os.getenv("RANK_SIZE"))


def create_dataset(dataset_path):
    """The points of all files, or this device's share of them."""
    points = []
    for name in sorted(os.listdir(dataset_path)):
        with open(os.path.join(dataset_path, name)) as file:
            points += [tuple(map(float, line.split(","))) for line in file]
    return points[device_id::device_num]


def train(points, epoch_size):
    """Fit a line by gradient descent."""
    slope, offset = 0.0, 0.0
    for epoch in range(1, epoch_size + 1):
        errors = [(slope * x + offset - y, x) for x, y in points]
        slope -= 0.5 * sum(error * x for error, x in errors) / len(errors)
        offset -= 0.5 * sum(error for error, _ in errors) / len(errors)
        loss = sum(error * error for error, _ in errors) / len(errors)
        print(f"epoch: {epoch}, loss: {loss:.6f}")
    return {"slope": slope, "offset": offset, "loss": loss}


def main(args):
    """Download, train, upload."""
    # adapt to cloud: define local data path
    local_data_path = "/cache/data"
    local_output_path = "/cache/output"

    if device_num > 1:
        # adapt to cloud: define distributed local data path
        local_data_path = os.path.join(local_data_path, str(device_id))

    # adapt to cloud: download data from obs to local location
    print("Download data.")
    mox.file.copy_parallel(src_url=args.data_url, dst_url=local_data_path)

    model = train(create_dataset(local_data_path), args.epoch_size)
    os.makedirs(local_output_path, exist_ok=True)
    with open(os.path.join(local_output_path, f"model-{device_id}.json"), "w") as file:
        json.dump(model, file)

    # adapt to cloud: upload the results from the local location to obs
    print("Upload results.")
    mox.file.copy_parallel(src_url=local_output_path, dst_url=args.train_url)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Fit a line.")
    # adapt to cloud: get obs data path
    parser.add_argument("--data_url", required=True, default=None, help="Location of data.")
    # adapt to cloud: get obs output path
    parser.add_argument("--train_url", required=True, default=None, help="Location of training outputs.")
    parser.add_argument("--epoch_size", type=int, default=90, help="Train epoch size.")
    args_opt, unknown = parser.parse_known_args()

    main(args_opt)
