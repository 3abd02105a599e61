"""The object store over HTTP. Our own protocol lives below `/_/v1`; the rest of the URL space is that of S3 and OBS."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor

from trainshed.api.obs import native, protocol
from trainshed.api.obs.desk import Desk
from trainshed.api.obs.exchange import Exchange, TransferBroken
from trainshed.api.obs.wire.lobby import Handler
from trainshed.api.obs.wire.request import Request
from trainshed.model.errors import NotFound, TrainshedError
from trainshed.services.certificates import list_bucket_domains
from trainshed.services.platform import Platform
from trainshed.store.embedded.store import EmbeddedStore

__all__ = ["create_app"]

# Uploads wait for the disk, and those that wait together share one commit.
_THREADS = 24

_log = logging.getLogger("trainshed.store")


def create_app(platform: Platform) -> Handler:
    """What answers every request of the store process."""
    executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="store")
    is_near = isinstance(platform.store, EmbeddedStore) and platform.engine.dialect.name == "sqlite"
    desk = Desk(_THREADS, is_prompt=is_near)
    domains = list_bucket_domains(platform.settings)

    async def app(request: Request) -> None:
        exchange = Exchange(request, executor, desk)
        # No bucket has the name `_`; one may be called `healthz`, but whoever means it signs.
        if (
            exchange.path.startswith(("/_/", "/_?", "/%5F", "/%5f"))
            or exchange.path == "/_"
            or _is_health(exchange)
        ):
            await _serve_own(platform, exchange)
        else:
            await protocol.serve(platform, exchange, domains)

    return app


async def _serve_own(platform: Platform, exchange: Exchange) -> None:
    try:
        if exchange.path == "/healthz":
            await exchange.at_desk(platform.store.buckets, "")
            await exchange.answer_json({"status": "ok"})
        elif exchange.parts[:2] == ["_", "v1"]:
            await native.serve(platform, exchange)
        else:
            raise NotFound("There is nothing here.", hint="Our own protocol is below /_/v1.")
    except (TransferBroken, asyncio.CancelledError):
        # The other side is gone, and so is what it had begun.
        return
    except TrainshedError as error:
        await exchange.answer_error(error)
    except Exception:
        _log.exception("A request failed: %s /%s", exchange.method, "/".join(exchange.parts))
        await exchange.answer_error(
            TrainshedError(
                "The object store made a mistake.", hint="Its log says more.", code="internal_error"
            )
        )


def _is_health(exchange: Exchange) -> bool:
    return (
        exchange.path == "/healthz"
        and exchange.method in ("GET", "HEAD")
        and not exchange.raw_query
        and "authorization" not in exchange.headers
    )
