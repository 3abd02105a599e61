"""What a job asks for that the machines of a pool elsewhere cannot give, said before anything is queued."""

from __future__ import annotations

from trainshed.model.errors import InvalidInput, NotAllowed
from trainshed.model.job_spec import JobSpec
from trainshed.model.pools import Pool

__all__ = ["check_pool"]


def check_pool(spec: JobSpec, pool: Pool, *, open_network: bool) -> None:
    """Refuse a job that its pool could not run as it is meant."""
    if pool.engine == "local":
        return
    if spec.nodes > 1 and spec.network == "none":
        raise InvalidInput(
            f"The {spec.nodes} nodes of this job are machines of their own: without a network they cannot meet.",
            hint="Leave `network` out, or use one node; jobs of one node keep the network they ask for.",
            code="network_needed",
            where="network",
        )
    if spec.nodes > 1 and not open_network:
        raise NotAllowed(
            f"Nodes of the pool '{pool.name}' reach each other over the machines' own network, "
            "which this platform does not let jobs use.",
            hint="Use one node, or ask the administrator (setting open_network).",
            code="open_network_forbidden",
            where="nodes",
        )
    if spec.dialect == "apulis" and not pool.shared_folder:
        raise InvalidInput(
            f"Jobs of the dialect apulis keep /home and /data from job to job, and the machines of the pool "
            f"'{pool.name}' share no folder for that.",
            hint=f"Ask the administrator to set shared_folder of [pools.{pool.name}], or use another dialect.",
            code="no_shared_folder",
            where="dialect",
        )
