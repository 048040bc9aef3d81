r"""
The global bound of a certificate in exact arithmetic.

A float is a rational number. Prices of the inputs, bytes and stated bounds are the rationals that their floats are. Let
B be the least bound that a certificate states. This module shows, candidate by candidate, that no plan takes less than
B in exact arithmetic. It names the source of each candidate whose bound is of floats alone.

**Proven rounding.** Let :math:`u = 2^{-53}` and :math:`\gamma_n = n u / (1 - n u)`.

(1) One operation on floats has a relative error of at most u. A value of sums, products, quotients, minima and maxima
    of figures that are not negative has a relative error of at most :math:`\gamma_n` if every way from a figure to the
    value passes at most n operations. A minimum compares rounded values, so the one that it takes is within
    :math:`\gamma_n` of the exact minimum. The error of a dynamic program over sums and minima is therefore that of its
    longest chain of sums, whatever the number of its states. "No less than a limit" holds for the limit less its
    :math:`\gamma_n`.
(2) Some figures are subtracted: computation that hides a collective, hops without their way back, seconds that a
    deadline leaves. Each is a part of the step of T seconds, or of a collective and a pass that together are at most
    2 T. The absolute errors of a sum and of its subtracted terms add up to at most :math:`4 \gamma_n T`.
(3) With L layers, X stages or chunks and N nodes, a price passes at most 128 + 4 L operations: kinds of layers are
    counted in whole numbers, and a ring or a hop is a formula. A chain over the stages adds at most 8 a stage, a tree
    of links at most one a node, and weights of R stated paths and of the 2 pp ways in and out one a path:
    n = 128 + 4 L + 8 X + N + R + 2 pp. The events of a path through an order of m micro-batches add 3 m X.
(4) Closed forms are lowered by 1e-12, orders by 1e-10 (``ROUNDING``). If :math:`4 \gamma_n` is no more, the stated
    bound is at most the exact one. This settles all sources but ``order``: dual prices of ``cover`` are whole numbers,
    and hops are rounded down to whole quanta, so that its check adds no rounding. It settles listed divisions.
    Other orders take layers and weights as alike up to :math:`\alpha = 10^{-12}` (``ALIKE``), which is at most
    :math:`\alpha T` for each of C chunks on the way in and the way out. They are settled if :math:`4 \gamma_n K +
    \alpha (2 C + K)` is no more, :math:`K = 1 + \sum \mu\, \text{budget} / B` under prices :math:`\mu` of memory,
    whose bytes cancel.
(5) A bound of at least :math:`(1 + 10^{-6}) B` decides nothing if its relative error is below 5e-7. For that,
    :math:`2^{10} \gamma_n K \le 5 \cdot 10^{-7}` is enough, which leaves a factor of 256 for (2) and (3).
(6) Bytes of stages are whole numbers. Bytes of chunks are sums as in (1) of whole numbers, so that layers alike up to
    :math:`\alpha` are equal. With a budget of M bytes, missing bytes are missing if they are more than
    :math:`4 \gamma_n M`.

**Rationals.** Bounds of orders that decide are derived again where figures are linear in the layers of chunks
(``taut.solver.order_priced.layer_bounds``); (4) is for the others, and for cases of racks or nodes.

(7) A table of ranges is rounded down to whole multiples of a power of two, 60 bits for the longest range. Alike layers
    have the least of their figures. Let :math:`\delta` be the most by which a range has less than the sum of its
    layers, in these whole numbers. A chunk of x layers then has at least :math:`a + b x - \delta`.
(8) The most layers of a device within T are a quotient of rationals, rounded down. If the devices take too few layers,
    T is a lower bound.
(9) Weights of paths, which come from a linear program, are rounded down to multiples of :math:`2^{-36}`, and shares of
    rounds so that whole numbers of paths take them. With s the sum of the weights and V the least of the weighted paths
    and priced bytes over a branch, the step takes at least V / s. The least over a branch is the greedy choice of
    ``least_value``, in whole numbers.
(10) Rational prices of (7) have the error of (3), which is at most :math:`\epsilon = 2^{-40}` for
    :math:`4 \gamma_n \le \epsilon`, n = 128 + 4 L: a step is a longest path, so it is longer by no more than
    :math:`1 + \epsilon` if every price is. (8) and (9) are therefore shown for :math:`T = b / (1 - \epsilon)` with b
    the stated bound, and budgets are larger by :math:`\epsilon`.

Dominance compares floats without arithmetic, which is exact: a bound in exact arithmetic holds for what it dominates.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np

from taut.data.arrays import Ints
from taut.data.units import KIB
from taut.formulations.order_division import ROUNDING as ORDER_ROUNDING
from taut.formulations.order_division import ChunkProblem
from taut.formulations.space import Candidate
from taut.solver.bounds.relaxation import ROUNDING
from taut.solver.ladder.dominance import stated
from taut.solver.ladder.ladder import Ladder
from taut.solver.order_priced.layer_bounds import (
    ACTIVATION,
    ALIKE,
    BESIDE,
    LOADS,
    Branch,
    Cases,
    LayerPaths,
    Leaf,
    Split,
    beyond_one,
    cases_of,
    least_value,
    linear_layers,
    linear_paths,
    linear_tables,
)
from taut.solver.order_priced.staircases import mix
from taut.solver.order_priced.witness import ByCapacity, ByLayers, add_critical, parse_witness
from taut.solver.result import Source

UNIT_ROUNDOFF = Fraction(1, 2**53)
BITS, WEIGHT_BITS, PRICE_BITS = 60, 36, 40
FLOAT, UNIT = 1200, 2400
"""Bits behind the point of floats and figures in whole numbers, of which none has more, and of products of two."""
PRICES = Fraction(1, 2**PRICE_BITS)
"""Relative error of prices, (10)."""
DECIDES = 1 + 1e-6
"""A bound of more than so many times B decides nothing, (5)."""


class Entry(NamedTuple):
    """A candidate with its derived bound in seconds, and the source and witness of the bound."""

    candidate: Candidate
    seconds: float
    source: str
    witness: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exactness:
    """
    How many candidates' bounds hold in exact arithmetic, and why.

    ``rational``: derived again in rationals; ``whole``: missing bytes in whole numbers; ``rounding``: by a proven limit
    of rounding; ``alone``: of floats alone, by source.
    """

    rational: int = 0
    whole: int = 0
    rounding: int = 0
    alone: dict[str, int] = field(default_factory=dict)

    def __add__(self, other: "Exactness") -> "Exactness":
        """Both together."""
        alone = dict(Counter(self.alone) + Counter(other.alone))
        whole, rounding = self.whole + other.whole, self.rounding + other.rounding
        return Exactness(rational=self.rational + other.rational, whole=whole, rounding=rounding, alone=alone)

    @property
    def exact(self) -> bool:
        """Whether the global bound holds in exact arithmetic."""
        return not self.alone

    @property
    def report(self) -> dict[str, Any]:
        """Plain values."""
        ways = {"rational": self.rational, "whole": self.whole, "rounding": self.rounding}
        return {"exact": self.exact, **ways, "floats_alone": self.alone}

    @property
    def words(self) -> str:
        """One line."""
        proven = self.rational + self.whole + self.rounding
        ways = f"{self.rounding} by proven rounding, {self.whole} in whole bytes, {self.rational} in rationals"
        if self.exact:
            return f"exact: the lower bound holds in exact arithmetic for all {proven} candidates ({ways})"
        alone = ", ".join(f"{number} of {source}" for source, number in sorted(self.alone.items()))
        return (
            f"exact for {proven} of {proven + sum(self.alone.values())} candidates ({ways}); of floats alone: {alone}"
        )


MARGIN_FREE = Exactness(alone={"the bound without a margin": 1})
"""A global bound that is the one without a memory margin, which is derived of another problem, in floats alone."""

Shown = dict[tuple[Candidate, str], bool | None]
"""Whether a candidate's bound, with its witness in words, is shown in rationals."""


