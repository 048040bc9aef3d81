r"""
Bound ``relaxation``: closed forms on a candidate, whatever its division, placement and memory.

(1) Perfect balance: let W be the least seconds of a micro-batch's passes over all layers. pp stages with m
    micro-batches take at least W, and (m - 1) times the slowest stage, and the least communication. The slowest stage
    takes at least W / pp. A plan takes :math:`\sum_x t_x + (m - 1) \max_x t_x`, its hops, and what follows
    (``taut.formulations.latency`` (3) to (5)): the first sum is at least W, and each further summand its own least.
(2) Unequal devices: let type t take at least :math:`\rho_t \ge 1` times the least seconds of any type for every layer.
    A stage is as slow as the slowest of its dp b devices, with b devices a block. At least
    :math:`\lceil N / (dp\,b) \rceil` stages have one of the N slowest devices. With the slowest device first, the i-th
    slowest stage is therefore no faster than device i dp b. Within :math:`\theta` seconds it takes at most as many
    layers as the shortest layers whose least seconds add up to :math:`\theta / \rho_{i\,dp\,b}`. The slowest stage
    takes at least the least :math:`\theta` in which all stages take L layers.

(2') Layers may be slower by unlike ratios, as an embedding that is bound by memory. Let :math:`\sigma_t` be the seconds
    of type t for all layers, by W, and :math:`s_{lt}` the least of layer l on type t and all types of no less
    :math:`\sigma`. For the types of (2), in the order of :math:`\sigma`, the slowest stage takes at least
    :math:`\sum_l \min_i (s_{l t_i} / \sigma_{t_i}) \; / \; \sum_i 1 / \sigma_{t_i}`, since every stage i takes at least
    its layers' :math:`s_{l t_i}`.

    Where replicas divide the batch unevenly, one of them has m micro-batches or more, maybe on the quickest type alone,
    so that (1) holds and (2) does not.

Where a schedule is priced by its order, the step takes at least

(3) m times what the busiest device does with whole layers, or a micro-batch's trip there and back.

Reductions and optimizer after the last pass come on top.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats
from taut.data.costs import RECOMPUTE
from taut.formulations.gradient_reductions import least_within
from taut.formulations.mechanisms.recompute import in_part
from taut.formulations.order_division import ROUNDING as ORDER_ROUNDING
from taut.formulations.problem import PlanningProblem
from taut.formulations.schedules.orders import ON_V, SPLIT
from taut.formulations.sharding import NO_GATHERS, GatherRates, gather_slowdown, pass_seconds
from taut.formulations.space import Candidate
from taut.formulations.terms import gradient_bytes
from taut.solver.bounds.communication import Communication

ROUNDING = 1e-12
"""Relative allowance for the rounding of sums in floating point, taken off every bound."""


class LayerSeconds(NamedTuple):
    """Seconds of both passes of layers, (types, recompute, L), and the least: ``by_type``, of all, and the shortest."""

    seconds: Floats
    least: Floats
    by_type: Floats
    shortest: Floats
    whole: float
    longest: float


def layer_seconds(problem: PlanningProblem, candidate: Candidate) -> LayerSeconds:
    """Seconds of single layers under the recomputes of a candidate, on the best block that any type offers."""
    tables = problem.tables(candidate)
    # Where chunks recompute some layers each layer may be kept or recomputed.
    names = ("none", "full") if in_part(candidate) else problem.recompute_of(candidate)
    allowed = [RECOMPUTE.index(name) for name in names]
    layers = np.arange(tables.num_layers)
    within = least_within(problem, candidate, tables.traffic.at(slice(None), layers, layers + 1))
    seconds = (tables.seconds[:, :, layers, layers + 1] + within)[:, allowed]
    # Layer by layer: one type may be the fastest for some layers, another for the others.
    least = seconds.min(axis=(0, 1))
    shortest, whole, longest = np.cumsum(np.sort(least)), float(least.sum()), float(least.max())
    return LayerSeconds(seconds, least, seconds.min(axis=1), shortest, whole, longest)


def relaxation_bound(
    problem: PlanningProblem,
    candidate: Candidate,
    comm: Communication,
    gather: GatherRates = NO_GATHERS,
    layers: LayerSeconds | None = None,
) -> float:
    """Bound ``relaxation`` of a closed form: (1) and (2), with gathers and scatters at the rates ``gather``."""
    m, layers = candidate.num_micro_batches, layers or layer_seconds(problem, candidate)
    whole, straggler = _balanced(problem, candidate, gather, layers)
    cuts = (candidate.pp - 1) * comm.edge[1:-1].min(initial=np.inf) if candidate.pp > 1 else 0.0
    gradients = float(problem.tables(candidate).common[0, -1]) * gradient_bytes(problem.terms(candidate)) / candidate.pp
    ring = comm.ring * gradients + comm.ring_latency
    if comm.later is not None:
        ring += comm.later.optimizer * float(comm.later.parameters[0, -1]) / candidate.pp
    return float((whole + (m - 1) * straggler + cuts + comm.tail[1:].min() + ring) * (1 - ROUNDING))


def relaxation_of_order(
    problem: PlanningProblem, candidate: Candidate, comm: Communication, gather: GatherRates, layers: LayerSeconds
) -> float:
    """Bound ``relaxation`` of an order, (3), with communication; ``gather`` as in ``relaxation_bound``."""
    alone = _busiest(layers.least.tobytes(), candidate.pp, candidate.schedule in ON_V)
    computing = alone + candidate.vpp * _least_waits(problem, candidate, gather)
    busiest = max(_balanced(problem, candidate, gather, layers)[1], computing)
    passes = max(candidate.num_micro_batches * busiest, _trip(problem, candidate, layers.seconds))
    return float((passes + comm.tail[1:].min()) * (1 - ORDER_ROUNDING))


def _balanced(
    problem: PlanningProblem, candidate: Candidate, gather: GatherRates, layers: LayerSeconds
) -> tuple[float, float]:
    """Least seconds of a micro-batch's passes over all layers, and of the slowest stage, (1) and (2)."""
    whole = max(layers.whole, _whole_gathers(problem, candidate, gather))
    paces = _paces(problem, candidate, layers.by_type)
    slowest = max(_slowest_stage(layers, paces), mean_stage(problem, candidate, layers.by_type, layers.whole))
    return whole, max(whole / candidate.pp, slowest, layers.longest)


