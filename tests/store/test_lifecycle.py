"""Reading lifecycle rules."""

from __future__ import annotations

import pytest

from trainshed.model.errors import InvalidInput
from trainshed.store.lifecycle import LifecycleRule, is_due, parse_lifecycle

NAMESPACE = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'


def rule(body: str, status: str = "Enabled") -> str:
    return (
        f"<LifecycleConfiguration {NAMESPACE}><Rule><ID>r</ID><Status>{status}</Status>{body}</Rule>"
        "</LifecycleConfiguration>"
    )


def test_rules_are_read_in_all_their_forms() -> None:
    assert parse_lifecycle(rule("<Prefix>logs/</Prefix><Expiration><Days>30</Days></Expiration>")) == [
        LifecycleRule(prefix="logs/", days=30)
    ]
    body = (
        "<Filter><And><Prefix>a/</Prefix><Tag><Key>k</Key><Value>v</Value></Tag></And></Filter>"
        "<Expiration><Date>2030-01-01T00:00:00Z</Date></Expiration>"
        "<NoncurrentVersionExpiration><NoncurrentDays>3</NoncurrentDays></NoncurrentVersionExpiration>"
        "<AbortIncompleteMultipartUpload><DaysAfterInitiation>2</DaysAfterInitiation></AbortIncompleteMultipartUpload>"
    )
    assert parse_lifecycle(rule(body, "Disabled")) == [
        LifecycleRule("a/", {"k": "v"}, False, date=1893456000.0, noncurrent_days=3, abort_days=2)
    ]
    marker = "<Filter/><Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration>"
    assert parse_lifecycle(rule(marker)) == [LifecycleRule(drop_markers=True)]


@pytest.mark.parametrize(
    ("document", "code"),
    [
        ("", "malformed_xml"),
        ("<a/>", "malformed_xml"),
        (f"<LifecycleConfiguration {NAMESPACE}/>", "malformed_xml"),
        ('<!DOCTYPE x [<!ENTITY a "b">]><LifecycleConfiguration/>', "malformed_xml"),
        (rule(""), "malformed_xml"),
        (rule("<Expiration><Days>1</Days></Expiration>", "Perhaps"), "malformed_xml"),
        (rule("<Expiration><Days>0</Days></Expiration>"), "invalid_argument"),
        (rule("<Expiration><Days>-1</Days></Expiration>"), "invalid_argument"),
        (rule("<Expiration><Date>soon</Date></Expiration>"), "malformed_xml"),
        (rule("<Transition><Days>1</Days></Transition>"), "not_implemented"),
        (
            rule("<Filter><ObjectSizeGreaterThan>1</ObjectSizeGreaterThan></Filter>"
                 "<Expiration><Days>1</Days></Expiration>"),
            "not_implemented",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_honoured_is_refused(document: str, code: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_lifecycle(document)
    assert caught.value.code == code


def test_days_end_at_midnight() -> None:
    noon = 10 * 86400.0 + 43200.0
    assert not is_due(noon, 1, 11 * 86400.0 + 43200.0)
    assert is_due(noon, 1, 12 * 86400.0)
    assert is_due(10 * 86400.0, 1, 11 * 86400.0)
