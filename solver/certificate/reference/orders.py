r"""
Orders of passes, run pass by pass.

A pass is (kind, chunk, micro-batch) with kind F forward, I gradient by the input, W gradient by the weights, or B both
at once; an order lists the passes of every device.

(1) F of chunk c waits for F of chunk c - 1 and the transfer between them; I and B wait for F of their chunk and for
    I or B of chunk c + 1 and the transfer back; W waits for I. A device runs its passes in order, one at a time.
(2) Interleaved 1F1B: with chunk c on device c mod p, device d runs its k-th forward in rounds of p micro-batches, is
    2 (p - d - 1) + (v - 1) p + 1 forwards ahead, and then alternates (Narayanan et al., SC 2021).
(3) ZB-H1 and ZB-H2: in rounds, F at i, I at w (p - 1 - d) + i and W at w (p - 1) + i, in this order within a round,
    with w = 1 and 2 (Qi et al., ICLR 2024).
"""

import re
from collections.abc import Sequence

import numpy as np

from taut.data.arrays import Floats
from taut.errors import DataError
from taut.solver.certificate.reference.space import Choice

Pass = tuple[str, int, int]
Order = Sequence[Sequence[Pass]]
PARTS = {"F": "F", "I": "I", "W": "W", "B": "IW"}


def order_of(choice: Choice) -> Order | None:
    """The order of a candidate, given or by (2) and (3); None where its schedule has no such formula here."""
    if choice.order:
        return [_spelt(word) for word in choice.order]
    if choice.schedule == "interleaved-1f1b":
        return [_interleaved(choice, d) for d in range(choice.pp)]
    if choice.schedule in ("zb-h1", "zb-h2"):
        return [_zero_bubble(choice, d) for d in range(choice.pp)]
    return None


def _spelt(word: str) -> list[Pass]:
    """Passes of a word such as 0F0F3F3I3W; the n-th time that a pass is named is that of micro-batch n."""
    seen: dict[tuple[str, int], int] = {}
    passes = []
    for chunk, kind in re.findall("([0-9]+)([FIWB])", word):
        i = seen[kind, int(chunk)] = seen.get((kind, int(chunk)), -1) + 1
        passes.append((kind, int(chunk), i))
    return passes


def _interleaved(choice: Choice, d: int) -> list[Pass]:
    p, v, count = choice.pp, choice.vpp, choice.vpp * choice.num_micro_batches
    forward = [("F", k // p % v * p + d, k // (p * v) * p + k % p) for k in range(count)]
    backward = [("B", (v - 1 - k // p % v) * p + d, k // (p * v) * p + k % p) for k in range(count)]
    ahead = min(2 * (p - d - 1) + (v - 1) * p + 1, count)
    turns = [each for k in range(count - ahead) for each in (backward[k], forward[ahead + k])]
    return forward[:ahead] + turns + backward[count - ahead :]


def _zero_bubble(choice: Choice, d: int) -> list[Pass]:
    p, w = choice.pp, 1 if choice.schedule == "zb-h1" else 2
    rounds = {"F": 0, "I": w * (p - 1 - d), "W": w * (p - 1)}
    timed = [(rounds[kind] + i, "FIW".index(kind), i) for kind in rounds for i in range(choice.num_micro_batches)]
    return [("FIW"[kind], d, i) for _, kind, i in sorted(timed)]


def check(choice: Choice, order: Order) -> None:
    """
    Refuse an order that does not run every pass once on the device of its chunk.

    Raises ``DataError`` if it does not.
    """
    device = choice.chunk_device
    wanted = {(k, c, i) for k in "FIW" for c in range(len(device)) for i in range(choice.num_micro_batches)}
    found = [(k, c, i) for passes in order for kind, c, i in passes for k in PARTS[kind]]
    placed = len(order) == choice.pp and all(0 <= c < len(device) for _, c, _ in found)
    if len(found) != len(wanted) or set(found) != wanted or not placed:
        raise DataError(f"order of {choice.schedule}: does not run every pass once")
    if any(device[c] != d for d, passes in enumerate(order) for _, c, _ in passes):
        raise DataError(f"order of {choice.schedule}: a pass is on another device than its chunk")


def device_ends(order: Order, seconds: Floats, transfer: Floats) -> Floats:
    """
    Seconds until the last pass of every device has run, (1).

    ``order``: passes of every device; ``seconds``: of F, I and W by chunk, for n cases at once (3, C, n); ``transfer``:
    from every chunk to the next, and back (C - 1, n). Returns seconds (devices, n). Raises ``DataError`` if devices
    wait for each other for ever.
    """
    duration = {"F": seconds[0], "I": seconds[1], "W": seconds[2], "B": seconds[1] + seconds[2]}
    done: dict[Pass, Floats] = {}
    clock, position = [np.zeros(seconds.shape[-1])] * len(order), [0] * len(order)
    moved = True
    while moved:
        moved = False
        for d, passes in enumerate(order):
            while position[d] < len(passes):
                kind, c, i = passes[position[d]]
                start = _start((kind, c, i), clock[d], done, transfer)
                if start is None:
                    break
                clock[d] = start + duration[kind][c]
                done["I" if kind == "B" else kind, c, i] = clock[d]
                position[d], moved = position[d] + 1, True
    if any(at < len(passes) for at, passes in zip(position, order, strict=True)):
        raise DataError("order: devices wait for each other for ever")
    return np.array(clock)


def _start(each: Pass, clock: Floats, done: dict[Pass, Floats], transfer: Floats) -> Floats | None:
    """When a pass can start on its device, None if what it waits for has not run, (1)."""
    kind, c, i = each
    if kind == "W":
        return clock if ("I", c, i) in done else None
    if kind == "F":
        before, hop = ("F", c - 1, i), c - 1
    elif ("F", c, i) not in done:
        return None
    else:
        before, hop = ("I", c + 1, i), c
    if not 0 <= before[1] <= len(transfer):
        return clock
    return np.maximum(clock, done[before] + transfer[hop]) if before in done else None
