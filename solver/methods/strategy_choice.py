r"""
The best strategy of all candidates by the integer program, a batch of candidates at a time.

With :math:`r_c` the bound ``relaxation`` of candidate c and U the least seconds of any division known so far, at first
of simple ones:

(1) candidates are taken up by ascending :math:`r_c`, a batch at a time, and none with :math:`r_c \ge U`;
(2) of a batch the program holds the stages that a division of at most U seconds can have
    (``taut.formulations.program.windows``); its optimum lowers U;
(3) the least optimum of all batches is that of the program over all candidates; where a solver stops early the bound is
    the least of its bounds and of :math:`r_c` over what was not taken up.

So the program over hundreds of candidates is never written down whole. Every solve is exact: (1) and (2) leave out only
what is not better than a division in hand.
"""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from time import perf_counter

from taut.data.units import NANOSECONDS_PER_SECOND
from taut.formulations.program.program import Option, StrategyChoice, StrategyProgram
from taut.formulations.program.rows import strategy_program
from taut.formulations.space import Candidate
from taut.formulations.strategy import Strategy
from taut.solver.bounds.ladder import Ladder
from taut.solver.methods.options import cautious_option, options_of, rounded_off, simple_seconds
from taut.solver.program.checked import ProgramResult
from taut.solver.result import Status

MOST_OPTIONS = 6
"""Options of a batch: few at first lower U soonest, and what is left then is small."""
LEAST_SECONDS = 0.5
"""Seconds that a solve is given at least."""
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


def best_strategy(
    ladder: Ladder,
    candidates: Collection[Candidate],
    solve: Backend,
    *,
    below: float = math.inf,
    time_limit: float | None = None,
    workers: int = 1,
    seed: int = 0,
) -> Choice:
    """
    The strategy of least seconds, whatever its placement.

    Parameters
    ----------
    ladder
        The problem, and what its bounds share.
    candidates
        What is chosen from; none priced by its order.
    solve
        The backend.
    below
        Seconds that a choice must be below to be of interest.
    time_limit
        Seconds for all batches together; None for none.
    workers, seed
        Threads and seed of the backend.

    Returns
    -------
    Choice
        The optimum, or the best so far with a bound.
    """
    run = _Run(ladder, solve, below, time_limit, workers, seed)
    left = sorted(candidates, key=lambda each: (ladder.relaxation(each), each))
    while left and ladder.relaxation(left[0]) < run.seconds and not run.is_over:
        batch: list[Option] = []
        while left and len(batch) < MOST_OPTIONS and ladder.relaxation(left[0]) < run.seconds:
            batch += options_of(ladder, left.pop(0))
        run.take(batch)
    if left:
        run.lower_bound = min(run.lower_bound, ladder.relaxation(left[0]))
    return run.choice()


def cautious_strategy(
    ladder: Ladder, candidate: Candidate, solve: Backend, *, time_limit: float | None = None, seed: int = 0
) -> Strategy | None:
    """The best division of a candidate that fits any placement on unlike devices, or None."""
    option = cautious_option(ladder, candidate)
    program = strategy_program([option._replace(most=simple_seconds(option))])
    choice = solve(program, time_limit=time_limit, workers=1, seed=seed).choice
    return None if choice is None else Strategy(candidate=candidate, division=choice.division)


class _Run:
    """The batches of one choice: the best division so far, and the bound."""

    def __init__(
        self, ladder: Ladder, solve: Backend, below: float, time_limit: float | None, workers: int, seed: int
    ) -> None:
        self._ladder, self._solve, self._workers, self._seed = ladder, solve, workers, seed
        self._end = math.inf if time_limit is None else perf_counter() + time_limit
        self.seconds = self._known = below
        self.lower_bound, self._solver = math.inf, ""
        self._best: tuple[StrategyProgram, StrategyChoice] | None = None

    @property
    def is_over(self) -> bool:
        """Whether the time is."""
        return perf_counter() >= self._end

    def take(self, batch: list[Option]) -> None:
        """Solve the program of a batch, (2)."""
        self._known = min(self._known, *(simple_seconds(option) for option in batch))
        program = strategy_program([option._replace(most=self._known) for option in batch])
        result = self._solve(program, time_limit=self._left(), workers=self._workers, seed=self._seed)
        self._solver = result.solver
        proven = result.status in (Status.OPTIMAL, Status.INFEASIBLE)
        if result.choice is not None and result.objective_ns is not None:
            seconds = result.objective_ns / NANOSECONDS_PER_SECOND
            if seconds < self.seconds:
                self.seconds, self._best = seconds, (program, result.choice)
                chosen = program.options[result.choice.candidate].partition
                self._known = min(self._known, seconds + rounded_off(chosen))
        if proven:
            bound = math.inf if result.objective_ns is None else result.objective_ns / NANOSECONDS_PER_SECOND
        elif result.lower_bound_ns is not None:
            bound = result.lower_bound_ns / NANOSECONDS_PER_SECOND
        else:
            bound = min(self._ladder.relaxation(option.candidate) for option in batch)
        self.lower_bound = min(self.lower_bound, bound)

    def _left(self) -> float | None:
        return None if math.isinf(self._end) else max(self._end - perf_counter(), LEAST_SECONDS)

    def choice(self) -> Choice:
        """What is known now, (3)."""
        # Where nothing is below what is known, that bounds what was left out of the programs.
        bound = min(self.lower_bound, self._known)
        if self._best is None:
            return Choice(strategy=None, patterns=(), seconds=math.inf, lower_bound=bound, solver=self._solver)
        program, chosen = self._best
        candidate = program.options[chosen.candidate].candidate
        return Choice(
            strategy=Strategy(candidate=candidate, division=chosen.division),
            patterns=chosen.patterns,
            seconds=self.seconds,
            lower_bound=min(bound, self.seconds),
            solver=self._solver,
        )
