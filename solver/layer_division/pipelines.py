r"""
Division of the layers for one pipeline on two classes of device, and what any placement takes at least by it.

A pipeline passes every stage on a block of one class, fast or slow; the stage is all of that class or mixed. For given
numbers of stages that it passes on slow blocks it takes at least the optimum of ``taut.formulations.partition`` (1) or
(1') with

(1) the seconds of the class that is passed, both in the sum and in the slowest stage, as it waits for its own slowest;
(2) the memory and the ring of the stage's pattern: all fast, all slow or mixed;
(3) what a hop between classes adds, wherever a stage is passed on another class than the one before, and what hops
    between nodes add that its blocks of each class ask for.

With :math:`D_\theta` the least sum where no stage takes more than :math:`\theta`, it is the least
:math:`(m - 1) \theta + D_\theta` over the seconds of ranges, found as in ``taut.solver.layer_division.labels`` (3).

Every placement has such pipelines. Let F and S be the fast and the slow blocks, :math:`F + S = dp\,pp`.

(4) If no pipeline is all slow, the one with the most slow blocks has :math:`\lceil S / dp \rceil` to
    :math:`pp - 1` of them.
(5) If some pipeline is all slow, no stage is all fast. If then all others are all fast, pp divides F and every stage is
    mixed; the all-slow pipeline is bounded with that.
(6) Otherwise a of them are all fast and :math:`b \ge 1` have blocks of both classes, :math:`F - a\,pp` fast ones
    together. One of these has the fewest, f, and :math:`f \le \lfloor (F - a\,pp) / b \rfloor`. It and the all-slow one
    bound the step for every f that some a and b allow (``taut.solver.layer_division.pairs``).

Each of these is a case, and the least of them is a bound. Nothing is said of which class is quicker on a range. Where
blocks span nodes, n_1 is not known, and (4) with up to pp slow blocks is the only case.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from taut.formulations.partition import PartitionProblem
from taut.solver.layer_division.labels import Ranges, Seconds
from taut.solver.layer_division.states import FAST, MIXED, MIXED_FAST, MIXED_SLOW, SLOW


@dataclass(frozen=True, slots=True)
class Passed:
    """Numbers of stages that a pipeline passes on slow blocks, at least and at most, and the patterns of its stages."""

    least: int
    most: int
    patterns: tuple[int, ...] = (FAST, SLOW, MIXED_FAST, MIXED_SLOW)


@dataclass(frozen=True, slots=True)
class Beside:
    """Stages passed on fast blocks beside an all-slow pipeline, the most fast blocks of a stage, the latter alone."""

    fast: int
    most: int
    alone: Passed


def pipeline_cases(problem: PartitionProblem) -> Iterator[Passed | Beside]:
    """Yield the pipelines that a placement has in each case, (4) to (6)."""
    pp, dp, slow = problem.pp, problem.dp, problem.slow_groups
    fast = pp * dp - slow
    if problem.more_slow_groups or fast == 0:
        yield Passed(-(-slow // dp), pp)
        return
    yield Passed(-(-slow // dp), min(pp - 1, slow))
    if slow < pp:
        return
    if fast % pp == 0:
        yield Passed(pp, pp, (MIXED_SLOW,))
    numbers = [(fast - a * pp, b) for a in range(dp - 1) for b in range(1, dp - a)]
    fewest = max((left // b for left, b in numbers if b <= left <= b * (pp - 1)), default=0)
    alone = Passed(pp, pp, (SLOW, MIXED_SLOW))
    yield from (Beside(f, min(fast // f, dp - 1), alone) for f in range(fewest, 0, -1))


def of_pipeline(ranges: Ranges) -> Ranges:
    """Figures of one pipeline from those of all, by the class that it passes and the stage's pattern, (1) to (3)."""
    passed, pattern = [FAST, SLOW, FAST, SLOW], [FAST, SLOW, MIXED, MIXED]
    seconds = ranges.seconds.low[passed]
    # What a mixed stage may not hold, no pipeline passes there.
    seconds[MIXED_FAST:] = np.where(np.isfinite(ranges.seconds.low[-1]), seconds[MIXED_FAST:], np.inf)
    return ranges._replace(
        seconds=Seconds(seconds, seconds, ranges.seconds.forward[passed]),
        bytes=ranges.bytes._replace(budget=ranges.bytes.budget[pattern]),
        waits=ranges.waits._replace(
            ring=ranges.waits.ring.take(pattern, axis=1),
            each=ranges.waits.each.take(pattern, axis=1),
            overlap=False,
        ),
        kinds=np.arange(len(pattern)),
    )
