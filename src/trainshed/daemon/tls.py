"""The certificate of a platform: made or checked before the start, renewed while it runs."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from trainshed.daemon.home_folder import explain_home_fault, load_settings
from trainshed.durable import replace_file
from trainshed.model.errors import HostUnfit, InvalidInput, NotFound, TrainshedError
from trainshed.model.home import Home
from trainshed.model.host_name import is_address, is_covered
from trainshed.model.settings import Settings
from trainshed.services.certificates import (
    CertificateFacts,
    check_pair,
    issue_certificate,
    list_names,
    make_authority,
    make_key,
    now_utc,
    read_certificates,
    render_bundle,
)

__all__ = [
    "CertificateWatch",
    "TlsFiles",
    "check_tls",
    "describe_certificate",
    "find_authority",
    "prepare_tls",
    "watch_certificate",
]

_log = logging.getLogger("trainshed")
# A certificate is renewed when this part of its life is left: of a year, four months.
RENEW_AT = 1 / 3


@dataclass(frozen=True)
class TlsFiles:
    """What a server needs to speak TLS."""

    certificate: Path
    key: Path


def check_tls(settings: Settings, now: datetime | None = None) -> Settings:
    """Refuse a given certificate that no client could accept, before anything is started.

    Returns the settings with absolute paths.
    """
    if bool(settings.tls_certificate) != bool(settings.tls_key):
        missing = "tls_key" if settings.tls_certificate else "tls_certificate"
        raise InvalidInput(
            "A certificate needs its key, and a key its certificate.",
            hint=f"Set {missing} as well, or neither for the platform's own CA (--tls).",
            where=missing,
        )
    if not settings.tls_certificate:
        return settings
    settings = replace(
        settings,
        tls_certificate=str(Path(settings.tls_certificate).expanduser().absolute()),
        tls_key=str(Path(settings.tls_key).expanduser().absolute()),
    )
    check_pair(Path(settings.tls_certificate), Path(settings.tls_key), now or now_utc())
    return settings


def prepare_tls(home: Home, settings: Settings, now: datetime | None = None) -> Settings:
    """Have everything ready that TLS needs, in the home folder.

    Returns the settings with addresses that the certificate is good for, where it is not for `host`.
    """
    if not settings.serves_tls:
        return settings
    now = now or now_utc()
    try:
        home.tls.mkdir(mode=0o700, exist_ok=True)
        if settings.tls_certificate:
            facts = check_pair(Path(settings.tls_certificate), Path(settings.tls_key), now)
            if facts[-1].is_self_signed:
                replace_file(_given_authority(home), facts[-1].pem.encode(), 0o644)
            else:
                _given_authority(home).unlink(missing_ok=True)
            settings = _with_addresses(settings, facts[0])
        else:
            with _exclusive(home):
                _ensure_authority(home, now)
                _ensure_certificate(home, settings, now)
        authority = find_authority(home, settings)
        trusted = [authority.read_text("ascii")] if authority else []
        replace_file(home.tls_bundle, render_bundle(trusted).encode(), 0o644)
    except OSError as fault:
        raise explain_home_fault(home, fault) from None
    return settings


def find_authority(home: Home, settings: Settings) -> Path | None:
    """The file of the CA that clients must be told to trust; None where the system's own are enough."""
    if settings.tls_certificate:
        # A chain that ends in its root, or a certificate that signed itself, is of a private CA.
        return _given_authority(home) if _given_authority(home).exists() else None
    return home.tls_authority if settings.tls else None


def _given_authority(home: Home) -> Path:
    return home.tls / "given-ca.pem"


def _with_addresses(settings: Settings, facts: CertificateFacts) -> Settings:
    """A given certificate is seldom good for 127.0.0.1: use a name that it holds."""
    reachable = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)
    if is_covered(reachable, facts.names):
        return settings
    plain = [name for name in facts.names if not name.startswith("*.")]
    name = next((name for name in plain if not is_address(name)), next(iter(plain), ""))
    if not name:
        if settings.public_url and settings.public_obs_url:
            return settings
        raise HostUnfit(
            f"The certificate holds no host name of its own, only {', '.join(facts.names)}.",
            hint="Set public_url and public_obs_url to the addresses under which people reach the platform.",
            code="no_certificate_name",
            where="tls_certificate",
        )
    shown = f"[{name}]" if ":" in name else name
    return replace(
        settings,
        public_url=settings.public_url or f"https://{shown}:{settings.port}",
        public_obs_url=settings.public_obs_url or f"https://{shown}:{settings.obs_port}",
    )


