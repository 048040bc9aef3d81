r"""
The best strategy of all candidates by the integer program, a batch of candidates at a time.

With :math:`b_c` the best bound known of candidate c, at first ``relaxation``, and U the least seconds of any division
known so far:

(1) candidates are looked at by ascending :math:`b_c`, and none with :math:`b_c \ge U`; at first the simple divisions of
    each are priced, which lowers U;
(2) those that are left go into programs, a batch at a time. A program holds the stages that a division of at most U
    seconds can have (``taut.formulations.program.program``); its optimum lowers U, and bounds all of its batch;
(3) the least optimum of all batches is that of the program over all candidates; where a solver stops early the bound is
    the least of its bounds and of :math:`b_c` over what was not taken up.

So the program over hundreds of candidates is never written down whole. Every solve is exact: (1) and (2) leave out only
what is not better than a division in hand. What is known of candidates is kept from one choice to the next.

Candidates become options of the strategy program, with the least communication of each.

(4) The prices are those of the bound ``partition`` (``taut.solver.bounds.candidate_bounds``), so that the optimum over
    all options is the least of that bound over all candidates, but for what it gains by branching on members of rings,
    by hops between classes of device and by the pipeline with the most slow blocks (``taut.formulations.partition``
    (6) and (7)). The ladder's bound over the result has these.
(5) AMP's flat ring is that of the stage with most gradients: it takes the place of the optimizer in
    ``taut.formulations.program.program`` (7), which is the longest of all stages too.
    Of options that are no faster in any figure than another, as ``taut.solver.ladder.dominance`` (2) compares them,
    none is stated.
(6) Where divisions are stated in families (``taut.formulations.divisions``), a candidate has an option for each.
    It has one more for every class of placement, (8) to (11).
(7) A candidate with sharded weights may have an option for every case of ``taut.solver.bounds.copies``, one of which
    holds.

Classes of placement say which links the groups of a stage get. Tensor, context and expert groups are consecutive ranks
of a block: their degrees and the size of a node say which links they get, and the program prices the best of these. The
replicas of a stage and the hops of a pipeline compete for the same nodes. Where rings are flat (AMP) a candidate has a
variable for each of two classes:

- near: every stage touches the fewest nodes that hold it;
- far: some stage touches more nodes.

Sets: stages of dp blocks, nodes that hold c blocks at most, :math:`k_0 = \lceil dp / c \rceil`.
Data: seconds per byte :math:`\rho(k)` of a flat ring on k nodes, by its slowest link
(``taut.solver.bounds.least_rings`` (1)), and :math:`\rho_q(k)` if the stage's nodes are of the classes of device q.

(8) Near, if :math:`k_0 = 1`, a node holds :math:`\lfloor c / dp \rfloor` stages, so every pipeline stops at
    :math:`\lceil pp / \lfloor c / dp \rfloor \rceil` nodes and makes one hop less between nodes.
(9) Near, if :math:`k_0 c = dp`, every stage fills its nodes, so every pipeline makes pp - 1 hops between nodes.
(10) Near, a stage's ring takes :math:`\rho_q(k_0)`; on one node it is of one class of device.
(11) Far, the slowest ring takes :math:`\min_{k > k_0} \rho(k)` for as many bytes as the smallest stage may have, and
    any ring the least of :math:`\rho_q` over k.

In ``step`` and ``pipette`` the least over k is taken for every end of the first stage
(``taut.solver.bounds.communication`` (1)), and the cuts bound what the class of later stages adds.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.data.units import NANOSECONDS_PER_SECOND
from taut.formulations.divisions import is_stated
from taut.formulations.mechanisms.shards import holders
from taut.formulations.partition import LaterStages, PartitionProblem, partition_problem, slowest_type
from taut.formulations.problem import PlanningProblem
from taut.formulations.program.program import MIXED, SLOW, Option, kibibytes, option_cost, strategy_program
from taut.formulations.rings import ring_factor
from taut.formulations.space import Candidate
from taut.formulations.strategy import Division, Strategy
from taut.solver.bounds.communication import Communication
from taut.solver.bounds.copies import Divided, divided, has_cases
from taut.solver.bounds.least_hops import least_edges
from taut.solver.bounds.least_rings import groups_of_node, least_gather, spreads, telling
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.ladder.ladder import Ladder
from taut.solver.program.checked import ProgramResult
from taut.solver.result import Status


def placement_classes(problem: PlanningProblem, best: BestLinks, option: Option) -> Iterator[Option]:
    """The option near and far; itself where no ring is flat, a block spans nodes, or types run unlike pipelines."""
    candidate, later, stages = option.candidate, option.later, option.partition
    is_flat = problem.latency.rings_are_flat and later is not None and later.optimizer > 0.0
    spans = candidate.width > int(problem.links.gpus_per_node.max())
    if not is_flat or later is None or spans or candidate.pipelines_by_type:
        yield option
        return
    near, far = _rings(problem, candidate, best, len(stages.budget))
    of_layers = np.broadcast_to(stages.gradients, stages.low.shape[:1] + stages.gradients.shape)
    possible = np.isfinite(near)
    low = np.where(possible[:, None, None, None], stages.low, np.inf)
    rates = np.where(possible, near, 0.0)[:, None, None] / later.optimizer
    yield option._replace(
        partition=replace(stages, low=low),
        tail=option.tail + _hops(problem, candidate, best),
        later=replace(later, parameters=rates * of_layers),
    )
    if np.isfinite(far).any():
        least = np.diagonal(stages.gradients, 1).min() * far.min()
        rates = np.where(np.isfinite(near) | np.isfinite(far), np.minimum(near, far), 0.0)[:, None, None]
        further = np.maximum(rates * of_layers - least, 0.0) / later.optimizer
        yield option._replace(tail=option.tail + least, later=replace(later, parameters=further))


def _hops(problem: PlanningProblem, candidate: Candidate, best: BestLinks) -> float:
    """Seconds of hops beyond those of any placement if all stages are near, (8) and (9)."""
    held, pp = groups_of_node(problem, candidate.width), candidate.pp
    hops = pp - 1 if candidate.dp % held == 0 else -(-pp // (held // candidate.dp)) - 1 if candidate.dp < held else 0
    weight, (_, between) = problem.transfer_weight(candidate), least_edges(problem, candidate, best)
    numbers = telling(problem, candidate, best)
    return weight * (min(between(k, hops) for k in numbers) - min(between(k) for k in numbers))


def _rings(problem: PlanningProblem, candidate: Candidate, best: BestLinks, patterns: int) -> tuple[Floats, Floats]:
    """Seconds per byte of rings near and far by pattern, (10) and (11), infinite for stages that no nodes hold."""
    fewest, factor = spreads(problem, holders(candidate), best.num_nodes).start, ring_factor(candidate.dp)
    own, across = [best], 0.0
    if patterns > 1:
        slow = problem.type_of_node == slowest_type(problem, candidate)
        across = best.least_across(problem.rings.inverse, slow)
        own = [best.of_nodes(~slow), best.of_nodes(slow)]

    def rates(k: int) -> Floats:
        """Of a ring on so many nodes, or more."""
        alone = [
            each.inside_inverse if k == 1 else each.core(k) if k <= min(each.num_nodes, candidate.dp) else np.inf
            for each in own
        ]
        mixed = np.inf if k == 1 or k > min(best.num_nodes, candidate.dp) else max(best.core(k), across)
        return factor * np.array(alone + (patterns - len(own)) * [mixed])

    return rates(fewest), rates(fewest + 1)


NEAR = 1.1
"""Times the least seconds known from which on a simple division is worth moving layers."""


def options_of(ladder: Ladder, candidate: Candidate) -> Iterator[Option]:
    """The options of a candidate that is not priced by its order, one but for (6) and (7)."""
    comm = ladder.communication(candidate)
    for stages, tail in _cases(ladder, candidate):
        mixed = stages.with_mixed(2, 1) if len(stages.budget) > 1 and candidate.pp > 1 else stages
        for family in mixed.by_family:
            option = Option(candidate, family, comm.edge, tail + comm.ring_latency, _later(comm, stages))
            yield from placement_classes(ladder.problem, ladder.links, option)


def _cases(ladder: Ladder, candidate: Candidate) -> Iterator[Divided]:
    """The partition problem of a candidate, or those of (7)."""
    if has_cases(ladder.problem, candidate):
        yield from divided(ladder.problem, candidate, ladder.links)
        return
    gather = least_gather(ladder.problem, candidate, ladder.links)
    stages = partition_problem(ladder.problem, candidate, gather=gather)
    yield Divided(stages, ladder.communication(candidate).tail)


def _later(comm: Communication, stages: PartitionProblem) -> LaterStages | None:
    """What later stages wait for, or (5)."""
    if comm.ring == 0.0:
        return comm.later
    none = np.zeros_like(stages.gradients)
    return LaterStages(
        edge=np.zeros_like(comm.edge),
        ring=np.zeros(stages.pp),
        exchanged=none,
        unhidden=none,
        overlap=False,
        others=0.0,
        parameters=stages.gradients,
        optimizer=comm.ring,
    )


def undominated(options: Sequence[Option]) -> Iterator[Option]:
    """The options without those of which another has no larger figure, such as twins, and so no larger optimum."""
    figures = [_figures(option) for option in options]

    def dominates(n: int, k: int) -> bool:
        (same, *lower), (other, *higher) = figures[n], figures[k]
        pairs = zip(lower, higher, strict=False)
        return (
            len(lower) == len(higher)
            and same == other
            and all(np.shape(a) == np.shape(b) and bool(np.all(a <= b)) for a, b in pairs)
        )

    kept: list[int] = []
    for k in range(len(options)):
        if not any(dominates(n, k) for n in kept):
            kept = [n for n in kept if not dominates(k, n)] + [k]
    return (options[n] for n in kept)


def _figures(option: Option) -> list[Any]:
    """What must be equal, and all that makes a division slower or larger as it grows."""
    stages, later = option.partition, option.later
    families = None if stages.families is None else stages.families.tolist()
    alike = stages.pp, stages.dp, stages.micro_batches, stages.slow_groups, stages.more_slow_groups, families
    figures = [stages.low, stages.high, stages.fixed, stages.activation, stages.in_flight, -stages.budget]
    figures += [option.edge, option.tail]
    if later is None:
        return [(*alike, None), *figures]
    rings = [later.ring, later.class_ring, later.exchanged, later.unhidden, later.each, later.others]
    forward = np.zeros(0) if stages.forward is None else stages.forward
    return [(*alike, later.overlap), *figures, forward, later.edge, *rings, later.parameters, later.optimizer]


class SimpleDivision(NamedTuple):
    """A division with the pattern of every stage, and no fewer seconds than it takes in the program."""

    seconds: float
    division: Division
    patterns: tuple[int, ...]


NOTHING = SimpleDivision(np.inf, Division((), ()), ())
"""In the place of a division where none of the simple ones fits."""


def simple_division(option: Option, known: float = np.inf) -> SimpleDivision:
    """A division by the speed of the stages' devices, ``NOTHING`` if none fits, improved where it is near ``known``."""
    found = (_Simple(option, layout).best(known) for layout in _patterns(option.partition))
    return min(found, key=lambda each: each.seconds, default=NOTHING)


