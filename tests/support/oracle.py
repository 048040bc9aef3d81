r"""
Exhaustive search: the oracle for tiny instances.

Every candidate, every division of the layers into stages, every recompute of every stage, every division of an uneven
batch over the replicas and every placement that keeps tensor groups and blocks whole, and replicas of an uneven batch
on one type of device, is priced by the one evaluator. Of placements with the same sites, which the evaluator cannot
tell apart (``tests/formulations/test_latency.py``), one is priced. No other symmetry is used, so at most 8 devices are
accepted.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import cache
from itertools import combinations, permutations, product

import numpy as np

from taut.data.arrays import Flags, Ints
from taut.errors import FormulationError
from taut.formulations.latency import memory_bytes, step_time
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.formulations.strategy import Division, Strategy
from taut.formulations.tables.memory import stage_memory
from taut.solver.certificate.examined import case_of
from taut.solver.certificate.reference.space import Choice, is_stated

MOST_DEVICES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Enumerated:
    """Least step time of a problem or a candidate, infinite and without strategy where nothing is feasible."""

    seconds: float
    strategy: Strategy | None = None
    devices: Ints | None = None


def enumerate_all(problem: PlanningProblem) -> Enumerated:
    """Optimum of a problem by enumeration of its candidates."""
    results = (enumerate_candidate(problem, candidate) for candidate in problem.candidates)
    return min(results, key=lambda result: result.seconds, default=Enumerated(seconds=np.inf))


def enumerate_candidate(
    problem: PlanningProblem, candidate: Candidate, among: Callable[[Ints], Flags] | None = None
) -> Enumerated:
    """
    Optimum of one candidate by enumeration, ``among`` some of the placements (n, pp, pipelines, width) if given.

    Raises
    ------
    FormulationError
        If there are more than 8 devices.
    """
    if problem.cluster.num_devices > MOST_DEVICES:
        raise FormulationError(f"{problem.cluster.num_devices} devices, expected at most {MOST_DEVICES} to enumerate")
    placements = _placements(problem, candidate)
    if among is not None:
        placements = placements[among(placements)]
    best, room = Enumerated(seconds=np.inf), _room(problem, candidate, placements)
    for strategy in _strategies(problem, candidate):
        allowed = placements[(np.array(memory_bytes(problem, strategy)) <= room).all(axis=-1)]
        if len(allowed) == 0:
            continue
        seconds = step_time(problem, strategy, allowed).total
        least = int(np.argmin(seconds))
        if seconds[least] < best.seconds:
            best = Enumerated(seconds=float(seconds[least]), strategy=strategy, devices=allowed[least])
    return best


@cache
def _orders(site_of: tuple[int, ...]) -> Ints:
    """One permutation of the devices for every order of their sites, one a row."""
    orders = np.array(list(permutations(range(len(site_of)))), dtype=np.int64)
    digits = np.array(site_of)[orders] @ (len(site_of) ** np.arange(len(site_of)))
    return orders[np.unique(digits, return_index=True)[1]]


def _placements(problem: PlanningProblem, candidate: Candidate) -> Ints:
    """Every assignment of devices to workers that keeps blocks and their groups whole, (n, pp, pipelines, width)."""
    orders = _orders(tuple(problem.links.site_of.tolist()))
    whole = np.ones(len(orders), dtype=bool)
    for group in candidate.block.groups:
        nodes = np.sort(problem.links.node_of[orders].reshape(len(orders), -1, group), axis=-1)
        touched = 1 + (np.diff(nodes, axis=-1) != 0).sum(axis=-1)
        whole &= (touched <= max(group // int(problem.links.gpus_per_node.max()), 1)).all(axis=-1)
    found = orders[whole].reshape(-1, candidate.pp, candidate.pipelines, candidate.width)
    if not candidate.uneven_batch:
        return found
    types = problem.type_of_node[problem.links.node_of[found]]
    return np.asarray(found[(types == types[:, :1, :, :1]).all(axis=(1, 3)).all(axis=1)])


def _strategies(problem: PlanningProblem, candidate: Candidate) -> Iterator[Strategy]:
    layers = problem.num_layers(candidate)
    count = candidate.pp * candidate.vpp
    for inner in combinations(range(1, layers), count - 1):
        stages = tuple(zip((0, *inner), (*inner, layers), strict=True))
        if not _is_stated(problem, candidate, stages):
            continue
        for recompute in product(problem.recompute_of(candidate), repeat=count):
            for micro_batches in batches(candidate):
                yield Strategy(candidate=candidate, division=Division(stages, recompute), micro_batches=micro_batches)


def batches(candidate: Candidate) -> Iterator[tuple[int, ...]]:
    """Micro-batches of every replica where these divide the batch unevenly, in every way; nothing elsewhere."""
    if not candidate.uneven_batch:
        yield ()
        return
    total = candidate.dp * candidate.num_micro_batches
    for cuts in combinations(range(1, total), candidate.dp - 1):
        yield tuple(b - a for a, b in zip((0, *cuts), (*cuts, total), strict=True))


def _is_stated(problem: PlanningProblem, candidate: Candidate, stages: tuple[tuple[int, int], ...]) -> bool:
    """Whether the space states a division, by the definition of its forms."""
    choice = Choice(**{field.name: getattr(candidate, field.name) for field in fields(Choice)})
    return is_stated(case_of(problem), choice, stages)


def _room(problem: PlanningProblem, candidate: Candidate, placements: Ints) -> Ints:
    """Bytes of the smallest device that runs each stage, (n, pp)."""
    budget = stage_memory(problem, candidate).budget
    return np.asarray(budget[problem.type_of_node[problem.links.node_of[placements]]].min(axis=(-1, -2)))
