"""An outage is waited for once, however many requests it meets."""

from __future__ import annotations

import time

from trainshed.model.errors import Unavailable
from trainshed.store.outage import GIVEN_UP, Patience


def test_what_comes_after_the_wait_fails_at_once_until_the_store_is_heard() -> None:
    patience = Patience(1.0)
    began = time.monotonic()
    assert patience.wait(began, 0.01, "It is away.")
    assert patience.mark(Unavailable("away", code="store_unreachable")).code == "store_unreachable"
    while patience.wait(began, 0.01, "It is away."):
        assert time.monotonic() < began + 30
    assert patience.mark(Unavailable("away", code="store_unreachable")).code == GIVEN_UP
    # The next request meets the same outage.
    assert not patience.wait(time.monotonic(), 0.01, "It is away.")
    patience.note_heard()
    assert patience.wait(time.monotonic(), 0.01, "It is away.")


def test_who_has_no_patience_and_who_is_asked_to_stop_may_be_tried_again() -> None:
    for patience in (Patience(), Patience(60.0, give_up=lambda: True)):
        assert not patience.wait(time.monotonic(), 0.01, "It is away.")
        assert patience.mark(Unavailable("away", code="store_unreachable")).code == "store_unreachable"