def exactness(ladder: Ladder, entries: Iterable[Entry], least: float, shown: Shown | None = None) -> Exactness:
    """Show that no candidate of ``entries`` takes less than ``least`` seconds in exact arithmetic."""
    found, proofs = Counter[str](), _Proofs(ladder, least, {} if shown is None else shown)
    alone = Counter[str]()
    for entry in entries:
        way = proofs.way(entry)
        found[way] += 1
        alone[entry.source] += way == "alone"
    return Exactness(rational=found["rational"], whole=found["whole"], rounding=found["rounding"], alone=dict(+alone))


def operations(layers: int, stages: int, nodes: int) -> int:
    """Operations of a price and of a chain over the stages or chunks, (3), without paths and events."""
    return 128 + 4 * layers + 8 * stages + nodes


@cache
def rounded(number: int) -> Fraction:
    """Relative error of so many operations in a row, four times, (2)."""
    each = number * UNIT_ROUNDOFF
    return 4 * each / (1 - each)


@cache
def _bytes_off(number: int, kib: int) -> int:
    """Whole bytes that so many operations may be off, of a device of so many KiB, (6)."""
    return math.floor(rounded(number) * kib * KIB)


class _Proofs:
    """Ways to show a bound B in exact arithmetic."""

    def __init__(self, ladder: Ladder, least: float, shown: Shown) -> None:
        self.ladder, self.least, self._shown = ladder, least, shown
        self._layers, self._kib = len(ladder.problem.model.blocks) + 2, max(ladder.problem.capacity_kib)

    def way(self, entry: Entry) -> str:
        """How an entry is shown: in rationals, in whole numbers, by proven rounding, or alone by floats."""
        candidate, seconds, source, witness = entry
        if math.isinf(seconds):
            return self._infeasible(candidate, source, witness)
        n = self._operations(candidate, witness)
        if seconds >= self.least * DECIDES:
            return "rounding" if float(rounded(n)) * 2**8 * self._priced(witness) <= 5e-7 else "alone"
        if source != Source.ORDER or self.ladder.relaxation(candidate) >= seconds:
            return "rounding" if rounded(n) <= (ORDER_ROUNDING if candidate.is_order_priced else ROUNDING) else "alone"
        shown = self._rational(candidate, seconds, witness)
        if shown is not None:
            return "rational" if shown else "alone"
        priced, chunks = self._priced(witness), candidate.pp * candidate.vpp
        apart = 0.0 if "stated" in witness else ALIKE * (2 * chunks + priced)
        return "rounding" if rounded(n) * priced + apart <= ORDER_ROUNDING else "alone"

    def _operations(self, candidate: Candidate, witness: Any) -> int:
        """Operations n of (3)."""
        chunks = candidate.pp * candidate.vpp
        events = 3 * candidate.num_micro_batches * chunks if "stated" in witness.get("by", witness) else 0
        paths = len(witness.get("by", witness).get("critical", ())) + 2 * candidate.pp
        return operations(self._layers, chunks, self.ladder.problem.links.num_nodes) + paths + events

    def _priced(self, witness: dict[str, Any]) -> float:
        """K of (4)."""
        prices = _prices_in(witness)
        return 1 + prices * float(self._kib) * KIB / self.least if prices else 1.0

    def _infeasible(self, candidate: Candidate, source: str, witness: dict[str, Any]) -> str:
        """How missing bytes are shown, (6)."""
        if source != Source.ORDER_MEMORY:
            return "whole"
        kib, least = witness.get("missing_kib"), witness.get("missing")
        missing = least if isinstance(least, int) else (kib or 0) * KIB - (KIB - 1)
        return "rounding" if _bytes_off(self._operations(candidate, {}), self._kib) < missing else "alone"

    def _rational(self, candidate: Candidate, seconds: float, witness: dict[str, Any]) -> bool | None:
        """Whether seconds are shown in rationals, for a candidate or one that dominates it; None for another proof."""
        if "of" in witness:
            named = stated(candidate, witness)
            return None if named is None else self._rational(named[0], seconds, named[1])
        if {"racks", "classes", "counted_s"} & witness.keys() or rounded(128 + 4 * self._layers) > PRICES:
            return None
        key = candidate, repr((seconds, witness))
        if key not in self._shown:
            self._shown[key] = proves(self.ladder.chunked(candidate), witness, seconds)
        return self._shown[key]


