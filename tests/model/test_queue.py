"""The queue policy."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from trainshed.model.flavor import Device, Flavor, Node
from trainshed.model.queue import Held, Placement, Request, choose_victims, could_ever_fit, plan_queue

CPU1 = Flavor("cpu.1", "cpu", 0, 1, 1024)
CPU2 = Flavor("cpu.2", "cpu", 0, 2, 2048)
ASCEND8 = Flavor("ascend.8", "ascend", 8, 0, 0)


def machine(
    name: str = "a", cpus: float = 4, devices: int = 0, shareable: bool = True, state: str = "ready"
) -> Node:
    return Node(
        name,
        "p",
        cpus,
        8192,
        tuple(Device("ascend", i) for i in range(devices)),
        shareable=shareable,
        state=state,  # type: ignore[arg-type]
    )


def request(
    name: str, flavor: Flavor = CPU1, *, nodes: int = 1, priority: int = 0, at: float = 0.0
) -> Request:
    return Request(name, name, priority, at, nodes, flavor)


def test_priority_goes_before_age_and_age_before_the_rest() -> None:
    plan = plan_queue(
        [request("young", at=2), request("old", at=1), request("urgent", at=3, priority=5)],
        [],
        [machine(cpus=2)],
        10,
    )
    assert [admission.job_id for admission in plan.admissions] == ["urgent", "old"]
    (wait,) = plan.waits
    assert wait.job_id == "young" and "0 cores" in wait.reason


def test_a_gang_starts_whole_or_not_at_all() -> None:
    nodes = [machine("a", devices=8, shareable=False), machine("b", devices=8, shareable=False)]
    busy = Held("x", "x", "ascend", (Placement("a", tuple(range(8)), 0, 0),))
    assert plan_queue([request("g", ASCEND8, nodes=2)], [busy], nodes, 0).admissions == ()
    (admission,) = plan_queue([request("g", ASCEND8, nodes=2)], [], nodes, 0).admissions
    assert [p.node for p in admission.placements] == ["a", "b"]


def test_nodes_of_a_job_share_a_machine_only_where_that_is_allowed() -> None:
    assert could_ever_fit(2, CPU1, [machine(cpus=2)])
    assert not could_ever_fit(2, CPU1, [machine(cpus=2, shareable=False)])


def test_a_small_job_overtakes_until_the_large_one_has_waited_long() -> None:
    held = [Held("x", "x", "cpu", (Placement("a", (), 3, 0),))]
    waiting = [request("large", CPU2, at=0), request("small", CPU1, at=5)]
    early = plan_queue(waiting, held, [machine(cpus=4)], now=100, patience=600)
    assert [admission.job_id for admission in early.admissions] == ["small"]
    late = plan_queue(waiting, held, [machine(cpus=4)], now=700, patience=600)
    assert late.admissions == ()
    assert "goes first" in late.waits[1].reason and late.waits[1].ahead == ("large",)


def test_an_impossible_job_says_so_and_blocks_nobody() -> None:
    plan = plan_queue([request("huge", ASCEND8, at=0), request("ok", at=1)], [], [machine()], now=9999)
    assert [admission.job_id for admission in plan.admissions] == ["ok"]
    assert plan.waits[0].impossible


def test_the_forecast_is_when_time_limits_have_freed_enough() -> None:
    held = [
        Held("x", "x", "cpu", (Placement("a", (), 1, 0),), ends_by=50.0),
        Held("y", "y", "cpu", (Placement("a", (), 1, 0),), ends_by=80.0),
    ]
    (wait,) = plan_queue([request("two", CPU2)], held, [machine(cpus=2)], 0).waits
    assert wait.starts_by == 80.0
    (wait,) = plan_queue(
        [request("two", CPU2)], [Held("x", "x", "cpu", (Placement("a", (), 1, 0),))], [machine(cpus=2)], 0
    ).waits
    assert wait.starts_by is None and "'x'" in wait.hint


def test_a_rehearsal_of_many_nodes_fits_on_one_machine() -> None:
    laptop = Node("laptop", "p", 2, 8192, tuple(Device("ascend", i, pretend=True) for i in range(8)))
    (admission,) = plan_queue([request("big", ASCEND8, nodes=2)], [], [laptop], 0).admissions
    assert [p.devices for p in admission.placements] == [tuple(range(8))] * 2
    held = [Held("big", "big", "ascend", admission.placements, ends_by=5.0)]
    (wait,) = plan_queue([request("next", ASCEND8)], held, [laptop], 0).waits
    assert wait.starts_by == 5.0


def test_machines_that_are_down_are_named() -> None:
    (wait,) = plan_queue([request("g", ASCEND8)], [], [machine("a", devices=8, state="drained")], 0).waits
    assert "a (drained)" in wait.reason and not wait.impossible


@settings(max_examples=200)
@given(
    st.lists(st.tuples(st.integers(0, 8), st.integers(1, 3), st.integers(0, 3), st.booleans()), max_size=12),
    st.lists(st.tuples(st.integers(1, 8), st.integers(0, 8), st.booleans()), min_size=1, max_size=4),
)
def test_no_device_core_or_byte_is_ever_given_twice(
    jobs: list[tuple[int, int, int, bool]], machines: list[tuple[int, int, bool]]
) -> None:
    nodes = [
        machine(f"n{i}", cpus, devices, shareable) for i, (cpus, devices, shareable) in enumerate(machines)
    ]
    waiting = [
        request(
            f"j{i}",
            Flavor("f", "ascend", d, 0, 0) if accelerated else Flavor("c", "cpu", 0, max(1, d), 512),
            nodes=n,
            priority=p,
            at=i,
        )
        for i, (d, n, p, accelerated) in enumerate(jobs)
    ]
    plan = plan_queue(waiting, [], nodes, now=0)
    assert len(plan.admissions) + len(plan.waits) == len(waiting)
    for node in nodes:
        mine = [p for admission in plan.admissions for p in admission.placements if p.node == node.name]
        given_devices = [device for placement in mine for device in placement.devices]
        assert len(given_devices) == len(set(given_devices)) <= node.count("ascend")
        assert sum(p.cpus for p in mine) <= node.cpus + 1e-6
        assert sum(p.memory_mb for p in mine) <= node.memory_mb
    # Starting what was let start leaves no room that the first waiting job could have used.
    if plan.waits and not plan.admissions:
        assert all(not could_ever_fit(w.nodes, w.flavor, nodes) for w in waiting)


@given(
    st.lists(
        st.tuples(st.sampled_from([CPU1, CPU2, ASCEND8]), st.integers(1, 3), st.floats(0, 1000)), max_size=12
    ),
    st.integers(1, 4),
)
def test_who_starts_does_not_depend_on_whether_reasons_are_asked_for(
    wishes: list[tuple[Flavor, int, float]], cpus: int
) -> None:
    waiting = [
        request(f"j{index}", flavor, nodes=nodes, at=at) for index, (flavor, nodes, at) in enumerate(wishes)
    ]
    nodes = [machine("a", cpus=cpus), machine("b", cpus=cpus, devices=8)]
    full = plan_queue(waiting, [], nodes, 1000)
    short = plan_queue(waiting, [], nodes, 1000, explain=False)
    assert short.admissions == full.admissions and short.waits == ()
    assert len(full.admissions) + len(full.waits) == len(waiting)


def running(
    name: str, cpus: float = 1, priority: int = 0, at: float = 0.0, node: str = "a", leaving: bool = False
) -> Held:
    placements = (Placement(node, (), cpus, 0),)
    return Held(name, name, "cpu", placements, None, priority, at, is_preemptible=True, is_leaving=leaving)


def victims(waiting: list[Request], held: list[Held], nodes: list[Node]) -> list[tuple[str, str]]:
    return [(job.job_id, wanted.job_id) for job, wanted in choose_victims(waiting, held, nodes)]


def test_the_lowest_and_youngest_leave_and_only_as_many_as_must() -> None:
    held = [
        running("old", at=1),
        running("young", at=9),
        running("lower", priority=-5),
        running("wide", 1, 1),
    ]
    one = [request("urgent", priority=5)]
    assert victims(one, held, [machine()]) == [("lower", "urgent")]
    assert victims([request("two", CPU2, priority=5)], held, [machine()]) == [
        ("lower", "two"),
        ("young", "two"),
    ]
    # One that is wide enough leaves alone, although a smaller one was offered first.
    held = [running("small", 1, -9), running("large", 3, -8)]
    assert victims([request("three", Flavor("c", "cpu", 0, 3, 0), priority=5)], held, [machine()]) == [
        ("large", "three")
    ]


def test_nobody_leaves_in_vain_or_for_his_equal() -> None:
    held = [running("a", 2), running("b", 2)]
    assert not victims([request("equal", priority=0)], held, [machine()])
    assert not victims([request("huge", Flavor("c", "cpu", 0, 9, 0), priority=5)], held, [machine()])
    fixed = [Held("x", "x", "cpu", (Placement("a", (), 4, 0),))]
    assert not victims([request("urgent", priority=5)], fixed, [machine()])
    # Who is leaving already is enough.
    assert not victims(
        [request("urgent", CPU2, priority=5)], [running("a", 2, leaving=True), held[1]], [machine()]
    )
    # What is free counts as well, and each freed place only once.
    assert victims([request("u", CPU2, priority=5), request("v", CPU2, priority=4)], held, [machine()]) == [
        ("a", "u"),
        ("b", "v"),
    ]


def test_what_is_freed_for_a_job_is_kept_for_it() -> None:
    waiting = [Request("urgent", "urgent", 5, 0.0, 1, CPU2, has_claim=True), request("small", CPU1)]
    plan = plan_queue(waiting, [running("leaves", 3, leaving=True)], [machine()], 1.0)
    assert not plan.admissions and "leaving for it" in plan.waits[0].hint
    assert plan_queue(waiting[1:], [running("leaves", 3, leaving=True)], [machine()], 1.0).admissions
