"""Building blocks to try: every one of a pipeline (:mod:`taut.formulations.orders.block`, equation (1))."""

from collections.abc import Iterator
from itertools import permutations

import numpy as np

from taut.formulations.orders.block import Block, v_block
from taut.formulations.schedule import ScheduleProblem


def blocks(problem: ScheduleProblem) -> Iterator[Block]:
    """
    Enumerate blocks of a pipeline, (1).

    On the V every ``down`` from 1 to 5 and, in the slots of device 0, every order of its four passes; elsewhere
    ``down`` and ``up`` from 1 to the period less one, and turns without a wait.
    """
    chunks = problem.num_chunks
    period = 3 * int(np.bincount(problem.device).max())
    steps = np.sign(np.diff(problem.device))
    if np.array_equal(problem.device[: chunks // 2], problem.device[chunks // 2 :][::-1]):
        for down in range(1, period):
            for turns in permutations(range(1, 6), 3):
                yield _turned(chunks // 2, down, turns)
        return
    for down in range(1, period):
        for up in range(1, period):
            forward = np.concatenate(([0], np.cumsum(np.where(steps >= 0, down, up))))
            back = np.concatenate(([0], np.cumsum(np.where(steps[::-1] >= 0, up, down))))
            yield Block(forward, (forward[-1] + 1 + back)[::-1], period)


def _turned(p: int, down: int, turns: tuple[int, ...]) -> Block:
    """Block of the V whose passes f, I, i on device 0 are in given slots, modulo 6."""
    d = np.arange(p)
    bottom = down * (p - 1)
    up = _next(bottom + 1, turns[0] - (p - 1)) + (p - 1 - d)
    gradient_of_up = _next(int(up[0]) + 1, turns[1]) + down * d
    gradient_of_down = _next(int(gradient_of_up[-1]) + 1, turns[2] - (p - 1)) + (p - 1 - d)
    return v_block(down * d, up, gradient_of_up, gradient_of_down)


def _next(slot: int, remainder: int) -> int:
    """First slot from a given one on that leaves a remainder modulo 6."""
    return slot + (remainder - slot) % 6
