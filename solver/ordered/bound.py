r"""
Lower bound on every division of a candidate whose schedule is priced by its order, with a witness.

Paths k through the order (``taut.solver.ordered.paths``) and counts n of device d's micro-batches in flight are linear
in the figures of the chunks. With weights :math:`\lambda_k \ge 0`, :math:`\sum_k \lambda_k = 1`, and prices
:math:`\mu_{dn} \ge 0` of memory,

(1) :math:`T \ge \min \sum_k \lambda_k \text{path}_k + \text{tail} + \sum_{d, n} \mu_{dn} (\text{bytes}_{dn} -
    \text{budget})` over all divisions, which dynamic programming finds (``taut.solver.ordered.division``): the makespan
    is at least each path, and a division that fits has no bytes above its budget;
(2) if :math:`\min \sum \mu_{dn} (\text{bytes}_{dn} - \text{budget}) > 0` for some :math:`\mu` no division fits, and
    with :math:`\sum \mu = 1` some device lacks that many bytes.

(3) A division with a chunk that takes more than limit / m seconds for a micro-batch, less what the other chunks of its
    device take at least, takes more than the limit. So the lesser of the limit and (1) over all other divisions is a
    bound too, a better one where the limit is near the optimum.

Weights and prices come from a linear program over the divisions found so far, the rows being paths and counts; each
new division answers the weights with the least sum, and adds its own critical path. Steps go part of the way from the
best weights so far to those of the program, which alone would leap about. They need not be the best ones: (1) to (3)
hold for any. The witness is the limit, the weights and prices, with the divisions whose critical paths are meant.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError
from scipy.optimize import linprog

from taut.formulations.chunk_division import ChunkProblem
from taut.formulations.chunk_times import spans
from taut.solver.ordered.division import Division, Weights, least_division
from taut.solver.ordered.paths import Path, critical_path, device_path

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
ROUNDING = 1e-10
"""Relative allowance for the rounding of sums over all passes."""
ROUNDS = 40
STEP = 0.3
"""Share of the way to the linear program's weights."""
NEAR = 1e-4
"""Relative distance to its value at which steps go all the way."""
PROGRESS = 1e-11
"""Relative distance between the linear program and the bound at which rounds stop."""
ELASTIC = 20.0
"""Price of a budget's worth of missing bytes, as a multiple of the step time."""


@dataclass(frozen=True, kw_only=True)
class OrderBound:
    """Least seconds (infinite where nothing fits), the witness, missing bytes, and divisions worth a closer look."""

    seconds: float
    witness: dict[str, Any]
    missing: float = 0.0
    divisions: tuple[Division, ...] = ()


