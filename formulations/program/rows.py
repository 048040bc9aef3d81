r"""
The strategy choice as a 0-1 program: a path through layer positions (network flow) with a makespan in epigraph form.

Sets and data are those of ``taut.formulations.program.program``.

Variables
    - :math:`u_c \in \{0, 1\}`: candidate c is chosen;
    - :math:`a_{cxijrq} \in \{0, 1\}`: stage x of candidate c is layers [i, j) with recompute r and pattern q.
      Where any of the seconds is infinite there is no variable, nor where no division of interest has this stage;
    - :math:`M_m \ge 0` integer nanoseconds: the slowest stage, one for every :math:`m > 1` of the candidates,
      so that for each number of micro-batches the makespan is linear (its epigraph).

Objective
    .. math:: \min \sum p \, a + \sum_m (m - 1) M_m

Constraints, (2), (4) and (5) for every candidate c
    (1) :math:`\sum_c u_c = 1`;
    (2) at each (x, i), as many stages x - 1 end at i as stages x begin there; :math:`u_c` enters at (0, 0)
        and leaves at (pp_c, L) (flow conservation);
    (3) :math:`M_m \ge \sum_c \sum_{ijrq} h \, a` for each stage x, over the candidates with m micro-batches, and
        :math:`M_m \ge \sum_c \mu_c u_c` with :math:`\mu_c` the largest of the stages' least h and of S(0, L) / pp as
        in (7). One candidate is chosen, so the sum over all candidates is that of the chosen one. In the relaxation,
        fractions of several candidates or paths cannot share a makespan that none of them has;
    (4) :math:`\sum_{ijr} k \, a \le K_{cq} u_c` for each stage x and pattern q; a stage that exceeds its budget
        alone is bounded by 0, so that no tolerance of a solver can let it in;
    (5) :math:`dp_c S + X \le n_c u_c \le dp_c S + (dp_c - 1) X` for two classes, S stages slow, X mixed, and
        :math:`n_c` slow tensor groups; and where a mixed stage may be priced on the slow class
        (``taut.formulations.partition`` (5)), some mixed stage is priced so if any stage is mixed:
        :math:`\sum_x a \ge \sum a`, on the left over the choices of this price, on the right over the other mixed
        choices of a stage, for each stage;
    (6) where a step waits for all stages, the rows of ``taut.formulations.program.program``, summed as in (3).

Some layer ranges can be no stage of a division that is of interest. Let :math:`s_l` be the least seconds of layer l
over recompute and patterns, :math:`S(i, j)` their sum over a range, and suppose that no range takes less than the sum
of its layers. With stage x on [i, j) the x stages before it have [0, i) and the :math:`pp - 1 - x` after it [j, L), the
slowest of them at least the mean, so a division takes at least

(7) :math:`S(0, L) - S(i, j) + low + \sum_{cuts} edge + tail
    + (m - 1) \max \big( high, \; S(0, i) / x, \; S(j, L) / (pp - 1 - x) \big)`

with the least edge at every cut and the least tail, that of j for stage 0. Where that is above the seconds of a known
division, [i, j) is no stage x of a better one. Ranges for which the supposition fails are all kept.

(8) Of the recomputes with which [i, j) fits as stage x, one that takes no longer than all others in ``low`` and
    ``high`` is enough, since memory is bounded stage by stage: the others, and all that do not fit, are left out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import fields

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.data.units import KIB
from taut.errors import FormulationError
from taut.formulations.divisions import stated_ranges
from taut.formulations.partition import PartitionProblem
from taut.formulations.program.program import (
    MIXED,
    SLOW,
    SLOW_MIXED,
    Option,
    Row,
    StageColumns,
    StrategyProgram,
    Waits,
    ends_of,
    kibibytes,
    nanoseconds,
    others,
    waits,
)
from taut.formulations.schedules.plan_orders import CLOSED_FORM

ROUNDING = 1e-9
"""Relative allowance for sums of floats; (7) removes only what is worse by more."""


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
    """Whether a recompute is the one that (8) keeps; all that fit where none is the quickest in both."""
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
    """
    The integer program over options, in integers; infinite ``low`` limits the gradients of a stage.

    ``FormulationError`` for wrong options: no linear step time, or seconds or budgets out of range.
    """
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
    # (1)
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
    """(2), one row for every place (x, i) that a stage reaches or leaves."""
    size = problem.num_layers + 1
    reached, left = (part.stage + 1) * size + part.end, part.stage * size + part.first
    places = np.concatenate([[0], reached, [problem.pp * size + size - 1], left])
    signs = np.repeat([1, -1], len(columns) + 1)
    entries = np.concatenate([[c], columns, [c], columns])
    for members in _groups(places):
        yield Row(entries[members], signs[members], 0, 0)


def _makespan_rows(problem: PartitionProblem, part: StageColumns, columns: Ints, c: int) -> Iterator[Row]:
    """What (3) sums for one candidate: its least makespan, and every stage."""
    mean = float(_least(problem).sum()) / problem.pp * (1 - ROUNDING) if _adds_up(problem) else 0.0
    stages = _groups(part.stage)
    least = max(int(nanoseconds(np.array(mean))), *(int(part.high[members].min()) for members in stages), 0)
    yield Row(np.array([c]), np.array([least]), None, None)
    for members in stages:
        yield Row(columns[members], part.high[members], None, None)


def _memory_rows(problem: PartitionProblem, part: StageColumns, columns: Ints, c: int) -> Iterator[Row]:
    """(4), one row for every stage and pattern."""
    for members in _groups(part.stage * len(problem.budget) + part.pattern):
        budget = part.budget[members[0]]
        yield Row(np.append(columns[members], c), np.append(part.need[members], -budget), None, 0)


def _class_rows(problem: PartitionProblem, part: StageColumns, columns: Ints, c: int) -> Iterator[Row]:
    """(5), its left side and its right side, and that one mixed stage is priced on the slow class."""
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
    """What (6) sums for one candidate, with the column and the number of the row: prices, ends and optimizers."""
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
