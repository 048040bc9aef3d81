r"""
Candidates of a planning problem as options of the strategy program, with the least communication of each.

(1) The prices are those of the bound ``partition`` (``taut.solver.bounds.candidate_bounds``), so that the optimum over
    all options is the least of that bound over all candidates, but for what it gains by branching on members of rings,
    by hops between classes of device and by the pipeline with the most slow blocks (``taut.formulations.partition``
    (6) and (7)). The ladder's bound over the result has these.
(2) AMP's flat ring is that of the stage with most gradients: it takes the place of the optimizer in
    ``taut.formulations.program.later_stages`` (3), which is the longest of all stages too.
(3) Where divisions are stated in families (``taut.formulations.divisions``), a candidate has an option for each.
(4) A candidate with sharded weights may have an option for every case of ``taut.solver.bounds.copies``, one of which
    holds.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Ints
from taut.data.units import NANOSECONDS_PER_SECOND
from taut.formulations.candidate_partition import partition_problem
from taut.formulations.divisions import is_stated
from taut.formulations.partition import LaterStages, PartitionProblem
from taut.formulations.program.program import SLOW, Option, kibibytes, option_cost
from taut.formulations.space import Candidate
from taut.formulations.strategy import Division
from taut.solver.bounds.communication import Communication
from taut.solver.bounds.copies import Divided, divided, has_cases
from taut.solver.bounds.ladder import Ladder
from taut.solver.bounds.least_rings import least_gather

NEAR = 1.1
"""Times the least seconds known from which on a simple division is worth moving layers."""


def options_of(ladder: Ladder, candidate: Candidate, most: float = np.inf) -> Iterator[Option]:
    """
    The options of a candidate, one but for (3) and (4).

    ``ladder``: the problem, and what its bounds share; ``candidate``: one that is not priced by its order; ``most``:
    seconds that a plan of interest does not exceed.
    """
    comm = ladder.communication(candidate)
    for stages, tail in _cases(ladder, candidate):
        mixed = stages.with_mixed(2, 1) if len(stages.budget) > 1 and candidate.pp > 1 else stages
        for family in mixed.by_family:
            yield Option(candidate, family, comm.edge, tail + comm.ring_latency, _later(comm, stages), most)


def _cases(ladder: Ladder, candidate: Candidate) -> Iterator[Divided]:
    """The partition problem of a candidate, or those of (4)."""
    if has_cases(ladder.problem, candidate):
        yield from divided(ladder.problem, candidate, ladder.links)
        return
    gather = least_gather(ladder.problem, candidate, ladder.links)
    stages = partition_problem(ladder.problem, candidate, gather=gather)
    yield Divided(stages, ladder.communication(candidate).tail)


def cautious_option(ladder: Ladder, candidate: Candidate) -> Option:
    """Every stage on the slowest type and within the smallest, so that a division fits any placement; no bound."""
    comm, stages = ladder.communication(candidate), partition_problem(ladder.problem, candidate, cautious=True)
    return Option(candidate, stages, comm.edge, comm.tail + comm.ring_latency, _later(comm, stages))


def _later(comm: Communication, stages: PartitionProblem) -> LaterStages | None:
    """What later stages wait for, or (2)."""
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


class SimpleDivision(NamedTuple):
    """A division with the pattern of every stage, and no fewer seconds than it takes in the program."""

    seconds: float
    division: Division
    patterns: tuple[int, ...]


NOTHING = SimpleDivision(np.inf, Division((), ()), ())
"""In the place of a division where none of the simple ones fits."""


def simple_division(option: Option, known: float = np.inf) -> SimpleDivision:
    """
    A simple division of an option, ``NOTHING`` where none of these fits.

    Layers in proportion to the speed of the stages' devices, slow ones in front or at the end, and in each stage the
    cheapest recompute that fits; where that is near the seconds known, single layers are moved while it gets better.
    """
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
