"""Being told about jobs: who is told what, by real messages to a real HTTP and a real mail server."""

from __future__ import annotations

import asyncio
import dataclasses
import email.policy
import hashlib
import hmac
import http.server
import json
import threading
from collections.abc import Callable, Iterator
from email import message_from_bytes
from typing import Any

import pytest
from aiosmtpd.smtp import SMTP

from trainshed.db import notifications as db
from trainshed.db import tables
from trainshed.db.engine import begin, read
from trainshed.db.jobs import change_job
from trainshed.model.errors import Conflict, InvalidInput, NotAllowed, NotFound
from trainshed.model.notification import MOST_TRIES
from trainshed.model.phase import Phase
from trainshed.services.identity import Caller
from trainshed.services.jobs import JobView
from trainshed.services.notification_delivery import deliver_due, render_letter, run_delivery
from trainshed.services.notifications import (
    add_target,
    list_targets,
    remove_target,
    tell_about_job,
    test_target,
)
from trainshed.services.platform import Platform

Submit = Callable[..., JobView]
try_target = test_target
del test_target  # pytest would take it for a test


class Receiver:
    """A program that gets messages. What it answers can be chosen."""

    def __init__(self) -> None:
        self.seen: list[tuple[dict[str, str], bytes]] = []
        self.status = 200
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.seen.append(({name.lower(): value for name, value in self.headers.items()}, body))
                self.send_response(outer.status)
                if outer.status == 302:
                    self.send_header("Location", f"{outer.url}/elsewhere")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(90)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    found = Receiver()
    yield found
    found.close()


@pytest.fixture
def telling(platform: Platform) -> Platform:
    """A platform that may talk to this machine."""
    return dataclasses.replace(
        platform, settings=dataclasses.replace(platform.settings, webhooks_may_be_private=True)
    )


def end(platform: Platform, row_of: Any, view: JobView, phase: Phase, event: str) -> None:
    """What the control loop does at the end of a job."""
    with begin(platform.engine) as connection:
        running = change_job(connection, row_of(view.id), phase=Phase.PENDING)
        assert running is not None
        running = change_job(connection, running, phase=Phase.RUNNING, attempt=1)
        assert running is not None
        ending = {"outcome": "failed", "message": "Rank 0 ended.", "hint": "Look.", "line": "geheim"}
        ended = change_job(connection, running, phase=phase, ending=ending, ended_at=platform.clock())
        assert ended is not None
        tell_about_job(platform, connection, ended, event)


def test_a_signed_message_arrives(
    telling: Platform, ann: Caller, submit: Submit, row_of: Any, receiver: Receiver, clock: Any
) -> None:
    target = add_target(telling, ann, f"{receiver.url}/hook?x=1")
    end(telling, row_of, submit(ann), Phase.FAILED, "failed")
    assert deliver_due(telling) and not deliver_due(telling)
    ((headers, body),) = receiver.seen
    time, _, digest = headers["x-trainshed-signature"].partition(",")
    expected = hmac.new(target.secret.encode(), time[2:].encode() + b"." + body, hashlib.sha256).hexdigest()
    assert digest == f"v1={expected}" and int(time[2:]) == int(clock.now)
    told = json.loads(body)
    assert (told["event"], told["job"]["owner"], told["job"]["ending"]["message"]) == (
        "failed",
        ann.user_name,
        "Rank 0 ended.",
    )
    assert b"geheim" not in body, "a line of the log may hold anything"
    (shown,) = list_targets(telling, ann)
    assert (shown.last_event, shown.last_state) == ("failed", "sent")
    assert target.secret not in str(shown)


def test_only_who_asked_is_told(
    telling: Platform, ann: Caller, bob: Caller, submit: Submit, row_of: Any, receiver: Receiver
) -> None:
    add_target(telling, ann, receiver.url, ["completed"])
    add_target(telling, bob, receiver.url, ["failed", "completed"])
    end(telling, row_of, submit(ann), Phase.FAILED, "failed")
    end(telling, row_of, submit(bob), Phase.FAILED, "failed")
    while deliver_due(telling):
        pass
    assert [json.loads(body)["job"]["owner"] for _, body in receiver.seen] == [bob.user_name]