def _prices_in(witness: Any) -> float:
    """Sum of the largest prices of memory of a witness, whatever its form."""
    if isinstance(witness, dict):
        own = math.fsum(witness["prices"]) if isinstance(witness.get("prices"), list) else 0.0
        return max(own, *(_prices_in(each) for each in witness.values()), 0.0)
    if isinstance(witness, list):
        return max((_prices_in(each) for each in witness if isinstance(each, dict | list)), default=0.0)
    return 0.0


def proves(given: ChunkProblem, witness: dict[str, Any], seconds: float) -> bool | None:
    """Whether a witness shows by (7) to (10) that no division takes less than some seconds; None for another proof."""
    parsed = parse_witness(witness)
    cases = rational_cases(given) if isinstance(parsed, ByCapacity | ByLayers) else []
    if not cases or not isinstance(parsed, ByCapacity | ByLayers):
        return None
    within = Fraction(seconds) / (1 - PRICES)
    if isinstance(parsed, ByCapacity):
        # Labels refute what lines do not.
        by_lines = all(case.paths.is_refuted(parsed.limit_s) for case in cases)
        return seconds <= parsed.limit_s and all(case.refutes(within) for case in cases) if by_lines else None
    trees = parsed.layers.cases if isinstance(parsed.layers, Cases) else [parsed.layers]
    stated = len(cases) == len(trees) and add_critical(cases[0].paths.rows, parsed.critical)
    whole = stated and seconds <= parsed.limit_s
    return whole and all(case.holds(within, tree) for case, tree in zip(cases, trees, strict=True))


