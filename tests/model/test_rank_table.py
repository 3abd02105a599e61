"""Rank tables in their three forms: written, read back, checked and merged."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainshed.model.errors import InvalidInput
from trainshed.model.rank_table import RankDevice, Server, render_a, render_b, render_c
from trainshed.model.rank_table_check import check_table, merge_tables, read_table

GOLDEN = Path(__file__).parent / "golden"


def servers(count: int, devices: int) -> tuple[Server, ...]:
    return tuple(
        Server(
            f"10.0.{index // 200}.{index % 200 + 1}",
            f"job-worker-{index}",
            tuple(
                RankDevice(slot, f"192.{index // 200}.{index % 200}.{slot + 1}") for slot in range(devices)
            ),
        )
        for index in range(count)
    )


RENDERED = {"A": lambda found: render_a(found), "B": lambda found: render_b(found, "job"), "C": render_c}


@pytest.mark.parametrize("form", RENDERED)
def test_two_servers_of_two_devices(form: str) -> None:
    text = RENDERED[form](servers(2, 2))
    path = GOLDEN / f"rank-table-{form}.json"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("form", RENDERED)
@given(count=st.integers(1, 300), devices=st.sampled_from([1, 2, 4, 8, 16]))
def test_any_table_that_we_write_is_read_back_and_right(form: str, count: int, devices: int) -> None:
    found = servers(count, devices)
    text = RENDERED[form](found)
    table = read_table(text)
    assert table.form == form and table.size == count * devices
    assert [server.devices for server in table.servers] == [server.devices for server in found]
    assert check_table(table) == []
    assert all(isinstance(value, str) for value in _scalars(json.loads(text)))


def _scalars(data: object) -> list[object]:
    if isinstance(data, dict):
        return [leaf for value in data.values() for leaf in _scalars(value)]
    if isinstance(data, list):
        return [leaf for value in data for leaf in _scalars(value)]
    return [data]


def test_mistakes_are_named() -> None:
    table = read_table(render_c(servers(2, 8)))
    doubled = replace(table, ranks=(table.ranks[0], table.ranks[0]))
    assert any("rank 0, 1, 2" in fault and "several devices" in fault for fault in check_table(doubled))
    assert any("status" in fault for fault in check_table(replace(table, status="initializing")))
    same = replace(table, servers=(table.servers[0], table.servers[0]))
    faults = check_table(same)
    assert any("listed twice" in fault for fault in faults) and any("device_ip" in fault for fault in faults)
    odd = replace(
        table, servers=(replace(table.servers[0], devices=table.servers[0].devices[:3]), table.servers[1])
    )
    assert any("3 devices" in fault for fault in check_table(odd))
    wrong = json.loads(render_c(servers(1, 1)))
    wrong["server_count"] = "2"
    wrong["server_list"][0]["device"][0]["device_ip"] = "no"
    faults = check_table(read_table(json.dumps(wrong)))
    assert any("server_count" in fault for fault in faults) and any("device_ip" in fault for fault in faults)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"group_list": [{}]}', '{"server_list": [{"server_id": "x"}]}', "{"]
)
def test_what_is_no_rank_table_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        read_table(text)


def test_tables_of_single_servers_become_one() -> None:
    one, two = servers(2, 8)
    merged = merge_tables([read_table(render_c((one,))), read_table(render_a((two,)))])
    table = read_table(render_c(merged))
    assert table.ranks[1] == tuple(str(rank) for rank in range(8, 16)) and check_table(table) == []
    with pytest.raises(InvalidInput, match="more than one"):
        merge_tables([read_table(render_c((one,))), read_table(render_c((one,)))])
