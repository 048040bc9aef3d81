r"""
States of the one-machine relaxation: how many passes of each stream are over.

Sets
    Streams :math:`s = 0, \dots, S - 1` of equal passes of one device, each run in the order :math:`k = 0, 1, \dots` The
    first 2v are the chain that every micro-batch runs through: v forward passes, then v gradients by the input. The
    others are gradients by the weights, one stream for all chunks in which they are equal.

Data
    Times are whole time units of ``taut.solver.schedules.bound.rounded_problem``. Stream s has :math:`m_s` passes of
    :math:`p_s` units, each of which changes the memory held by :math:`\mu_s`; m micro-batches, memory limit M.

A state n says how many passes of each stream are over. Allowed are

.. math:: n_0 \le m, \quad n_s \le n_{s-1} \; (0 < s < 2v), \quad n_s \le \sum_{r \in G_s} n_r \; (s \ge 2v), \quad
    \sum_s \mu_s n_s \le M, \tag{1}

:math:`G_s` being the gradients by the input that stream s follows. Memory is taken at the start of a forward pass and
given back at the end of others, so every peak is the memory of a state. One number tells states apart, the *key*

.. math:: \sum_s \rho_s n_s, \qquad \rho_s = \prod_{r < s} (m_r + 1). \tag{2}

These are the states of a dynamic program over sets of finished jobs [1]_, which are counts here because the passes of a
stream are interchangeable.

References
----------
.. [1] Held, M. and Karp, R.M. (1962). A dynamic programming approach to sequencing problems. Journal of SIAM 10:
       196-210.
"""

from typing import NamedTuple

from taut.data.arrays import Ints
from taut.formulations.compiled import jit, jit_inside

SIZE, SECONDS, MEMORY, RADIX, LAG, SPACING, SLOT = range(7)
"""Columns of ``OneMachine.streams``."""


class OneMachine(NamedTuple):
    """
    The one-machine relaxation of a device.

    ``streams``: a row for each stream (S, 7): number of passes, time units of each, its change of memory, the factor
    (2) of the key, time units between a pass and the same of the stream before (0 if no other device lies between),
    least time units from one micro-batch to the next on that way, and the column of a label at which the values of the
    stream's first pass under way stand (-1 where there is no lag); ``follower``: for each stream of the chain, the
    stream of its weight gradient; -1 for forward passes (2v,); ``head``, ``tail``: time units before the start and
    after the end of each pass (S, passes); ``limit``: memory limit M in units of the rounded problem; ``slots``: number
    of passes under way that a label has values for.
    """

    streams: Ints
    follower: Ints
    head: Ints
    tail: Ints
    limit: int
    slots: int


@jit
def decode(key: int, n: Ints, streams: Ints, forwards: bool) -> tuple[int, int]:
    """
    Turn a key into its state.

    ``key``: the key, (2); ``n``: filled with the passes over by stream (S,); ``streams``: table of ``OneMachine``.
    Returns memory held, and time units of the passes still to run in that direction.
    """
    held, rest = 0, 0
    for s in range(len(n) - 1, -1, -1):
        n[s] = key // streams[s, RADIX]
        key -= n[s] * streams[s, RADIX]
        held += streams[s, MEMORY] * n[s]
        rest += streams[s, SECONDS] * (streams[s, SIZE] - n[s] if forwards else n[s])
    return held, rest


@jit_inside
def is_allowed(forwards: bool, s: int, n: Ints, held: int, streams: Ints, follower: Ints, limit: int) -> bool:
    """
    Whether the next state is allowed, (1).

    ``forwards``: whether it has one more pass, else one less; ``s``: the stream of that pass; ``n``, ``held``: passes
    over by stream (S,), and memory held in the present state; ``streams``, ``follower``, ``limit``: of ``OneMachine``.
    """
    chain = len(follower)
    if forwards:
        if n[s] == streams[s, SIZE] or held + streams[s, MEMORY] > limit:
            return False
        if s < chain:
            return s == 0 or n[s] < n[s - 1]
        return bool(n[s] < _followed(n, follower, s))
    if n[s] == 0 or held - streams[s, MEMORY] > limit:
        return False
    if s >= chain:
        return True
    if s + 1 < chain and n[s] == n[s + 1]:
        return False
    f = follower[s]
    return bool(f < 0 or n[f] < _followed(n, follower, f))


@jit_inside
def _followed(n: Ints, follower: Ints, s: int) -> int:
    """Gradients by the input that are over and that a stream of weight gradients follows."""
    total = 0
    for c in range(len(follower)):
        if follower[c] == s:
            total += n[c]
    return total
