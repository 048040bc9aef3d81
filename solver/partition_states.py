r"""
States of the exact division with two classes of device, as ``taut.solver.partition_labels`` numbers them.

A state is (x, i, a, b): stages from x on, on layers from i on, with a all-fast and b all-slow stages before. Where one
mixed stage has the seconds of the slow class (``taut.formulations.partition`` (5)), that is a pattern of its own,
``SLOW_MIXED``, and a state says whether the stages from x on have it: those are numbered after the others along a.
Where hops between classes add something, a state says of which class the pipeline was last known to be: where of the
slow one, it is numbered after the others along b.

With four patterns of one pipeline, (7) there, a counts stages that it passes on fast replicas, b those on slow ones,
and a state says whether a mixed one is still to come.
"""

from typing import NamedTuple

from taut.data.arrays import Floats, Ints
from taut.formulations.compiled import jit

SLOW_MIXED = 3
"""The pattern of the mixed stage with the seconds of the slow class, where there are so many patterns; of one pipeline,
the pattern of mixed stages that it passes on a slow replica."""


class Ranges(NamedTuple):
    """
    Figures of every range, as ``taut.formulations.partition`` names them.

    ``size`` (L+1, L+1) may not exceed ``cap``; ``slow`` blocks and up to ``more`` further ones are of the slow class,
    and from ``least_mixed`` to ``most_mixed`` stages are mixed; ``later`` says whether later stages are waited for,
    ``later_edge`` is edge' and ``least_wait`` what stage 0 waits for beyond ``others``; ``crossing`` and
    ``crossing_before`` are what a hop between classes adds, (6) there; stage x has ``layers[x]``, (pp, 2), at least and
    at most; with ``growing`` longer ranges take longer; ``one_pipeline`` says whether the patterns are those of (7).
    """

    low: Floats
    high: Floats
    fixed: Ints
    activation: Ints
    in_flight: Ints
    budget: Ints
    size: Floats
    cap: float
    dp: int
    slow: int
    more: int
    least_mixed: int
    most_mixed: int
    edge: Floats
    tail: Floats
    later: bool
    overlap: bool
    forward: Floats
    later_edge: Floats
    ring: Floats
    class_ring: Floats
    exchanged: Floats
    unhidden: Floats
    each: Floats
    others: float
    least_wait: float
    crossing: float
    crossing_before: float
    layers: Ints
    growing: bool
    one_pipeline: bool


@jit
def sides(ranges: Ranges) -> int:
    """Classes that a state tells apart along b."""
    return 2 if ranges.low.shape[0] > 1 and ranges.crossing > 0.0 else 1


@jit
def counted(ranges: Ranges, q: int, a: int, b: int, without: int, half: int) -> tuple[int, int]:
    """Where the state after a stage of pattern q is numbered along a and b."""
    if ranges.low.shape[0] == 1:
        return a, b
    kind = q % 2 if ranges.one_pipeline else q
    met = q >= 2 and a >= without if ranges.one_pipeline else q == SLOW_MIXED
    a += int(kind == 0) - (without if met else 0)
    if sides(ranges) == 1:
        return a, b + int(kind == 1)
    slow = is_slow(ranges, q) or (kind >= 2 and b >= half)
    return a, b % half + int(kind == 1) + (half if slow else 0)


@jit
def is_slow(ranges: Ranges, q: int) -> bool:
    """Whether the pipeline takes a stage on the slow class: one that is all slow, or the mixed one of (5)."""
    return q == 1 or q == SLOW_MIXED or (q == 2 and ranges.most_mixed == 1)


@jit
def has_last(fasts: int, slows: int, mixed: int, was_slow: bool) -> bool:
    """Whether a pipeline with such stages before may have been of the slow class last, or of the fast one or none."""
    return slows > 0 or mixed > 0 if was_slow else slows == 0 or fasts > 0


@jit
def counts_fit(ranges: Ranges, fasts: int, slows: int, pp: int) -> bool:
    """Whether these numbers of all-fast and all-slow stages can use up the slow groups; one replica is never mixed."""
    mixed, dp = pp - fasts - slows, ranges.dp
    least, most = dp * slows + mixed, dp * slows + (dp - 1) * mixed
    allowed = max(ranges.least_mixed, 0) <= mixed <= ranges.most_mixed
    return allowed and least <= most and least <= ranges.slow + ranges.more and ranges.slow <= most
