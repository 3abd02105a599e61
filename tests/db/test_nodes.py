"""Machines in the database."""

from __future__ import annotations

from sqlalchemy import Engine

from trainshed.db.engine import begin, read
from trainshed.db.nodes import all_nodes, replace_nodes
from trainshed.model.flavor import Device, Node


def test_the_machines_of_an_engine_are_replaced_as_a_whole(engine: Engine) -> None:
    laptop = Node("b", "default", 2.5, 4096, (Device("ascend", 0, "x", 1, True), Device("nvidia", 1)))
    spare = Node("a", "default", 1, 1024, state="drained", reason="repair", shareable=False)
    cluster = Node("c", "big", 64, 1 << 20, engine="slurm")
    with begin(engine) as connection:
        replace_nodes(connection, "slurm", [cluster])
        replace_nodes(connection, "local", [spare])
        replace_nodes(connection, "local", [laptop, spare])
    with read(engine) as connection:
        assert all_nodes(connection) == [laptop, spare, cluster]
    with begin(engine) as connection:
        replace_nodes(connection, "local", [])
        assert all_nodes(connection) == [cluster]
