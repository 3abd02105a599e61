"""`mox.file`, in a job and outside of one: every function, in every direction."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def test_the_package_greets_and_has_all_names(world: Any) -> None:
    documented = """File append append_remote copy copy_manifest copy_parallel exists get_size glob is_directory
        list_directory make_dirs mk_dir read remove rename scan_dir set_auth shift stat walk write file_io
        MoxFileNameDuplicateException MoxFileNotExistsException MoxFileReadException MoxFileRespException"""
    output = world.run(
        f"""
        import sys, subprocess
        from moxing.framework import file
        from moxing.framework.file import file_io
        assert mox.file is file and mox.framework.file is file and file.file_io is file_io
        assert not [name for name in {documented.split()!r} if not hasattr(file, name)]
        file_io._LARGE_FILE_METHOD, file_io._NUMBER_OF_PROCESSES = 1, 4
        mox.file.set_auth(obs_client_log=False, negotiation=True, is_secure=False)
        code = "import logging, moxing; assert not logging.getLogger().handlers"
        for silent in ("0", "1"):
            done = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE,
                                  env=dict(os.environ, MOX_SILENT_MODE=silent))
            print(done.returncode, done.stderr.decode())
        """
    )
    first, second = output.splitlines()[:2]
    assert first.startswith("0 INFO:root:Using MoXing-v")
    assert second.startswith("INFO:root:Using OBS-Python-SDK-")
    assert [line for line in output.splitlines()[2:] if line.strip()] == ["0 "]


def test_hyper_parameters_come_from_the_arguments(world: Any) -> None:
    script = "print([mox.get_hyper_parameter(name) for name in ('data_url', 'epochs', 'missing')])"
    assert world.run(script, "--data_url=s3://b/d", "--epochs", "3") == "['s3://b/d', '3', None]\n"


def test_small_files_are_read_written_and_appended(world: Any) -> None:
    world.run(
        """
        for base in (here, there):
            url = base + "/hello.txt"
            mox.file.write(url, "Hello")
            mox.file.append(url, " Wörld")
            assert mox.file.read(url) == "Hello Wörld"
            assert mox.file.read(url, binary=True) == "Hello Wörld".encode()
            assert mox.file.get_size(url) == 12
            mox.file.write(base + "/data.bin", b"\\0\\xff", binary=True)
            mox.file.append(base + "/data.bin", b"\\x01", binary=True)
            mox.file.append(base + "/new.bin", b"1", binary=True)
            mox.file.append(base + "/new.bin", b"2", binary=True)
            assert mox.file.read(base + "/data.bin", binary=True) == b"\\0\\xff\\x01"
            assert mox.file.read(base + "/new.bin", binary=True) == b"12"
        mox.file.write(there + "/empty", "")
        assert mox.file.read(there + "/empty") == ""
        mox.file.append_remote(there + "/hello.txt", there + "/new.bin")
        """
    )
    assert world.content("new.bin") == b"12" + "Hello Wörld".encode()
    assert world.keys() == ["data.bin", "empty", "hello.txt", "new.bin"]


def test_what_is_there_and_what_is_not(world: Any) -> None:
    world.put("folder/sub/file", b"12345")
    world.put("folder/other", b"1")
    world.run(
        """
        bucket = there.rpartition("/")[0]
        assert [mox.file.exists(there + name) for name in ("/folder", "/folder/", "/folder/sub/file", "/fold")] == [
            True, True, True, False]
        assert mox.file.exists(bucket) and mox.file.is_directory(bucket + "/")
        assert not mox.file.exists("obs://no-such-bucket-here/x") and not mox.file.exists(here + "/x")
        assert mox.file.is_directory(there + "/folder") and not mox.file.is_directory(there + "/folder/other")
        stat = mox.file.stat(there + "/folder/sub/file")
        assert (stat.length, stat.is_directory) == (5, False) and stat.mtime_nsec > 10**18
        assert mox.file.stat(there + "/folder").is_directory
        assert mox.file.get_size(there + "/folder", recursive=True) == 6
        for missing in (there + "/missing", here + "/missing"):
            try:
                mox.file.stat(missing)
                raise AssertionError(missing)
            except mox.file.MoxFileNotExistsException:
                pass
        try:
            mox.file.read(there + "/missing")
            raise AssertionError
        except mox.file.MoxFileRespException as error:
            assert error.resp.status == 404 and error.resp.errorCode, error.resp
        """
    )


def test_folders_are_listed_as_python_lists_them(world: Any) -> None:
    for name in ("a.txt", "b.jpg", "sub/c.jpg", "sub/deep/d.jpg"):
        world.put(name, b"x")
        (world.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (world.folder / name).write_bytes(b"x")
    world.run(
        """
        for base in (here, there, there + "/"):
            names = mox.file.list_directory
            assert sorted(names(base)) == ["a.txt", "b.jpg", "sub"], names(base)
            assert sorted(names(base, recursive=True)) == [
                "a.txt", "b.jpg", "sub", "sub/c.jpg", "sub/deep", "sub/deep/d.jpg"], names(base, recursive=True)
            assert names(base, skip_file=True) == ["sub"] and names(base, skip_dir=True) == ["a.txt", "b.jpg"]
            assert sorted((e.name, e.is_dir(), e.is_file()) for e in mox.file.scan_dir(base)) == [
                ("a.txt", False, True), ("b.jpg", False, True), ("sub", True, False)]
            base = base.rstrip("/")
            assert sorted(mox.file.glob(base + "/*.jpg")) == [base + "/b.jpg"]
            assert sorted(mox.file.glob(base + "/*/[a-c].jp?")) == [base + "/sub/c.jpg"]
            assert mox.file.glob(base + "/s*") == [base + "/sub"]
            assert mox.file.glob(base + "/*/[!c].jpg") == []
            for topdown in (True, False):
                steps = [(f.rstrip("/"), sorted(d), sorted(n)) for f, d, n in mox.file.walk(base, topdown)]
                expected = [(base, ["sub"], ["a.txt", "b.jpg"]), (base + "/sub", ["deep"], ["c.jpg"]),
                            (base + "/sub/deep", [], ["d.jpg"])]
                assert steps == (expected if topdown else expected[::-1]), steps
        assert mox.file.list_directory(there, remove_sep=False) == ["a.txt", "b.jpg", "sub/"]
        try:
            mox.file.list_directory(there + "/missing")
            raise AssertionError
        except mox.file.MoxFileNotExistsException:
            pass
        """
    )


def test_folders_are_made_and_removed(world: Any) -> None:
    world.put("keep", b"x")
    world.run(
        """
        for base in (here, there):
            mox.file.make_dirs(base + "/a/b/c")
            mox.file.make_dirs(base + "/a/b/c")
            assert mox.file.is_directory(base + "/a/b")
            mox.file.mk_dir(base + "/a/d")
            try:
                mox.file.mk_dir(base + "/nowhere/d")
                raise AssertionError
            except OSError:
                pass
            mox.file.write(base + "/a/file", "x")
            for url in ("/a", "/a/", "/a/file/", "/missing"):
                mox.file.remove(base + url)
            assert mox.file.exists(base + "/a/file")
            mox.file.remove(base + "/a/file")
            assert not mox.file.exists(base + "/a/file") and mox.file.exists(base + "/a")
            mox.file.remove(base + "/a", recursive=True)
            assert not mox.file.exists(base + "/a")
        mox.file.remove(there + "/keep", recursive=True)
        assert mox.file.exists(there.rpartition("/")[0])
        """
    )
    assert world.keys() == []


def test_one_file_is_copied_in_all_directions(world: Any) -> None:
    world.run(
        """
        data = os.urandom(9 << 20)
        with open(here + "/one", "wb") as file:
            file.write(data)
        mox.file.copy(here + "/one", here + "/two")
        mox.file.copy(here + "/two", there + "/three")
        mox.file.copy(there + "/three", there + "/four")
        mox.file.copy(there + "/four", here + "/deep/five")
        mox.file.copy(src_url=there + "/four", dst_url=here + "/deep/")
        for name in ("/deep/five", "/deep/four"):
            with open(here + name, "rb") as file:
                assert file.read() == data
        mox.file.rename(there + "/four", here + "/six")
        mox.file.rename(here + "/six", there + "/seven")
        mox.file.rename(there + "/seven", there + "/eight")
        assert mox.file.read(there + "/eight", binary=True) == data
        """
    )
    assert world.keys() == ["eight", "three"]
    assert sorted(path.name for path in world.folder.iterdir()) == ["deep", "one", "two"]


def test_folders_are_copied_in_all_directions(world: Any) -> None:
    for number in range(30):
        world.put(f"data/{number % 3}/{number}.bin", bytes([number]) * number)
    world.put("data/empty/", b"")
    world.run(
        """
        mox.file.copy_parallel(src_url=there + "/data/", dst_url=here + "/cache/data")
        mox.file.copy_parallel(here + "/cache/data", there + "/up", threads=4, is_processing=False, use_queue=True)
        mox.file.copy_parallel(there + "/up", there + "/twice")
        mox.file.copy_parallel(here + "/cache", here + "/again")
        mox.file.copy_parallel(there + "/up", here + "/some", file_list=["0/3.bin", "1/4.bin"])
        mox.file.copy_parallel(there + "/up/0/3.bin", here + "/single.bin")
        mox.file.copy_parallel(there + "/up/0/3.bin", here + "/some")
        names = mox.file.list_directory(here + "/cache/data", recursive=True)
        assert len(names) == 34 and "empty" in names, names
        assert names == mox.file.list_directory(here + "/again/data", recursive=True)
        for url in (there + "/up", there + "/twice"):
            assert mox.file.list_directory(url, recursive=True) == names, url
        assert mox.file.list_directory(here + "/some", recursive=True) == ["0", "0/3.bin", "1", "1/4.bin", "3.bin"]
        assert mox.file.read(here + "/single.bin", binary=True) == bytes([3]) * 3
        mox.file.rename(there + "/twice", there + "/moved")
        assert not mox.file.exists(there + "/twice")
        assert mox.file.list_directory(there + "/moved", recursive=True) == names
        try:
            mox.file.copy_parallel(there + "/missing", here + "/missing")
            raise AssertionError
        except mox.file.MoxFileNotExistsException:
            pass
        """
    )
    assert world.content("moved/2/29.bin") == bytes([29]) * 29


def test_a_file_and_a_folder_of_one_name_clash(world: Any) -> None:
    world.put("bad/a", b"file")
    world.put("bad/a/b", b"below it")
    world.put("good/x", b"x")
    (world.folder / "target/x").mkdir(parents=True)
    world.run(
        """
        for source, target in (("/bad", "/all"), ("/good", "/target")):
            try:
                mox.file.copy_parallel(there + source, here + target)
                raise AssertionError(source)
            except mox.file.MoxFileNameDuplicateException as error:
                print(error)
        """
    )


def test_links_to_files_are_copied_as_files(world: Any, tmp_path: Path) -> None:
    outside = tmp_path / "elsewhere"
    outside.mkdir()
    (outside / "model").write_bytes(b"weights")
    (world.folder / "out").mkdir()
    (world.folder / "out/best").symlink_to("step-1")
    (world.folder / "out/step-1").write_bytes(b"1")
    (world.folder / "out/outside").symlink_to(outside / "model")
    (world.folder / "out/broken").symlink_to("missing")
    (world.folder / "link").symlink_to(world.folder / "out")
    # The folder elsewhere is none that the broker uses: its file goes piece by piece.
    world.run(
        """
        mox.file.copy_parallel(here + "/link", there + "/out")
        mox.file.copy(os.path.join(os.path.dirname(here), "elsewhere/model"), there + "/model")
        mox.file.copy_parallel(there + "/out", os.path.join(os.path.dirname(here), "elsewhere/down"))
        """
    )
    assert world.keys() == ["model", "out/best", "out/outside", "out/step-1"]
    assert world.content("out/outside") == b"weights"
    assert (outside / "down/best").read_bytes() == b"1"


def test_files_are_opened_in_every_mode(world: Any) -> None:
    world.run(
        """
        import io, pickle
        for base in (here, there):
            url = base + "/file.txt"
            with mox.file.File(url, "w") as file:
                assert file.writable() and not file.readable() and file.mode == "w" and file.name == url
                file.write("one\\n")
                file.writelines(["two\\n", "three"])
            assert file.closed
            with mox.file.File(url) as file:
                assert file.size() == 13 and file.seekable() and file.readline() == "one\\n"
                assert file.readlines() == ["two\\n", "three"]
                file.seek(0)
                assert list(file) == ["one\\n", "two\\n", "three"]
            with mox.file.File(url, "a") as file:
                file.write("\\nfour")
                file.flush()
                assert mox.file.read(url).endswith("three\\nfour")
                file.write("\\nfive")
            assert mox.file.read(url) == "one\\ntwo\\nthree\\nfour\\nfive"
            with mox.file.File(url, "br+") as file:
                assert file.read(3) == b"one"
                file.seek(0)
                file.write(b"ONE")
            with mox.file.File(url, "rb+") as file:
                file.seek(0, 2)
                assert file.tell() == 23
            assert mox.file.read(url).startswith("ONE\\ntwo")
            with mox.file.File(url, "a+") as file:
                file.write("!")
                file.seek(0)
                assert file.read().endswith("five!")
            with mox.file.File(url, "bw+") as file:
                file.write(b"new")
                file.seek(0)
                assert file.read() == b"new"
            mox.file.File(base + "/empty", "w").close()
            mox.file.File(base + "/empty2", "a").close()
            assert mox.file.exists(base + "/empty") and mox.file.exists(base + "/empty2")
            with mox.file.File(base + "/pickle", "wb") as file:
                pickle.dump(list(range(100000)), file)
            with mox.file.File(base + "/pickle", "rb") as file:
                assert pickle.load(file)[-1] == 99999
            for mode in ("r", "r+"):
                try:
                    mox.file.File(base + "/missing", mode)
                    raise AssertionError(mode)
                except FileNotFoundError:
                    pass
        import logging
        stream = mox.file.File(there + "/log.txt", "w")
        logging.basicConfig(level=logging.INFO, stream=stream)
        logging.info("hello world")
        stream.flush()
        assert mox.file.read(there + "/log.txt") == "INFO:root:hello world\\n"
        stream.close()
        """
    )


def test_python_itself_learns_urls(world: Any) -> None:
    world.put("folder/one", b"1")
    world.run(
        """
        import glob, shutil
        before = open, os.listdir, os.path.exists
        mox.file.shift("os", "mox")
        mox.file.shift("os", "mox")
        assert os.listdir(there) == ["folder"] and os.listdir(there + "/folder") == ["one"]
        with open(there + "/folder/two", "w") as file:
            file.write("22")
        with open(there + "/folder/two") as file:
            assert file.read() == "22"
        with open(here + "/local", "wb") as file:
            file.write(b"333")
        assert os.path.exists(there + "/folder") and not os.path.exists(there + "/nothing")
        assert os.path.exists(here) and os.path.isdir(here) and os.path.isdir(there)
        assert os.path.getsize(there + "/folder/two") == 2 and os.path.isfile(there + "/folder/two")
        assert os.stat(there + "/folder/two").st_size == 2
        assert glob.glob(there + "/folder/t*") == [there + "/folder/two"]
        assert [n for _, _, names in os.walk(there) for n in names] == ["one", "two"]
        with os.scandir(there + "/folder") as entries:
            assert [entry.name for entry in entries] == ["one", "two"]
        shutil.copyfile(here + "/local", there + "/local")
        shutil.copytree(there + "/folder", here + "/folder")
        assert sorted(os.listdir(here + "/folder")) == ["one", "two"]
        os.makedirs(there + "/x/y")
        os.makedirs(there + "/x/y", exist_ok=True)
        os.mkdir(there + "/z")
        os.rename(there + "/local", there + "/z/local")
        os.remove(there + "/z/local")
        for call in (os.remove, shutil.rmtree, os.stat, open):
            try:
                call(there + "/nothing")
                raise AssertionError(call)
            except FileNotFoundError:
                pass
        shutil.rmtree(there + "/x")
        mox.file.shift("mox", "os")
        assert before == (open, os.listdir, os.path.exists)
        """
    )
    assert world.keys() == ["folder/one", "folder/two", "z/"]


def test_odd_names_survive(world: Any) -> None:
    world.run(
        """
        for name in ("with space", "ümläut 图片.jpg", "a+b&c=d?e#f%20", "quote'\\"<>", "tab\\there"):
            mox.file.write(there + "/odd/" + name, name)
        mox.file.copy_parallel(there + "/odd", here + "/odd")
        mox.file.copy_parallel(here + "/odd", there + "/back")
        assert mox.file.list_directory(there + "/back") == mox.file.list_directory(there + "/odd") == sorted(
            os.listdir(here + "/odd"))
        assert len(os.listdir(here + "/odd")) == 5
        assert all(mox.file.read(there + "/back/" + name) == name for name in os.listdir(here + "/odd"))
        """
    )


def test_a_manifest_names_what_is_copied(world: Any) -> None:
    world.put("a/1.jpg", b"1")
    world.put("b/2.jpg", b"2")
    world.run(
        """
        import json
        lines = [json.dumps({"source": there + name, "annotation": []}) for name in ("/a/1.jpg", "/b/2.jpg")]
        mox.file.write(there + "/V1.manifest", "\\n".join(lines) + "\\n")
        mox.file.copy_manifest(there + "/V1.manifest", here + "/images")
        assert sorted(os.listdir(here + "/images")) == ["1.jpg", "2.jpg"]
        """
    )


def test_more_than_a_page_of_objects(world: Any) -> None:
    for number in range(1100):
        world.put(f"many/{number:05}", b"")
    world.run(
        """
        assert len(mox.file.list_directory(there + "/many")) == 1100
        mox.file.copy_parallel(there + "/many", here + "/many")
        assert len(os.listdir(here + "/many")) == 1100
        mox.file.remove(there + "/many", recursive=True)
        assert not mox.file.exists(there + "/many")
        """
    )


def test_buckets_of_others_are_refused(world: Any, server: Any) -> None:
    world.store.ensure_bucket("foreign", "someone-else")
    world.store.put("foreign", "secret", b"secret")
    world.run(
        """
        for call in (
            lambda: mox.file.read("obs://foreign/secret"),
            lambda: mox.file.copy("obs://foreign/secret", here + "/stolen"),
            lambda: mox.file.copy_parallel("obs://foreign/", here + "/all"),
            lambda: mox.file.write("obs://foreign/new", "x"),
            lambda: mox.file.copy("obs://foreign/secret", there + "/stolen"),
        ):
            try:
                call()
                raise AssertionError
            except (mox.file.MoxFileRespException, mox.file.MoxFileNotExistsException) as error:
                print(type(error), error)
        assert not os.listdir(here)
        """
    )
    assert [info.key for info in world.store.walk("foreign")] == ["secret"]


def test_without_a_store_it_says_what_to_set(world: Any) -> None:
    script = """
        try:
            mox.file.exists("obs://bucket/key")
        except mox.file.MoxFileRespException as error:
            print(error.resp.errorMessage)
        """
    variables = dict.fromkeys(world.variables, "")
    assert "S3_ENDPOINT" in world.run(script, **variables)


def test_a_download_is_of_one_version_and_verified(world: Any) -> None:
    """Overwritten in the middle, it is begun anew; damaged bytes never take the file's name."""
    if world.way != "http":
        return
    world.put("large", b"a" * (9 << 20))
    world.put("rotten", b"c" * (5 << 20))
    with world.store.open(world.bucket, "tests/rotten") as source:
        blob = Path(f"/proc/self/fd/{source.fileno()}").resolve()
    blob.chmod(0o600)
    with blob.open("r+b") as file:
        file.write(b"!")
    world.run(
        """
        from moxing.framework.file.stores import store_of
        bucket = there.split("/")[2]
        store = store_of(bucket)
        real, count = store._ask, [0]

        def ask(method, *arguments, **options):
            count[0] += method == "GET"
            if count[0] == 2:
                count[0] += 1
                mox.file.write(there + "/large", b"b" * (9 << 20))
            return real(method, *arguments, **options)

        store._ask = ask
        mox.file.copy(there + "/large", here + "/large")
        with open(here + "/large", "rb") as file:
            assert file.read() == b"b" * (9 << 20)
        store._ask = real
        try:
            mox.file.copy(there + "/rotten", here + "/rotten")
            raise AssertionError("damage was not noticed")
        except mox.file.MoxFileReadException as error:
            assert error.resp.errorCode == "ChecksumMismatch", error
        assert os.listdir(here) == ["large"], os.listdir(here)
        """
    )
