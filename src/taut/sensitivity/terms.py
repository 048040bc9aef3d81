r"""
A problem at other prices of its terms.

(1) Links: every rate divided by x, cards included, and every latency times x, so that all communication takes x times
    as long alone. Nothing else changes.
(2) Memory: what a device has for a plan, its capacity less the margin, times y. With a margin of a share m of capacity
    C and g bytes beside it, :math:`y (C (1 - m) - g)` is the same of capacity y C and y g bytes; capacities are rounded
    up to whole KiB and one more, so that no plan is lost by rounding.
"""

import math
from dataclasses import replace

from taut.data.cluster import ClusterSpec
from taut.data.memory import MemoryModel
from taut.data.units import GIB, KIB
from taut.errors import DataError
from taut.formulations.problem import PlanningProblem

RATES, TIMES = ("intra_bandwidth_gbps", "nic_bandwidth_gbps", "bandwidth_gbps"), ("intra_latency_us", "latency_us")


def at_prices(problem: PlanningProblem, *, links: float = 1.0, memory: float = 1.0) -> PlanningProblem:
    """
    The same problem with links x times as slow, (1), and y times the memory, (2).

    Parameters
    ----------
    problem
        The stated problem; tables of its layers are shared.
    links, memory
        Factors x and y, above 0.

    Raises
    ------
    DataError
        If memory is scaled that a trained model predicts, whose margin is not a share.
    """
    if memory != 1.0 and problem.memory.network is not None:
        raise DataError("memory: predicted by a trained model, expected no factor of it")
    cluster = _slower(problem.cluster, links) if links != 1.0 else problem.cluster
    if memory == 1.0:
        return replace(problem, cluster=cluster)
    kept = problem.memory.model_copy(update={"margin_gib": memory * problem.memory.margin_gib})
    return replace(problem, cluster=_larger(cluster, memory), memory=kept)


def used_share(problem: PlanningProblem, used: list[int], capacity: list[int]) -> float:
    """The largest share of what a stage's devices have for it, (2), that its predicted bytes take."""
    kept: MemoryModel = problem.memory
    has = [have - KIB * kept.margin_kib(have // KIB) for have in capacity]
    return max((need / have for need, have in zip(used, has, strict=True) if have > 0), default=0.0)


def _slower(cluster: ClusterSpec, factor: float) -> ClusterSpec:
    values = cluster.model_dump(mode="json")
    for described in (*values["nodes"], values["network"], *values["network"]["racks"]):
        for name in RATES:
            if described.get(name) is not None:
                described[name] /= factor
        for name in TIMES:
            if described.get(name) is not None:
                described[name] *= factor
    if (rates := values["bandwidth_matrix"]) is not None:
        rates["rows"] = [[entry / factor for entry in row] for row in rates["rows"]]
    if (times := values["latency_matrix"]) is not None:
        times["rows_us"] = [[entry * factor for entry in row] for row in times["rows_us"]]
    return ClusterSpec.parse(values, "links at another rate")


def _larger(cluster: ClusterSpec, factor: float) -> ClusterSpec:
    values = cluster.model_dump(mode="json")
    for node in values["nodes"]:
        kib = math.ceil(node["device"]["memory_gib"] * factor * GIB / KIB) + 1
        node["device"]["memory_gib"] = kib * KIB / GIB
    return ClusterSpec.parse(values, "another memory")
