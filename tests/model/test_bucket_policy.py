"""Policies and ACLs: what they allow, and what is refused because it could not be followed."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainshed.model.bucket_policy import _matches, acl_allows, parse_policy, policy_allows
from trainshed.model.errors import InvalidInput

ALLOW: dict[str, Any] = {
    "Effect": "Allow",
    "Principal": "*",
    "Action": ["s3:GetObject"],
    "Resource": "arn:aws:s3:::data/public/*",
}


def policy(**changes: Any) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": [{**ALLOW, **changes}]})


def test_a_policy_allows_what_it_says_and_nothing_else() -> None:
    found = parse_policy(policy(), "data")
    assert policy_allows(found, "", "GetObject", "data", "public/a")
    assert not policy_allows(found, "", "GetObject", "data", "private/a")
    assert not policy_allows(found, "", "PutObject", "data", "public/a")
    assert not policy_allows(found, "", "ListBucket", "data")


@pytest.mark.parametrize("name", ["w1", "arn:aws:iam::w1:root", "domain/w1:user/*"])
def test_a_policy_may_name_workspaces(name: str) -> None:
    found = parse_policy(policy(Principal={"AWS": [name]}, Action="s3:*"), "data")
    assert policy_allows(found, "w1", "PutObject", "data", "public/a")
    assert not policy_allows(found, "w2", "PutObject", "data", "public/a")
    assert not policy_allows(found, "", "PutObject", "data", "public/a")


def test_the_names_of_obs() -> None:
    found = parse_policy(
        policy(Principal={"ID": ["*"]}, Action=["ListBucket", "Get*"], Resource=["data", "data/*"]), "data"
    )
    assert policy_allows(found, "", "ListBucket", "data") and policy_allows(
        found, "", "GetObject", "data", "k"
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"Statement": []}',
        '{"Statement": [1]}',
        policy(Effect="Deny"),
        policy(Condition={"IpAddress": {}}),
        policy(NotAction="s3:*"),
        policy(Principal={"AWS": "arn:aws:iam::1:user/a b"}),
        policy(Resource="arn:aws:s3:::other/*"),
        policy(Resource="*"),
        policy(Action=[]),
        "[" * 100_000,
    ],
)
def test_what_cannot_be_followed_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_policy(text, "data")


@given(st.text(st.sampled_from("ab*?"), max_size=8), st.text(st.sampled_from("ab*?"), max_size=8))
def test_patterns(pattern: str, text: str) -> None:
    assert _matches(pattern, text) == fnmatchcase(text, pattern)


def test_patterns_do_not_take_for_ever() -> None:
    assert not _matches("*a" * 500, "a" * 1000 + "b")


def test_acls() -> None:
    assert acl_allows("public-read", "read", is_known=False)
    assert not acl_allows("public-read", "write", is_known=True)
    assert acl_allows("public-read-write", "write", is_known=False)
    assert acl_allows("authenticated-read", "read", is_known=True)
    assert not acl_allows("authenticated-read", "read", is_known=False)
    for acl in ("", "private", "bucket-owner-read"):
        assert not acl_allows(acl, "read", is_known=True) and not acl_allows(acl, "write", is_known=True)
