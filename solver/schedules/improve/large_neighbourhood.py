r"""
Large-neighbourhood search on schedules: CP-SAT finds the best order of a part of the passes [1]_.

A neighbourhood frees the passes of one part (``taut.solver.schedules.improve.exact``, (7)) and keeps the
order of all others. A part is a *time window*, all passes that start in an interval of time, or a *band*, all passes of
some neighbouring devices in such an interval. Intervals begin anywhere and hold about a given number of passes; the
number grows by 15 % when a part is solved to optimality and shrinks by 10 % when it is not (1). The choice follows from
the seed and the round alone, and so does the outcome as long as only the solver's own measure of work ends a round (2).

References
----------
.. [1] Shaw, P. (1998). Using constraint programming and local search methods to solve vehicle routing problems.
       Principles and Practice of Constraint Programming (CP): 417-431.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from taut.data.arrays import Flags, Floats
from taut.formulations.schedules.schedule import Schedule, ScheduleProblem
from taut.solver.schedules.canonical import canonical_starts
from taut.solver.schedules.improve.exact import Solved, solve

_SMALLEST, _LARGEST = 24, 400
"""Passes of a part, (1): below, moves along critical paths find as much; above, CP-SAT seldom ends within its work."""
_WORK = 0.6
"""The solver's measure of work for one part: about half a second."""


@dataclass
class LargeNeighbourhood:
    """
    Large-neighbourhood search on one pipeline.

    ``problem``: the pipeline; ``seed``: of the parts chosen; ``passes``: number of passes that a part holds now, (1);
    ``round``: number of parts solved so far.
    """

    problem: ScheduleProblem
    seed: int = 0
    passes: int = 64
    round: int = 0

    def improve(
        self,
        schedule: Schedule,
        *,
        lower_bound: float = 0.0,
        time_limit: float = 60.0,
        stop: Callable[[], bool] = lambda: False,
    ) -> Solved:
        """
        Solve one part of a schedule.

        ``lower_bound``: seconds that no schedule is shorter than; ``time_limit``: seconds; ``stop``: asked several
        times a second; if true, the search ends. Returns a schedule that is not longer.
        """
        draw = np.random.default_rng((self.seed, self.round))
        self.round += 1
        free = self._part(canonical_starts(self.problem, schedule), draw)
        solved = solve(
            self.problem,
            schedule,
            free=free,
            lower_bound=lower_bound,
            time_limit=time_limit,
            work_limit=_WORK,
            seed=self.round,
            stop=stop,
        )
        factor = 1.15 if solved.is_complete else 0.9
        self.passes = int(np.clip(factor * self.passes, _SMALLEST, _LARGEST))
        return solved

    def _part(self, begin: Floats, draw: np.random.Generator) -> Flags:
        """Passes of some devices that start in an interval; all if they are few."""
        problem = self.problem
        if begin.size <= self.passes:
            return np.ones(begin.shape, dtype=bool)
        wide = draw.random() < 0.5
        count = problem.num_devices if wide else int(draw.integers(1, max(problem.num_devices, 2)))
        first = int(draw.integers(problem.num_devices - count + 1))
        chosen = (problem.device >= first) & (problem.device < first + count)
        inside = np.broadcast_to(chosen[None, :, None], begin.shape)
        times = np.sort(begin[inside])
        at = int(draw.integers(-self.passes // 2, max(len(times) - self.passes // 2, 1)))
        low, high = times[max(at, 0)], times[min(at + self.passes, len(times) - 1)]
        return np.asarray(inside & (begin >= low) & (begin <= high))
