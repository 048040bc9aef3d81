r"""
Simple plans: even divisions of the layers, workers in the order of the devices.

With L layers and C chunks (stages, times chunks of a device),

(1) every chunk has :math:`\lfloor L / C \rfloor` layers, and of the L mod C others the inner chunks have one each, from
    the second on, since the first and the last also have embedding and head; where a framework states other divisions
    alone, the most even of those takes its place;
(2) all chunks have one recompute, the quickest of those within memory unless it is given;
(3) rank order: tensor ranks fastest, then context ranks, replicas and stages, as Megatron-LM numbers them.
"""

import numpy as np

from taut.data.arrays import Ints
from taut.data.costs import RECOMPUTE
from taut.formulations.divisions import families_of, is_stated
from taut.formulations.latency import step_time, violations
from taut.formulations.partition import stated_divisions
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.formulations.strategy import Strategy, division_of_layers
from taut.solver.result import Incumbent


def even_chunks(layers: int, candidate: Candidate) -> Ints:
    """Layers of every chunk, (1)."""
    chunks = candidate.pp * candidate.vpp
    each, more = divmod(layers, chunks)
    found = np.full(chunks, each)
    found[(1 + np.arange(more)) % chunks] += 1
    return found


def _stated_chunks(problem: PlanningProblem, candidate: Candidate) -> Ints:
    """Layers of every chunk by (1), or of the most even division that the space states where that is none."""
    found, known = even_chunks(len(problem.model.blocks), candidate), stated_divisions(problem, candidate)
    if known is None or is_stated(found, families_of(problem, candidate)):
        return found
    return np.asarray(known[np.ptp(known, axis=1).argmin()])


def rank_order(candidate: Candidate) -> Ints:
    """Device of every worker, (pp, pipelines, width), by (3)."""
    shape = candidate.pp, candidate.pipelines, candidate.width
    return np.arange(int(np.prod(shape))).reshape(shape)


def even_strategy(problem: PlanningProblem, candidate: Candidate, recompute: str) -> Strategy:
    """The candidate with (1) and one recompute."""
    layers = _stated_chunks(problem, candidate)
    kinds = np.full(len(layers), RECOMPUTE.index(recompute))
    return Strategy(candidate=candidate, division=division_of_layers(candidate, layers.tolist(), kinds))


def fitting(
    problem: PlanningProblem, candidate: Candidate, devices: Ints | None = None, recompute: str | None = None
) -> Strategy | None:
    """The even strategy with the quickest recompute, or the given one, that breaks no rule; None where all do."""
    devices = rank_order(candidate) if devices is None else devices
    for name in problem.recompute_of(candidate):
        if recompute in (None, name):
            strategy = even_strategy(problem, candidate, name)
            if not violations(problem, strategy, devices):
                return strategy
    return None


def priced(problem: PlanningProblem, strategy: Strategy, devices: Ints) -> Incumbent | None:
    """The plan with its step time, or None if it breaks a rule."""
    if violations(problem, strategy, devices):
        return None
    seconds = float(step_time(problem, strategy, devices).total)
    return Incumbent(strategy=strategy, devices=devices, seconds=seconds)


def simple_plan(problem: PlanningProblem, candidate: Candidate, recompute: str | None = None) -> Incumbent | None:
    """The simple plan of a candidate, (1) to (3), None where it breaks a rule."""
    strategy = fitting(problem, candidate, recompute=recompute)
    return None if strategy is None else priced(problem, strategy, rank_order(candidate))
