"""The broker, asked from inside a sandbox that root or an ordinary user has started."""

from __future__ import annotations

import shutil
from typing import Any

from trainshed.runner.shims import SHIMS_PATH, shims_folder

SCRIPT = """
import os, sys
sys.path.append("/opt/trainshed/shims")
import moxing as mox

for folder in ("/cache/data", "/tmp/data", "/layer/new", os.path.expanduser("~/data")):
    mox.file.copy_parallel("obs://mine/data", folder)
    for path in (folder, folder + "/sub", folder + "/sub/b"):
        assert os.stat(path).st_uid == os.getuid(), path
    with open(folder + "/sub/b", "a") as file:
        file.write("!")
    os.rename(folder + "/sub", folder + "/moved")
    mox.file.copy_parallel(folder, "obs://mine/back" + folder)
    assert mox.file.read("obs://mine/back" + folder + "/moved/b") == "b!"
# Over and beside what the shared tree has, which itself stays as it is.
mox.file.copy("obs://mine/data/a", "/layer/old")
assert open("/layer/old").read() == "a"
os.makedirs("/cache/out")
os.symlink("/proc/1/root", "/cache/out/root")
os.symlink("/etc", "/cache/out/etc")
mox.file.copy_parallel("/cache/out", "obs://mine/links")
mox.file.copy("/etc/hostname", "obs://mine/hostname")
for path in ("/etc/new", "/shared/new", "/run/trainshed/new", "/proc/1/root/new"):
    try:
        mox.file.copy("obs://mine/data/a", path)
        raise SystemExit("written: " + path)
    except OSError:
        pass
try:
    os.unlink("/run/trainshed/broker.sock")
    raise SystemExit("the socket is gone")
except OSError:
    pass
print("done")
"""


def test_a_job_copies_into_all_of_its_folders(host: Any) -> None:
    shims = host.base / "shims"
    shutil.copytree(shims_folder(), shims, ignore=shutil.ignore_patterns("__pycache__"))
    shared = host.make_folder("shared")
    host.write(shared / "old", "original")
    answer, log = host.run(
        SCRIPT,
        objects={"data/a": "a", "data/sub/b": "b"},
        mounts=[[str(shims), SHIMS_PATH, False], [str(shared), "/shared", False]],
        overlays=[[str(shared), "/layer"]],
    )
    assert log.endswith("done\n"), log
    assert (shared / "old").read_text() == "original" and len(list(shared.iterdir())) == 1
    assert not [key for key in answer["objects"] if key.startswith("links/")]
    assert "hostname" in answer["objects"] and "back/layer/new/moved/b" in answer["objects"]
