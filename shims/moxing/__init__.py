"""Stands in for MoXing: `mox.file` on the object store of Trainshed, or of any S3 or OBS service.

Without dependencies and for Python 3.7 and later; it stands in only where the job's environment has no package
`moxing` of its own. Only the file functions are there, and what scripts use beside them.
"""

import os
import sys

from moxing import framework
from moxing.framework import file
from moxing.hyper_parameters import get_hyper_parameter

__all__ = ["file", "framework", "get_hyper_parameter"]

__version__ = "2.2.0"


def _greet():
    """The two lines that scripts, and people who read logs, know MoXing by.

    Written without the logging module: MoXing's own import sets up the root logger, and a script's later
    `logging.basicConfig` then does nothing.
    """
    if os.environ.get("MOX_SILENT_MODE", "0").lower() in ("", "0", "false"):
        lines = (f"Using MoXing-v{__version__}-trainshed", "Using OBS-Python-SDK-3.20.9-trainshed")
        try:
            sys.stderr.write("".join(f"INFO:root:{line}\n" for line in lines))
        except (AttributeError, OSError, ValueError):
            pass  # a process without a standard error


_greet()