def _patterns(problem: PartitionProblem) -> list[tuple[int, ...]]:
    """Patterns of the stages with the slow groups in front and at the end (``taut.formulations.partition`` (4))."""
    if len(problem.budget) == 1:
        return [(0,) * problem.pp]
    slow, rest = divmod(problem.slow_groups, problem.dp)
    first = (SLOW,) * slow + (len(problem.budget) - 1,) * (rest > 0)
    layout = first + (0,) * (problem.pp - len(first))
    return [layout, layout[::-1]] if len(layout) == problem.pp else []


class _Simple:
    """Divisions of an option whose stages have given patterns."""

    def __init__(self, option: Option, patterns: tuple[int, ...]) -> None:
        self._option, self._problem, self._patterns = option, option.partition, patterns
        self._pattern, self._stage = np.array(patterns), np.arange(option.partition.pp)

    def best(self, known: float) -> SimpleDivision:
        """The division in proportion, made better where it is near ``known``."""
        problem, layers = self._problem, self._problem.num_layers
        whole = problem.high[self._pattern, :, 0, -1].min(axis=1)
        if not np.isfinite(whole).all() or problem.pp > layers:
            return NOTHING
        ends = np.rint(layers * np.cumsum(1.0 / whole) / np.sum(1.0 / whole)).astype(np.int64)
        stage = self._stage
        ends = np.minimum(np.maximum.accumulate(np.maximum(ends - stage, 1)) + stage, layers - stage[::-1])
        if problem.families is not None:
            least = problem.families[0, :, 0]
            ends = np.cumsum(least)
            # First and last stage share what the others leave.
            ends[:-1] += (layers - ends[-1]) // 2
            ends[-1] = layers
        best = self._cost(ends)
        better = bool(np.isfinite(best.seconds)) and best.seconds < NEAR * known
        while better:
            better = False
            for x in range(problem.pp - 1):
                for step in (-1, 1):
                    moved = ends + step * (stage == x)
                    found = self._cost(moved) if np.all(np.diff(moved, prepend=0) > 0) else NOTHING
                    if found.seconds < best.seconds:
                        best, ends, better = found, moved, True
        return best

    def _cost(self, ends: Ints) -> SimpleDivision:
        """The division with these ends, ``NOTHING`` where a stage fits with no recompute."""
        problem, starts = self._problem, np.concatenate([[0], ends[:-1]])
        if not is_stated(ends - starts, problem.families):
            return NOTHING
        fixed, activation = problem.fixed[:, starts, ends], problem.activation[:, starts, ends]
        fits = kibibytes(fixed + problem.in_flight * activation) <= kibibytes(problem.budget[self._pattern])
        low = np.where(fits, problem.low[self._pattern, :, starts, ends].T, np.inf)
        cuts = self._option.edge[ends[:-1]].sum() + self._option.tail[ends[0]]
        if not np.isfinite(low.min(axis=0).sum() + cuts):
            return NOTHING
        division = Division.of_ends(ends, low.argmin(axis=0))
        cost = option_cost(self._option, division, self._patterns) / NANOSECONDS_PER_SECOND
        return SimpleDivision(cost + rounded_off(problem), division, self._patterns)


