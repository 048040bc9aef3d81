r"""
Bounds on the layers of chunks: mixtures of paths over branches.

Where layers are alike and recompute is one kind, a chunk's figures are linear in its layers. Then divisions are the
whole points of a polytope, and the least of a mixture of paths over them follows from a greedy choice.

Sets: chunks c on devices d(c); paths of the rows, memory rows r (``taut.solver.order_priced.master_rows``).
Data: seconds of a chunk's passes, its load and bytes, each a value for no layer and one for a layer; a branch
with bounds :math:`a_c \le x_c \le b_c` on chunks and :math:`A_d \le \sum_{c \in d} x_c \le B_d` on devices.
Variables: layers :math:`x_c` that sum to L.

(1) The step takes at least the seconds of every path of the rows, and under interleaved 1F1B of every staircase
    (``taut.solver.order_priced.staircases`` (1) to (3)) with the reduction of its last device. So it takes at least
    those of a mixture of them, plus bytes beyond the budget at prices that are not negative.
(2) Their least over a branch: a device's cheapest chunks take its layers, and the devices that ask least for their next
    layer take the model's.
(3) Within a limit a device takes no more layers than its own passes leave time for, and never more than fit its memory,
    which bounds :math:`B_d` at the root. A limit within which the devices take too few layers is a lower bound; where
    they take too few without one, no division fits.
(4) The least over the leaves of a tree of branches bounds all divisions.
(5) Of the layers behind the first one a few may differ, such as dense ones before experts. How many of them the first
    chunks have makes cases, in each of which figures are linear: a chunk has all that are left, and then at least so
    many layers, or it has so many layers exactly and the next chunks have the rest.
(6) Where transfers after n of the first p - 1 devices are slower
    (``taut.formulations.order_division.SlowLinks``), it is not known after which. A mixture of paths that makes
    :math:`\tau_d` transfers after device d takes at least the n smallest :math:`\tau_d` times longer. Paths are stated
    with an even part of it, n / (p - 1), after each device, and a bound is less by what the even part is more.
(7) Where more layers differ, a figure of the layers up to k is a line and :math:`\delta(k)` beside it, 0 at the first
    and the last cut. A chunk from one cut to the next has the line's share and the difference of both :math:`\delta`.
    So with weights :math:`u_c` of the chunks' figures a mixture takes at least the line's seconds and

    .. math:: \sum_{c < C - 1} \min_k (u_c - u_{c+1}) \cdot \delta(k),

    over the cuts k that leave every chunk a layer. A mixture that weighs neighbouring chunks alike loses little.

(8) Where some devices are of a slow class (``taut.formulations.order_division.SlowDevices``), a chunk has the line of
    its device's class.
(9) A device holds for a moment the most that any of its layers asks for, of workspace, buffers and stand-ins each, and
    the most of a gradient that awaits its sum or the logits (``taut.formulations.tables.memory`` (3), (12)). A case (5)
    says which of the layers that differ are on a device. Of the others chunk c of C has one of the layers c to
    :math:`L - C + c`, and counts with the least of these. The last chunk's gradient is less the head's bytes, which are
    gone, whatever layer it is of.

The optimizer counts with the mean of the devices' loads, which is a constant.

References
----------
Federgruen and Groenevelt (1986), The greedy procedure for resource allocation problems, Operations Research 34.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from taut.data.arrays import Flags, Floats, Ints
from taut.formulations.order_division import ChunkProblem, SlowDevices, pipeline_ends
from taut.solver.order_priced.master_rows import MasterRows
from taut.solver.order_priced.staircases import WAYS_IN, WAYS_OUT, ends_of_paths, is_interleaved, mix

ALIKE = 1e-12
"""Relative difference up to which a range's figures are the sum of its layers'."""

MOST_DIFFERING = 4
"""Layers behind the first one that may differ: n of them make up to 2^n cases."""

FIGURES, LOADS, ACTIVATION, BESIDE = 6, 3, 4, 5
"""Figures of a chunk: seconds of F, I and W, load, bytes of a micro-batch in flight, and bytes beside."""


class Lines(NamedTuple):
    """
    Figures of chunks that are linear in their layers, in one of the cases (5).

    ``none`` (6, C) for no layer and ``one`` (6, C) for each; ``cut``, seconds of a transfer; ``lower`` and ``upper``
    (C,), bounds on the layers of chunks; ``passing`` (p,), bytes (9) beyond what every device has; ``beyond`` (6, L+1),
    figures of the layers up to a cut beside a line, (7).
    """

    none: Floats
    one: Floats
    cut: float
    lower: Ints
    upper: Ints
    passing: Floats
    beyond: Floats | None = None


def linear_figures(given: ChunkProblem) -> list[Lines]:
    """The figures of a division problem as lines, by case (5); empty where they are none."""
    cut = float(given.edge[1:-1].min(initial=np.inf))
    if given.slower is not None:
        return _by_class(given, given.slower, cut)
    tables = linear_tables(given)
    if tables is None or (until := sums_of_layers(tables)) is None:
        return []
    if (found := _alike(tables, until)) is None:
        return [_unlike(given, until, cut)]
    single, last = found
    return [lines_of(given, single, case, cut) for case in cases_of(last, given.num_chunks)]


def _by_class(given: ChunkProblem, slower: SlowDevices, cut: float) -> list[Lines]:
    """The lines of chunks on devices of two classes (8), each those of its class; none where many layers differ."""
    on_slow, every = slower.devices[given.order.device], list[Lines]()
    for fast, slow in _of_classes(given, slower.passes):
        none, one = (np.where(on_slow, b, a) for a, b in ((fast.none, slow.none), (fast.one, slow.one)))
        every.append(fast._replace(none=none, one=one, cut=cut))
    return every


_latest: list[tuple[tuple[Any, ...], list[tuple[Lines, Lines]]]] = []
"""The figures of the candidate that was asked for last: which devices are slow makes up to 128 cases of each."""


def _of_classes(given: ChunkProblem, slow: Floats) -> list[tuple[Lines, Lines]]:
    """The lines of chunks that are all fast, and all slow, without cuts, by case (5)."""
    own = (getattr(given, each.name) for each in fields(given) if each.name not in ("slow", "slower", "edge"))
    of = (*own, slow)
    if not _latest or any(one is not other for one, other in zip(of, _latest[0][0], strict=True)):
        _latest[:] = [(of, _new_classes(given, slow))]
    return _latest[0][1]


def _new_classes(given: ChunkProblem, slow: Floats) -> list[tuple[Lines, Lines]]:
    if (tables := linear_tables(given)) is None:
        return []
    found = [linear_layers(each) for each in (tables, np.stack((*slow[:, int(given.recomputes[0])], *tables[LOADS:])))]
    if found[0] is None or found[1] is None:
        return []
    one, other = found[0][0], found[1][0]
    cases = cases_of(max(found[0][1], found[1][1]), given.num_chunks)
    return [(lines_of(given, one, case, 0.0), lines_of(given, other, case, 0.0)) for case in cases]


def linear_tables(given: ChunkProblem) -> Floats | None:
    """The figures of ranges (6, L+1, L+1) of a problem whose divisions may be bounded by lines; None otherwise."""
    recomputes, device = given.recomputes, given.order.device
    if not given.waits_for_all or given.stated is not None or len(recomputes) != 1 or given.num_layers < 3:
        return None
    # On the V an order is adapted to divisions, whose bounds must not end the search before.
    if not np.array_equal(device, np.arange(len(device)) % len(given.counts)):
        return None
    r = int(recomputes[0])
    return np.stack((*given.passes[:, r], given.loads, given.activation[r], given.beside))


def linear_layers(tables: Floats) -> tuple[Floats, int] | None:
    """Figures of single layers (n, L), the last that differs; None where ranges are not sums, or many differ."""
    return None if (until := sums_of_layers(tables)) is None else _alike(tables, until)


def _alike(tables: Floats, until: Floats) -> tuple[Floats, int] | None:
    """``linear_layers`` of ranges that are the sums of layers up to every cut."""
    single, within = np.diagonal(tables, 1, 1, 2), ALIKE * until[:, -1:]
    differs = (np.abs(single[:, 1:-1] - single[:, -2:-1]) > within).any(axis=0)
    last = int(np.flatnonzero(differs).max(initial=-1)) + 1
    return (single, last) if last <= MOST_DIFFERING else None


def sums_of_layers(tables: Floats) -> Floats | None:
    """Figures of the layers up to every cut (n, L+1); None where ranges (n, L+1, L+1) are not sums of their layers."""
    single, size = np.diagonal(tables, 1, 1, 2), tables.shape[-1] - 1
    until = np.concatenate((np.zeros((len(tables), 1)), single.cumsum(axis=1)), axis=1)
    within = ALIKE * until[:, -1:]
    apart = until[:, None, :] - until[:, :, None]
    np.abs(np.subtract(tables, apart, out=apart), out=apart)
    return None if size < 3 or ((apart > within[..., None]) & _rising(size)).any() else until


@lru_cache(maxsize=8)
def _rising(size: int) -> Flags:
    """Whether a range has a layer, by start and end (L+1, L+1)."""
    return np.triu(np.ones((size + 1, size + 1), np.bool_), 1)


def cases_of(differing: int, chunks: int) -> Iterator[tuple[int, ...]]:
    """Of layers behind the first one how many the first chunks have (5): all but the last number are exact."""
    if differing == 0 or chunks == 1:
        yield (differing,)
        return
    # The first chunk has the first layer, so that it may have none of these.
    for first in range(differing):
        for rest in _compositions(differing - first, chunks - 1):
            yield (first, *rest)
    yield (differing,)


def _compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """A total as at most so many positive whole numbers."""
    for first in range(1, total) if parts > 1 else ():
        for rest in _compositions(total - first, parts - 1):
            yield (first, *rest)
    yield (total,)


def lines_of(given: ChunkProblem, single: Floats, case: tuple[int, ...], cut: float) -> Lines:
    """The lines of a case, from the figures of layers (6, L)."""
    none, lower = beyond_one(single, case, given.num_chunks)
    upper = np.full(given.num_chunks, given.num_layers)
    upper[: len(case) - 1] = lower[: len(case) - 1]
    each = np.repeat(single[:, -2:-1], given.num_chunks, axis=1)
    return Lines(none, each, cut, lower, upper, passing_bytes(given, case))


def passing_bytes(given: ChunkProblem, case: tuple[int, ...]) -> Floats:
    """Bytes (9) of every device in a case beyond what all devices have, (p,)."""
    chunks, beyond = given.num_chunks, given.num_layers - given.num_chunks + 1
    found, losses = np.zeros((len(given.moments), chunks)), np.zeros(chunks)
    for c in range(chunks):
        behind = 1 + sum(case[:c])
        known = [*range(c == 0), *range(behind, behind + sum(case[c : c + 1])), *range(-(c == chunks - 1), 0)]
        others = given.moments[:, max(c, behind) : beyond + c]
        least = others.min(axis=1, initial=np.inf) if c >= max(len(case), 1) and others.size else 0.0
        found[:, c] = np.maximum(given.moments[:, known].max(axis=1, initial=0.0), least)
        losses[c] = given.losses[c : beyond + c].sum()
    # The chunk with the head begins with the first of the layers that it is known to have, or before.
    found[-1, -1] = given.closing[known[0]]
    hosted = [given.hosted(d) for d in range(len(given.counts))]
    most = np.array([found[:, each].max(axis=1) for each in hosted])
    late = np.maximum(most[:, -1] - [losses[each].sum() for each in hosted], 0.0)
    return np.asarray(np.maximum(most[:, :-1].sum(axis=1) + late - given.passing, 0.0))


def _unlike(given: ChunkProblem, until: Floats, cut: float) -> Lines:
    """The lines of layers that differ, and what is beside them, from the figures up to every cut (6, L+1), (7)."""
    size, chunks = given.num_layers, given.num_chunks
    one = (until[:, -2] - until[:, 1]) / (size - 2)
    none, beyond = np.zeros((FIGURES, chunks)), np.zeros_like(until)
    none[:, 0] = until[:, 1] - one
    none[:, -1] += until[:, -1] - until[:, -2] - one
    beyond[:, 1:-1] = until[:, 1:-1] - none[:, :1] - one[:, None] * np.arange(1, size)
    each = np.repeat(one[:, None], chunks, axis=1)
    return Lines(none, each, cut, np.ones(chunks, np.int64), np.full(chunks, size), passing_bytes(given, ()), beyond)


def beyond_one(single: Any, case: tuple[int, ...], chunks: int) -> tuple[Any, Ints]:
    """What figures of chunks are beyond those of like layers (..., C), and the least layers that a case leaves them."""
    none = np.zeros((*single.shape[:-1], chunks), single.dtype)
    lower, one = np.ones(chunks, np.int64), single[..., -2]
    # The last layer is that of the head, which the last chunk has beside its others.
    none[..., 0], none[..., -1] = single[..., 0] - one, single[..., -1] - one
    start = 1
    for chunk, layers in enumerate(case):
        lower[chunk] = max(layers + (chunk == 0), 1)
        none[..., chunk] += (single[..., start : start + layers] - one[..., None]).sum(axis=-1)
        start += layers
    return none, lower


@dataclass(frozen=True)
class Branch:
    """Bounds on the layers of chunks, ``lower`` and ``upper`` (C,), and of devices, ``least`` and ``most`` (p,)."""

    lower: Ints
    upper: Ints
    least: Ints
    most: Ints

    def split(self, place: str, number: int, layers: int) -> "tuple[Branch, Branch]":
        """Two branches: at most so many layers on a device or in a chunk, and more."""
        low, high = ("least", "most") if place == "device" else ("lower", "upper")
        many, few = getattr(self, low).copy(), getattr(self, high).copy()
        few[number], many[number] = min(few[number], layers), max(many[number], layers + 1)
        return replace(self, **{high: few}), replace(self, **{low: many})


def least_value(slope: Floats | Ints, constant: float, branch: Branch, device: Ints, layers: int) -> float:
    """Least of a linear function of the layers of chunks over a branch, (2); infinite where it has no division."""
    spare = branch.upper - branch.lower
    if (spare < 0).any():
        return np.inf
    # Chunks by device and price, and by device what of its least and most layers those before leave.
    chunks, first = np.lexsort((slope, device)), np.searchsorted(np.sort(device), np.arange(len(branch.least)))
    prices, room, of = slope[chunks], spare[chunks], device[chunks]
    lowest = np.add.reduceat(branch.lower[chunks], first)
    least, most = np.maximum(branch.least - lowest, 0), branch.most - lowest
    before = room.cumsum() - room
    before -= before[first][of]
    if (most < least).any() or (np.add.reduceat(room, first) < least).any():
        return np.inf
    must, upto = (np.minimum(np.maximum(bound[of] - before, 0), room) for bound in (least, most))
    may, left = upto - must, layers - int(branch.lower.sum()) - int(must.sum())
    value: float = constant + (slope @ branch.lower).item() + (must @ prices).item()
    if left < 0 or int(may.sum()) < left:
        return np.inf
    order = np.argsort(prices, kind="stable")
    taken = np.minimum(np.maximum(left - (may[order].cumsum() - may[order]), 0), may[order])
    return value + (taken @ prices[order]).item()  # type: ignore[no-any-return]  # what an item is numpy leaves open


Weight = Annotated[float, Field(ge=0, le=1)]

Price = Annotated[float, Field(ge=0, le=1e30)]


class Leaf(BaseModel):
    """
    What proves the bound of a leaf, (1).

    ``ends`` are weights of the staircases' ends (p, 2, 3), ``rounds_in`` and ``rounds_out`` shares by whole rounds
    (C,), none under other orders, ``shares`` weights of the rows' paths, and ``prices`` seconds for a byte of every
    memory row.
    """

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True, defer_build=True)

    ends: list[list[list[Weight]]]
    rounds_in: list[Weight]
    rounds_out: list[Weight]
    shares: list[Weight]
    prices: list[Price]


class Split(BaseModel):
    """Where a branch is split into few layers and many: a device or a chunk, and the most layers of the few."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True, defer_build=True)

    place: Literal["device", "chunk"]
    number: Annotated[int, Field(ge=0, le=2**31)]
    layers: Annotated[int, Field(ge=0, le=2**31)]
    few: "Split | Leaf"
    many: "Split | Leaf"


