"""Plans to launch, drawn at random: degrees, schedule, recompute, sharding, division and placement."""

from typing import Any

import numpy as np

from taut.errors import TautError
from taut.exports.job import Job
from tests.support.launches import (
    divided,
    in_order,
    launched,
    launched_on,
    model_with_experts,
    shuffled,
    small_cluster,
)

PLANS = 60


def drawn(stack: str, schedules: list[str], recompute: list[str], count: int = PLANS) -> list[Job]:
    """Plans of equal layers, with mixed devices in every third."""
    rng = np.random.default_rng(11)
    found: list[Job] = []
    while len(found) < count:
        fix = _choices(rng, schedules, recompute)
        if fix is None or ("cp" in fix and stack == "deepspeed"):
            continue
        try:
            job = launched(stack=stack, types=1 + (len(found) % 3 == 0), hosts=("alpha", "beta"), **fix)
        except TautError:
            continue
        found.append(_changed(job, rng))
    return found


def drawn_with_experts(count: int = PLANS // 2) -> list[Job]:
    """Plans of layers with eight experts, some of them over expert ranks, all with sharding drawn too."""
    rng = np.random.default_rng(23)
    found: list[Job] = []
    while len(found) < count:
        fix = _choices(rng, ["1f1b", "interleaved-1f1b"], ["none", "selective", "full"])
        if fix is None:
            continue
        fix |= {"ep": int(rng.choice([1, 2, 4, 8])), "zero": int(rng.choice([0, 1, 2, 3]))}
        if fix["ep"] > 1:
            fix["etp"] = int(rng.choice([1, fix["tp"]]))
        try:
            job = launched_on(small_cluster(), model_with_experts(8), **fix)
        except TautError:
            continue
        found.append(_changed(job, rng))
    return found


def _choices(rng: np.random.Generator, schedules: list[str], recompute: list[str]) -> dict[str, Any] | None:
    """What eight devices can hold, or nothing."""
    pp, tp, cp = (int(size) for size in rng.choice([1, 2, 4], 3))
    if pp * tp * cp > 8:
        return None
    fix = {"pp": pp, "tp": tp, "micro_batch": int(rng.choice([1, 2])), "recompute": str(rng.choice(recompute))}
    schedule = str(rng.choice(schedules)) if pp > 1 else "1f1b"
    return fix | {"schedule": schedule} | ({"cp": cp} if cp > 1 else {})


def _changed(job: Job, rng: np.random.Generator) -> Job:
    """A plan with other layers of its chunks, in order or placed at random."""
    chunks, layers = len(job.layers), sum(job.layers)
    if chunks <= layers:
        cuts = np.sort(rng.choice(np.arange(1, layers), chunks - 1, replace=False)).tolist()
        job = divided(job, tuple(np.diff([0, *cuts, layers]).tolist()))
    return shuffled(job, int(rng.integers(1000))) if rng.random() < 0.5 else in_order(job)