def rounded_off(problem: PartitionProblem) -> float:
    """More seconds than a division loses where every price counted is rounded down to a nanosecond."""
    return (3 * problem.pp + problem.micro_batches) / NANOSECONDS_PER_SECOND


MOST_CANDIDATES = 3
"""Candidates of a batch: few lower U soonest, and of six on 96 devices CP-SAT takes ten times the seconds, or more."""
BATCH_SHARE = 0.4
"""Of the time left, for one batch."""
LEAST_SECONDS = 0.5
"""Seconds that a solve is given at least, and below which none begins."""
Backend = Callable[..., ProgramResult]
"""``solve_cpsat`` or ``solve_cbc``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A strategy and its seconds in the program, None and infinite if none, the bound, and the stages' patterns."""

    strategy: Strategy | None
    patterns: tuple[int, ...]
    seconds: float
    lower_bound: float
    solver: str


class StrategyPool:
    """The candidates with their options, and the best bound b_c known of each; none priced by its order."""

    def __init__(self, ladder: Ladder, candidates: Iterable[Candidate]) -> None:
        self._ladder = ladder
        self.bounds = {candidate: ladder.relaxation(candidate) for candidate in candidates}
        self.left_out: dict[Candidate, float] = {}
        self._options: dict[Candidate, list[Option]] = {}
        self._simple: dict[Candidate, SimpleDivision] = {}

    @property
    def lower_bound(self) -> float:
        """The least bound of any candidate, infinite without one."""
        return min([*self.bounds.values(), *self.left_out.values()], default=math.inf)

    def below(self, seconds: float) -> list[Candidate]:
        """Candidates that may be better than so many seconds, by ascending bound."""
        found = [candidate for candidate, bound in self.bounds.items() if bound < seconds]
        return sorted(found, key=lambda each: (self.bounds[each], each))

    def options(self, candidate: Candidate) -> list[Option]:
        """The options of a candidate."""
        if candidate not in self._options:
            self._options[candidate] = list(options_of(self._ladder, candidate))
        return self._options[candidate]

    def simple(self, candidate: Candidate, known: float) -> SimpleDivision:
        """A simple division of a candidate."""
        if candidate not in self._simple:
            found = (simple_division(option, known) for option in self.options(candidate))
            self._simple[candidate] = min(found, key=lambda each: each.seconds)
        return self._simple[candidate]

    def leave_out(self, candidate: Candidate, bound: float = -math.inf) -> None:
        """Let no further choice be of this candidate, of which so many seconds are known as a bound: a cut."""
        self.left_out[candidate] = max(bound, self.bounds.pop(candidate))


