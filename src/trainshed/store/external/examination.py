"""Does an endpoint do what the platform asks of it? Each probe says what was found."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass

from trainshed.model.errors import TrainshedError
from trainshed.store.external.address import Address, Credentials
from trainshed.store.external.key_names import PLAIN
from trainshed.store.external.layout import Layout, list_page, names_in
from trainshed.store.external.wire import Refused, Wire

__all__ = ["Probe", "examine_endpoint"]


@dataclass(frozen=True)
class Probe:
    """One thing that was tried at the endpoint."""

    is_well: bool
    found: str
    fix: str = ""
    # Whether the platform cannot do without.
    is_needed: bool = True


def examine_endpoint(address: Address, credentials: Credentials | None = None) -> Iterator[Probe]:
    """Try all that the platform needs. Leaves nothing but the place's own record."""
    wire = Wire(address, credentials)
    try:
        yield from _examine(wire, Layout(wire))
    except TrainshedError as fault:
        yield Probe(False, fault.message, fault.hint)
    except Refused as refused:
        yield Probe(
            False,
            f"{address.place}: the endpoint refused a request: {refused}",
            "Check store_endpoint, store_region and the permissions of the keys.",
        )
    finally:
        wire.close()


def _examine(wire: Wire, layout: Layout) -> Iterator[Probe]:
    place = wire.address.place
    list_page(wire, layout.own(""), limit=1)
    yield Probe(True, f"{place} at {wire.address.base} answers, and takes the keys")
    name, body = layout.own(f"doctor-{secrets.token_hex(8)}"), secrets.token_bytes(64)
    wire.ask("PUT", name, body=body)
    try:
        is_same = wire.ask("GET", name).body == body
        is_listed = name in names_in(list_page(wire, name))
    finally:
        wire.ask("DELETE", name)
    try:
        wire.ask("HEAD", name)
        is_gone = False
    except Refused as refused:
        is_gone = refused.status == 404
    yield Probe(
        is_same and is_listed and is_gone,
        f"{place}: objects are written, read, listed and removed"
        if is_same and is_listed and is_gone
        else f"{place}: an object was {'read' if is_same else 'not read'} as written,"
        f" {'listed' if is_listed else 'not listed'} and {'removed' if is_gone else 'not removed'}",
        "The endpoint must show at once what was written; look at its documentation.",
    )
    terms = layout.terms
    yield Probe(
        terms.has_conditions,
        f"{place}: conditions of writes are honoured"
        if terms.has_conditions
        else f"{place}: conditions of writes (If-None-Match) are not honoured",
        "Without them, conditional writes and appends are refused, and two who make a bucket at once may collide.",
        is_needed=False,
    )
    how = (
        "as they are"
        if terms.names == PLAIN
        else "in an escaped form, because the endpoint has folders of its own"
    )
    yield Probe(True, f"{place}: keys are written {how}")