class _Line(NamedTuple):
    """A linear function of the layers of chunks in whole numbers: what each layer of a chunk adds (C,), a constant."""

    slope: list[int]
    still: int


def _scaled(value: float) -> int:
    """A float in whole numbers of ``FLOAT`` bits, which every float is."""
    number, power = value.as_integer_ratio()
    return number << (FLOAT + 1 - power.bit_length())


def rational_cases(given: ChunkProblem) -> "list[RationalCase]":
    """The cases of a problem whose figures are linear, (7); none where they are not."""
    tables, every = linear_tables(given), linear_paths(given)
    found = None if tables is None else linear_layers(tables)
    if tables is None or found is None or given.slow.hops:
        return []
    last, size = found[1], given.num_layers
    rising = np.triu(np.ones(tables.shape[1:], np.bool_), 1)
    bits = BITS - np.frexp(np.where(rising, tables, 0.0).max(axis=(1, 2)))[1]
    bits[:LOADS] = bits[:LOADS].min()
    whole = np.floor(np.ldexp(np.where(rising, tables, 0.0), bits[:, None, None])).astype(np.int64)
    single = np.diagonal(whole, 1, 1, 2).copy()
    single[:, 1 + last : size - 1] = single[:, 1 + last : size - 1].min(axis=1, keepdims=True)
    until = np.concatenate((np.zeros((len(single), 1), np.int64), single.cumsum(axis=1)), axis=1)
    less = np.where(rising, until[:, None, :] - until[:, :, None] - whole, 0).max(axis=(1, 2))
    cases = cases_of(last, given.num_chunks)
    return [
        RationalCase(paths, beyond_one(single, case, given.num_chunks)[0] - less[:, None], single[:, -2], bits)
        for paths, case in zip(every, cases, strict=True)
    ]


