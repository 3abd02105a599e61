"""The policy of a browser's form: what its signer lets the holder of the form upload. Pure functions."""

from __future__ import annotations

import base64
import binascii
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from trainshed.api.obs.authorization import Scheme
from trainshed.api.obs.errors import S3Error
from trainshed.api.obs.signatures.aws_v4 import ALGORITHM, signing_key
from trainshed.api.obs.signatures.claim import is_any, mismatch, read_iso_date

__all__ = ["FormClaim", "SizeRange", "check_policy", "read_form_claim"]

# Fields that no condition has to name: they prove the policy, or are what it is about.
_PROOFS = frozenset(
    ["awsaccesskeyid", "accesskeyid", "file", "policy", "signature", "token", "x-amz-signature"]
)
_IGNORED = ("x-ignore-", "x-obs-ignore-")


@dataclass(frozen=True)
class FormClaim:
    """Whose a form claims to be, and the signature of its policy."""

    scheme: Scheme
    access_key: str
    signature: str
    policy: str
    scope: str = ""

    def check(self, secret: str) -> None:
        """Refuse the form unless its policy was signed with the secret."""
        text = self.policy.encode()
        if self.scheme == "v4":
            expected = hmac.digest(signing_key(secret, self.scope), text, "sha256").hex()
        else:
            expected = base64.b64encode(hmac.digest(secret.encode(), text, "sha1")).decode()
        if not is_any(self.signature, [expected]):
            raise mismatch()


@dataclass(frozen=True)
class SizeRange:
    """How large the file may be."""

    least: int = 0
    most: int | None = None

    def check_growing(self, size: int) -> None:
        """Refuse a file that is too large already."""
        if self.most is not None and size > self.most:
            raise S3Error("EntityTooLarge", "Your proposed upload exceeds the maximum allowed size")

    def check_whole(self, size: int) -> None:
        """Refuse a file that is too large or too small."""
        self.check_growing(size)
        if size < self.least:
            raise S3Error("EntityTooSmall", "Your proposed upload is smaller than the minimum allowed size")


def read_form_claim(fields: Mapping[str, str]) -> FormClaim | None:
    """The claim of a form in any of the forms that S3 and OBS have; None for an anonymous one."""
    if fields.get("token"):
        # OBS has all three in one, too.
        parts = fields["token"].split(":")
        if len(parts) != 3 or not all(parts):
            raise S3Error("InvalidArgument", "The field 'token' must be <access key>:<signature>:<policy>.")
        return FormClaim("obs", parts[0], parts[1], parts[2])
    if "x-amz-algorithm" in fields or "x-amz-signature" in fields or "x-amz-credential" in fields:
        _demand(fields, "policy", "x-amz-algorithm", "x-amz-credential", "x-amz-date", "x-amz-signature")
        if fields["x-amz-algorithm"] != ALGORITHM:
            raise S3Error("InvalidArgument", f"x-amz-algorithm only supports {ALGORITHM}.")
        access_key, _, scope = fields["x-amz-credential"].partition("/")
        parts = scope.split("/")
        if not access_key or len(parts) != 4 or not all(parts) or parts[2:] != ["s3", "aws4_request"]:
            raise S3Error(
                "InvalidArgument", "x-amz-credential must be <access key>/<date>/<region>/s3/aws4_request."
            )
        date = fields["x-amz-date"]
        if read_iso_date(date) is None or date[:8] != parts[0]:
            raise S3Error("InvalidArgument", "x-amz-date must be a date, the one in x-amz-credential.")
        return FormClaim("v4", access_key, fields["x-amz-signature"], fields["policy"], scope)
    if "awsaccesskeyid" in fields:
        _demand(fields, "policy", "signature")
        return FormClaim("v2", fields["awsaccesskeyid"], fields["signature"], fields["policy"])
    if "accesskeyid" in fields:
        _demand(fields, "policy", "signature")
        return FormClaim("obs", fields["accesskeyid"], fields["signature"], fields["policy"])
    if fields.get("policy") or fields.get("signature"):
        raise S3Error("InvalidArgument", "A form with a policy must say whose access key signed it.")
    return None


