"""Serves TensorBoard on a Unix socket. Runs inside the tool's sandbox, with the tool's own environment.

python tensorboard_program.py SOCKET LOGDIR PATH_PREFIX
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from typing import Any


def main(socket_path: str, log_folder: str, prefix: str) -> None:
    """Serve until the process is ended."""
    # By name: they are installed in the tool's environment, not in the platform's.
    default: Any = importlib.import_module("tensorboard.default")
    program: Any = importlib.import_module("tensorboard.program")
    serving: Any = importlib.import_module("werkzeug.serving")

    class SocketServer(serving.ThreadedWSGIServer):  # type: ignore[misc]
        """TensorBoard's application behind a Unix socket: there is no network to listen on."""

        daemon_threads = True

        def __init__(self, application: Any, flags: Any) -> None:
            super().__init__(f"unix://{socket_path}", 0, application)

        def get_url(self) -> str:
            # TensorBoard notes a port about itself.
            return f"http://localhost:1{prefix}/"

        def print_serving_message(self) -> None:
            sys.stderr.write("TensorBoard is ready.\n")

    with contextlib.suppress(FileNotFoundError):
        os.unlink(socket_path)
    board: Any = program.TensorBoard(default.get_plugins(), server_class=SocketServer)
    board.configure(
        argv=[
            "tensorboard",
            f"--logdir={log_folder}",
            f"--path_prefix={prefix}",
            "--load_fast=false",
            "--reload_interval=5",
        ]
    )
    sys.exit(board.main())


if __name__ == "__main__":
    main(*sys.argv[1:4])
