r"""
Bound ``node-slots``: exact division of the layers with the nodes that every stage takes, for few nodes of any types.

Sets: states of the slots (``taut.solver.placement.exact.slot_states``): a stage takes a vector u of slots on nodes.
Data: seconds t[n, r, i, j] of layers [i, j) with recompute r as a stage on a block of node n, forward[n, i, j] of the
forward pass, hop(n, n') and before(n, n') in full and without its way back, :math:`\rho(u)` seconds per byte of a ring.

Some pipeline z meets the slowest stage of all. It passes each stage on one of the nodes of its u, so

(1) stage x takes it :math:`low(u) = \min_{n: u_n > 0} t_n` at least, the slowest takes :math:`\theta`, the largest
    :math:`\max_{n: u_n > 0} t_n`, and a hop the least of the nodes of both vectors. Every node of u must hold the
    stage.
(2) LB = :math:`\min_\theta (m - 1) \theta + D_\theta`, with :math:`D_\theta` the least sum of (1) and of what is waited
    for over all divisions and states within :math:`\theta`, found by the labels of
    ``taut.solver.layer_division.labels``. The ring of a stage is that of its u, exactly.
(3) In ``amp`` the slowest ring comes after the whole pipeline, so a stage waits in full. In ``pipette`` stage 0
    alone is waited for. In ``step`` the optimizer takes at least that of an even division.
(4) Where all nodes are alike every pipeline takes as long but for its hops, so the mean hop of all replicas counts
    (``taut.solver.placement.exact.slot_figures`` (2)), or the hops of the pipeline that leaves its node most often
    (``taut.solver.placement.exact.slot_hops``). A single stage is a whole pipeline on one node, so low(u) is the
    largest :math:`t_n` there.
(5) Where first and last stage exchange the gradient of a tied embedding, each vector of the first stage is a case, and
    so is what the exchange takes at least (``taut.solver.placement.exact.slot_ties``).
(6) As :math:`D_\theta \ge D_\infty`, no :math:`\theta` with :math:`(m - 1) \theta + D_\infty` above the best is tried.

It applies where the devices of a node are interchangeable, and is the optimum where every vector is on one node or on
nodes alike, but for the optimizer in ``step`` and what overlaps. Dynamic programming over the capacity that is left is
that of the multidimensional knapsack problem.

References
----------
Kellerer, Pferschy and Pisinger (2004), Knapsack problems, section 9.3.2: states of capacities.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Ints
from taut.data.costs import RECOMPUTE
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.formulations.strategy import Division
from taut.formulations.terms import gathers_of
from taut.solver.bounds.communication import optimizer_per_parameter, waits_for_every_stage
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.bounds.relaxation import ROUNDING
from taut.solver.layer_division.divide import Partition
from taut.solver.layer_division.labels import least_division, thresholds_of
from taut.solver.placement.exact.joint import Joint
from taut.solver.placement.exact.slot_figures import Figures, graph_of, ranges_of, slot_figures
from taut.solver.placement.exact.slot_hops import hop_cases
from taut.solver.placement.exact.slot_positions import slot_positions
from taut.solver.placement.exact.slot_states import SlotStates, interchangeable, slot_states
from taut.solver.placement.exact.slot_ties import tied_cases


@dataclass
class SlotCache:
    """States by degrees, shared by the candidates that differ in other things; None for too many."""

    _listed: dict[tuple[int, int], SlotStates | None] = field(default_factory=dict)

    def listed(self, problem: PlanningProblem, candidate: Candidate) -> SlotStates | None:
        """List the states of a candidate's slots."""
        key = (candidate.tp, candidate.pp)
        if key not in self._listed:
            self._listed[key] = slot_states(*_slots(problem, candidate), candidate.pp, candidate.dp)
        return self._listed[key]


def _slots(problem: PlanningProblem, candidate: Candidate) -> tuple[Ints, Ints]:
    """Blocks that every node holds, and classes of nodes that can change places."""
    return problem.links.gpus_per_node // candidate.tp, interchangeable(problem.links, problem.type_of_node)


def has_node_slots(problem: PlanningProblem, candidate: Candidate, cache: SlotCache) -> bool:
    """
    Say whether the bound applies: stages in closed form, on few nodes of several types or by AMP's model.

    ``problem``, ``candidate``: what is bounded; weights not sharded over replicas, and blocks that are tensor groups
    within nodes. Returns whether it applies.
    """
    return (
        candidate.is_plain
        and (len(problem.device_types) > 1 or problem.latency.rings_are_flat)
        and problem.links.by_node
        and candidate.tp <= problem.links.gpus_per_node.min()
        and not gathers_of(problem.terms(candidate))
        and cache.listed(problem, candidate) is not None
    )


def solve_by_slots(
    problem: PlanningProblem, candidate: Candidate, best: BestLinks, cache: SlotCache, *, margin: bool = True
) -> Joint:
    """
    Compute bound (2) of a candidate for which ``has_node_slots`` holds.

    Returns the bound with a placement that attains it where vectors are on nodes alike; infinite and without partition
    if nothing fits.
    """
    listed = cache.listed(problem, candidate)
    assert listed is not None
    figures = slot_figures(problem, candidate, best, listed.vectors, margin=margin)
    m, slots = candidate.num_micro_batches, _slots(problem, candidate)
    value, picks, states = _least_of_cases(tied_cases(problem, candidate, figures, listed, *slots), m)
    whole = _least_of_cases(hop_cases(problem, candidate, figures, listed), m)
    if states is not None and whole.states is not None and whole.seconds > value:
        value, picks, states = whole
    if states is None:
        none = Partition(seconds=np.inf)
        return Joint(lower_bound=np.inf, partition=none, positions=np.zeros((0, 1), np.int64), exact=False)
    value += _least_optimizer(problem, candidate)
    ends = picks[:, 0].tolist()
    division = Division(
        tuple(zip((0, *ends[:-1]), ends, strict=True)), tuple(RECOMPUTE[choice] for choice in picks[:, 1])
    )
    partition = Partition(seconds=value, division=division, patterns=(0,) * candidate.pp)
    positions = slot_positions(states.vectors[picks[:, 2]], *slots)
    return Joint(lower_bound=value * (1 - ROUNDING), partition=partition, positions=positions, exact=False)


class _Found(NamedTuple):
    """The least of some cases, with end, recompute and vector of every stage; without states where none fits."""

    seconds: float
    picks: Ints
    states: SlotStates | None


def _least_of_cases(cases: Iterable[tuple[Figures, SlotStates]], m: int) -> _Found:
    """The least of (2) over the cases, for m micro-batches."""
    found = _Found(np.inf, np.zeros((0, 3), np.int64), None)
    for figures, listed in cases:
        ranges = ranges_of(figures)
        seconds, picks = least_division(ranges, graph_of(listed), m, thresholds_of(ranges), found.seconds)
        if picks is not None and seconds < found.seconds:
            found = _Found(seconds, picks, listed)
    return found


def _least_optimizer(problem: PlanningProblem, candidate: Candidate) -> float:
    """Seconds of the optimizer of an even division, (3)."""
    if not waits_for_every_stage(problem, candidate):
        return 0.0
    return (
        optimizer_per_parameter(problem, candidate) * float(problem.tables(candidate).parameters[0, -1]) / candidate.pp
    )
