"""The strategy program on three layers and two candidates, every figure by hand."""

from dataclasses import replace
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest

from taut.data.arrays import Floats, Ints
from taut.data.costs import RECOMPUTE
from taut.errors import FormulationError
from taut.formulations.partition import PartitionProblem
from taut.formulations.program.program import Option, StrategyChoice, StrategyProgram, nanoseconds, strategy_program
from taut.formulations.space import Candidate
from taut.formulations.strategy import Division

LAYERS = 3


def ranges(by_layer: list[float]) -> Floats:
    """Sum over the layers of every range [i, j)."""
    before = np.concatenate([[0.0], np.cumsum(by_layer)])
    return np.asarray(np.maximum(before[None, :] - before[:, None], 0.0))


def seconds(count: Floats) -> Floats:
    """Nanoseconds as seconds that are not below them."""
    return np.asarray(np.nextafter(count / 1e9, np.inf))


def option(pp: int, micro_batches: int, budget_kib: list[int], **changes: Any) -> Option:
    """
    Layers of 10, 20, 30 ns without recompute, half as much again when full; selective is not allowed.

    A layer keeps 1000 bytes, and 2 KiB a micro-batch in flight or 1 KiB under full recompute. A cut before layer 1
    costs 4 ns and before layer 2 costs 5 ns; stage 0 ending at 1, 2, 3 costs 2, 3, 7 ns.
    """
    plain = ranges([10.0, 20.0, 30.0])
    low = seconds(np.stack([plain, plain, 1.5 * plain])[None])
    low[:, 1] = np.inf
    kib = ranges([1024.0] * LAYERS).astype(np.int64)
    problem = PartitionProblem(
        pp=pp,
        dp=1,
        micro_batches=micro_batches,
        low=low,
        high=low,
        fixed=np.stack([ranges([1000.0] * LAYERS).astype(np.int64)] * 3),
        activation=np.stack([2 * kib, 2 * kib, kib]),
        in_flight=np.minimum(np.arange(pp, 0, -1), micro_batches),
        budget=1024 * np.array(budget_kib),
        gradients=ranges([1.0] * LAYERS),
        slow_groups=0,
    )
    edge, tail = np.array([0.0, 4.0, 5.0, 0.0]), np.array([0.0, 2.0, 3.0, 7.0])
    candidate = Candidate(pp, 1, 1, 1, 1, micro_batches, "1f1b", 0, False)
    return Option(candidate, replace(problem, **changes), seconds(edge), seconds(tail))


def classes(dp: int, slow_groups: int) -> Option:
    """Two stages on two classes of device, the slow one twice as slow."""
    one = option(2, 3, [100])
    fast = one.partition.low[0]
    low, high = np.stack([fast, 2 * fast, fast]), np.stack([fast, 2 * fast, 2 * fast])
    budget = np.full(3, 100 * 1024)
    partition = replace(one.partition, dp=dp, slow_groups=slow_groups, low=low, high=high, budget=budget)
    return one._replace(partition=partition)


def choice(candidate: int, ends: list[int], recompute: list[str], patterns: list[int] | None = None) -> StrategyChoice:
    """A choice by the ends of its stages."""
    return StrategyChoice(
        candidate=candidate,
        division=Division(tuple(zip([0, *ends[:-1]], ends, strict=True)), tuple(recompute)),
        patterns=tuple(patterns or [0] * len(ends)),
    )


TINY = [option(1, 2, [10]), option(2, 3, [9])]


def every_choice(program: StrategyProgram) -> list[StrategyChoice]:
    """Every division, recompute and pattern of every candidate, whether it is feasible or not."""
    return [
        choice(c, [*inner, LAYERS], list(recompute), list(patterns))
        for c, each in enumerate(program.options)
        for inner in combinations(range(1, LAYERS), each.partition.pp - 1)
        for recompute in product(RECOMPUTE, repeat=each.partition.pp)
        for patterns in product(range(len(each.partition.budget)), repeat=each.partition.pp)
    ]


