"""Certificates: the platform's own CA, what it signs, and what an administrator brought along.

The library is imported where it is used: a platform without TLS never loads it for this.
"""

from __future__ import annotations

import hashlib
import socket
import ssl
from collections.abc import Iterable
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from trainshed.model.errors import HostUnfit
from trainshed.model.host_name import is_address, is_covered
from trainshed.model.settings import Settings

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

__all__ = [
    "OBS_DOMAIN",
    "CertificateFacts",
    "check_pair",
    "issue_certificate",
    "job_host",
    "list_bucket_domains",
    "list_names",
    "make_authority",
    "make_key",
    "now_utc",
    "read_certificates",
    "render_bundle",
]

# Below this name every bucket has a name of its own that resolves to this machine. (Clients refuse `*.localhost`: a
# star needs two labels behind it.)
OBS_DOMAIN = "obs.localhost"
AUTHORITY_DAYS = 3650
SERVER_DAYS = 365
# Clocks of clients may be behind ours.
_EARLIER = timedelta(days=1)
# Where systems keep the CAs that they trust.
_SYSTEM_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


@dataclass(frozen=True)
class CertificateFacts:
    """What a certificate says."""

    subject: str
    issuer: str
    names: tuple[str, ...]
    begins: datetime
    ends: datetime
    fingerprint: str
    is_self_signed: bool
    pem: str

    def remaining(self, now: datetime) -> float:
        """How much of its life is left, from 1 to 0; less when it has ended."""
        return (self.ends - now) / (self.ends - self.begins)


def list_bucket_domains(settings: Settings) -> tuple[str, ...]:
    """Names that may have a bucket before them: `data.localhost` is the bucket `data`. The longest comes first."""
    public = urlsplit(settings.public_obs_url).hostname or ""
    names = {"localhost", public, *settings.host_names} | ({OBS_DOMAIN} if settings.serves_tls else set())
    found = {name.removeprefix("*.") for name in names if name and not is_address(name)}
    return tuple(sorted(found, key=lambda name: (-len(name), name)))


def list_names(settings: Settings, machine: str = "") -> tuple[str, ...]:
    """The names and addresses that the platform's own certificate must hold."""
    machine = (machine or socket.gethostname()).lower().rstrip(".")
    urls = [getattr(settings, item.name) for item in fields(settings) if item.name.startswith("public_")]
    public = [urlsplit(url).hostname or "" for url in urls]
    names = ["localhost", "127.0.0.1", "::1", machine, settings.host, *public, *settings.host_names]
    names += [f"*.{domain}" for domain in list_bucket_domains(settings)]
    # No certificate is needed for "every address", nor can one hold it.
    return tuple(dict.fromkeys(name for name in names if name not in ("", "0.0.0.0", "::")))


def make_key() -> bytes:
    """A new private key, as PEM."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def make_authority(key: bytes, now: datetime) -> bytes:
    """The certificate of a CA of one's own, as PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    private = _load_key(key)
    # A name that no other CA has: browsers confuse two CAs of one name.
    mark = hashlib.sha256(key).hexdigest()[:8]
    subject = _name(f"Trainshed CA {mark} of {socket.gethostname()}"[:64])
    builder = _begin(subject, subject, private, now, AUTHORITY_DAYS)
    return _finish(
        builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(private, hashes.SHA256())
    )


def issue_certificate(
    authority: bytes,
    authority_key: bytes,
    key: bytes,
    names: Iterable[str],
    now: datetime,
    days: int = SERVER_DAYS,
) -> bytes:
    """A server's certificate for these names, signed by the CA, as PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    parent = x509.load_pem_x509_certificate(authority)
    signer = _load_key(authority_key)
    held = [
        x509.IPAddress(ip_address(name)) if is_address(name) else x509.DNSName(_ascii(name)) for name in names
    ]
    builder = _begin(_name("Trainshed"), parent.subject, _load_key(key), now, days)
    return _finish(
        builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(held), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
        .sign(signer, hashes.SHA256())
    )


def read_certificates(path: Path, where: str = "tls_certificate") -> list[CertificateFacts]:
    """The certificates in a PEM file, the server's own first."""
    from cryptography import x509

    try:
        found = x509.load_pem_x509_certificates(_read(path, where))
    except ValueError:
        raise HostUnfit(
            f"{path} holds no certificate.",
            hint="It must be a PEM file: -----BEGIN CERTIFICATE-----, the server's first, then its chain.",
            code="bad_certificate",
            where=where,
        ) from None
    return [_facts(certificate) for certificate in found]


