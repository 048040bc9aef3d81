r"""
What one device can take of a division into chunks: layers and recompute of its chunks, within its memory.

Device d has v chunks, of :math:`n_1, \dots, n_v \ge 1` layers with recompute :math:`r_1, \dots, r_v`. Every figure of a
chunk is the least that so many consecutive layers have, wherever they lie: the first layers for the model's first
chunk, the last for its last, and neither for the others. Options are all n and r that keep

(1) :math:`\sum_k (\text{held}\, P_k + \text{logits}_k + q_k a_k) + \text{always} \le \text{budget}` for every count q
    of micro-batches in flight that the order goes through, and
(2) the seconds of the device's own passes on its path (``taut.solver.order_priced.critical_paths`` (1)) are at most
    ``longest``.

An option is left out where another with the same n recomputes less in one chunk, in no pass slower (3). So every
division has an option of each device that takes at most as long, whatever weights its passes have, and where all
layers but the first and the last are alike that is its own, or one that fits as well.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import comb

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.formulations.compiled import jit
from taut.formulations.order_division import ChunkProblem
from taut.solver.order_priced.critical_paths import Path

MOST_CHOICES = 2_000_000
"""Layers and recompute of a device's chunks beyond which its options are not looked at; a tenth of a second's worth."""
CLEAR = 1 - 1e-12
"""Share of the room within which an option fits in whatever order its bytes are added."""
HUGE = 1e300


@dataclass(frozen=True)
class Options:
    """Of a device: ``layers`` n and ``recompute`` r of its chunks (O, v), and seconds (2) of its own passes (O,)."""

    layers: Ints
    recompute: Ints
    seconds: Floats

    @cached_property
    def whole(self) -> Ints:
        """Layers of all chunks together (O,)."""
        return np.asarray(self.layers.sum(axis=1))

    def only(self, kept: Flags) -> "Options":
        """Some of the options, by flags (O,)."""
        return Options(self.layers[kept], self.recompute[kept], self.seconds[kept])


class Figures:
    """
    Least figures of n consecutive layers of a chunk, n = 0..most, infinite where there is no room for them.

    There are three kinds of chunks: the model's first one, the others, and its last.
    """

    def __init__(self, given: ChunkProblem, most: int) -> None:
        self._given, self.most = given, most
        finite = np.where(np.isfinite(given.passes), given.passes, HUGE)
        self._passes = [self._least(finite, kind) for kind in range(3)]
        self._fixed = [self._least(given.held * given.parameters + given.logits, kind) for kind in range(3)]
        self._activation = [self._least(given.activation, kind) for kind in range(3)]
        self._parameters = [self._least(given.parameters, kind) for kind in range(3)]

    def _least(self, table: Floats, kind: int) -> Floats:
        layers = self._given.num_layers
        least = np.full((*table.shape[:-2], self.most + 1), np.inf)
        for n in range(1, self.most + 1):
            first, end = ((0, 1), (1, layers - n), (layers - n, None))[kind]
            least[..., n] = np.diagonal(table, n, -2, -1)[..., first:end].min(axis=-1, initial=np.inf)
        return np.where(least < HUGE, least, np.inf)

    def _kind(self, chunk: int) -> int:
        return 0 if chunk == 0 else 2 if chunk == self._given.num_chunks - 1 else 1

    def seconds(self, chunks: Sequence[int] | Ints, weights: Floats) -> Floats:
        """Weighted seconds of passes, weights (v, 3), of chunks: (v, recompute, n)."""
        return np.array([_weighted(self._passes[self._kind(int(c))], w) for c, w in zip(chunks, weights, strict=True)])

    def parameters(self, chunks: Ints) -> Floats:
        """Parameters of chunks (v, n)."""
        return np.array([self._parameters[self._kind(int(c))] for c in chunks])

    def options(self, device: int, path: Path, longest: float, room: float) -> Options:
        """Options of a device within so many seconds and bytes, by (1) to (3)."""
        given, hosted = self._given, self._given.hosted(device)
        found = _options(
            self.seconds(hosted, path.passes[hosted].astype(float)),
            np.array([self._fixed[self._kind(int(c))] for c in hosted]),
            np.array([self._activation[self._kind(int(c))] for c in hosted]),
            given.counts[device].astype(np.float64),
            room,
            min(longest, HUGE / 10),
            self._quicker,
        )
        return Options(*found)

    @cached_property
    def _quicker(self) -> Flags:
        """Whether a recompute (row) is in no pass slower than another (column); of equal ones the first is."""
        every = np.concatenate([table[..., 1:] for table in self._passes], axis=-1)
        kinds = every.swapaxes(0, 1)
        quicker = np.array([[bool((a <= b).all()) for b in kinds] for a in kinds])
        return np.asarray(quicker & ~(quicker.T & np.tri(len(kinds), dtype=bool)))


def _weighted(passes: Floats, weights: Floats) -> Floats:
    """Weighted sum over passes (3, ...), in which zero times infinity is nothing."""
    used = weights > 0
    return np.asarray(np.tensordot(weights[used], passes[used], axes=1)) if used.any() else np.zeros(passes.shape[1:])


def few_enough(chunks: int, recompute: int, most: int) -> bool:
    """Whether the options of a device with at most so many layers can be looked at."""
    return bool(comb(most, chunks) * recompute**chunks <= MOST_CHOICES)


@jit
def _options(
    seconds: Floats, fixed: Floats, activation: Floats, counts: Floats, room: float, longest: float, quicker: Flags
) -> tuple[Ints, Ints, Floats]:
    """All options, chunk by chunk, each with its recompute counted up before its layers while any of them fits."""
    chunks, kinds, most = seconds.shape[0], seconds.shape[1], seconds.shape[2] - 1
    layers, recompute, times = np.empty((64, chunks), np.int64), np.empty((64, chunks), np.int64), np.empty(64)
    n, r, fits = np.ones(chunks, np.int64), np.full(chunks, -1), np.zeros(chunks, np.bool_)
    taken, took = np.zeros(chunks + 1, np.int64), np.zeros(chunks + 1)
    held = np.zeros((chunks + 1, len(counts)))
    # What the chunks after one need at least, with a layer each.
    later, needed = np.zeros(chunks + 1), np.zeros((chunks + 1, len(counts)))
    for k in range(chunks - 1, -1, -1):
        later[k] = later[k + 1] + seconds[k, :, 1].min()
        needed[k] = needed[k + 1] + fixed[k, 1] + counts[:, k] * activation[k, :, 1].min()
    k, found = 0, 0
    while k >= 0:
        r[k] += 1
        if r[k] == kinds:
            # More layers take no less time or memory.
            if not fits[k]:
                k -= 1
                continue
            r[k], fits[k] = 0, False
            n[k] += 1
        if taken[k] + n[k] + chunks - 1 - k > most:
            k -= 1
            continue
        took[k + 1] = took[k] + seconds[k, r[k], n[k]]
        held[k + 1] = held[k] + fixed[k, n[k]] + counts[:, k] * activation[k, r[k], n[k]]
        if not took[k + 1] + later[k + 1] <= longest or not (held[k + 1] + needed[k + 1]).max() <= room:
            continue
        fits[k] = True
        taken[k + 1] = taken[k] + n[k]
        if k < chunks - 1:
            k += 1
            n[k], r[k], fits[k] = 1, -1, False
        elif not _superfluous(n, r, held[chunks], activation, counts, room, quicker):
            if found == len(times):
                layers, recompute = np.concatenate((layers, layers)), np.concatenate((recompute, recompute))
                times = np.concatenate((times, times))
            layers[found], recompute[found], times[found] = n, r, took[chunks]
            found += 1
    return layers[:found], recompute[:found], times[:found]


@jit
def _superfluous(
    n: Ints, r: Ints, held: Floats, activation: Floats, counts: Floats, room: float, quicker: Flags
) -> bool:
    """Whether a chunk fits with a recompute that is in no pass slower, (3)."""
    for k in range(len(n)):
        for other in range(len(quicker)):
            more = activation[k, other, n[k]] - activation[k, r[k], n[k]]
            if quicker[other, r[k]] and (held + counts[:, k] * more).max() <= CLEAR * room:
                return True
    return False