@dataclass
class _Rows:
    """The rows of the linear program: paths, each with what it came from, and counts of every device."""

    given: ChunkProblem
    paths: list[Path] = field(default_factory=list)
    sources: list[Division | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        for d in range(len(self.given.counts)):
            self.paths.append(device_path(self.given.order, d))
            self.sources.append(None)

    @cached_property
    def counts(self) -> list[tuple[int, Ints]]:
        """Devices with their counts of micro-batches in flight: most in all, and most of each chunk."""
        return [(d, row) for d, counts in enumerate(self.given.counts) for row in _telling(counts)]

    def add(self, division: Division) -> bool:
        """Add the critical path of a division; whether it is new."""
        path = critical_path(self.given.order, *durations(self.given, division), self.given.micro_batches)
        known = any((path.passes == p.passes).all() and (path.transfers == p.transfers).all() for p in self.paths)
        if not known:
            self.paths.append(path)
            self.sources.append(division)
        return not known

    def weights(self, shares: Floats, prices: Floats) -> Weights:
        """Weights of the dynamic program for shares of paths and prices of counts."""
        given, chunks = self.given, self.given.num_chunks
        passes = np.zeros((chunks, 3))
        edge = np.zeros(chunks)
        for share, path in zip(shares, self.paths, strict=False):
            passes += share * path.passes
            edge[:-1] += share * path.transfers * given.away
        parameters, activation, logits = np.zeros(chunks), np.zeros(chunks), np.zeros(chunks)
        parameters[given.hosted(0)] += shares.sum() * given.per_parameter
        parameters += prices @ self._members * given.held
        activation += prices @ self._spread
        logits += prices @ self._members
        return Weights(passes, edge, parameters, activation, logits)

    def seconds(self, division: Division) -> Floats:
        """Seconds of every path, tail included."""
        passes, transfers = durations(self.given, division)
        first = self.given.hosted(0)
        tail = self.given.per_parameter * self.given.parameters[division.firsts, division.ends][first].sum()
        of_pass = np.array([path.passes for path in self.paths], dtype=float)
        of_transfer = np.array([path.transfers for path in self.paths], dtype=float)
        return np.asarray(np.tensordot(of_pass, passes.T, axes=2) + of_transfer @ transfers + tail)

    def excess(self, division: Division) -> Floats:
        """Bytes beyond the budget by counts."""
        given, i, j = self.given, division.firsts, division.ends
        held = given.held * given.parameters[i, j] + given.logits[i, j]
        kept = given.activation[division.recompute, i, j]
        return np.asarray(self._spread @ kept + self._members @ held) - (given.budget - given.always)

    @cached_property
    def _members(self) -> Floats:
        """Whether a chunk lies on the device of each count (counts, C)."""
        return np.array([self.given.order.device == d for d, _ in self.counts], dtype=float)

    @cached_property
    def _spread(self) -> Floats:
        """Micro-batches in flight of every chunk by count (counts, C)."""
        table = np.zeros((len(self.counts), self.given.num_chunks))
        for row, (d, count) in zip(table, self.counts, strict=True):
            row[self.given.hosted(d)] = count
        return table


def _telling(counts: Ints) -> Ints:
    """Of the counts of a device the one with most in all, and for each chunk the one with most of it."""
    rows = {int(counts.sum(axis=1).argmax()), *(int(k) for k in counts.argmax(axis=0))}
    return counts[sorted(rows)]


def durations(given: ChunkProblem, division: Division) -> tuple[Floats, Floats]:
    """Least seconds of F, I, W (3, C), and of transfers (C - 1,), of a division."""
    i, j = division.firsts, division.ends
    return given.passes[:, division.recompute, i, j], np.where(given.away, given.edge[j[:-1]], 0.0)


def least_makespan(given: ChunkProblem, division: Division) -> float:
    """Objective (1) of ``taut.formulations.chunk_division`` for a division."""
    passes, transfers = durations(given, division)
    first = given.hosted(0)
    tail = given.per_parameter * given.parameters[division.firsts, division.ends][first].sum()
    whole = spans(given.order, passes.reshape(1, -1), transfers[None], given.micro_batches)
    return float(whole[0]) + float(tail) + given.constant


def order_bound(given: ChunkProblem, limit: float = np.inf) -> OrderBound:
    """
    Bound (3) with good weights and prices, or proof (2) that nothing fits.

    Parameters
    ----------
    given
        The division problem.
    limit
        Seconds beyond which a bound is of no use, such as those of an incumbent.
    """
    rows = _Rows(given)
    prices = np.full(len(rows.counts), 1.0 / len(rows.counts))
    found: list[Division] = []
    if not _fits(rows, prices, found):
        missing, _ = _missing(rows, prices)
        return OrderBound(seconds=np.inf, witness={"prices": prices.tolist()}, missing=missing)
    found += _even(given)
    for division in found:
        rows.add(division)
    limit = min(limit, 1.02 * min(least_makespan(given, division) for division in found))
    longest = _longest(given, limit)
    shares, prices = _uniform(rows)
    best, witness = -np.inf, dict[str, Any]()
    for _ in range(ROUNDS):
        target, toward, dear = _program(rows, found)
        near = target - best <= NEAR * abs(target)
        step = 0.0 if best == -np.inf else 1.0 if near else STEP
        tried = (1 - step) * np.pad(shares, (0, len(toward) - len(shares))) + step * toward
        cost = (1 - step) * prices + step * dear
        value, answer = _value(rows, tried, cost, longest)
        if value > best:
            best, witness = value, _witness(rows, tried, cost) | {"limit_s": limit}
            shares, prices = tried, cost
        if answer is None or best + given.constant >= limit or target - best <= PROGRESS * abs(target):
            break
        found.append(answer)
        rows.add(answer)
    seconds = min(best + given.constant, limit) * (1 - ROUNDING)
    return OrderBound(seconds=seconds, witness=witness, divisions=tuple(found))


def _uniform(rows: _Rows) -> tuple[Floats, Floats]:
    """Equal shares of the devices' paths, and no prices."""
    devices = len(rows.given.counts)
    shares = np.zeros(len(rows.paths))
    shares[:devices] = 1.0 / devices
    return shares, np.zeros(len(rows.counts))


def _longest(given: ChunkProblem, limit: float) -> float:
    """Seconds that a chunk may take for a micro-batch within the limit, (3)."""
    layers = np.arange(given.num_layers)
    least = float(given.passes.sum(axis=0)[:, layers, layers + 1].min())
    others = len(given.hosted(0)) - 1
    return (limit - given.constant) / given.micro_batches * (1 + ROUNDING) - others * least


def lean_divisions(given: ChunkProblem) -> list[Division]:
    """Divisions worth a look for their memory: even ones, and those that need least under some prices."""
    rows = _Rows(given)
    prices = [np.full(len(rows.counts), 1.0 / len(rows.counts)), *np.eye(len(rows.counts))]
    answers = (_missing(rows, each)[1] for each in prices)
    found = [*_even(given), *(answer for answer in answers if answer is not None)]
    if len(found) > 1:
        for _ in range(ROUNDS // 4):
            mixed = _mixture(np.array([rows.excess(division) for division in found]) / given.budget)[1]
            answer = _missing(rows, mixed)[1]
            found += [answer] if answer is not None else []
    return found


def _fits(rows: _Rows, prices: Floats, found: list[Division]) -> bool:
    """Seek prices by (2), in place; false if they prove that nothing fits."""
    for _ in range(ROUNDS):
        missing, division = _missing(rows, prices)
        if missing > 0:
            return False
        if division is None:
            return False
        found.append(division)
        excess = np.array([rows.excess(division) for division in found]) / rows.given.budget
        worst, mixed = _mixture(excess)
        if worst <= 0:
            return True
        prices[:] = mixed
    return True


def _mixture(excess: Floats) -> tuple[float, Floats]:
    """Least worst excess of a mixture of divisions (n, counts), and the prices that prove it."""
    size, counts = excess.shape
    answer = linprog(
        np.r_[np.zeros(size), 1.0],
        A_ub=np.c_[excess.T, -np.ones(counts)],
        b_ub=np.zeros(counts),
        A_eq=np.r_[np.ones(size), 0.0][None],
        b_eq=[1.0],
        bounds=[(0, None)] * size + [(None, None)],
        method="highs",
    )
    prices = np.maximum(-answer.ineqlin.marginals, 0.0)
    return float(answer.fun), prices / max(prices.sum(), 1e-300)


def _missing(rows: _Rows, prices: Floats) -> tuple[float, Division | None]:
    """Bytes that some device lacks in every division, by (2), and the division that lacks least."""
    value, division = least_division(rows.given, rows.weights(np.zeros(0), prices))
    room = rows.given.budget - rows.given.always
    allowance = ROUNDING * max(rows.given.budget, 1.0)
    return (value - prices.sum() * room - allowance if division else np.inf), division


def _program(rows: _Rows, found: list[Division]) -> tuple[float, Floats, Floats]:
    """Best mixture of the divisions: its seconds, the paths' shares and the prices of memory."""
    seconds = np.array([rows.seconds(division) for division in found]).T
    excess = np.array([rows.excess(division) for division in found]).T / rows.given.budget
    scale = seconds.max(axis=0).min()
    (paths, size), counts = seconds.shape, len(excess)
    above = [seconds / scale, -np.ones((paths, 1)), np.zeros((paths, counts))]
    answer = linprog(
        np.r_[np.zeros(size), 1.0, np.full(counts, ELASTIC)],
        A_ub=np.block([above, [excess, np.zeros((counts, 1)), -np.eye(counts)]]),
        b_ub=np.zeros(paths + counts),
        A_eq=np.r_[np.ones(size), np.zeros(1 + counts)][None],
        b_eq=[1.0],
        bounds=[(0, None)] * size + [(None, None)] + [(0, None)] * counts,
        method="highs",
    )
    duals = np.maximum(-answer.ineqlin.marginals, 0.0)
    shares = duals[:paths] / duals[:paths].sum()
    return float(answer.fun) * scale, shares, duals[paths:] * scale / rows.given.budget


def _value(rows: _Rows, shares: Floats, prices: Floats, longest: float) -> tuple[float, Division | None]:
    """The right side of (1) over the divisions of (3), without the constant."""
    value, division = least_division(rows.given, rows.weights(shares, prices), longest)
    return value - prices.sum() * (rows.given.budget - rows.given.always), division


def _even(given: ChunkProblem) -> Iterator[Division]:
    """Divisions into chunks of as equal time as may be, one for each recompute."""
    for r in np.flatnonzero(np.isfinite(given.passes[0, :, 0, -1])):
        until = given.passes[:, r, 0, 1:].sum(axis=0)
        chunks, layers = given.num_chunks, given.num_layers
        ends = np.searchsorted(until, until[-1] * np.arange(1, chunks + 1) / chunks * (1 - 1e-9)) + 1
        ends = np.maximum.accumulate(np.maximum(ends, np.arange(1, chunks + 1)))
        ends = np.minimum(ends, layers - np.arange(chunks - 1, -1, -1))
        if (np.diff(np.r_[0, ends]) > 0).all():
            yield Division(ends.astype(np.int64), np.full(chunks, r, dtype=np.int64))


def _witness(rows: _Rows, shares: Floats, prices: Floats) -> dict[str, Any]:
    """Weights and prices as plain values; paths that have no share are left out."""
    devices = len(rows.given.counts)
    used = [k for k in range(devices, len(rows.paths)) if shares[k] > 0]
    return {
        "devices": shares[:devices].tolist(),
        "critical": [
            {"share": float(shares[k]), "ends": source.ends.tolist(), "recompute": source.recompute.tolist()}
            for k in used
            if (source := rows.sources[k]) is not None
        ],
        "prices": prices.tolist(),
    }


class _Critical(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    share: float
    ends: list[int]
    recompute: list[int]


class _Witness(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    devices: list[float]
    critical: list[_Critical]
    prices: list[float]
    limit_s: float


def rederived(given: ChunkProblem, witness: dict[str, Any]) -> float:
    """Seconds that a witness proves, minus infinity where it proves nothing."""
    try:
        parsed = _Witness.model_validate(witness)
    except ValidationError:
        return -np.inf
    rows = _Rows(given)
    divisions = [_division(given, critical) for critical in parsed.critical]
    for division in divisions:
        if division is None or not rows.add(division):
            return -np.inf
    shares = np.array([*parsed.devices, *(critical.share for critical in parsed.critical)])
    prices = np.array(parsed.prices)
    wrong = len(shares) != len(rows.paths) or len(prices) != len(rows.counts)
    if wrong or (shares < 0).any() or (prices < 0).any() or abs(shares.sum() - 1) > 1e-12:
        return -np.inf
    value = _value(rows, shares, prices, _longest(given, parsed.limit_s))[0]
    return float(min(value + given.constant, parsed.limit_s) * (1 - ROUNDING))


def missing_bytes(given: ChunkProblem, witness: dict[str, Any]) -> float:
    """Bytes that some device lacks in every division, by the prices of a witness; 0 or less where it proves nothing."""
    prices = np.array(witness.get("prices", []), dtype=float)
    rows = _Rows(given)
    if prices.shape != (len(rows.counts),) or not np.isfinite(prices).all() or (prices < 0).any():
        return -np.inf
    return _missing(rows, prices / max(prices.sum(), 1e-300))[0]


def _division(given: ChunkProblem, critical: _Critical) -> Division | None:
    """A witness's division; None where it is none."""
    ends, recompute = np.array(critical.ends, dtype=np.int64), np.array(critical.recompute, dtype=np.int64)
    if ends.shape != (given.num_chunks,) or recompute.shape != ends.shape or ends[-1] != given.num_layers:
        return None
    division = Division(ends, recompute)
    if (ends <= division.firsts).any() or (recompute < 0).any() or (recompute >= given.passes.shape[1]).any():
        return None
    return division if np.isfinite(given.passes[0, recompute, division.firsts, ends]).all() else None
