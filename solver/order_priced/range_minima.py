r"""
Least figures of chunks by their layers, and the options of devices that follow from them.

Data: seconds of passes, bytes and parameters of every range of layers (``taut.formulations.order_division``).

(1) For every figure of a chunk its least value over all ranges of n consecutive layers that the chunk can have: the
    first layers for the model's first chunk, the last ones for its last chunk, and for chunk c of the others those from
    layer c on, since every chunk before it has a layer.
(2) Where the layers in front differ, a device's first chunk, which is the model's chunk d on device d, begins after the
    s layers of all chunks before it: its figures are those of exactly n layers from s on, or where s is no less than
    the number of layers told apart, the least of all that come after these. So light layers in front count once,
    wherever they lie.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.formulations.order_division import ChunkProblem
from taut.solver.order_priced.critical_paths import Path
from taut.solver.order_priced.device_options import HUGE, DeviceOptions, enumerate_options

MOST_KINDS = 8
"""Layers in front up to which those that differ are told apart; models begin with up to three dense ones."""


class RangeMinima:
    """
    Least figures (1) of n consecutive layers of a chunk, n = 0..most, infinite where there are not so many.

    Kinds of chunks are the model's first one, its last, and others by the first layer that they may have, up to the one
    from which on all layers are alike.

    Parameters
    ----------
    given
        Tables of ranges.
    most
        Layers of a chunk at most.
    """

    def __init__(self, given: ChunkProblem, most: int) -> None:
        self._given, self.most = given, most
        finite, held = np.where(np.isfinite(given.passes), given.passes, HUGE), given.held * given.parameters
        tables = finite, held + given.beside, given.activation, given.parameters
        self._passes, self._fixed, self._activation, self._parameters = (
            [self._least(table, kind) for kind in range(self.kinds + 1)] for table in tables
        )
        self._passes_at, self._fixed_at, self._activation_at = (
            [self._least(table, start, exactly=True) for start in range(self.last_start)] for table in tables[:3]
        )

    @property
    def kinds(self) -> int:
        """Kinds of chunks but the last, each of chunk 0, 1, ..., and the last of these of all further ones."""
        return min(self._given.lead, MOST_KINDS) + 1

    @property
    def last_start(self) -> int:
        """The start that stands for all from the first one on after which layers are alike, or the last told apart."""
        return self.kinds - 1

    def starts(self, device: int) -> range:
        """Starts of a device's first chunk, each of ``last_start`` layers and more as that."""
        return range(min(device, self.last_start), self.last_start + 1) if device else range(1)

    def _least(self, table: Floats, kind: int, *, exactly: bool = False) -> Floats:
        """Least figures of a kind of chunk, or those of the range from a layer on, by layers (..., most + 1)."""
        layers = self._given.num_layers
        least = np.full((*table.shape[:-2], self.most + 1), np.inf)
        for n in range(1, self.most + 1):
            first, end = (0, 1) if kind == 0 else (kind, layers - n) if kind < self.kinds else (layers - n, None)
            end = kind + 1 if exactly else end
            least[..., n] = np.diagonal(table, n, -2, -1)[..., first:end].min(axis=-1, initial=np.inf)
        return np.where(least < HUGE, least, np.inf)

    def _kind(self, chunk: int) -> int:
        last = chunk == self._given.num_chunks - 1
        return 0 if chunk == 0 else self.kinds if last else min(chunk, self.kinds - 1)

    def seconds(self, chunks: Sequence[int] | Ints, weights: Floats, start: int | None = None) -> Floats:
        """
        Least weighted seconds of v chunks, weights (v, 3) of passes, by recompute and layers (v, recompute, n).

        The first of the chunks begins with a start, where that is given.
        """
        passes = self._of_chunks(self._passes, self._passes_at, chunks, start)
        return np.array([_weighted(each, w) for each, w in zip(passes, weights, strict=True)])

    def _of_chunks(
        self, kinds: list[Floats], exact: list[Floats], chunks: Sequence[int] | Ints, start: int | None
    ) -> list[Floats]:
        """Figures of some chunks by their kinds, of the first one by its start where that tells more."""
        found = [kinds[self._kind(int(c))] for c in chunks]
        if start is not None and int(chunks[0]) < self._given.num_chunks - 1:
            found[0] = exact[start] if start < self.last_start else kinds[self.last_start]
        return found

    def parameters(self, chunks: Ints) -> Floats:
        """Least parameters of v chunks by layers (v, n)."""
        return np.array([self._parameters[self._kind(int(c))] for c in chunks])

    def options(
        self, device: int, path: Path, longest: float, room: float, most: int, layers: int
    ) -> DeviceOptions | None:
        """
        Options of a device (``taut.solver.order_priced.device_options``), or None if more than ``most`` have a start.

        ``device``: number of the device; ``longest``: seconds (2); ``room``: budget of (1) less what a device always
        holds, in bytes; ``most``: number of them with one start beyond which the enumeration ends; ``layers``: layers
        of the device at most.
        """
        found = []
        for start in self.starts(device):
            options = self._options_from(start, device, path, longest, room, most, layers)
            if options is None:
                return None
            found.append(options)
        return DeviceOptions.joined(found)

    def _options_from(
        self, start: int, device: int, path: Path, longest: float, room: float, most: int, layers: int
    ) -> DeviceOptions | None:
        """Options of a device with a start, or None where there are too many."""
        given, hosted, kept = self._given, self._given.hosted(device), slice(layers + 1)
        chunks, recompute, seconds, complete = enumerate_options(
            np.ascontiguousarray(self.seconds(hosted, path.passes[hosted].astype(float), start)[..., kept]),
            np.array(self._of_chunks(self._fixed, self._fixed_at, hosted, start))[..., kept],
            np.array(self._of_chunks(self._activation, self._activation_at, hosted, start))[..., kept],
            _largest(given.counts[device]).astype(np.float64),
            room,
            min(longest, HUGE / 10),
            self._dominates,
            most,
        )
        return DeviceOptions(chunks, recompute, seconds, np.full(len(seconds), start)) if complete else None

    @cached_property
    def _dominates(self) -> Flags:
        """Whether a recompute (row) is slower than another (column) in no pass, (R, R); of equal ones the first is."""
        every = np.concatenate([table[..., 1:] for table in (*self._passes, *self._passes_at)], axis=-1)
        kinds = every.swapaxes(0, 1)
        dominates = np.array([[bool((a <= b).all()) for b in kinds] for a in kinds])
        return np.asarray(dominates & ~(dominates.T & np.tri(len(kinds), dtype=bool)))


def _largest(counts: Ints) -> Ints:
    """The counts (n, v) that no other one reaches or exceeds in all chunks: nothing needs more than they do."""
    distinct = np.unique(counts, axis=0)
    below = (distinct[:, None] <= distinct[None]).all(axis=-1) & ~np.eye(len(distinct), dtype=bool)
    return np.asarray(distinct[~below.any(axis=1)])


def _weighted(passes: Floats, weights: Floats) -> Floats:
    """Weighted sum over passes (3, ...), in which zero times infinity is zero."""
    used = weights > 0
    return np.asarray(np.tensordot(weights[used], passes[used], axes=1)) if used.any() else np.zeros(passes.shape[1:])
