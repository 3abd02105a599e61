"""The process of the control loop: admits, submits, watches and finishes jobs."""

from __future__ import annotations

import signal
import threading

from trainshed.daemon.process import begin

__all__ = ["main"]


def main() -> int:
    """Run the loop until SIGTERM."""
    process = begin("control")
    from trainshed.control.loop import run_loop
    from trainshed.daemon.control_wiring import build_control
    from trainshed.services.notification_delivery import run_delivery
    from trainshed.services.platform import open_platform

    stop = threading.Event()
    platform = open_platform(process.home, process.settings)

    def ask_stop(number: int, frame: object) -> None:
        stop.set()
        # The loop may sleep on its doorbell.
        platform.ring()

    signal.signal(signal.SIGTERM, ask_stop)
    signal.signal(signal.SIGINT, ask_stop)
    process.say_ready()
    # In a thread of its own: a receiver that does not answer must not hold up any job.
    sender = threading.Thread(target=run_delivery, args=(platform, stop), name="notifications", daemon=True)
    sender.start()
    run_loop(build_control(platform), stop)
    return 0 if stop.is_set() else 1


if __name__ == "__main__":
    raise SystemExit(main())