@pytest.mark.parametrize("event", ["idle", "preempted"])
def test_who_manages_a_workspace_is_told_of_all_its_jobs(
    telling: Platform,
    make_caller: Any,
    ann: Caller,
    bob: Caller,
    submit: Submit,
    row_of: Any,
    receiver: Receiver,
    event: str,
) -> None:
    manager = make_caller("carl", "manager", "red")
    add_target(telling, manager, f"{receiver.url}/all", [event], covers_workspace=True)
    add_target(telling, manager, f"{receiver.url}/own", [event])
    add_target(telling, ann, f"{receiver.url}/ann", ["failed"])
    rows = [row_of(submit(owner).id) for owner in (ann, bob)]
    with begin(telling.engine) as connection:
        for row in rows:
            tell_about_job(telling, connection, row, event)
    while deliver_due(telling):
        pass
    # Not of the other workspace, not to whom it did not want to hear of it, and not as if it were his own.
    ((_, body),) = receiver.seen
    told = json.loads(body)
    assert (told["event"], told["job"]["owner"]) == (event, ann.user_name)
    assert event not in render_letter(told)[0], "people get words"


def test_what_cannot_be_delivered_is_tried_again_and_given_up_at_last(
    telling: Platform, ann: Caller, receiver: Receiver, clock: Any
) -> None:
    target = add_target(telling, ann, receiver.url)
    try_target(telling, ann, target.id)
    receiver.status = 500
    assert deliver_due(telling)
    assert not deliver_due(telling), "it waits before the next try"
    (shown,) = list_targets(telling, ann)
    assert (shown.last_state, shown.last_error) == ("waiting", "It answered 500.")
    receiver.status = 204
    clock.now += 11
    assert deliver_due(telling)
    assert list_targets(telling, ann)[0].last_state == "sent"
    receiver.status = 500
    try_target(telling, ann, target.id)
    for _ in range(MOST_TRIES):
        clock.now += 5 * 3600
        assert deliver_due(telling)
    clock.now += 5 * 3600
    assert not deliver_due(telling)
    assert list_targets(telling, ann)[0].last_state == "given up"


def test_a_message_that_cannot_be_signed_is_noted_and_holds_up_no_other(
    telling: Platform, ann: Caller, receiver: Receiver
) -> None:
    broken, good = (add_target(telling, ann, f"{receiver.url}/{name}") for name in ("broken", "good"))
    with begin(telling.engine) as connection:
        connection.execute(
            tables.notification_targets.update()
            .where(tables.notification_targets.c.id == broken.id)
            .values(secret=b"damaged")
        )
    for target in (broken, good):
        try_target(telling, ann, target.id)
    assert deliver_due(telling) and deliver_due(telling) and not deliver_due(telling)
    states = {shown.id: (shown.last_state, shown.last_error) for shown in list_targets(telling, ann)}
    assert states[good.id] == ("sent", "")
    assert states[broken.id][0] == "waiting" and "decrypted" in states[broken.id][1]
    assert len(receiver.seen) == 1


def test_a_redirect_is_not_followed(telling: Platform, ann: Caller, receiver: Receiver) -> None:
    receiver.status = 302
    try_target(telling, ann, add_target(telling, ann, receiver.url).id)
    assert deliver_due(telling)
    assert len(receiver.seen) == 1
    assert "not followed" in list_targets(telling, ann)[0].last_error


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "10.0.0.1", "169.254.169.254"]
)
def test_private_addresses_are_refused(
    platform: Platform, ann: Caller, receiver: Receiver, host: str
) -> None:
    port = receiver.url.rpartition(":")[2]
    try_target(platform, ann, add_target(platform, ann, f"http://{host}:{port}/").id)
    assert deliver_due(platform)
    assert receiver.seen == []
    error = list_targets(platform, ann)[0].last_error
    assert "webhooks_may_be_private" in error or "not known" in error


