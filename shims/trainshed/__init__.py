"""What a training script sees of Trainshed inside a job: `trainshed.log_metric`.

Without dependencies and for Python 3.7 and later; it stands in only where the job's environment has no
package `trainshed` of its own.
"""

import json
import math
import os
import time

__all__ = ["log_metric"]


def log_metric(name, value, step=None, epoch=None):
    """Record a point of a metric. Returns whether it was recorded: outside a job nothing happens."""
    path = os.environ.get("TRAINSHED_METRICS_FILE")
    if not path:
        return False
    # Tensors and NumPy numbers of all frameworks know how to become a float.
    number = float(value)
    if math.isnan(number):
        number = "nan"
    elif math.isinf(number):
        number = "inf" if number > 0 else "-inf"
    point = {"time": time.time(), "rank": _rank(), "name": str(name), "value": number}
    if step is not None:
        point["step"] = int(step)
    if epoch is not None:
        point["epoch"] = float(epoch)
    line = (json.dumps(point, ensure_ascii=False) + "\n").encode("utf-8", "replace")
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    except OSError:
        # A full disk or a closed folder must not end the training for the sake of a number.
        return False
    try:
        # One write with O_APPEND: the lines of several processes never mix.
        return os.write(descriptor, line) == len(line)
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _rank():
    try:
        return int(os.environ.get("RANK") or os.environ.get("RANK_ID") or "0")
    except ValueError:
        return 0
