"""Which servers a client believes: verification is always on, and a refusal says what to do."""

from __future__ import annotations

import ssl
from pathlib import Path

from trainshed.model.errors import InvalidInput, Unavailable

__all__ = ["explain_tls", "read_authority", "trust_for"]


def read_authority(path: str) -> str:
    """The text of a CA file, once it is sure that it holds certificates."""
    try:
        text = Path(path).read_text("ascii")
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=text)
    except ValueError:
        # An SSLError is one, too, and an OSError besides.
        raise InvalidInput(
            "The CA file holds no certificate.",
            hint="`trainshed tls ca` on the platform's machine prints the right one.",
            code="bad_ca",
            where=path,
        ) from None
    except OSError as fault:
        raise InvalidInput(
            f"The CA file cannot be read: {fault.strerror}.",
            hint="Name the file with --ca or TRAINSHED_CA; `trainshed tls ca` on the platform's machine prints it.",
            code="bad_ca",
            where=path,
        ) from None
    return text


def trust_for(url: str, ca: str) -> ssl.SSLContext | bool:
    """What an HTTP client of this address must verify with: the system's CAs, and this one."""
    if not url.startswith("https"):
        # Reading all certificates of the system takes longer than a request without TLS.
        return False
    context = ssl.create_default_context()
    if not context.cert_store_stats()["x509_ca"]:
        import certifi

        context.load_verify_locations(certifi.where())
    if ca:
        context.load_verify_locations(cadata=read_authority(ca))
    return context


def explain_tls(url: str, fault: BaseException) -> Unavailable | None:
    """The error for a connection that failed because of TLS; None if that was not the reason."""
    found: BaseException | None = fault
    while found is not None and not isinstance(found, ssl.SSLError):
        found = found.__cause__ or found.__context__
    text = str(found or fault)
    if isinstance(found, ssl.SSLCertVerificationError) or "CERTIFICATE_VERIFY_FAILED" in text:
        return _explain_certificate(url, found, text)
    if url.startswith("https") and any(
        sign in text for sign in ("WRONG_VERSION_NUMBER", "RECORD_LAYER", "UNEXPECTED_EOF")
    ):
        return Unavailable(
            f"What listens at {url} does not speak TLS.",
            hint="Write http:// in place of https://, or start the platform with --tls.",
            code="not_tls",
            where=url,
        )
    if url.startswith("http:") and "illegal request line" in str(fault):
        return Unavailable(
            f"What listens at {url} speaks TLS.",
            hint="Write https:// in place of http://.",
            code="tls_needed",
            where=url,
        )
    return None


def _explain_certificate(url: str, fault: BaseException | None, text: str) -> Unavailable:
    reason = getattr(fault, "verify_message", "") or text
    if "hostname mismatch" in reason.lower() or "ip address mismatch" in reason.lower():
        return Unavailable(
            f"The certificate of {url} is for other names: {reason.rstrip('.')}.",
            hint="Use a name that it holds (`trainshed tls show` on the platform's machine), or add this one to "
            "the setting host_names there.",
            code="wrong_host",
            where=url,
        )
    if "expired" in reason:
        return Unavailable(
            f"The certificate of {url} has expired.",
            hint="Check the clock of this machine, then ask the platform's administrator.",
            code="certificate_expired",
            where=url,
        )
    return Unavailable(
        f"The certificate of {url} is from a CA that this machine does not know: {reason.rstrip('.')}.",
        hint="Get the platform's CA (`trainshed tls ca` on its machine prints it) and name the file with --ca or "
        "TRAINSHED_CA.",
        code="unknown_ca",
        where=url,
    )
