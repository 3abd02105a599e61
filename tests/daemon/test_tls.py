"""Certificates of a platform: made, checked before a start, renewed while it runs."""

from __future__ import annotations

import os
import ssl
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from trainshed.daemon import http_server
from trainshed.daemon.http_server import serve
from trainshed.daemon.startup import prepare
from trainshed.daemon.tls import check_tls, find_authority, prepare_tls, watch_certificate
from trainshed.model.errors import HostUnfit, InvalidInput, TrainshedError
from trainshed.model.home import Home
from trainshed.model.settings import Settings
from trainshed.services.certificates import (
    issue_certificate,
    job_host,
    list_bucket_domains,
    make_authority,
    make_key,
    now_utc,
    read_certificates,
)

NOW = now_utc()
OWN = Settings(tls=True)


class Given:
    """A certificate of a private CA, as an administrator brings it along."""

    def __init__(self, folder: Path, *names: str, days: int = 90, with_root: bool = True) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        root_key, self.key_pem = make_key(), make_key()
        self.root = make_authority(root_key, NOW)
        own = issue_certificate(
            self.root, root_key, self.key_pem, names or ("train.example.org",), NOW, days=days
        )
        self.certificate, self.key = folder / "cert.pem", folder / "key.pem"
        self.certificate.write_bytes(own + (self.root if with_root else b""))
        self.key.write_bytes(self.key_pem)

    @property
    def settings(self) -> Settings:
        """The settings that name it."""
        return Settings(tls_certificate=str(self.certificate), tls_key=str(self.key))


def test_without_tls_nothing_is_made(home: Home) -> None:
    assert prepare_tls(home, Settings()) == Settings()
    assert not home.tls.exists() and watch_certificate(home, Settings()) is None
    assert list_bucket_domains(Settings()) == ("localhost",)


def test_the_ca_stays_and_the_certificate_follows_the_names(home: Home) -> None:
    prepare_tls(home, OWN, NOW)
    authority, first = home.tls_authority.read_bytes(), home.tls_certificate.read_bytes()
    prepare_tls(home, OWN, NOW)
    assert home.tls_certificate.read_bytes() == first
    prepare_tls(home, replace(OWN, host_names=("shed.example.org", "192.0.2.7")), NOW)
    names = set(read_certificates(home.tls_certificate)[0].names)
    assert {"shed.example.org", "*.shed.example.org", "192.0.2.7"} <= names and "*.192.0.2.7" not in names
    assert home.tls_authority.read_bytes() == authority
    assert authority.decode() in home.tls_bundle.read_text()


def test_it_is_renewed_long_before_its_end(home: Home) -> None:
    prepare_tls(home, OWN, NOW)
    watch = watch_certificate(home, OWN)
    assert watch is not None
    before = home.tls_certificate.read_bytes()
    assert not watch.is_replaced(NOW + timedelta(days=200))
    assert home.tls_certificate.read_bytes() == before
    # A second process sees what the first one did, and does not renew again.
    other = watch_certificate(home, OWN)
    later = NOW + timedelta(days=250)
    assert other is not None and watch.is_replaced(later) and other.is_replaced(later)
    renewed = home.tls_certificate.read_bytes()
    assert renewed != before and not watch.is_replaced(later) and home.tls_certificate.read_bytes() == renewed
    assert read_certificates(home.tls_certificate)[0].ends > later + timedelta(days=300)


