"""Where MoXing keeps its file functions: `from moxing.framework import file`."""

from moxing.framework import file

__all__ = ["file"]
