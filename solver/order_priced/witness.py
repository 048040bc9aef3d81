r"""
Witnesses of the bound on an order-priced candidate's divisions, as plain values, and their check.

Critical paths are stated by the whole numbers that they are critical for, mean figures of a mixture of divisions
(``taut.solver.order_priced.master_rows`` (4)): any numbers have a path that bounds every division. Seconds are proven
by one of

(1) the limit T alone, refuted by the layers that devices can take in T (``taut.solver.order_priced.capacity``, or
    where figures are linear ``taut.solver.order_priced.layer_bounds`` (3));
(2) the limit and a tree of branches (``taut.solver.order_priced.branch_and_bound``), with seconds as in (1) or weights
    of paths at its leaves, which hold for any weights that are not negative and sum to one;
(2') the same with a mixture of paths at each leaf (``taut.solver.order_priced.layer_bounds`` (1));
(2'') the limit and critical paths that refute every division from some prefix on
    (``taut.solver.order_priced.prefixes``), which the check searches again;
(3) the limit, weights of paths and prices of memory (``taut.solver.order_priced.master_rows`` (5) and (7)), which hold
    for any such weights and any prices that are not negative.

Where divisions are listed one by one (``taut.solver.order_priced.stated``), a witness is their number, with the limit
up to which they were priced, and the check prices them again.

Missing memory is proven by prices (``taut.solver.order_priced.master_rows`` (6)), or (4) by bytes with which, on every
device, the devices still take too few layers.

The check evaluates the dual function once, by the pricing problem's dynamic program; it needs no linear program and no
search. The keys ``shares``, ``share`` and ``prices`` are the weights of paths and the prices of memory.
"""

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, RootModel, ValidationError

from taut.data.arrays import Floats
from taut.data.units import MOST_BYTES
from taut.formulations.order_division import ROUNDING, ChunkProblem
from taut.solver.order_priced.capacity import LayerCapacity, is_lower_bound, is_too_small
from taut.solver.order_priced.device_options import DeviceChain
from taut.solver.order_priced.layer_bounds import Cases, Leaf, Split, least_of_leaves, linear_paths
from taut.solver.order_priced.master_rows import MasterRows, MeanFigures, bounded_pricing, dual_value, memory_dual
from taut.solver.order_priced.prefixes import prefixes_of
from taut.solver.order_priced.stated import number_of, stated_missing, stated_seconds

Number = Annotated[int, Field(ge=0, le=2**31)]
Amount = Annotated[float, Field(ge=0, le=1e30)]
Limit = Annotated[float, Field(gt=0, le=1e30)]
"""Far beyond what any proof needs, and far from what would overflow."""


def price_witness(rows: MasterRows, path_weights: Floats, memory_prices: Floats, limit: float) -> dict[str, Any]:
    """Witness (3) of weights, prices and a limit in seconds; critical paths without weight are left out."""
    devices, path_weights = rows.of_devices, np.pad(path_weights, (0, len(rows.paths) - len(path_weights)))
    used = [k for k in range(devices, len(rows.paths)) if path_weights[k] > 0]
    return {
        "devices": path_weights[:devices].tolist(),
        "critical": [
            {"share": float(path_weights[k]), **figures.plain()}
            for k in used
            if (figures := rows.critical_for[k]) is not None
        ],
        "prices": memory_prices.tolist(),
        "limit_s": limit,
    }


class _Plain(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, defer_build=True)


class _Critical(_Plain):
    passes: list[list[Number]]
    transfers: list[Number]
    after: list[Number]
    most: Number


class _WeightedCritical(_Critical):
    share: Amount


class _ByPrices(_Plain):
    devices: list[Amount]
    critical: list[_WeightedCritical]
    prices: list[Amount]
    limit_s: Limit


class _Leaf(_Plain):
    shares: list[Amount]


class _Taken(_Plain):
    seconds: Limit


class _Split(_Plain):
    chunk: Number
    layers: Number
    few: "_Leaf | _Taken | _Split | _SplitDevice"
    many: "_Leaf | _Taken | _Split | _SplitDevice"


