r"""
Staircases: how long interleaved 1F1B takes at least, in closed form.

Sets: pipeline devices d = 0..p-1; chunks c = 0..C-1, C = v p, chunk c on device c mod p; micro-batches, m of them, a
multiple of p and at least 2 p.
Data: seconds :math:`F_c, B_c` of the passes of a chunk, :math:`h_c` of a transfer after it.

Device d runs the order of ``taut.formulations.schedules.orders`` (3): :math:`w_d = 2 (p - 1 - d) + (v - 1) p +
1` forward passes, then a backward and a forward pass in turn, then backward passes. Three parts of a path through it
follow each other, and so do their seconds.

(1) *Entry*. Let :math:`E_c` be the start of chunk c's first forward pass. From there the first micro-batch goes on to
    chunk c + 1, or the device runs its p micro-batches and begins the next round with chunk c + p, so that

    .. math:: E_{c+1} \ge E_c + F_c + h_c, \quad E_{c+p} \ge E_c + p F_c .

    With :math:`l = (v - 1) p + d` the last chunk of device d, its first backward pass starts no sooner than the first
    micro-batch comes back from the model's end, or the device has run its :math:`w_d` forward passes:

    .. math::
        E_l + \sum_{c=l}^{C-1} F_c + \sum_{c=l+1}^{C-1} B_c + 2 \sum_{c=l}^{C-2} h_c, \quad
        E_l + \sum_{k=(v-1)p}^{w_d-1} F_{c(k)},

    :math:`c(k)` the chunk of its k-th forward pass.
(2) *Middle*. From the first backward to its last forward pass the device does not stop for less than its own passes.
(3) *Exit*. The same backwards: :math:`Z_c`, the seconds from the end of chunk c's last backward pass to the end of the
    step, keeps :math:`Z_{c+1} \ge Z_c + B_c + h_c` and :math:`Z_{c+p} \ge Z_c + p B_c`. Or the path ends with the
    device's own last pass.

Every such path bounds the makespan from below. Where chunks of a round take about the same time everywhere, one of them
is the makespan: the middle then has no path that gains by a change of device.

(4) A mixture of paths is linear in the chunks' seconds. It is stated by weights of the ends, (device, way in, way out),
    that sum to one, and for each chunk by the share of the paths through it that came by a whole round, in (1) and in
    (3). Any such numbers are a mixture of paths, which is all that a check needs to know.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.formulations.schedules.orders import Order, order_of

WAYS_IN, WAYS_OUT = 2, 3
"""Entry by the model's end or by the device's own passes; exit by the model's end, by own passes, or with the last."""


class Ends(NamedTuple):
    """
    What paths do outside the rounds of (1) and (3), by device, way in and way out.

    ``forward`` and ``backward`` are numbers of passes by chunk (p, 2, 3, C), ``transfers`` those after a chunk (p, 2,
    3, C - 1), and ``after`` the device whose reduction follows (p, 2, 3). ``leaves`` says whether Z follows (3,).
    """

    forward: Ints
    backward: Ints
    transfers: Ints
    after: Ints
    leaves: Flags


def is_interleaved(order: Order, micro_batches: int) -> bool:
    """Whether an order is that of interleaved 1F1B with at least two rounds of micro-batches."""
    devices, chunks = len(order.first) - 1, len(order.device)
    if chunks % devices or micro_batches % devices or micro_batches < 2 * devices or chunks < 2 * devices:
        return False
    ours = order_of("interleaved-1f1b", devices, chunks // devices, micro_batches)
    return np.array_equal(order.passes, ours.passes) and np.array_equal(order.device, ours.device)


@lru_cache(maxsize=64)
def ends_of_paths(devices: int, chunks: int, micro_batches: int) -> Ends:
    """The ends of all paths of (1) to (3)."""
    p, v = devices, chunks // devices
    shape = p, WAYS_IN, WAYS_OUT
    forward, backward = np.zeros((*shape, chunks), np.int64), np.zeros((*shape, chunks), np.int64)
    transfers, after = np.zeros((*shape, chunks - 1), np.int64), np.zeros(shape, np.int64)
    for d in range(p):
        ahead, last = 2 * (p - 1 - d) + (v - 1) * p + 1, (v - 1) * p + d
        # The k-th forward pass is of this chunk, and so is the k-th backward pass from the end.
        chunk = np.arange(micro_batches * v) // p % v * p + d
        own = np.bincount(chunk[(v - 1) * p : ahead], minlength=chunks)
        middle = np.bincount(chunk[ahead:], minlength=chunks)
        forward[d] += middle
        backward[d] += middle
        forward[d, 0, :, last:] += 1
        backward[d, 0, :, last + 1 :] += 1
        transfers[d, 0, :, last:] += 2
        forward[d, 1] += own
        forward[d, :, 0, last + 1 :] += 1
        backward[d, :, 0, last:] += 1
        transfers[d, :, 0, last:] += 2
        backward[d, :, 1] += own
        backward[d, :, 2] += np.bincount(chunk[:ahead], minlength=chunks)
        after[d, :, 2] = d
    return Ends(forward, backward, transfers, after, np.array([True, True, False]))


class Mixture(NamedTuple):
    """Mean numbers of passes by chunk (C,), of transfers (C - 1,), and weights of the devices that end paths (p,)."""

    forward: Floats
    backward: Floats
    transfers: Floats
    after: Floats


def mix(known: Ends, weights: Floats, rounds_in: Floats, rounds_out: Floats, *, whole: bool = False) -> Mixture:
    """Mean numbers (4) of a mixture of paths: weights of ends (p, 2, 3), shares by whole rounds (C,), ``whole``."""
    devices, chunks = len(weights), known.forward.shape[-1]
    forward, backward, transfers = (np.tensordot(weights, each, 3) for each in known[:3])
    last = slice(chunks - devices, chunks)
    entering, leaving = np.zeros(chunks), np.zeros(chunks)
    entering[last], leaving[last] = weights.sum(axis=(1, 2)), weights[..., known.leaves].sum(axis=(1, 2))
    moved = transfers.tolist()
    for through, rounds, passes in ((entering, rounds_in, forward), (leaving, rounds_out, backward)):
        # Numbers of Python, which single steps are several times quicker with.
        flow, shares, more = through.tolist(), rounds.tolist(), [0.0] * chunks
        for c in range(chunks - 1, 0, -1):
            by_round = flow[c] * shares[c] if c >= devices else 0.0
            by_round = by_round // 1 if whole else by_round
            if c >= devices:
                flow[c - devices] += by_round
                more[c - devices] += devices * by_round
            by_step = flow[c] - by_round
            flow[c - 1] += by_step
            more[c - 1] += by_step
            moved[c - 1] += by_step
        passes += more
    transfers = np.array(moved)
    after = np.bincount(known.after.ravel(), weights.ravel(), minlength=devices).astype(float)
    return Mixture(forward, backward, transfers, after)
