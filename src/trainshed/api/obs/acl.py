"""ACLs of buckets and objects: the canned ones, whichever way a client spells them."""

from __future__ import annotations

from typing import Any

from trainshed.api.obs.body import receive_document
from trainshed.api.obs.errors import S3Error
from trainshed.api.obs.visit import Visit, owner_of
from trainshed.api.obs.xml_codec import child, children, malformed_xml, parse_xml, text_of
from trainshed.model.bucket_policy import CANNED_ACLS

__all__ = ["get_bucket_acl", "get_object_acl", "put_bucket_acl", "put_object_acl", "read_acl_header"]

_XSI = 'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"'
_EVERYBODY = "http://acs.amazonaws.com/groups/global/AllUsers"
_KNOWN = "http://acs.amazonaws.com/groups/global/AuthenticatedUsers"


async def get_object_acl(visit: Visit) -> None:
    """Who may read an object."""
    version = visit.query.get("versionId", "")

    def work() -> tuple[str, str]:
        bucket = visit.owned()
        info = visit.store.info(visit.bucket, visit.key, version)
        return bucket.workspace_id, info.attributes.get("acl", "private")

    await _answer(visit, *await visit.do(work))


async def get_bucket_acl(visit: Visit) -> None:
    """Who may list a bucket or write into it."""

    def work() -> tuple[str, str]:
        bucket = visit.owned()
        return bucket.workspace_id, visit.store.bucket_document(visit.bucket, "acl") or "private"

    await _answer(visit, *await visit.do(work))


async def put_object_acl(visit: Visit) -> None:
    """Change who may read an object."""
    acl = await _read_acl(visit)
    version = visit.query.get("versionId", "")
    change = {"acl": acl if acl != "private" else None}
    await visit.do(lambda: visit.store.set_attributes(visit.bucket, visit.key, change, version_id=version))
    await visit.answer(200)


async def put_bucket_acl(visit: Visit) -> None:
    """Change who may list a bucket or write into it."""
    acl = await _read_acl(visit)
    await visit.do(
        lambda: visit.store.set_bucket_document(visit.bucket, "acl", acl if acl != "private" else "")
    )
    await visit.answer(200)


def read_acl_header(visit: Visit) -> str:
    """The canned ACL that the headers of a request ask for; empty when they ask for none."""
    acl = visit.option("acl")
    if acl and acl not in CANNED_ACLS:
        raise S3Error("InvalidArgument", "The canned ACL is not known.", ArgumentName="acl")
    start = f"{visit.prefix}grant-"
    grants = {
        name.removeprefix(start): value for name, value in visit.headers.items() if name.startswith(start)
    }
    if not grants:
        return acl
    if acl:
        raise S3Error("InvalidRequest", "Specifying both Canned ACLs and Header Grants is not allowed")
    rights = set()
    for right, value in grants.items():
        for who in value.split(","):
            rights.add((who.partition("=")[2].strip().strip('"'), right.upper().replace("-", "_")))
    return _name(rights)


async def _read_acl(visit: Visit) -> str:
    await visit.do(visit.owned)
    named = read_acl_header(visit)
    body = await receive_document(visit)
    if named:
        return named
    if not body.strip():
        raise S3Error("MissingSecurityHeader", "Your request was missing a required header: x-amz-acl.")
    try:
        return _name(_read_rights(body))
    except S3Error as error:
        if error.code != "MalformedXML":
            raise
        # For this document there is a code of its own.
        raise S3Error("MalformedACLError", error.message) from None


def _read_rights(body: bytes) -> set[tuple[str, str]]:
    grants = child(parse_xml(body, "AccessControlPolicy"), "AccessControlList")
    if grants is None:
        raise malformed_xml()
    rights = set()
    for grant in children(grants, "Grant"):
        grantee = child(grant, "Grantee")
        if grantee is None:
            raise malformed_xml()
        who = text_of(grantee, "URI", "") or text_of(grantee, "Canned", "") or text_of(grantee, "ID", "")
        rights.add((who, text_of(grant, "Permission")))
    return rights


def _name(rights: set[tuple[str, str]]) -> str:
    """The canned ACL that says the same. Rights of single accounts are given by a policy."""
    everybody = {right for who, right in rights if who in (_EVERYBODY, "Everyone")}
    known = {right for who, right in rights if who == _KNOWN}
    single = {(who, right) for who, right in rights if "/" not in who and who != "Everyone"}
    if any(right != "FULL_CONTROL" for _, right in single) or len({who for who, _ in single}) > 1:
        raise S3Error("NotImplemented", "Rights of single accounts are given by a bucket policy.")
    if everybody <= {"READ", "WRITE"} and known <= {"READ"}:
        if "WRITE" in everybody:
            return "public-read-write"
        if "READ" in everybody:
            return "public-read"
        return "authenticated-read" if known else "private"
    raise S3Error("NotImplemented", "Only canned ACLs are kept: private, public-read, public-read-write.")


async def _answer(visit: Visit, owner: str, acl: str) -> None:
    def grant(who: list[tuple[str, Any]], right: str, kind: str = "CanonicalUser") -> tuple[str, Any]:
        name = "Grantee" if visit.is_obs else f'Grantee {_XSI} xsi:type="{kind}"'
        return "Grant", [(name, who), ("Permission", right)]

    everybody = [("Canned", "Everyone")] if visit.is_obs else [("URI", _EVERYBODY)]
    grants = [grant(owner_of(owner), "FULL_CONTROL")]
    if acl.startswith("public-read"):
        grants.append(grant(everybody, "READ", "Group"))
    if acl.startswith("public-read-write"):
        grants.append(grant(everybody, "WRITE", "Group"))
    if acl == "authenticated-read":
        grants.append(grant([("URI", _KNOWN)], "READ", "Group"))
    content = [("Owner", owner_of(owner)), ("AccessControlList", grants)]
    await visit.answer_xml("AccessControlPolicy", content)
