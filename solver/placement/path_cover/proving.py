r"""
Search for bound ``cover`` of one candidate (``taut.solver.placement.path_cover.bound``): the case that is refined.

Without racks there is one case distinction; with racks (``taut.solver.placement.path_cover.racks``) one for
every case of theirs, and only the weakest case can raise the bound, so it alone is refined
(``taut.solver.placement.path_cover.build``). With U the seconds of the incumbent, and in the division of layers that
attains the bound C_0 all that stage 0 waits for but hops and its ring, a case is refined towards

(1) :math:`T + \max(G \, ring, F) \ge (U - C_0) / h`, with T the longest path, h the weight of a trip and G gradient
    bytes divided by h, where
(2) :math:`F = (\hat\rho M_p - \sum_{y<p} backward(y) - b_p) / h` is what stage p waits for beyond the longest path
    if it spans racks, and minus infinity otherwise.

J stages are told apart, those with F above the least ring of stage 0. All of this guides the search; what is proven
follows from the case distinctions alone.

Two parts alternate. The candidate's pipelines are annealed (``taut.solver.placement.annealing.paths``), which yields
plans and initial columns. The case distinction is refined until bound and incumbent meet.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.formulations.partition import LaterStages, partition_problem
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.solver.bounds.least_rings import least_gather
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.bounds.relaxation import ROUNDING
from taut.solver.branch_and_bound.stop import Stopping, never, run_in_threads, unraised
from taut.solver.layer_division.divide import Partition
from taut.solver.placement.annealing.paths import (
    FURTHER,
    MANY_NODES,
    PathAnnealing,
    PathStart,
    Reductions,
    first_paths,
    first_stage,
    leading_reductions,
    phases,
    stagewise,
)
from taut.solver.placement.path_cover.bound import Covered, CoveredSeconds, witness_of
from taut.solver.placement.path_cover.build import CaseSearch
from taut.solver.placement.path_cover.racks import WHOLE, RackCase, Racks, racks_of
from taut.solver.placement.slots import SlotGraph, linkage_order, slot_graph

MOST_APART = 6
"""Stages that are told apart at most, each with proofs of its own; later ones have the most slack."""

Key = tuple[int, int, float]
"""Tensor degree, stages and smallest message: candidates that share them have the same pipelines and hops."""


@dataclass
class CoverCache:
    """Case distinctions under construction, shared by the candidates with the same pipelines and hops."""

    _searches: dict[tuple[Key, RackCase], CaseSearch] = field(default_factory=dict)
    _racks: dict[Key, Racks | None] = field(default_factory=dict)

    def cover(
        self, problem: PlanningProblem, candidate: Candidate, graph: SlotGraph, best: BestLinks, partition: Partition
    ) -> "CoverProof":
        """Begin the refinement of a candidate, with the case distinctions of others where they are the same."""
        key = (candidate.tp, candidate.pp, float(problem.tables(candidate).message[1:-1].min()))
        if key not in self._racks:
            self._racks[key] = racks_of(graph) if problem.latency.waits_for_every_stage else None
        return CoverProof(problem, candidate, best, _Shared(key, graph, self._racks[key], self._searches), partition)


@dataclass(frozen=True, slots=True)
class _Shared:
    """Racks and case distinctions of the candidates with the same pipelines and hops."""

    key: Key
    graph: SlotGraph
    racks: Racks | None
    searches: dict[tuple[Key, RackCase], CaseSearch]

    def search(self, case: RackCase, pipelines: Ints) -> CaseSearch:
        """The case distinction of a case of racks, begun with a good placement's pipelines if it is new."""
        if (self.key, case) not in self.searches:
            graph = self.graph if self.racks is None or case == WHOLE else self.racks.restricted(case)
            longest = float(graph.hops[pipelines[:, :-1], pipelines[:, 1:]].sum(axis=1).max())
            search = CaseSearch(graph=graph, gradients=0.0, target=longest, longest=longest)
            search.add_routes(pipelines)
            self.searches[self.key, case] = search
        return self.searches[self.key, case]