@contextlib.contextmanager
def _exclusive(home: Home) -> Iterator[None]:
    """One process at a time changes the certificates."""
    descriptor = os.open(home.tls / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _ensure_authority(home: Home, now: datetime) -> None:
    has_key, has_certificate = home.tls_authority_key.exists(), home.tls_authority.exists()
    if not has_key and has_certificate:
        # A new one would not be trusted by those who have the old one: a person decides.
        raise HostUnfit(
            f"The key of the platform's CA is missing: {home.tls_authority_key}.",
            hint=f"Bring it back from a backup, or remove {home.tls} for a new CA that clients must be given.",
            code="authority_unusable",
        )
    if not has_key:
        replace_file(home.tls_authority_key, make_key())
    if not has_certificate:
        replace_file(home.tls_authority, make_authority(home.tls_authority_key.read_bytes(), now), 0o644)
    facts = read_certificates(home.tls_authority, str(home.tls_authority))[0]
    if facts.ends <= now:
        raise HostUnfit(
            f"The platform's CA has expired on {facts.ends:%Y-%m-%d}.",
            hint=f"Remove {home.tls} for a new one, and give it to the clients (`trainshed tls ca`).",
            code="authority_unusable",
        )
    home.tls_authority_key.chmod(0o600)


def _ensure_certificate(home: Home, settings: Settings, now: datetime) -> None:
    """Issue the server's certificate if there is none, or none for these names, or not for long."""
    names = list_names(settings)
    authority = read_certificates(home.tls_authority, str(home.tls_authority))[0]
    if not home.tls_key.exists():
        replace_file(home.tls_key, make_key())
    home.tls_key.chmod(0o600)
    try:
        facts = check_pair(home.tls_certificate, home.tls_key, now)[0]
        if (
            set(facts.names) >= set(names)
            and facts.remaining(now) > RENEW_AT
            and facts.issuer == authority.subject
        ):
            return
    except HostUnfit as fault:
        if fault.code == "bad_key":
            replace_file(home.tls_key, make_key())
    try:
        issued = issue_certificate(
            home.tls_authority.read_bytes(),
            home.tls_authority_key.read_bytes(),
            home.tls_key.read_bytes(),
            names,
            now,
        )
    except ValueError:
        raise HostUnfit(
            f"The platform's CA in {home.tls} cannot be used: its key or certificate is damaged.",
            hint=f"Bring {home.tls} back from a backup, or remove it for a new CA.",
            code="authority_unusable",
        ) from None
    replace_file(home.tls_certificate, issued, 0o644)


def describe_certificate(home: Home, environment: Mapping[str, str]) -> dict[str, Any]:
    """Everything that `trainshed tls show` shows, as plain data."""
    settings = load_settings(home, environment, {})
    path = Path(settings.tls_certificate) if settings.tls_certificate else home.tls_certificate
    if not settings.tls_certificate and not path.exists():
        raise NotFound(
            f"The platform of {home.path} has no certificate.",
            hint="`trainshed up --tls` makes one; tls_certificate and tls_key in the settings name another.",
            code="no_certificate",
        )
    own = read_certificates(path)[0]
    return {
        "certificate": str(path),
        "names": list(own.names),
        "issuer": own.issuer,
        "valid_from": own.begins.isoformat(),
        "valid_until": own.ends.isoformat(),
        "sha256": own.fingerprint,
    }


def watch_certificate(home: Home, settings: Settings) -> CertificateWatch | None:
    """The certificate of this platform's servers, and an eye on it; None where they speak plain HTTP."""
    if settings.tls_certificate:
        return CertificateWatch(
            home, settings, TlsFiles(Path(settings.tls_certificate), Path(settings.tls_key))
        )
    if settings.tls:
        return CertificateWatch(home, settings, TlsFiles(home.tls_certificate, home.tls_key))
    return None


@dataclass
class CertificateWatch:
    """Keeps an eye on the certificate that a running server has loaded."""

    home: Home
    settings: Settings
    files: TlsFiles
    _seen: tuple[object, ...] = field(init=False)

    def __post_init__(self) -> None:
        self._seen = self._look()

    def is_replaced(self, now: datetime | None = None) -> bool:
        """Whether another certificate is to be used from now on. Our own is renewed here when it is time."""
        now = now or now_utc()
        try:
            if not self.settings.tls_certificate:
                with _exclusive(self.home):
                    _ensure_certificate(self.home, self.settings, now)
            looks = self._look()
            if looks == self._seen:
                return False
            # Whoever brings a new pair writes one file after the other: wait until they fit.
            check_pair(self.files.certificate, self.files.key, now)
        except (TrainshedError, OSError) as fault:
            _log.warning("The certificate in use stays: %s", fault)
            return False
        self._seen = looks
        return True

    def _look(self) -> tuple[object, ...]:
        found: list[object] = []
        for path in (self.files.certificate, self.files.key):
            with contextlib.suppress(OSError):
                stat = path.stat()
                found.append((stat.st_ino, stat.st_mtime_ns, stat.st_size))
        return tuple(found)
