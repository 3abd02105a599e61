"""Tags and ACLs of objects."""

from __future__ import annotations

from typing import Any

from s3_table.case import Answer, Case
from s3_table.stage import CONTENT, FOREIGN, MISSING, Stage, there

__all__ = ["CASES"]


def tagged(stage: Stage) -> None:
    """An object with one tag."""
    stage.dev.put_object(Key=stage.there, Body=CONTENT, Tagging="a=1")


def _tags(stage: Stage) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in stage.dev.get_object_tagging(Key=stage.there)["TagSet"]}


def _set(tags: dict[str, str], **more: Any) -> Any:
    tag_set = [{"Key": name, "Value": value} for name, value in tags.items()]
    return lambda s: s.dev.put_object_tagging(**{"Key": s.there, "Tagging": {"TagSet": tag_set}, **more})


def _unchanged(s: Stage, a: Answer) -> tuple[object, object]:
    return _tags(s), {"a": "1"}


def _document(body: str) -> Any:
    return lambda s: s.raw_document("tagging", body.encode(), s.there)


def _grants(answer: Answer) -> list[str]:
    return [grant["Permission"] for grant in answer["Grants"]]


_TAG = "<Tag><Key>a</Key><Value>{}</Value></Tag>"
_ACL_DOCUMENT = b"""<AccessControlPolicy><Owner><ID>x</ID></Owner><AccessControlList><Grant>
<Grantee xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:type="Group">
<URI>http://acs.amazonaws.com/groups/global/AllUsers</URI></Grantee><Permission>READ</Permission></Grant>
</AccessControlList></AccessControlPolicy>"""