def _demand(fields: Mapping[str, str], *names: str) -> None:
    for name in names:
        if not fields.get(name):
            raise S3Error(
                "InvalidArgument",
                f"Bucket POST must contain a field named '{name}'. If it is specified, please check the order"
                " of the fields.",
                ArgumentName=name,
            )


def check_policy(policy: str, fields: Mapping[str, str], bucket: str, now: float) -> SizeRange:
    """Refuse a form that its policy does not allow; returns what it says of the file's size."""
    document = _parse(policy)
    if now >= _read_expiration(document.get("expiration")):
        raise _refused("Policy expired.")
    conditions = document.get("conditions")
    if not isinstance(conditions, list):
        raise _invalid("it needs a list of conditions.")
    given = {**fields, "bucket": bucket}
    sizes, named = SizeRange(), set[str]()
    for condition in conditions:
        if isinstance(condition, dict) and condition:
            for name, value in condition.items():
                named.add(_check_field(given, "eq", "$" + name, value))
        elif isinstance(condition, list) and len(condition) == 3:
            if str(condition[0]).lower() == "content-length-range":
                sizes = _narrow(sizes, condition[1], condition[2])
            else:
                named.add(_check_field(given, condition[0], condition[1], condition[2]))
        else:
            raise _invalid("a condition must be an object or a list of three.")
    # The signer must have thought of all that the form says, the bucket and the key among it.
    extra = [
        name for name in given if name not in named and name not in _PROOFS and not name.startswith(_IGNORED)
    ]
    if extra:
        raise _refused(f"Extra input fields: {', '.join(extra)[:200]}")
    return sizes


def _parse(policy: str) -> dict[str, Any]:
    try:
        document = json.loads(base64.b64decode(policy, validate=True))
    except (binascii.Error, ValueError, RecursionError):
        raise _invalid("it is no JSON in base64.") from None
    if not isinstance(document, dict):
        raise _invalid("it is no object.")
    return document


def _read_expiration(text: object) -> float:
    try:
        moment = datetime.fromisoformat(text) if isinstance(text, str) else None
        if moment is not None:
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        pass
    raise _invalid("it needs an expiration such as 2030-12-01T12:00:00.000Z.")


def _check_field(given: Mapping[str, str], operator: object, field: object, wanted: object) -> str:
    if not isinstance(field, str) or not field.startswith("$") or isinstance(wanted, dict | list):
        raise _invalid("a condition must name a field and a value.")
    name, value = field[1:].lower(), str(wanted)
    actual = given.get(name, "")
    if operator == "eq":
        is_met = name in given and actual == value
    elif operator == "starts-with":
        # A list of types must begin so in each of its members.
        words = [word.strip() for word in actual.split(",")] if name == "content-type" else [actual]
        is_met = all(word.startswith(value) for word in words) and (name in given or not value)
    else:
        raise _invalid(f"unknown operator '{str(operator)[:40]}'.")
    if not is_met:
        shown = json.dumps([operator, field, value], ensure_ascii=False)[:200]
        raise _refused(f"Policy Condition failed: {shown}")
    return name


def _narrow(sizes: SizeRange, least: object, most: object) -> SizeRange:
    numbers = []
    for value in (least, most):
        text = str(value)
        if isinstance(value, bool) or not (text.isascii() and text.isdigit() and len(text) < 18):
            raise _invalid("content-length-range needs two numbers.")
        numbers.append(int(text))
    upper = numbers[1] if sizes.most is None else min(numbers[1], sizes.most)
    return SizeRange(max(numbers[0], sizes.least), upper)


def _invalid(what: str) -> S3Error:
    return S3Error("InvalidPolicyDocument", f"Invalid Policy: {what}")


def _refused(why: str) -> S3Error:
    return S3Error("AccessDenied", f"Invalid according to Policy: {why}")
