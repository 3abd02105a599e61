"""Runs another script as in a rehearsal of two GPUs, on a platform that rehearses other devices."""

import os
import sys

rehearsal = {"TRAINSHED_REHEARSAL": "1", "TRAINSHED_DEVICE_KIND": "nvidia", "CUDA_VISIBLE_DEVICES": "0,1"}
os.environ.update(rehearsal)
script = sys.argv[1].partition("=")[2]
os.execv(sys.executable, [sys.executable, script])
