"""Names and addresses under which a machine is reached, and which of them a certificate holds."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

from trainshed.model.errors import InvalidInput

__all__ = ["check_host_names", "is_address", "is_covered"]

_NAME = re.compile(
    r"(?=.{1,253}$)([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9])?\.)*[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
)


def is_address(host: str) -> bool:
    """Whether this is an IP address and not a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_covered(host: str, names: Iterable[str]) -> bool:
    """Whether a certificate for these names and addresses is good for that host."""
    if is_address(host):
        wanted = ipaddress.ip_address(host)
        return any(is_address(name) and ipaddress.ip_address(name) == wanted for name in names)
    host = host.lower().rstrip(".")
    first, _, rest = host.partition(".")
    # As clients judge: a star stands for one whole label, and has at least two labels behind it.
    return any(
        name.lower() == host
        or (name.startswith("*.") and "." in name[2:] and first and name[2:].lower() == rest)
        for name in names
    )


def check_host_names(value: object, where: str) -> tuple[str, ...]:
    """The setting `host_names`: a list of names and addresses; in a variable they are divided by commas."""
    entries = value.split(",") if isinstance(value, str) else value
    if not isinstance(entries, list | tuple) or not all(isinstance(entry, str) for entry in entries):
        raise InvalidInput(
            "The setting 'host_names' is a list of names.",
            hint='Write it as host_names = ["train.example.org", "192.0.2.7"].',
            where=where,
        )
    names = [entry.strip().lower().rstrip(".") for entry in entries]
    for name in names:
        if name and not is_address(name) and not _NAME.fullmatch(name.removeprefix("*.")):
            raise InvalidInput(
                f"'{name[:200]}' is neither a host name nor an address.",
                hint="Write names without scheme and port, such as train.example.org.",
                where=where,
            )
    return tuple(name for name in names if name)