class CoverProof:
    """The bound of one candidate under refinement: ``lower_bound`` so far, and the ``partition`` that attains it."""

    def __init__(
        self, problem: PlanningProblem, candidate: Candidate, best: BestLinks, shared: _Shared, partition: Partition
    ) -> None:
        self.partition, self.lower_bound = partition, -np.inf
        self._weight, self._shared = problem.transfer_weight(candidate), shared
        self._stages = partition_problem(problem, candidate, gather=least_gather(problem, candidate, best))
        self._priced = CoveredSeconds(problem, candidate, best)
        self._cases = self._told_apart()
        self._kept: Callable[[], dict[str, Any]] = dict

    @property
    def resource_limit(self) -> int:
        """Resource limit R of the certificates that are sought first."""
        return next((s.resource_limit for (key, _), s in self._shared.searches.items() if key == self._shared.key), 256)

    def _told_apart(self) -> tuple[RackCase, ...]:
        """The cases of racks for as many stages as may be waited for, (2)."""
        racks, later = self._shared.racks, self._priced.later
        if racks is None or later is None:
            return (WHOLE,)
        floor = float(later.ring[0]) * float(later.unhidden[self._ranges][0]) / self._weight
        pp = len(self.partition.division.stages)
        count = next((p for p in range(min(pp, MOST_APART)) if self._beyond(racks, p) <= floor), MOST_APART)
        return racks.cases(min(count, pp)) if count > 1 else (WHOLE,)

    @property
    def _ranges(self) -> tuple[Ints, Ints]:
        """First layers and ends of the stages of the division, (pp,) each."""
        return self.partition.division.starts, self.partition.division.ends

    def _beyond(self, racks: Racks, place: int) -> float:
        """What a stage waits for beyond the longest path if it spans racks, F of (2)."""
        later = self._priced.later
        assert later is not None
        forward = 0.0 if self._stages.forward is None else self._stages.forward[self._patterns, *self._ranges]
        backward = self._seconds(self._stages.low) - forward
        ring = racks.ring * float(later.exchanged[self._ranges][place])
        if later.overlap:
            ring = max(ring - float(backward[place]), racks.ring * float(later.unhidden[self._ranges][place]))
        return float(ring - backward[:place].sum() - place * self._priced.slowest_back) / self._weight

    @property
    def _patterns(self) -> Ints:
        """Patterns of the stages, (pp,)."""
        return np.array(self.partition.patterns)

    def _seconds(self, figures: Floats) -> Floats:
        """Seconds of the stages of the division, (pp,), by pattern, recompute and range."""
        return np.asarray(figures[self._patterns, self.partition.division.recompute_index, *self._ranges])

    def refine(self, value: float, pipelines: Ints, *, rounds: int) -> bool:
        """Refine the weakest case once, (1), below an incumbent's seconds; returns whether anything is left."""
        searches = [self._shared.search(case, pipelines) for case in self._cases]
        weakest = self._evaluate(searches)
        case, search = self._cases[weakest], searches[weakest]
        end, later = self.partition.division.stages[0][1], self._priced.later
        tail = self._priced.tail(search.bound())
        asked = self.partition.seconds if later is None else self._asked_by_first(tail, later)
        search.gradients = self._priced.gradients[end] / self._weight
        search.target = float(tail[end] - self._priced.fixed[end] + value - asked) / self._weight
        racks = self._shared.racks
        search.floor = 0.0 if racks is None or not case.spanning else max(self._beyond(racks, case.confined), 0.0)
        more = search.refine(rounds=rounds)
        self._evaluate(searches)
        return more

    def _evaluate(self, searches: list[CaseSearch]) -> int:
        """Bring the bound up to date; the number of the weakest case."""
        racks = self._shared.racks
        ring = 0.0 if racks is None else racks.ring
        covered = tuple(
            Covered(bound=search.bound(), case=case, ring=ring)
            for case, search in zip(self._cases, searches, strict=True)
        )
        self.partition, weakest = self._priced.least(self._stages, covered)
        if self.partition.seconds * (1 - ROUNDING) > self.lower_bound:
            self.lower_bound = self.partition.seconds * (1 - ROUNDING)
            rack = None if racks is None or self._cases == (WHOLE,) else racks.rack.tolist()
            by_case = zip(self._cases, (search.certificate() for search in searches), strict=True)
            self._kept = partial(witness_of, rack, dict(by_case))
        return weakest

    def _asked_by_first(self, tail: Floats, later: LaterStages) -> float:
        """Seconds that stage 0 asks for in a division, where another stage may be waited for."""
        stages, ends = self._stages, self.partition.division.ends
        slowest = self._seconds(stages.high).max()
        seconds = self._seconds(stages.low).sum() + (stages.micro_batches - 1) * slowest
        optimizer = later.optimizer * later.parameters[self._ranges].max()
        return float(seconds + self._priced.edge[ends[:-1]].sum() + tail[ends[0]] + optimizer)

    def witness(self) -> dict[str, Any]:
        """Witness of ``lower_bound``."""
        return self._kept()


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
    """Annealing and bounding of one candidate: ``lower_bound`` so far, and the ``partition`` that attains it."""

    def __init__(
        self, problem: PlanningProblem, candidate: Candidate, partition: Partition, best: BestLinks, cache: CoverCache
    ) -> None:
        self.partition, self.lower_bound = partition, -np.inf
        self._problem, self._candidate, self._best, self._cache = problem, candidate, best, cache
        self._stages = partition_problem(problem, candidate, gather=least_gather(problem, candidate, best))
        self._graph = slot_graph(problem, candidate)
        self._runs: list[PathAnnealing] = []
        self._begun: list[PathStart] = []
        self._pipelines = first_paths(self._graph, np.arange(len(self._graph.capacity)))
        self._proving: CoverProof | None = None
        self._several = len(self._reductions().slack) > 1 and len(self._graph.hops) <= MANY_NODES
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
        """Make some moves of every run; the positions (pp dp, 1) of the best pipelines once a phase is done."""
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
        """Refine the case distinction once below an incumbent's seconds; returns whether anything is left."""
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
