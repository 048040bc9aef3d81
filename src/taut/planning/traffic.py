r"""
The traffic of a plan's step as a graph of networkx.

A graph node is a device, with its stage, replica and rank, and the node it is on. An edge carries the bytes of a step
(``taut.formulations.placement`` (3) and (4)): activations and gradients between the stages of a replica,
``pipeline``, and the ring of the replicas of a stage, ``data_parallel``, with ``bytes`` their sum. What ranks of one
block exchange stays in it and is left out.
"""

from typing import TYPE_CHECKING

import numpy as np

from taut.formulations.placement import placement_problem, ring_flow, trip_flow
from taut.solver.certificate.document import PlanDocument, by_replica, devices_of, problem_of, strategy_of

if TYPE_CHECKING:
    from networkx import DiGraph


def traffic_graph(plan: PlanDocument, source: str) -> "DiGraph[int]":
    """The graph of a plan's traffic, in bytes of a step."""
    from networkx import DiGraph

    problem, devices = problem_of(plan, source), devices_of(plan, source)
    strategy = strategy_of(plan.strategy, source)
    given, node_of = placement_problem(problem, strategy), problem.links.node_of
    graph: DiGraph[int] = DiGraph(name=f"{problem.model.name} on {problem.cluster.name}")
    for (stage, replica, rank), device in np.ndenumerate(by_replica(strategy.candidate, devices)):
        graph.add_node(int(device), stage=stage, replica=replica, rank=rank, node=int(node_of[device]))
    pipeline, rings = trip_flow(given), ring_flow(given)
    blocks = devices.swapaxes(0, 1).reshape(-1, strategy.candidate.width)
    for p, q in np.argwhere(pipeline + rings > 0.0):
        sent, reduced = float(pipeline[p, q]), float(rings[p, q])
        for a, b in zip(blocks[p].tolist(), blocks[q].tolist(), strict=True):
            graph.add_edge(a, b, bytes=sent + reduced, pipeline=sent, data_parallel=reduced)
    return graph
