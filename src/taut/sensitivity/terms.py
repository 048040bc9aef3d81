r"""
A problem at other prices of its terms.

(1) Links: every rate divided by x, cards and links to hosts included, and every latency times x, so that all
    communication takes x times as long alone. Nothing else changes.
(2) Memory: what a device has for a plan, its capacity less the margin, times y. With a margin of a share m of capacity
    C and g bytes beside it, :math:`y (C (1 - m) - g)` is the same of capacity y C and y g bytes; capacities are rounded
    up to whole KiB and one more, so that no plan is lost by rounding.
(3) Imbalance: the load of the fullest rank's experts over the mean, times z: its products, its exchanges, and what they
    keep in memory. Layers are priced anew, which analytic costs allow and measured ones do not.
"""

import math
from dataclasses import replace

from taut.data.cluster import ClusterSpec
from taut.data.units import GIB, KIB
from taut.errors import DataError, TautError
from taut.formulations.problem import PlanningProblem
from taut.planning.resolve import wider_costs

RATES = ("intra_bandwidth_gbps", "nic_bandwidth_gbps", "bandwidth_gbps", "host_link_gbytes")
TIMES = ("intra_latency_us", "latency_us")


def at_prices(
    problem: PlanningProblem, *, links: float = 1.0, memory: float = 1.0, imbalance: float = 1.0
) -> PlanningProblem:
    """
    The same problem with links x times as slow, (1), y times the memory, (2), and z times the imbalance, (3).

    ``problem``: the stated problem; tables of its layers are shared; ``links``, ``memory``: factors x and y, above 0;
    ``imbalance``: factor z, of a problem for which ``prices_imbalance``. Raises ``DataError`` if memory is scaled that
    a trained model predicts, whose margin is not a share.
    """
    if memory != 1.0 and not problem.memory.is_sum_of_terms:
        raise DataError("memory: predicted by a trained model, expected no factor of it")
    if imbalance != 1.0:
        problem = _less_even(problem, imbalance)
    cluster = _slower(problem.cluster, links) if links != 1.0 else problem.cluster
    if memory == 1.0:
        return replace(problem, cluster=cluster)
    kept = problem.memory.model_copy(update={"margin_gib": memory * problem.memory.margin_gib})
    return replace(problem, cluster=_larger(cluster, memory), memory=kept)


def prices_imbalance(problem: PlanningProblem) -> bool:
    """Whether layers can be priced anew at another imbalance: those of experts, by the analytic model, (3)."""
    if not problem.model.has_experts:
        return False
    try:
        return wider_costs(problem, None, problem.space.max_tp).digest() == problem.costs.digest()
    except TautError:
        return False


def _less_even(problem: PlanningProblem, factor: float) -> PlanningProblem:
    dispatch = problem.space.dispatch
    uneven = dispatch.model_copy(update={"imbalance": factor * dispatch.imbalance})
    space = problem.space.model_copy(update={"dispatch": uneven})
    asked = PlanningProblem(
        problem.model, problem.cluster, problem.costs, problem.memory, space, problem.latency_model,
        problem.calibration, overlap_grad_reduce=problem.overlap_grad_reduce,
    )  # fmt: skip
    costs = wider_costs(asked, None, space.max_tp)
    return PlanningProblem(
        problem.model, problem.cluster, costs, problem.memory, space, problem.latency_model,
        problem.calibration, overlap_grad_reduce=problem.overlap_grad_reduce,
    )  # fmt: skip


def _slower(cluster: ClusterSpec, factor: float) -> ClusterSpec:
    values = cluster.model_dump(mode="json")
    devices = [node["device"] for node in values["nodes"]]
    for described in (*values["nodes"], *devices, values["network"], *values["network"]["racks"]):
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
