"""
Expert ranks: devices that have different experts of a layer, and exchange tokens.

(11) If ep = 1, tensor ranks split all experts. Candidates with ep > 1 expert ranks exist under these conditions:

    - ep is at most ``max_ep`` and divides the experts of every layer that has some. An expert has one tensor rank, or
      all tp of them: etp = 1 or tp, and etp = 1 unless ``expert_tensor``;
    - expert groups and blocks (``taut.formulations.degrees`` (1)) fit the nodes as tensor groups do
      (``taut.formulations.space`` (3)), and tensor groups lie in a node;
    - several tensor ranks have sequence parallelism;
    - ZeRO is 1, or 0 if 1 is not in the space or 0 is fixed, or 2 or 3. Under 2 and 3 a copy holds whole expert groups
      (``taut.formulations.degrees`` (3)), and exchanges do not overlap, (14). If ``expert_zero`` is given, it lists the
      allowed stages;
    - the latency model is ``step``, and memory is a sum of terms.
(14) With ``dispatch.overlap`` the exchanges of one micro-batch run during the passes of another, in candidates whose
    passes alternate between micro-batches: interleaved 1F1B, and a single stage with several micro-batches. All layers
    with experts are then equal, and recompute is neither full nor of the module ``moe``.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from taut.data.costs import Recompute
from taut.data.model import ModelSpec
from taut.errors import FieldError
from taut.formulations.degrees import expert_degrees
from taut.formulations.fields import Asked, Compared, Field, Fix, Runs, Sentence, Variants, Words, divides_devices
from taut.formulations.mechanisms.recompute import recompute_of, suits

if TYPE_CHECKING:
    from taut.formulations.space import Candidate, StrategySpace, Workload

RULE = (
    "etp is 1 or tp, and tp where ep=1; tp divides ep*etp; of ep*etp and tp*cp one divides the other, and both divide "
    "the node size or are multiples of it"
)


def _expert_words(strategy: Any, space: Mapping[str, Any]) -> str:
    """Expert ranks, with the tensor ranks of an expert where there are several; empty for one."""
    wide = f" of {strategy.etp} tensor ranks each" if strategy.etp > 1 else ""
    return f"experts {strategy.ep}{wide}" if strategy.ep > 1 else ""


def check_experts(asked: Asked) -> None:
    """Refuse expert ranks where the model has no experts, nothing prices them, or the stack has none."""
    fix, model, stack = asked.fix, asked.model, asked.stack
    if asked.max_ep is not None and fix.get("ep", 1) > asked.max_ep:
        raise FieldError("fix", f"ep={fix['ep']}", f"expected at most max_ep, {asked.max_ep}")
    field = "fix" if fix.get("ep", 1) > 1 else "max_ep"
    ranks = fix["ep"] if field == "fix" else asked.max_ep or 1
    if ranks == 1:
        return
    shown = f"ep={ranks}" if field == "fix" else str(ranks)
    if not model.has_experts:
        raise FieldError(field, shown, f"{model.name} has no experts, expected 1")
    if field == "fix" and any(count % fix["ep"] for count in model.expert_counts):
        counts = ", ".join(map(str, sorted(model.expert_counts)))
        raise FieldError("fix", shown, f"expected a divisor of the {counts} experts of a layer")
    asked.check_mechanism("expert ranks")
    if not stack.expert_parallel:
        raise FieldError(field, shown, f"not in {stack.name}, expected 1, or stack any")
    if not stack.expert_tensor and (wide := fix.get("etp", 1)) > 1:
        raise FieldError("fix", f"etp={wide}", f"not in {stack.name} with {shown}, expected 1, or stack any")
    if stack.expert_zero is not None and (zero := fix.get("zero")) not in (None, *stack.expert_zero):
        expected = ", ".join(map(str, stack.expert_zero))
        raise FieldError("fix", f"zero={zero}", f"not in {stack.name} with {shown}, expected one of {expected}")


def with_expert_ranks(workload: "Workload", candidate: "Candidate") -> Iterator["Candidate"]:
    """The candidate with one expert rank, and with each number of several, (11)."""
    yield candidate
    space, model = workload.space, workload.model
    if space.max_ep == 1 or candidate.pipelines_by_type or candidate.sequence_parallel != (candidate.tp > 1):
        return
    if candidate.zero not in _zero_stages(space, candidate):
        return
    known, key = workload.expert_blocks, (candidate.block, candidate.dp * candidate.width)
    if key not in known:
        known[key] = list(expert_degrees(model, workload.cluster, *key))
    for shape in known[key]:
        if shape.ep <= space.max_ep and (shape.etp == 1 or space.expert_tensor):
            several = replace(candidate, ep=shape.ep, etp=shape.etp)
            kept = recompute_beside_overlap(space, model, several, recompute_of(space, candidate.schedule))
            hidden = several.zero >= 2 and hides_exchange(space, model, several)
            if not hidden and shape.divides_copy(candidate.dp_shard) and suits(candidate, kept):
                yield several


def _zero_stages(space: "StrategySpace", candidate: "Candidate") -> list[int]:
    """The ZeRO stages beside several expert ranks: 1 takes less than 0 in all, (11)."""
    stages = [
        zero for zero in space.zero_stages(candidate.pp, candidate.dp_cp) if space.fixed.get("zero", zero) == zero
    ]
    if space.expert_zero is not None:
        stages = [zero for zero in stages if zero in space.expert_zero]
    return [zero for zero in stages if zero or 1 not in stages]


EXPERT_RANKS = Field(
    variants=Variants(6, with_expert_ranks),
    check=check_experts,
    launched=True,
    meaning="Expert ranks, over which the experts of a layer are divided.",
    seldom=True,
    grouped=True,
    fix=Fix(5, int, divides_devices),
    words=Words(4, lambda candidate: f"ep={candidate.ep}" if candidate.ep > 1 else "", short=4),
    sentence=Sentence(0, 4, _expert_words),
    compared=Compared(10, change=4, frees=("etp",), shown=False),
    runs=Runs("ep", 6, lambda value: f"{value} expert rank{'s' * (value > 1)}"),
    rule=lambda space: RULE,
)


EXPERT_TENSOR_RANKS = Field(
    launched=True,
    meaning="Tensor ranks that share an expert; 0 where ``ep`` is 1, which stands for ``tp``.",
    seldom=True,
    fix=Fix(6, int, divides_devices, lambda candidate, fixed: candidate.block.etp),
    words=Words(5, lambda candidate: f"etp={candidate.etp}" if candidate.ep > 1 else ""),
    compared=Compared(11, held=False, shown=False),
    runs=Runs(
        "etp",
        7,
        lambda value: f"{value} tensor rank{'s' * (value > 1)} an expert",
        lambda candidate: candidate.etp if candidate.ep > 1 else None,
    ),
    rule=lambda space: RULE,
)


def hides_exchange(space: "StrategySpace", model: ModelSpec, candidate: "Candidate") -> bool:
    """Whether exchanges of a candidate overlap another micro-batch, (14)."""
    alternate = candidate.schedule == "interleaved-1f1b" or (candidate.pp == 1 and candidate.num_micro_batches > 1)
    return space.dispatch.overlap and candidate.ep > 1 and alternate and model.has_alike_experts


def recompute_beside_overlap(
    space: "StrategySpace", model: ModelSpec, candidate: "Candidate", every: tuple[Recompute, ...]
) -> tuple[Recompute, ...]:
    """Recompute that goes with a candidate's overlap of exchanges, (14)."""
    if not hides_exchange(space, model, candidate):
        return every
    moe = "moe" in space.recompute_modules
    return tuple(name for name in every if name == "none" or (name == "selective" and not moe))
