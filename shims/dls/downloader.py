"""Copies between the object store and the job: modelarts-downloader.py, as start scripts of ModelArts call it."""

import argparse
import os
import sys


def copy(source, target, recursive, skip_creating_dir):
    """Copy a file into a folder, or (recursive) a folder with its name, or without it, into another."""
    import moxing

    files = moxing.file
    if recursive:
        if not skip_creating_dir:
            target = target.rstrip("/") + "/" + source.rstrip("/").rpartition("/")[2]
        if not files.exists(source):
            raise OSError("there is no folder " + source)
        files.make_dirs(target)
        files.copy_parallel(source, target)
        return
    if target.endswith("/") or (not is_url(target) and os.path.isdir(target)):
        target = target.rstrip("/") + "/" + source.rpartition("/")[2]
    files.copy(source, target)


def is_url(path):
    """Whether a path leads to the object store."""
    return path.startswith(("s3://", "obs://"))


def main():
    """The command line."""
    parser = argparse.ArgumentParser(description="Copy files or folders from or to the object store.")
    parser.add_argument("-s", "--src", required=True, help="what to copy: a URL or a local path")
    parser.add_argument("-d", "--dst", required=True, help="the folder to copy to: a URL or a local path")
    parser.add_argument("-r", "--recursive", action="store_true", help="copy a folder")
    parser.add_argument(
        "--skip-creating-dir", action="store_true", help="copy what is in the folder, not the folder"
    )
    parser.add_argument("--type", default="common", help="what is copied; taken and not used")
    parser.add_argument("--trace", action="store_true", help="taken and not used")
    parser.add_argument("--verbose", action="store_true", help="say what is copied")
    arguments, _ = parser.parse_known_args()
    if arguments.verbose:
        sys.stderr.write(f"copying {arguments.src} to {arguments.dst}\n")
    try:
        copy(arguments.src, arguments.dst, arguments.recursive, arguments.skip_creating_dir)
    except Exception as error:
        sys.stderr.write(f"modelarts-downloader: {arguments.src}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
