"""Building blocks to try: every one of a pipeline (:mod:`taut.formulations.schedules.orders.block`, equation (1))."""

from itertools import permutations

import numpy as np

from taut.formulations.schedules.orders.block import Block, v_block
from taut.formulations.schedules.schedule import ScheduleProblem, v_shape
from taut.solver.schedules.construct.block_slots import on_v


class Blocks:
    """
    All blocks of a pipeline, (1), made when asked for.

    On the V every pair of ``down`` from 1 to 5, the first on the first devices, and, in the slots of device 0, every
    order of its four passes; elsewhere ``down`` and ``up`` from 1 to the period less one, and turns without a wait.
    """

    def __init__(self, problem: ScheduleProblem) -> None:
        half = problem.num_chunks // 2
        self.period = 3 * int(np.bincount(problem.device).max())
        self.steps = np.sign(np.diff(problem.device))
        self.on_v = half > 0 and np.array_equal(problem.device, v_shape(half))
        self.half = half

    def __len__(self) -> int:
        """Return their number."""
        return 25 * 60 * 4 if self.on_v else (self.period - 1) ** 2

    def __getitem__(self, place: int) -> Block:
        """Return a block by its place."""
        rest, down = divmod(place, self.period - 1)
        if not self.on_v:
            return self._straight(down + 1, rest + 1)
        rest, first = divmod(rest, 5)
        quarter, turns = divmod(rest, 60)
        return _turned(self.half, down + 1, max(down, first) + 1, quarter, _TURNS[turns])

    def _straight(self, down: int, up: int) -> Block:
        forward = np.concatenate(([0], np.cumsum(np.where(self.steps >= 0, down, up))))
        back = np.concatenate(([0], np.cumsum(np.where(self.steps[::-1] >= 0, up, down))))
        return Block(forward, (forward[-1] + 1 + back)[::-1], self.period)


_TURNS = tuple(permutations(range(1, 6), 3))


def _turned(p: int, down: int, early: int, quarter: int, turns: tuple[int, ...]) -> Block:
    """Block of the V whose f, I, i on device 0 are in given slots modulo 6, and that is longer on early devices."""
    slots = np.empty((p, 4), dtype=np.int64)
    f, up, i = turns
    on_v(early, down, ((quarter + 1) * p) // 5, f, up, i, slots)
    return v_block(*slots.T)