class _SplitDevice(_Plain):
    device: Number
    layers: Number
    few: "_Leaf | _Taken | _Split | _SplitDevice"
    many: "_Leaf | _Taken | _Split | _SplitDevice"


class _ByBranches(_Plain):
    limit_s: Limit
    critical: list[_Critical]
    tree: _Leaf | _Taken | _Split | _SplitDevice


class ByLayers(_Plain):
    """Witness (2')."""

    limit_s: Limit
    critical: list[_Critical]
    layers: Split | Leaf | Cases


class _ByPrefixes(_Plain):
    """Witness (2'')."""

    limit_s: Limit
    critical: list[_Critical]
    prefixes: Number


class ByCapacity(_Plain):
    """Witness (1)."""

    limit_s: Limit


class _ByListing(_Plain):
    stated: Number
    limit_s: Limit | None = None


class _MissingByListing(_Plain):
    stated: Number
    missing_kib: int | None = None


class _MissingByPrices(_Plain):
    prices: list[Amount]
    missing_kib: int | None = None


class _MissingByCapacity(_Plain):
    missing: Annotated[int, Field(gt=0, le=MOST_BYTES)]
    missing_kib: int | None = None


class _Missing(RootModel[_MissingByCapacity | _MissingByListing | _MissingByPrices]):
    model_config = ConfigDict(defer_build=True)


_Others = _ByPrefixes | _ByListing | _ByPrices


class _Witness(RootModel[ByCapacity | _ByBranches | ByLayers | _Others]):
    model_config = ConfigDict(defer_build=True)


def rederived(given: ChunkProblem, witness: dict[str, Any]) -> float:
    """Seconds that a witness of plain values proves; minus infinity where it proves nothing."""
    parsed = parse_witness(witness)
    if parsed is None:
        return -np.inf
    if isinstance(parsed, _ByListing):
        limit = np.inf if parsed.limit_s is None else parsed.limit_s
        return stated_seconds(given, limit)[0] if _is_listed(given, parsed) else -np.inf
    if isinstance(parsed, ByCapacity):
        value = parsed.limit_s if _is_refuted(given, parsed.limit_s) else -np.inf
    elif isinstance(parsed, _ByBranches):
        value = _by_branches(given, parsed)
    elif isinstance(parsed, ByLayers):
        critical = parsed.critical
        value = least_of_leaves(given, parsed.limit_s, lambda rows: add_critical(rows, critical), parsed.layers)
    elif isinstance(parsed, _ByPrefixes):
        value = _by_prefixes(given, parsed)
    else:
        value = _by_prices(given, parsed)
    return float(min(value, parsed.limit_s) * (1 - ROUNDING))


def parse_witness(
    witness: dict[str, Any],
) -> "ByCapacity | _ByBranches | ByLayers | _Others | None":
    """A witness of seconds by its form; None where it has none."""
    try:
        return _Witness.model_validate(witness).root
    except (ValidationError, RecursionError):
        return None


def _is_refuted(given: ChunkProblem, seconds: float) -> bool:
    """Whether devices take too few layers within so many seconds, (1), by their own paths where that suffices."""
    cases = linear_paths(given)
    return (bool(cases) and all(case.is_refuted(seconds) for case in cases)) or is_lower_bound(given, seconds)


def _by_branches(given: ChunkProblem, parsed: _ByBranches) -> float:
    """Seconds by (2)."""
    devices, rows = DeviceChain(given, parsed.limit_s), MasterRows(given, with_memory=False)
    if not devices.is_enumerable or not add_critical(rows, parsed.critical):
        return -np.inf
    least, branches = np.inf, [(devices, parsed.tree)]
    while branches:
        devices, node = branches.pop()
        if isinstance(node, _Split | _SplitDevice):
            parts = _parts(devices, node)
            if parts is None:
                return -np.inf
            branches += [(parts[0], node.few), (parts[1], node.many)]
        elif isinstance(node, _Taken):
            proven = node.seconds <= parsed.limit_s and LayerCapacity(devices).refutes(node.seconds)
            least = min(least, node.seconds if proven else -np.inf)
        elif not _are_weights(node.shares, len(rows.paths)):
            return -np.inf
        else:
            value, _ = devices.least_division(rows.chunk_costs(np.array(node.shares), np.zeros(0)))
            least = min(least, value + given.constant)
    return least