def _paces(problem: PlanningProblem, candidate: Candidate, by_type: Floats) -> Floats:
    """Seconds of every stage by the least seconds of its layers at least, the slowest stage first (pp,), (2)."""
    least = by_type.min(axis=0)
    if len(by_type) == 1 or candidate.pipelines_by_type or not least.any():
        return np.ones(candidate.pp)
    ratio = (by_type[:, least > 0] / least[least > 0]).min(axis=1)
    of_device = np.repeat(ratio[problem.type_of_node], problem.links.gpus_per_node)
    slowest_first = np.sort(of_device)[::-1]
    return np.asarray(slowest_first[:: candidate.pipelines * candidate.width])


def mean_stage(problem: PlanningProblem, candidate: Candidate, by_type: Floats, whole: float) -> float:
    """Least seconds of the slowest stage by the types' seconds for layers (types, L) and the least of all, (2')."""
    if len(by_type) == 1 or candidate.pipelines_by_type or whole == 0.0:
        return 0.0
    pace = by_type.sum(axis=1) / whole
    order = np.argsort(-pace, kind="stable")
    at_least = np.empty_like(by_type)
    at_least[order] = np.minimum.accumulate(by_type[order], axis=0)
    of_device = np.repeat(np.argsort(order)[problem.type_of_node], problem.links.gpus_per_node)
    types = order[np.sort(of_device)[:: candidate.pipelines * candidate.width]]
    return float((at_least[types] / pace[types, None]).min(axis=0).sum() / (1.0 / pace[types]).sum())


