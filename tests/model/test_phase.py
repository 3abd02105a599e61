"""The table of phases, explored by random walks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainshed.model.errors import Conflict
from trainshed.model.phase import TRANSITIONS, Phase, check_transition

ENDS = {Phase.COMPLETED, Phase.FAILED, Phase.TERMINATED}


def test_every_phase_has_a_row_and_only_ends_have_no_way_out() -> None:
    assert set(TRANSITIONS) == set(Phase)
    assert {phase for phase in Phase if phase.is_terminal} == ENDS


def test_every_phase_is_reached_from_creating_and_reaches_an_end() -> None:
    def reachable(start: Phase) -> set[Phase]:
        seen, todo = {start}, [start]
        while todo:
            for then in TRANSITIONS[todo.pop()] - seen:
                seen.add(then)
                todo.append(then)
        return seen

    assert reachable(Phase.CREATING) == set(Phase)
    for phase in Phase:
        assert reachable(phase) & ENDS


@given(st.lists(st.sampled_from(list(Phase)), max_size=30))
def test_a_walk_that_only_takes_allowed_steps_never_leaves_an_end(wishes: list[Phase]) -> None:
    phase = Phase.CREATING
    for wish in wishes:
        if wish in TRANSITIONS[phase]:
            check_transition(phase, wish)
            assert not phase.is_terminal
            phase = wish
        else:
            with pytest.raises(Conflict):
                check_transition(phase, wish)


def test_devices_are_held_exactly_between_start_and_end() -> None:
    assert {phase for phase in Phase if phase.holds_devices} == {
        Phase.RUNNING,
        Phase.TERMINATING,
        Phase.ABNORMAL,
    }
