"""One more process that serves the object store, started by the first one (`store_crew`)."""

from __future__ import annotations

from trainshed.daemon.process import begin
from trainshed.daemon.store_server import serve_beside
from trainshed.daemon.tls import watch_certificate

__all__ = ["main"]


def main() -> int:
    """Serve until told otherwise on the standard input, or until that ends."""
    process = begin("store-mate")
    from trainshed.api.obs.app import create_app
    from trainshed.services.platform import open_platform

    platform = open_platform(process.home, process.settings)
    serve_beside(
        create_app(platform),
        process.listeners,
        process.say_ready,
        tls=watch_certificate(process.home, process.settings),
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
