"""The OBS SDK (esdk-obs-python) in each of its signature modes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from obs import (
    AppendObjectContent,
    CompleteMultipartUploadRequest,
    CompletePart,
    DeleteObjectsRequest,
    GetObjectHeader,
    Object,
    ObsClient,
    PutObjectHeader,
)

pytestmark = pytest.mark.usefixtures("names_of_buckets")

MODES = {
    # Negotiated: the SDK asks with HEAD ?apiversion and finds that OBS's own signature is spoken.
    "negotiated": {"server": "localhost"},
    "native": {"server": "localhost", "signature": "obs", "is_signature_negotiation": False},
    "v2 host": {"server": "localhost", "signature": "v2", "is_signature_negotiation": False},
    "v2 path": {"server": "127.0.0.1", "signature": "v2", "path_style": True},
    "downgraded": {"server": "127.0.0.1", "path_style": True},
    "v4 host": {"server": "localhost", "signature": "v4", "is_signature_negotiation": False},
    "v4 path": {"server": "127.0.0.1", "signature": "v4", "path_style": True},
}


@pytest.fixture(params=list(MODES))
def sdk(request: pytest.FixtureRequest, server: Any) -> Iterator[Any]:
    """An SDK client with a bucket of its own; its name is in `client.own`."""
    settings = dict(MODES[request.param])
    pair = server.keys["dev"]
    client = ObsClient(
        access_key_id=pair.access_key,
        secret_access_key=pair.secret_key,
        is_secure=False,
        port=server.port,
        max_retry_count=0,
        timeout=120,
        server=settings.pop("server"),
        **settings,
    )
    client.own = "sdk-" + request.param.replace(" ", "-")
    answer = client.createBucket(client.own, location="cn-north-4")
    assert answer.status in (200, 409), vars(answer)
    yield client
    client.close()


def ok(answer: Any) -> Any:
    assert answer.status < 300, (answer.status, answer.errorCode, answer.errorMessage)
    return answer.body


def all_ok(answers: Any) -> None:
    """Folders are answered by lists of names and answers, one within the other."""
    for _, answer in answers:
        if isinstance(answer, list):
            all_ok(answer)
        else:
            ok(answer)


def test_buckets(sdk: Any) -> None:
    assert sdk.own in [bucket.name for bucket in ok(sdk.listBuckets()).buckets]
    ok(sdk.headBucket(sdk.own))
    assert sdk.headBucket("not-there").status == 404
    assert sdk.getBucketLocation(sdk.own).status == 200
    assert sdk.getBucketMetadata(sdk.own).status == 200
    assert ok(sdk.getBucketQuota(sdk.own)).quota == 0
    assert ok(sdk.getBucketStoragePolicy(sdk.own)).storageClass == "STANDARD"
    assert sdk.deleteBucket("not-there").errorCode == "NoSuchBucket"
    ok(sdk.createBucket(sdk.own + "-2"))
    ok(sdk.deleteBucket(sdk.own + "-2"))


@pytest.mark.parametrize("key", ["plain", "a b/ü+&=%.txt", "文件/数据"])
def test_objects(sdk: Any, key: str, tmp_path: Path) -> None:
    put = ok(
        sdk.putContent(
            sdk.own, key, "content", metadata={"a": "1"}, headers=PutObjectHeader(contentType="text/plain")
        )
    )
    got = sdk.getObject(sdk.own, key, loadStreamInMemory=True)
    assert ok(got).buffer == b"content" and got.body.etag == put.etag
    assert dict(got.header)["a"] == "1"
    assert (
        ok(sdk.getObject(sdk.own, key, headers=GetObjectHeader(range="1-3"), loadStreamInMemory=True)).buffer
        == b"ont"
    )
    head = sdk.getObjectMetadata(sdk.own, key)
    assert ok(head).contentLength == 7 and head.body.contentType == "text/plain"
    data = os.urandom(300_000)
    (tmp_path / "file").write_bytes(data)
    ok(sdk.putFile(sdk.own, key + "-file", str(tmp_path / "file")))
    ok(sdk.getObject(sdk.own, key + "-file", downloadPath=str(tmp_path / "back")))
    assert (tmp_path / "back").read_bytes() == data
    ok(sdk.copyObject(sdk.own, key, sdk.own, key + "-copy"))
    assert ok(sdk.getObject(sdk.own, key + "-copy", loadStreamInMemory=True)).buffer == b"content"
    keys = [entry.key for entry in ok(sdk.listObjects(sdk.own, prefix=key)).contents]
    assert keys == sorted([key, key + "-copy", key + "-file"], key=str.encode)
    assert sdk.getObject(sdk.own, key + "-none").errorCode == "NoSuchKey"
    ok(sdk.setObjectMetadata(sdk.own, key, metadata={"b": "2"}))
    assert dict(sdk.getObjectMetadata(sdk.own, key).header).get("b") == "2"
    wanted = DeleteObjectsRequest(quiet=False, objects=[Object(key=name) for name in keys])
    assert len(ok(sdk.deleteObjects(sdk.own, wanted)).deleted) == 3
    ok(sdk.deleteObject(sdk.own, key))
    assert ok(sdk.listObjects(sdk.own, prefix=key)).contents == []


def test_folders_and_pages(sdk: Any, tmp_path: Path) -> None:
    (tmp_path / "tree" / "sub").mkdir(parents=True)
    for name in ("one", "sub/two"):
        (tmp_path / "tree" / name).write_text(name)
    all_ok(sdk.putFile(sdk.own, "up", str(tmp_path / "tree")))
    listed = ok(sdk.listObjects(sdk.own, prefix="up/", delimiter="/"))
    assert [entry.key for entry in listed.contents] == ["up/one"]
    assert [entry.prefix for entry in listed.commonPrefixs] == ["up/sub/"]
    for number in range(5):
        ok(sdk.putContent(sdk.own, f"page/{number}", "x"))
    first = ok(sdk.listObjects(sdk.own, prefix="page/", max_keys=2))
    assert first.is_truncated and len(first.contents) == 2
    rest = ok(sdk.listObjects(sdk.own, prefix="page/", marker=first.contents[-1].key))
    assert len(rest.contents) == 3 and not rest.is_truncated


def test_multipart(sdk: Any, tmp_path: Path) -> None:
    begun = ok(sdk.initiateMultipartUpload(sdk.own, "parts", metadata={"a": "b"}))
    data = [os.urandom(5 << 20), b"end"]
    parts = []
    for number, piece in enumerate(data, 1):
        answer = ok(sdk.uploadPart(sdk.own, "parts", number, begun.uploadId, content=piece))
        parts.append(CompletePart(partNum=number, etag=answer.etag))
    assert len(ok(sdk.listParts(sdk.own, "parts", begun.uploadId)).parts) == 2
    assert begun.uploadId in [entry.uploadId for entry in ok(sdk.listMultipartUploads(sdk.own)).upload]
    ok(
        sdk.completeMultipartUpload(
            sdk.own, "parts", begun.uploadId, CompleteMultipartUploadRequest(parts=parts)
        )
    )
    assert ok(sdk.getObject(sdk.own, "parts", loadStreamInMemory=True)).buffer == b"".join(data)
    begun = ok(sdk.initiateMultipartUpload(sdk.own, "dropped"))
    copied = ok(
        sdk.copyPart(sdk.own, "dropped", 1, begun.uploadId, f"{sdk.own}/parts", copySourceRange="0-99")
    )
    assert copied.etag
    ok(sdk.abortMultipartUpload(sdk.own, "dropped", begun.uploadId))
    assert sdk.listParts(sdk.own, "dropped", begun.uploadId).errorCode == "NoSuchUpload"
    (tmp_path / "big").write_bytes(os.urandom(11 << 20))
    ok(
        sdk.uploadFile(
            sdk.own, "big", str(tmp_path / "big"), partSize=5 << 20, taskNum=3, enableCheckpoint=True
        )
    )
    ok(sdk.downloadFile(sdk.own, "big", str(tmp_path / "back"), partSize=5 << 20, taskNum=3))
    assert (tmp_path / "back").read_bytes() == (tmp_path / "big").read_bytes()


def test_append_and_rename(sdk: Any) -> None:
    key = "grows"
    first = ok(sdk.appendObject(sdk.own, key, AppendObjectContent(content="one", position=0)))
    assert int(first.nextPosition) == 3
    second = ok(sdk.appendObject(sdk.own, key, AppendObjectContent(content="two", position=3)))
    assert int(second.nextPosition) == 6
    wrong = sdk.appendObject(sdk.own, key, AppendObjectContent(content="x", position=3))
    assert (wrong.status, wrong.errorCode) == (409, "PositionNotEqualToLength")
    ok(sdk.putContent(sdk.own, "fixed", "x"))
    wrong = sdk.appendObject(sdk.own, "fixed", AppendObjectContent(content="x", position=1))
    assert (wrong.status, wrong.errorCode) == (409, "ObjectNotAppendable")
    ok(sdk.renameFile(sdk.own, key, "grown"))
    assert ok(sdk.getObject(sdk.own, "grown", loadStreamInMemory=True)).buffer == b"onetwo"
    assert sdk.getObjectMetadata(sdk.own, key).status == 404
    ok(sdk.putContent(sdk.own, "old/a", "1"))
    ok(sdk.renameFile(sdk.own, "old/", "new/"))
    assert ok(sdk.getObject(sdk.own, "new/a", loadStreamInMemory=True)).buffer == b"1"
    for name in ("grown", "new/a"):
        ok(sdk.deleteObject(sdk.own, name))


def test_presigned_urls(sdk: Any) -> None:
    ok(sdk.putContent(sdk.own, "signed url", "content"))
    signed = sdk.createSignedUrl("GET", sdk.own, "signed url", expires=60)
    assert httpx.get(signed.signedUrl, headers=signed.actualSignedRequestHeaders).content == b"content"
    tampered = httpx.get(
        signed.signedUrl.replace("signed", "signet"), headers=signed.actualSignedRequestHeaders
    )
    assert tampered.status_code == 403
    put = sdk.createSignedUrl("PUT", sdk.own, "by url", expires=60, headers={"Content-Type": "text/plain"})
    answer = httpx.put(put.signedUrl, content=b"sent", headers=put.actualSignedRequestHeaders)
    assert answer.status_code == 200, answer.text
    assert ok(sdk.getObject(sdk.own, "by url", loadStreamInMemory=True)).buffer == b"sent"


def test_acls_and_versions(sdk: Any, server: Any) -> None:
    bucket = sdk.own + "-shared"
    ok(sdk.createBucket(bucket))
    ok(sdk.putContent(bucket, "opened", "content"))
    url = f"{server.url}/{bucket}/opened"
    assert httpx.get(url).status_code == 403
    ok(sdk.setObjectAcl(bucket, "opened", aclControl="public-read"))
    assert httpx.get(url).content == b"content"
    assert len(ok(sdk.getObjectAcl(bucket, "opened")).grants) == 2
    ok(sdk.setObjectAcl(bucket, "opened", acl=ok(sdk.getBucketAcl(bucket))))
    assert httpx.get(url).status_code == 403
    ok(sdk.setBucketAcl(bucket, aclControl="public-read"))
    grants = ok(sdk.getBucketAcl(bucket)).grants
    assert [grant.permission for grant in grants] == ["FULL_CONTROL", "READ"]
    ok(sdk.setBucketAcl(bucket, aclControl="private"))
    ok(sdk.setBucketVersioning(bucket, "Enabled"))
    assert ok(sdk.getBucketVersioning(bucket)) == "Enabled"
    assert len(ok(sdk.listVersions(bucket)).versions) >= 1
    ok(sdk.setBucketVersioning(bucket, "Suspended"))


def test_a_wrong_secret(sdk: Any, server: Any) -> None:
    settings = dict(MODES["native" if sdk.signature == "obs" else "v2 path"])
    pair = server.keys["dev"]
    wrong = ObsClient(pair.access_key, pair.secret_key + "x", is_secure=False, port=server.port, **settings)
    try:
        assert wrong.listBuckets().errorCode == "SignatureDoesNotMatch"
    finally:
        wrong.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_the_calls_of_ais_bench(server: Any, tmp_path: Path, host: str) -> None:
    """A benchmark that drives trainings makes its client of three arguments, and needs folders, trees and results."""
    pair = server.keys["dev"]
    client = ObsClient(
        access_key_id=pair.access_key,
        secret_access_key=pair.secret_key,
        server=f"http://{host}:{server.port}",
    )
    bucket = f"ais-{host.replace('.', '-')}"
    try:
        ok(client.createBucket(bucket))
        # A folder for the results of the next version.
        ok(client.putContent(bucket, "result/V1/", content=None))
        assert ok(client.getObjectMetadata(bucket, "result/V1/")).contentLength == 0
        # The code, with folders in folders, beside what was there before.
        code = tmp_path / "code"
        (code / "src" / "empty").mkdir(parents=True)
        (code / "train.py").write_text("print('old')")
        (code / "src" / "模型.py").write_text("1")
        for text in ("print('old')", "print('new')"):
            (code / "train.py").write_text(text)
            all_ok(client.putFile(bucket, "jobs/code", str(code)))
        keys = [entry.key for entry in ok(client.listObjects(bucket, prefix="jobs/code/")).contents]
        assert {"jobs/code/train.py", "jobs/code/src/模型.py"} <= set(keys)
        got = ok(client.getObject(bucket, "jobs/code/train.py", loadStreamInMemory=True))
        assert got.buffer == b"print('new')"
        # What a job left: numbers in text, and a log that grew since it was last looked at.
        for name, text in (
            ("ranksize.json", "1"),
            ("throughput_0.json", "1767.3"),
            ("accuracy.json", "0.77"),
        ):
            ok(client.putContent(bucket, f"result/V1/{name}", text))
        found = {
            entry.key: ok(client.getObject(bucket, entry.key, loadStreamInMemory=True)).buffer
            for entry in ok(client.listObjects(bucket, prefix="result/V1/")).contents
        }
        assert found["result/V1/throughput_0.json"] == b"1767.3" and not found["result/V1/"]
        log = "result/V1/job-1-worker-0.log"
        assert client.getObjectMetadata(bucket, log).status == 404
        for text in ("one\n", "one\ntwo\n"):
            ok(client.putContent(bucket, log, text))
            ok(client.getObject(bucket, log, downloadPath=str(tmp_path / "log" / "worker-0.log")))
            assert (tmp_path / "log" / "worker-0.log").read_text() == text
        missing = client.getObject(bucket, "result/V1/accuracy_1.json", loadStreamInMemory=True)
        assert (missing.status, missing.errorCode) == (404, "NoSuchKey")
    finally:
        client.close()
