"""OBS's own signature, headers and URLs."""

from __future__ import annotations

from s3_table.case import Case
from s3_table.obs_steps import SIGNATURE, SIGNED_URL, described, keys, nothing, obs
from s3_table.presigned import old_url
from s3_table.signing import http_date, sign_old
from s3_table.stage import CONTENT, FOREIGN, MISSING, SHARED, there

__all__ = ["CASES"]

_LATE = -20 * 60.0


CASES = [
    Case(
        "Negotiation (?apiversion)",
        "the service",
        lambda s: s.target.send("HEAD", "/?apiversion", {"host": s.target.host}),
        then=lambda s, a: (a.headers.get("x-obs-api"), "3.0"),
    ),
    Case(
        "Negotiation (?apiversion)",
        "a bucket",
        lambda s: s.target.send("HEAD", f"/{s.bucket}?apiversion", {"host": s.target.host}),
        then=lambda s, a: (a.headers.get("x-obs-api"), "3.0"),
    ),
    Case(
        SIGNATURE,
        "PUT with metadata",
        lambda s: obs(s, "PUT", s.key, body=b"x", content_type="text/plain", x_obs_meta_a="1"),
        then=lambda s, a: (s.dev.head_object(Key=s.key)["Metadata"], {"a": "1"}),
    ),
    Case(
        SIGNATURE,
        "GET tells in OBS's words",
        lambda s: obs(s, "GET", s.there),
        before=(described,),
        then=lambda s, a: (
            (a.body, a.headers.get("x-obs-meta-a"), a.headers.get("x-amz-meta-a")),
            (CONTENT, "1", None),
        ),
    ),
    Case(
        SIGNATURE,
        "the list of a bucket",
        lambda s: obs(s, "GET", query={"prefix": s.prefix}),
        before=(there,),
        then=lambda s, a: (a.text_of("Key"), s.there),
    ),
    Case(
        SIGNATURE,
        "a bucket's head",
        lambda s: obs(s, "HEAD"),
        then=lambda s, a: (a.headers.get("x-obs-version"), "3.0"),
    ),
    Case(
        SIGNATURE,
        "a copy",
        lambda s: obs(s, "PUT", s.key, x_obs_copy_source=f"/{s.bucket}/{s.there}"),
        before=(there,),
        then=lambda s, a: (s.read(s.key), CONTENT),
    ),
    Case(
        SIGNATURE,
        "an ACL",
        lambda s: obs(s, "PUT", s.there, query={"acl": ""}, x_obs_acl="public-read"),
        before=(there,),
        then=lambda s, a: (s.nobody.get_object(Key=s.there).body, CONTENT),
    ),
    Case(
        SIGNATURE,
        "a storage class of OBS",
        lambda s: obs(s, "PUT", s.key, body=b"x", x_obs_storage_class="WARM"),
        then=lambda s, a: (obs(s, "HEAD", s.key).headers.get("x-obs-storage-class"), "WARM"),
    ),
    Case(
        SIGNATURE,
        "a date in its own header",
        lambda s: obs(s, "GET", s.there, x_obs_date=http_date()),
        before=(there,),
        then=lambda s, a: (a.body, CONTENT),
    ),
    Case(
        SIGNATURE,
        "DELETE",
        lambda s: obs(s, "DELETE", s.there),
        204,
        before=(there,),
        then=lambda s, a: (keys(s), []),
    ),
    Case(
        SIGNATURE,
        "a wrong secret",
        lambda s: obs(s, "GET", s.there, secret="wrong"),
        403,
        "SignatureDoesNotMatch",
        before=(there,),
    ),
    Case(
        SIGNATURE,
        "a wrong secret writes nothing",
        lambda s: obs(s, "PUT", s.key, body=b"x", secret="wrong"),
        403,
        "SignatureDoesNotMatch",
        then=nothing,
    ),
    Case(
        SIGNATURE,
        "a clock 20 minutes behind",
        lambda s: obs(s, "GET", s.there, date=http_date(_LATE)),
        403,
        "RequestTimeTooSkewed",
        before=(there,),
    ),
    Case(
        SIGNATURE,
        "no date",
        lambda s: obs(s, "GET", s.there, date="none"),
        403,
        "AccessDenied",
        before=(there,),
    ),
    Case(
        SIGNATURE,
        "no signature",
        lambda s: s.target.send(
            "GET", s.path(s.there), {"host": s.target.host, "date": http_date(), "authorization": "OBS x"}
        ),
        400,
        "InvalidArgument",
        before=(there,),
    ),
    Case(
        SIGNATURE,
        "a missing key",
        lambda s: obs(s, "GET", s.there),
        404,
        "NoSuchKey",
        then=lambda s, a: (a.text_of("RequestId"), a.headers.get("x-obs-request-id")),
    ),
    Case(SIGNATURE, "a missing bucket", lambda s: obs(s, "GET", "x", bucket=MISSING), 404, "NoSuchBucket"),
    Case(
        SIGNATURE,
        "somebody else's object",
        lambda s: obs(s, "GET", "secret", bucket=FOREIGN),
        403,
        "AccessDenied",
    ),
    Case(
        SIGNATURE,
        "a wrong Content-MD5",
        lambda s: obs(s, "PUT", s.key, body=b"x", content_md5="AAAAAAAAAAAAAAAAAAAAAA=="),
        400,
        "BadDigest",
        then=nothing,
    ),
    Case(
        SIGNATURE,
        "a storage class that is unknown",
        lambda s: obs(s, "PUT", s.key, body=b"x", x_obs_storage_class="FAST"),
        400,
        "InvalidStorageClass",
        then=nothing,
    ),
    Case(
        SIGNED_URL,
        "GET",
        lambda s: s.target.send("GET", old_url(s, word="OBS"), {"host": s.target.host}),
        before=(there,),
        then=lambda s, a: (a.body, CONTENT),
    ),
    Case(
        SIGNED_URL,
        "PUT",
        lambda s: s.target.send(
            "PUT", old_url(s, "PUT", "key", word="OBS"), {"host": s.target.host, "content-length": "1"}, b"x"
        ),
        then=lambda s, a: (s.read(s.key), b"x"),
    ),
    Case(
        SIGNED_URL,
        "expired",
        lambda s: s.target.send("GET", old_url(s, seconds=-5, word="OBS"), {"host": s.target.host}),
        403,
        "AccessDenied",
        before=(there,),
    ),
    Case(
        SIGNED_URL,
        "of another method",
        lambda s: s.target.send("DELETE", old_url(s, word="OBS"), {"host": s.target.host}),
        403,
        "SignatureDoesNotMatch",
        before=(there,),
        then=lambda s, a: (s.read(s.there), CONTENT),
    ),
    Case(
        SIGNED_URL,
        "another key than was signed",
        lambda s: s.target.send(
            "GET", old_url(s, word="OBS").replace("/there?", "/their?"), {"host": s.target.host}
        ),
        403,
        "SignatureDoesNotMatch",
        before=(there,),
    ),
    Case(
        "ListBuckets",
        "in OBS's words",
        lambda s: s.target.send(
            "GET", "/", {"host": s.target.host, **sign_old(s.target.keys["dev"], "OBS", "GET", "/", {})}
        ),
        then=lambda s, a: (SHARED.encode() in a.body and b"obs" in a.body, True),
    ),
    Case(
        "GetBucketQuota",
        "none",
        lambda s: obs(s, "GET", query={"quota": ""}),
        then=lambda s, a: (a.text_of("StorageQuota"), "0"),
    ),
    Case(
        "GetBucketStoragePolicy",
        "the usual class",
        lambda s: obs(s, "GET", query={"storageClass": ""}),
        then=lambda s, a: (a.text_of("StorageClass"), "STANDARD"),
    ),
]
