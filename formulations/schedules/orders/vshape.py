r"""
V-shaped schedules by formula: two chunks a device, down the devices and back up.

On p devices, with F, f the forward passes of a device's chunk on the way down and up, I, i their gradients by the input
(i belongs to the way down) and W the oldest gradient by the weights that is not done, device d runs

- ZB-V [1]_: :math:`2(p-d)-1` times F; d times f F; p - d times f I W; f, i, W, I, W with an F before them while there
  are any, until f has run out; d times i I; p - d times i W; the rest of W. It holds 2p chunks. (1)
- DualPipeV [2]_ (B, b whole backward passes; pairs that the original overlaps run one after the other):
  :math:`2(p-d-1)` times F; d + 1 times F f; p - d - 1 times I W f; m - 2p + d + 1 times F B f b; p - d - 1 times B f b;
  d + 1 times B b, the second half of them I or i; p - d - 1 times W i; d + 1 times W. It holds 2p + 1 chunks. (2)

Both need at least 2p micro-batches.

References
----------
.. [1] Qi, P., Wan, X., Huang, G. and Lin, M. (2024). Zero bubble pipeline parallelism. ICLR, section 6.
.. [2] DeepSeek-AI (2025). DualPipe. github.com/deepseek-ai/DualPipe.
"""

from collections.abc import Callable

import numpy as np

from taut.data.arrays import Ints
from taut.errors import FormulationError
from taut.formulations.schedules.orders.classic import require
from taut.formulations.schedules.schedule import (
    BACKWARD,
    FORWARD,
    INPUT_GRADIENT,
    WEIGHT_GRADIENT,
    Schedule,
    ScheduleProblem,
    v_shape,
)


def zb_v(problem: ScheduleProblem) -> Schedule:
    """ZB-V as its authors wrote it down, (1)."""
    return _by_hand(problem, "zb-v", _zb_v_types)


def dualpipe_v(problem: ScheduleProblem) -> Schedule:
    """DualPipeV, (2)."""
    return _by_hand(problem, "dualpipe-v", _dualpipe_v_types)


def _zb_v_types(p: int, d: int, m: int) -> str:
    head = "F" * (2 * (p - d) - 1) + "fF" * d + "fIW" * (p - d)
    ups = m - p
    downs = m - 2 * p + d + 1
    return head + "FiWfIW" * downs + "iWfIW" * (ups - downs) + "iI" * d + "iW" * (p - d) + "W" * 2 * m


def _dualpipe_v_types(p: int, d: int, m: int) -> str:
    head = "F" * 2 * (p - d - 1) + "Ff" * (d + 1) + "IWf" * (p - d - 1)
    body = "FBfb" * (m - 2 * p + d + 1) + "Bfb" * (p - d - 1)
    last = ("Bb" * (d + 1))[: d + 1] + ("Ii" * (d + 1))[d + 1 :]
    return head + body + last + "Wi" * (p - d - 1) + "W" * (d + 1)


def _by_hand(problem: ScheduleProblem, kind: str, types: Callable[[int, int, int], str]) -> Schedule:
    p, m = problem.num_devices, problem.num_micro_batches
    require(problem, v_shape(p), kind, "two chunks a device, down and back up")
    if m < 2 * p:
        raise FormulationError(f"{kind}: {m} micro-batches on {p} devices, expected at least {2 * p}")
    return Schedule(kind, tuple(_passes(types(p, d, m), d, 2 * p - 1 - d) for d in range(p)))


def _passes(types: str, down: int, up: int) -> Ints:
    """Passes of a permutation with repetition; every type takes its next micro-batch, W the oldest gradient."""
    meaning = {"F": (FORWARD, down), "f": (FORWARD, up), "I": (INPUT_GRADIENT, up), "i": (INPUT_GRADIENT, down)}
    meaning |= {"B": (BACKWARD, up), "b": (BACKWARD, down)}
    seen: dict[str, int] = {}
    pending: list[tuple[int, int]] = []
    rows: list[tuple[int, int, int]] = []
    for letter in types:
        if letter == "W":
            if pending:
                rows.append((WEIGHT_GRADIENT, *pending.pop(0)))
            continue
        kind, chunk = meaning[letter]
        counter = {"B": "I", "b": "i"}.get(letter, letter)
        i = seen[counter] = seen.get(counter, -1) + 1
        rows.append((kind, chunk, i))
        if kind == INPUT_GRADIENT:
            pending.append((chunk, i))
    return np.array(rows, dtype=np.int64)
