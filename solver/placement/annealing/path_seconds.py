r"""
What pipelines and their leading stages take while they are annealed (``taut.solver.placement.annealing.paths``).

Data: hops and rings of ``taut.solver.placement.annealing.path_prices``, and waits of ``path_waits`` beside it.

(1) A placement takes the longest path and then the wait for the slowest ring or exchange of a tied embedding.
(2) Slots of the leading stages are kept stage by stage, each with its slowest link and the wait for its ring, so that a
    move prices again the rings of the stages that it changes.
"""

from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.compiled import jit
from taut.solver.placement.annealing.path_prices import exchange, path_length, ring_by_byte, slowest_link
from taut.solver.placement.annealing.path_waits import Waits, stage_wait


class Instance(NamedTuple):
    """
    What is annealed.

    Seconds of hops (N, N), inverse rates (N, N), cards (N,), reductions by stage, bytes of a tied embedding, seconds of
    pp - 1 shortest hops, slots (N,), whether any node has several, the least factor of a ring between nodes, and
    whether rings take that factor of their slowest link.
    """

    hops: Floats
    inverse: Floats
    card: Floats
    waits: Waits
    tied: float
    base: float
    capacity: Ints
    shared: bool
    least: float
    by_links: bool


class Rings(NamedTuple):
    """Slots of the leading stages, (stages, dp); slowest links between them, and waits for them, (stages,)."""

    members: Ints
    slowest: Floats
    wait: Floats


@jit
def rings_of(instance: Instance, paths: Ints, count: Ints) -> Rings:
    """
    Price the rings of paths.

    ``paths``: nodes of every path, (dp, pp); ``count``: scratch by node, (N,). Returns those of the leading stages,
    (2).
    """
    stages = len(instance.waits.slack)
    rings = Rings(np.ascontiguousarray(paths[:, :stages].T), np.zeros(stages), np.zeros(stages))
    for x in range(stages):
        _price_ring(instance, rings, count, x)
    return rings


@jit
def _price_ring(instance: Instance, rings: Rings, count: Ints, x: int) -> None:
    """Price the ring of a stage anew."""
    slowest = slowest_link(instance.inverse, rings.members, x)
    ring = ring_by_byte(instance.inverse, instance.card, rings.members, x, slowest, count)
    rings.slowest[x], rings.wait[x] = slowest, stage_wait(instance.waits, x, ring)


@jit
def longest_of(figures: Floats) -> float:
    """
    Find the largest of some figures.

    ``figures``: of any number, which may be none. Returns the largest, at least zero.
    """
    longest = 0.0
    for figure in figures:
        longest = max(longest, figure)
    return longest


@jit
def seconds_of(instance: Instance, paths: Ints) -> float:
    """
    Price a placement, (1).

    ``instance``, ``paths``: as of ``rings_of``. Returns seconds of hops and of the wait for reductions.
    """
    longest = 0.0
    for z in range(len(paths)):
        longest = max(longest, path_length(instance.hops, paths[z]))
    rings = rings_of(instance, paths, np.zeros(len(instance.hops), np.int64))
    return longest + max(longest_of(rings.wait), slowest_tie(instance, paths))


@jit
def slowest_tie(instance: Instance, paths: Ints) -> float:
    """
    Price the exchange of a tied embedding between first and last slots.

    ``instance``, ``paths``: as of ``rings_of``. Returns seconds of the slowest exchange.
    """
    slowest = 0.0
    if instance.tied > 0.0:
        for z in range(len(paths)):
            slowest = max(slowest, exchange(instance.inverse, instance.card, paths[z]))
    return instance.tied * slowest
