"""Xihe: a project's script with named inputs and, where the user asks for them, `output_path` and `aim_repo`.

It runs on ModelArts' second generation, so paths and variables are the same. Scripts parse their arguments strictly:
nothing is passed that the user did not name.
"""

from __future__ import annotations

from trainshed.dialects.modelarts_v2 import RESERVED_VARIABLES, host_names, plan_node

__all__ = ["RESERVED_PARAMETERS", "RESERVED_VARIABLES", "host_names", "plan_node"]

# They are outputs: enabled by naming them so.
RESERVED_PARAMETERS: frozenset[str] = frozenset({"output_path", "aim_repo"})
