"""
Choices that nothing prices, or that the framework of the plan has no part of, refused before anything is priced.

Schedules priced by their order, copies of several replicas, context and expert ranks, empty ends and uneven batches
each need a latency model that prices them; some a memory that is a sum of terms, and a stack that has them.
"""

from taut.data.memory import MemoryModel
from taut.data.model import ModelSpec
from taut.data.stack import Stack
from taut.data.suggest import one_of
from taut.errors import FieldError
from taut.formulations.mechanisms.latency_models import LATENCY_MODELS
from taut.formulations.schedules.plan_orders import ORDER_PRICED
from taut.formulations.space import StrategySpace
from taut.planning.request import PlanRequest


def check_choices(
    request: PlanRequest, model: ModelSpec, stack: Stack, space: StrategySpace, memory: MemoryModel
) -> None:
    """
    Refuse what the space asks for where the latency model, the memory model or the stack does not know it.

    Raises ``FieldError``: with the option that asks for it.
    """
    _check_orders(request, space, memory)
    _check_copies(request, space, memory)
    _check_ranks(request, model, stack, memory)


def _check_orders(request: PlanRequest, space: StrategySpace, memory: MemoryModel) -> None:
    """Refuse schedules that are priced by their order where nothing prices them."""
    ordered = [kind for kind in space.schedules if kind in ORDER_PRICED]
    if not ordered:
        return
    if not request.latency.prices_orders:
        expected = " or ".join(model.name for model in LATENCY_MODELS.values() if model.prices_orders)
        raise _unpriced(request, ordered[0], expected)
    _check_memory(memory, ordered[0], "a sum of terms")


def _check_mechanism(request: PlanRequest, memory: MemoryModel, words: str) -> None:
    """Refuse a mechanism that the latency model does not price, or whose memory a network does not know."""
    if not request.latency.prices_mechanisms:
        raise _unpriced(request, words, "step")
    _check_memory(memory, words, "terms")


def _unpriced(request: PlanRequest, words: str, expected: str) -> FieldError:
    return FieldError("latency_model", request.latency_model, f"does not price {words}, expected {expected}")


def _check_memory(memory: MemoryModel, words: str, expected: str) -> None:
    if not memory.is_sum_of_terms:
        raise FieldError("memory_model", memory.name, f"this network does not know {words}, expected {expected}")


def _check_copies(request: PlanRequest, space: StrategySpace, memory: MemoryModel) -> None:
    """Refuse groups of replicas with a copy each where nothing prices them, and where nothing is sharded."""
    if "dp_shard" not in space.fixed:
        return
    _check_mechanism(request, memory, "dp_shard")
    if space.fixed.get("zero") == 0:
        raise FieldError("fix", "zero=0", "shares nothing, expected 1, 2 or 3 with dp_shard")


def _check_ranks(request: PlanRequest, model: ModelSpec, stack: Stack, memory: MemoryModel) -> None:
    """Refuse context and expert ranks that are asked for where nothing prices them or the stack has none."""
    if request.fix.get("ep", 1) > 1:
        _check_experts(request, model, stack, memory)
    for name in ("empty_ends", "uneven_batch"):
        if request.fix.get(name) and not (getattr(stack, name) and request.latency.prices_mechanisms):
            reason = f"no part of {stack.name} under {request.latency_model}, expected false, or stack any and step"
            raise FieldError("fix", f"{name}=true", reason)
    kind = request.fix.get("cp_comm")
    if kind is not None and kind not in stack.cp_comm:
        reason = f"not in {stack.name}, expected {one_of(str(kind), stack.cp_comm)}, or stack any"
        raise FieldError("fix", f"cp_comm={kind}", reason)
    field, asked = ("fix", request.fix["cp"]) if "cp" in request.fix else ("max_cp", request.max_cp or 1)
    if asked == 1:
        return
    _check_mechanism(request, memory, "context ranks")
    if not stack.context_parallel:
        shown = f"cp={asked}" if field == "fix" else str(asked)
        raise FieldError(field, shown, f"not in {stack.name}, expected 1, or stack any")


def _check_experts(request: PlanRequest, model: ModelSpec, stack: Stack, memory: MemoryModel) -> None:
    """Refuse expert ranks where the model has no experts, nothing prices them, or the stack has none."""
    shown = f"ep={request.fix['ep']}"
    if not model.has_experts:
        raise FieldError("fix", shown, f"{model.name} has no experts, expected 1")
    if any(count % request.fix["ep"] for count in model.expert_counts):
        counts = ", ".join(map(str, sorted(model.expert_counts)))
        raise FieldError("fix", shown, f"expected a divisor of the {counts} experts of a layer")
    _check_mechanism(request, memory, "expert ranks")
    if not stack.expert_parallel:
        raise FieldError("fix", shown, f"not in {stack.name}, expected 1, or stack any")
    if not stack.expert_tensor and (wide := request.fix.get("etp", 1)) > 1:
        raise FieldError("fix", f"etp={wide}", f"not in {stack.name} with {shown}, expected 1, or stack any")
    if stack.expert_zero is not None and (zero := request.fix.get("zero")) not in (None, *stack.expert_zero):
        expected = ", ".join(map(str, stack.expert_zero))
        raise FieldError("fix", f"zero={zero}", f"not in {stack.name} with {shown}, expected one of {expected}")
