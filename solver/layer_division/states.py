"""
Graphs of states for the labels of a division: devices alike, two classes of device, and one pipeline of two classes.

The classes of ``taut.formulations.partition`` (4): a stage is all fast, all slow, or mixed; of one pipeline the class
of the block that it passes is known as well.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TypeVar

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.partition import Crossing
from taut.solver.layer_division.labels import StateGraph

FAST, SLOW, MIXED_FAST, MIXED_SLOW = 0, 1, 2, 3
"""Patterns of one pipeline: the class that is passed, of a stage that has it alone or both."""
MIXED, SLOW_MIXED = 2, 3
"""Patterns of all pipelines: a mixed stage, and where the kinds are four the one with the slow class's seconds, (5)."""
State = TypeVar("State", int, tuple[int, int], tuple[int, int, bool])
SAME, HOP, HOP_MAY_LIE_BEFORE = 0, 1, 2
"""Events: no hop between classes, the first one before this stage, or perhaps before it, so that it may wait less."""


def events(crossing: Crossing) -> Floats:
    """Seconds of the events: on top of S, on top of W, and what the stage itself waits less."""
    return np.array([[0.0] * 3, [crossing.whole, crossing.before, 0.0], [0.0, 0.0, crossing.whole - crossing.before]])


@lru_cache(maxsize=256)
def alike(pp: int) -> StateGraph:
    """One state a stage, of kind 0."""
    return _listed(pp, 0, lambda x, s: [(0, 0, SAME)], lambda s: True)[0]


@lru_cache(maxsize=256)
def two_classes(
    pp: int, dp: int, slow: tuple[int, int], mixed: tuple[int, int], *, of_slow: bool, hidden: bool
) -> StateGraph:
    """
    States (a, b, w): a all-fast and b all-slow stages so far, and whether a mixed one with slow seconds is to come.

    ``slow``, ``mixed``: blocks of the slow class and mixed stages, at least and at most; ``of_slow``: whether one mixed
    stage has the slow class's seconds in a kind of its own (5); ``hidden``: whether a hop that lies before a mixed
    stage may have been counted in full only where no stage after it has the other class (6).
    """
    fasts, slows = min(pp, max(pp * dp - slow[0], 0) // dp), min(pp, slow[1] // dp)

    def steps(x: int, state: tuple[int, int, bool]) -> Iterable[tuple[tuple[int, int, bool], int, int]]:
        a, b, to_come = state
        if a < fasts:
            yield (a + 1, b, to_come), FAST, HOP if a == 0 and b > 0 else SAME
        if b < slows:
            yield (a, b + 1, to_come), SLOW, HOP if b == 0 and a > 0 else SAME
        if x - a - b < mixed[1]:
            # With one mixed stage the slow groups fix how many stages are slow.
            before = (a > 0 and b == 0 and slow[0] >= dp) if hidden else (a > 0) != (b > 0)
            for kind, still in ((MIXED, to_come), (SLOW_MIXED, False))[: 1 + to_come]:
                yield (a, b, still), kind, HOP_MAY_LIE_BEFORE if before else SAME

    def ends(state: tuple[int, int, bool]) -> bool:
        a, b, to_come = state
        both = pp - a - b
        least, most = dp * b + both, dp * b + (dp - 1) * both
        return not to_come and mixed[0] <= both <= mixed[1] and least <= slow[1] and max(least, slow[0]) <= most

    return _listed(pp, (0, 0, of_slow), steps, ends)[0]


def one_pipeline(pp: int, least: int, most: int, kinds: tuple[int, ...], crossing: Crossing) -> StateGraph:
    """States (n, c): n stages so far on slow blocks, ``least`` to ``most`` in all, the last on a block of class c."""
    graph, stages = _one_pipeline(pp, least, most, kinds)
    return graph._replace(added=events(crossing), ends=crossing.beyond(pp)[stages])


@lru_cache(maxsize=256)
def _one_pipeline(pp: int, least: int, most: int, kinds: tuple[int, ...]) -> tuple[StateGraph, Ints]:
    """The graph, and the stages on slow blocks of the states that it ends in."""

    def steps(x: int, state: tuple[int, int]) -> Iterable[tuple[tuple[int, int], int, int]]:
        n, c = state
        for kind in kinds:
            passed = kind % 2
            if n + passed <= most:
                yield (n + passed, passed), kind, HOP if x > 0 and passed != c else SAME

    graph, ends = _listed(pp, (0, 0), steps, lambda state: state[0] >= least)
    return graph, np.array([n for n, _ in ends], dtype=np.int64)


def _listed(
    pp: int,
    start: State,
    steps: Callable[[int, State], Iterable[tuple[State, int, int]]],
    ends: Callable[[State], bool],
) -> tuple[StateGraph, list[State]]:
    """
    The graph of the states that lead from a start to an end, and the states that it ends in.

    ``steps``: following state, kind and event of every step from a state of stage x; ``ends``: whether the last stage
    may lead to a state. The hop behind every stage but the last is of kind 0, and behind the last one of kind 1.
    """
    reached: list[dict[State, list[tuple[State, int, int]]]] = []
    at = {start}
    for x in range(pp):
        reached.append({state: list(steps(x, state)) for state in at})
        at = {after for leads in reached[-1].values() for after, _, _ in leads}
    numbers = {state: number for number, state in enumerate(sorted(filter(ends, at)))}
    last = list(numbers)
    counts: list[int] = []
    degrees: list[list[int]] = []
    rows: list[list[tuple[int, int, int, int]]] = []
    for x in range(pp - 1, -1, -1):
        kept = {
            state: [(numbers[after], kind, int(x == pp - 1), event) for after, kind, event in leads if after in numbers]
            for state, leads in sorted(reached[x].items())
        }
        kept = {state: leads for state, leads in kept.items() if leads}
        numbers = {state: number for number, state in enumerate(kept)}
        counts.append(len(kept))
        degrees.append([len(leads) for leads in kept.values()])
        rows.append([step for leads in kept.values() for step in leads])
    return (
        StateGraph(
            first=np.cumsum([0, *counts[::-1]]),
            begin=np.cumsum([0, *(degree for stage in degrees[::-1] for degree in stage)]),
            steps=np.array([step for stage in rows[::-1] for step in stage], dtype=np.int64).reshape(-1, 4),
            added=np.zeros((3, 3)),
            ends=np.zeros(len(last)),
        ),
        last,
    )
