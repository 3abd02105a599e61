"""Which worlds there can be: how many devices a node gives, and how many nodes and processes go with them."""

from __future__ import annotations

import re

from trainshed.model.errors import InvalidInput
from trainshed.model.flavor import ASCEND_COUNTS, Flavor

__all__ = ["check_device_count", "check_world_shape"]

_WHOLE_SERVER = 8
_MODELARTS = ("modelarts-v1", "modelarts-v2", "xihe")


def check_device_count(flavor: str) -> None:
    """Refuse the name of a flavor that asks for a number of Ascend devices that no server gives."""
    match = re.fullmatch(r"ascend\.([0-9]{1,4})", flavor)
    if match and int(match[1]) not in ASCEND_COUNTS:
        raise InvalidInput(
            f"An Ascend node gives a job 1, 2, 4, 8 or 16 devices, not {match[1]}.",
            hint="Use ascend.1, ascend.2, ascend.4 and so on; `trainshed flavors` lists what this platform offers.",
            code="device_count",
            where="flavor",
        )


def check_world_shape(flavor: Flavor, nodes: int, processes: int, dialect: str) -> None:
    """Refuse a number of ranks that the devices do not allow. `processes` is 0 for one per device."""
    if flavor.kind != "cpu" and processes > flavor.devices:
        raise InvalidInput(
            f"{processes} processes cannot share the {flavor.devices} devices of {flavor.name}: each needs one.",
            hint="Leave `processes` out for one per device, or use a larger flavor.",
            code="rank_count",
            where="processes",
        )
    if flavor.kind == "ascend" and nodes > 1 and dialect in _MODELARTS and flavor.devices != _WHOLE_SERVER:
        raise InvalidInput(
            f"On several Ascend nodes {dialect} trains with {_WHOLE_SERVER} devices each, not {flavor.devices}.",
            hint=f"Use ascend.{_WHOLE_SERVER}, or one node.",
            code="device_count",
            where="flavor",
        )
