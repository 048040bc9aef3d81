"""What a request's shares of optimizer states and activations on hosts make of its space."""

from collections.abc import Iterable

from taut.data.analytic.offload_modules import conflict
from taut.data.catalog.builtin import catalog_memory_models
from taut.data.costs import OFFLOAD_MODULES, OffloadModule
from taut.data.memory import MemoryModel
from taut.data.model import ModelSpec
from taut.data.stack import SCHEDULES, Stack
from taut.errors import FieldError
from taut.formulations.mechanisms.offload import SHARES, ActivationOffload, OptimizerOffload
from taut.formulations.schedules.orders import SPLIT
from taut.formulations.space import StrategySpace
from taut.planning.request import PlanRequest

ACTIVATION_SHARE = "activation_offload_fraction"
"""The option that asks for shares of activations on hosts."""
LAYER_TOLERANCE = 1e-3
"""Layers by which a stated share may be off a whole number of them: shares are written with six digits or so."""


def states_of_all(request: PlanRequest) -> dict[str, float | None]:
    """One share of the optimizer states for all candidates, as the memory model states it; 0 where they differ."""
    asked = request.optimizer_offload_fraction
    return {"optimizer_offload_fraction": 0.0 if isinstance(asked, tuple) else asked}


STATES = "weight_remainders", "half_moments"
"""Fields of a memory model that say what an optimizer keeps of its weights and moments."""


def states_alone(given: MemoryModel | None) -> dict[str, bool]:
    """What a memory model says of states, where it is a built-in one in all else; the margin of devices then holds."""
    usual = catalog_memory_models().get(given.name) if given is not None else None
    if given is None or usual is None or given == usual:
        return {}
    alike = given.model_copy(update={name: getattr(usual, name) for name in STATES}) == usual
    return {name: getattr(given, name) for name in STATES} if alike else {}


def with_whole_states(request: PlanRequest, memory: MemoryModel) -> MemoryModel:
    """A stack's memory model as it is beside states on hosts, and under Muon, which are fp32 and whole."""
    if request.optimizer == "muon":
        return memory.model_copy(update={"weight_remainders": False, "half_moments": False})
    return memory.model_copy(update={"weight_remainders": False}) if request.optimizer_offload_fraction else memory


def beside_offload(request: PlanRequest, space: StrategySpace, stack: Stack, memory: MemoryModel) -> StrategySpace:
    """
    The space with the ZeRO stages beside which the stack has optimizer states on the host.

    One share is the memory model's; several are each candidate's own. Those are left out that do not go with a fixed
    ZeRO stage, and of ``auto`` those that the stack has not.

    Raises ``FieldError`` if the stack, the latency model or a fixed ZeRO stage does not go with a share.
    """
    asked = request.optimizer_offload_fraction
    if not isinstance(asked, tuple):
        return _beside_share(request, space, stack, memory.optimizer_offload_fraction)
    if (most := max(asked)) and (not request.latency.prices_mechanisms or not stack.zero_beside_offload(1)):
        _beside_share(request, space, stack, most)
    listed = []
    for share in asked:
        try:
            beside = _beside_share(request, space, stack, share)
        except FieldError as error:
            if error.field != "fix" and asked != SHARES:
                raise
            continue
        listed.append(OptimizerOffload(fraction=share, zero=beside.zero))
    if not listed:
        _beside_share(request, space, stack, most)
    return space.model_copy(update={"optimizer_offload": listed})


def with_activations(request: PlanRequest, space: StrategySpace, stack: Stack, model: ModelSpec) -> StrategySpace:
    """
    The space with the shares of activations on hosts that are asked for and the stack has.

    With fixed modules, shares are of their inputs, all of them unless it is said. Elsewhere, where the stack offloads
    whole layers, shares are of so many of the model's layers, and fewer than all; those of ``auto`` are rounded to such
    ones, and where it offloads all or nothing, the others of them are left out.

    Raises ``FieldError`` if the stack or the latency model does not go with a share, or it is of no whole number of
    layers.
    """
    asked, field = request.activation_offload_fraction, ACTIVATION_SHARE
    if (modules := request.fix.get("offload_modules")) is not None and asked != 0:
        _check_schedule(request)
        return _of_modules(request, space, stack, str(modules))
    if asked is None or asked == 0:
        return space
    _check_schedule(request)
    if not request.latency.prices_mechanisms:
        raise FieldError(field, _shown(asked), request.latency.refusal)
    beside = [kind for kind in space.recompute if kind in stack.offload_activations]
    if not beside:
        expected = f" beside recompute {', '.join(stack.offload_activations)}" if stack.offload_activations else ""
        raise FieldError(field, _shown(asked), f"not in {stack.name}, expected 0{expected}, or stack any")
    shares = [asked] if isinstance(asked, float | int) else list(asked)
    if asked == SHARES:
        shares = stack.activation_shares(SHARES, len(model.blocks))
    elif stack.offload_shares == "layers":
        shares = _of_layers(shares, len(model.blocks))
    elif stack.offload_shares == "all" and (parts := [share for share in shares if share not in (0, 1)]):
        raise FieldError(field, f"{parts[0]:g}", f"a part is not in {stack.name}, expected 0 or 1")
    piped, kinds = stack.offload_pipelines, space.recompute
    listed = [
        ActivationOffload(fraction=share, recompute=beside if share else kinds, pipelines=piped or not share)
        for share in shares
    ]
    return space.model_copy(update={"activation_offload": listed})


