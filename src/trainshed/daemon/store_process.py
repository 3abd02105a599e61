"""The process that serves the object store over HTTP."""

from __future__ import annotations

from trainshed.daemon.process import begin
from trainshed.daemon.store_crew import choose_size, mate_command
from trainshed.daemon.store_server import serve_store
from trainshed.daemon.tls import watch_certificate

__all__ = ["main"]


def main() -> int:
    """Serve until SIGTERM."""
    process = begin("store")
    from trainshed.api.obs.app import create_app
    from trainshed.daemon.store_upkeep import apply_default_quota, keep_tidy
    from trainshed.services.platform import open_platform

    platform = open_platform(process.home, process.settings)
    apply_default_quota(platform.store, process.settings)
    keep_tidy(platform.store)
    serve_store(
        create_app(platform),
        process.settings.host,
        process.settings.obs_port,
        process.say_ready,
        mate=mate_command(process.home.path),
        most=choose_size(process.settings.store_processes),
        tls=watch_certificate(process.home, process.settings),
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
