"""
NVIDIA's written rules: degrees by size of the model, by Megatron-Bridge's skill on parallelism (revision 067f987).

A dense model's row of the rules has ranges of tensor and pipeline degrees, a model with experts one set of degrees. All
degrees of a range are planned with, and the fastest stands for the rule. The rules leave micro-batch, chunks, recompute
and sharding open, so the plan chooses these, as it does in the plan without fixed degrees. Only the degrees differ.
"""

from itertools import product

import taut
from benchmarks.peers.frame import Checkout, PeerRow, plan_or_none, timed, words_of

RULES: tuple[tuple[str, str, str, int, dict[str, tuple[int, ...]]], ...] = (
    ("1-10B", "llama3-8b", "dgx-h100:2", 128, {"tp": (2, 4), "pp": (1,), "cp": (1,)}),
    ("10-70B", "llama2-13b", "dgx-h100:4", 256, {"tp": (4, 8), "pp": (2, 4), "cp": (1,)}),
    ("70-175B", "llama3-70b", "dgx-h100:8", 128, {"tp": (8,), "pp": (4, 8), "cp": (1,)}),
    ("175-500B", "llama3-405b", "dgx-h100:64", 512, {"tp": (8,), "pp": (8, 16), "cp": (2,)}),
    ("Qwen3 30B-A3B", "qwen3-30b-a3b", "dgx-h100:4", 512, {"tp": (4,), "pp": (2,), "ep": (4,)}),
    ("DeepSeek-V3", "deepseek-v3", "dgx-h100:128", 8192, {"tp": (2,), "pp": (16,), "ep": (64,)}),
)
"""Row of the rules, model, cluster, global batch, degrees."""


def rows(given: Checkout) -> list[PeerRow]:
    """A row for each rule."""
    return [row(given.seconds, *rule) for rule in RULES if given.case in rule[1]]


def row(limit: int, rule: str, model: str, cluster: str, batch: int, degrees: dict[str, tuple[int, ...]]) -> PeerRow:
    """The fastest plan of a rule's degrees beside the best plan."""

    def of_rule() -> list[taut.Plan]:
        sets = [dict(zip(degrees, values, strict=True)) for values in product(*degrees.values())]
        found = [plan_or_none(model, cluster, global_batch=batch, fix=fix, time_limit=limit) for fix in sets]
        return [plan for plan in found if plan is not None]

    best, ours = timed(lambda: taut.plan(model, cluster, global_batch=batch, time_limit=limit))
    plans, theirs = timed(of_rule)
    quickest = min(plans, key=lambda plan: plan.step_time_s) if plans else None
    return PeerRow(
        case=f"{rule}: {model} on {cluster}, batch {batch}",
        theirs="nothing fits" if quickest is None else words_of(quickest),
        predicted_s=None,
        their_cpu_s=theirs,
        priced_s=None if quickest is None else quickest.step_time_s,
        ours=words_of(best),
        best_s=best.step_time_s,
        bound_s=best.lower_bound_s,
        our_cpu_s=ours,
    )
