"""How much MindSpore and Ascend write into the log, as the variables that they read."""

from __future__ import annotations

__all__ = ["log_level_variables"]

# level -> (GLOG_v, ASCEND_GLOBAL_LOG_LEVEL). The two scales differ: the first has no DEBUG and no NULL, the second
# no FATAL; what a scale does not have becomes its nearest.
_LEVELS = {
    "DEBUG": ("0", "0"),
    "INFO": ("0", "1"),
    "WARNING": ("1", "2"),
    "ERROR": ("2", "3"),
    "FATAL": ("3", "3"),
    "NULL": ("3", "4"),
}
_TALKATIVE = ("DEBUG", "INFO")


def log_level_variables(level: str) -> dict[str, str]:
    """The variables of a job's `framework_log_level`; none where it names no level."""
    if not level:
        return {}
    glog, ascend = _LEVELS[level]
    events = "1" if level in _TALKATIVE else "0"
    return {
        "GLOG_v": glog,
        "ASCEND_GLOBAL_LOG_LEVEL": ascend,
        "ASCEND_GLOBAL_EVENT_ENABLE": events,
        "ASCEND_SLOG_PRINT_TO_STDOUT": events,
    }
