"""Where a platform keeps its objects: in its home, or at an external endpoint.

A home remembers the external store that it was started with, and the keys, in a file that only its owner may read:
runners and commands of the operator find it there, whatever variables they were started with.
"""

from __future__ import annotations

import json
import secrets
from urllib.parse import quote

from trainshed.durable import write_durably
from trainshed.model.errors import Conflict, HostUnfit, InvalidInput
from trainshed.model.home import Home
from trainshed.model.settings import Settings
from trainshed.store.external.address import Address, parse_place

__all__ = ["check_store_settings", "claim_store", "external_address", "find_store", "settle_store"]


def find_store(home: Home, settings: Settings) -> str:
    """The URL of the platform's object store."""
    settle_store(home, settings)
    address = external_address(home)
    return address.url if address else f"file://{quote(str(home.store.absolute()))}"


def external_address(home: Home) -> Address | None:
    """The external store that this home uses, or None."""
    try:
        values = json.loads(home.external_store.read_bytes())
        return parse_place(
            values["place"],
            endpoint=values["endpoint"],
            region=values["region"],
            keys=str(home.external_store.absolute()),
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        raise HostUnfit(
            f"{home.external_store} cannot be read.",
            hint="Start the platform with store_url and the keys once more, or restore a backup.",
            code="bad_home",
        ) from None


def check_store_settings(settings: Settings) -> None:
    """Refuse settings of an external store that could only fail later."""
    if not settings.store_url:
        return
    parse_place(settings.store_url, endpoint=settings.store_endpoint, region=settings.store_region)
    if bool(settings.store_access_key) != bool(settings.store_secret_key):
        raise InvalidInput(
            "Of the two keys of the external store, one is missing.",
            hint="Set store_access_key and store_secret_key in settings.toml, or as variables TRAINSHED_STORE_...",
            where="store_secret_key" if settings.store_access_key else "store_access_key",
        )
    if settings.quota_gb or settings.quota_objects:
        raise InvalidInput(
            "An external store knows no quotas of workspaces.",
            hint="Set quota_gb and quota_objects to 0; limit the bucket at the endpoint.",
            where="quota_gb" if settings.quota_gb else "quota_objects",
        )


def settle_store(home: Home, settings: Settings) -> None:
    """Remember the external store of the settings; a home that keeps its objects elsewhere is refused.

    Objects do not move by themselves: a platform that looked elsewhere for them would seem to have lost them.
    """
    if not settings.store_url:
        return
    wanted = parse_place(
        settings.store_url,
        endpoint=settings.store_endpoint,
        region=settings.store_region,
        keys=str(home.external_store.absolute()),
    )
    present = external_address(home)
    if present is None and (home.store / "index.sqlite").exists():
        raise _elsewhere(home, f"in {home.store}", wanted.place)
    if present is not None and (present.bucket, present.prefix) != (wanted.bucket, wanted.prefix):
        raise _elsewhere(home, f"at {present.place}", wanted.place)
    old = json.loads(home.external_store.read_bytes()) if present else {}
    record = {
        "place": wanted.place,
        "endpoint": wanted.endpoint,
        "region": wanted.region,
        "access_key": settings.store_access_key or old.get("access_key", ""),
        "secret_key": settings.store_secret_key or old.get("secret_key", ""),
        "platform": old.get("platform") or secrets.token_hex(16),
    }
    if not record["secret_key"]:
        raise InvalidInput(
            "The external store needs keys.",
            hint="Set store_access_key and store_secret_key in settings.toml, or as variables TRAINSHED_STORE_...",
            where="store_access_key",
        )
    if record != old:
        home.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_durably(home.external_store, record)


def claim_store(home: Home) -> None:
    """Make the external place this platform's own; one that another platform uses is refused.

    Buckets there belong to workspaces that only that platform knows.
    """
    address = external_address(home)
    if address is None:
        return
    from trainshed.store.external.store import ExternalStore

    store = ExternalStore(address)
    try:
        store.claim(json.loads(home.external_store.read_bytes())["platform"])
    finally:
        store.close()


def _elsewhere(home: Home, where: str, wanted: str) -> Conflict:
    return Conflict(
        f"The platform of {home.path} keeps its objects {where}, not at {wanted}.",
        hint="Start it with the store that it has, or make another home with --home and copy the objects there.",
        code="other_store",
        where="store_url",
    )
