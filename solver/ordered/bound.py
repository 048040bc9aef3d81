r"""
Lower bound on every division of a candidate whose schedule is priced by its order: the search for weights and prices.

Any shares of paths and prices of memory bound the makespan from below, or prove that nothing fits
(``taut.solver.ordered.dual``). Good ones come from linear programs over the divisions found so far
(``taut.solver.ordered.mixtures``); each new division answers the weights with the least sum and adds its own critical
path to the rows. With w the shares and prices, :math:`D(w)` what they prove, :math:`w^*` those of the program and
:math:`Z` its value,

.. math:: w \leftarrow \begin{cases} (1 - \theta) w_{best} + \theta w^* & Z - D(w_{best}) > \epsilon |Z| \\
    w^* & \text{otherwise} \end{cases} \tag{1}

goes part of the way from the best so far, at first equal shares of the devices' paths, to those of the program, which
alone would leap about. Rounds end where :math:`Z - D(w_{best})` is rounding, the bound reaches the limit, or the number
of rounds is spent (2).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taut.formulations.chunk_division import ChunkProblem
from taut.solver.ordered.capacity import capacity_bound, missing_capacity
from taut.solver.ordered.devices import Devices
from taut.solver.ordered.division import Division
from taut.solver.ordered.dual import ROUNDING, dual_value, missing_by
from taut.solver.ordered.mixtures import fastest_mixture, leanest_mixture
from taut.solver.ordered.rows import Rows, least_makespan
from taut.solver.ordered.witness import stated

Floats = NDArray[np.float64]
ROUNDS = 40
STEP = 0.3
"""Share theta of the way to the linear program's weights."""
NEAR = 1e-4
"""Relative distance epsilon to its value at which steps go all the way."""
PROGRESS = 1e-11
"""Relative distance between the linear program and the bound at which rounds stop."""


@dataclass(frozen=True, kw_only=True)
class OrderBound:
    """Least seconds (infinite where nothing fits), the witness, missing bytes, and divisions worth a closer look."""

    seconds: float
    witness: dict[str, Any]
    missing: float = 0.0
    divisions: tuple[Division, ...] = ()


def order_bound(given: ChunkProblem, limit: float = np.inf) -> OrderBound:
    """
    Bound by good weights and prices, or proof that nothing fits.

    Parameters
    ----------
    given
        The division problem.
    limit
        Seconds beyond which a bound is of no use, such as those of an incumbent.
    """
    found = list(_even(given))
    fits = any((Rows(given).excess(division) <= 0).all() for division in found)
    missing = 0 if fits or limit < np.inf else missing_capacity(given)
    if missing > 0:
        return OrderBound(seconds=np.inf, witness={"missing": missing}, missing=missing)
    limit = min(limit, 1.02 * min(least_makespan(given, division) for division in found))
    devices = Devices(given, limit)
    capacity = capacity_bound(devices)
    if capacity >= limit:
        return OrderBound(seconds=limit * (1 - ROUNDING), witness={"limit_s": limit}, divisions=tuple(found))
    rows = Rows(given, devices if devices.known and devices.alike else None)
    prices = np.full(len(rows.counts), 1.0 / max(len(rows.counts), 1))
    if rows.devices is None and not _fits(rows, prices, found):
        return OrderBound(seconds=np.inf, witness={"prices": prices.tolist()}, missing=missing_by(rows, prices)[0])
    by_paths = _raised(rows, found, limit)
    if capacity * (1 - ROUNDING) <= by_paths.seconds:
        return by_paths
    return replace(by_paths, seconds=capacity * (1 - ROUNDING), witness={"limit_s": capacity})


def _raised(rows: Rows, found: list[Division], limit: float) -> OrderBound:
    """Bound by paths, raised round by round, (1) and (2)."""
    given = rows.given
    for division in found:
        rows.add(division)
    shares, prices = _uniform(rows)
    best, witness = -np.inf, dict[str, Any]()
    for _ in range(ROUNDS):
        target, toward, dear = fastest_mixture(rows, found)
        near = target - best <= NEAR * abs(target)
        step = 0.0 if best == -np.inf else 1.0 if near else STEP
        tried = (1 - step) * np.pad(shares, (0, len(toward) - len(shares))) + step * toward
        cost = (1 - step) * prices + step * dear
        value, answer = dual_value(rows, tried, cost, limit)
        if value > best:
            best, witness = value, stated(rows, tried, cost, limit)
            shares, prices = tried, cost
        if answer is None or best + given.constant >= limit or target - best <= PROGRESS * abs(target):
            break
        found.append(answer)
        rows.add(answer)
    seconds = min(best + given.constant, limit) * (1 - ROUNDING)
    return OrderBound(seconds=seconds, witness=witness, divisions=tuple(found))


def _fits(rows: Rows, prices: Floats, found: list[Division]) -> bool:
    """Seek prices for divisions that fit, in place; false if they prove that nothing fits."""
    for _ in range(ROUNDS):
        missing, division = missing_by(rows, prices)
        if division is None or missing > 0:
            return False
        found.append(division)
        worst, mixed = leanest_mixture(rows, found)
        if worst <= 0:
            return True
        prices[:] = mixed
    return True


def _uniform(rows: Rows) -> tuple[Floats, Floats]:
    """Equal shares of the devices' paths, and no prices."""
    devices = len(rows.given.counts)
    shares = np.zeros(len(rows.paths))
    shares[:devices] = 1.0 / devices
    return shares, np.zeros(len(rows.counts))


def lean_divisions(given: ChunkProblem) -> list[Division]:
    """Divisions worth a look for their memory: even ones, and those that need least under some prices."""
    rows = Rows(given)
    prices = [np.full(len(rows.counts), 1.0 / len(rows.counts)), *np.eye(len(rows.counts))]
    answers = (missing_by(rows, each)[1] for each in prices)
    found = [*_even(given), *(answer for answer in answers if answer is not None)]
    if len(found) > 1:
        for _ in range(ROUNDS // 4):
            mixed = leanest_mixture(rows, found)[1]
            answer = missing_by(rows, mixed)[1]
            found += [answer] if answer is not None else []
    return found


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
