r"""
The best strategy of all candidates by the integer program, a batch of candidates at a time.

With :math:`b_c` the best bound known of candidate c, at first ``relaxation``, and U the least seconds of any division
known so far:

(1) candidates are looked at by ascending :math:`b_c`, and none with :math:`b_c \ge U`; at first the simple divisions of
    each are priced, which lowers U;
(2) those that are left go into programs, a batch at a time. A program holds the stages that a division of at most U
    seconds can have (``taut.formulations.program.windows``); its optimum lowers U, and bounds all of its batch;
(3) the least optimum of all batches is that of the program over all candidates; where a solver stops early the bound is
    the least of its bounds and of :math:`b_c` over what was not taken up.

So the program over hundreds of candidates is never written down whole. Every solve is exact: (1) and (2) leave out only
what is not better than a division in hand. What is known of candidates is kept from one choice to the next.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from time import perf_counter

from taut.data.units import NANOSECONDS_PER_SECOND
from taut.formulations.program.program import MIXED, Option, StrategyChoice, StrategyProgram
from taut.formulations.program.rows import strategy_program
from taut.formulations.space import Candidate
from taut.formulations.strategy import Strategy
from taut.solver.bounds.ladder import Ladder
from taut.solver.methods.options import SimpleDivision, cautious_option, options_of, rounded_off, simple_division
from taut.solver.program.checked import ProgramResult
from taut.solver.result import Status

MOST_CANDIDATES = 6
"""Candidates of a batch: few lower U soonest, and what is left then is small."""
BATCH_SHARE = 0.4
"""Of the time left, for one batch."""
LEAST_SECONDS = 0.5
"""Seconds that a solve is given at least, and below which none begins."""
Backend = Callable[..., ProgramResult]
"""``solve_cpsat`` or ``solve_cbc``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """
    A strategy and its seconds in the program, None and infinite where no division is below the limit.

    ``lower_bound`` seconds hold for all candidates that were not left out; ``patterns`` are those of the stages.
    """

    strategy: Strategy | None
    patterns: tuple[int, ...]
    seconds: float
    lower_bound: float
    solver: str


class StrategyPool:
    """
    The candidates of a problem with their options, and the best bound known of each, b_c.

    Parameters
    ----------
    ladder
        The problem, and what its bounds share.
    candidates
        What is chosen from; none priced by its order.
    """

    def __init__(self, ladder: Ladder, candidates: Iterable[Candidate]) -> None:
        self._ladder = ladder
        self.bounds = {candidate: ladder.relaxation(candidate) for candidate in candidates}
        self._options: dict[Candidate, list[Option]] = {}
        self._simple: dict[Candidate, SimpleDivision] = {}

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

    def leave_out(self, candidate: Candidate) -> None:
        """Let no further choice be of this candidate."""
        del self.bounds[candidate]


def best_strategy(
    pool: StrategyPool,
    solve: Backend,
    *,
    below: float = math.inf,
    time_limit: float | None = None,
    workers: int = 1,
    seed: int = 0,
) -> Choice:
    """
    The strategy of least seconds, whatever its placement.

    ``pool``: what is chosen from; bounds that are found are kept in it; ``below``: seconds that a choice must be below
    to be of interest; ``time_limit``: seconds for all batches together; None for none; ``workers``, ``seed``: threads
    and seed of the backend. Returns the optimum, or the best so far with a bound.
    """
    run = _Run(pool, solve, below, time_limit, workers, seed)
    run.price_simple_ones()
    left = pool.below(run.known)
    while left and not run.is_over:
        run.take(left[:MOST_CANDIDATES])
        left = [candidate for candidate in left[MOST_CANDIDATES:] if pool.bounds[candidate] < run.known]
    run.leave(left)
    return run.choice()


def cautious_strategy(
    ladder: Ladder, candidate: Candidate, solve: Backend, *, time_limit: float | None = None, seed: int = 0
) -> Strategy | None:
    """The best division of a candidate that fits any placement on devices of several types, or None."""
    option = cautious_option(ladder, candidate)
    simple = simple_division(option)
    program = strategy_program([option._replace(most=simple.seconds)])
    choice = solve(program, time_limit=time_limit, workers=1, seed=seed).choice
    division = choice.division if choice is not None else simple.division
    return Strategy(candidate=candidate, division=division) if division.stages else None


class _Run:
    """The batches of one choice: the best division so far, and the bound."""

    def __init__(
        self, pool: StrategyPool, solve: Backend, below: float, time_limit: float | None, workers: int, seed: int
    ) -> None:
        self._pool, self._solve, self._workers, self._seed = pool, solve, workers, seed
        self._end = math.inf if time_limit is None else perf_counter() + time_limit
        self.seconds, self.known = below, below
        self.lower_bound, self._solver = math.inf, ""
        self._best: tuple[StrategyProgram, StrategyChoice] | None = None
        self._simple: tuple[Candidate, SimpleDivision] | None = None

    @property
    def is_over(self) -> bool:
        """Whether the time is, but for what no solve begins in."""
        return self._end - perf_counter() < LEAST_SECONDS

    def price_simple_ones(self) -> None:
        """Lower U by simple divisions, (1)."""
        for candidate in self._pool.below(self.known):
            if self._pool.bounds[candidate] >= self.known or self.is_over:
                return
            found = self._pool.simple(candidate, self.known)
            if found.seconds < self.known:
                self.known, self._simple = found.seconds, (candidate, found)

    def take(self, batch: list[Candidate]) -> None:
        """Solve the program of a batch, (2)."""
        options = [option._replace(most=self.known) for each in batch for option in self._pool.options(each)]
        program = strategy_program(options)
        result = self._solve(program, time_limit=self._left(), workers=self._workers, seed=self._seed)
        self._solver, before = result.solver, self.known
        if result.choice is not None and result.objective_ns is not None:
            seconds = result.objective_ns / NANOSECONDS_PER_SECOND
            if seconds < self.seconds:
                self.seconds, self._best = seconds, (program, result.choice)
                chosen = program.options[result.choice.candidate].partition
                self.known = min(self.known, seconds + rounded_off(chosen))
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
        if self._best is None and self._simple is not None:
            # No program came so far as to find what is at hand.
            candidate, simple = self._simple
            return Choice(
                strategy=Strategy(candidate=candidate, division=simple.division),
                patterns=_plain(simple.patterns),
                seconds=simple.seconds,
                lower_bound=bound,
                solver=self._solver,
            )
        if self._best is None:
            return Choice(strategy=None, patterns=(), seconds=math.inf, lower_bound=bound, solver=self._solver)
        program, chosen = self._best
        candidate = program.options[chosen.candidate].candidate
        return Choice(
            strategy=Strategy(candidate=candidate, division=chosen.division),
            patterns=_plain(chosen.patterns),
            seconds=self.seconds,
            lower_bound=min(bound, self.seconds),
            solver=self._solver,
        )


def _plain(patterns: tuple[int, ...]) -> tuple[int, ...]:
    """The patterns as ``taut.formulations.partition`` (4) names them, however a mixed stage is priced."""
    return tuple(min(pattern, MIXED) for pattern in patterns)
