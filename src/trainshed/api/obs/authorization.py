"""Which signature a request carries, and whose it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trainshed.api.obs.errors import S3Error
from trainshed.api.obs.signatures import aws_v2, aws_v4, obs_native
from trainshed.api.obs.signatures.aws_v4 import Seed, V4Claim
from trainshed.api.obs.signatures.claim import Claim, SignedRequest, split_query

__all__ = ["Proof", "Scheme", "check_claim", "read_claim"]

Scheme = Literal["v4", "v2", "obs"]


@dataclass(frozen=True)
class Proof:
    """What a right signature tells of the body: its SHA-256 (or how it is streamed), and where chunks begin."""

    payload_hash: str = aws_v4.UNSIGNED
    seed: Seed | None = None


def read_claim(request: SignedRequest) -> tuple[Scheme, Claim] | None:
    """The signature of a request; None for an anonymous one."""
    authorization = request.header("authorization")
    names = {name for name, _, _ in split_query(request.query)} if request.query else set()
    in_query = {"X-Amz-Algorithm", "X-Amz-Signature", "AWSAccessKeyId", "AccessKeyId"} & names
    if authorization and in_query:
        raise S3Error("InvalidArgument", "Only one auth mechanism allowed: a header or the query, not both.")
    word = authorization.partition(" ")[0]
    if word == aws_v4.ALGORITHM:
        return "v4", aws_v4.read_header(request)
    if word == "AWS":
        return "v2", aws_v2.read_header(request)
    if word == "OBS":
        return "obs", obs_native.read_header(request)
    if authorization:
        raise S3Error("InvalidArgument", "Unsupported Authorization Type.")
    if {"X-Amz-Algorithm", "X-Amz-Signature"} & names:
        return "v4", aws_v4.read_query(request)
    if "AWSAccessKeyId" in names:
        return "v2", aws_v2.read_query(request)
    if "AccessKeyId" in names:
        return "obs", obs_native.read_query(request)
    return None


def check_claim(scheme: Scheme, claim: Claim, request: SignedRequest, secret: str, now: float) -> Proof:
    """Refuse the request unless the claim is true."""
    if isinstance(claim, V4Claim):
        return Proof(claim.payload_hash, aws_v4.check(claim, request, secret, now))
    if scheme == "v2":
        aws_v2.check(claim, request, secret, now)
    else:
        obs_native.check(claim, request, secret, now)
    return Proof()
