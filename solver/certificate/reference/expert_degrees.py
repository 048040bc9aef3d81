"""Expert ranks beside a candidate's other degrees: ``taut.solver.certificate.reference.candidates`` (9) and (11)."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from taut.data.costs import Key
from taut.solver.certificate.reference.space import Case, Choice


def expert_ranks(case: Case, choice: Choice) -> Iterator[tuple[int, int]]:
    """Expert ranks and their tensor ranks, (11), which are 0 for those of the replica."""
    yield 1, 0
    numbers = [layer.experts.num_experts for layer in case.model.blocks if layer.experts]
    tp, replica, sizes = choice.tp, choice.tp * choice.cp, {node.gpus_per_node for node in case.cluster.nodes}
    priced = case.latency_model == "step" and case.memory.network is None and _beside_experts(case, choice)
    if not numbers or not priced or choice.sequence_parallel != (tp > 1) or any(size % tp for size in sizes):
        return
    shared = {1, tp} if case.space.get("expert_tensor", True) else {1}
    for ep, etp in product(range(2, case.space.get("max_ep", 1) + 1), shared):
        held = ep * etp
        nested = held % tp == 0 and (held % replica == 0 or replica % held == 0) and replica * choice.dp % held == 0
        fits = nested and all(
            all(size % count == 0 for size in sizes) or (len(sizes) == 1 and count % min(sizes) == 0)
            for count in (held, max(held, replica))
        )
        fits = fits and not any(count % ep for count in numbers) and _expert_costs(case, choice, ep, etp)
        fits = fits and choice.copy_of * replica % (held * choice.cp) == 0
        found = replace(choice, ep=ep, etp=etp)
        if fits and case.recomputes(found) and not (choice.zero in (2, 3) and case.hides(found)):
            yield ep, etp


def _beside_experts(case: Case, choice: Choice) -> bool:
    """Whether a candidate's ZeRO stage goes with expert ranks: ZeRO-0 not where 1 is there as well."""
    named, wanted = case.space.get("expert_zero"), case.space["fixed"].get("zero")
    stages = [0] if choice.holders == 1 else zero_stages(case, choice.pp)
    stages = [zero for zero in stages if wanted in (None, zero) and (named is None or zero in named)]
    whole = choice.zero > 0 or 1 not in stages
    return choice.zero in stages and whole


def _expert_costs(case: Case, choice: Choice, ep: int, etp: int) -> bool:
    """Whether the layers with experts have a cost, (3), at some expert ranks."""
    for device, layer in product(case.cluster.devices, case.model.blocks):
        key = Key(device, layer.kind, choice.tp, 0, layer.seq, "none", choice.cp, ep, etp)
        measured = case.costs.micro_batches.get(key, [])
        if layer.experts and not (measured and measured[0] <= choice.micro_batch <= measured[-1]):
            return False
    return True


def zero_stages(case: Case, pp: int) -> list[int]:
    """ZeRO stages of the space at a pipeline degree, (9)."""
    piped = case.space.get("pipeline_zero")
    return [zero for zero in case.space["zero"] if pp == 1 or piped is None or zero in piped]
