r"""
What proves the bound on the divisions of an order, as plain values, and its check.

Critical paths are given by the divisions whose paths are meant. One of three proves seconds:

(1) the limit T alone: no division is within what devices can take in T (``taut.solver.order_priced.capacity``);
(2) the limit and a tree of branches (``taut.solver.order_priced.branch_and_bound``), with seconds as in (1) or shares
    of paths at its leaves, which hold for any shares that are not negative and sum to one;
(3) the limit, shares of paths and prices of memory, (1) and (3) of ``taut.solver.order_priced.lagrangian``, which hold
    for any such shares and any prices that are not negative.

Missing memory is proven by prices, (2) there, or (4) by bytes with which, on every device, they still take too little.
"""

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, RootModel, ValidationError

from taut.data.arrays import Floats
from taut.data.units import MOST_BYTES
from taut.formulations.order_division import ChunkProblem
from taut.formulations.strategy import Division
from taut.solver.order_priced.capacity import Capacity, lacks, proves
from taut.solver.order_priced.device_chain import Devices
from taut.solver.order_priced.division import ROUNDING
from taut.solver.order_priced.lagrangian import dual_value, least_within, missing_by
from taut.solver.order_priced.rows import Rows

Number = Annotated[int, Field(ge=0, le=2**31)]
Amount = Annotated[float, Field(ge=0, le=1e30)]
Limit = Annotated[float, Field(gt=0, le=1e30)]
"""Far beyond what any proof needs, and far from what would overflow."""


def stated(rows: Rows, shares: Floats, prices: Floats, limit: float) -> dict[str, Any]:
    """Shares, prices and limit as plain values; critical paths that have no share are left out."""
    devices, shares = len(rows.given.counts), np.pad(shares, (0, len(rows.paths) - len(shares)))
    used = [k for k in range(devices, len(rows.paths)) if shares[k] > 0]
    return {
        "devices": shares[:devices].tolist(),
        "critical": [
            {"share": float(shares[k]), "ends": source.ends.tolist(), "recompute": source.recompute_index.tolist()}
            for k in used
            if (source := rows.sources[k]) is not None
        ],
        "prices": prices.tolist(),
        "limit_s": limit,
    }


class _Plain(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class _Meant(_Plain):
    ends: list[Number]
    recompute: list[Number]


class _Shared(_Meant):
    share: Amount


class _ByPrices(_Plain):
    devices: list[Amount]
    critical: list[_Shared]
    prices: list[Amount]
    limit_s: Limit


class _Leaf(_Plain):
    shares: list[Amount]


class _Taken(_Plain):
    seconds: Limit


class _Split(_Plain):
    chunk: Number
    layers: Number
    few: "_Leaf | _Taken | _Split"
    many: "_Leaf | _Taken | _Split"


class _ByBranches(_Plain):
    limit_s: Limit
    critical: list[_Meant]
    tree: _Leaf | _Taken | _Split


class _ByCapacity(_Plain):
    limit_s: Limit


class _MissingByPrices(_Plain):
    prices: list[Amount]
    missing_kib: int | None = None


class _MissingByCapacity(_Plain):
    missing: Annotated[int, Field(gt=0, le=MOST_BYTES)]
    missing_kib: int | None = None


class _Missing(RootModel[_MissingByCapacity | _MissingByPrices]):
    pass


class _Witness(RootModel[_ByCapacity | _ByBranches | _ByPrices]):
    pass


def rederived(given: ChunkProblem, witness: dict[str, Any]) -> float:
    """Seconds that a witness proves, minus infinity where it proves nothing."""
    try:
        parsed = _Witness.model_validate(witness).root
    except (ValidationError, RecursionError):
        return -np.inf
    if isinstance(parsed, _ByCapacity):
        value = parsed.limit_s if proves(given, parsed.limit_s) else -np.inf
    elif isinstance(parsed, _ByBranches):
        value = _by_branches(given, parsed)
    else:
        value = _by_prices(given, parsed)
    return float(min(value, parsed.limit_s) * (1 - ROUNDING))


def _by_branches(given: ChunkProblem, parsed: _ByBranches) -> float:
    """Seconds by (2)."""
    devices, rows = Devices(given, parsed.limit_s), Rows(given, priced=False)
    if not devices.known or not _add(rows, parsed.critical):
        return -np.inf
    least, branches = np.inf, [(devices, parsed.tree)]
    while branches:
        devices, node = branches.pop()
        if isinstance(node, _Split):
            if not node.chunk < given.num_chunks:
                return -np.inf
            few, many = devices.split(node.chunk, node.layers)
            branches += [(few, node.few), (many, node.many)]
        elif isinstance(node, _Taken):
            proven = node.seconds <= parsed.limit_s and Capacity(devices).excludes(node.seconds)
            least = min(least, node.seconds - given.constant if proven else -np.inf)
        elif not _are_shares(node.shares, len(rows.paths)):
            return -np.inf
        else:
            least = min(least, devices.least(rows.weights(np.array(node.shares), np.zeros(0)))[0])
    return least + given.constant


def _by_prices(given: ChunkProblem, parsed: _ByPrices) -> float:
    """Seconds by (3)."""
    rows = Rows(given)
    shares = [*parsed.devices, *(critical.share for critical in parsed.critical)]
    prices = np.array(parsed.prices)
    if not _add(rows, parsed.critical) or not _are_shares(shares, len(rows.paths)):
        return -np.inf
    if len(prices) != len(rows.counts):
        return -np.inf
    value = dual_value(rows, np.array(shares), prices, least_within(given, parsed.limit_s))[0]
    return value + given.constant


def _add(rows: Rows, meant: Sequence[_Meant]) -> bool:
    """Add critical paths; False where one belongs to no division, or to one before."""
    divisions = [_division(rows.given, one) for one in meant]
    return all(division is not None and rows.add(division) for division in divisions)


def _are_shares(shares: list[float], paths: int) -> bool:
    values = np.array(shares)
    return len(values) == paths and abs(float(values.sum()) - 1) <= 1e-12


def missing_bytes(given: ChunkProblem, witness: dict[str, Any]) -> float:
    """Bytes that some device lacks in every division; minus infinity where the witness proves nothing."""
    try:
        parsed = _Missing.model_validate(witness).root
    except ValidationError:
        return -np.inf
    if isinstance(parsed, _MissingByCapacity):
        return float(parsed.missing) if lacks(Devices(given), parsed.missing - 1) else -np.inf
    rows, prices = Rows(given), np.array(parsed.prices)
    if len(prices) != len(rows.counts):
        return -np.inf
    missing = missing_by(rows, prices)[0]
    return missing if 0 < missing < np.inf else -np.inf


def _division(given: ChunkProblem, meant: _Meant) -> Division | None:
    """A witness's division; None where it is none."""
    ends, recompute = np.array(meant.ends, dtype=np.int64), np.array(meant.recompute, dtype=np.int64)
    if ends.shape != (given.num_chunks,) or recompute.shape != ends.shape or ends[-1] != given.num_layers:
        return None
    if (np.diff(ends, prepend=0) <= 0).any() or (recompute >= given.passes.shape[1]).any():
        return None
    division = Division.of_ends(ends, recompute)
    return division if np.isfinite(given.passes[0, recompute, division.starts, ends]).all() else None
