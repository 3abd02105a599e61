"""Care for the object store: what its process does now and then, and what an operator asks for."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable

from trainshed.daemon.home_folder import load_settings
from trainshed.model.errors import NotAllowed, NotFound, TrainshedError
from trainshed.model.home import Home
from trainshed.model.settings import Settings
from trainshed.services.platform import Platform, open_platform
from trainshed.services.store_place import external_address
from trainshed.store.embedded.check import CheckReport
from trainshed.store.embedded.store import EmbeddedStore
from trainshed.store.object_store import ObjectStore, Usage

__all__ = [
    "apply_default_quota",
    "check_home",
    "collect_home",
    "keep_tidy",
    "set_workspace_quota",
    "tidy_store",
    "workspace_usage",
]

_EVERY_SECONDS = 3600.0
_FIRST_SECONDS = 60.0

_log = logging.getLogger("trainshed.store")


def tidy_store(store: ObjectStore) -> None:
    """Remove what lifecycle rules say is over, uploads that were given up, and what killed processes left."""
    try:
        expired = store.expire_objects()
        if expired:
            _log.info("Lifecycle rules removed %s objects.", expired)
        # Each store has its own kind of garbage.
        collect: Callable[[], int] | None = getattr(store, "collect_garbage", None)
        if collect is not None:
            collect()
    except TrainshedError as error:
        _log.warning("The store could not be tidied up: %s", error)
    except Exception:
        _log.exception("The store could not be tidied up.")


def keep_tidy(store: ObjectStore) -> threading.Event:
    """Tidy up every hour in a thread of its own; the event ends it."""
    stop = threading.Event()

    def work() -> None:
        wait = _FIRST_SECONDS
        while not stop.wait(wait):
            tidy_store(store)
            wait = _EVERY_SECONDS

    threading.Thread(target=work, name="upkeep", daemon=True).start()
    return stop


def apply_default_quota(store: ObjectStore, settings: Settings) -> None:
    """Make the quota of the settings the one of all workspaces that have none of their own."""
    store.set_quota("", settings.quota_gb << 30, settings.quota_objects)


def check_home(
    home: Home, *, quarantine: bool, on_progress: Callable[[int, int, int], None] | None = None
) -> CheckReport:
    """Read all objects of a home again, whether the platform runs or not.

    `on_progress` is told the objects and bytes read so far, and the bytes of all objects. An external store looks
    after its bytes itself: there is nothing here to compare them with.
    """
    address = external_address(home)
    if address is not None:
        raise NotAllowed(
            f"The objects of this platform lie at {address.place}, which looks after their bytes itself.",
            hint="`trainshed doctor` checks the endpoint.",
            code="external_store",
        )
    store = _open(home)
    try:
        total = store.total_usage().bytes

        def progress(objects: int, size: int) -> None:
            if on_progress is not None:
                on_progress(objects, size, total)

        return store.verify(quarantine=quarantine, on_progress=progress)
    finally:
        store.close()


def collect_home(home: Home) -> tuple[int, int]:
    """Remove what lifecycle rules say is over and what nothing needs: objects, and files of dead processes."""
    address = external_address(home)
    if address is not None:
        from trainshed.store.external.store import ExternalStore

        external = ExternalStore(address)
        try:
            return external.expire_objects(), external.collect_garbage()
        finally:
            external.close()
    store = _open(home)
    try:
        expired = store.expire_objects()
        removed = store.collect_garbage()
        store.recount()
        return expired, removed
    finally:
        store.close()


def set_workspace_quota(home: Home, workspace: str, size: int | None, objects: int | None) -> Usage:
    """Give a workspace a quota of its own (None: that of the settings); returns what it keeps now."""
    platform = open_platform(home, load_settings(home, os.environ, {}))
    try:
        workspace_id = _workspace_id(platform, workspace)
        platform.store.set_quota(workspace_id, size, objects)
        return platform.store.usage(workspace_id)
    finally:
        platform.close()


def workspace_usage(home: Home, workspace: str) -> Usage:
    """What a workspace keeps, and how much it may."""
    platform = open_platform(home, load_settings(home, os.environ, {}))
    try:
        return platform.store.usage(_workspace_id(platform, workspace))
    finally:
        platform.close()


def _workspace_id(platform: Platform, name: str) -> str:
    from trainshed.db.engine import read
    from trainshed.db.workspaces import workspace_by_id, workspace_by_name

    with read(platform.engine) as connection:
        found = workspace_by_name(connection, name) or workspace_by_id(connection, name)
    if found is None or found.deleted_at is not None:
        raise NotFound(
            f"There is no workspace '{name[:80]}'.",
            hint="`trainshed workspace list` shows them.",
            code="unknown_workspace",
        )
    return found.id


def _open(home: Home) -> EmbeddedStore:
    if not (home.store / "index.sqlite").exists():
        raise NotFound(
            f"There is no object store in {home.path}.",
            hint="Name the platform's home folder with --home.",
            code="no_store",
        )
    return EmbeddedStore(home.store)
