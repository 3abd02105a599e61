"""Whom a client believes, and what it says when it does not."""

from __future__ import annotations

import ssl
from pathlib import Path

import httpx
import pytest

from trainshed.client.connection import Connection, find_connection, save_connection
from trainshed.client.trust import explain_tls, read_authority, trust_for
from trainshed.model.errors import InvalidInput
from trainshed.services.certificates import make_authority, make_key, now_utc

URL = "https://shed.test:7480"


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    path = tmp_path / "ca.pem"
    path.write_bytes(make_authority(make_key(), now_utc()))
    return path


def test_verification_is_always_on(authority: Path) -> None:
    assert trust_for("http://shed.test", str(authority)) is False
    for ca in ("", str(authority)):
        context = trust_for(URL, ca)
        assert isinstance(context, ssl.SSLContext)
        assert context.verify_mode == ssl.CERT_REQUIRED and context.check_hostname
    context = trust_for(URL, str(authority))
    assert isinstance(context, ssl.SSLContext)
    subjects = [str(found["subject"]) for found in context.get_ca_certs()]
    assert any("Trainshed CA" in subject for subject in subjects)


@pytest.mark.parametrize("content", [None, b"", b"no certificate", b"\xff\xfe"])
def test_a_file_that_is_no_ca_is_told(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidInput) as caught:
        trust_for(URL, str(path))
    assert caught.value.code == "bad_ca" and "trainshed tls ca" in caught.value.hint


def refusal(message: str) -> httpx.ConnectError:
    fault = ssl.SSLCertVerificationError(1, f"[SSL: CERTIFICATE_VERIFY_FAILED] {message}")
    fault.verify_message = message
    error = httpx.ConnectError(str(fault))
    error.__cause__ = fault
    return error


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (refusal("unable to get local issuer certificate"), "unknown_ca"),
        (refusal("self-signed certificate in certificate chain"), "unknown_ca"),
        (refusal("Hostname mismatch, certificate is not valid for 'shed.test'."), "wrong_host"),
        (refusal("IP address mismatch, certificate is not valid for '192.0.2.1'."), "wrong_host"),
        (refusal("certificate has expired"), "certificate_expired"),
        (httpx.ConnectError("[SSL: WRONG_VERSION_NUMBER] wrong version number"), "not_tls"),
        (httpx.ConnectError("Connection refused"), ""),
    ],
)
def test_each_refusal_has_its_next_step(fault: Exception, code: str) -> None:
    found = explain_tls(URL, fault)
    assert (found.code if found else "") == code
    assert found is None or (found.hint and found.where == URL)
    plain = explain_tls("http://shed.test", httpx.RemoteProtocolError("illegal request line"))
    assert plain is not None and plain.code == "tls_needed"


def test_the_ca_of_a_connection(authority: Path, tmp_path: Path) -> None:
    home = tmp_path / "user"
    save_connection(Connection(URL, "", "token", str(authority)), home)
    kept = home / "ca.pem"
    assert kept.read_text() == read_authority(str(authority))
    assert find_connection(home=home).ca == str(kept)
    variables = {"TRAINSHED_URL": URL, "TRAINSHED_TOKEN": "x", "TRAINSHED_CA": "/from/environment"}
    assert find_connection(environment=variables).ca == "/from/environment"
    assert find_connection(environment=variables, ca="/given").ca == "/given"
    assert find_connection(environment=variables | {"TRAINSHED_CA": ""}).ca == ""
    with pytest.raises(InvalidInput):
        save_connection(Connection(URL, "", "token", str(tmp_path / "missing")), home)
