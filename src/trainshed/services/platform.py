"""The running platform, as every service sees it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import Engine

from trainshed.db.engine import open_engine
from trainshed.db.migrations import upgrade
from trainshed.model.home import Home
from trainshed.model.settings import Settings
from trainshed.runner.doorbell import ring_doorbell
from trainshed.services.store_place import find_store
from trainshed.store import open_store
from trainshed.store.object_store import ObjectStore

__all__ = ["Platform", "open_platform"]


@dataclass(frozen=True)
class Platform:
    """Home folder, settings, database, object store and clock."""

    home: Home
    settings: Settings
    engine: Engine
    store: ObjectStore
    clock: Callable[[], float] = time.time

    def ring(self) -> None:
        """Wake the control loop. It also looks by itself now and then, so a bell that is not there is no fault."""
        ring_doorbell(str(self.home.doorbell))

    def close(self) -> None:
        """Give back the connections to the database and the store."""
        self.engine.dispose()
        self.store.close()


def open_platform(home: Home, settings: Settings) -> Platform:
    """Open the platform of a home folder; its database is created or brought up to date."""
    home.path.mkdir(mode=0o700, parents=True, exist_ok=True)
    engine = open_engine(settings.database_url or home.database_url)
    upgrade(engine)
    return Platform(home, settings, engine, open_store(find_store(home, settings)))
