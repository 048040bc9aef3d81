r"""
Lower bound on every division of a candidate whose schedule is priced by its order.

(1) What every device can take (``taut.solver.order_priced.capacity``) bounds any candidate, and often does so up to the
    limit at once.
(2) Where all layers but the first and the last are alike, weighted paths through the order bound what the devices' own
    options cost (``taut.solver.order_priced.branch_and_bound``), in branches where that is asked for.
(3) Elsewhere, or where the options are too many, weighted paths and prices of memory bound what dynamic programming
    over chunks finds (``taut.solver.order_priced.lagrangian``).

The largest counts. The limit is lowered to little above the quickest division that is known to fit.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from taut.data.arrays import Floats
from taut.formulations.order_division import ChunkProblem
from taut.formulations.strategy import Division
from taut.solver.order_priced.branch_and_bound import Branching
from taut.solver.order_priced.capacity import capacity_bound, missing_capacity
from taut.solver.order_priced.device_chain import Devices
from taut.solver.order_priced.division import ROUNDING
from taut.solver.order_priced.dual_ascent import ROUNDS, raised
from taut.solver.order_priced.lagrangian import least_within, missing_by
from taut.solver.order_priced.master import leanest_mixture
from taut.solver.order_priced.rows import Rows, least_makespan
from taut.solver.order_priced.witness import stated

SLACK = 1.02
"""Limit as a multiple of a makespan that is known."""


@dataclass(frozen=True, kw_only=True)
class OrderBound:
    """
    What is known of a candidate's divisions.

    Parameters
    ----------
    seconds
        Least makespan; infinite where nothing fits.
    witness
        What proves it.
    missing
        Bytes that some device lacks where nothing fits.
    divisions
        Some that are worth a closer look.
    branching
        What can raise the bound further, (2).
    """

    seconds: float
    witness: dict[str, Any]
    missing: float = 0.0
    divisions: tuple[Division, ...] = ()
    branching: Branching | None = None


def order_bound(given: ChunkProblem, limit: float = np.inf) -> OrderBound:
    """
    Bound by what devices can take or by good weights and prices, or proof that nothing fits.

    Parameters
    ----------
    given
        The division problem.
    limit
        Seconds beyond which a bound is of no use, such as those of an incumbent.
    """
    even = list(_even(given))
    rows = Rows(given)
    fitting = [division for division in even if (rows.excess(division) <= 0).all()]
    missing = 0 if fitting or limit < np.inf else missing_capacity(given)
    if missing > 0:
        return OrderBound(seconds=np.inf, witness={"missing": missing}, missing=missing)
    limit = _lowered(given, limit, fitting or even, known=bool(fitting))
    devices = Devices(given, limit)
    capacity = capacity_bound(devices)
    by_devices = OrderBound(seconds=capacity * (1 - ROUNDING), witness={"limit_s": capacity}, divisions=tuple(even))
    if capacity >= limit:
        return by_devices
    by_paths = _by_options(devices, even) if devices.known and devices.alike else _by_prices(rows, even, limit)
    if by_paths.seconds >= by_devices.seconds:
        return by_paths
    return replace(by_paths, seconds=by_devices.seconds, witness=by_devices.witness)


def _lowered(given: ChunkProblem, limit: float, divisions: list[Division], *, known: bool) -> float:
    """The limit, or little above the quickest division where that is known to fit, or there is no limit."""
    least = min(least_makespan(given, division) for division in divisions)
    return min(limit, SLACK * least) if known else limit if limit < np.inf else 2 * least


def _by_options(devices: Devices, divisions: list[Division]) -> OrderBound:
    """Bound (2)."""
    branching = Branching(devices, divisions)
    return OrderBound(
        seconds=branching.seconds * (1 - ROUNDING),
        witness=branching.witness(),
        divisions=branching.divisions,
        branching=branching,
    )


def _by_prices(rows: Rows, divisions: list[Division], limit: float) -> OrderBound:
    """Bound (3), or proof that nothing fits."""
    given, found = rows.given, list[Division]()
    prices = np.full(len(rows.counts), 1.0 / len(rows.counts))
    if not _fits(rows, prices, found):
        missing, _ = missing_by(rows, prices)
        return OrderBound(seconds=np.inf, witness={"prices": prices.tolist()}, missing=missing)
    proof = raised(rows, found + divisions, least_within(given, limit), limit - given.constant)
    return OrderBound(
        seconds=min(proof.value + given.constant, limit) * (1 - ROUNDING),
        witness=stated(rows, proof.shares, proof.prices, limit),
        divisions=proof.divisions,
    )


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
    """Divisions into chunks of as equal time as whole layers allow, one for each recompute."""
    chunks, layers, before = given.num_chunks, given.num_layers, np.arange(given.num_chunks)
    for r in np.flatnonzero(np.isfinite(given.passes[0, :, 0, -1])):
        until = given.passes[:, r, 0, 1:].sum(axis=0)
        parts = until[-1] * np.arange(1, chunks) / chunks * (1 - 1e-9)
        ends = np.append(np.searchsorted(until, parts) + 1, layers)
        # A layer for every chunk, where one layer takes as long as several chunks too.
        ends = np.maximum.accumulate(np.maximum(ends - before, 1)) + before
        ends = np.minimum(ends, layers - before[::-1])
        yield Division.of_ends(ends.astype(np.int64), np.full(chunks, r, dtype=np.int64))
