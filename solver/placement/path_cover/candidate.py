"""
The search for bound ``cover`` of a candidate (``taut.solver.placement.path_cover.bound``): a staircase of proofs.

First the pipelines of a candidate are annealed, then its staircase is refined until bound and incumbent meet.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.partition import partition_problem
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.solver.bounds.candidate_bounds import ROUNDING
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.layer_partition import Partition, solve_partition
from taut.solver.placement.annealing.paths import HOT, MILD, WARM, PathAnnealing
from taut.solver.placement.path_cover.bound import covered_seconds
from taut.solver.placement.path_cover.build import Cover
from taut.solver.placement.path_cover.cases import Staircase
from taut.solver.placement.path_cover.clusters import near_together, tight_sets
from taut.solver.placement.path_cover.witness import witness_of
from taut.solver.placement.slots import Slots, slots

CHUNKS = 4
"""Chunks of moves between two refinements of the staircase."""
MOVES_PER_SLOT, MOST_MOVES = 60_000, 16_000_000
MOST_TIGHT = 8
"""Sets of fast links from which annealing begins; the first two at length."""
MANY_NODES = 192
"""Beyond this annealing has no time to find near nodes and begins with them together."""
MOST_UPDATES = 200_000_000
"""Updates of walks in one refinement, so that Ctrl-C is answered within a second or two."""


@dataclass
class CoverCache:
    """Staircases under construction, shared by the candidates with the same pipelines and hops."""

    _covers: dict[tuple[int, int, float], Cover] = field(default_factory=dict)

    def cover(self, problem: PlanningProblem, candidate: Candidate, given: Slots, pipelines: Ints) -> Cover:
        """The staircase of a candidate; (paths, pp) nodes of a good placement's pipelines serve where it is new."""
        key = (candidate.tp, candidate.pp, float(problem.tables(candidate).message[1:-1].min()))
        if key not in self._covers:
            longest = float(given.hops[pipelines[:, :-1], pipelines[:, 1:]].sum(axis=1).max())
            cover = Cover(given=given, gradients=0.0, target=longest, longest=longest)
            cover.offer(pipelines)
            self._covers[key] = cover
        return self._covers[key]


@cache
def load() -> None:
    """Load the compiled loops, or compile them, on small slots: a first run would spend its time limit on that."""
    hops = np.array([[0.1, 1.0, 2.0], [1.0, 0.1, 3.0], [2.0, 3.0, 0.1]])
    for groups in (1, 2):
        given = Slots(hops=hops, inverse=hops, capacity=np.full(3, groups), pp=3, replicas=groups)
        paths = _first_paths(given, near_together(hops))
        PathAnnealing(given, 1.0, paths, moves=1, seed=0).advance()
        cover = Cover(given=given, gradients=1.0, target=9.0, longest=9.0)
        cover.offer(paths)
        for _ in range(4):
            cover.refine(rounds=2)


@dataclass(frozen=True, slots=True)
class _Start:
    """
    How a run begins: near nodes together or in random order, stage by stage or path by path; and its moves.

    ``first`` are nodes with fast links that the first slots are to have.
    """

    near: bool
    together: bool
    hot: float
    share: float
    first: tuple[int, ...] | None = None


def _starts(given: Slots) -> list[list[_Start]]:
    """Runs of annealing in phases: short ones first."""
    if len(given.capacity) > MANY_NODES:
        return [[_Start(True, False, hot, share) for hot in (MILD, WARM)] for share in (0.1, 1.0)]
    if (given.capacity == 1).all():
        brief = [_Start(near, False, HOT, 0.1) for near in (True, False)]
        random = [_Start(False, False, hot, 1.0) for hot in (HOT, WARM)]
        sets = [tuple(nodes) for nodes in tight_sets(given.inverse, given.paths)[:MOST_TIGHT].tolist()]
        tight = [_Start(True, False, MILD, 1.0 if place < 2 else 0.1, first) for place, first in enumerate(sets)]
        return [phase for phase in (brief, random, tight[:2], tight[2:]) if phase]
    return [
        [_Start(True, True, MILD, 0.1), _Start(True, False, HOT, 0.1)],
        [_Start(True, True, MILD, 1.0), _Start(False, False, WARM, 1.0)],
        [_Start(False, True, MILD, 1.0), _Start(False, False, HOT, 1.0)],
    ]