def check_pair(certificate: Path, key: Path, now: datetime) -> list[CertificateFacts]:
    """The certificates of a file, once it is sure that a server can use them with that key."""
    facts = read_certificates(certificate)
    _read(key, "tls_key")
    own = facts[0]
    if own.ends <= now:
        raise HostUnfit(
            f"The certificate {certificate} has expired on {own.ends:%Y-%m-%d}.",
            hint="Renew it where it came from, then start again.",
            code="certificate_expired",
            where="tls_certificate",
        )
    if own.begins > now:
        raise HostUnfit(
            f"The certificate {certificate} is valid only from {own.begins:%Y-%m-%d %H:%M} UTC on.",
            hint="Check the clock of this machine.",
            code="certificate_not_yet_valid",
            where="tls_certificate",
        )
    if not own.names:
        raise HostUnfit(
            f"The certificate {certificate} names no host (subjectAltName): no client would accept it.",
            hint="Ask for one with the names under which the platform is reached.",
            code="bad_certificate",
            where="tls_certificate",
        )
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=_no_password)
    except (ssl.SSLError, ValueError) as fault:
        raise _explain_key(certificate, key, fault) from None
    return facts


def job_host(settings: Settings) -> str:
    """The name of the platform inside a job, one that its certificate holds."""
    if not settings.tls_certificate:
        return "127.0.0.1"
    names = read_certificates(Path(settings.tls_certificate))[0].names
    if is_covered("127.0.0.1", names):
        return "127.0.0.1"
    plain = [name for name in names if not name.startswith("*.") and not is_address(name)]
    stars = [name.replace("*", "trainshed", 1) for name in names if name.startswith("*.")]
    # An address that is not loopback cannot be reached from inside a job under that number.
    return next(iter((*plain, *stars)), "127.0.0.1")


def render_bundle(extra: Iterable[str]) -> str:
    """The CAs that this machine trusts and these ones, in one PEM file."""
    trusted = ssl.get_default_verify_paths().cafile or ""
    for candidate in (trusted, *_SYSTEM_BUNDLES):
        try:
            if candidate and (text := Path(candidate).read_text("utf-8", "replace")):
                return text.rstrip("\n") + "\n" + "".join(extra)
        except OSError:
            continue
    import certifi

    return certifi.contents().rstrip("\n") + "\n" + "".join(extra)


def _begin(
    subject: x509.Name, issuer: x509.Name, key: EllipticCurvePrivateKey, now: datetime, days: int
) -> x509.CertificateBuilder:
    from cryptography import x509

    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _finish(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return certificate.public_bytes(serialization.Encoding.PEM)


def _name(text: str) -> x509.Name:
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, text)])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _load_key(pem: bytes) -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    key = load_pem_private_key(pem, None)
    if not isinstance(key, EllipticCurvePrivateKey):
        raise ValueError("not an elliptic curve key")
    return key


def _ascii(name: str) -> str:
    return name if name.isascii() else name.encode("idna").decode()


def _facts(certificate: x509.Certificate) -> CertificateFacts:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    names: tuple[str, ...] = ()
    try:
        held = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        addresses = [str(address) for address in held.get_values_for_type(x509.IPAddress)]
        names = (*held.get_values_for_type(x509.DNSName), *addresses)
    except (x509.ExtensionNotFound, ValueError):
        pass
    return CertificateFacts(
        subject=certificate.subject.rfc4514_string(),
        issuer=certificate.issuer.rfc4514_string(),
        names=names,
        begins=certificate.not_valid_before_utc,
        ends=certificate.not_valid_after_utc,
        fingerprint=certificate.fingerprint(hashes.SHA256()).hex(":").upper(),
        is_self_signed=certificate.subject == certificate.issuer,
        pem=_finish(certificate).decode(),
    )


def _read(path: Path, where: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as fault:
        raise HostUnfit(
            f"{path} cannot be read: {fault.strerror}.",
            hint=f"Check {where} in the settings, and that the platform's user may read the file.",
            code="certificate_unreadable",
            where=where,
        ) from None


def _no_password() -> str:
    raise ValueError("it is encrypted with a password")


def _explain_key(certificate: Path, key: Path, fault: Exception) -> HostUnfit:
    if "MISMATCH" in str(fault).upper().replace(" ", "_"):
        return HostUnfit(
            f"The key {key} does not belong to the certificate {certificate}.",
            hint="Give the key with which that certificate was asked for.",
            code="wrong_key",
            where="tls_key",
        )
    said = str(fault) if isinstance(fault, ValueError) and not isinstance(fault, ssl.SSLError) else ""
    return HostUnfit(
        f"The key {key} cannot be used: {said or 'it is no private key in PEM form'}.",
        hint="Give an unencrypted PEM file; `openssl pkey -in KEY -out NEW` writes one.",
        code="bad_key",
        where="tls_key",
    )


def now_utc() -> datetime:
    """The time as certificates have it."""
    return datetime.now(UTC)