def _slowest_stage(layers: LayerSeconds, paces: Floats) -> float:
    """Least seconds of the slowest stage, over whole layers in any groups, (2)."""
    within = layers.shortest
    if paces[0] == 1.0:
        # All stages are as fast, so the slowest has the mean of the layers, rounded up.
        return max(float(within[-(-len(within) // len(paces)) - 1]), layers.whole / len(paces))
    steps = np.unique(within[:, None] * np.unique(paces))
    low, high = 0, len(steps) - 1
    while low < high:
        middle = (low + high) // 2
        # A stage of this pace may end within its step by the rounding of their quotient.
        held = np.searchsorted(within, steps[middle] / paces * (1 + ROUNDING), side="right").sum()
        low, high = (low, middle) if held >= len(within) else (middle + 1, high)
    return float(max(steps[low] if len(steps) else 0.0, layers.whole / (1.0 / paces).sum()))


def _whole_gathers(problem: PlanningProblem, candidate: Candidate, gather: GatherRates) -> float:
    """Seconds of a micro-batch's passes over all layers, each at least its slowed computation and its gathers."""
    if gather == NO_GATHERS:
        return 0.0
    layers, passes = np.arange(problem.tables(candidate).num_layers), problem.passes(candidate)
    forward, backward = passes.forward, passes.input_gradient + passes.weight_gradient
    least = [each[:, :, layers, layers + 1].min(axis=(0, 1)).sum() for each in (forward, backward)]
    sent = pass_seconds(problem, candidate, gather)
    gathers = [sent.forward_alone + sent.forward_beside, sent.backward_alone + sent.backward_beside]
    slow = gather_slowdown(problem)
    return float(sum(max(one + slow * every[0, -1], every[0, -1]) for one, every in zip(least, gathers, strict=True)))


def _trip(problem: PlanningProblem, candidate: Candidate, seconds: Floats) -> float:
    """Least seconds of one micro-batch through all layers and back, after which the first device ends."""
    layers = np.arange(problem.tables(candidate).num_layers)
    if candidate.schedule in SPLIT:
        allowed = [RECOMPUTE.index(name) for name in problem.recompute_of(candidate)]
        seconds = seconds - problem.passes(candidate).weight_gradient[:, allowed][..., layers, layers + 1]
    return float(seconds.min(axis=(0, 1)).sum())


def _least_waits(problem: PlanningProblem, candidate: Candidate, gather: GatherRates) -> float:
    """Seconds that the passes of a stage or chunk wait at least for the first gather and the last scatter of each."""
    if gather == NO_GATHERS:
        return 0.0
    layers, sent = np.arange(problem.tables(candidate).num_layers), pass_seconds(problem, candidate, gather)
    alone = sent.forward_alone + sent.backward_alone
    return float(alone[layers, layers + 1].min())


@lru_cache(maxsize=1024)
def _busiest(figures: bytes, pp: int, on_v: bool) -> float:
    """
    Least seconds for a micro-batch of the busiest of pp devices, from those of layers, over whole layers in any groups.

    First and last layer, with embedding and head, lie on one device under a V and on two elsewhere. With k of the
    other n layers beside them, some other device has at least the mean of the rest, rounded up.
    """
    least = np.frombuffer(figures)
    inner = np.concatenate([[0.0], np.cumsum(np.sort(least[1:-1]))])
    n, others = len(inner) - 1, pp - (1 if on_v else 2)
    first = np.arange(n + 1)[:, None]
    if on_v:
        rest, edges = n - first, least[0] + least[-1] + inner[first]
    else:
        last = np.arange(n + 1)[None, :]
        rest, edges = n - first - last, np.maximum(least[0] + inner[first], least[-1] + inner[last])
    possible = (rest >= 0) & ((others > 0) | (rest == 0))
    mean = inner[np.where(possible, -(-rest // max(others, 1)), 0)]
    return float(np.where(possible, np.maximum(edges, mean), np.inf).min())
