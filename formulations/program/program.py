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

The 0-1 program of this choice is a path through layer positions (network flow) with a makespan in epigraph form.

Variables
    - :math:`u_c \in \{0, 1\}`: candidate c is chosen;
    - :math:`a_{cxijrq} \in \{0, 1\}`: stage x of candidate c is layers [i, j) with recompute r and pattern q.
      Where any of the seconds is infinite there is no variable, nor where no division of interest has this stage;
    - :math:`M_m \ge 0` integer nanoseconds: the slowest stage, one for every :math:`m > 1` of the candidates,
      so that for each number of micro-batches the makespan is linear (its epigraph).

Objective
    .. math:: \min \sum p \, a + \sum_m (m - 1) M_m

Constraints, (9), (11) and (12) for every candidate c
    (8) :math:`\sum_c u_c = 1`;
    (9) at each (x, i), as many stages x - 1 end at i as stages x begin there; :math:`u_c` enters at (0, 0)
        and leaves at (pp_c, L) (flow conservation);
    (10) :math:`M_m \ge \sum_c \sum_{ijrq} h \, a` for each stage x, over the candidates with m micro-batches, and
        :math:`M_m \ge \sum_c \mu_c u_c` with :math:`\mu_c` the largest of the stages' least h and of S(0, L) / pp as
        in (14). One candidate is chosen, so the sum over all candidates is that of the chosen one. In the relaxation,
        fractions of several candidates or paths cannot share a makespan that none of them has;
    (11) :math:`\sum_{ijr} k \, a \le K_{cq} u_c` for each stage x and pattern q; a stage that exceeds its budget
        alone is bounded by 0, so that no tolerance of a solver can let it in;
    (12) :math:`dp_c S + X \le n_c u_c \le dp_c S + (dp_c - 1) X` for two classes, S stages slow, X mixed, and
        :math:`n_c` slow tensor groups; and where a mixed stage may be priced on the slow class
        (``taut.formulations.partition`` (5)), some mixed stage is priced so if any stage is mixed:
        :math:`\sum_x a \ge \sum a`, on the left over the choices of this price, on the right over the other mixed
        choices of a stage, for each stage;
    (13) where a step waits for all stages, (5) to (7), summed as in (10).

Some layer ranges can be no stage of a division that is of interest. Let :math:`s_l` be the least seconds of layer l
over recompute and patterns, :math:`S(i, j)` their sum over a range, and suppose that no range takes less than the sum
of its layers. With stage x on [i, j) the x stages before it have [0, i) and the :math:`pp - 1 - x` after it [j, L), the
slowest of them at least the mean, so a division takes at least

(14) :math:`S(0, L) - S(i, j) + low + \sum_{cuts} edge + tail
    + (m - 1) \max \big( high, \; S(0, i) / x, \; S(j, L) / (pp - 1 - x) \big)`

with the least edge at every cut and the least tail, that of j for stage 0. Where that is above the seconds of a known
division, [i, j) is no stage x of a better one. Ranges for which the supposition fails are all kept.

(15) Of the recomputes with which [i, j) fits as stage x, one that takes no longer than all others in ``low`` and
    ``high`` is enough, since memory is bounded stage by stage: the others, and all that do not fit, are left out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.data.costs import RECOMPUTE
