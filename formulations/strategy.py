r"""
The strategy choice as one integer program: degrees, micro-batch, stages, recompute, classes of device.

Sets
    Candidates c with :math:`pp_c` stages, :math:`dp_c` replicas, :math:`m_c` micro-batches; stages
    :math:`x = 0, \dots, pp_c - 1`; layer positions :math:`0 \le i < j \le L`; recompute r; patterns q, one,
    or three for two classes of device (``taut.formulations.partition`` (4)).

Data
    Integers. Seconds s become nanoseconds :math:`\lfloor 10^9 s \rfloor`, bytes become KiB rounded up.

    - :math:`h_{cijrq}`: nanoseconds of ``high``; :math:`p_{cxijrq}`: nanoseconds of ``low``, plus those of
      ``edge`` at j for :math:`x < pp_c - 1`, plus those of ``tail`` at j for :math:`x = 0`;
    - :math:`k_{cxijr}`: KiB of a stage; :math:`K_{cq}`: KiB of its budget; :math:`n_c`: slow tensor groups.

Variables
    - :math:`u_c \in \{0, 1\}`: candidate c is chosen;
    - :math:`a_{cxijrq} \in \{0, 1\}`: stage x of candidate c is layers [i, j) with recompute r and pattern q.
      Where any of the seconds is infinite there is no variable;
    - :math:`M_m \ge 0` integer nanoseconds: the slowest stage, one for every :math:`m > 1` of the candidates,
      so that for each number of micro-batches the makespan is linear.

Objective
    .. math:: \min \sum p \, a + \sum_m (m - 1) M_m

Constraints, (2) to (5) for every candidate c
    (1) :math:`\sum_c u_c = 1`;
    (2) at each (x, i), as many stages x - 1 end at i as stages x begin there; :math:`u_c` enters at (0, 0)
        and leaves at (pp_c, L);
    (3) :math:`M_{m_c} \ge \sum_{ijrq} h \, a` for each stage x;
    (4) :math:`\sum_{ijr} k \, a \le K_{cq} u_c` for each stage x and pattern q; a stage that exceeds its budget
        alone is bounded by 0, so that no tolerance of a solver can let it in;
    (5) :math:`dp_c S + X \le n_c u_c \le dp_c S + (dp_c - 1) X` for two classes, S stages slow and X mixed.

Every price is rounded down, so the optimum is a lower bound on the optimum in seconds, and misses it by less
than one nanosecond for each price counted, :math:`2 pp_c + m_c - 1` of them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from taut.data.costs import RECOMPUTE
from taut.data.units import KIB
from taut.errors import FormulationError
from taut.formulations.partition import PartitionProblem
from taut.formulations.space import Candidate

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
NANOSECONDS = 1e9
MOST_SECONDS = 1e6
"""Larger prices would leave no room for their sums in 63 bits, nor for every nanosecond in a float."""
SLOW, MIXED = 1, 2


class Option(NamedTuple):
    """One candidate with its partition problem, and edge and tail seconds (L+1,)."""

    candidate: Candidate
    partition: PartitionProblem
    edge: Floats
    tail: Floats


class Row(NamedTuple):
    """A sparse linear row, lower <= sum of coefficients times columns <= upper; None is unbounded."""

    columns: Ints
    coefficients: Ints
    lower: int | None
    upper: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyChoice:
    """Number of an option, with stages, recompute and pattern of each stage."""

    candidate: int
    stages: tuple[tuple[int, int], ...]
    recompute: tuple[str, ...]
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
    def fits(self) -> NDArray[np.bool_]:
        """Whether the stage alone keeps its budget."""
        return self.need <= self.budget


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StrategyProgram:
    """
    The integer program as plain arrays; columns are all u, then all a, then all M, and none is below 0.

    ``objective`` and ``upper`` are (n,) integers, ``binary`` (n,) says which columns are u or a.
    """

    options: tuple[Option, ...]
    stages: StageColumns
    objective: Ints
    upper: Ints
    binary: NDArray[np.bool_]
    rows: tuple[Row, ...]

    def cost(self, choice: StrategyChoice) -> int:
        """
        Nanoseconds of a choice, from the options' own arrays.

        Raises
        ------
        FormulationError
            If the choice violates a constraint.
        """
        if broken := self.violations(choice):
            raise FormulationError(f"strategy program: {broken[0]}")
        _, problem, edge, tail = self.options[choice.candidate]
        ranges, ends = _ranges(choice), [end for _, end in choice.stages]
        slowest = nanoseconds(problem.high[ranges]).max()
        cuts = nanoseconds(edge[ends[:-1]]).sum() + nanoseconds(tail[ends[:1]]).sum()
        return int(nanoseconds(problem.low[ranges]).sum() + cuts + (problem.micro_batches - 1) * slowest)

    def violations(self, choice: StrategyChoice) -> tuple[str, ...]:
        """What is wrong with a choice, one line each; empty if it is feasible."""
        if not 0 <= choice.candidate < len(self.options):
            return (f"candidate {choice.candidate} does not exist, expected 0 to {len(self.options) - 1}",)
        option = self.options[choice.candidate]
        shape = tuple(_shape_violations(option.partition, choice))
        return shape or (*_stage_violations(option, choice), *_class_violations(option.partition, choice))

    def decode(self, values: Sequence[float] | Floats | Ints) -> StrategyChoice:
        """
        Read the choice out of the values of all columns (n,).

        Raises
        ------
        FormulationError
            If not exactly one candidate is chosen.
        """
        taken = np.flatnonzero((np.asarray(values) > 0.5) & self.binary)
        chosen = taken[taken < len(self.options)].tolist()
        if len(chosen) != 1:
            raise FormulationError(f"strategy program: candidates {chosen} are chosen, expected one")
        stages, picks = self.stages, taken[1:] - len(self.options)
        return StrategyChoice(
            candidate=chosen[0],
            stages=tuple(zip(stages.first[picks].tolist(), stages.end[picks].tolist(), strict=True)),
            recompute=tuple(RECOMPUTE[r] for r in stages.recompute[picks].tolist()),
            patterns=tuple(stages.pattern[picks].tolist()),
        )


def nanoseconds(seconds: Floats) -> Ints:
    """Finite seconds as integer nanoseconds, rounded down."""
    return np.asarray(np.floor(seconds * NANOSECONDS), dtype=np.int64)


def strategy_program(options: Sequence[Option]) -> StrategyProgram:
    """
    The integer program over a list of options.

    Parameters
    ----------
    options
        What is chosen from, at least one. A limit on the gradients of a stage is stated by infinite ``low``.

    Raises
    ------
    FormulationError
        If there is no option, dimensions disagree, seconds are negative or too large, or a budget is not
        in whole KiB.
    """
    if not options:
        raise FormulationError("strategy program: there is no option, expected at least one")
    for number, option in enumerate(options):
        _check(option, f"strategy program: option {number}")
    parts = [_stage_columns(c, option) for c, option in enumerate(options)]
    names = [field.name for field in fields(StageColumns)]
    stages = StageColumns(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})
    micro_batches = sorted({option.partition.micro_batches for option in options} - {1})
    most = stages.high.max(initial=0)
    count = len(options) + len(stages.stage)
    return StrategyProgram(
        options=tuple(options),
        stages=stages,
        objective=np.array([0] * len(options) + stages.price.tolist() + [m - 1 for m in micro_batches]),
        upper=np.array([1] * len(options) + stages.fits.tolist() + [most] * len(micro_batches), dtype=np.int64),
        binary=np.arange(count + len(micro_batches)) < count,
        rows=tuple(_rows(options, parts, {m: count + number for number, m in enumerate(micro_batches)})),
    )


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
    finite = np.isfinite(problem.low) & np.isfinite(problem.high)
    found = [np.argwhere(finite & _possible(option, x)) for x in range(problem.pp)]
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
        need=_kib(problem.fixed[ranges] + problem.in_flight[stage] * problem.activation[ranges]),
        budget=problem.budget[pattern] // KIB,
    )


def _possible(option: Option, x: int) -> NDArray[np.bool_]:
    """Whether [i, j) can be stage x, (L+1, L+1): others keep a layer each, edge and tail are finite."""
    after, layers = option.partition.pp - 1 - x, option.partition.num_layers
    i, j = np.ogrid[: layers + 1, : layers + 1]
    begins = i >= x if x else (i == 0) & np.isfinite(option.tail)
    ends = (j <= layers - after) & np.isfinite(option.edge) if after else j == layers
    return np.asarray((i < j) & begins & ends)


def _kib(count: Ints) -> Ints:
    """Bytes as KiB, rounded up."""
    return -(-count // KIB)


def _rows(options: Sequence[Option], parts: list[StageColumns], makespan: dict[int, int]) -> Iterator[Row]:
    # (1)
    yield Row(np.arange(len(options)), np.ones(len(options), dtype=np.int64), 1, 1)
    before = len(options)
    for c, (option, part) in enumerate(zip(options, parts, strict=True)):
        columns = before + np.arange(len(part.stage))
        before += len(columns)
        yield from _flow_rows(option.partition, part, columns, c)
        if option.partition.micro_batches > 1:
            yield from _makespan_rows(part, columns, makespan[option.partition.micro_batches])
        yield from _memory_rows(option.partition, part, columns, c)
        if len(option.partition.budget) > 1:
            yield from _class_rows(option.partition, part, columns, c)


def _flow_rows(problem: PartitionProblem, part: StageColumns, columns: Ints, c: int) -> Iterator[Row]:
    """(2), one row for every place (x, i) that a stage reaches or leaves."""
    size = problem.num_layers + 1
    reached, left = (part.stage + 1) * size + part.end, part.stage * size + part.first
    places = np.concatenate([[0], reached, [problem.pp * size + size - 1], left])
    signs = np.repeat([1, -1], len(columns) + 1)
    entries = np.concatenate([[c], columns, [c], columns])
    for members in _groups(places):
        yield Row(entries[members], signs[members], 0, 0)


def _makespan_rows(part: StageColumns, columns: Ints, makespan: int) -> Iterator[Row]:
    """(3), one row for every stage."""
    for members in _groups(part.stage):
        yield Row(np.append(columns[members], makespan), np.append(-part.high[members], 1), 0, None)


def _memory_rows(problem: PartitionProblem, part: StageColumns, columns: Ints, c: int) -> Iterator[Row]:
    """(4), one row for every stage and pattern."""
    for members in _groups(part.stage * len(problem.budget) + part.pattern):
        budget = part.budget[members[0]]
        yield Row(np.append(columns[members], c), np.append(part.need[members], -budget), None, 0)


def _class_rows(problem: PartitionProblem, part: StageColumns, columns: Ints, c: int) -> Iterator[Row]:
    """(5), its left side and its right side."""
    slow, mixed = part.pattern == SLOW, part.pattern == MIXED
    entries = np.append(columns[slow | mixed], c)
    for per_mixed, lower, upper in ((1, None, 0), (problem.dp - 1, 0, None)):
        groups = problem.dp * slow + per_mixed * mixed
        yield Row(entries, np.append(groups[slow | mixed], -problem.slow_groups), lower, upper)


def _groups(keys: Ints) -> list[Ints]:
    """Positions of equal keys together, keys ascending."""
    order = np.argsort(keys, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(keys[order])) + 1) if len(order) else []


def _ranges(choice: StrategyChoice) -> tuple[Ints, Ints, Ints, Ints]:
    """Pattern, recompute, first and end layer of every stage, as an index."""
    recompute = np.array([RECOMPUTE.index(name) for name in choice.recompute])
    first, end = np.array(choice.stages).T
    return np.array(choice.patterns), recompute, first, end


def _shape_violations(problem: PartitionProblem, choice: StrategyChoice) -> Iterator[str]:
    starts = [0, *(end for _, end in choice.stages)]
    chained = all(first == start for (first, _), start in zip(choice.stages, starts, strict=False))
    rising = all(first < end for first, end in choice.stages)
    if len(choice.stages) != problem.pp or not (chained and rising and starts[-1] == problem.num_layers):
        wanted = f"{problem.pp} in order over {problem.num_layers} layers"
        yield f"stages {list(choice.stages)} are wrong, expected {wanted}"
    if len(choice.recompute) != problem.pp or not set(choice.recompute) <= set(RECOMPUTE):
        yield f"recompute {list(choice.recompute)} is not one of {list(RECOMPUTE)} for each stage"
    if len(choice.patterns) != problem.pp or not set(choice.patterns) <= set(range(len(problem.budget))):
        yield f"patterns {list(choice.patterns)} are not below {len(problem.budget)} for each stage"


def _stage_violations(option: Option, choice: StrategyChoice) -> Iterator[str]:
    """Stages that have no price, and stages that exceed their memory."""
    problem, (pattern, *ranges) = option.partition, _ranges(choice)
    seconds = problem.low[pattern, *ranges] + problem.high[pattern, *ranges]
    seconds[:-1] += option.edge[ranges[2][:-1]]
    seconds[0] += option.tail[ranges[2][0]]
    need = _kib(problem.fixed[*ranges] + problem.in_flight * problem.activation[*ranges])
    budget = problem.budget[pattern] // KIB
    for x, stage in enumerate(choice.stages):
        if not np.isfinite(seconds[x]):
            yield f"stage {x} on layers {list(stage)} with recompute {choice.recompute[x]} is not allowed"
        if need[x] > budget[x]:
            yield f"stage {x} needs {need[x]} KiB, its devices have {budget[x]}"


def _class_violations(problem: PartitionProblem, choice: StrategyChoice) -> Iterator[str]:
    slow, mixed = choice.patterns.count(SLOW), choice.patterns.count(MIXED)
    least, most = problem.dp * slow + mixed, problem.dp * slow + (problem.dp - 1) * mixed
    if len(problem.budget) > 1 and not least <= problem.slow_groups <= most:
        stages = f"{slow} slow and {mixed} mixed stages"
        yield f"{stages} hold {least} to {most} slow groups, expected {problem.slow_groups}"
