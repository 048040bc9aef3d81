"""
Plans beyond the runs of a calibration, as the reference evaluator tells them.

A calibration with ``seen`` lists the least and the most of every number of its runs, and all kinds that they had. With
D devices, holders of the same weights h, and c copies of them, a plan has of these

(1) micro-batch, tensor, context, expert and pipeline ranks, chunks a device, shares on hosts, schedule and evenness of
    the batch as its candidate states them; tensor ranks of an expert where ep > 1; the ZeRO stage where h > 1; copies
    where c > 1;
(2) the recompute of every stage;
(3) D, the longest sequence, the number format, and whether the model has experts, as the calibration's runs had or not.

It is beyond the runs where a number lies outside, or a kind is not listed.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from taut.data.seen import Seen
from taut.solver.certificate.reference.space import Case, Choice

AS_STATED = (
    *("micro_batch", "tp", "cp", "ep", "pp", "vpp", "schedule"),
    *("uneven_batch", "optimizer_offload", "activation_offload"),
)


def of_choice(choice: Choice) -> Iterator[tuple[str, Any]]:
    """What a candidate has of (1), and its recompute where all stages share it."""
    for name in AS_STATED:
        yield name, getattr(choice, name)
    if choice.ep > 1:
        yield "etp", choice.etp
    if choice.holders > 1:
        yield "zero", choice.zero
    yield "copies", choice.copies > 1
    if choice.uniform_recompute:
        yield "recompute", choice.uniform_recompute


def was_seen(seen: Seen, name: str, value: Any) -> bool:
    """Whether runs had a value, or values on both sides of it."""
    known = getattr(seen, name)
    return bool(min(known) <= value <= max(known)) if isinstance(known, tuple) else value in known


def is_like_runs(choice: Choice, seen: Seen) -> bool:
    """Whether nothing of a candidate is beyond the runs."""
    return all(was_seen(seen, name, value) for name, value in of_choice(choice))


def added_seconds(case: Case, choice: Choice) -> float:
    """Seconds that a quantile adds for n fields of a candidate beyond the runs: those of one, times root n."""
    calibration = case.calibration
    if calibration is None or calibration.seen is None:
        return 0.0
    outside = [name for name, value in of_choice(choice) if not was_seen(calibration.seen, name, value)]
    return calibration.beyond_s * math.sqrt(len(outside))


def in_space(every: Iterable[Choice], space: Mapping[str, Any]) -> list[Choice]:
    """The candidates that a space keeps for what it says of runs, all without."""
    if space.get("seen") is None:
        return list(every)
    seen = Seen.parse(space["seen"], "space.seen")
    return [choice for choice in every if is_like_runs(choice, seen)]


def beyond(case: Case, choice: Choice, recompute: Iterable[str]) -> list[tuple[str, Any]]:
    """Fields of a plan beyond the runs with their values, (1) to (3)."""
    calibration = case.calibration
    if calibration is None or calibration.seen is None:
        return []
    found = {*of_choice(choice), *(("recompute", kind) for kind in recompute)}
    found |= {("n_gpus", case.cluster.num_devices), ("precision", case.memory.precision)}
    found |= {("seq", max(block.seq for block in case.model.blocks))}
    outside = [each for each in found if not was_seen(calibration.seen, *each)]
    experts = any(block.experts for block in case.model.blocks)
    return outside + [("experts", experts)] * (experts != calibration.experts)