def _parts(devices: DeviceChain, node: _Split | _SplitDevice) -> tuple[DeviceChain, DeviceChain] | None:
    """The two branches of a split; None where there is no such chunk or device."""
    if isinstance(node, _Split):
        return devices.split(node.chunk, node.layers) if node.chunk < devices.given.num_chunks else None
    return devices.split_device(node.device, node.layers) if node.device < len(devices.given.counts) else None


def _by_prefixes(given: ChunkProblem, parsed: _ByPrefixes) -> float:
    """Seconds by (2'')."""
    prefixes = prefixes_of(given, parsed.limit_s)
    if prefixes is None or not add_critical(prefixes.rows, parsed.critical):
        return -np.inf
    prefixes.take_paths()
    return parsed.limit_s if prefixes.refutes() else -np.inf


def _by_prices(given: ChunkProblem, parsed: _ByPrices) -> float:
    """Seconds by (3)."""
    rows = MasterRows(given)
    path_weights = [*parsed.devices, *(critical.share for critical in parsed.critical)]
    memory_prices = np.array(parsed.prices)
    if not add_critical(rows, parsed.critical) or not _are_weights(path_weights, len(rows.paths)):
        return -np.inf
    if len(memory_prices) != len(rows.memory_rows):
        return -np.inf
    value = dual_value(rows, np.array(path_weights), memory_prices, bounded_pricing(given, parsed.limit_s))[0]
    return value + given.constant


def add_critical(rows: MasterRows, critical: Sequence[_Critical]) -> bool:
    """Add critical paths; False where the numbers are not the candidate's, or a path is one before."""
    stated = [_figures(rows.given, one) for one in critical]
    return all(figures is not None and rows.add(figures) for figures in stated)


def _are_weights(path_weights: list[float], paths: int) -> bool:
    values = np.array(path_weights)
    return len(values) == paths and abs(float(values.sum()) - 1) <= 1e-12


def missing_bytes(given: ChunkProblem, witness: dict[str, Any]) -> float:
    """Bytes that a witness proves to lack in every division, infinite if no chunk fits; minus infinity for no proof."""
    try:
        parsed = _Missing.model_validate(witness).root
    except ValidationError:
        return -np.inf
    if isinstance(parsed, _MissingByCapacity):
        cases = linear_paths(given)
        if cases and all(case.is_refuted(np.inf, parsed.missing - 1) for case in cases):
            return float(parsed.missing)
        return float(parsed.missing) if is_too_small(DeviceChain(given), parsed.missing - 1) else -np.inf
    if isinstance(parsed, _MissingByListing):
        missing = stated_missing(given) if _is_listed(given, parsed) else 0.0
        return missing if missing > 0 else -np.inf
    rows, memory_prices = MasterRows(given), np.array(parsed.prices)
    if len(memory_prices) != len(rows.memory_rows):
        return -np.inf
    missing = memory_dual(rows, memory_prices)[0]
    if missing == np.inf:
        # Prices of any size make costs infinite, so none are used to show that no division has chunks that fit alone.
        missing = memory_dual(rows, np.zeros_like(memory_prices))[0]
    return missing if missing > 0 else -np.inf


def _is_listed(given: ChunkProblem, parsed: _ByListing | _MissingByListing) -> bool:
    """Whether divisions are listed one by one, as many as a witness says."""
    return 0 < number_of(given) == parsed.stated


def _figures(given: ChunkProblem, stated: _Critical) -> MeanFigures | None:
    """The numbers that a witness states for a path; None where there are not as many as the candidate has."""
    chunks, devices = given.num_chunks, len(given.counts)
    lengths = [len(stated.passes), *map(len, stated.passes), len(stated.transfers), len(stated.after)]
    if lengths != [3, chunks, chunks, chunks, chunks - 1, devices] or stated.most >= devices:
        return None
    passes, transfers = np.array(stated.passes, np.int64), np.array(stated.transfers, np.int64)
    return MeanFigures(passes, transfers, np.array(stated.after, np.int64), stated.most)
