r"""
Lower bound on every division of an order-priced candidate.

(1) Destructive bound by the layers that every device can take (``taut.solver.order_priced.capacity``): it holds for any
    candidate, and often reaches the limit at once.
(2) Where all layers but the last and some of the first are alike, the Lagrangian dual over the devices' options, in
    branches where that is asked for (``taut.solver.order_priced.branch_and_bound``).
(3) Elsewhere, or where there are too many options, the Lagrangian dual over chunks, with prices of memory
    (``taut.solver.order_priced.master_rows``).

(4) Where a framework states few divisions, all of them instead (``taut.solver.order_priced.stated``).
(5) Where figures are linear in the layers of chunks, the tree of ``taut.solver.order_priced.layer_tree`` instead of (1)
    to (3): with one kind of recompute, and layers that are alike but for a few.
(6) Where more layers differ the root of the same tree comes before (1) to (3), which take up to thirty times as long.
    If layers that fit, whole or in parts, take less than the limit, no mixture of paths reaches it: a ``brief`` bound
    ends there. For candidates whose turn comes the search computes what is left out, and then grows the tree.

The largest counts. The limit is lowered to little above the least makespan of a division that is known to fit.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.order_division import ROUNDING, ChunkProblem
from taut.formulations.strategy import Division
from taut.solver.order_priced.branch_and_bound import BranchAndBound
from taut.solver.order_priced.capacity import capacity_bound, missing_memory
from taut.solver.order_priced.device_options import DeviceChain
from taut.solver.order_priced.dual_ascent import MOST_ITERATIONS, least_excess, maximise_dual
from taut.solver.order_priced.layer_bounds import LayerPaths, least_missing, linear_paths
from taut.solver.order_priced.layer_tree import LayerTree
from taut.solver.order_priced.master_rows import MasterRows, bounded_pricing, least_makespan, memory_dual
from taut.solver.order_priced.stated import by_busiest, is_listed, stated_missing, stated_seconds
from taut.solver.order_priced.witness import price_witness

SLACK = 1.02
"""Limit as a multiple of a known makespan: bounds above an optimum are of no use, and 2 % leave room for its search."""


@dataclass(frozen=True, kw_only=True)
class OrderBound:
    """
    The bound on a candidate's divisions in seconds, infinite where nothing fits, and the ``witness`` that proves it.

    ``missing`` bytes lack at least where nothing fits; ``divisions`` found on the way are where a search begins;
    ``branching`` is the tree that can raise the bound, (2), and ``too_many`` says that devices have too many options
    for it within the limit; within a lower one they have fewer; ``brief`` says that (1) to (3) were left out, (6).
    """

    seconds: float
    witness: dict[str, Any]
    missing: float = 0.0
    divisions: tuple[Division, ...] = ()
    branching: BranchAndBound | LayerTree | None = None
    too_many: bool = False
    brief: bool = False


def order_bound(given: ChunkProblem, limit: float = np.inf, brief: bool = False) -> OrderBound:
    """Bound with its witness by (1) to (6), or proof that nothing fits; of no use beyond ``limit``."""
    if is_listed(given):
        return _by_listing(given)
    every = linear_paths(given)
    cases = every if all(case.lines.beyond is None for case in every) else []
    if cases and (missing := least_missing(cases)) > 0:
        return OrderBound(seconds=np.inf, witness={"missing": missing}, missing=missing)
    simple = list(_simple(given))
    rows = cases[0].rows if cases else MasterRows(given)
    fitting = [division for division in simple if (rows.excess(division) <= 0).all()]
    if cases:
        return _by_layers(cases, limit, fitting or simple, known=bool(fitting))
    missing = 0 if fitting or limit < np.inf else missing_memory(given)
    if missing > 0:
        return OrderBound(seconds=np.inf, witness={"missing": missing}, missing=missing)
    limit = _lowered_limit(given, limit, fitting or simple, known=bool(fitting))
    by_root = [_by_root(every, limit, simple)] if every else []
    if by_root and ((brief and by_root[0].brief) or by_root[0].seconds >= limit * (1 - ROUNDING)):
        return by_root[0]
    devices = DeviceChain(given, limit)
    capacity = capacity_bound(devices)
    by_devices = OrderBound(seconds=capacity * (1 - ROUNDING), witness={"limit_s": capacity}, divisions=tuple(simple))
    if capacity >= limit:
        return by_devices
    if devices.is_enumerable and devices.has_alike_layers:
        by_dual = _by_options(devices, fitting)
    else:
        by_dual = replace(_by_prices(rows, simple, limit), too_many=devices.has_alike_layers)
    best = max(by_dual, by_devices, *by_root, key=lambda one: one.seconds)
    return replace(by_dual, seconds=best.seconds, witness=best.witness)


def _by_layers(cases: list[LayerPaths], limit: float, divisions: list[Division], *, known: bool) -> OrderBound:
    """Bound (5)."""
    given = cases[0].given
    tree = LayerTree(given, cases, _lowered_limit(given, limit, divisions, known=known), divisions)
    seconds = tree.seconds * (1 - ROUNDING)
    return OrderBound(seconds=seconds, witness=tree.witness(), divisions=tree.divisions, branching=tree)


def _by_root(cases: list[LayerPaths], limit: float, divisions: list[Division]) -> OrderBound:
    """Bound (6)."""
    tree = LayerTree(cases[0].given, cases, limit, divisions)
    tree.branch()
    seconds = tree.seconds * (1 - ROUNDING)
    brief = tree.seconds < limit and tree.least_of_parts < limit
    return OrderBound(seconds=seconds, witness=tree.witness(), divisions=tree.divisions, brief=brief)


def _by_listing(given: ChunkProblem) -> OrderBound:
    """Bound (4), or proof that nothing fits."""
    assert given.stated is not None
    witness = {"stated": len(given.stated)}
    seconds, divisions = stated_seconds(given)
    if seconds < np.inf:
        return OrderBound(seconds=seconds, witness=witness, divisions=divisions)
    return OrderBound(seconds=np.inf, witness=witness, missing=stated_missing(given))


def _lowered_limit(given: ChunkProblem, limit: float, divisions: list[Division], *, known: bool) -> float:
    """The limit in seconds, or little above the least known makespan where its division fits or there is no limit."""
    least = min(least_makespan(given, division) for division in divisions)
    return min(limit, SLACK * least) if known else limit if limit < np.inf else 2 * least


def _by_options(devices: DeviceChain, divisions: list[Division]) -> OrderBound:
    """Bound (2)."""
    branching = BranchAndBound(devices, divisions)
    return OrderBound(
        seconds=branching.seconds * (1 - ROUNDING),
        witness=branching.witness(),
        divisions=branching.divisions,
        branching=branching,
    )


def _by_prices(rows: MasterRows, divisions: list[Division], limit: float) -> OrderBound:
    """Bound (3), or proof that nothing fits."""
    given, found = rows.given, list[Division]()
    memory_prices = np.full(len(rows.memory_rows), 1.0 / len(rows.memory_rows))
    if not _fits(rows, memory_prices, found):
        missing, _ = memory_dual(rows, memory_prices)
        return OrderBound(seconds=np.inf, witness={"prices": memory_prices.tolist()}, missing=missing)
    proof = maximise_dual(rows, found + divisions, bounded_pricing(given, limit), limit - given.constant)
    return OrderBound(
        seconds=min(proof.value + given.constant, limit) * (1 - ROUNDING),
        witness=price_witness(rows, proof.path_weights, proof.memory_prices, limit),
        divisions=proof.divisions,
    )


def _fits(rows: MasterRows, memory_prices: Floats, found: list[Division]) -> bool:
    """Maximise the dual of missing memory, prices in place, until divisions fit together; false if none can."""
    for _ in range(MOST_ITERATIONS):
        missing, division = memory_dual(rows, memory_prices)
        if division is None or missing > 0:
            return False
        found.append(division)
        worst, mixed = least_excess(rows, found)
        if worst <= 0:
            return True
        memory_prices[:] = mixed
    return True


def low_memory_divisions(given: ChunkProblem) -> list[Division]:
    """Divisions that need little memory: simple ones, and minimisers of bytes under some prices."""
    if given.stated is not None:
        return [division for r in given.recomputes.tolist() for _, division in by_busiest(given, r)]
    rows = MasterRows(given)
    memory_prices = [np.full(len(rows.memory_rows), 1.0 / len(rows.memory_rows)), *np.eye(len(rows.memory_rows))]
    answers = (memory_dual(rows, each)[1] for each in memory_prices)
    found = [*_simple(given), *(answer for answer in answers if answer is not None)]
    if len(found) > 1:
        for _ in range(MOST_ITERATIONS // 4):
            mixed = least_excess(rows, found)[1]
            answer = memory_dual(rows, mixed)[1]
            found += [answer] if answer is not None else []
    return found


def _simple(given: ChunkProblem) -> Iterator[Division]:
    """Divisions with one recompute: into chunks of about equal time, and with equal layers for all devices."""
    chunks, layers, before = given.num_chunks, given.num_layers, np.arange(given.num_chunks)
    for r in np.flatnonzero(np.isfinite(given.passes[0, :, 0, -1])):
        until = given.passes[:, r, 0, 1:].sum(axis=0)
        parts = until[-1] * np.arange(1, chunks) / chunks * (1 - 1e-9)
        ends = np.append(np.searchsorted(until, parts) + 1, layers)
        # A layer for every chunk, where one layer takes as long as several chunks too.
        ends = np.maximum.accumulate(np.maximum(ends - before, 1)) + before
        ends = np.minimum(ends, layers - before[::-1])
        for each in (ends, *_alike(given)):
            yield Division.of_ends(each.astype(np.int64), np.full(chunks, r, dtype=np.int64))


def _alike(given: ChunkProblem) -> Iterator[Ints]:
    """Ends of divisions that give all devices the same layers of each round, first and last chunks fewer if needed."""
    devices, device = len(given.counts), given.order.device
    rounds = given.num_chunks // devices
    layers = given.num_layers - 2 * given.ends
    most = -(-layers // devices)
    least, more = divmod(most, rounds)
    leaner = list(dict.fromkeys([int(device[-1]), int(device[0]), *range(devices - 1, -1, -1)]))
    for larger in combinations(range(rounds), more):
        chunks = np.repeat([least + (k in larger) for k in range(rounds)], devices)
        for d in leaner[: devices * most - layers]:
            hosted = given.hosted(d)
            chunks[hosted[int(chunks[hosted].argmax())]] -= 1
        ends = given.ends_of(chunks)
        # With as few layers as chunks that must have some, rounds cannot be alike.
        if np.diff(ends, prepend=0).min() >= 1:
            yield ends