def best_strategy(
    pool: StrategyPool,
    solve: Backend,
    *,
    below: float = math.inf,
    time_limit: float | None = None,
    seed: int = 0,
    only: Sequence[Candidate] | None = None,
) -> Choice:
    """The strategy of least seconds ``below`` so many, of all candidates or ``only`` some; the pool keeps bounds."""
    run = _Run(pool, solve, below, time_limit, seed)
    run.price_simple_ones(pool.below(run.known) if only is None else only)
    left = pool.below(run.known) if only is None else list(only)
    while left and not run.is_over:
        run.take(left[:MOST_CANDIDATES])
        left = [candidate for candidate in left[MOST_CANDIDATES:] if pool.bounds[candidate] < run.known]
    run.leave(left)
    return run.choice()


class _Run:
    """The batches of one choice: the best division so far, and the bound."""

    def __init__(self, pool: StrategyPool, solve: Backend, below: float, time_limit: float | None, seed: int) -> None:
        self._pool, self._solve, self._seed = pool, solve, seed
        self._end = math.inf if time_limit is None else perf_counter() + time_limit
        self.seconds, self.known = below, below
        self.lower_bound, self._solver = math.inf, ""
        self._best: tuple[Candidate, SimpleDivision] | None = None
        self._simple: tuple[Candidate, SimpleDivision] | None = None

    @property
    def is_over(self) -> bool:
        """Whether the time is, but for what no solve begins in."""
        return self._end - perf_counter() < LEAST_SECONDS

    def price_simple_ones(self, candidates: Sequence[Candidate]) -> None:
        """Lower U by simple divisions, (1)."""
        for candidate in candidates:
            if self._pool.bounds[candidate] >= self.known or self.is_over:
                return
            found = self._pool.simple(candidate, self.known)
            if found.seconds < self.known:
                self.known, self._simple = found.seconds, (candidate, found)

    def take(self, batch: list[Candidate]) -> None:
        """Solve the program of a batch, (2)."""
        options = [option._replace(most=self.known) for each in batch for option in self._pool.options(each)]
        program = strategy_program(list(undominated(options)))
        result = self._solve(program, time_limit=self._left(), workers=1, seed=self._seed)
        self._solver, before = result.solver, self.known
        if result.choice is not None and result.objective_ns is not None:
            seconds = result.objective_ns / NANOSECONDS_PER_SECOND
            if seconds < self.seconds:
                option, choice = program.options[result.choice.candidate], result.choice
                self.seconds = seconds
                self._best = option.candidate, SimpleDivision(seconds, choice.division, choice.patterns)
                self.known = min(self.known, seconds + rounded_off(option.partition))
        bound = self._proven(result, before)
        for candidate in batch:
            self._pool.bounds[candidate] = max(self._pool.bounds[candidate], bound)
        self.leave(batch)

    def _proven(self, result: ProgramResult, most: float) -> float:
        """What a result proves of its batch; beyond ``most`` its program says nothing."""
        if result.status in (Status.OPTIMAL, Status.INFEASIBLE):
            return most if result.objective_ns is None else result.objective_ns / NANOSECONDS_PER_SECOND
        return -math.inf if result.lower_bound_ns is None else result.lower_bound_ns / NANOSECONDS_PER_SECOND

    def leave(self, candidates: list[Candidate]) -> None:
        """Count the bounds of candidates that nothing more is done about, (3)."""
        self.lower_bound = min([self.lower_bound, *(self._pool.bounds[each] for each in candidates)])

    def _left(self) -> float | None:
        """Seconds of a batch: a share of what is left, so that a hard one leaves some for the others."""
        if math.isinf(self._end):
            return None
        left = self._end - perf_counter()
        return min(max(BATCH_SHARE * left, LEAST_SECONDS), left)

    def choice(self) -> Choice:
        """What is known now, (3)."""
        # Where nothing is below what is known, that bounds what was left out of the programs.
        bound = min(self.lower_bound, self.known)
        # Without the first, no program came so far as to find what is at hand.
        best = self._best or self._simple
        if best is None:
            return Choice(strategy=None, patterns=(), seconds=math.inf, lower_bound=bound, solver=self._solver)
        candidate, found = best
        return Choice(
            strategy=Strategy(candidate=candidate, division=found.division),
            # As ``taut.formulations.partition`` (4) names patterns, however a mixed stage is priced.
            patterns=tuple(min(pattern, MIXED) for pattern in found.patterns),
            seconds=found.seconds,
            lower_bound=min(bound, found.seconds),
            solver=self._solver,
        )
