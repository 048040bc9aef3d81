r"""
What is worth recomputing in a part of a layer.

Operators are counted from the start of a layer, and those behind the last layer go on counting: a *piece*
:math:`[x, y)` is a part of a layer, of the last one with what follows it. Every stage is the head or nothing, at most
one piece that begins inside a layer and ends with it, whole layers, and one piece that ends the stage. As nothing is
saved where a layer opens, seconds and saved bytes of ``taut.papers.aceso.formula`` (1), (3) are sums over pieces
and the largest run is the largest of theirs; the head is never worth recomputing.

Only one thing crosses from a piece to the next: if the last operator of a layer is recomputed and the first of the next
layer too, the last one's activations lengthen the run. So options are listed by whether their first operator is
recomputed and whether what follows them begins with one that is.

An option of a piece is a set of operators; those stay that no other one equals or betters in seconds, saved bytes and
run together. An operator recomputed without its neighbours saves nothing and is in none.
"""

from dataclasses import dataclass

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.formulations.compiled import jit
from taut.papers.aceso.operators import Operators


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a piece by seconds ascending: seconds, saved bytes, bytes of the run, and a bit for each operator."""

    seconds: Floats
    saved: Floats
    run: Floats
    bits: Ints


def piece_options(operators: Operators, first: int, end: int, *, opens: bool | None, follows: bool | None) -> Options:
    """
    Options of a piece.

    ``operators``: at the stage's micro-batch and tensor degree; ``first``, ``end``: the piece, counted from the start
    of a layer; ``opens``: whether the first operator is recomputed; None where it may be or not; ``follows``: whether
    the first operator of the layer behind it is; None where it ends the stage.
    """
    kinds = np.arange(first, end) + operators.head
    arrays = operators.forward[kinds], operators.activations[kinds], operators.shares[kinds]
    seconds, saved, run, bits = _patterns(*arrays, -1 if opens is None else int(opens), follows is None, bool(follows))
    order = np.lexsort((run, -saved, seconds))
    kept = _undominated(saved[order], run[order])
    return Options(seconds[order][kept], saved[order][kept], run[order][kept], bits[order][kept])


@jit
def _patterns(
    forward: Floats, held: Floats, shares: Flags, opens: int, ends: bool, follows: bool
) -> tuple[Floats, Floats, Floats, Ints]:
    """Seconds, saved bytes and run of every set without isolated operators: with the first, without, or (-1) both."""
    count = len(forward)
    seconds, saved = np.empty(1 << count), np.empty(1 << count)
    run, bits = np.empty(1 << count), np.empty(1 << count, np.int64)
    found = 0
    for pattern in range(1 << count):
        if (opens >= 0 and pattern & 1 != opens) or pattern & ~((pattern << 1) | (pattern >> 1)):
            continue
        took = kept_away = longest = length = 0.0
        for place in range(count):
            if pattern >> place & 1:
                took += forward[place]
            if place + 1 == count:
                break
            if (pattern >> place & 3) == 3:
                kept_away += held[place]
                length += held[place]
                if ends and not shares[place] and place + 2 == count:
                    longest = max(longest, length)
                    length = 0.0
            else:
                longest = max(longest, length)
                length = 0.0
        if not ends:
            if follows and pattern >> (count - 1) & 1:
                length += held[count - 1]
            longest = max(longest, length)
        seconds[found], saved[found], run[found], bits[found] = took, kept_away, longest, pattern
        found += 1
    return seconds[:found], saved[:found], run[:found], bits[:found]


@jit
def _undominated(saved: Floats, run: Floats) -> Ints:
    """Places, in a list by ascending seconds, of what no earlier place equals or betters in both."""
    kept = np.empty(len(saved), np.int64)
    count = 0
    for place in range(len(saved)):
        good = True
        for other in range(count):
            if saved[kept[other]] >= saved[place] and run[kept[other]] <= run[place]:
                good = False
                break
        if good:
            kept[count] = place
            count += 1
    return kept[:count]
