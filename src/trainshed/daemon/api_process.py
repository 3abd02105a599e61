"""The process that serves the native API and the console."""

from __future__ import annotations

from trainshed.daemon.http_server import serve
from trainshed.daemon.process import begin
from trainshed.daemon.tls import watch_certificate

__all__ = ["main"]


def main() -> int:
    """Serve until SIGTERM."""
    process = begin("api")
    from trainshed.api.native.app import create_app
    from trainshed.console.app import create_console
    from trainshed.services.platform import open_platform

    platform = open_platform(process.home, process.settings)
    app = create_app(platform, create_console(platform))
    # Followers of logs stay for hours; they reconnect, so a stop need not wait for them.
    serve(
        app,
        process.settings.host,
        process.settings.port,
        process.say_ready,
        stop_seconds=1,
        # ssh into jobs comes through one.
        websockets=True,
        tls=watch_certificate(process.home, process.settings),
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