@pytest.mark.parametrize(
    "harm",
    [
        lambda home: home.tls_certificate.write_text("nonsense"),
        lambda home: home.tls_certificate.unlink(),
        lambda home: home.tls_key.write_bytes(make_key()),
        lambda home: home.tls_key.write_text("nonsense"),
        lambda home: home.tls_key.unlink(),
        lambda home: home.tls_authority.unlink(),
    ],
    ids=["damaged", "lost", "other key", "damaged key", "lost key", "lost ca certificate"],
)
def test_what_was_lost_is_made_again(home: Home, harm: Callable[[Home], Any]) -> None:
    prepare_tls(home, OWN, NOW)
    harm(home)
    prepare_tls(home, OWN, NOW)
    context = ssl.create_default_context(cafile=str(home.tls_authority))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(home.tls_certificate, home.tls_key)
    shake_hands(context, server, "localhost")


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext, name: str) -> None:
    """A handshake in memory; raises what the client objects to."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server, server_hostname=name)
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    for side in (ours, theirs, ours, theirs):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue


def test_a_lost_ca_key_is_for_a_person_to_decide(home: Home) -> None:
    prepare_tls(home, OWN, NOW)
    home.tls_authority_key.unlink()
    with pytest.raises(HostUnfit) as caught:
        prepare_tls(home, OWN, NOW)
    assert caught.value.code == "authority_unusable" and "backup" in caught.value.hint
    home.tls_authority_key.write_text("nonsense")
    home.tls_certificate.unlink()
    with pytest.raises(HostUnfit, match="damaged"):
        prepare_tls(home, OWN, NOW)
    with pytest.raises(HostUnfit, match="expired"):
        prepare_tls(home, OWN, NOW + timedelta(days=4000))


def spoil(given: Given, what: str) -> Settings:
    settings = given.settings
    if what == "no key":
        return replace(settings, tls_key="")
    if what == "no certificate":
        return replace(settings, tls_certificate="", tls=True)
    if what == "missing":
        given.certificate.unlink()
    elif what == "key missing":
        given.key.unlink()
    elif what == "other key":
        given.key.write_bytes(make_key())
    elif what == "no pem":
        given.certificate.write_text("certificate")
    elif what == "bad key":
        given.key.write_text("key")
    elif what == "folder":
        given.certificate.unlink()
        given.certificate.mkdir()
    return settings


@pytest.mark.parametrize(
    ("what", "code", "where"),
    [
        ("no key", "invalid_input", "tls_key"),
        ("no certificate", "invalid_input", "tls_certificate"),
        ("missing", "certificate_unreadable", "tls_certificate"),
        ("folder", "certificate_unreadable", "tls_certificate"),
        ("key missing", "certificate_unreadable", "tls_key"),
        ("other key", "wrong_key", "tls_key"),
        ("no pem", "bad_certificate", "tls_certificate"),
        ("bad key", "bad_key", "tls_key"),
    ],
)
def test_a_given_certificate_is_checked_before_the_start(
    home: Home, tmp_path: Path, what: str, code: str, where: str
) -> None:
    settings = spoil(Given(tmp_path / "given"), what)
    with pytest.raises(TrainshedError) as caught:
        check_tls(settings)
    assert (caught.value.code, caught.value.where) == (code, where)
    # The same from the front: nothing was made.
    variables = {
        "TRAINSHED_TLS_CERTIFICATE": settings.tls_certificate,
        "TRAINSHED_TLS_KEY": settings.tls_key,
    }
    with pytest.raises(TrainshedError) as caught:
        prepare(home.path, {"port": 0, "obs_port": 0, "allow_unsandboxed": True}, {**os.environ, **variables})
    assert caught.value.code == code and not home.marker.exists()


def test_an_expired_or_nameless_certificate_is_refused(tmp_path: Path) -> None:
    given = Given(tmp_path / "given")
    with pytest.raises(HostUnfit, match="expired"):
        check_tls(given.settings, NOW + timedelta(days=91))
    with pytest.raises(HostUnfit, match="valid only from"):
        check_tls(given.settings, NOW - timedelta(days=3))
    given.certificate.write_bytes(given.root)
    with pytest.raises(HostUnfit, match="names no host"):
        check_tls(given.settings)
    from cryptography.hazmat.primitives import serialization

    private = serialization.load_pem_private_key(given.key_pem, None)
    Given(tmp_path / "given")
    given.key.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    with pytest.raises(HostUnfit, match="password"):
        check_tls(given.settings)


def test_a_given_certificate_decides_the_addresses(home: Home, tmp_path: Path) -> None:
    given = Given(tmp_path / "given", "train.example.org", "*.train.example.org")
    settings = prepare_tls(home, check_tls(given.settings))
    assert settings.public_url == "https://train.example.org:7480"
    assert settings.public_obs_url == "https://train.example.org:7481"
    assert job_host(settings) == "train.example.org"
    authority = find_authority(home, settings)
    assert authority is not None and authority.read_bytes() == given.root
    assert given.root.decode() in home.tls_bundle.read_text() and not home.tls_authority.exists()
    assert "train.example.org" in list_bucket_domains(settings)
    # One that holds loopback changes nothing, and one of a public CA needs no file.
    local = Given(tmp_path / "local", "127.0.0.1", with_root=False)
    settings = prepare_tls(home, check_tls(local.settings))
    assert settings.public_url == "" and job_host(settings) == "127.0.0.1"
    assert find_authority(home, settings) is None
    star = Given(tmp_path / "star", "*.example.org")
    assert job_host(star.settings) == "trainshed.example.org"
    with pytest.raises(HostUnfit, match="no host name of its own"):
        prepare_tls(home, star.settings)


def test_a_given_certificate_is_taken_up_when_both_files_fit(home: Home, tmp_path: Path) -> None:
    given = Given(tmp_path / "given")
    watch = watch_certificate(home, given.settings)
    assert watch is not None and not watch.is_replaced()
    fresh = Given(tmp_path / "fresh")
    given.certificate.write_bytes(fresh.certificate.read_bytes())
    assert not watch.is_replaced()
    given.key.write_bytes(fresh.key.read_bytes())
    assert watch.is_replaced() and not watch.is_replaced()
    given.certificate.unlink()
    assert not watch.is_replaced()


async def answer(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        while (message := await receive())["type"] != "lifespan.shutdown":
            await send({"type": f"{message['type']}.complete"})
        await send({"type": "lifespan.shutdown.complete"})
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": scope["scheme"].encode()})


def test_a_server_ends_when_its_certificate_was_renewed(
    home: Home, monkeypatch: pytest.MonkeyPatch, support: Any
) -> None:
    import httpx

    monkeypatch.setattr(http_server, "LOOK_SECONDS", 0.05)
    prepare_tls(home, OWN)
    port = support.free_port()
    context = ssl.create_default_context(cafile=str(home.tls_authority))
    seen: list[str] = []

    def use() -> None:
        with httpx.Client(verify=context, base_url=f"https://127.0.0.1:{port}") as client:
            seen.append(client.get("/").text)
            assert client.head("/").status_code == 200
        # By hand what happens after eight months.
        prepare_tls(home, OWN, NOW + timedelta(days=250))

    watch = watch_certificate(home, OWN)
    serve(answer, "127.0.0.1", port, lambda: threading.Thread(target=use).start(), stop_seconds=5, tls=watch)
    assert seen == ["https"]


def test_host_names_are_checked() -> None:
    from trainshed.model.host_name import is_covered
    from trainshed.model.settings import read_settings

    found = read_settings({"host_names": ["Shed.Example.org.", "192.0.2.7"]}, {}, {}).host_names
    assert found == ("shed.example.org", "192.0.2.7")
    assert read_settings({}, {"TRAINSHED_HOST_NAMES": "a.b, c"}, {}).host_names == ("a.b", "c")
    for wrong in (["https://x"], ["a b"], "a:1", 7, [7]):
        with pytest.raises(InvalidInput):
            read_settings({"host_names": wrong}, {}, {})
    names = ("*.obs.localhost", "*.localhost", "shed.test", "::1")
    assert is_covered("data.obs.localhost", names) and is_covered("0:0:0:0:0:0:0:1", names)
    assert not is_covered("data.localhost", names) and not is_covered("a.b.obs.localhost", names)
    assert not is_covered("127.0.0.1", names) and is_covered("SHED.test.", names)
