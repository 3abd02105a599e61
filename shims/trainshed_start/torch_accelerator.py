"""What `torch.cuda` and `torch.npu` answer in a rehearsal."""

import contextlib
import os
import sys
import time

from trainshed_start.hooks import say

__all__ = ["answers", "count_devices"]

_current = [0]
_CONSTANTS = (
    (
        None,
        (
            "init",
            "synchronize",
            "empty_cache",
            "ipc_collect",
            "reset_peak_memory_stats",
            "reset_max_memory_allocated",
            "set_per_process_memory_fraction",
            "manual_seed",
            "manual_seed_all",
            "seed",
            "seed_all",
            "set_stream",
        ),
    ),
    (0, ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved")),
    (False, ("is_initialized", "is_bf16_supported")),
    ("", ("memory_summary",)),
    ((8, 0), ("get_device_capability",)),
)


def count_devices():
    """How many devices this process would see."""
    for name in ("CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES"):
        if os.environ.get(name):
            return len(os.environ[name].split(","))
    return int(os.environ.get("DEVICE_NUM") or 1)


def answers(kind, original_is_available):
    """The functions of `torch.<kind>`, by name.

    PyTorch's own code is still told the truth: it would go on to use the device.
    """

    def is_available():
        asker = sys._getframe(1).f_globals.get("__name__", "")
        if asker.partition(".")[0] == "torch":
            return original_is_available()
        say(f"{kind} devices run as CPU")
        return True

    def device_count():
        asker = sys._getframe(1).f_globals.get("__name__", "")
        return 0 if asker.partition(".")[0] == "torch" else count_devices()

    def get_device_name(device=None):
        return f"{kind} device rehearsed on a CPU"

    found = {
        "is_available": is_available,
        "device_count": device_count,
        "get_device_name": get_device_name,
        "set_device": _set_device,
        "current_device": _current_device,
        "Event": _Event,
        "Stream": _Stream,
    }
    # PyTorch's compiler wants every name to be an object of its own.
    for value, names in _CONSTANTS:
        found.update((name, _always(value)) for name in names)
    found.update((name, _make_stream()) for name in ("current_stream", "default_stream"))
    found.update((name, _around_nothing()) for name in ("stream", "device", "device_of"))
    return found


def _set_device(device):
    index = getattr(device, "index", None)
    if isinstance(device, int):
        index = device
    elif isinstance(device, str) and device.rpartition(":")[2].isdigit():
        index = int(device.rpartition(":")[2])
    _current[0] = index or 0


def _current_device():
    return _current[0]


def _always(value):
    def answer(*arguments, **options):
        return value

    return answer


def _make_stream():
    def stream(device=None):
        return _Stream()

    return stream


def _around_nothing():
    @contextlib.contextmanager
    def around(*arguments, **options):
        yield

    return around


class _Stream:
    """A stream of a device that does not exist: all work is done in order anyway."""

    def __init__(self, *arguments, **options):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def wait_stream(self, stream):
        """Nothing is ever under way."""

    def wait_event(self, event):
        """Nothing is ever under way."""

    def synchronize(self):
        """Nothing is ever under way."""

    def query(self):
        """Whether all work is done."""
        return True

    def record_event(self, event=None):
        """An event of this moment."""
        event = event or _Event()
        event.record()
        return event


class _Event:
    """A moment, as the clock has it."""

    def __init__(self, *arguments, **options):
        self._moment = None

    def record(self, stream=None):
        """Remember this moment."""
        self._moment = time.perf_counter()

    def elapsed_time(self, later):
        """Milliseconds from this event to a later one."""
        return (later._moment - self._moment) * 1000.0

    def wait(self, stream=None):
        """Nothing is ever under way."""

    def synchronize(self):
        """Nothing is ever under way."""

    def query(self):
        """Whether the event has happened."""
        return True