CASES = [
    Case(
        "GetObjectTagging",
        "some",
        lambda s: s.dev.get_object_tagging(Key=s.there),
        before=(tagged,),
        then=lambda s, a: (a["TagSet"], [{"Key": "a", "Value": "1"}]),
    ),
    Case(
        "GetObjectTagging",
        "none",
        lambda s: s.dev.get_object_tagging(Key=s.there),
        before=(there,),
        then=lambda s, a: (a["TagSet"], []),
    ),
    Case(
        "GetObjectTagging", "a missing key", lambda s: s.dev.get_object_tagging(Key=s.there), 404, "NoSuchKey"
    ),
    Case(
        "GetObjectTagging",
        "a missing bucket",
        lambda s: s.dev.get_object_tagging(Bucket=MISSING, Key="x"),
        404,
        "NoSuchBucket",
    ),
    Case(
        "GetObjectTagging",
        "somebody else's object",
        lambda s: s.dev.get_object_tagging(Bucket=FOREIGN, Key="secret"),
        403,
        "AccessDenied",
    ),
    Case(
        "GetObjectTagging",
        "anonymous",
        lambda s: s.nobody.get_object_tagging(Key=s.there),
        403,
        "AccessDenied",
        before=(tagged,),
    ),
    Case(
        "PutObjectTagging",
        "other ones",
        _set({"b": "2", "ü c": "a+b-c=d._:/@"}),
        before=(tagged,),
        then=lambda s, a: (_tags(s), {"b": "2", "ü c": "a+b-c=d._:/@"}),
    ),
    Case(
        "PutObjectTagging",
        "leaves the object as it is",
        _set({"b": "2"}),
        before=(there,),
        then=lambda s, a: (s.read(s.there), CONTENT),
    ),
    Case(
        "PutObjectTagging",
        "ten",
        _set({f"k{n}": "v" for n in range(10)}),
        before=(tagged,),
        then=lambda s, a: (len(_tags(s)), 10),
    ),
    Case(
        "PutObjectTagging",
        "eleven",
        _set({f"k{n}": "v" for n in range(11)}),
        400,
        "InvalidTag",
        before=(tagged,),
        then=_unchanged,
    ),
    Case(
        "PutObjectTagging",
        "one twice",
        _document(f"<Tagging><TagSet>{_TAG.format(1)}{_TAG.format(2)}</TagSet></Tagging>"),
        400,
        "InvalidTag",
        before=(tagged,),
        then=_unchanged,
    ),
    Case(
        "PutObjectTagging",
        "a name of 128 characters",
        _set({"k" * 128: "v" * 256}),
        before=(tagged,),
        then=lambda s, a: (_tags(s), {"k" * 128: "v" * 256}),
    ),
    Case(
        "PutObjectTagging",
        "a name of 129 characters",
        _set({"k" * 129: "v"}),
        400,
        "InvalidTag",
        before=(tagged,),
        then=_unchanged,
    ),
    Case(
        "PutObjectTagging",
        "a value of 257 characters",
        _set({"k": "v" * 257}),
        400,
        "InvalidTag",
        before=(tagged,),
        then=_unchanged,
    ),
    Case(
        "PutObjectTagging",
        "a character that tags do not have",
        _set({"a": "<&>"}),
        400,
        "InvalidTag",
        before=(tagged,),
        then=_unchanged,
    ),
    Case(
        "PutObjectTagging",
        "a name that is empty",
        _set({"": "v"}),
        400,
        "InvalidTag",
        before=(tagged,),
        then=_unchanged,
    ),
    Case(
        "PutObjectTagging",
        "no XML",
        _document("tags"),
        400,
        "MalformedXML",
        before=(tagged,),
        then=_unchanged,
    ),
    Case(
        "PutObjectTagging",
        "a document without a set",
        _document("<Tagging/>"),
        400,
        "MalformedXML",
        before=(tagged,),
        then=_unchanged,
    ),
    Case(
        "PutObjectTagging",
        "a tag without a value",
        _document("<Tagging><TagSet><Tag><Key>a</Key></Tag></TagSet></Tagging>"),
        400,
        "MalformedXML",
        before=(tagged,),
        then=_unchanged,
    ),
    Case("PutObjectTagging", "a missing key", _set({"a": "1"}), 404, "NoSuchKey"),
    Case("PutObjectTagging", "a missing bucket", _set({"a": "1"}, Bucket=MISSING), 404, "NoSuchBucket"),
    Case(
        "PutObjectTagging",
        "one who may only read",
        lambda s: s.viewer.put_object_tagging(Key=s.there, Tagging={"TagSet": []}),
        403,
        "AccessDenied",
        before=(tagged,),
        then=_unchanged,
    ),
    Case(
        "DeleteObjectTagging",
        "all of them",
        lambda s: s.dev.delete_object_tagging(Key=s.there),
        204,
        before=(tagged,),
        then=lambda s, a: (_tags(s), {}),
    ),
    Case(
        "DeleteObjectTagging",
        "none",
        lambda s: s.dev.delete_object_tagging(Key=s.there),
        204,
        before=(there,),
    ),
    Case(
        "DeleteObjectTagging",
        "a missing key",
        lambda s: s.dev.delete_object_tagging(Key=s.there),
        404,
        "NoSuchKey",
    ),
    Case(
        "DeleteObjectTagging",
        "one who may only read",
        lambda s: s.viewer.delete_object_tagging(Key=s.there),
        403,
        "AccessDenied",
        before=(tagged,),
        then=_unchanged,
    ),
    Case(
        "GetObjectAcl",
        "a private object",
        lambda s: s.dev.get_object_acl(Key=s.there),
        before=(there,),
        then=lambda s, a: (_grants(a), ["FULL_CONTROL"]),
    ),
    Case("GetObjectAcl", "a missing key", lambda s: s.dev.get_object_acl(Key=s.there), 404, "NoSuchKey"),
    Case(
        "GetObjectAcl",
        "somebody else's object",
        lambda s: s.dev.get_object_acl(Bucket=FOREIGN, Key="secret"),
        403,
        "AccessDenied",
    ),
    Case(
        "PutObjectAcl",
        "public-read",
        lambda s: s.dev.put_object_acl(Key=s.there, ACL="public-read"),
        before=(there,),
        then=lambda s, a: (
            (s.nobody.get_object(Key=s.there).body, _grants(s.dev.get_object_acl(Key=s.there))),
            (CONTENT, ["FULL_CONTROL", "READ"]),
        ),
    ),
    Case(
        "PutObjectAcl",
        "authenticated-read",
        lambda s: s.dev.put_object_acl(Key=s.there, ACL="authenticated-read"),
        before=(there,),
        then=lambda s, a: (
            (s.stranger.get_object(Key=s.there).status, s.nobody.get_object(Key=s.there).code),
            (200, "AccessDenied"),
        ),
    ),
    Case(
        "PutObjectAcl",
        "private again",
        lambda s: (
            s.dev.put_object_acl(Key=s.there, ACL="public-read"),
            s.dev.put_object_acl(Key=s.there, ACL="private"),
        )[1],
        before=(there,),
        then=lambda s, a: (s.nobody.get_object(Key=s.there).code, "AccessDenied"),
    ),
    Case(
        "PutObjectAcl",
        "public-read is not for writing",
        lambda s: (
            s.dev.put_object_acl(Key=s.there, ACL="public-read"),
            s.nobody.put_object(Key=s.there, Body=b"new"),
        )[1],
        403,
        "AccessDenied",
        before=(there,),
        then=lambda s, a: (s.read(s.there), CONTENT),
        is_harmless=False,
    ),
    Case(
        "PutObjectAcl",
        "grants in headers",
        lambda s: s.dev.put_object_acl(
            Key=s.there, GrantRead='uri="http://acs.amazonaws.com/groups/global/AllUsers"'
        ),
        before=(there,),
        then=lambda s, a: (s.nobody.get_object(Key=s.there).body, CONTENT),
    ),
    Case(
        "PutObjectAcl",
        "grants in a document",
        lambda s: s.raw_document("acl", _ACL_DOCUMENT, s.there),
        before=(there,),
        then=lambda s, a: (s.nobody.get_object(Key=s.there).body, CONTENT),
    ),
    Case(
        "PutObjectAcl",
        "an ACL that is unknown",
        lambda s: s.dev.put_object_acl(Key=s.there, ACL="mine"),
        400,
        "InvalidArgument",
        before=(there,),
    ),
    Case(
        "PutObjectAcl",
        "an ACL and grants at once",
        lambda s: s.dev.put_object_acl(
            Key=s.there, ACL="private", GrantRead='uri="http://acs.amazonaws.com/groups/global/AllUsers"'
        ),
        400,
        "InvalidRequest",
        before=(there,),
    ),
    Case(
        "PutObjectAcl",
        "no XML",
        lambda s: s.raw_document("acl", b"<Access", s.there),
        400,
        "MalformedACLError",
        before=(there,),
    ),
    Case(
        "PutObjectAcl",
        "nothing at all",
        lambda s: s.raw_document("acl", b"", s.there),
        400,
        "MissingSecurityHeader",
        before=(there,),
    ),
    Case(
        "PutObjectAcl",
        "a missing key",
        lambda s: s.dev.put_object_acl(Key=s.there, ACL="private"),
        404,
        "NoSuchKey",
    ),
    Case(
        "PutObjectAcl",
        "one who may only read",
        lambda s: s.viewer.put_object_acl(Key=s.there, ACL="public-read"),
        403,
        "AccessDenied",
        before=(there,),
        then=lambda s, a: (s.nobody.get_object(Key=s.there).code, "AccessDenied"),
    ),
    Case(
        "PutObjectAcl",
        "somebody else's object",
        lambda s: s.dev.put_object_acl(Bucket=FOREIGN, Key="secret", ACL="public-read"),
        403,
        "AccessDenied",
        then=lambda s, a: (s.nobody.get_object(Bucket=FOREIGN, Key="secret").code, "AccessDenied"),
    ),
]
