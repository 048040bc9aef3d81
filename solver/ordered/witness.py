r"""
What proves the bound on the divisions of an order, as plain values, and its check.

(1) *Seconds.* The limit, the shares of the devices' paths and of critical paths, the latter with the divisions whose
    critical paths are meant, and the prices of memory: (1) and (3) of ``taut.solver.ordered.dual`` hold for any shares
    that are not negative and sum to one, and for any prices that are not negative.
    Without prices the devices' options are meant, (4) there. The limit alone stands for what devices can take within
    it (``taut.solver.ordered.capacity``).
(2) *Memory.* Prices alone, by (2) there, or the bytes that every device lacks, by what it can take.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from taut.formulations.chunk_division import ChunkProblem
from taut.solver.ordered.capacity import lacks, proves
from taut.solver.ordered.devices import Devices
from taut.solver.ordered.division import Division
from taut.solver.ordered.dual import ROUNDING, dual_value, missing_by
from taut.solver.ordered.rows import Rows

Floats = NDArray[np.float64]


def stated(rows: Rows, shares: Floats, prices: Floats, limit: float) -> dict[str, Any]:
    """Shares, prices and limit as plain values; critical paths that have no share are left out."""
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
        "limit_s": limit,
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
    """Seconds that a witness proves by (1), minus infinity where it proves nothing."""
    if set(witness) == {"limit_s"}:
        seconds = witness["limit_s"]
        proven = isinstance(seconds, float) and 0 < seconds < np.inf and proves(given, seconds)
        return seconds * (1 - ROUNDING) if proven else -np.inf
    try:
        parsed = _Witness.model_validate(witness)
    except ValidationError:
        return -np.inf
    devices = None if parsed.prices else Devices(given, parsed.limit_s)
    if devices is not None and not devices.known:
        return -np.inf
    rows = Rows(given, devices)
    divisions = [_division(given, critical) for critical in parsed.critical]
    for division in divisions:
        if division is None or not rows.add(division):
            return -np.inf
    shares = np.array([*parsed.devices, *(critical.share for critical in parsed.critical)])
    prices = np.array(parsed.prices)
    wrong = len(shares) != len(rows.paths) or len(prices) != len(rows.counts)
    if wrong or (shares < 0).any() or (prices < 0).any() or abs(shares.sum() - 1) > 1e-12:
        return -np.inf
    value = dual_value(rows, shares, prices, parsed.limit_s)[0]
    return float(min(value + given.constant, parsed.limit_s) * (1 - ROUNDING))


def missing_bytes(given: ChunkProblem, witness: dict[str, Any]) -> float:
    """Bytes that some device lacks in every division, by (2); 0 or less where it proves nothing."""
    if set(witness) - {"missing_kib"} == {"missing"}:
        missing = witness["missing"]
        proven = isinstance(missing, int) and missing > 0 and lacks(given, missing - 1)
        return float(missing) if proven else -np.inf
    prices = np.array(witness.get("prices", []), dtype=float)
    rows = Rows(given)
    if prices.shape != (len(rows.counts),) or not np.isfinite(prices).all() or (prices < 0).any():
        return -np.inf
    return missing_by(rows, prices / max(prices.sum(), 1e-300))[0]


def _division(given: ChunkProblem, critical: _Critical) -> Division | None:
    """A witness's division; None where it is none."""
    ends, recompute = np.array(critical.ends, dtype=np.int64), np.array(critical.recompute, dtype=np.int64)
    if ends.shape != (given.num_chunks,) or recompute.shape != ends.shape or ends[-1] != given.num_layers:
        return None
    division = Division(ends, recompute)
    if (ends <= division.firsts).any() or (recompute < 0).any() or (recompute >= given.passes.shape[1]).any():
        return None
    return division if np.isfinite(given.passes[0, recompute, division.firsts, ends]).all() else None
