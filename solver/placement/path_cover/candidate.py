"""
Search for bound ``cover`` of a candidate (``taut.solver.placement.path_cover.bound``), in two alternating parts.

The candidate's pipelines are annealed (``taut.solver.placement.annealing.paths``), which yields plans and initial
columns. The case distinction is refined (``taut.solver.placement.path_cover.proving``) until bound and incumbent meet.
"""

from functools import cache
from typing import Any

import numpy as np

from taut.data.arrays import Flags, Ints
from taut.formulations.candidate_partition import partition_problem
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.solver.bounds.least_rings import least_gather
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.layer_division.divide import Partition
from taut.solver.placement.annealing.path_reductions import Reductions, first_stage, leading_reductions
from taut.solver.placement.annealing.path_starts import FURTHER, MANY_NODES, PathStart, first_paths, phases, stagewise
from taut.solver.placement.annealing.paths import PathAnnealing
from taut.solver.placement.clusters import linkage_order
from taut.solver.placement.path_cover.build import CaseSearch
from taut.solver.placement.path_cover.proving import CoverCache, CoverProof
from taut.solver.placement.slots import SlotGraph, slot_graph
from taut.solver.threads import Stopping, never, run_in_threads, unraised

CHUNKS = 4
"""Chunks of annealing moves between two refinements of the case distinction, so that both get about equal time."""
MOVES_PER_SLOT, MAX_MOVES = 60_000, 16_000_000
"""Moves of a run at length, by slot and in all; half of the latter for clusters that are annealed in more runs."""
TURNS_OF_NODES = 192
"""
Where several stages are waited for, one in 192 / n refinements of n nodes is followed by annealing.

The chunks take as long on 32 nodes as on 128, a refinement a sixth, so that both get about equal time.
"""
MAX_UPDATES = 200_000_000
"""Label updates of the pricing problem in one refinement, so that Ctrl-C is answered within a second or two."""


@cache
def load() -> None:
    """Load the compiled loops, or compile them, on a small graph: a first run would spend its time limit on that."""
    hops = np.array([[0.1, 1.0, 2.0], [1.0, 0.1, 3.0], [2.0, 3.0, 0.1]])
    for groups in (1, 2):
        graph = SlotGraph(hops=hops, inverse=hops, capacity=np.full(3, groups), pp=3, replicas=groups, card=np.zeros(3))
        paths = first_paths(graph, linkage_order(hops))
        PathAnnealing(graph, first_stage(1.0), paths, moves=1, seed=0).advance(unraised())
        search = CaseSearch(graph=graph, gradients=1.0, target=9.0, longest=9.0)
        search.add_routes(paths)
        for _ in range(4):
            search.refine(rounds=2)


class CoverSearch:
    """
    Annealing and bounding of one candidate.

    ``lower_bound`` is bound ``cover`` of the case distinction so far, ``partition`` attains it.
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
        self._stages = partition_problem(problem, candidate, gather=least_gather(problem, candidate, best))
        self._graph = slot_graph(problem, candidate)
        self._runs: list[PathAnnealing] = []
        self._begun: list[PathStart] = []
        self._pipelines = first_paths(self._graph, np.arange(len(self._graph.capacity)))
        self._proving: CoverProof | None = None
        self._several = self._reductions().num_stages > 1 and len(self._graph.hops) <= MANY_NODES
        self._starts = stagewise(self._graph) if self._several else phases(self._graph)
        self._phases = len(self._starts) + FURTHER * self._several
        self._phase, self._shortest, self._calls, self._refining = 0, np.inf, 0, True
        self._found: dict[PathStart, float] = {}

    @property
    def annealed(self) -> bool:
        """Whether all annealing is done; pipelines of groups that are priced device by device are not annealed."""
        annealable = self._problem.links.by_node and self._graph.num_paths == self._graph.replicas
        return not annealable or (self._phase == self._phases and self._paused)

    @property
    def begun(self) -> bool:
        """Whether refinement may begin: good pipelines are known after the second phase of annealing."""
        return self.annealed or self._phase > 2 or (self._phase == 2 and self._paused)

    @property
    def _paused(self) -> bool:
        return all(run.finished for run in self._runs)

    def anneal(self, seed: int, workers: int, *, moves: int | None = None, stopping: Stopping = never) -> list[Ints]:
        """
        Make some moves of every run.

        ``seed``, ``workers``: seed of all runs, and threads; ``moves``: moves of a run at length, if not by the number
        of slots; ``stopping``: ends the moves early once it is true. Returns positions (pp dp, 1) of the best pipelines
        when all runs of a phase are done, otherwise nothing.
        """
        if self._paused:
            self._begin(seed, moves)
        turn = True
        if self._several and self._phase > 2 and self._refining:
            # These runs take long, and refinements have begun.
            self._calls += 1
            turn = self._calls % max(TURNS_OF_NODES // len(self._graph.hops), 1) == 0
        if turn:
            run_in_threads(_advance, self._runs, workers=workers, stopping=stopping)
        if not self._paused:
            return []
        for start, run in zip(self._begun, self._runs, strict=True):
            self._found[start] = min(self._found.get(start, np.inf), run.seconds)
        best = min(self._runs, key=lambda run: run.seconds)
        if best.seconds < self._shortest:
            self._shortest, self._pipelines = best.seconds, best.best
        return [best.best.reshape(-1, 1)]

    def _begin(self, seed: int, moves: int | None) -> None:
        """Begin the runs of the next phase, further ones from the starts at length that led to the least."""
        if self._phase < len(self._starts):
            self._begun = self._starts[self._phase]
        else:
            at_length = [start for start in self._found if start.share == 1.0]
            self._begun = sorted(at_length, key=lambda start: self._found[start])[:2]
        number = seed * 100 + 10 * self._phase
        self._runs = [self._run(start, number + k, moves) for k, start in enumerate(self._begun)]
        self._phase += 1

    def _run(self, start: PathStart, number: int, moves: int | None) -> PathAnnealing:
        """One run of annealing."""
        graph = self._graph
        most = MAX_MOVES if len(graph.hops) > MANY_NODES else MAX_MOVES // 2
        made = int(start.share * (moves or min(MOVES_PER_SLOT * graph.num_slots, most)))
        reductions, options = self._reductions(), start.options(graph, number)
        runs = (PathAnnealing(graph, reductions, paths, moves=made, seed=number, hot=start.hot) for paths in options)
        return min(runs, key=lambda run: run.seconds)

    def _reductions(self) -> Reductions:
        """What a placement of the division that attains the bound may wait for."""
        division = self.partition.division
        return leading_reductions(self._problem, self._candidate, self._graph, self._stages, division)

    def refine(self, value: float) -> bool:
        """
        Refine the case distinction once.

        ``value``: seconds of the incumbent. Returns whether anything is left to refine.
        """
        if self._proving is None:
            self._proving = self._cache.cover(self._problem, self._candidate, self._graph, self._best, self.partition)
        passes = MAX_UPDATES / (len(self._graph.hops) ** 2 * self._candidate.pp * self._proving.resource_limit)
        self._refining = self._proving.refine(value, self._pipelines, rounds=int(np.clip(passes, 2, 40)))
        self.partition, self.lower_bound = self._proving.partition, self._proving.lower_bound
        return self._refining

    def witness(self) -> dict[str, Any]:
        """Witness of ``lower_bound``."""
        return {} if self._proving is None else self._proving.witness()


def _advance(run: PathAnnealing, stop: Flags) -> None:
    for _ in range(CHUNKS):
        if not (run.finished or stop[0]):
            run.advance(stop)
