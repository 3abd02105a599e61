"""Runs a pre-start script written in Python and writes down the variables that it set: `pre_start.py SCRIPT FILE`."""

import os
import runpy
import sys


def main():
    """Run the script as if it was started itself; however it ends, its variables are kept."""
    script, notes = sys.argv[1:3]
    sys.argv = [script]
    sys.path[0] = os.path.dirname(script)
    try:
        runpy.run_path(script, run_name="__main__")
    finally:
        sys.stdout.flush()
        with open(notes, "wb") as file:
            for name, value in os.environb.items():
                file.write(name + b"=" + value + b"\0")


if __name__ == "__main__":
    main()
