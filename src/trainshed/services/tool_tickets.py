"""Who may see a hosted tool: a link that opens it once, and the cookie that the link is exchanged for.

Both are sealed words of the platform that name the tool, the job and the user; nothing is stored for them. A link
works once, which a file with its name sees to, and a stop makes all earlier words worthless.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import secrets
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from trainshed.db.engine import read
from trainshed.db.jobs import job_by_id
from trainshed.model.errors import NotAllowed, NotAuthenticated
from trainshed.services.access import require
from trainshed.services.identity import EVERYTHING, identify
from trainshed.services.platform import Platform
from trainshed.services.vault import derive

__all__ = ["COOKIE_SECONDS", "Ticket", "issue", "redeem", "require_access", "revoke", "verify"]

LINK_SECONDS = 300
COOKIE_SECONDS = 3600
_PURPOSE = "hosted-tools"
_LONGEST = 2000


@dataclass(frozen=True)
class Ticket:
    """What a link or a cookie says."""

    kind: Literal["link", "cookie"]
    tool: str
    job_id: str
    workspace_id: str
    user_id: str
    issued_at: float
    expires_at: float
    nonce: str


def issue(
    platform: Platform,
    kind: Literal["link", "cookie"],
    *,
    tool: str,
    job_id: str,
    workspace_id: str,
    user_id: str,
) -> str:
    """A new word for this user and this tool."""
    now = platform.clock()
    seconds = LINK_SECONDS if kind == "link" else COOKIE_SECONDS
    ticket = Ticket(kind, tool, job_id, workspace_id, user_id, now, now + seconds, secrets.token_urlsafe(16))
    body = base64.urlsafe_b64encode(json.dumps(asdict(ticket)).encode()).rstrip(b"=")
    return f"{body.decode()}.{_sign(platform, body)}"


def verify(platform: Platform, word: str, kind: Literal["link", "cookie"], tool: str) -> Ticket:
    """What a word says, if it is ours, of this kind, for this tool, neither expired nor revoked."""
    body, _, signature = word[:_LONGEST].partition(".")
    if not hmac.compare_digest(signature.encode(), _sign(platform, body.encode()).encode()):
        raise _refused()
    ticket = Ticket(**json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))))
    if ticket.kind != kind or ticket.tool != tool or ticket.expires_at <= platform.clock():
        raise _refused()
    try:
        revoked_at = _revocation(platform, tool).stat().st_mtime
    except OSError:
        revoked_at = 0.0
    if ticket.issued_at <= revoked_at:
        raise _refused()
    return ticket


def redeem(platform: Platform, word: str, tool: str) -> tuple[Ticket, str]:
    """Exchange a link for a cookie; a link works once."""
    ticket = verify(platform, word, "link", tool)
    used = _folder(platform) / "used"
    used.mkdir(mode=0o700, parents=True, exist_ok=True)
    name = hashlib.sha256(ticket.nonce.encode()).hexdigest()
    try:
        os.close(os.open(used / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        raise _refused() from None
    _forget_old(used)
    cookie = issue(
        platform,
        "cookie",
        tool=tool,
        job_id=ticket.job_id,
        workspace_id=ticket.workspace_id,
        user_id=ticket.user_id,
    )
    return ticket, cookie


def require_access(platform: Platform, ticket: Ticket) -> None:
    """Refuse a visitor who may not read the job any more, or whose job is gone."""
    with read(platform.engine) as connection:
        caller = identify(connection, ticket.user_id, ticket.workspace_id, EVERYTHING)
        job = job_by_id(connection, ticket.job_id)
    if job is None or job.deleted_at is not None:
        raise NotAllowed("The job was deleted.")
    require(caller, "job.read", job)


def revoke(platform: Platform, tool: str) -> None:
    """Make all words of a tool worthless that were issued until now."""
    path = _revocation(platform, tool)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.touch(mode=0o600)
    now = platform.clock()
    os.utime(path, (now, now))


def _forget_old(used: Path) -> None:
    limit = time.time() - 2 * LINK_SECONDS
    for path in used.iterdir():
        try:
            if path.stat().st_mtime < limit:
                path.unlink()
        except OSError:
            continue


def _folder(platform: Platform) -> Path:
    return platform.home.run / "tools"


def _revocation(platform: Platform, tool: str) -> Path:
    return _folder(platform) / "revoked" / hashlib.sha256(tool.encode()).hexdigest()


def _sign(platform: Platform, body: bytes) -> str:
    return hmac.new(derive(platform, _PURPOSE), body, hashlib.sha256).hexdigest()


def _refused() -> NotAuthenticated:
    return NotAuthenticated(
        "This link to a tool has been used, has expired, or was taken back.",
        hint="Ask for a new one: `trainshed tensorboard JOB`.",
        code="tool_link",
    )
