"""Server-side encryption: refused, or told of every object where the disk below the store is said to be encrypted."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import obs
import pytest
from botocore.exceptions import ClientError

from store_server import StoreServer, make_server

BIN = Path(sys.executable).parent
DEFAULT = {
    "Rules": [{"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}, "BucketKeyEnabled": False}]
}


def with_algorithm(name: str) -> dict[str, Any]:
    return {"Rules": [{"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": name}}]}


def refusal(call: Callable[[], Any]) -> tuple[str, int, str]:
    with pytest.raises(ClientError) as caught:
        call()
    error, answer = caught.value.response["Error"], caught.value.response["ResponseMetadata"]
    return error["Code"], answer["HTTPStatusCode"], error["Message"]


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreServer]:
    """A store whose administrator says that its disk is encrypted."""
    home = tmp_path_factory.mktemp("sealed")
    (home / "settings.toml").write_text("store_encrypted = true\n")
    server = make_server(home)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def sealed_s3(sealed: StoreServer, connect: Callable[..., Any]) -> Iterator[Any]:
    """A boto3 client of that store, with a bucket `data` that is there."""
    client = connect(sealed)
    client.create_bucket(Bucket="data")
    yield client
    client.close()


def test_without_the_setting_the_refusal_names_it(s3: Any) -> None:
    code, status, message = refusal(
        lambda: s3.put_object(Bucket="data", Key="k", Body=b"x", ServerSideEncryption="AES256")
    )
    assert (code, status) == ("NotImplemented", 501) and "store_encrypted" in message
    code, status, message = refusal(
        lambda: s3.create_multipart_upload(Bucket="data", Key="k", ServerSideEncryption="AES256")
    )
    assert (code, status) == ("NotImplemented", 501) and "store_encrypted" in message
    code, status, _ = refusal(
        lambda: s3.put_bucket_encryption(
            Bucket="data", ServerSideEncryptionConfiguration=with_algorithm("AES256")
        )
    )
    assert (code, status) == ("NotImplemented", 501)
    assert "ServerSideEncryption" not in s3.put_object(Bucket="data", Key="k", Body=b"x")
    assert "ServerSideEncryption" not in s3.head_object(Bucket="data", Key="k")


def test_every_answer_about_an_object_tells_it(sealed_s3: Any) -> None:
    place = {"Bucket": "data", "Key": "told"}
    for asked in ({"ServerSideEncryption": "AES256"}, {}):
        assert sealed_s3.put_object(**place, Body=b"x", **asked)["ServerSideEncryption"] == "AES256"
        assert sealed_s3.head_object(**place)["ServerSideEncryption"] == "AES256"
        got = sealed_s3.get_object(**place)
        assert got["ServerSideEncryption"] == "AES256" and got["Body"].read() == b"x"
        copied = sealed_s3.copy_object(Bucket="data", Key="copy", CopySource="data/told", **asked)
        assert copied["ServerSideEncryption"] == "AES256"
        upload = sealed_s3.create_multipart_upload(Bucket="data", Key="parts", **asked)
        assert upload["ServerSideEncryption"] == "AES256"
        whole = {"Bucket": "data", "Key": "parts", "UploadId": upload["UploadId"]}
        part = sealed_s3.upload_part(**whole, PartNumber=1, Body=b"y" * (5 << 20))
        assert part["ServerSideEncryption"] == "AES256"
        second = sealed_s3.upload_part_copy(**whole, PartNumber=2, CopySource="data/told")
        assert second["ServerSideEncryption"] == "AES256"
        tags = [part["ETag"], second["CopyPartResult"]["ETag"]]
        parts = [{"PartNumber": number, "ETag": tag} for number, tag in enumerate(tags, 1)]
        done = sealed_s3.complete_multipart_upload(**whole, MultipartUpload={"Parts": parts})
        assert done["ServerSideEncryption"] == "AES256"


def test_a_copy_onto_itself_may_ask_for_it(sealed_s3: Any) -> None:
    sealed_s3.put_object(Bucket="data", Key="itself", Body=b"x", Metadata={"a": "1"})
    itself = {"Bucket": "data", "Key": "itself", "CopySource": "data/itself"}
    assert refusal(lambda: sealed_s3.copy_object(**itself))[0] == "InvalidRequest"
    sealed_s3.copy_object(**itself, ServerSideEncryption="AES256")
    assert sealed_s3.head_object(Bucket="data", Key="itself")["Metadata"] == {"a": "1"}


def test_a_bucket_tells_the_one_configuration(sealed_s3: Any) -> None:
    def configuration() -> Any:
        return sealed_s3.get_bucket_encryption(Bucket="data")["ServerSideEncryptionConfiguration"]

    assert configuration() == DEFAULT
    sealed_s3.put_bucket_encryption(Bucket="data", ServerSideEncryptionConfiguration=DEFAULT)
    code, status, message = refusal(
        lambda: sealed_s3.put_bucket_encryption(
            Bucket="data", ServerSideEncryptionConfiguration=with_algorithm("aws:kms")
        )
    )
    assert (code, status) == ("NotImplemented", 501) and "KMS" in message
    sealed_s3.delete_bucket_encryption(Bucket="data")
    assert configuration() == DEFAULT


def test_keys_that_nobody_keeps_are_refused(sealed_s3: Any) -> None:
    def put(**asked: str) -> tuple[str, int, str]:
        return refusal(lambda: sealed_s3.put_object(Bucket="data", Key="none", Body=b"x", **asked))

    for name in ("aws:kms", "aws:kms:dsse"):
        code, status, message = put(ServerSideEncryption=name)
        assert (code, status) == ("NotImplemented", 501) and "KMS" in message
    assert put(SSEKMSKeyId="a-key")[:2] == ("NotImplemented", 501)
    assert put(ServerSideEncryption="ROT13")[:2] == ("InvalidArgument", 400)
    own = {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": "0" * 32}
    code, status, message = put(**own)
    assert (code, status) == ("NotImplemented", 501) and "SSE-C" in message
    assert refusal(lambda: sealed_s3.head_object(Bucket="data", Key="none"))[1] == 404
    upload = sealed_s3.create_multipart_upload(Bucket="data", Key="none")["UploadId"]
    part = {"Bucket": "data", "Key": "none", "UploadId": upload, "PartNumber": 1}
    assert refusal(lambda: sealed_s3.upload_part(**part, Body=b"x", **own))[0] == "NotImplemented"
    source = {"CopySourceSSECustomerAlgorithm": "AES256", "CopySourceSSECustomerKey": "0" * 32}
    sealed_s3.put_object(Bucket="data", Key="plain", Body=b"x")
    code, _, _ = refusal(
        lambda: sealed_s3.copy_object(Bucket="data", Key="none", CopySource="data/plain", **source)
    )
    assert code == "NotImplemented"


def test_a_form_may_ask_for_it(sealed_s3: Any) -> None:
    asked = {"x-amz-server-side-encryption": "AES256"}
    form = sealed_s3.generate_presigned_post("data", "form", Fields=dict(asked), Conditions=[asked])
    answer = httpx.post(form["url"], data=form["fields"], files={"file": b"of a form"})
    assert answer.status_code == 204 and answer.headers["x-amz-server-side-encryption"] == "AES256"
    refused = {"x-amz-server-side-encryption": "aws:kms"}
    form = sealed_s3.generate_presigned_post("data", "form", Fields=dict(refused), Conditions=[refused])
    assert httpx.post(form["url"], data=form["fields"], files={"file": b"x"}).status_code == 501


@pytest.mark.usefixtures("names_of_buckets")
@pytest.mark.parametrize("mode", ["obs", "v2"])
def test_the_sdk_of_obs(sealed: StoreServer, sealed_s3: Any, mode: str) -> None:
    pair = sealed.keys["dev"]
    client = obs.ObsClient(
        access_key_id=pair.access_key,
        secret_access_key=pair.secret_key,
        server="localhost",
        port=sealed.port,
        is_secure=False,
        signature=mode,
        is_signature_negotiation=False,
        max_retry_count=0,
        timeout=120,
    )
    try:
        asked = obs.PutObjectHeader(sseHeader=obs.SseKmsHeader(encryption="AES256"))
        put = client.putContent("data", "sdk", "content", headers=asked)
        assert put.status == 200 and put.body.sseKms == "AES256", vars(put)
        head = client.getObjectMetadata("data", "sdk")
        assert head.status == 200 and head.body.sseKms == "AES256"
        assert client.getBucketEncryption("data").body.encryption == "AES256"
        assert client.setBucketEncryption("data", "AES256").status == 200
        assert client.setBucketEncryption("data", "kms").status == 501
        assert client.deleteBucketEncryption("data").status == 204
        kms = obs.PutObjectHeader(sseHeader=obs.SseKmsHeader.getInstance())
        assert client.putContent("data", "sdk", "content", headers=kms).status == 501
        key = base64.b64encode(hashlib.sha256(b"a key").digest()).decode()
        own = obs.PutObjectHeader(sseHeader=obs.SseCHeader(encryption="AES256", key=key))
        refused = client.putContent("data", "sdk", "content", headers=own)
        assert refused.status == 501 and "SSE-C" in refused.errorMessage
        position = client.appendObject(
            "data", f"grows-{mode}", content=obs.AppendObjectContent(content="more", position=0)
        )
        assert position.status == 200 and position.body.sseKms == "AES256"
    finally:
        client.close()


@pytest.mark.slow
def test_command_lines(sealed: StoreServer, sealed_s3: Any, tmp_path: Path) -> None:
    pair = sealed.keys["dev"]
    variables = {
        **{name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
        "AWS_ACCESS_KEY_ID": pair.access_key,
        "AWS_SECRET_ACCESS_KEY": pair.secret_key,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": sealed.url,
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
        "AWS_EC2_METADATA_DISABLED": "true",
        "PYTHONWARNINGS": "ignore",
        "RCLONE_CONFIG": str(tmp_path / "rclone.conf"),
        "RCLONE_CONFIG_SHED_TYPE": "s3",
        "RCLONE_CONFIG_SHED_PROVIDER": "AWS",
        "RCLONE_CONFIG_SHED_ENV_AUTH": "true",
        "RCLONE_CONFIG_SHED_ENDPOINT": sealed.url,
        "RCLONE_CONFIG_SHED_FORCE_PATH_STYLE": "true",
        "RCLONE_CONFIG_SHED_SERVER_SIDE_ENCRYPTION": "AES256",
        "RCLONE_S3_UPLOAD_CUTOFF": "6Mi",
        "RCLONE_RETRIES": "1",
    }
    (tmp_path / "rclone.conf").touch()
    (tmp_path / "large").write_bytes(b"large" * (2 << 20))

    def run(program: str, *arguments: str) -> str:
        command = [str(BIN / program), *arguments]
        done = subprocess.run(
            command, env=variables, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    # In parts, by both.
    run("aws", "s3", "cp", "--sse", "AES256", str(tmp_path / "large"), "s3://data/aws")
    told = json.loads(run("aws", "s3api", "head-object", "--bucket", "data", "--key", "aws"))
    assert told["ServerSideEncryption"] == "AES256" and told["ContentLength"] == 10 << 20
    run("rclone", "copyto", str(tmp_path / "large"), "shed:data/rclone")
    run("rclone", "cat", "--count", "5", "shed:data/aws")
    run("rclone", "copyto", "shed:data/rclone", "shed:data/copied")
    assert sealed_s3.head_object(Bucket="data", Key="copied")["ServerSideEncryption"] == "AES256"