def values_of(program: StrategyProgram, made: StrategyChoice) -> Ints | None:
    """Values of all columns at a choice, with the least makespan that (3) allows; None if it has no column."""
    values = np.zeros(len(program.upper), dtype=np.int64)
    values[made.candidate] = 1
    columns = program.stages
    for x, ((first, end), recompute, pattern) in enumerate(
        zip(made.division.stages, made.division.recompute, made.patterns, strict=True)
    ):
        found = np.flatnonzero(
            (columns.candidate == made.candidate)
            & (columns.stage == x)
            & (columns.first == first)
            & (columns.end == end)
            & (columns.recompute == RECOMPUTE.index(recompute))
            & (columns.pattern == pattern)
        )
        if len(found) == 0:
            return None
        values[len(program.options) + found[0]] = 1
    for row in program.rows:
        makespan = row.columns[-1]
        if not program.binary[makespan]:
            values[makespan] = max(values[makespan], -row.coefficients[:-1] @ values[row.columns[:-1]])
    return values


def holds(program: StrategyProgram, values: Ints) -> bool:
    """Whether the values satisfy every row and every bound."""
    for row in program.rows:
        total = int(row.coefficients @ values[row.columns])
        if (row.lower is not None and total < row.lower) or (row.upper is not None and total > row.upper):
            return False
    return bool((values >= 0).all() and (values <= program.upper).all())


def test_cost_of_one_stage() -> None:
    """One stage pays its seconds m times, and its tail."""
    # 60 ns for three layers, (2 - 1) * 60 more for the second micro-batch, tail 7.
    assert strategy_program(TINY).cost(choice(0, [3], ["none"])) == 60 + 60 + 7


def test_cost_of_two_stages() -> None:
    """Two stages pay both, the slower one m - 1 times, the cut, and the tail of stage 0."""
    program = strategy_program(TINY)
    # Layers 0-1 full: 1.5 * 30 = 45; layer 2: 30; cut before 2: 5; tail at 2: 3; (3 - 1) * 45.
    assert program.cost(choice(1, [2, 3], ["full", "none"])) == 45 + 30 + 5 + 3 + 90
    # Layer 0: 10; layers 1-2: 50; cut before 1: 4; tail at 1: 2; (3 - 1) * 50.
    assert program.cost(choice(1, [1, 3], ["none", "none"])) == 10 + 50 + 4 + 2 + 100


def test_memory_is_counted_in_whole_kib() -> None:
    """A stage needs its bytes in KiB rounded up, with the micro-batches in flight."""
    program = strategy_program(TINY)
    # Stage 0 holds two micro-batches: 2 * 1000 + 2 * 2 * 2048 = 10192 bytes, 9.95 KiB.
    assert program.violations(choice(1, [2, 3], ["none", "none"])) == ("stage 0 needs 10 KiB, its devices have 9",)
    # One stage holds one: 3 * 1000 + 3 * 2048 = 9144 bytes, 8.93 KiB, and 10 are there.
    assert program.violations(choice(0, [3], ["none"])) == ()
    with pytest.raises(FormulationError, match="stage 0 needs 10 KiB, its devices have 9"):
        program.cost(choice(1, [2, 3], ["none", "none"]))


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (choice(2, [3], ["none"]), "candidate 2 does not exist, expected 0 to 1"),
        (choice(0, [1, 3], ["none", "none"]), r"stages \[\(0, 1\), \(1, 3\)\] are wrong, expected 1 in order"),
        (choice(1, [2, 2], ["none", "none"]), "are wrong, expected 2 in order over 3 layers"),
        (choice(0, [2], ["none"]), "are wrong, expected 1 in order over 3 layers"),
        (choice(0, [3], ["all"]), r"recompute \['all'\] is not one of"),
        (choice(0, [3], ["none"], [1]), r"patterns \[1\] are not below 1"),
        (choice(0, [3], ["selective"]), r"stage 0 on layers \[0, 3\] with recompute selective is not allowed"),
    ],
)
def test_violations_say_what_is_wrong(made: StrategyChoice, words: str) -> None:
    """A choice that is not feasible is refused in words."""
    with pytest.raises(FormulationError, match=words):
        strategy_program(TINY).cost(made)


@pytest.mark.parametrize("dp, slow_groups", [(1, 1), (2, 0), (2, 1), (2, 2), (2, 3), (3, 4)])
def test_rows_and_violations_agree(dp: int, slow_groups: int) -> None:
    """At every 0/1 point the rows hold exactly where there is no violation, and the objective is the cost."""
    program = strategy_program([*TINY, classes(dp, slow_groups)])
    feasible = 0
    for made in every_choice(program):
        values = values_of(program, made)
        broken = program.violations(made)
        assert (values is not None and holds(program, values)) == (not broken)
        if values is not None and not broken:
            assert int(program.objective @ values) == program.cost(made)
            assert program.decode(values) == made
            feasible += 1
    assert feasible > 4


