"""The options of early versions of `python -m paddle.distributed.launch`, as today's version has them."""

import os
import sys

from trainshed_start.hooks import say

__all__ = ["change", "rewrite"]

_LISTS = ("cluster_node_ips", "ips")
_OLD = (
    "cluster_node_ips",
    "ips",
    "node_ip",
    "started_port",
    "selected_gpus",
    "selected_npus",
    "use_paddlecloud",
)
_WITHOUT_VALUE = ("use_paddlecloud", "print_config")
_PORT = 6170


def change(name, module):
    """While the launcher is loaded, before it reads its arguments."""
    program = sys.argv[0] if sys.argv else ""
    if program == "-m" or os.path.basename(program) in ("fleetrun", "__main__.py", "launch.py"):
        arguments = rewrite(sys.argv[1:], os.environ)
        if arguments != sys.argv[1:]:
            shown = [argument for argument in arguments if argument not in sys.argv[1:]]
            say(
                "options of an early paddle.distributed.launch are passed on as: " + " ".join(shown),
                "trainshed",
            )
            sys.argv[1:] = arguments


def rewrite(arguments, variables):
    """The arguments with today's options in place of the old ones; those of the script stay as they are."""
    options, rest = _split(arguments)
    old = {name: value for name, value in options if name in _OLD}
    if not old:
        return list(arguments)
    kept = [item for item in options if item[0] not in _OLD]
    given = {name for name, _ in kept}
    added = []
    hosts = [host for name in _LISTS for host in old.get(name, "").split(",") if host]
    if len(hosts) > 1:
        names = [host.partition(":")[0] for host in hosts]
        own = old.get("node_ip", "").partition(":")[0]
        node = names.index(own) if own in names else variables.get("TRAINSHED_NODE", "0")
        port = hosts[0].partition(":")[2] or old.get("started_port") or _PORT
        added.append(("master", variables.get("PADDLE_MASTER") or f"{names[0]}:{port}"))
        added.append(("nnodes", str(len(hosts))))
        added.append(("rank", str(node)))
    devices = [device for name in _OLD[4:6] for device in old.get(name, "").split(",") if device]
    if devices:
        added.append(("nproc_per_node", str(len(devices))))
        if (
            variables.get("TRAINSHED_REHEARSAL") != "1"
            and variables.get("TRAINSHED_DEVICE_KIND", "") != "cpu"
        ):
            added.append(("devices", ",".join(devices)))
    today = [item for item in added if item[0] not in given]
    return [
        *(f"--{name}={value}" if value is not None else f"--{name}" for name, value in (*today, *kept)),
        *rest,
    ]


def _split(arguments):
    """The launcher's own options, as pairs, and what begins with the script."""
    options = []
    rest = list(arguments)
    while rest and rest[0].startswith("--"):
        name, equals, value = rest.pop(0)[2:].partition("=")
        if not equals and name in _WITHOUT_VALUE:
            value = None
        elif not equals:
            value = rest.pop(0) if rest and not rest[0].startswith("-") else None
        options.append((name, value))
    return options, rest