class Cases(BaseModel):
    """The trees of the cases (5), of which there are several."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True, defer_build=True)

    cases: list[Split | Leaf]


class LayerPaths:
    """
    Paths of a division problem as linear functions of the layers of its chunks.

    ``rows`` are its critical paths and memory rows, and ``lines`` its linear figures.
    """

    def __init__(self, given: ChunkProblem, lines: Lines, rows: MasterRows | None = None) -> None:
        self.given, self.lines = given, lines
        self.rows = MasterRows(given) if rows is None else rows
        known = is_interleaved(given.order, given.micro_batches)
        self.ends = ends_of_paths(len(given.counts), given.num_chunks, given.micro_batches) if known else None
        every = float(lines.none[LOADS].sum()) + lines.one[LOADS, 0] * given.num_layers
        self._constant = given.constant + given.optimizer * every / len(given.counts)
        self._paths = np.zeros((0, given.num_chunks + 1))

    def root(self, limit: float, more: float = 0.0) -> Branch:
        """The branch of all divisions within so many seconds, with more bytes on every device, (3)."""
        lower, upper = self.lines.lower, self.lines.upper
        return Branch(lower, upper, np.zeros(len(self.given.counts), np.int64), self._most_layers(limit, more))

    def _most_layers(self, limit: float, more: float) -> Ints:
        """Bounds on the layers of devices within so many seconds, with more bytes on every device, (devices,), (3)."""
        devices, layers = len(self.given.counts), self.given.num_layers
        of_device, asked, each, hosted = self._asked
        room = np.where(np.arange(len(asked)) < devices, limit, more) - asked
        further = np.minimum(np.maximum(room, 0.0) / each * (1 + 1e-9) + 1e-9, layers).astype(np.int64)
        most = np.full(devices, layers)
        # Without a layer in each chunk there is no division.
        np.minimum.at(most, of_device, np.where(room < 0, 0, hosted + further))
        return most

    @cached_property
    def _asked(self) -> tuple[Ints, Floats, Floats, Ints]:
        """What own paths and memory rows ask of devices (n,): in all, for a further layer, and the least layers."""
        given, lower, devices = self.given, self.lines.lower, len(self.given.counts)
        lines = np.vstack((self.paths()[:devices], self.memory))
        lines[:devices, -1] -= self._uneven(np.array([path.transfers for path in self.rows.paths[:devices]]))
        if self.lines.beyond is not None:
            lines[:devices, -1] += self.beside(self.weights(range(devices)), lower, self.lines.upper)
            lines[devices:, -1] += self.beside(self.memory_weights, lower, self.lines.upper)
        of_device = np.array([*range(devices), *(d for d, _ in self.rows.memory_rows)])
        hosted = given.order.device == of_device[:, None]
        each = np.maximum(np.where(hosted, lines[:, :-1], np.inf).min(axis=1), 1e-300)
        return of_device, lines[:, :-1] @ lower + lines[:, -1], each, hosted @ lower

    def is_refuted(self, limit: float, more: float = 0.0) -> bool:
        """Whether devices take too few layers within so many seconds, or at any time where they are infinite, (3)."""
        return int(self._most_layers(limit, more).sum()) < self.given.num_layers

    def paths(self) -> Floats:
        """Seconds of the rows' paths by layers of chunks, and of no layer, (paths, C + 1)."""
        new = range(len(self._paths), len(self.rows.paths))
        if new:
            paths, tails = [self.rows.paths[k] for k in new], np.array([self.rows.tails[k] for k in new])
            passes, transfers = np.array([each.passes for each in paths]), np.array([each.transfers for each in paths])
            constant = self.given.constant + self.given.waits[[each.last for each in paths]]
            lines = self._lines(passes, transfers, tails, constant)
            self._paths = np.vstack((self._paths, lines))
        return self._paths

    def _lines(self, passes: Floats | Ints, transfers: Floats | Ints, after: Floats, constant: Floats) -> Floats:
        """Seconds of n paths by layers of chunks and of no layer, (n, C + 1)."""
        none, one, after = self.lines.none, self.lines.one, after[:, self.given.order.device]
        slope = np.einsum("nck,kc->nc", passes, one[:3]) + after * one[LOADS]
        still = np.einsum("nck,kc->n", passes, none[:3]) + after @ none[LOADS]
        still = still + transfers[:, self.given.away].sum(axis=1) * self.lines.cut + constant
        if self.given.slow.hops:
            still = still + self._after(transfers).sum(axis=1) * self._even
            still = still + transfers[:, len(self.given.counts) - 1 :: len(self.given.counts)].sum(axis=1) * self._back
        return np.concatenate((slope, still[:, None]), axis=1)

    def weights(self, numbers: range) -> Floats:
        """How often paths count the figures of each chunk (paths, C, 6)."""
        paths, tails = self.rows.paths, self.rows.tails
        found = np.zeros((len(numbers), self.given.num_chunks, FIGURES))
        for weights, k in zip(found, numbers, strict=True):
            weights[:, :LOADS], weights[:, LOADS] = paths[k].passes, tails[k][self.given.order.device]
        return found

    @cached_property
    def memory_weights(self) -> Floats:
        """The same of the memory rows (rows, C, 6)."""
        found = np.zeros((len(self.rows.memory_rows), self.given.num_chunks, FIGURES))
        for weights, (d, counts) in zip(found, self.rows.memory_rows, strict=True):
            weights[self.given.hosted(d), ACTIVATION], weights[self.given.hosted(d), BESIDE] = counts, 1.0
        return found

    def beside(self, weights: Floats, lower: Ints, upper: Ints) -> Floats:
        """Least that mixtures with weights (n, C, 6) are beside their lines where chunks are so large, (7), (n,)."""
        assert self.lines.beyond is not None
        each, layers = (weights[:, :-1] - weights[:, 1:]) @ self.lines.beyond, self.given.num_layers
        until = np.stack((lower, upper)).cumsum(axis=1)[:, :-1]
        behind = np.stack((upper, lower)).sum(axis=1)[:, None] - np.stack((upper, lower)).cumsum(axis=1)[:, :-1]
        first, last = np.maximum(until[0], layers - behind[0]), np.minimum(until[1], layers - behind[1])
        cuts = np.arange(layers + 1)
        leaves = (cuts >= first[:, None]) & (cuts <= last[:, None])
        return np.asarray(np.where(leaves, each, np.inf).min(axis=2).sum(axis=1))

    @property
    def _even(self) -> float:
        """Seconds of (6) that a transfer between a device and the next takes in the mean."""
        slow = self.given.slow
        return slow.hops / max(len(self.given.counts) - 1, 1) * slow.seconds

    @property
    def _back(self) -> float:
        """Seconds that a transfer from the last device to the first takes more."""
        return self.given.slow.seconds if self.given.slow.back else 0.0

    def _after(self, transfers: Floats | Ints) -> Floats:
        """Of transfers (n, C - 1) those after each device but the last, (n, p - 1)."""
        devices = len(self.given.counts)
        every = np.concatenate((transfers, np.zeros((len(transfers), 1))), axis=1)
        return np.asarray(every.reshape(len(every), -1, devices)[..., :-1].sum(axis=1), dtype=np.float64)

    def _uneven(self, transfers: Floats | Ints) -> Floats:
        """Seconds by which the even part of (6) may be too many for transfers (n, C - 1), (n,)."""
        slow = self.given.slow
        if not slow.hops:
            return np.zeros(len(transfers))
        after = np.sort(self._after(transfers), axis=1)
        more = self._even * after.sum(axis=1) - slow.seconds * after[:, : slow.hops].sum(axis=1)
        return np.asarray(np.maximum(more, 0.0))

    @cached_property
    def transfer(self) -> Floats:
        """Seconds of the transfer after each chunk, with the even part of (6), (C - 1,)."""
        within = np.arange(1, self.given.num_chunks) % len(self.given.counts) != 0
        return np.where(self.given.away, self.lines.cut, 0.0) + np.where(within, self._even, self._back)

    @cached_property
    def ends_seconds(self) -> Floats:
        """Seconds of the ends of staircases, without E and Z, by layers of chunks and of no layer, (p 2 3, C + 1)."""
        assert self.ends is not None
        ends, count = self.ends, self.ends.after.size
        last = np.eye(len(self.given.counts))[ends.after.ravel()]
        forward, backward, transfers = (each.reshape(count, -1) for each in ends[:3])
        return self._staircases(forward, backward, transfers, last, np.ones(count))

    def _staircases(self, forward: Any, backward: Any, transfers: Any, after: Floats, weight: Floats) -> Floats:
        passes = np.stack((forward, backward, backward), axis=-1)
        return self._lines(
            passes, transfers, self.given.rings * after, weight * self._constant + after @ self.given.waits
        )

    @cached_property
    def memory(self) -> Floats:
        """Bytes beyond the budget of the memory rows by layers of chunks, and of no layer, (rows, C + 1)."""
        given, none, one = self.given, self.lines.none, self.lines.one
        found = np.zeros((len(self.rows.memory_rows), given.num_chunks + 1))
        for row, (d, counts) in zip(found, self.rows.memory_rows, strict=True):
            hosted = given.hosted(d)
            row[hosted] = counts * one[ACTIVATION, hosted] + one[BESIDE, hosted]
            still = none[BESIDE]
            row[-1] = float((still[hosted] + counts * none[ACTIVATION, hosted]).sum()) - (given.budget - given.always)
            row[-1] += self.lines.passing[d]
        return found

    def mixture(self, leaf: Leaf, branch: Branch) -> Floats:
        """Seconds of a leaf's mixture of paths, memory priced, by layers of a branch's chunks and of none (C + 1,)."""
        shares = np.array(leaf.shares)
        found, made = shares @ self.paths()[: len(shares)] + leaf.prices @ self.memory, np.zeros((1, 1))
        beyond = self.lines.beyond is not None
        counted = np.zeros((self.given.num_chunks, FIGURES))
        if beyond:
            used = np.flatnonzero(shares)
            counted = np.tensordot(leaf.prices, self.memory_weights, 1)
            counted += sum((shares[k] * self.weights(range(k, k + 1))[0] for k in used.tolist()), np.zeros(()))
        if self.given.slow.hops:
            each = [path.transfers for path in self.rows.paths[: len(shares)]]
            made = shares[None] @ np.array(each).reshape(len(shares), self.given.num_chunks - 1)
        if self.ends is not None:
            weights = np.array(leaf.ends)
            mean = mix(self.ends, weights, np.array(leaf.rounds_in), np.array(leaf.rounds_out))
            forward, backward, transfers, after = (figures[None] for figures in mean)
            found = found + self._staircases(forward, backward, transfers, after, np.array([weights.sum()]))[0]
            made = made + transfers
            counted[:, 0] += forward[0]
            counted[:, 1:LOADS] += backward[0][:, None]
            counted[:, LOADS] += (self.given.rings * after[0])[self.given.order.device]
        if beyond:
            found[-1] += self.beside(counted[None], branch.lower, branch.upper)[0]
        found[-1] -= self._uneven(made)[0]
        return np.asarray(found)

    def bound(self, leaf: Leaf, branch: Branch) -> float:
        """Lower bound in seconds on a branch by a leaf's mixture, (2)."""
        line = self.mixture(leaf, branch)
        return least_value(line[:-1], float(line[-1]), branch, self.given.order.device, self.given.num_layers)

    def is_proof(self, leaf: Leaf) -> bool:
        """Whether a leaf has as many numbers as there are, and weights that sum to one."""
        devices, chunks = len(self.given.counts), self.given.num_chunks
        ways = [way for each in leaf.ends for way in each]
        lengths = [len(leaf.ends), *map(len, leaf.ends), *map(len, ways)]
        others = [len(leaf.rounds_in), len(leaf.rounds_out), len(leaf.shares), len(leaf.prices)]
        expected, rounds = [0], 0
        if self.ends is not None:
            expected, rounds = [devices, *[WAYS_IN] * devices, *[WAYS_OUT] * (WAYS_IN * devices)], chunks
        if lengths != expected or others != [rounds, rounds, len(self.rows.paths), len(self.rows.memory_rows)]:
            return False
        return abs(float(np.sum(leaf.ends) + np.sum(leaf.shares)) - 1) <= 1e-12

    def separate(self, layers: Floats) -> tuple[float, int]:
        """The makespan of layers of chunks (C,), whole or not, in seconds, and the number of their critical path."""
        given, figures = self.given, self._figures(layers)
        passes, loads = figures[:3].ravel(), figures[LOADS]
        cuts = self.transfer
        of_devices = np.bincount(given.order.device, loads).astype(float)
        row = self.rows.critical_row(np.concatenate((passes, cuts, of_devices)))
        ends = pipeline_ends(given.order, passes[None], cuts[None], given.micro_batches)
        return float(given.seconds(ends, of_devices[None])[0]), row

    def fits(self, layers: Floats) -> bool:
        """Whether layers of chunks (C,), whole or not, fit the memory of every device."""
        more = self._figures(layers) - self.lines.none - self.lines.one * layers
        beside = np.einsum("nck,kc->n", self.memory_weights, more)
        return bool((self.memory[:, :-1] @ layers + self.memory[:, -1] + beside <= 0).all())

    def _figures(self, layers: Floats) -> Floats:
        """Figures (6, C) of layers of chunks (C,), whole or not."""
        figures: Floats = self.lines.none + self.lines.one * layers
        if self.lines.beyond is None:
            return figures
        until, every = np.append(0.0, layers.cumsum()), np.arange(self.given.num_layers + 1)
        return figures + np.diff(np.array([np.interp(until, every, each) for each in self.lines.beyond]), axis=1)


