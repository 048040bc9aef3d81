r"""
Least seconds of a simulated step, whatever stages, recompute and placement: longest paths with tasks left out.

Sets: stages x on layers [i, j), recompute r that the memory allows, device types k; m micro-batches, p stages.
Data: seconds of a layer's forward pass F and of all its passes T, each on the best type and block, with the least
recompute (``taut.formulations.tables``); t(x, i, j) the same of a range, on types and under recompute that fit; bytes
of gradients, and seconds per byte of the least ring (``taut.solver.bounds.least_rings``).

Every path of the graph (``taut.formulations.simulation.graph``) is a bound. With messages left out,

(1) a stage runs all its passes one after another; its first waits for one forward pass of every stage before it, and
    where the backward pass is whole one backward pass of each of these follows its last:

    .. math:: T \ge \sum_{l < i} T_l + m \, t(x, i, j);

    Under ZeRO-2 and 3 the first gather and the last scatter of a pass stand alone, so a micro-batch takes t and these,
    or all gathers and scatters, which share one stream, whichever is longer;

(2) its gradients are reduced after its last pass, unless that overlaps:

    .. math:: T \ge \sum_{l < i} F_l + m \, t(x, i, j) + \rho \, bytes_{ij}.

(3) The path of (1) ends on the first stage, whose gradients are reduced then. For every end of that stage the best
    division of the others makes the largest of (1) least, and that of (1) and (2), by a dynamic program from the last
    stage on, :math:`D[x, i] = \min_j \max(C[x, i, j], D[x + 1, j])`. Where devices have several chunks their mean
    counts instead: :math:`T \ge (m \sum_l T_l + \rho \, bytes) / p`.
(4) The optimizer of some device has an equal share of the parameters at least, after all reductions.

An adapted order changes none of it. With one stage (2) is exact but for the ring. Flows that share cards only delay
each other (``taut.formulations.simulation.graph`` (12)), so no step with shared cards is faster either.
"""

import math

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.data.costs import RECOMPUTE
from taut.formulations.gradient_reductions import overlaps
from taut.formulations.mechanisms.offload import optimizer_seconds
from taut.formulations.mechanisms.recompute import in_part
from taut.formulations.mechanisms.shards import optimizer_shards
from taut.formulations.problem import PlanningProblem
from taut.formulations.schedules.orders import SPLIT
from taut.formulations.sharding import NO_GATHERS, pass_seconds
from taut.formulations.simulation.graph import operator_graph
from taut.formulations.space import Candidate
from taut.formulations.strategy import Strategy
from taut.formulations.tables.block_traffic import best_block
from taut.formulations.tables.memory import stage_memory
from taut.solver.bounds.least_rings import least_gather, least_reduction
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.bounds.relaxation import ROUNDING, layer_seconds


def simulated_seconds(problem: PlanningProblem, strategy: Strategy, devices: Ints) -> float:
    """Seconds of a plan's simulated step, at the prices of ``step``; ``devices`` of every worker (pp, dp, tp cp)."""
    given = problem.priced_by("step")
    graph = operator_graph(given, strategy, devices)
    return float((graph.times() + graph.seconds).max()) + given.constant_of(strategy.candidate)


def least_simulated(problem: PlanningProblem) -> float:
    """Seconds that no plan of the space simulates faster than."""
    given = problem.priced_by("step")
    best = BestLinks(given.links, given.rings)
    return min((simulated_bound(given, candidate, best) for candidate in problem.candidates), default=math.inf)


