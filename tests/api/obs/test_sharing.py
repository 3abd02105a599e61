"""ACLs, policies, tags and lifecycle rules, and what they let others do."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from botocore.exceptions import ClientError
from obs import ObsClient


def refusal(call: Callable[[], Any]) -> tuple[str, int]:
    with pytest.raises(ClientError) as error:
        call()
    answer = error.value.response
    return answer["Error"]["Code"], answer["ResponseMetadata"]["HTTPStatusCode"]


def everybody(**changes: Any) -> str:
    statement = {
        "Effect": "Allow",
        "Principal": "*",
        "Action": "s3:GetObject",
        "Resource": "arn:aws:s3:::shared/*",
    }
    return json.dumps({"Version": "2012-10-17", "Statement": [{**statement, **changes}]})


@pytest.fixture
def shared(s3: Any) -> Any:
    """A bucket `shared` with an object `k`, new for each test."""
    s3.create_bucket(Bucket="shared")
    s3.put_object(Bucket="shared", Key="k", Body=b"content")
    yield s3
    for entry in s3.list_objects_v2(Bucket="shared").get("Contents", []):
        s3.delete_object(Bucket="shared", Key=entry["Key"])
    s3.delete_bucket(Bucket="shared")


def test_a_public_object(shared: Any, server: Any, s3_as: Callable[..., Any]) -> None:
    url = f"{server.url}/shared/k"
    assert httpx.get(url).status_code == 403
    shared.put_object_acl(Bucket="shared", Key="k", ACL="public-read")
    assert httpx.get(url).content == b"content" and httpx.head(url).status_code == 200
    assert s3_as("stranger").get_object(Bucket="shared", Key="k")["Body"].read() == b"content"
    for refused in (httpx.put(url, content=b"x"), httpx.delete(url), httpx.get(f"{server.url}/shared")):
        assert refused.status_code == 403
    assert httpx.get(f"{server.url}/shared/k?acl").status_code == 403
    assert httpx.put(f"{server.url}/shared/k?acl", headers={"x-amz-acl": "public-read"}).status_code == 403
    assert "InvalidRequest" in httpx.get(url + "?response-content-type=text/html").text
    grants = shared.get_object_acl(Bucket="shared", Key="k")["Grants"]
    assert [grant["Permission"] for grant in grants] == ["FULL_CONTROL", "READ"]
    # A copy, or a new object in its place, is closed again.
    shared.copy_object(Bucket="shared", Key="copy", CopySource="shared/k")
    assert httpx.get(f"{server.url}/shared/copy").status_code == 403
    shared.put_object(Bucket="shared", Key="k", Body=b"new")
    assert httpx.get(url).status_code == 403
    shared.put_object(Bucket="shared", Key="k", Body=b"new", ACL="public-read")
    assert httpx.get(url).content == b"new"


def test_a_public_bucket(shared: Any, server: Any) -> None:
    shared.put_bucket_acl(Bucket="shared", ACL="public-read")
    assert "<Key>k</Key>" in httpx.get(f"{server.url}/shared").text
    assert httpx.get(f"{server.url}/shared/k").status_code == 403
    assert httpx.put(f"{server.url}/shared/new", content=b"x").status_code == 403
    shared.put_bucket_acl(Bucket="shared", ACL="public-read-write")
    assert httpx.put(f"{server.url}/shared/new", content=b"x").status_code == 200
    chunked = {
        "x-amz-content-sha256": "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
        "x-amz-decoded-content-length": "5",
        "content-encoding": "aws-chunked",
    }
    body = b"5\r\nhello\r\n0\r\n\r\n"
    assert httpx.put(f"{server.url}/shared/new", content=body, headers=chunked).status_code == 200
    assert shared.get_object(Bucket="shared", Key="new")["Body"].read() == b"hello"
    chunked["x-amz-content-sha256"] = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
    assert httpx.put(f"{server.url}/shared/new", content=body, headers=chunked).status_code == 400
    assert httpx.delete(f"{server.url}/shared").status_code == 403
    assert httpx.put(f"{server.url}/shared?policy", content=everybody()).status_code == 403
    assert len(shared.get_bucket_acl(Bucket="shared")["Grants"]) == 3
    closed = {"Grants": [], "Owner": {"ID": "x"}}
    shared.put_bucket_acl(Bucket="shared", AccessControlPolicy=closed)
    assert httpx.get(f"{server.url}/shared").status_code == 403


def test_acls_that_cannot_be_kept(shared: Any, s3_as: Callable[..., Any]) -> None:
    def put(**more: Any) -> Any:
        return shared.put_bucket_acl(Bucket="shared", **more)

    assert refusal(lambda: put(ACL="friends")) == ("InvalidArgument", 400)
    assert refusal(lambda: put()) == ("MissingSecurityHeader", 400)
    assert refusal(lambda: put(GrantRead="id=somebody")) == ("NotImplemented", 501)
    put(GrantRead='uri="http://acs.amazonaws.com/groups/global/AllUsers"')
    assert len(shared.get_bucket_acl(Bucket="shared")["Grants"]) == 2
    stranger = s3_as("stranger")
    assert refusal(lambda: stranger.get_bucket_acl(Bucket="shared")) == ("AccessDenied", 403)
    assert refusal(lambda: stranger.put_bucket_acl(Bucket="shared", ACL="private")) == ("AccessDenied", 403)


def test_a_policy_for_everybody(shared: Any, server: Any) -> None:
    assert refusal(lambda: shared.get_bucket_policy(Bucket="shared")) == ("NoSuchBucketPolicy", 404)
    shared.put_bucket_policy(Bucket="shared", Policy=everybody())
    assert json.loads(shared.get_bucket_policy(Bucket="shared")["Policy"]) == json.loads(everybody())
    assert httpx.get(f"{server.url}/shared/k").content == b"content"
    assert httpx.get(f"{server.url}/shared/none").status_code == 404
    assert httpx.get(f"{server.url}/shared").status_code == 403
    assert httpx.put(f"{server.url}/shared/k", content=b"x").status_code == 403
    shared.delete_bucket_policy(Bucket="shared")
    assert httpx.get(f"{server.url}/shared/k").status_code == 403


def test_a_policy_for_another_workspace(shared: Any, server: Any, s3_as: Callable[..., Any]) -> None:
    stranger = s3_as("stranger")
    friend = stranger.list_buckets()["Owner"]["ID"]
    resources = ["arn:aws:s3:::shared", "arn:aws:s3:::shared/*"]
    actions = ["s3:ListBucket", "s3:GetObject", "s3:PutObject"]
    shared.put_bucket_policy(
        Bucket="shared", Policy=everybody(Principal={"AWS": friend}, Action=actions, Resource=resources)
    )
    assert stranger.get_object(Bucket="shared", Key="k")["Body"].read() == b"content"
    assert stranger.list_objects_v2(Bucket="shared")["KeyCount"] == 1
    stranger.put_object(Bucket="shared", Key="theirs", Body=b"x")
    assert refusal(lambda: stranger.delete_object(Bucket="shared", Key="k")) == ("AccessDenied", 403)
    many = {"Objects": [{"Key": "k"}]}
    assert refusal(lambda: stranger.delete_objects(Bucket="shared", Delete=many)) == ("AccessDenied", 403)
    assert refusal(lambda: stranger.delete_bucket(Bucket="shared")) == ("AccessDenied", 403)
    assert refusal(lambda: stranger.get_bucket_policy(Bucket="shared")) == ("AccessDenied", 403)
    assert httpx.get(f"{server.url}/shared/k").status_code == 403


@pytest.mark.parametrize(
    "wrong", ["{}", everybody(Effect="Deny"), everybody(Resource="arn:aws:s3:::other/*")]
)
def test_policies_that_cannot_be_followed(shared: Any, wrong: str) -> None:
    assert refusal(lambda: shared.put_bucket_policy(Bucket="shared", Policy=wrong)) == (
        "MalformedPolicy",
        400,
    )


def test_tags(shared: Any) -> None:
    tags = [{"Key": "a", "Value": "1 = +"}, {"Key": "ü", "Value": ""}]
    assert shared.get_object_tagging(Bucket="shared", Key="k")["TagSet"] == []
    shared.put_object_tagging(Bucket="shared", Key="k", Tagging={"TagSet": tags})
    assert shared.get_object_tagging(Bucket="shared", Key="k")["TagSet"] == tags
    assert shared.head_object(Bucket="shared", Key="k")["TagCount"] == 2
    shared.copy_object(Bucket="shared", Key="same", CopySource="shared/k")
    assert shared.get_object_tagging(Bucket="shared", Key="same")["TagSet"] == tags
    shared.copy_object(
        Bucket="shared", Key="other", CopySource="shared/k", TaggingDirective="REPLACE", Tagging="b=2"
    )
    assert shared.get_object_tagging(Bucket="shared", Key="other")["TagSet"] == [{"Key": "b", "Value": "2"}]
    shared.delete_object_tagging(Bucket="shared", Key="k")
    assert "TagCount" not in shared.head_object(Bucket="shared", Key="k")
    shared.put_object(Bucket="shared", Key="k", Body=b"", Tagging="x=y")
    assert shared.get_object_tagging(Bucket="shared", Key="k")["TagSet"] == [{"Key": "x", "Value": "y"}]

    def put(*tags: tuple[str, str]) -> Any:
        tag_set = [{"Key": name, "Value": value} for name, value in tags]
        return shared.put_object_tagging(Bucket="shared", Key="k", Tagging={"TagSet": tag_set})

    assert refusal(lambda: put(*((str(n), "") for n in range(11)))) == ("InvalidTag", 400)
    assert refusal(lambda: put(("a", "1"), ("a", "2"))) == ("InvalidTag", 400)
    assert refusal(lambda: put(("a" * 129, ""))) == ("InvalidTag", 400)
    missing = {"Bucket": "shared", "Key": "none"}
    assert refusal(lambda: shared.get_object_tagging(**missing)) == ("NoSuchKey", 404)
    assert refusal(lambda: shared.get_bucket_tagging(Bucket="shared")) == ("NoSuchTagSet", 404)
    shared.put_bucket_tagging(Bucket="shared", Tagging={"TagSet": tags})
    assert shared.get_bucket_tagging(Bucket="shared")["TagSet"] == tags
    shared.delete_bucket_tagging(Bucket="shared")
    assert refusal(lambda: shared.get_bucket_tagging(Bucket="shared")) == ("NoSuchTagSet", 404)


def test_lifecycle_rules(shared: Any) -> None:
    name = "NoSuchLifecycleConfiguration"
    assert refusal(lambda: shared.get_bucket_lifecycle_configuration(Bucket="shared")) == (name, 404)
    rule = {"ID": "old", "Status": "Enabled", "Filter": {"Prefix": "tmp/"}, "Expiration": {"Days": 7}}
    shared.put_bucket_lifecycle_configuration(Bucket="shared", LifecycleConfiguration={"Rules": [rule]})
    assert shared.get_bucket_lifecycle_configuration(Bucket="shared")["Rules"] == [rule]
    cold = {**rule, "Transitions": [{"Days": 1, "StorageClass": "GLACIER"}]}
    wrong = {"Rules": [cold]}
    assert refusal(
        lambda: shared.put_bucket_lifecycle_configuration(Bucket="shared", LifecycleConfiguration=wrong)
    ) == ("NotImplemented", 501)
    shared.delete_bucket_lifecycle(Bucket="shared")
    assert refusal(lambda: shared.get_bucket_lifecycle_configuration(Bucket="shared")) == (name, 404)


@pytest.mark.parametrize("signature", ["v2", "v4"])
def test_the_obs_sdk(shared: Any, server: Any, signature: str) -> None:
    pair = server.keys["dev"]
    client = ObsClient(
        pair.access_key, pair.secret_key, server=server.url, signature=signature, path_style=True
    )
    try:
        assert client.setObjectAcl("shared", "k", aclControl="public-read").status == 200
        assert httpx.get(f"{server.url}/shared/k").content == b"content"
        assert len(client.getObjectAcl("shared", "k").body.grants) == 2
        assert client.setBucketAcl("shared", aclControl="public-read").status == 200
        assert len(client.getBucketAcl("shared").body.grants) == 2
        assert client.setBucketPolicy("shared", everybody()).status == 204
        assert json.loads(client.getBucketPolicy("shared").body.policyJSON) == json.loads(everybody())
        assert client.deleteBucketPolicy("shared").status == 204
    finally:
        client.close()
