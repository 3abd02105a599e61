"""Delivers messages about jobs: signed ones to programs, letters to people. Tried again until they arrive."""

from __future__ import annotations

import ipaddress
import json
import socket
import threading
from typing import Any
from urllib.parse import unquote, urlsplit

from trainshed.db import notifications as db
from trainshed.db.engine import begin, read
from trainshed.db.notifications import MessageRow, TargetRow
from trainshed.model.notification import MOST_TRIES, retry_delay, sign
from trainshed.services.notifications import secret_of
from trainshed.services.platform import Platform

__all__ = ["DeliveryFault", "deliver_due", "run_delivery", "send_mail", "send_webhook"]

_SECONDS = 10.0
# While one sender tries, no other one takes the same message.
_LEASE = 60.0
_PAUSE = 2.0
_KEEP = 30 * 86400.0


class DeliveryFault(Exception):
    """A message did not arrive; the text says why."""


def run_delivery(platform: Platform, stop: threading.Event) -> None:
    """Deliver what is due until told to stop."""
    while not stop.wait(_PAUSE):
        try:
            while not stop.is_set() and deliver_due(platform):
                pass
        except Exception:
            # The database is away, or something new is wrong: what is waiting stays there for the next round.
            stop.wait(10.0)


def deliver_due(platform: Platform) -> bool:
    """Try to deliver one message that is due; False when there is none."""
    now = platform.clock()
    with read(platform.engine) as connection:
        # Asked without a lock first: nearly always there is nothing to do.
        if not db.has_due(connection, now):
            return False
    with begin(platform.engine) as connection:
        message = db.claim_due(connection, now, _LEASE)
        target = db.target_by_id(connection, message.target_id) if message is not None else None
    if message is None or target is None:
        return message is not None
    try:
        _deliver(platform, target, message)
    except Exception as fault:
        # Whatever is wrong with one message is noted with it and counted: it must not hold up the others for ever.
        tries = message.tries + 1
        state = "given up" if tries >= MOST_TRIES else "waiting"
        _settle(platform, message, state, now + retry_delay(tries), str(fault) or type(fault).__name__)
    else:
        _settle(platform, message, "sent", now, "")
    return True


def _settle(platform: Platform, message: MessageRow, state: str, next_at: float, error: str) -> None:
    with begin(platform.engine) as connection:
        db.settle_message(connection, message.id, state, next_at, error)
        db.forget_messages(connection, platform.clock() - _KEEP)


def _deliver(platform: Platform, target: TargetRow, message: MessageRow) -> None:
    settings = platform.settings
    if target.kind == "email":
        send_mail(settings.smtp_url, settings.smtp_from, target.address, *render_letter(message.body))
        return
    body = json.dumps({"id": message.id, **message.body}, ensure_ascii=False).encode()
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "trainshed",
        "X-Trainshed-Event": message.event,
        "X-Trainshed-Delivery": message.id,
        "X-Trainshed-Signature": sign(secret_of(platform, target), int(platform.clock()), body),
    }
    send_webhook(target.address, body, headers, may_be_private=settings.webhooks_may_be_private)


def send_webhook(url: str, body: bytes, headers: dict[str, str], *, may_be_private: bool) -> None:
    """Post a message to a URL. The address that was checked is the one that is used, and redirects are not followed."""
    # Loaded when the first message is sent: most platforms send none, and these take some megabytes.
    import http.client
    import ssl

    parts = urlsplit(url)
    host = parts.hostname or ""
    is_secure = parts.scheme == "https"
    port = parts.port or (443 if is_secure else 80)
    address = _resolve(host, port, may_be_private)
    raw = socket.create_connection((address, port), timeout=_SECONDS)
    try:
        stream = ssl.create_default_context().wrap_socket(raw, server_hostname=host) if is_secure else raw
        connection = http.client.HTTPConnection(host, port, timeout=_SECONDS)
        connection.sock = stream
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        answer.read(64 * 1024)
    except http.client.HTTPException as fault:
        raise DeliveryFault(f"The answer is not HTTP: {type(fault).__name__}.") from None
    finally:
        raw.close()
    if 300 <= answer.status < 400:
        raise DeliveryFault(f"It answered {answer.status}; redirects are not followed.")
    if not 200 <= answer.status < 300:
        raise DeliveryFault(f"It answered {answer.status}.")


def _resolve(host: str, port: int, may_be_private: bool) -> str:
    """The address behind a name. One that leads into the platform's own network is refused, unless that is allowed."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as fault:
        raise DeliveryFault(f"The name {host} is not known: {fault.strerror or fault}.") from None
    addresses = [str(entry[4][0]) for entry in found]
    if not may_be_private:
        for address in addresses:
            number = ipaddress.ip_address(address.partition("%")[0])
            mapped = getattr(number, "ipv4_mapped", None)
            if not (mapped or number).is_global:
                raise DeliveryFault(
                    f"{host} is in a private network ({address}); the administrator can allow it "
                    "(webhooks_may_be_private)."
                )
    return addresses[0]


def send_mail(smtp_url: str, sender: str, recipient: str, subject: str, text: str) -> None:
    """Send a letter through the mail server of the settings."""
    import smtplib
    import ssl
    from email.message import EmailMessage

    parts = urlsplit(smtp_url)
    if parts.scheme not in ("smtp", "smtps") or not parts.hostname:
        raise DeliveryFault("The setting smtp_url names no mail server.")
    letter = EmailMessage()
    letter["From"] = sender or f"trainshed@{socket.getfqdn()}"
    letter["To"] = recipient
    letter["Subject"] = subject
    letter["Auto-Submitted"] = "auto-generated"
    letter.set_content(text)
    kind: Any = smtplib.SMTP_SSL if parts.scheme == "smtps" else smtplib.SMTP
    try:
        with kind(
            parts.hostname, parts.port or (465 if parts.scheme == "smtps" else 25), timeout=_SECONDS
        ) as server:
            if parts.scheme == "smtp" and server.has_extn("starttls"):
                server.starttls(context=ssl.create_default_context())
            if parts.username:
                server.login(unquote(parts.username), unquote(parts.password or ""))
            server.send_message(letter)
    except smtplib.SMTPException as fault:
        raise DeliveryFault(f"The mail server refused it: {fault}.") from None


def render_letter(body: dict[str, Any]) -> tuple[str, str]:
    """Subject and text of a letter."""
    job = body.get("job")
    if not job:
        return "Trainshed reaches you here", f"{body.get('message', '')}\n"
    words = {
        "completed": "is completed",
        "failed": "has failed",
        "stopped": "was stopped",
        "restarted": "goes back to the queue",
        "preempted": "gave its machines to another job",
        "idle": "uses neither its devices nor the processor",
        "held": "has finished training and is held open",
    }
    subject = f"{job['name']} {words.get(body['event'], body['event'])}"
    ending = job.get("ending") or {}
    lines = [
        f"Job        {job['name']}",
        f"Phase      {job['phase']}",
        f"Workspace  {job['workspace']}",
        f"Owner      {job['owner']}",
        f"Attempt    {job['attempt']}",
    ]
    lines += [f"Why        {ending['message']}"] if ending.get("message") else []
    lines += [f"Next       {ending['hint']}"] if ending.get("hint") else []
    lines += [f"Page       {body['url']}"] if body.get("url") else []
    return subject, "\n".join(lines) + "\n"