class RationalCase:
    """
    One case of a problem with linear figures: ``paths`` in floats, and its figures in whole numbers.

    ``none`` (6, C) are those of no layer and ``one`` (6,) those of each, in units of 2 to the power of minus ``bits``
    (6,). All else is in whole numbers, too: floats of ``FLOAT`` bits behind the point, and products of ``UNIT`` bits.
    """

    def __init__(self, paths: LayerPaths, none: Ints, one: Ints, bits: Ints) -> None:
        self.paths, self.given = paths, paths.given
        self._none, self._one, self._bits = none.astype(object), one.astype(object), bits.tolist()
        self._device = self.given.order.device.tolist()
        self._lower = [int(layers) for layers in paths.lines.lower]

    def _figure(self, figure: int, number: int) -> int:
        """A figure in ``FLOAT`` bits."""
        bits: int = self._bits[figure]
        return int(number) << (FLOAT - bits)

    @cached_property
    def _loads(self) -> tuple[list[int], int]:
        """Loads of chunks without layers, and of each layer, in ``FLOAT`` bits."""
        return [self._figure(LOADS, x) for x in self._none[LOADS]], self._figure(LOADS, self._one[LOADS])

    def _line(self, passes: Ints, transfers: int, after: dict[int, int], constant: int) -> _Line:
        """Passes (C, 3), transfers, seconds for a load of devices (``FLOAT``) and a constant, all in ``UNIT`` bits."""
        numbers, (none, one) = passes.astype(object), self._loads
        slope = [self._figure(0, x) << FLOAT for x in numbers @ self._one[:LOADS]]
        still = self._figure(0, (numbers.T * self._none[:LOADS]).sum()) + transfers * self._cut
        still = constant + (still << FLOAT)
        for chunk, device in enumerate(self._device):
            if device in after:
                slope[chunk] += after[device] * one
                still += after[device] * none[chunk]
        return _Line(slope, still)

    @cached_property
    def _cut(self) -> int:
        """Seconds of the quickest transfer, in ``FLOAT`` bits."""
        return _scaled(float(self.given.edge[1:-1].min()))

    @cached_property
    def _rings(self) -> list[int]:
        """Seconds for a load of every device, in ``FLOAT`` bits."""
        return [_scaled(each) for each in self.given.rings.tolist()]

    def _path(self, number: int) -> tuple[Ints, int, dict[int, int]]:
        """Passes, transfers to another device, and seconds for a load of devices of a row's path."""
        path, figures = self.paths.rows.paths[number], self.paths.rows.critical_for[number]
        after = {path.last: self._rings[path.last]}
        most = path.last if figures is None else figures.most
        after[most] = after.get(most, 0) + _scaled(self.given.optimizer)
        return path.passes, int(path.transfers[self.given.away].sum()), after

    @cached_property
    def _memory(self) -> list[tuple[int, _Line]]:
        """Device of every memory row, and bytes beyond its budget in ``FLOAT`` bits."""
        budget = _scaled(float(self.given.budget))
        room, found = budget + (budget >> PRICE_BITS) - _scaled(float(self.given.always)), []
        for device, counts in self.paths.rows.memory_rows:
            slope = [0] * self.given.num_chunks
            still = _scaled(float(self.paths.lines.passing[device])) - room
            kept, beside = self._figure(ACTIVATION, self._one[ACTIVATION]), self._figure(BESIDE, self._one[BESIDE])
            for chunk, count in zip(self.given.hosted(device).tolist(), counts.tolist(), strict=True):
                slope[chunk] = count * kept + beside
                none = self._none[:, chunk]
                still += count * self._figure(ACTIVATION, none[ACTIVATION]) + self._figure(BESIDE, none[BESIDE])
            found.append((device, _Line(slope, still)))
        return found

    @cached_property
    def _asking(self) -> list[tuple[int, _Line, bool]]:
        """Device, line, and whether it is of seconds, of what bounds the layers of devices."""
        constant = _scaled(self.given.constant) << FLOAT
        paths = [(d, self._line(*self._path(d), constant), True) for d in range(len(self.given.counts))]
        return [*paths, *((device, line, False) for device, line in self._memory)]

    def most_layers(self, within: Fraction) -> list[int]:
        """Bounds on the layers of devices within so many seconds, (8)."""
        layers = self.given.num_layers
        most, longest = [layers] * len(self.given.counts), _rounded_up(within)
        for device, line, timed in self._asking:
            hosted = [chunk for chunk, other in enumerate(self._device) if other == device]
            room = (longest if timed else 0) - line.still
            room -= sum(a * x for a, x in zip(line.slope, self._lower, strict=True))
            each, own = min(line.slope[chunk] for chunk in hosted), sum(self._lower[chunk] for chunk in hosted)
            if room < 0:
                most[device] = 0
            elif each > 0:
                most[device] = min(most[device], own + room // each)
        return most

    def refutes(self, within: Fraction) -> bool:
        """Whether devices take too few layers within so many seconds, (8)."""
        return sum(self.most_layers(within)) < self.given.num_layers

    def holds(self, within: Fraction, tree: Split | Leaf) -> bool:
        """Whether every leaf of a tree takes at least so many seconds, (9)."""
        devices, lines = len(self.given.counts), self.paths.lines
        root = Branch(lines.lower, lines.upper, np.zeros(devices, np.int64), np.array(self.most_layers(within)))
        parts: list[tuple[Branch, Split | Leaf]] = [(root, tree)]
        sizes = {"chunk": self.given.num_chunks, "device": devices}
        while parts:
            branch, node = parts.pop()
            if isinstance(node, Leaf):
                if not (self.paths.is_proof(node) and self._leaf_takes(within, node, branch)):
                    return False
            elif node.number >= sizes[node.place]:
                return False
            else:
                few, many = branch.split(node.place, node.number, node.layers)
                parts += [(few, node.few), (many, node.many)]
        return True

    def _leaf_takes(self, within: Fraction, leaf: Leaf, branch: Branch) -> bool:
        """Whether a leaf takes at least so many seconds, (9)."""
        line, weight = self._mixture(leaf)
        size = sum(map(abs, line.slope)) * self.given.num_layers + abs(line.still)
        if weight == 0 or size == 0:
            return False
        # Whole numbers of 60 bits, rounded down.
        bits = max(size.bit_length() + 1 - BITS, 0)
        slope = np.array([each >> bits for each in line.slope], np.int64)
        value = least_value(slope, line.still >> bits, branch, self.given.order.device, self.given.num_layers)
        return value == math.inf or int(value) << bits >= _rounded_up(within) * weight

    def _mixture(self, leaf: Leaf) -> tuple[_Line, int]:
        """The weighted paths and priced bytes of a leaf, and the sum of its weights, in units of 2 to the -36."""
        shares = _whole(leaf.shares)
        passes, transfers = np.zeros((self.given.num_chunks, 3), object), 0
        after, total = dict[int, int](), sum(shares)
        constant = total * _scaled(self.given.constant) << FLOAT
        for number, share in enumerate(shares):
            if share:
                own, moved, tail = self._path(number)
                passes, transfers = passes + share * own.astype(object), transfers + share * moved
                for device, seconds in tail.items():
                    after[device] = after.get(device, 0) + share * seconds
        if self.paths.ends is not None:
            weights = np.array([_whole(way) for each in leaf.ends for way in each], float)
            weights = weights.reshape(np.shape(leaf.ends))
            mean = mix(self.paths.ends, weights, np.array(leaf.rounds_in), np.array(leaf.rounds_out), whole=True)
            forward, backward = (np.array([int(x) for x in each], object) for each in mean[:2])
            passes = passes + np.stack((forward, backward, backward), axis=1)
            transfers += sum(int(x) for x in mean.transfers[self.given.away])
            ends = int(weights.sum())
            for device, each in enumerate(mean.after.tolist()):
                if each:
                    after[device] = after.get(device, 0) + int(each) * self._rings[device]
            none, one = self._loads
            every = _scaled(self.given.optimizer) * (sum(none) + one * self.given.num_layers)
            constant += ends * ((_scaled(self.given.constant) << FLOAT) + every // len(self.given.counts))
            total += ends
        line = self._line(passes, transfers, after, constant)
        slope, still = line
        for price, (_, bytes_beyond) in zip(leaf.prices, self._memory, strict=True):
            if price:
                cost = _scaled(price) << WEIGHT_BITS
                slope = [a + cost * b for a, b in zip(slope, bytes_beyond.slope, strict=True)]
                still += cost * bytes_beyond.still
        return _Line(slope, still), total


def _rounded_up(seconds: Fraction) -> int:
    """Seconds in ``UNIT`` bits, rounded up, so that no less is shown of them."""
    return -((-seconds.numerator << UNIT) // seconds.denominator)


def _whole(weights: Sequence[float]) -> list[int]:
    """Weights rounded down, in units of 2 to the -36."""
    return [int(math.ldexp(weight, WEIGHT_BITS)) for weight in weights]