def check_meshes(request: PlanRequest) -> None:
    """Refuse shares that plans of meshes have not: several of the optimizer states, or any of the activations."""
    if isinstance(shares := request.optimizer_offload_fraction, tuple):
        shown = ",".join(f"{share:g}" for share in shares)
        raise FieldError(
            "optimizer_offload_fraction", shown, "has several shares, expected one number for plans of meshes"
        )
    if request.activation_offload_fraction:
        raise FieldError(ACTIVATION_SHARE, "given", "is no choice of plans of meshes, expected none")


def _check_schedule(request: PlanRequest) -> None:
    """Refuse a fixed schedule beside which all activations stay on the device."""
    schedule, shares = request.fix.get("schedule"), request.activation_offload_fraction
    if schedule in SPLIT and not (isinstance(shares, tuple) and 0 in shares):
        whole = ", ".join(each for each in SCHEDULES if each not in SPLIT)
        reason = f"splits the backward pass, which keeps all activations on the device, expected one of {whole}"
        raise FieldError("fix", f"schedule={schedule}", reason)


def _of_modules(request: PlanRequest, space: StrategySpace, stack: Stack, asked: str) -> StrategySpace:
    """The space with shares of the inputs of named modules on hosts."""
    wanted: list[OffloadModule] = [module for module in OFFLOAD_MODULES if module in asked.split("+")]
    beside = [kind for kind in space.recompute if kind != "full"]
    lacking = [module for module in wanted if module not in stack.offload_modules]
    if not request.latency.prices_mechanisms:
        reason = request.latency.refusal
    elif request.profile is not None:
        reason = "a profile does not say what their inputs take, expected none beside a profile"
    elif lacking:
        reason = f"{lacking[0]} is not in {stack.name}, expected {', '.join(stack.offload_modules) or 'none'}"
    elif not beside:
        reason = "full recompute keeps no inputs of modules, expected recompute none or selective"
    else:
        reason = conflict(wanted, space.recompute_modules if "selective" in beside else ())
    if reason:
        raise FieldError("fix", f"offload_modules={asked}", reason)
    shares = request.activation_offload_fraction
    listed = [
        ActivationOffload(fraction=share, recompute=beside if share else space.recompute)
        for share in (shares if isinstance(shares, tuple) else (1.0 if shares is None else shares,))
    ]
    return space.model_copy(update={"activation_offload": listed, "offload_modules": wanted})


def _of_layers(shares: Iterable[float], layers: int) -> list[float]:
    """Shares of whole layers, fewer than all."""
    found = []
    for share in shares:
        count = round(share * layers)
        if abs(count - share * layers) > LAYER_TOLERANCE or count >= layers:
            reason = f"is of no whole number of {layers} layers below all, expected such as {layers // 2 / layers:.6g}"
            raise FieldError("activation_offload_fraction", f"{share:g}", reason)
        found.append(count / layers)
    return sorted(set(found))


def _shown(asked: float | tuple[float, ...]) -> str:
    return ",".join(f"{share:g}" for share in (asked if isinstance(asked, tuple) else (asked,)))


def _beside_share(request: PlanRequest, space: StrategySpace, stack: Stack, fraction: float) -> StrategySpace:
    """The space with the ZeRO stages that go with a share of the optimizer states on the host."""
    field = "optimizer_offload_fraction"
    if not fraction:
        return space
    shown = f"{fraction:g}"
    if not request.latency.prices_mechanisms:
        raise FieldError(field, shown, request.latency.refusal)
    allowed = stack.zero_beside_offload(fraction)
    if not allowed:
        some = f", {1 if stack.offload_zero else 0}" if stack.offload_zero else ""
        raise FieldError(field, shown, f"not in {stack.name}, expected 0{some}, or stack any")
    if (zero := space.fixed.get("zero")) is not None and zero not in allowed:
        beside = ", ".join(map(str, allowed))
        raise FieldError("fix", f"zero={zero}", f"not with {field} in {stack.name}, expected one of {beside}")
    return space.of_zero(allowed)
