"""Keeps the results of a benchmark run: a stand-in for the module of the same name that Ais-Bench's stubs bring along.

    ais_utils.set_result("training", "throughput_ratio", 1767.3)
    python ais_utils.py set_result training result OK

Results are kept as JSON, {"training": {"throughput_ratio": 1767.3, "result": "OK"}}, in the file that AIS_RESULT_FILE
names, or in `ais_result.json` of the working folder. Inside a job, numbers are metrics of the job too. Standard
library only, for Python 3.7 and later.
"""

import fcntl
import json
import os
import sys

__all__ = ["calc_lantency", "get_result", "result_file", "set_result"]


def result_file():
    """Where results are kept."""
    return os.environ.get("AIS_RESULT_FILE") or os.path.abspath("ais_result.json")


def set_result(mode, key, value):
    """Keep one result of a mode, such as "training" or "inference". Many processes may do so at once."""
    path = result_file()
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        os.makedirs(folder, exist_ok=True)
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        results = _read(path)
        results.setdefault(mode, {})[key] = value
        unfinished = f"{path}.{os.getpid()}"
        with open(unfinished, "w") as file:
            json.dump(results, file, indent=1, sort_keys=True)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    finally:
        os.close(lock)
    _tell_platform(key, value)
    sys.stdout.write(f"ais_utils: {mode} {key} {value}\n")
    sys.stdout.flush()


def get_result(mode, key, default=None):
    """A result that was kept, or `default`."""
    return _read(result_file()).get(mode, {}).get(key, default)


def calc_lantency(elapsedtime, count):
    """The mean time of one of `count` steps. (The name is spelled as callers spell it.)"""
    return elapsedtime / count if count else 0


def _read(path):
    try:
        with open(path) as file:
            results = json.load(file)
    except (OSError, ValueError):
        return {}
    return results if isinstance(results, dict) else {}


def _tell_platform(key, value):
    """Numbers become metrics of the job; outside of a job nothing happens."""
    try:
        number = float(value)
        import trainshed

        trainshed.log_metric(key, number)
    except (AttributeError, ImportError, TypeError, ValueError):
        pass


def main(arguments):
    """The command line: set_result MODE KEY VALUE, or get_result MODE KEY."""
    if len(arguments) == 4 and arguments[0] == "set_result":
        mode, key, text = arguments[1:]
        try:
            value = float(text)
        except ValueError:
            value = text
        set_result(mode, key, value)
        return 0
    if len(arguments) == 3 and arguments[0] == "get_result":
        value = get_result(*arguments[1:])
        if value is None:
            return 1
        sys.stdout.write(f"{value}\n")
        return 0
    sys.stderr.write("usage: ais_utils.py set_result MODE KEY VALUE | get_result MODE KEY\n")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
