"""What jobs can do with an input that is a view of a shared tree, and what they cannot do to the store."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from trainshed.store import open_store
from trainshed.store.staged_tree import StagedTree, TreeCache

CONTENT = b"the bytes of an object " * 1000


class Input:
    """A folder in a store, and its tree in a cache; both belong to the user that starts sandboxes."""

    def __init__(self, host) -> None:
        self.host = host
        self.base = host.base
        self.store = open_store(f"file://{self.base / 'store'}")
        self.store.ensure_bucket("data", "workspace")
        for key in ("set/train.bin", "set/deep/er/val.bin", "set/run.sh"):
            metadata = {"mode": "755"} if key.endswith(".sh") else {}
            self.store.put("data", key, CONTENT, metadata=metadata)
        self.store.put("data", "set/empty.txt", b"")
        self.cache = TreeCache(self.base / "cache")
        self.tree = self.stage()
        self.give_away()

    def give_away(self) -> None:
        for folder in ("store", "cache"):
            for path in (self.base / folder, *(self.base / folder).rglob("*")):
                self.host.own(path)

    def stage(self) -> StagedTree:
        tree = self.cache.obtain(self.store, "data", "set/")
        assert tree is not None
        return tree

    def fingerprint(self) -> dict[str, tuple[int, str, int, int]]:
        """Every blob and every file of the tree: mode, content, size and time."""
        return {
            str(path.relative_to(self.base)): (
                path.stat().st_mode,
                hashlib.sha256(path.read_bytes()).hexdigest(),
                path.stat().st_size,
                path.stat().st_mtime_ns,
            )
            for folder in ("store/blobs", "cache")
            for path in sorted((self.base / folder).rglob("*"))
            if path.is_file() and path.suffix != ".lock"
        }


@pytest.fixture
def given(host) -> Input:
    return Input(host)


def test_a_script_treats_its_input_as_files_of_its_own(host, given: Input) -> None:
    before = given.fingerprint()
    answer, log = host.run(
        """
        import os, shutil
        os.chdir("/job/inputs/data")
        assert open("train.bin", "rb").read() == b"the bytes of an object " * 1000
        assert oct(os.stat("train.bin").st_mode)[-3:] == "644", oct(os.stat("train.bin").st_mode)
        assert os.access("run.sh", os.X_OK) and os.stat("train.bin").st_uid == os.getuid()
        with open("train.bin", "ab") as file:
            file.write(b"more")
        with open("deep/er/val.bin", "r+b") as file:
            file.write(b"XXXX")
        open("beside.txt", "w").write("written beside the data")
        os.rename("beside.txt", "deep/moved.txt")
        os.rename("empty.txt", "renamed.txt")
        os.chmod("renamed.txt", 0o400)
        os.mkdir("new"); shutil.copytree("deep", "new/deep")
        os.utime("run.sh", (0, 0))
        os.link("run.sh", "hard.sh"); os.symlink("run.sh", "soft.sh")
        os.truncate("hard.sh", 3)
        os.remove("train.bin")
        shutil.move("deep", "elsewhere")
        shutil.rmtree("elsewhere")
        print(sorted(os.listdir(".")))
        """,
        overlays=[[str(given.tree.folder), "/job/inputs/data"]],
    )
    assert answer["exits"]["0"]["exit_code"] == 0, log
    assert "['hard.sh', 'new', 'renamed.txt', 'run.sh', 'soft.sh']" in log
    assert given.fingerprint() == before


def test_a_job_cannot_change_a_blob_and_the_next_one_finds_it_as_it_was(host, given: Input) -> None:
    before = given.fingerprint()
    answer, log = host.run(
        """
        import ctypes, fcntl, mmap, os, array
        libc = ctypes.CDLL(None, use_errno=True)
        os.chdir("/job/inputs/data")

        def attempt(name, action):
            try:
                action()
                print(name, "done")
            except OSError as error:
                print(name, "refused", error.errno)

        reader = os.open("train.bin", os.O_RDONLY)
        attempt("write", lambda: os.write(reader, b"evil"))
        def through_proc():
            writer = os.open(f"/proc/self/fd/{reader}", os.O_RDWR)
            os.pwrite(writer, b"evil", 0)
            os.close(writer)
        attempt("proc", through_proc)
        path_only = os.open("deep/er/val.bin", os.O_PATH)
        def through_path():
            writer = os.open(f"/proc/self/fd/{path_only}", os.O_WRONLY | os.O_TRUNC)
            os.write(writer, b"evil")
        attempt("path", through_path)
        attempt("fchmod", lambda: os.fchmod(os.open("run.sh", os.O_RDONLY), 0o777))
        attempt("chmod", lambda: os.chmod("empty.txt", 0o777))
        attempt("link", lambda: os.link("run.sh", "/tmp/run.sh"))
        attempt("link from fd", lambda: os.link(f"/proc/self/fd/{reader}", "stolen", follow_symlinks=True))
        attempt("flags", lambda: fcntl.ioctl(reader, 0x40086602, array.array("l", [0x10])))
        attempt("clone", lambda: fcntl.ioctl(reader, 0x40049409, os.open("/etc/passwd", os.O_RDONLY)))
        attempt("map", lambda: mmap.mmap(reader, 4096, mmap.MAP_SHARED, mmap.PROT_WRITE))
        attempt("xattr", lambda: os.setxattr("run.sh", "user.evil", b"1"))
        attempt("opaque", lambda: os.setxattr("deep", "trusted.overlay.redirect", b"/../.."))
        attempt("redirect", lambda: os.setxattr("deep", "user.overlay.redirect", b"/../../../store"))
        attempt("metacopy", lambda: os.setxattr("run.sh", "user.overlay.metacopy", b""))
        attempt("mount", lambda: None if libc.mount(b"none", b"/job/inputs", b"tmpfs", 0, None) == 0
                else (_ for _ in ()).throw(OSError(ctypes.get_errno(), "mount")))
        mounts = open("/proc/self/mountinfo").read()
        print("the lower layer is", "visible" if os.path.exists("@BASE@") else "hidden")
        # Whatever the mount table says of the host's paths, none of them leads anywhere from in here.
        for word in mounts.replace(",", " ").replace("=", " ").replace(":", " ").split():
            if word.startswith("/") and ("cache" in word or "stage" in word) and word != "/cache":
                print("reachable" if os.path.exists(word) and "trainshed-test" in word else "gone")
        """.replace("@BASE@", str(given.base)),
        overlays=[[str(given.tree.folder), "/job/inputs/data"]],
    )
    assert answer["exits"]["0"]["exit_code"] == 0, log
    assert "the lower layer is hidden" in log
    assert "reachable" not in log
    assert "write refused" in log and "mount refused" in log and "map refused" in log
    # What the job did change, it changed in its own layer.
    assert "proc done" in log and "path done" in log and "chmod done" in log
    assert given.fingerprint() == before
    again, log = host.run(
        """
        import hashlib, os
        os.chdir("/job/inputs/data")
        for name in ("train.bin", "deep/er/val.bin", "run.sh"):
            assert open(name, "rb").read() == b"the bytes of an object " * 1000, name
        assert os.stat("empty.txt").st_mode & 0o777 == 0o644
        """,
        overlays=[[str(given.tree.folder), "/job/inputs/data"]],
        run="node-1",
    )
    assert again["exits"]["0"]["exit_code"] == 0, log


def test_a_tree_keeps_its_bytes_when_objects_are_overwritten_and_removed(host, given: Input) -> None:
    given.store.put("data", "set/train.bin", b"other bytes")
    given.store.delete_prefix("data", "set/deep/")
    given.store.collect_garbage()
    answer, log = host.run(
        """
        for name in ("train.bin", "deep/er/val.bin"):
            assert open(f"/job/inputs/data/{name}", "rb").read() == b"the bytes of an object " * 1000
        """,
        overlays=[[str(given.tree.folder), "/job/inputs/data"]],
    )
    assert answer["exits"]["0"]["exit_code"] == 0, log
    fresh = given.stage()
    assert fresh.was_built and fresh.folder != given.tree.folder
    assert (fresh.folder / "train.bin").read_bytes() == b"other bytes"
    assert not (fresh.folder / "deep").exists()


def test_two_jobs_with_one_input_do_not_see_each_other(host, given: Input) -> None:
    script = """
        import os, time
        os.chdir("/job/inputs/data")
        open("train.bin", "ab").write(b"{name}")
        open("{name}.txt", "w").close()
        print("ready", flush=True)
        deadline = time.monotonic() + 90
        while not os.path.exists("/job/run/go") and time.monotonic() < deadline:
            time.sleep(0.02)
        print(sorted(name for name in os.listdir(".") if name.endswith(".txt")), os.path.getsize("train.bin"))
        """
    gates = [given.host.make_folder(f"gate-{name}") for name in ("one", "two")]
    running = [
        host.start(
            script.replace("{name}", name),
            overlays=[[str(given.tree.folder), "/job/inputs/data"]],
            mounts=[[str(gate), "/job/run", False]],
            run=f"node-{name}",
        )
        for name, gate in zip(("one", "two"), gates, strict=True)
    ]
    for job in running:
        job.wait_for("ready")
    for gate in gates:
        host.write(gate / "go", "")
    for job, name in zip(running, ("one", "two"), strict=True):
        job.finish()
        assert f"['empty.txt', '{name}.txt'] {len(CONTENT) + 3}" in job.log()
    assert os.path.getsize(given.tree.folder / "train.bin") == len(CONTENT)


def test_two_objects_that_share_a_blob_are_two_files(host, given: Input) -> None:
    given.store.copy("data", "set/train.bin", "data", "set/twin.bin")
    tree = given.stage()
    given.give_away()
    assert (tree.folder / "train.bin").samefile(tree.folder / "twin.bin")
    answer, log = host.run(
        """
        open("/job/inputs/data/train.bin", "w").write("changed")
        assert open("/job/inputs/data/twin.bin", "rb").read() == b"the bytes of an object " * 1000
        """,
        overlays=[[str(tree.folder), "/job/inputs/data"]],
    )
    assert answer["exits"]["0"]["exit_code"] == 0, log


def test_the_upper_layer_holds_only_what_the_job_changed(host, given: Input) -> None:
    host.run(
        "open('/job/inputs/data/new.txt', 'w').write('x')",
        overlays=[[str(given.tree.folder), "/job/inputs/data"]],
    )
    upper = given.base / "node-0" / "upper-0"
    assert [path.name for path in Path(upper).iterdir()] == ["new.txt"]


def test_a_folder_given_by_descriptor_is_seen_read_only_whatever_its_path_has_become(host) -> None:
    folder = host.make_folder("offered")
    folder.chmod(0o777)
    host.write(host.base / "offered" / "file.txt", "of the host", 0o666)
    answer, log = host.run(
        """
        import os
        print(open("/job/inputs/data/file.txt").read())
        for action in (
            lambda: open("/job/inputs/data/file.txt", "w"),
            lambda: open("/job/inputs/data/new.txt", "w"),
            lambda: os.remove("/job/inputs/data/file.txt"),
            lambda: os.chmod("/job/inputs/data/file.txt", 0o777),
            lambda: os.rename("/job/inputs/data/file.txt", "/job/inputs/data/other.txt"),
            lambda: os.link("/job/inputs/data/file.txt", "/tmp/link"),
        ):
            try:
                action()
                print("changed")
            except OSError as error:
                print("refused", error.errno)
        """,
        descriptors=[[str(folder), "/job/inputs/data"]],
    )
    assert answer["exits"]["0"]["exit_code"] == 0, log
    assert log.splitlines()[0] == "of the host" and log.count("refused") == 6 and "changed" not in log
    assert (folder / "file.txt").read_text() == "of the host"
