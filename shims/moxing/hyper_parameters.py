"""The parameters that a job was started with."""

import sys

__all__ = ["get_hyper_parameter"]


def get_hyper_parameter(name, default=None):
    """The value of `--name=value` or `--name value` among the script's arguments, or the default."""
    option = "--" + name
    arguments = sys.argv[1:]
    for position, argument in enumerate(arguments):
        if argument.startswith(option + "="):
            return argument[len(option) + 1 :]
        if argument == option and position + 1 < len(arguments):
            return arguments[position + 1]
    return default
