"""Where on the disk new files are placed."""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path

__all__ = ["spread_folders"]

# From linux/fs.h, as on x86 and ARM.
_FS_IOC_GETFLAGS = 0x80086601
_FS_IOC_SETFLAGS = 0x40086602
_FS_TOPDIR_FL = 0x00020000
_FLAGS = struct.Struct("l")


def spread_folders(parent: Path) -> None:
    """Ask the file system to place the folders within this one far from each other (ext4; others know no such thing).

    Files are placed near the folder they are made in. In one place, ext4 looks at every file that was removed there
    within the last minutes before it makes a new one: after ten thousand removals that takes longer than the write.
    """
    descriptor = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        flags = bytearray(_FLAGS.size)
        fcntl.ioctl(descriptor, _FS_IOC_GETFLAGS, flags)
        fcntl.ioctl(descriptor, _FS_IOC_SETFLAGS, _FLAGS.pack(_FLAGS.unpack(flags)[0] | _FS_TOPDIR_FL))
    except OSError:
        pass
    finally:
        os.close(descriptor)