def test_two_senders_deliver_a_message_once(telling: Platform, ann: Caller, receiver: Receiver) -> None:
    target = add_target(telling, ann, receiver.url)
    for _ in range(10):
        try_target(telling, ann, target.id)
    stop = threading.Event()
    senders = [threading.Thread(target=run_delivery, args=(telling, stop)) for _ in range(3)]
    for sender in senders:
        sender.start()
    deadline = 90.0
    while len(receiver.seen) < 10 and deadline > 0:
        stop.wait(0.1)
        deadline -= 0.1
    stop.wait(0.5)
    stop.set()
    for sender in senders:
        sender.join(90)
    ids = [json.loads(body)["id"] for _, body in receiver.seen]
    assert len(ids) == len(set(ids)) == 10


def test_mistakes_are_told(platform: Platform, ann: Caller, bob: Caller) -> None:
    for address in ("ftp://x/", "http://", "https://user:pw@host/", "nobody", "a@b@c", "https://a b/"):
        with pytest.raises(InvalidInput):
            add_target(platform, ann, address)
    with pytest.raises(InvalidInput, match="no event"):
        add_target(platform, ann, "https://example.org/", ["exploded"])
    with pytest.raises(Conflict, match="no mail"):
        add_target(platform, ann, "ann@example.org")
    with pytest.raises(NotAllowed):
        add_target(platform, ann, "https://example.org/", covers_workspace=True)
    target = add_target(platform, ann, "https://example.org/")
    with pytest.raises(NotFound):
        remove_target(platform, bob, target.id)
    with pytest.raises(NotAllowed):
        add_target(platform, dataclasses.replace(ann, job_id="j"), "https://example.org/")
    remove_target(platform, ann, target.id[:8])
    assert list_targets(platform, ann) == []


def test_a_removed_place_gets_nothing_more(telling: Platform, ann: Caller, receiver: Receiver) -> None:
    target = add_target(telling, ann, receiver.url)
    try_target(telling, ann, target.id)
    remove_target(telling, ann, target.id)
    assert not deliver_due(telling) and receiver.seen == []
    with read(telling.engine) as connection:
        assert not db.has_due(connection, telling.clock() + 1e6)


class Mailbox:
    """A real mail server in a thread of its own."""

    def __init__(self) -> None:
        self.letters: list[Any] = []
        self._loop = asyncio.new_event_loop()
        self._server = self._loop.run_until_complete(
            self._loop.create_server(lambda: SMTP(self, loop=self._loop), "127.0.0.1", 0)
        )
        self.port = self._server.sockets[0].getsockname()[1]
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    async def handle_DATA(self, _server: object, _session: object, envelope: Any) -> str:
        self.letters.append(message_from_bytes(envelope.content, policy=email.policy.default))
        return "250 OK"

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._server.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(90)
        self._loop.close()


def test_a_letter_arrives(platform: Platform, ann: Caller, submit: Submit, row_of: Any) -> None:
    mailbox = Mailbox()
    try:
        settings = dataclasses.replace(
            platform.settings, smtp_url=f"smtp://127.0.0.1:{mailbox.port}", smtp_from="trainshed@example.org"
        )
        posting = dataclasses.replace(platform, settings=settings)
        add_target(posting, ann, "ann@example.org")
        view = submit(ann)
        end(posting, row_of, view, Phase.FAILED, "failed")
        assert deliver_due(posting)
        (letter,) = mailbox.letters
        assert (letter["To"], letter["Subject"]) == ("ann@example.org", f"{view.name} has failed")
        assert "Rank 0 ended." in letter.get_content()
        assert list_targets(posting, ann)[0].last_state == "sent"
    finally:
        mailbox.close()