def linear_paths(given: ChunkProblem) -> list[LayerPaths]:
    """The paths of every case (5), which share their rows; empty where figures are not linear."""
    cases = linear_figures(given)
    rows = MasterRows(given) if cases else None
    return [LayerPaths(given, lines, rows) for lines in cases]


def least_missing(cases: Sequence[LayerPaths]) -> int:
    """Bytes that some device lacks in every division, by (3), within a hundredth of the most it proves; 0 for none."""

    def is_too_small(more: int) -> bool:
        return all(case.is_refuted(np.inf, more) for case in cases)

    if not is_too_small(0):
        return 0
    # Each factor and each bisection costs as much as to refute the candidate.
    low, high = 0, 1 << 26
    while is_too_small(high):
        low, high = high, 8 * high
    while high - low > max(high // 100, 1):
        middle = (low + high) // 2
        low, high = (middle, high) if is_too_small(middle) else (low, middle)
    return low + 1


def least_of_leaves(
    given: ChunkProblem, limit: float, add: Callable[[MasterRows], bool], tree: Split | Leaf | Cases
) -> float:
    """The least bound of stated trees' leaves in seconds, minus infinity for no proof; ``add`` brings their paths."""
    cases, trees = linear_paths(given), tree.cases if isinstance(tree, Cases) else [tree]
    if not cases or len(cases) != len(trees) or not add(cases[0].rows):
        return -np.inf
    return min(_least_of_case(paths, limit, each) for paths, each in zip(cases, trees, strict=True))


def _least_of_case(paths: LayerPaths, limit: float, tree: Split | Leaf) -> float:
    """The least bound of the leaves of one case's tree, valid up to the limit, by which (3) bounds the root."""
    given, least, parts = paths.given, np.inf, [(paths.root(limit), tree)]
    sizes = {"chunk": given.num_chunks, "device": len(given.counts)}
    while parts:
        branch, node = parts.pop()
        if isinstance(node, Leaf):
            least = min(least, paths.bound(node, branch) if paths.is_proof(node) else -np.inf)
        elif node.number >= sizes[node.place]:
            return -np.inf
        else:
            few, many = branch.split(node.place, node.number, node.layers)
            parts += [(few, node.few), (many, node.many)]
    return least
