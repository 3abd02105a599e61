"""Adds up what the ranks of a benchmark run measured and hands it to ais_utils, as the benchmark's local side does."""

import argparse
import os

import ais_utils


def read_number(folder, name):
    """The number in a file."""
    with open(os.path.join(folder, name)) as file:
        return float(file.read())


def report(folder):
    """Throughput of all ranks together, and the accuracy."""
    servers = [name for name in sorted(os.listdir(folder)) if os.path.isdir(os.path.join(folder, name))]
    size = int(read_number(folder, "ranksize.json"))
    if servers:
        # Every server trained for itself: the mean over servers of what their ranks did together.
        sums = [
            sum(read_number(os.path.join(folder, server), f"throughput_{rank}.json") for rank in range(size))
            for server in servers
        ]
        throughput = sum(sums) / len(sums)
        accuracy = sum(read_number(folder, f"accuracy_{server}.json") for server in servers) / len(servers)
    else:
        throughput = sum(read_number(folder, f"throughput_{rank}.json") for rank in range(size))
        accuracy = read_number(folder, "accuracy.json")
    ais_utils.set_result("training", "throughput_ratio", throughput)
    ais_utils.set_result("training", "accuracy", accuracy)
    ais_utils.set_result("training", "result", "OK")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--result", required=True, help="the folder with the result files")
    parser.add_argument("--report", help="the folder for ais_result.json")
    arguments = parser.parse_args()
    if arguments.report:
        os.environ["AIS_RESULT_FILE"] = os.path.join(arguments.report, "ais_result.json")
    report(arguments.result)
