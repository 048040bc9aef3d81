r"""
The building blocks that list schedules take their keys from.

A building block (``taut.formulations.schedules.orders.block``, equation (1)) gives slots to the passes of one
micro-batch. On the V, blocks are those of ``taut.solver.schedules.construct.v_blocks``: every pair of steps from 1 to
5, a larger one on the first devices, and in the slots of device 0 every order of its four passes (1). On other
placements both steps range from 1 to the period less one, and turns are made without a wait (2). Collisions are allowed
here, since slots serve as keys alone.
"""

from itertools import permutations

import numpy as np

from taut.formulations.schedules.orders.block import Block, v_block
from taut.formulations.schedules.schedule import ScheduleProblem, v_shape
from taut.solver.schedules.construct.v_blocks import place_v_block


class BuildingBlocks:
    """
    All building blocks of a pipeline, (1) or (2), made when asked for.

    Parameters
    ----------
    problem
        The pipeline.
    """

    def __init__(self, problem: ScheduleProblem) -> None:
        half = problem.num_chunks // 2
        self.period = 3 * int(np.bincount(problem.device).max())
        self.steps = np.sign(np.diff(problem.device))
        self.is_v = half > 0 and np.array_equal(problem.device, v_shape(half))
        self.half = half

    def __len__(self) -> int:
        """Return their number."""
        return 25 * 60 * 4 if self.is_v else (self.period - 1) ** 2

    def __getitem__(self, place: int) -> Block:
        """Return a block by its place."""
        rest, down = divmod(place, self.period - 1)
        if not self.is_v:
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
    place_v_block(early, down, ((quarter + 1) * p) // 5, f, up, i, slots)
    return v_block(*slots.T)
