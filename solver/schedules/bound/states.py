r"""
States of one device: how many of its passes are over.

A device runs *streams* s = 0, ..., S - 1 of equal passes, each in the order k = 0, 1, ... The first 2v are the chain
that every micro-batch runs through: v forward passes, then v gradients by the input. The others are weight gradients,
of all chunks that have the same. All times are whole ticks. A state n says how many passes of each stream are over;
allowed are

.. math:: n_0 \le m, \quad n_s \le n_{s-1} \; (0 < s < 2v), \quad n_s \le \sum_{r \in G_s} n_r \; (s \ge 2v), \quad
    \sum_s \mu_s n_s \le M, \tag{1}

:math:`G_s` being the gradients by the input that stream s follows and :math:`\mu_s` the change of memory by a pass. As
memory is taken at the start of a forward pass and given back at the end of others, every peak is that of a state. One
number tells a state of streams with :math:`m_s` passes, its *key*

.. math:: \sum_s \rho_s n_s, \qquad \rho_s = \prod_{r < s} (m_r + 1). \tag{2}
"""

from typing import NamedTuple

import numpy as np

from taut.data.arrays import Ints
from taut.formulations.compiled import jit


class Device(NamedTuple):
    """
    One device, alone: what its states and their labels need.

    Parameters
    ----------
    chain
        Number 2v of streams in the chain.
    size, seconds, memory
        Number of passes, ticks p of each and its change of memory, by stream (S,).
    follower
        For each gradient by the input, the stream of its weight gradient; -1 for forward passes (2v,).
    limit
        Memory limit M.
    lag, spacing
        Ticks between a pass and the same of the stream before, and from one micro-batch to the next in between (S,).
    lagged
        Streams that wait for other devices.
    slot
        Where the values of a lagged stream's first pass under way stand in a label (S,), and how many there are in all.
    head, tail
        Ticks h before the start and q after the end of each pass (S, passes).
    """

    chain: int
    size: Ints
    seconds: Ints
    memory: Ints
    follower: Ints
    limit: int
    lag: Ints
    spacing: Ints
    lagged: Ints
    slot: Ints
    slots: int
    head: Ints
    tail: Ints


@jit
def radices(size: Ints) -> Ints:
    """What a pass of each stream adds to the key, (2)."""
    radix = np.ones(len(size), np.int64)
    for s in range(1, len(size)):
        radix[s] = radix[s - 1] * (size[s - 1] + 1)
    return radix


@jit
def decode(key: int, n: Ints, radix: Ints, size: Ints, seconds: Ints, memory: Ints, forwards: bool) -> tuple[int, int]:
    """Fill in the state of a key; say what memory it holds and how many ticks of passes are still to run."""
    held, rest = 0, 0
    for s in range(len(n) - 1, -1, -1):
        n[s] = key // radix[s]
        key -= n[s] * radix[s]
        held += memory[s] * n[s]
        rest += seconds[s] * (size[s] - n[s] if forwards else n[s])
    return held, rest


@jit
def is_allowed(
    forwards: bool, s: int, n: Ints, held: int, chain: int, size: Ints, memory: Ints, follower: Ints, limit: int
) -> bool:
    """Whether the state after (before) one more (less) pass of s is allowed, (1)."""
    if forwards:
        if n[s] == size[s] or held + memory[s] > limit:
            return False
        if s < chain:
            return s == 0 or n[s] < n[s - 1]
        return bool(n[s] < (n[:chain] * (follower == s)).sum())
    if n[s] == 0 or held - memory[s] > limit:
        return False
    if s >= chain:
        return True
    if s + 1 < chain and n[s] == n[s + 1]:
        return False
    f = follower[s]
    return bool(f < 0 or n[f] < (n[:chain] * (follower == f)).sum())
