"""Command lines and libraries that people use: awscli, s5cmd, rclone, obstore, s3fs."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import obstore
import pytest
from obstore.store import S3Store

BIN = Path(sys.executable).parent


@pytest.fixture(scope="module")
def environment(server: Any, s3: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The variables that lead AWS's clients here."""
    pair = server.keys["dev"]
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
        "AWS_ACCESS_KEY_ID": pair.access_key,
        "AWS_SECRET_ACCESS_KEY": pair.secret_key,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": server.url,
        "S3_ENDPOINT_URL": server.url,
        "AWS_CONFIG_FILE": str(tmp_path_factory.mktemp("aws") / "config"),
        "AWS_EC2_METADATA_DISABLED": "true",
        "PYTHONWARNINGS": "ignore",
    }


def run(environment: dict[str, str], program: str, *arguments: str | Path, fails: bool = False) -> str:
    done = subprocess.run(
        [BIN / program, *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A folder with small files, an empty one, a large one and odd names."""
    folder = tmp_path / "tree"
    (folder / "sub dir").mkdir(parents=True)
    (folder / "small").write_bytes(b"small")
    (folder / "empty").write_bytes(b"")
    (folder / "sub dir" / "ü +%.txt").write_bytes(b"odd")
    (folder / "sub dir" / "large").write_bytes(os.urandom(20 << 20))
    return folder


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_awscli(environment: dict[str, str], tree: Path, tmp_path: Path) -> None:
    def aws(*arguments: str | Path, fails: bool = False) -> str:
        return run(environment, "aws", *arguments, fails=fails)

    aws("s3", "mb", "s3://from-aws")
    aws("s3", "cp", "--recursive", tree, "s3://from-aws/tree/")
    listed = aws("s3", "ls", "--recursive", "s3://from-aws/")
    assert "tree/sub dir/ü +%.txt" in listed and "20971520" in listed
    aws("s3", "cp", "--recursive", "s3://from-aws/tree/", tmp_path / "back")
    assert content(tmp_path / "back") == content(tree)
    (tree / "small").write_bytes(b"changed")
    (tree / "empty").unlink()
    changes = aws("s3", "sync", "--delete", tree, "s3://from-aws/tree/")
    assert "upload" in changes and "delete" in changes
    aws("s3", "sync", "--delete", "s3://from-aws/tree/", tmp_path / "back")
    assert content(tmp_path / "back") == content(tree)
    url = aws("s3", "presign", "s3://from-aws/tree/small").strip()
    assert httpx.get(url).content == b"changed"
    assert "NoSuchBucket" in aws("s3", "ls", "s3://not-there-at-all", fails=True)
    aws("s3", "rb", "--force", "s3://from-aws")


def test_connections_are_not_confused_by_early_answers(s3: Any) -> None:
    """An empty body, and a refusal, are answered without `100 Continue`; the next request must not notice."""
    for number in range(4):
        s3.put_object(Bucket="data", Key="early/empty", Body=b"")
        answer = s3.put_object(Bucket="data", Key=f"early/{number}", Body=b"x" * 100_000)
        assert answer["ETag"] and answer["ResponseMetadata"]["HTTPHeaders"]["x-amz-checksum-crc32"]
        with pytest.raises(s3.exceptions.NoSuchBucket):
            s3.put_object(Bucket="not-there", Key="k", Body=b"x" * 100_000)


@pytest.mark.slow
def test_s5cmd(environment: dict[str, str], tree: Path, tmp_path: Path) -> None:
    def s5cmd(*arguments: str | Path, fails: bool = False) -> str:
        return run(environment, "s5cmd", *arguments, fails=fails)

    s5cmd("mb", "s3://from-s5cmd")
    s5cmd("cp", f"{tree}/", "s3://from-s5cmd/tree/")
    assert "tree/sub dir/large" in s5cmd("ls", "s3://from-s5cmd/*")
    s5cmd("cp", "s3://from-s5cmd/tree/*", f"{tmp_path}/back/")
    assert content(tmp_path / "back") == content(tree)
    assert s5cmd("sync", f"{tree}/", "s3://from-s5cmd/tree/") == ""
    s5cmd("cp", "s3://from-s5cmd/tree/small", "s3://from-s5cmd/copy")
    assert s5cmd("cat", "s3://from-s5cmd/copy") == "small"
    s5cmd("rm", "s3://from-s5cmd/*")
    s5cmd("rb", "s3://from-s5cmd")
    assert "NoSuchBucket" in s5cmd("ls", "s3://from-s5cmd/*", fails=True)


@pytest.mark.slow
@pytest.mark.parametrize("provider", ["Other", "HuaweiOBS"])
def test_rclone(environment: dict[str, str], tree: Path, tmp_path: Path, provider: str) -> None:
    (tmp_path / "empty.conf").touch()
    variables = {
        **environment,
        "RCLONE_CONFIG": str(tmp_path / "empty.conf"),
        "RCLONE_CONFIG_SHED_TYPE": "s3",
        "RCLONE_CONFIG_SHED_PROVIDER": provider,
        "RCLONE_CONFIG_SHED_ENV_AUTH": "true",
        "RCLONE_CONFIG_SHED_ENDPOINT": environment["AWS_ENDPOINT_URL"],
        "RCLONE_CONFIG_SHED_FORCE_PATH_STYLE": "true",
        # Several parts of 5 MiB for the large file.
        "RCLONE_S3_UPLOAD_CUTOFF": "6Mi",
        "RCLONE_RETRIES": "1",
    }

    def rclone(*arguments: str | Path, fails: bool = False) -> str:
        return run(variables, "rclone", *arguments, fails=fails)

    bucket = f"shed:from-rclone-{provider.lower()}"
    rclone("mkdir", bucket)
    rclone("copy", tree, f"{bucket}/tree")
    listed = rclone("lsf", "-R", "--files-only", f"{bucket}/tree").splitlines()
    assert sorted(listed) == sorted(content(tree))
    rclone("check", "--download", tree, f"{bucket}/tree")
    rclone("copy", f"{bucket}/tree", tmp_path / "back")
    assert content(tmp_path / "back") == content(tree)
    # Times are kept with the objects, so that nothing is sent twice.
    assert "There was nothing to transfer" in rclone("sync", "-v", tree, f"{bucket}/tree")
    (tree / "small").write_bytes(b"changed")
    (tree / "empty").unlink()
    rclone("sync", tree, f"{bucket}/tree")
    rclone("sync", f"{bucket}/tree", tmp_path / "back")
    assert content(tmp_path / "back") == content(tree)
    rclone("moveto", f"{bucket}/tree/small", f"{bucket}/moved ü")
    assert rclone("cat", f"{bucket}/moved ü") == "changed"
    assert rclone("cat", "--offset", "2", "--count", "3", f"{bucket}/moved ü") == "ang"
    rclone("deletefile", f"{bucket}/moved ü")
    rclone("purge", bucket)
    assert "directory not found" in rclone("lsf", bucket, fails=True)


@pytest.fixture(params=[False, True], ids=["signed", "unsigned"])
def bucket(request: pytest.FixtureRequest, server: Any, s3: Any) -> Iterator[S3Store]:
    """An obstore client of the bucket `data`."""
    pair = server.keys["dev"]
    yield S3Store(
        "data",
        endpoint=server.url,
        access_key_id=pair.access_key,
        secret_access_key=pair.secret_key,
        region="us-east-1",
        virtual_hosted_style_request=False,
        unsigned_payload=request.param,
        client_options={"allow_http": True},
    )


def test_obstore(bucket: S3Store) -> None:
    store = bucket
    small, large = os.urandom(1000), os.urandom(12 << 20)
    obstore.put(store, "obstore/small ü", small, attributes={"Content-Type": "x/y", "note": "1"})
    obstore.put(store, "obstore/large", large, use_multipart=True, chunk_size=5 << 20)
    got = obstore.get(store, "obstore/small ü")
    assert bytes(got.bytes()) == small and got.attributes["Content-Type"] == "x/y"
    assert bytes(obstore.get(store, "obstore/large").bytes()) == large
    assert bytes(obstore.get_range(store, "obstore/large", start=5, end=50)) == large[5:50]
    listed = [entry["path"] for batch in obstore.list(store, "obstore") for entry in batch]
    assert listed == ["obstore/large", "obstore/small ü"]
    obstore.copy(store, "obstore/small ü", "obstore/copy")
    assert obstore.head(store, "obstore/copy")["size"] == 1000
    with pytest.raises(obstore.exceptions.AlreadyExistsError):
        obstore.put(store, "obstore/copy", b"x", mode="create")
    obstore.delete(store, [*listed, "obstore/copy"])
    with pytest.raises(FileNotFoundError):
        obstore.head(store, "obstore/copy")


@pytest.fixture(scope="module")
def s3fs_python() -> Path:
    """An interpreter with s3fs, whose botocore is older than that of boto3: it needs an environment of its own."""
    folder = Path(__file__).parents[3] / ".cache" / "s3fs"
    folder.parent.mkdir(exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # Only a whole one has the mark: an earlier run may have been killed.
        if not (folder / "whole").exists():
            shutil.rmtree(folder, ignore_errors=True)
            python = folder / "bin" / "python"
            for command in (
                ["venv", "-q", "--python", sys.executable, folder],
                ["pip", "install", "-q", "--python", python, "s3fs>=2025.3"],
            ):
                subprocess.run([BIN / "uv", *map(str, command)], check=True, timeout=120)
            (folder / "whole").touch()
    return folder / "bin" / "python"


S3FS = """
import sys
import s3fs
tree, back = sys.argv[1:]
fs = s3fs.S3FileSystem(client_kwargs={"region_name": "us-east-1"}, skip_instance_cache=True)
fs.mkdir("from-s3fs")
fs.put(tree, "from-s3fs/tree", recursive=True)
assert fs.find("from-s3fs") == [
    "from-s3fs/tree/empty", "from-s3fs/tree/small", "from-s3fs/tree/sub dir/large", "from-s3fs/tree/sub dir/ü +%.txt"
], fs.find("from-s3fs")
assert fs.ls("from-s3fs/tree/sub dir", detail=False)[0] == "from-s3fs/tree/sub dir/large"
assert fs.isdir("from-s3fs/tree") and fs.size("from-s3fs/tree/sub dir/large") == 20 << 20
fs.get("from-s3fs/tree", back, recursive=True)
with fs.open("from-s3fs/written", "wb", block_size=5 << 20) as file:
    for number in range(12):
        file.write(bytes([number]) * (1 << 20))
with fs.open("from-s3fs/written", "rb") as file:
    file.seek(7 << 20)
    assert file.read(3) == bytes([7, 7, 7])
fs.mv("from-s3fs/written", "from-s3fs/moved ü")
assert not fs.exists("from-s3fs/written") and fs.info("from-s3fs/moved ü")["size"] == 12 << 20
try:
    fs.cat("from-s3fs/written")
except FileNotFoundError:
    pass
else:
    raise AssertionError("a missing object was read")
fs.rm("from-s3fs/tree", recursive=True)
fs.rm("from-s3fs/moved ü")
assert fs.find("from-s3fs") == []
fs.rmdir("from-s3fs")
assert not fs.exists("from-s3fs")
"""


@pytest.mark.slow
def test_s3fs(environment: dict[str, str], s3fs_python: Path, tree: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [s3fs_python, "-c", S3FS, tree, tmp_path / "back"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert content(tmp_path / "back") == content(tree)


def examples() -> list[tuple[str, str]]:
    """The code blocks of the page on clients, by language."""
    page = (Path(__file__).parents[3] / "docs" / "obs-clients.md").read_text()
    return [(kind or "sh", code) for kind, code in re.findall(r"```(\w*)\n(.*?)```", page, re.DOTALL)]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "code"), examples(), ids=lambda text: text.split()[-1][:20])
def test_the_examples_of_the_documentation(
    server: Any, environment: dict[str, str], s3fs_python: Path, tmp_path: Path, kind: str, code: str
) -> None:
    pair = server.keys["dev"]
    (tmp_path / "digits").mkdir()
    for name in ("train.npz", "digits/train.npz"):
        (tmp_path / name).write_bytes(b"numbers")
    with httpx.Client(headers={"Authorization": f"Bearer {server.token}"}) as http:
        http.put(f"{server.url}/_/v1/buckets/datasets")
        code = code.replace("http://127.0.0.1:7481", server.url)
        if kind == "python":
            for secret in (pair.access_key, pair.secret_key):
                code = code.replace('"..."', repr(secret), 1)
            python = s3fs_python if "import s3fs" in code else sys.executable
            command = [str(python), "-W", "ignore", "-c", code]
        else:
            # The bucket is there already, for the other examples.
            code = code.replace("aws s3 mb s3://datasets", "aws s3 mb s3://datasets-2")
            code = code.replace("_ID=...", f"_ID={pair.access_key}").replace(
                "KEY=...", f"KEY={pair.secret_key}"
            )
            command = ["bash", "-euc", code]
        path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env={**environment, "PATH": path},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        listed = http.get(f"{server.url}/_/v1/buckets/datasets/objects").json()["objects"]
        assert [entry["key"] for entry in listed] == ["digits/train.npz"]
        http.delete(f"{server.url}/_/v1/buckets/datasets/objects?prefix=")
        http.delete(f"{server.url}/_/v1/buckets/datasets-2")
