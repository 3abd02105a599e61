"""One leads; whoever led before is fenced off."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from sqlalchemy import Engine

from trainshed.db.engine import begin
from trainshed.db.lease import acquire_lease, holds_lease, release_lease, renew_lease


def test_a_lease_is_held_renewed_and_lost(engine: Engine) -> None:
    with begin(engine) as connection:
        first = acquire_lease(connection, "control", "a", 100.0, 10.0)
        assert first == 1
        assert acquire_lease(connection, "control", "b", 105.0, 10.0) is None
        assert renew_lease(connection, "control", "a", 1, 109.0, 10.0)
        assert acquire_lease(connection, "control", "b", 115.0, 10.0) is None
        # The time ran out: the next one leads, and the first one is told so.
        second = acquire_lease(connection, "control", "b", 119.0, 10.0)
        assert second == 2
        assert not renew_lease(connection, "control", "a", 1, 120.0, 10.0)
        assert not holds_lease(connection, "control", "a", 1)
        assert holds_lease(connection, "control", "b", 2)


def test_a_restarted_holder_leads_again_at_once_and_fences_its_old_self(engine: Engine) -> None:
    with begin(engine) as connection:
        assert acquire_lease(connection, "control", "a", 100.0, 10.0) == 1
        assert acquire_lease(connection, "control", "a", 101.0, 10.0) == 2
        assert not renew_lease(connection, "control", "a", 1, 102.0, 10.0)


def test_a_released_lease_is_free_at_once_and_its_fence_grows_on(engine: Engine) -> None:
    with begin(engine) as connection:
        acquire_lease(connection, "control", "a", 100.0, 10.0)
        release_lease(connection, "control", "a", 1)
        assert acquire_lease(connection, "control", "b", 100.0, 10.0) == 2


def test_of_many_that_want_to_lead_one_does(engine: Engine) -> None:
    def acquire(number: int) -> int | None:
        with begin(engine) as connection:
            return acquire_lease(connection, "control", f"holder {number}", 100.0, 10.0)

    with ThreadPoolExecutor(8) as pool:
        fences = [fence for fence in pool.map(acquire, range(16)) if fence is not None]
    assert fences == [1]