def simulated_bound(problem: PlanningProblem, candidate: Candidate, best: BestLinks) -> float:
    """Seconds that no simulated step of a candidate beats, (1) to (4); infinite where no division fits."""
    forward, whole = _least_seconds(problem, candidate)
    tables, m, pp = problem.tables(candidate), candidate.num_micro_batches, candidate.pp
    ring = 0.0 if overlaps(problem, candidate) else least_reduction(problem, candidate, best)
    reductions = ring * problem.gradient_bytes(candidate)
    layers = np.arange(tables.num_layers)
    least = _least_of_layers(problem, candidate, whole)
    alone, every = _shards(problem, candidate, best)
    if candidate.vpp > 1:
        seconds = (m * max(float(least.sum()), float(every[0, -1])) + float(reductions[0, -1])) / pp
    else:
        before = np.concatenate([[0.0], least.cumsum()])
        ahead = np.concatenate([[0.0], np.diagonal(forward.min(axis=0), 1).cumsum()])
        busy = m * _fitting(problem, candidate, np.maximum(whole + alone, every))
        back = before[:, None] + busy if candidate.schedule not in SPLIT else np.where(np.isfinite(busy), 0.0, np.inf)
        seconds = _best_division(busy[0, 0], reductions[0], back[1:], (ahead[:, None] + busy + reductions)[1:])
    optimizer = float(optimizer_seconds(problem, candidate).min()) * float(tables.parameters[layers, layers + 1].sum())
    seconds += optimizer / optimizer_shards(candidate) / pp + problem.least_constant(candidate)
    return float(seconds * (1 - ROUNDING))


def _least_seconds(problem: PlanningProblem, candidate: Candidate) -> tuple[Floats, Floats]:
    """Seconds of every range forward (types, L+1, L+1), and of all passes under each recompute it may choose."""
    tables, passes, links = problem.tables(candidate), problem.passes(candidate), problem.links
    allowed = [RECOMPUTE.index(name) for name in problem.recompute_of(candidate)]
    forward, whole = [], []
    for kind in range(len(problem.device_types)):
        link = best_block(links, problem.type_of_node == kind, candidate.block)
        forward.append(passes.forward[kind, allowed].min(axis=0) + tables.forward.seconds(link))
        whole.append(tables.seconds[kind, allowed] + tables.traffic.at(np.array(allowed)).seconds(link))
    return np.array(forward), np.array(whole)


def _least_of_layers(problem: PlanningProblem, candidate: Candidate, whole: Floats) -> Floats:
    """Least seconds of all passes of every layer (L,), of which chunks that recompute in part may keep any."""
    if in_part(candidate):
        return layer_seconds(problem, candidate).least
    return np.asarray(np.diagonal(whole.min(axis=(0, 1)), 1))


def _shards(problem: PlanningProblem, candidate: Candidate, best: BestLinks) -> tuple[Floats, Floats]:
    """Seconds of gathers and scatters of a micro-batch on every range that stand alone, and of all, (L+1, L+1)."""
    gather = least_gather(problem, candidate, best)
    if gather == NO_GATHERS:
        none = np.zeros((problem.num_layers(candidate) + 1,) * 2)
        return none, none
    sent = pass_seconds(problem, candidate, gather)
    alone = sent.forward_alone + sent.backward_alone
    return alone, alone + sent.forward_beside + sent.backward_beside


def _fitting(problem: PlanningProblem, candidate: Candidate, whole: Floats) -> Floats:
    """T of every stage and range, (pp, L+1, L+1); infinite where nothing fits or the range is empty."""
    memory = stage_memory(problem, candidate)
    allowed = [RECOMPUTE.index(name) for name in problem.recompute_of(candidate)]
    some = np.triu(np.ones(whole.shape[-2:], dtype=bool), 1)
    found = np.full((candidate.pp, *some.shape), np.inf)
    for x in range(candidate.pp):
        need = memory.need(x)[allowed]
        fits = (need[None] <= memory.budget[:, None, None, None]) & some
        found[x] = np.where(fits, whole, np.inf).min(axis=(0, 1))
    return found


def _best_division(first: Floats, reductions: Floats, back: Floats, after: Floats) -> float:
    """The least bound over ends of the first stage (L+1,), (3), from paths to it and to others (pp - 1, L+1, L+1)."""
    returned = _least_largest(back) + reductions
    either = _least_largest(np.maximum(back, after))
    return float(np.maximum(first + reductions, np.maximum(returned, either)).min())


def _least_largest(paths: Floats) -> Floats:
    """The least that the largest path of stages from any cut to the last layer can be, (L+1,)."""
    left = np.where(np.arange(paths.shape[-1]) == paths.shape[-1] - 1, 0.0, np.inf)
    for stage in paths[::-1]:
        left = np.maximum(stage, left[None, :]).min(axis=1)
    return np.asarray(left)
