"""The machines that engines offer, as last seen."""

from __future__ import annotations

from sqlalchemy import Connection, delete, insert, select

from trainshed.db import tables
from trainshed.model.flavor import Node
from trainshed.model.launch_plan import from_json, to_json

__all__ = ["all_nodes", "replace_nodes"]

_ALL = select(tables.nodes.c.node).order_by(tables.nodes.c.engine, tables.nodes.c.position)


def replace_nodes(connection: Connection, engine_name: str, found: list[Node]) -> None:
    """Store the machines of an engine in place of those known before."""
    nodes = tables.nodes
    connection.execute(delete(nodes).where(nodes.c.engine == engine_name))
    # A machine may belong to several pools of its engine: it stands there for each of them.
    rows = [
        {
            "engine": engine_name,
            "name": f"{node.pool}/{node.name}"[:255],
            "position": position,
            "node": to_json(node),
        }
        for position, node in enumerate(found)
    ]
    if rows:
        connection.execute(insert(nodes), rows)


def all_nodes(connection: Connection) -> list[Node]:
    """All machines of all engines."""
    return [from_json(Node, data) for data in connection.execute(_ALL).scalars()]
