r"""
An event simulator of its own for orders of passes, which shares nothing with the formulations.

Orders follow their definitions: interleaved 1F1B as Megatron-LM describes it, and ZB-H1 slot by slot. A pass starts
when its device is free and what it needs has arrived; seconds are arrays, so that many plans run at once.
"""

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from taut.data.arrays import Floats

Pass = tuple[str, int, int]
"""Kind, F forward, B whole backward, I and W its two gradients; chunk; micro-batch."""


def interleaved(p: int, v: int, m: int) -> list[list[Pass]]:
    """Device d runs 2 (p - 1 - d) + (v - 1) p warm-up passes, then F and B in turn, then what is left of B."""
    orders = []
    for d in range(p):
        groups = [range(first, first + p) for first in range(0, m, p)]
        forward = [("F", r * p + d, i) for group in groups for r in range(v) for i in group]
        backward = [("B", r * p + d, i) for group in groups for r in reversed(range(v)) for i in group]
        order = forward[: 2 * (p - 1 - d) + (v - 1) * p]
        for k in range(len(order), len(forward)):
            order += [forward[k], backward[k - 2 * (p - 1 - d) - (v - 1) * p]]
        orders.append(order + [each for each in backward if each not in order])
    return orders


def zb_h1(p: int, m: int) -> list[list[Pass]]:
    """In slot t device d runs forward pass t, gradient by the input t - (p - 1 - d), by the weights t - (p - 1)."""
    return [
        [
            (kind, d, t - late)
            for t in range(m + p - 1)
            for kind, late in (("F", 0), ("I", p - 1 - d), ("W", p - 1))
            if 0 <= t - late < m
        ]
        for d in range(p)
    ]


def orders_of(schedule: str, p: int, v: int, m: int) -> list[list[Pass]]:
    """The passes of every device in turn."""
    return interleaved(p, v, m) if schedule == "interleaved-1f1b" else zb_h1(p, m)


def _needed(kind: str, chunk: int, i: int, chunks: int) -> Pass | None:
    """The pass on another device that a pass waits for."""
    if kind == "F":
        return ("F", chunk - 1, i) if chunk else None
    return (kind, chunk + 1, i) if kind in "BI" and chunk < chunks - 1 else None


@lru_cache(maxsize=256)
def events(schedule: str, p: int, v: int, m: int) -> list[tuple[int, str, int, int, Pass | None]]:
    """Device, kind, chunk, micro-batch and need of every pass, each after those that it waits for."""
    left = [iter(order) for order in orders_of(schedule, p, v, m)]
    found = list[tuple[int, str, int, int, Pass | None]]()
    heads, done = [next(each, None) for each in left], set[Pass]()
    while any(heads):
        before = len(found)
        for d in range(p):
            while (head := heads[d]) and ((need := _needed(*head, p * v)) is None or need in done):
                found.append((d, *head, need))
                done.add(head)
                heads[d] = next(left[d], None)
        assert len(found) > before, "deadlock"
    return found


def simulate(schedule: str, p: int, v: int, m: int, passes: Floats, hops: Floats) -> Floats:
    """
    End of every device's last pass, (p, ...).

    ``passes``: seconds of F, I and W by chunk (3, C, ...); ``hops``: seconds from every chunk to the next (C - 1, ...).
    """
    seconds = {"F": passes[0], "I": passes[1], "W": passes[2], "B": passes[1] + passes[2]}
    clock, end = [np.zeros(passes.shape[2:]) for _ in range(p)], dict[Pass, Floats]()
    for d, kind, chunk, i, need in events(schedule, p, v, m):
        start = clock[d]
        if need is not None:
            start = np.maximum(start, end[need] + hops[min(need[1], chunk)])
        clock[d] = start + seconds[kind][chunk]
        end[kind, chunk, i] = clock[d]
    return np.array(clock)


def held(schedule: str, p: int, v: int, m: int) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Devices, with micro-batches of every chunk (C,) whose activations they hold after a forward pass."""
    for d, order in enumerate(orders_of(schedule, p, v, m)):
        counts, found = [0] * (p * v), set[tuple[int, ...]]()
        for kind, chunk, _ in order:
            counts[chunk] += {"F": 1, "I": 0, "B": -1, "W": -1}[kind]
            found.add(tuple(counts))
        yield from ((d, each) for each in sorted(found))
