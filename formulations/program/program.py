r"""
The strategy choice in integers: degrees, micro-batch, stages, recompute, classes of device.

Sets
    Candidates c with :math:`pp_c` stages, :math:`dp_c` replicas, :math:`m_c` micro-batches; stages
    :math:`x = 0, \dots, pp_c - 1`; layer positions :math:`0 \le i < j \le L`; recompute r; patterns q, one,
    or three for two classes of device (``taut.formulations.partition`` (4)).

Data
    Integers. Seconds s become nanoseconds :math:`\lfloor 10^9 s \rfloor`, bytes become KiB rounded up.

    - :math:`h_{cijrq}`: nanoseconds of ``high``; :math:`p_{cxijrq}`: nanoseconds of ``low``, plus those of
      ``edge`` at j for :math:`x < pp_c - 1`, plus those of ``tail`` at j for :math:`x = 0`;
    - :math:`k_{cxijr}`: KiB of a stage; :math:`K_{cq}`: KiB of its budget.

Variables
    A candidate c, and layers :math:`[i_x, j_x)`, recompute :math:`r_x` and pattern :math:`q_x` of each stage x.

Objective
    .. math:: \min \sum_x p_{c x i_x j_x r_x q_x} + (m_c - 1) \max_x h_{c i_x j_x r_x q_x}

Constraints
    (1) :math:`i_0 = 0`, :math:`j_{x-1} = i_x < j_x` and :math:`j_{pp_c-1} = L`;
    (2) every price is finite;
    (3) :math:`k_{c x i_x j_x r_x} \le K_{c q_x}` for each stage x;
    (4) for two classes of device, the patterns hold the slow tensor groups that there are.

Every price is rounded down, so the optimum is a lower bound on the optimum in seconds, and misses it by less
than one nanosecond for each price counted, :math:`2 pp_c + m_c - 1` of them.

Where a step waits for the reductions of all stages (``taut.formulations.partition`` (1')), :math:`\min \sum_m (m - 1)
M_m + Z + O` takes the place of the sum of prices p. :math:`Z \ge 0` is when the last stage has reduced its gradients,
:math:`O \ge 0` the longest optimizer. In nanoseconds, for stage x of candidate c on layers [i, j): behind is ``low``
with ``edge`` at j, ahead is ``forward`` with the ``edge`` of later stages at j, R the stage's reduction, o its
optimizer, b what all stages wait for besides (``others``). Of every such candidate

    (5) :math:`Z \ge \sum p \, a`;
    (6) :math:`Z \ge \sum_{y < x} ahead \, a + \sum_{y \ge x} behind \, a + \sum_{y = x} R \, a + b u_c` for each x;
    (7) :math:`O \ge \sum o \, a` over stage x, for each x.

Only the chosen candidate has columns that are not 0, so one Z and one O serve all of them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.data.costs import RECOMPUTE
from taut.data.units import KIB, NANOSECONDS_PER_SECOND
from taut.errors import FormulationError
from taut.formulations.partition import LaterStages, PartitionProblem
from taut.formulations.space import Candidate
from taut.formulations.strategy import Division


class Waits(NamedTuple):
    """Nanoseconds of ranges that are stages: ahead, behind, reduction and optimizer, each (A,)."""

    ahead: Ints
    behind: Ints
    reduction: Ints
    optimizer: Ints


def nanoseconds(seconds: Floats) -> Ints:
    """Finite seconds as integer nanoseconds, rounded down."""
    return np.asarray(np.floor(seconds * NANOSECONDS_PER_SECOND), dtype=np.int64)


def waits(
    problem: PartitionProblem, later: LaterStages, edge: Floats, stage: Ints, ranges: tuple[Ints, Ints, Ints, Ints]
) -> Waits:
    """What stages (A,) on ranges by pattern, recompute, first and end layer, each (A,), add to the ends of the step."""
    pattern, _, first, end = ranges
    assert problem.forward is not None
    low, forward, inner = problem.low[ranges], problem.forward[pattern, first, end], stage < problem.pp - 1
    ring = np.maximum(later.ring[stage], later.class_ring[np.minimum(pattern, len(later.class_ring) - 1)])
    reduction = ring * later.exchanged[first, end]
    if later.overlap:
        reduction = np.maximum(ring * later.unhidden[first, end], reduction - (low - forward))
    reduction = reduction + np.broadcast_to(later.each, problem.pp)[stage]
    return Waits(
        ahead=nanoseconds(forward) + nanoseconds(np.where(inner, later.edge[end], 0.0)),
        behind=nanoseconds(low) + nanoseconds(np.where(inner, edge[end], 0.0)),
        reduction=nanoseconds(reduction),
        optimizer=nanoseconds(later.optimizer * later.parameters[first, end]),
    )


def others(later: LaterStages) -> int:
    """Nanoseconds b that every stage waits for besides."""
    return int(nanoseconds(np.array(later.others)))


def latest(each: Waits, price: int, later: LaterStages) -> int:
    """Nanoseconds Z + O of stages in order, of which ``price`` is the sum of p."""
    before = np.cumsum(each.ahead) - each.ahead
    after = np.cumsum(each.behind[::-1])[::-1]
    last = int((before + after + each.reduction).max()) + others(later)
    return max(price, last) + int(each.optimizer.max())


def ends_of(each: Waits, stage: Ints, pp: int) -> Iterator[tuple[Ints, Ints]]:
    """Coefficients of (6) and of (7) for the columns of a candidate, stage by stage, each (A,)."""
    for x in range(pp):
        here = stage == x
        yield np.where(stage < x, each.ahead, each.behind) + np.where(here, each.reduction, 0), each.optimizer * here


SLOW, MIXED, SLOW_MIXED = 1, 2, 3


class Option(NamedTuple):
    """A candidate with its partition problem, edge and tail (L+1,) and later stages, of at most ``most`` seconds."""

    candidate: Candidate
    partition: PartitionProblem
    edge: Floats
    tail: Floats
    later: LaterStages | None = None
    most: float = np.inf


class Row(NamedTuple):
    """A sparse linear row, lower <= sum of coefficients times columns <= upper; None is unbounded."""

    columns: Ints
    coefficients: Ints
    lower: int | None
    upper: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyChoice:
    """Number of an option, with the division and the pattern of each stage."""

    candidate: int
    division: Division
    patterns: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StageColumns:
    """What every variable a stands for; p and h in nanoseconds, k and K in KiB, all (A,)."""

    candidate: Ints
    stage: Ints
    first: Ints
    end: Ints
    recompute: Ints
    pattern: Ints
    price: Ints
    high: Ints
    need: Ints
    budget: Ints

    @property
    def fits(self) -> Flags:
        """Whether the stage alone keeps its budget."""
        return self.need <= self.budget


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StrategyProgram:
    """
    The choice as an integer program in plain arrays, as ``taut.formulations.program.rows`` states it.

    Columns are all u, then all a, then all M, then those of whatever else is stated, and none is below 0.
    ``objective`` and ``upper`` are (n,) integers, ``binary`` (n,) says which columns are either 0 or 1.
    """

    options: tuple[Option, ...]
    stages: StageColumns
    objective: Ints
    upper: Ints
    binary: Flags
    rows: tuple[Row, ...]

    def cost(self, choice: StrategyChoice) -> int:
        """Nanoseconds of a choice by the options' own arrays; ``FormulationError`` where it violates a constraint."""
        if broken := self.violations(choice):
            raise FormulationError(f"strategy program: {broken[0]}")
        return option_cost(self.options[choice.candidate], choice.division, choice.patterns)

    def violations(self, choice: StrategyChoice) -> tuple[str, ...]:
        """What is wrong with a choice, one line each; empty if it is feasible."""
        if not 0 <= choice.candidate < len(self.options):
            return (f"candidate {choice.candidate} does not exist, expected 0 to {len(self.options) - 1}",)
        option = self.options[choice.candidate]
        shape = tuple(_shape_violations(option.partition, choice))
        return shape or (*_stage_violations(option, choice), *_class_violations(option.partition, choice))

    def decode(self, values: Sequence[float] | Floats | Ints) -> StrategyChoice:
        """The choice in the values of all columns (n,); ``FormulationError`` unless exactly one candidate is chosen."""
        taken = np.flatnonzero(np.asarray(values)[: len(self.options) + len(self.stages.stage)] > 0.5)
        chosen = taken[taken < len(self.options)].tolist()
        if len(chosen) != 1:
            raise FormulationError(f"strategy program: candidates {chosen} are chosen, expected one")
        stages, picks = self.stages, taken[1:] - len(self.options)
        return StrategyChoice(
            candidate=chosen[0],
            division=Division(
                tuple(zip(stages.first[picks].tolist(), stages.end[picks].tolist(), strict=True)),
                tuple(RECOMPUTE[r] for r in stages.recompute[picks].tolist()),
            ),
            patterns=tuple(stages.pattern[picks].tolist()),
        )


