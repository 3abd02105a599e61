"""Server-side encryption: the disk below the store does it, where the administrator says that it does.

Nothing is encrypted object by object, so there are no keys to choose: with the setting `store_encrypted` all objects say
AES256, as Amazon's do; without it a client that asks is refused, because it must not rely on what nobody does.
"""

from __future__ import annotations

from trainshed.api.obs.body import receive_document
from trainshed.api.obs.errors import S3Error
from trainshed.api.obs.visit import Visit
from trainshed.api.obs.xml_codec import children, malformed_xml, parse_xml, text_of

__all__ = [
    "check_encryption",
    "delete_encryption",
    "encryption_header",
    "get_encryption",
    "put_encryption",
]

_ALGORITHM = "AES256"
_HEADER = "server-side-encryption"
# What names a key service: Amazon's two ways, and OBS's.
_KEY_SERVICES = frozenset(["aws:kms", "aws:kms:dsse", "kms"])


def check_encryption(visit: Visit) -> None:
    """Refuse a request whose headers ask for an encryption that nobody does here."""
    start = f"{visit.prefix}{_HEADER}"
    # A key of the client's own, also that of an object to be copied.
    customer = (f"{start}-customer-", f"{visit.prefix}copy-source-{_HEADER}-")
    asked = {name: value for name, value in visit.headers.items() if name.startswith((start, *customer))}
    if not asked:
        return
    if any(name.startswith(customer) for name in asked):
        raise S3Error(
            "NotImplemented", "Keys of the client's own (SSE-C) are not taken here: encrypt before sending."
        )
    _check_algorithm(visit, asked.get(start, "aws:kms"))


def encryption_header(visit: Visit) -> dict[str, str]:
    """The header that tells how an object is encrypted, where it is."""
    return {f"x-amz-{_HEADER}": _ALGORITHM} if visit.platform.settings.store_encrypted else {}


async def get_encryption(visit: Visit) -> None:
    """How the objects of a bucket are encrypted: all in the same way."""
    await visit.do(visit.readable)
    if not visit.platform.settings.store_encrypted:
        raise S3Error(
            "ServerSideEncryptionConfigurationNotFoundError",
            "The server side encryption configuration was not found",
            BucketName=visit.bucket,
        )
    rule = [
        ("ApplyServerSideEncryptionByDefault", [("SSEAlgorithm", _ALGORITHM)]),
        ("BucketKeyEnabled", None if visit.is_obs else False),
    ]
    await visit.answer_xml("ServerSideEncryptionConfiguration", [("Rule", rule)])


async def put_encryption(visit: Visit) -> None:
    """Agree to what is done anyway; nothing else can be chosen."""
    await visit.do(visit.owned)
    root = parse_xml(await receive_document(visit), "ServerSideEncryptionConfiguration")
    rules = children(root, "Rule")
    if len(rules) != 1:
        raise malformed_xml()
    for default in children(rules[0], "ApplyServerSideEncryptionByDefault"):
        _check_algorithm(visit, text_of(default, "SSEAlgorithm").strip())
    await visit.answer(200)


async def delete_encryption(visit: Visit) -> None:
    """Go back to what is done anyway."""
    await visit.do(visit.owned)
    await visit.answer(204)


def _check_algorithm(visit: Visit, name: str) -> None:
    if name in _KEY_SERVICES:
        raise S3Error("NotImplemented", "There is no key service here: ask for AES256, not for KMS.")
    # The OBS SDK puts `aws:` before whatever it is given, where it speaks S3.
    if name.removeprefix("aws:") != _ALGORITHM:
        raise S3Error("InvalidArgument", "The encryption method specified is not supported")
    if not visit.platform.settings.store_encrypted:
        raise S3Error(
            "NotImplemented",
            "Objects are not known to be encrypted here: leave server-side encryption out, or have the"
            " administrator set store_encrypted, if the disk below the store is encrypted.",
        )