def test_two_classes_pay_fast_and_slow() -> None:
    """A mixed stage passes at the fast class's pace and holds up the others at the slow one's."""
    program = strategy_program([classes(dp=2, slow_groups=1)])
    # Layers 0-1 fast 30, layer 2 mixed: low 30, high 60; cut 5, tail 3; (3 - 1) * 60.
    assert program.cost(choice(0, [2, 3], ["none", "none"], [0, 2])) == 30 + 30 + 5 + 3 + 120
    # A slow stage on two replicas would hold two slow groups, and there is one.
    assert program.violations(choice(0, [2, 3], ["none", "none"], [0, 1])) == (
        "1 slow and 0 mixed stages hold 2 to 2 slow groups, expected 1",
    )


def test_number_of_columns_and_rows() -> None:
    """Only what can be chosen has a column, and every set of constraints its rows."""
    program = strategy_program(TINY)
    # One stage is [0, 3); of two, the first is [0, 1) or [0, 2) and the second [1, 3) or [2, 3); two recomputes each.
    assert len(program.stages.stage) == 2 * (1 + 2 + 2)
    # Two candidates, ten stages, makespans for m = 2 and m = 3.
    assert program.binary.tolist() == [True] * 12 + [False] * 2
    # (1): 1; (2): 2 places of candidate 0 and 4 of candidate 1; (3) and (4): a row for each of the 3 stages, and (3)
    # one for the least makespan of either candidate.
    assert len(program.rows) == 1 + (2 + 4) + (3 + 2) + 3
    # M_2 is paid once and M_3 twice.
    assert program.objective[-2:].tolist() == [1, 2]
    assert program.objective[:2].tolist() == [0, 0]


def test_one_micro_batch_needs_no_makespan() -> None:
    """With m = 1 nothing waits for the slowest stage."""
    program = strategy_program([option(2, 1, [100])])
    assert program.binary.all()
    # Layers 0-1: 30; layer 2: 30; cut 5; tail 3.
    assert program.cost(choice(0, [2, 3], ["none", "none"])) == 30 + 30 + 5 + 3


def test_infinite_seconds_have_no_column() -> None:
    """A cut or a tail that is not allowed takes its stages out."""
    before = option(2, 3, [100])
    no_cut, no_tail = before.edge.copy(), before.tail.copy()
    no_cut[2], no_tail[1] = np.inf, np.inf
    # The cut before layer 2 is gone, and with it [0, 2); [0, 1) remains, under two recomputes.
    stages = strategy_program([before._replace(edge=no_cut)]).stages
    assert stages.end[stages.stage == 0].tolist() == [1, 1]
    program = strategy_program([before._replace(edge=no_cut, tail=no_tail)])
    assert not (program.stages.stage == 0).any()
    assert program.violations(choice(0, [1, 3], ["none", "none"])) == (
        "stage 0 on layers [0, 1] with recompute none is not allowed",
    )


def test_nanoseconds_are_rounded_down() -> None:
    """Prices never exceed the seconds that they stand for."""
    assert nanoseconds(np.array([1.9e-9, 0.0, 3.5])).tolist() == [1, 0, 3_500_000_000]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "there is no option"),
        ([TINY[0]._replace(edge=np.zeros(3))], r"option 0: edge \(3,\) and tail \(4,\), expected \(4,\) for 3 layers"),
        ([TINY[0], TINY[1]._replace(tail=np.full(4, -1.0))], "option 1: some seconds are outside 0 to 1e"),
        ([TINY[0]._replace(tail=np.full(4, np.nan))], "option 0: some seconds are outside 0 to 1e"),
        ([option(1, 2, [10], budget=np.array([1000]))], r"budget \[1000\] bytes, expected whole KiB"),
    ],
)
def test_what_cannot_be_stated_is_refused(options: list[Option], words: str) -> None:
    """Inputs that the program could not hold end in one clear line."""
    with pytest.raises(FormulationError, match=words):
        strategy_program(options)


def test_decode_needs_one_candidate() -> None:
    """Values that choose no candidate, or two, are no choice."""
    program = strategy_program(TINY)
    values = np.zeros(len(program.upper))
    with pytest.raises(FormulationError, match=r"candidates \[\] are chosen, expected one"):
        program.decode(values)
    values[:2] = 1.0
    with pytest.raises(FormulationError, match=r"candidates \[0, 1\] are chosen, expected one"):
        program.decode(values)