from taut.data.units import KIB, NANOSECONDS_PER_SECOND
from taut.errors import FormulationError
from taut.formulations.divisions import stated_ranges
from taut.formulations.partition import LaterStages, PartitionProblem
from taut.formulations.schedules.orders import CLOSED_FORM
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
    by_pattern = np.broadcast_to(later.parameters, problem.forward.shape)
    return Waits(
        ahead=nanoseconds(forward) + nanoseconds(np.where(inner, later.edge[end], 0.0)),
        behind=nanoseconds(low) + nanoseconds(np.where(inner, edge[end], 0.0)),
        reduction=nanoseconds(reduction),
        optimizer=nanoseconds(later.optimizer * by_pattern[pattern, first, end]),
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
    The choice as an integer program in plain arrays, as ``taut.formulations.program.program`` states it.

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


ROUNDING = 1e-9
"""Relative allowance for sums of floats; (14) removes only what is worse by more."""


def windows(problem: PartitionProblem, edge: Floats, tail: Floats, most: float) -> list[Flags]:
    """Ranges of each stage in divisions of at most ``most`` seconds, as (patterns, recompute, L+1, L+1) flags."""
    every = np.isfinite(problem.low) & np.isfinite(problem.high)
    if not np.isfinite(most):
        return [every] * problem.pp
    kept = [every & _cheapest(problem, x) for x in range(problem.pp)]
    if not _adds_up(problem):
        return kept
    layers, pp = problem.num_layers, problem.pp
    total = np.concatenate([[0.0], np.cumsum(_least(problem))])
    before, after = total[:, None], (total[-1] - total)[None, :]
    inner = range(1, layers)
    cuts = (pp - 1) * min((float(edge[j]) for j in inner), default=0.0) if pp > 1 else 0.0
    once = before + after + np.where(every, problem.low, 0.0) + cuts
    high = np.where(every, problem.high, 0.0)
    found = []
    for x in range(pp):
        mean = np.maximum(before / max(x, 1), after / max(pp - 1 - x, 1))
        least = once + (problem.micro_batches - 1) * np.maximum(high, mean)
        least = least + (tail[None, :] if x == 0 else float(tail[1:].min()))
        found.append(kept[x] & (least <= most * (1 + ROUNDING)))
    return found


def _cheapest(problem: PartitionProblem, x: int) -> Flags:
    """Whether a recompute is the one that (15) keeps; all that fit where none is the quickest in both."""
    need = problem.fixed + problem.in_flight[x] * problem.activation
    fits = -(-need[None] // KIB) <= problem.budget[:, None, None, None] // KIB
    low, high = np.where(fits, problem.low, np.inf), np.where(fits, problem.high, np.inf)
    first = low.argmin(axis=1)[:, None]
    quickest = np.take_along_axis(high, first, axis=1) <= high.min(axis=1, keepdims=True)
    chosen = np.arange(low.shape[1])[None, :, None, None] == first
    return np.asarray(fits & (chosen | ~quickest))


def _least(problem: PartitionProblem) -> Floats:
    """Least seconds of every layer (L,)."""
    layers = np.arange(problem.num_layers)
    return np.asarray(problem.low[:, :, layers, layers + 1].min(axis=(0, 1)))


def _adds_up(problem: PartitionProblem) -> bool:
    """Whether no range takes less than the sum of its layers' least seconds."""
    least = _least(problem)
    if not np.isfinite(least).all():
        return False
    total = np.concatenate([[0.0], np.cumsum(least)])
    whole = total[None, :] - total[:, None]
    first, end = np.triu_indices(len(total), 1)
    enough = whole[first, end] * (1 - ROUNDING)
    return bool((problem.low[..., first, end] >= enough).all() and (problem.high >= problem.low)[..., first, end].all())


MOST_SECONDS = 1e6
"""Larger prices would leave no room for their sums in 63 bits, nor for every nanosecond in a float."""


def strategy_program(options: Sequence[Option]) -> StrategyProgram:
    """The integer program over options, in integers; infinite ``low`` limits the gradients of a stage."""
    if not options:
        raise FormulationError("strategy program: there is no option, expected at least one")
    for option in options:
        if option.candidate.schedule not in CLOSED_FORM:
            kind = option.candidate.schedule
            raise FormulationError(f"strategy program: {kind} has no linear step time, expected 1f1b or gpipe")
    for number, option in enumerate(options):
        _check(option, f"strategy program: option {number}")
    parts = [_stage_columns(c, option) for c, option in enumerate(options)]
    names = [field.name for field in fields(StageColumns)]
    stages = StageColumns(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})
    micro_batches = sorted({option.partition.micro_batches for option in options} - {1})
    most = stages.high.max(initial=0)
    count = len(options) + len(stages.stage)
    summed = np.array([option.later is None for option in options])
    ends = [] if summed.all() else [_latest_end(options, parts), _longest_optimizer(options, parts)]
    makespan = {m: count + number for number, m in enumerate(micro_batches)}
    last = count + len(micro_batches)
    prices = np.where(summed[stages.candidate], stages.price, 0).tolist()
    return StrategyProgram(
        options=tuple(options),
        stages=stages,
        objective=np.array([0] * len(options) + prices + [m - 1 for m in micro_batches] + [1] * len(ends)),
        upper=np.array([1] * len(options) + stages.fits.tolist() + [most] * len(micro_batches) + ends, dtype=np.int64),
        binary=np.arange(last + len(ends)) < count,
        rows=tuple(_rows(options, parts, makespan, (last, last + 1))),
    )


def _waits(option: Option, part: StageColumns) -> Waits:
    """What the columns of an option that waits for all stages add to the ends of the step."""
    assert option.later is not None
    ranges = part.pattern, part.recompute, part.first, part.end
    return waits(option.partition, option.later, option.edge, part.stage, ranges)


def _latest_end(options: Sequence[Option], parts: list[StageColumns]) -> int:
    """More nanoseconds than Z takes in any division."""
    most = 0
    for option, part in zip(options, parts, strict=True):
        if option.later is not None and len(part.stage):
            each = _waits(option, part)
            stage = max(int(part.price.max()), int((each.ahead + each.behind + each.reduction).max()))
            most = max(most, option.partition.pp * stage + others(option.later))
    return most


def _longest_optimizer(options: Sequence[Option], parts: list[StageColumns]) -> int:
    """Most nanoseconds of any stage's optimizer."""
    pairs = zip(options, parts, strict=True)
    return max(int(_waits(*pair).optimizer.max(initial=0)) for pair in pairs if pair[0].later is not None)


def _check(option: Option, where: str) -> None:
    """Refuse what the program could not state."""
    problem, size = option.partition, option.partition.num_layers + 1
    if option.edge.shape != (size,) or option.tail.shape != (size,):
        shapes = f"edge {option.edge.shape} and tail {option.tail.shape}"
        raise FormulationError(f"{where}: {shapes}, expected ({size},) for {size - 1} layers")
    first, end = np.triu_indices(size, 1)
    prices = problem.low[..., first, end], problem.high[..., first, end], option.edge[1:], option.tail[1:]
    if not all(((seconds >= 0) & ((seconds < MOST_SECONDS) | (seconds == np.inf))).all() for seconds in prices):
        raise FormulationError(f"{where}: some seconds are outside 0 to {MOST_SECONDS:g}, and not infinite")
    if (problem.budget % KIB).any():
        raise FormulationError(f"{where}: budget {problem.budget.tolist()} bytes, expected whole KiB")


def _stage_columns(c: int, option: Option) -> StageColumns:
    """The variables a of one candidate, stage after stage."""
    problem = option.partition
    inside = windows(problem, option.edge, option.tail, option.most)
    stated = stated_ranges(problem.families, problem.num_layers)
    if stated is not None:
        inside = [allowed & stated[x] for x, allowed in enumerate(inside)]
    found = [np.argwhere(allowed & _possible(option, x)) for x, allowed in enumerate(inside)]
    stage = np.repeat(np.arange(problem.pp), [len(part) for part in found])
    pattern, recompute, first, end = np.concatenate(found).T
    ranges = recompute, first, end
    cut = np.where(stage < problem.pp - 1, option.edge[end], 0.0)
    start = np.where(stage == 0, option.tail[end], 0.0)
    return StageColumns(
        candidate=np.full(len(stage), c),
        stage=stage,
        first=first,
        end=end,
        recompute=recompute,
        pattern=pattern,
        price=nanoseconds(problem.low[pattern, *ranges]) + nanoseconds(cut) + nanoseconds(start),
        high=nanoseconds(problem.high[pattern, *ranges]),
        need=kibibytes(problem.fixed[ranges] + problem.in_flight[stage] * problem.activation[ranges]),
        budget=problem.budget[pattern] // KIB,
    )


def _possible(option: Option, x: int) -> Flags:
    """Whether [i, j) can be stage x, (L+1, L+1): others keep a layer each, edge and tail are finite."""
    after, layers = option.partition.pp - 1 - x, option.partition.num_layers
    i, j = np.ogrid[: layers + 1, : layers + 1]
    begins = i >= x if x else (i == 0) & np.isfinite(option.tail)
    ends = (j <= layers - after) & np.isfinite(option.edge) if after else j == layers
    return np.asarray((i < j) & begins & ends)


def _rows(
    options: Sequence[Option], parts: list[StageColumns], makespan: dict[int, int], ends: tuple[int, int]
) -> Iterator[Row]:
    # (8)
    yield Row(np.arange(len(options)), np.ones(len(options), dtype=np.int64), 1, 1)
    before, shared = len(options), dict[tuple[int, int], list[Row]]()
    for c, (option, part) in enumerate(zip(options, parts, strict=True)):
        columns = before + np.arange(len(part.stage))
        before += len(columns)
        yield from _flow_rows(option.partition, part, columns, c)
        if option.partition.micro_batches > 1:
            slowest = makespan[option.partition.micro_batches]
            for x, row in enumerate(_makespan_rows(option.partition, part, columns, c)):
                shared.setdefault((slowest, x), []).append(row)
        yield from _memory_rows(option.partition, part, columns, c)
        if len(option.partition.budget) > 1:
            yield from _class_rows(option.partition, part, columns, c)
        if option.later is not None:
            for end, x, row in _end_rows(option, part, columns, c, ends):
                shared.setdefault((end, x), []).append(row)
    for (column, _), rows in shared.items():
        entries = [*(each for row in rows for each in row.columns.tolist()), column]
        yield Row(np.array(entries), np.concatenate([*(-row.coefficients for row in rows), [1]]), 0, None)


def _flow_rows(problem: PartitionProblem, part: StageColumns, columns: Ints, c: int) -> Iterator[Row]:
    """(9), one row for every place (x, i) that a stage reaches or leaves."""
    size = problem.num_layers + 1
    reached, left = (part.stage + 1) * size + part.end, part.stage * size + part.first
    places = np.concatenate([[0], reached, [problem.pp * size + size - 1], left])
    signs = np.repeat([1, -1], len(columns) + 1)
    entries = np.concatenate([[c], columns, [c], columns])
    for members in _groups(places):
        yield Row(entries[members], signs[members], 0, 0)


def _makespan_rows(problem: PartitionProblem, part: StageColumns, columns: Ints, c: int) -> Iterator[Row]:
    """What (10) sums for one candidate: its least makespan, and every stage."""
    mean = float(_least(problem).sum()) / problem.pp * (1 - ROUNDING) if _adds_up(problem) else 0.0
    stages = _groups(part.stage)
    least = max(int(nanoseconds(np.array(mean))), *(int(part.high[members].min()) for members in stages), 0)
    yield Row(np.array([c]), np.array([least]), None, None)
    for members in stages:
        yield Row(columns[members], part.high[members], None, None)


def _memory_rows(problem: PartitionProblem, part: StageColumns, columns: Ints, c: int) -> Iterator[Row]:
    """(11), one row for every stage and pattern."""
    for members in _groups(part.stage * len(problem.budget) + part.pattern):
        budget = part.budget[members[0]]
        yield Row(np.append(columns[members], c), np.append(part.need[members], -budget), None, 0)


def _class_rows(problem: PartitionProblem, part: StageColumns, columns: Ints, c: int) -> Iterator[Row]:
    """(12), its left side and its right side, and that one mixed stage is priced on the slow class."""
    slow, mixed = part.pattern == SLOW, part.pattern >= MIXED
    entries = np.append(columns[slow | mixed], c)
    fewest, most = problem.slow_groups, problem.slow_groups + problem.more_slow_groups
    for per_mixed, blocks, lower, upper in ((1, most, None, 0), (problem.dp - 1, fewest, 0, None)):
        groups = problem.dp * slow + per_mixed * mixed
        yield Row(entries, np.append(groups[slow | mixed], -blocks), lower, upper)
    if len(problem.budget) > SLOW_MIXED:
        priced, plain = columns[part.pattern == SLOW_MIXED], np.flatnonzero(part.pattern == MIXED)
        for members in _groups(part.stage[plain]):
            own = columns[plain[members]]
            yield Row(np.append(priced, own), np.repeat([1, -1], [len(priced), len(own)]), 0, None)


def _end_rows(
    option: Option, part: StageColumns, columns: Ints, c: int, ends: tuple[int, int]
) -> Iterator[tuple[int, int, Row]]:
    """What (13) sums for one candidate, with the column and the number of the row: prices, ends and optimizers."""
    assert option.later is not None
    latest, longest = ends
    yield latest, -1, Row(columns, part.price, None, None)
    besides, entries = others(option.later), np.append(columns, c)
    for x, (end, optimizer) in enumerate(ends_of(_waits(option, part), part.stage, option.partition.pp)):
        yield latest, x, Row(entries, np.append(end, besides), None, None)
        own = np.flatnonzero(optimizer)
        if len(own):
            yield longest, x, Row(columns[own], optimizer[own], None, None)


def _groups(keys: Ints) -> list[Ints]:
    """Positions of equal keys together, keys ascending."""
    order = np.argsort(keys, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(keys[order])) + 1) if len(order) else []
