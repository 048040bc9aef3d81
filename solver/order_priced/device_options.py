r"""
Options of one device, layers and recompute of its chunks within memory and time, and the chain of all devices.

Sets: chunks k = 1..v of a device, numbers of layers :math:`n_k \ge 1`, recompute :math:`r_k`, and the start s of its
first chunk, the layers of all chunks before it.
Data: the least figures of a chunk by its layers.

An option is a triple (s, n, r) that keeps

(1) :math:`\sum_k (\text{beside}_k + q_k a_k) + \text{always} + \text{moment}_d \le \text{budget}` for every count q
    of micro-batches in flight that the order goes through, where :math:`\text{moment}_d` is what the device holds for a
    moment in every division, beyond what all devices do (``taut.solver.order_priced.layer_bounds`` (9)), and
(2) the seconds of the device's own passes on its path (``taut.solver.order_priced.critical_paths`` (1)) are at most
    ``longest``.
(3) Dominance: an option is left out where another with the same s and n recomputes less in one chunk and is slower in
    no pass.

Options are enumerated depth first over chunks; a branch ends where the least time or memory of the remaining chunks
exceeds (1) or (2). Every division has an option of each device that takes at most as long under any weights of the
passes. Where all layers but those in front and the last are equal, that is its own option or one that dominates it.

Least figures of chunks are kept by their layers. Data: seconds of passes, bytes and load of every range of layers
(``taut.formulations.order_division``).

(4) For every figure of a chunk its least value over all ranges of n consecutive layers that the chunk can have: the
    first layers for the model's first chunk, the last ones for its last chunk, and for chunk c of the others those from
    layer c on, since every chunk before it has a layer.
(5) Where the layers in front differ, a device's first chunk, which is the model's chunk d on device d, begins after the
    s layers of all chunks before it: its figures are those of exactly n layers from s on, or where s is no less than
    the number of layers told apart, the least of all that come after these. So light layers in front count once,
    wherever they lie.

The devices of a candidate are a chain: the division of least cost over the options of every device. Sets: devices d =
0..pp-1, each with the options o that its passes leave within a limit T on the makespan.
Data: layers :math:`N_o` of an option; its cost :math:`c_d(o)` under costs of the chunks' figures
(``taut.solver.order_priced.master_rows`` (3)).
Variables: an option of each device.

(6) Minimise :math:`\sum_d c_d(o_d)` so that :math:`\sum_d N_{o_d} = L`, and every option has the start that the first
    chunks of the devices before it make: a multiple-choice knapsack with equality.
    :math:`V_{d+1}(s + x_o, u) = \min_o V_d(s, u - N_o) + c_d(o)` over the options of start s, :math:`x_o` the layers of
    their first chunks, is the least cost of the devices before d + 1 with u layers, of which the first chunks have
    :math:`s + x_o`. It solves (6) by dynamic programming, :math:`\min_s V_{pp}(s, L)` is its optimum, and starts from
    one on are the same, (5).

No division within T and within memory costs less than (6), since an option costs no more than the chunks that it stands
for, and every cut is priced by the least seconds of any cut. So (6) is a pricing problem whose columns each keep the
memory of every device (Sinha and Zoltners, The multiple-choice knapsack problem, Operations Research 27, 1979).
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import comb

import numpy as np

from taut.data.arrays import Flags, Floats, Ints, Ints16
from taut.errors import FormulationError
from taut.formulations.compiled import jit, jit_inside
from taut.formulations.order_division import ROUNDING, ChunkProblem
from taut.formulations.strategy import Division
from taut.solver.order_priced.critical_paths import Path, device_path
from taut.solver.order_priced.layer_bounds import passing_bytes
from taut.solver.order_priced.pricing import ChunkCosts, room

MOST_OPTIONS = 2_000_000
"""Pairs (n, r) of a device beyond which its options are not enumerated; so many take about a tenth of a second."""
MOST_TRIED, MOST_WITHIN, MOST_VISITS = 100_000_000, 200_000, 10_000_000
"""Pairs of a device up to which its options are sought nevertheless; then it may have so many within its time and
memory, found in so many steps of the enumeration, which take about a second."""
CERTAIN = 1 - 1e-12
"""Part of the room within which an option fits, in whatever order its bytes are added and rounded."""
HUGE = 1e300
"""In the place of infinity in sums, since infinity times a weight of zero is not a number."""


@dataclass(frozen=True)
class DeviceOptions:
    """
    The O options of a device with v chunks, by ascending start.

    ``codes`` (O, v): layers n and recompute r of a chunk as the number n 2^bits + r, since eight devices may have
    sixteen million options; ``begins[s]``: the first option of start s, and behind the last start O.
    """

    codes: Ints16
    begins: Ints
    bits: int

    @property
    def whole(self) -> Ints16:
        """Layers of all chunks together (O,)."""
        return np.asarray((self.codes >> self.bits).sum(axis=1, dtype=np.int16))

    def chosen(self, option: int) -> tuple[Ints, Ints, int]:
        """Layers and recompute (v,) of an option, and its start."""
        codes = self.codes[option].astype(np.int64)
        start = int(np.searchsorted(self.begins, option, side="right")) - 1
        return codes >> self.bits, codes & ((1 << self.bits) - 1), start

    def has(self, layers: Ints, recompute: Ints, start: int) -> bool:
        """Whether layers and recompute of the chunks are an option with a start."""
        codes = (layers << self.bits) + recompute
        return _has(self.codes[self.begins[start] : self.begins[start + 1]], codes)

    def only(self, kept: Flags) -> "DeviceOptions":
        """Some of the options, by flags (O,)."""
        counts = [np.count_nonzero(kept[i:j]) for i, j in pairwise(self.begins)]
        return DeviceOptions(self.codes[kept], np.append(0, np.cumsum(counts)), self.bits)

    def take_least(self, start: int, first: int, table: Floats, least: Floats, option: Ints | None = None) -> None:
        """
        Lower ``least`` (s, most + 1) in place to the least cost of the options of a start, and note the ``option``.

        Rows are ``first`` and the layers of an option's first chunk together, and the last row of more; columns are the
        layers of all chunks. ``table``: cost of every chunk by recompute and layers (v, recompute, n).
        """
        chunks, kinds, sizes = table.shape
        costs = np.full((chunks, sizes, 1 << self.bits), np.inf)
        costs[..., :kinds] = table.swapaxes(1, 2)
        noted = np.empty(least.shape, np.int64) if option is None else option
        _take_least(
            self.codes, self.bits, self.begins[start : start + 2], first, costs.reshape(chunks, -1), least, noted
        )


@jit
def _has(options: Ints16, codes: Ints) -> bool:
    """Whether the codes of chunks (v,) are those of one of the options (O, v)."""
    for o in range(len(options)):
        alike = True
        for k in range(len(codes)):
            if options[o, k] != codes[k]:
                alike = False
                break
        if alike:
            return True
    return False


@jit
def _take_least(
    codes: Ints16, bits: int, between: Ints, first: int, costs: Floats, least: Floats, option: Ints
) -> None:
    """Least cost of the options ``between`` two numbers, and the first option that has it, in place."""
    chunks, last = codes.shape[1], len(least) - 1
    for o in range(between[0], between[1]):
        cost, whole = 0.0, 0
        for k in range(chunks):
            cost += costs[k, codes[o, k]]
            whole += codes[o, k] >> bits
        row = min(first + (codes[o, 0] >> bits), last)
        if cost < least[row, whole]:
            least[row, whole], option[row, whole] = cost, o


def count_pairs(chunks: int, recompute: int, most: int) -> int:
    """Pairs (n, r) of a device with so many chunks, kinds of recompute and layers at most."""
    return comb(most, chunks) * int(recompute**chunks)


@jit
def enumerate_options(
    seconds: Floats,
    fixed: Floats,
    activation: Floats,
    counts: Floats,
    room: float,
    longest: float,
    dominates: Flags,
    bits: int,
    limit: int,
) -> tuple[Ints16, bool]:
    """Codes of all options, depth first, recompute before layers while any fits, and whether they are few enough."""
    chunks, kinds, most = seconds.shape[0], seconds.shape[1], seconds.shape[2] - 1
    codes = np.empty((64, chunks), np.int16)
    n, r, fits = np.ones(chunks, np.int64), np.full(chunks, -1), np.zeros(chunks, np.bool_)
    taken, took = np.zeros(chunks + 1, np.int64), np.zeros(chunks + 1)
    held = np.zeros((chunks + 1, len(counts)))
    later, needed, more = _after(seconds, fixed, activation, counts)
    k, found, visits, most_held = 0, 0, 0, np.zeros(len(counts))
    while k >= 0 and found <= limit:
        visits += 1
        if visits > MOST_VISITS:
            # As if there were too many options.
            found = limit + 1
            break
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
        taken[k + 1] = taken[k] + n[k]
        enough = took[k + 1] + later[k + 1] <= longest
        for c in range(len(counts)):
            held[k + 1, c] = held[k, c] + fixed[k, n[k]] + counts[c, k] * activation[k, r[k], n[k]]
            most_held[c] = held[k + 1, c] + more[k + 1, c] * (most - taken[k + 1])
            enough &= held[k + 1, c] + needed[k + 1, c] <= room
        if not enough:
            continue
        fits[k] = True
        # All that follows is dominated, however the layers that are left are used.
        if _is_dominated(k + 1, n, r, most_held, activation, counts, room, dominates):
            continue
        if k < chunks - 1:
            k += 1
            n[k], r[k], fits[k] = 1, -1, False
        else:
            if found == len(codes):
                codes = np.concatenate((codes, codes))
            for c in range(chunks):
                codes[found, c] = (n[c] << bits) + r[c]
            found += 1
    # A view would keep up to twice as many.
    return codes[:found].copy(), found <= limit


@jit
def _after(seconds: Floats, fixed: Floats, activation: Floats, counts: Floats) -> tuple[Floats, Floats, Floats]:
    """Seconds and bytes that the chunks from one on need at least, a layer each, and most bytes of a further layer."""
    chunks, most = seconds.shape[0], seconds.shape[2] - 1
    later, needed, more = np.zeros(chunks + 1), np.zeros((chunks + 1, len(counts))), np.zeros((chunks + 1, len(counts)))
    for k in range(chunks - 1, -1, -1):
        later[k] = later[k + 1] + seconds[k, :, 1].min()
        needed[k] = needed[k + 1] + fixed[k, 1] + counts[:, k] * activation[k, :, 1].min()
        more[k] = more[k + 1]
        for size in range(1, most - chunks + 2):
            more[k] = np.maximum(more[k], (fixed[k, size] + counts[:, k] * activation[k, :, size].max()) / size)
    return later, needed, more


@jit_inside
def _is_dominated(
    chunks: int, n: Ints, r: Ints, held: Floats, activation: Floats, counts: Floats, room: float, dominates: Flags
) -> bool:
    """Whether one of the first chunks could recompute less, no pass slower, beside so many bytes held, (3)."""
    for k in range(chunks):
        for other in range(len(dominates)):
            if dominates[other, r[k]]:
                more, lighter = activation[k, other, n[k]] - activation[k, r[k], n[k]], True
                for c in range(len(counts)):
                    if held[c] + counts[c, k] * more > CERTAIN * room:
                        lighter = False
                        break
                if lighter:
                    return True
    return False


MOST_KINDS = 8
"""Layers in front up to which those that differ are told apart; models begin with up to three dense ones."""


class RangeMinima:
    """
    Least figures (4) of n consecutive layers of a chunk, n = 0..``most``, infinite where there are not so many.

    Kinds of chunks are the model's first one, its last, and others by the first layer that they may have, up to the one
    from which on all layers are alike.
    """

    def __init__(self, given: ChunkProblem, most: int) -> None:
        self._given, self.most = given, most
        finite = np.where(np.isfinite(given.passes), given.passes, HUGE)
        tables = finite, given.beside, given.activation, given.loads
        self._passes, self._fixed, self._activation, self._loads = (
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
        """Least weighted seconds of v chunks by recompute and layers (v, recompute, n), the first after a start."""
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

    def loads(self, chunks: Ints) -> Floats:
        """Least loads of v chunks by layers (v, n)."""
        return np.array([self._loads[self._kind(int(c))] for c in chunks])

    def options(
        self, device: int, path: Path, longest: float, room: float, most: int, layers: int
    ) -> DeviceOptions | None:
        """
        Options of a device (``taut.solver.order_priced.device_options``), or None if more than ``most`` have a start.

        ``device``: number of the device; ``longest``: seconds (5); ``room``: budget of (1) less what the device
        always holds, in bytes; ``most``: number of them with one start beyond which the enumeration ends; ``layers``:
        layers of the device at most.
        """
        parts, counts = list[Ints16](), np.zeros(self.last_start + 2, np.int64)
        for start in self.starts(device):
            codes = self._options_from(start, device, path, longest, room, most, layers)
            if codes is None:
                return None
            parts.append(codes)
            counts[start + 1] = len(codes)
        return DeviceOptions(np.concatenate(parts) if len(parts) > 1 else parts[0], counts.cumsum(), self.bits)

    @property
    def bits(self) -> int:
        """Bits of a code that tell kinds of recompute apart."""
        return (len(self._dominates) - 1).bit_length()

    def _options_from(
        self, start: int, device: int, path: Path, longest: float, room: float, most: int, layers: int
    ) -> Ints16 | None:
        """Codes of the options of a device with a start, or None where there are too many."""
        given, hosted, kept = self._given, self._given.hosted(device), slice(layers + 1)
        if (layers + 1) << self.bits > np.iinfo(np.int16).max:
            return None
        codes, complete = enumerate_options(
            np.ascontiguousarray(self.seconds(hosted, path.passes[hosted].astype(float), start)[..., kept]),
            np.array(self._of_chunks(self._fixed, self._fixed_at, hosted, start))[..., kept].copy(),
            np.array(self._of_chunks(self._activation, self._activation_at, hosted, start))[..., kept].copy(),
            _largest(given.counts[device]).astype(np.float64),
            room,
            min(longest, HUGE / 10),
            self._dominates,
            self.bits,
            most,
        )
        return codes if complete else None

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


class DeviceChain:
    """
    The devices of a division problem with their options of makespans up to ``limit`` seconds.

    ``lower`` and ``upper`` (C,) are a branch's bounds on the layers of every chunk.
    """

    def __init__(self, given: ChunkProblem, limit: float = np.inf) -> None:
        self.given, self.limit = given, limit
        self.lower = np.ones(given.num_chunks, np.int64)
        self.upper = np.full(given.num_chunks, given.num_layers)

    @cached_property
    def paths(self) -> list[Path]:
        """Path of every device."""
        return [device_path(self.given.order, d) for d in range(len(self.given.counts))]

    @cached_property
    def most_layers(self) -> int:
        """Most layers of any device: all but one for every other chunk, or as many as the limit allows."""
        return max(self._most(d) for d in range(len(self.given.counts)))

    def _most(self, device: int) -> int:
        """Most layers of a device, with embedding and head where these are divided beside the layers."""
        given, hosted = self.given, self.given.hosted(device)
        every = given.num_layers - (given.num_chunks - len(hosted))
        # Both take next to nothing.
        more = given.ends * int(hosted[0] == 0) + given.ends * int(hosted[-1] == given.num_chunks - 1)
        return max(int(min(every, more + self._within)), len(hosted))

    @cached_property
    def _within(self) -> float:
        """Layers that a device may have within the limit, infinite without one."""
        given = self.given
        own = np.min([path.passes[given.hosted(d)].min(axis=0) for d, path in enumerate(self.paths)], axis=0)
        every_range = np.where(np.isfinite(given.passes), given.passes, HUGE)
        i, j = np.triu_indices(given.num_layers + 1, 1)
        layers = j - i - given.ends * ((i == 0) * 1 + (j == given.num_layers))
        i, j, layers = (each[layers > 0] for each in (i, j, layers))
        # Chunks that wait for gathers take less for each of their layers the more they have.
        least = float((np.tensordot(own, every_range, axes=1)[:, i, j] / layers).min())
        return np.inf if self.limit == np.inf or least <= 0 else (self.limit - given.constant) / least * (1 + ROUNDING)

    @cached_property
    def is_enumerable(self) -> bool:
        """Whether the options are few enough to enumerate, by their pairs or within the limit of time."""
        if self._pairs <= MOST_OPTIONS:
            return True
        return self.limit < np.inf and self._pairs <= MOST_TRIED and self._enumerated is not None

    @cached_property
    def _pairs(self) -> int:
        kinds = int(np.isfinite(self.given.passes[0]).any(axis=(-1, -2)).sum())
        return count_pairs(len(self.given.hosted(0)), kinds, self.most_layers)

    @cached_property
    def _enumerated(self) -> list[DeviceOptions] | None:
        """Options of every device, None where they are too many."""
        longest = (self.limit - self.given.constant) * (1 + ROUNDING)
        left = room(self.given) - passing_bytes(self.given, ())
        most = MOST_OPTIONS if self._pairs <= MOST_OPTIONS else MOST_WITHIN
        found = []
        for d, path in enumerate(self.paths):
            options = self.minima.options(d, path, longest, float(left[d]), most, self._most(d))
            if options is None:
                return None
            found.append(options)
        return found

    @property
    def has_alike_layers(self) -> bool:
        """Whether all layers but few of the first ones and the last are alike, so that numbers of them tell enough."""
        return self.given.lead <= MOST_KINDS

    @cached_property
    def minima(self) -> RangeMinima:
        """Least figures of chunks by their layers."""
        return RangeMinima(self.given, self.most_layers)

    @cached_property
    def options(self) -> list[DeviceOptions]:
        """Options of every device; ``FormulationError`` if they are too many."""
        if self._enumerated is None:
            raise FormulationError("a device has too many options, expected devices that are enumerable")
        return self._enumerated

    def with_memory(self, memory: int) -> "DeviceChain":
        """The same devices with so many more bytes each; paths and least figures do not depend on memory."""
        larger = DeviceChain(replace(self.given, budget=self.given.budget + memory), self.limit)
        larger.lower, larger.upper = self.lower, self.upper
        larger.paths, larger.minima = self.paths, self.minima
        return larger

    def split_range(self, chunk: int) -> tuple[int, int]:
        """Least and largest number of layers at which a chunk can be split."""
        return int(self.lower[chunk]), int(self.upper[chunk]) - 1

    def device_split_range(self, device: int) -> tuple[int, int]:
        """Least and largest number of layers of its options at which a device can be split."""
        whole = self.options[device].whole
        return int(whole.min(initial=self.given.num_layers)), int(whole.max(initial=0)) - 1

    def contains(self, division: Division) -> bool:
        """
        Whether a division has an option of the branch on every device.

        Another one as a column would keep the master problem below the dual function, which then counts as maximal.
        """
        layers, recompute, last = division.layers, division.recompute_index, self.minima.last_start
        starts = np.minimum(division.starts, last)
        return all(
            options.has(layers[hosted], recompute[hosted], int(starts[hosted[0]]))
            for options, hosted in ((options, self.given.hosted(d)) for d, options in enumerate(self.options))
        )

    def split(self, chunk: int, layers: int) -> "tuple[DeviceChain, DeviceChain]":
        """Two branches: at most so many layers in a chunk, and more."""
        device = int(self.given.order.device[chunk])
        at = int(np.searchsorted(self.given.hosted(device), chunk))
        options = self.options[device]
        few, many = self._split(device, options.codes[:, at] >> options.bits <= layers)
        few.upper, many.lower = few.upper.copy(), many.lower.copy()
        few.upper[chunk], many.lower[chunk] = layers, layers + 1
        return few, many

    def split_device(self, device: int, layers: int) -> "tuple[DeviceChain, DeviceChain]":
        """Two branches: at most so many layers on a device, and more."""
        return self._split(device, self.options[device].whole <= layers)

    def _split(self, device: int, kept: Flags) -> "tuple[DeviceChain, DeviceChain]":
        """The devices with some options of one of them, and with the others."""
        few, many, options = copy(self), copy(self), self.options[device]
        few.options, many.options = list(self.options), list(self.options)
        few.options[device], many.options[device] = options.only(kept), options.only(~kept)
        return few, many

    @cached_property
    def least_cut(self) -> float:
        """Least seconds of a cut."""
        return float(self.given.edge[1:-1].min(initial=np.inf))

    def least_division(self, costs: ChunkCosts) -> tuple[float, Division | None]:
        """Least cost (6) and a division that attains it; infinite and None where no options have all layers."""
        layers, last = self.given.num_layers, self.minima.last_start
        value = np.full((last + 1, layers + 1), np.inf)
        value[0, 0], chosen = 0.0, []
        for d in range(len(self.options)):
            value, choice = _joined(value, *self._least_by_start(d, costs))
            chosen.append(choice)
        cuts = float(costs.edge.sum()) * self.least_cut if costs.edge.any() else 0.0
        ended = int(value[:, layers].argmin())
        total = float(value[ended, layers]) + cuts
        return (total, self._backtracked(chosen, ended)) if np.isfinite(total) else (np.inf, None)

    def _least_by_start(self, device: int, costs: ChunkCosts) -> tuple[Floats, Ints]:
        """Least cost of a device's options by start, next start and layers, and the first option that has it."""
        options, last = self.options[device], self.minima.last_start
        shape = last + 1, last + 1, self.most_layers + 1
        least, option = np.full(shape, np.inf), np.full(shape, -1)
        for start in self.minima.starts(device):
            options.take_least(start, start, self._table(device, costs, start), least[start], option[start])
        return least, option

    def _table(self, device: int, costs: ChunkCosts, start: int) -> Floats:
        """Cost of every chunk of a device with a start by recompute and layers (v, recompute, n)."""
        hosted = self.given.hosted(device)
        table = self.minima.seconds(hosted, costs.passes[hosted], start)
        if costs.loads[hosted].any():
            table = table + (costs.loads[hosted, None] * self.minima.loads(hosted))[:, None, :]
        return table

    def _backtracked(self, chosen: list[Ints], ended: int) -> Division:
        """The division by the option that was taken at each device for every next start and number of layers."""
        layers, recompute = np.zeros((2, self.given.num_chunks), np.int64)
        left = self.given.num_layers
        for d in range(len(chosen) - 1, -1, -1):
            hosted = self.given.hosted(d)
            layers[hosted], recompute[hosted], start = self.options[d].chosen(int(chosen[d][ended, left]))
            left, ended = left - int(layers[hosted].sum()), start
        return Division.of_ends(layers.cumsum(), recompute)


@jit
def _joined(value: Floats, least: Floats, option: Ints) -> tuple[Floats, Ints]:
    """One step of (6): least cost by start and layers (s, L + 1), and the option that has it, of the same shape."""
    joined, choice = np.full(value.shape, np.inf), np.full(value.shape, -1)
    starts, most = value.shape
    for start in range(starts):
        if np.isinf(value[start].min()):
            continue
        for after in range(starts):
            for size in range(min(least.shape[2], most)):
                if option[start, after, size] < 0:
                    continue
                for layers in range(size, most):
                    tried = value[start, layers - size] + least[start, after, size]
                    if tried < joined[after, layers]:
                        joined[after, layers], choice[after, layers] = tried, option[start, after, size]
    return joined, choice
