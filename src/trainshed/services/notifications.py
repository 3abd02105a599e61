"""Telling people about their jobs: where they want to be told, and what is put on its way to them."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from trainshed.db import notifications as db
from trainshed.db.engine import begin, read
from trainshed.db.jobs import JobRow
from trainshed.db.notifications import MessageRow, TargetRow
from trainshed.db.users import user_by_id
from trainshed.db.workspaces import workspace_by_id
from trainshed.model.errors import Conflict, NotAllowed, NotFound
from trainshed.model.notification import DEFAULT_EVENTS, check_address, check_events
from trainshed.services.access import require
from trainshed.services.identity import Caller
from trainshed.services.platform import Platform
from trainshed.services.vault import seal, unseal

__all__ = [
    "NewTarget",
    "TargetView",
    "add_target",
    "list_targets",
    "remove_target",
    "secret_of",
    "tell_about_job",
    "test_target",
]

_MOST_TARGETS = 20


@dataclass(frozen=True)
class TargetView:
    """A place where people are told about jobs, and how the last message went."""

    id: str
    kind: str
    address: str
    covers: str
    owner: str
    events: list[str]
    created_at: float
    last_event: str = ""
    last_state: str = ""
    last_error: str = ""


@dataclass(frozen=True)
class NewTarget(TargetView):
    """A place that was just added, with the secret that signs messages to it; it is shown this once."""

    secret: str = ""


@dataclass(frozen=True)
class _Own:
    workspace_id: str
    owner_id: str


def add_target(
    platform: Platform,
    caller: Caller,
    address: str,
    events: Sequence[str] = DEFAULT_EVENTS,
    *,
    covers_workspace: bool = False,
) -> NewTarget:
    """Add a place: a URL that gets signed messages, or a mail address.

    It is told about the caller's jobs in this workspace, or, if the caller manages it, about all of them.
    """
    _require_person(caller)
    if covers_workspace:
        require(caller, "member.manage")
    kind = check_address(address)
    chosen = check_events(events)
    if kind == "email" and not platform.settings.smtp_url:
        raise Conflict(
            "This platform sends no mail.",
            hint="Ask the administrator to set smtp_url, or give a URL.",
            code="no_mail",
            where="address",
        )
    secret = secrets.token_urlsafe(32)
    target_id = secrets.token_hex(16)
    row = TargetRow(
        id=target_id,
        workspace_id=caller.workspace_id,
        user_id=caller.user_id,
        covers="workspace" if covers_workspace else "user",
        kind=kind,
        address=address,
        events=list(chosen),
        secret=seal(platform, secret.encode(), _purpose(target_id)),
        created_at=platform.clock(),
    )
    with begin(platform.engine) as connection:
        known = db.targets_of(connection, caller.workspace_id)
        if sum(target.user_id == caller.user_id for target in known) >= _MOST_TARGETS:
            raise Conflict(
                f"You have {_MOST_TARGETS} places already.", hint="Remove one first.", code="too_many_targets"
            )
        db.insert_target(connection, row)
    return NewTarget(**vars(_view(row, caller.user_name, None)), secret=secret if kind == "webhook" else "")


def list_targets(platform: Platform, caller: Caller) -> list[TargetView]:
    """The caller's places in this workspace, and those that cover all of it."""
    _require_person(caller)
    with read(platform.engine) as connection:
        rows = [
            row
            for row in db.targets_of(connection, caller.workspace_id)
            if row.user_id == caller.user_id or row.covers == "workspace"
        ]
        last = db.last_messages(connection, [row.id for row in rows])
        names = {row.user_id: user_by_id(connection, row.user_id) for row in rows}
    shown = []
    for row in rows:
        owner = names[row.user_id]
        view = _view(row, owner.name if owner else "", last.get(row.id))
        shown.append(view)
    return shown


def remove_target(platform: Platform, caller: Caller, target_id: str) -> None:
    """Remove a place; what is on its way there is not sent any more."""
    row = _find(platform, caller, target_id)
    with begin(platform.engine) as connection:
        db.delete_target(connection, row.id)


def test_target(platform: Platform, caller: Caller, target_id: str) -> None:
    """Put a message on its way that only says that messages arrive."""
    row = _find(platform, caller, target_id)
    body = {"event": "test", "time": platform.clock(), "message": "Trainshed reaches you here."}
    with begin(platform.engine) as connection:
        db.insert_message(connection, _message(platform, row, "", "test", body))


def tell_about_job(platform: Platform, connection: Connection, job: JobRow, event: str) -> None:
    """Put messages about a job on their way, in the transaction that makes the event true."""
    targets = [
        row for row in db.targets_for_job(connection, job.workspace_id, job.owner_id) if event in row.events
    ]
    if not targets:
        return
    owner = user_by_id(connection, job.owner_id)
    workspace = workspace_by_id(connection, job.workspace_id)
    body = {
        "event": event,
        "time": platform.clock(),
        "job": {
            "id": job.id,
            "name": job.name,
            "phase": job.phase.value,
            "workspace": workspace.name if workspace else "",
            "owner": owner.name if owner else "",
            "attempt": job.attempt,
            "nodes": job.nodes,
            "flavor": job.flavor,
            "started_at": job.started_at,
            "ended_at": job.ended_at,
            "ending": _public_ending(job.ending),
        },
        "url": f"{platform.settings.public_url.rstrip('/')}/jobs/{job.id}"
        if platform.settings.public_url
        else "",
    }
    for row in targets:
        db.insert_message(connection, _message(platform, row, job.id, event, body))


def secret_of(platform: Platform, row: TargetRow) -> str:
    """The secret that signs messages to a place."""
    return unseal(platform, row.secret, _purpose(row.id)).decode()


def _public_ending(ending: dict[str, Any] | None) -> dict[str, Any]:
    shown = ("outcome", "cause", "code", "message", "hint", "rank", "exit_code", "signal")
    return {name: (ending or {}).get(name) for name in shown if ending and name in ending}


def _message(platform: Platform, row: TargetRow, job_id: str, event: str, body: dict[str, Any]) -> MessageRow:
    now = platform.clock()
    return MessageRow(
        id=secrets.token_hex(16),
        target_id=row.id,
        job_id=job_id,
        event=event,
        body=body,
        state="waiting",
        tries=0,
        error="",
        created_at=now,
        next_at=now,
    )


def _find(platform: Platform, caller: Caller, target_id: str) -> TargetRow:
    _require_person(caller)
    with read(platform.engine) as connection:
        rows = [
            row
            for row in db.targets_of(connection, caller.workspace_id)
            if row.id.startswith(target_id or "-")
        ]
    visible = [row for row in rows if row.user_id == caller.user_id or row.covers == "workspace"]
    if len(visible) != 1:
        raise NotFound(
            f"There is no place '{target_id[:40]}'.",
            hint="`trainshed notify list` shows yours.",
            code="unknown_target",
        )
    if visible[0].user_id != caller.user_id:
        require(caller, "member.manage")
    return visible[0]


def _require_person(caller: Caller) -> None:
    if caller.job_id:
        raise NotAllowed("A job cannot change who is told about jobs.", code="not_for_jobs")
    require(caller, "token.manage", _Own(caller.workspace_id, caller.user_id))


def _view(row: TargetRow, owner: str, last: MessageRow | None) -> TargetView:
    return TargetView(
        row.id,
        row.kind,
        row.address,
        row.covers,
        owner,
        list(row.events),
        row.created_at,
        last.event if last else "",
        last.state if last else "",
        last.error if last else "",
    )


def _purpose(target_id: str) -> str:
    return f"notification-target:{target_id}"