class Covering:
    """
    One candidate on the way: first its pipelines are annealed, then its staircase is refined.

    ``lower_bound`` is bound ``cover`` of the staircase so far.
    """

    def __init__(
        self,
        problem: PlanningProblem,
        candidate: Candidate,
        partition: Partition,
        best: BestLinks,
        cache: CoverCache,
    ) -> None:
        self.partition, self.lower_bound = partition, -np.inf
        self._problem, self._candidate, self._best, self._cache = problem, candidate, best, cache
        self._stages = partition_problem(problem, candidate)
        self._slots = slots(problem, candidate)
        self._runs: list[PathAnnealing] = []
        self._pipelines = _first_paths(self._slots, np.arange(len(self._slots.capacity)))
        self._kept: Staircase | None = None
        self._phase, self._shortest, self._starts = 0, np.inf, _starts(self._slots)

    @property
    def annealed(self) -> bool:
        """Whether all annealing is done; pipelines of groups that are priced device by device are not annealed."""
        alike = self._problem.links.by_node and self._slots.paths == self._slots.replicas
        return not alike or (self._phase == len(self._starts) and self._paused)

    @property
    def begun(self) -> bool:
        """Whether there are pipelines from which to refine the staircase, those of the second phase."""
        return self.annealed or self._phase > 2 or (self._phase == 2 and self._paused)

    @property
    def _paused(self) -> bool:
        return all(run.finished for run in self._runs)

    def _gradients(self) -> float:
        """Gradient bytes of stage 0 for unweighted hops."""
        weight = self._problem.transfer_weight(self._candidate)
        return float(self._problem.gradient_bytes(self._candidate)[0][self.partition.division.stages[0][1]]) / weight

    def anneal(self, seed: int, workers: int, *, moves: int | None = None) -> list[Ints]:
        """Some moves of every run; positions (pp dp, 1) of the best pipelines when all runs of a phase are done."""
        if self._paused:
            self._runs = [self._run(start, seed, moves) for start in self._starts[self._phase]]
            self._phase += 1
        with ThreadPoolExecutor(max_workers=max(workers, 1)) as pool:
            list(pool.map(_advance, self._runs))
        if not self._paused:
            return []
        best = min(self._runs, key=lambda run: run.seconds)
        if best.seconds < self._shortest:
            self._shortest, self._pipelines = best.seconds, best.best
        return [best.best.reshape(-1, 1)]

    def _run(self, start: "_Start", seed: int, moves: int | None) -> PathAnnealing:
        """One run of annealing."""
        given, number = self._slots, seed * 100 + 10 * self._phase + self._starts[self._phase].index(start)
        order = near_together(given.hops) if start.near else np.random.default_rng(number).permutation(len(given.hops))
        if start.first is None:
            paths = _first_paths(given, order, together=start.together)
        else:
            paths = _from_tight(given, order, np.array(start.first))
        most = MOST_MOVES if len(given.hops) > MANY_NODES else MOST_MOVES // 2
        made = int(start.share * (moves or min(MOVES_PER_SLOT * given.slots, most)))
        return PathAnnealing(given, self._gradients(), paths, moves=made, seed=number, hot=start.hot)

    def refine(self, value: float) -> bool:
        """
        Refine the staircase for an incumbent of ``value`` seconds; returns whether anything is left to refine.

        Proofs are sought until the bound reaches the incumbent for the layers of stage 0 that attain the minimum.
        """
        problem, candidate = self._problem, self._candidate
        cover = self._cache.cover(problem, candidate, self._slots, self._pipelines)
        room = self._evaluate(cover, value)
        weight, end = problem.transfer_weight(candidate), self.partition.division.stages[0][1]
        cover.gradients, cover.target = self._gradients(), room[end] / weight
        passes = MOST_UPDATES / (len(self._slots.hops) ** 2 * candidate.pp * cover.levels)
        more = cover.refine(rounds=int(np.clip(passes, 2, 40)))
        self._evaluate(cover, value)
        return more

    def _evaluate(self, cover: Cover, value: float) -> Floats:
        """Bring the bound up to date; communication at which it would reach ``value``, by layers of stage 0."""
        bound = cover.bound()
        edge, tail, fixed = covered_seconds(self._problem, self._candidate, self._best, bound)
        found = solve_partition(self._stages, edge, tail)
        self.partition = found
        if found.seconds * (1 - ROUNDING) > self.lower_bound:
            self.lower_bound, self._kept = found.seconds * (1 - ROUNDING), cover.staircase()
        return np.asarray(tail - fixed + (value - found.seconds))

    def witness(self) -> dict[str, Any]:
        """Witness of ``lower_bound``."""
        return {} if self._kept is None else witness_of(self._kept)


def _advance(run: PathAnnealing) -> None:
    for _ in range(CHUNKS):
        if not run.finished:
            run.advance()


def _first_paths(given: Slots, order: Ints, *, together: bool = False) -> Ints:
    """Paths (paths, pp) that take the nodes' slots in order; ``together`` stage by stage and not path by path."""
    taken = np.repeat(order, given.capacity[order])
    return taken.reshape(given.pp, -1).T.copy() if together else taken.reshape(-1, given.pp)


def _from_tight(given: Slots, order: Ints, first: Ints) -> Ints:
    """Paths that begin in the given nodes and take the others, one slot each, in order."""
    later = order[~np.isin(order, first)]
    return np.column_stack([first, later.reshape(given.paths, -1)])