def option_cost(option: Option, division: Division, patterns: tuple[int, ...]) -> int:
    """Nanoseconds of an option's division under a pattern for every stage, which are taken to be feasible."""
    _, problem, edge, tail, later, _ = option
    ranges, ends = (np.array(patterns), *division.ranges), division.ends
    slowest = nanoseconds(problem.high[ranges]).max()
    cuts = nanoseconds(edge[ends[:-1]]).sum() + nanoseconds(tail[ends[:1]]).sum()
    once = int(nanoseconds(problem.low[ranges]).sum() + cuts)
    if later is not None:
        once = latest(waits(problem, later, edge, np.arange(problem.pp), ranges), once, later)
    return int(once + (problem.micro_batches - 1) * slowest)


def kibibytes(count: Ints) -> Ints:
    """Bytes as KiB, rounded up."""
    return -(-count // KIB)


def _ranges(choice: StrategyChoice) -> tuple[Ints, Ints, Ints, Ints]:
    """Pattern, recompute, first and end layer of every stage, as an index."""
    return np.array(choice.patterns), *choice.division.ranges


def _shape_violations(problem: PartitionProblem, choice: StrategyChoice) -> Iterator[str]:
    starts = [0, *(end for _, end in choice.division.stages)]
    chained = all(first == start for (first, _), start in zip(choice.division.stages, starts, strict=False))
    rising = all(first < end for first, end in choice.division.stages)
    if len(choice.division.stages) != problem.pp or not (chained and rising and starts[-1] == problem.num_layers):
        wanted = f"{problem.pp} in order over {problem.num_layers} layers"
        yield f"stages {list(choice.division.stages)} are wrong, expected {wanted}"
    if len(choice.division.recompute) != problem.pp or not set(choice.division.recompute) <= set(RECOMPUTE):
        yield f"recompute {list(choice.division.recompute)} is not one of {list(RECOMPUTE)} for each stage"
    if len(choice.patterns) != problem.pp or not set(choice.patterns) <= set(range(len(problem.budget))):
        yield f"patterns {list(choice.patterns)} are not below {len(problem.budget)} for each stage"


def _stage_violations(option: Option, choice: StrategyChoice) -> Iterator[str]:
    """Stages that have no price, and stages that exceed their memory."""
    problem, (pattern, *ranges) = option.partition, _ranges(choice)
    seconds = problem.low[pattern, *ranges] + problem.high[pattern, *ranges]
    seconds[:-1] += option.edge[ranges[2][:-1]]
    seconds[0] += option.tail[ranges[2][0]]
    need = kibibytes(problem.fixed[*ranges] + problem.in_flight * problem.activation[*ranges])
    budget = problem.budget[pattern] // KIB
    for x, stage in enumerate(choice.division.stages):
        if not np.isfinite(seconds[x]):
            yield f"stage {x} on layers {list(stage)} with recompute {choice.division.recompute[x]} is not allowed"
        if need[x] > budget[x]:
            yield f"stage {x} needs {need[x]} KiB, its devices have {budget[x]}"


def _class_violations(problem: PartitionProblem, choice: StrategyChoice) -> Iterator[str]:
    slow, priced = choice.patterns.count(SLOW), choice.patterns.count(SLOW_MIXED)
    mixed = choice.patterns.count(MIXED) + priced
    least, most = problem.dp * slow + mixed, problem.dp * slow + (problem.dp - 1) * mixed
    fewest, all_slow = problem.slow_groups, problem.slow_groups + problem.more_slow_groups
    if len(problem.budget) > 1 and (least > all_slow or most < fewest):
        stages = f"{slow} slow and {mixed} mixed stages"
        yield f"{stages} hold {least} to {most} slow groups, expected {problem.slow_groups}"
    if len(problem.budget) > SLOW_MIXED and mixed and not priced:
        yield f"none of {mixed} mixed stages is priced on the slow class"
