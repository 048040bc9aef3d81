"""
A configuration that runs today: degrees, micro-batch, schedule, recompute, layers of the stages, and copies.

Launchers state how many copies of weights or optimizer states there are, ``taut.plan`` how many replicas share one
(``taut.formulations.mechanisms.shards``).

What is not stated is what a framework does by itself: even stages, workers in the order of the devices, no chunks of
stages, no sharding beyond ZeRO's default of the stack (``taut.planning.stated``).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from taut.data.cluster import ClusterSpec
from taut.data.costs import RECOMPUTE
from taut.data.load import load_cluster
from taut.data.model import ModelSpec
from taut.errors import FieldError
from taut.formulations.mechanisms.offload import MODULES
from taut.formulations.mechanisms.shards import fixed_copies
from taut.formulations.strategy import Strategy, division_of_layers
from taut.planning.offload import ACTIVATION_SHARE
from taut.planning.options import CURRENT
from taut.planning.request import PlanRequest
from taut.planning.stated import Stated, stated_configuration

LAYERS = "layers"
EVEN = "even"
CHUNKED = "interleaved-1f1b"
"""The schedule of stages in chunks, unless another is stated."""
ROUTER = ("router_num_groups", "router_group_topk")
"""Fields of a model's experts that a configuration may state, and that must be the model's."""


@dataclass(frozen=True, slots=True)
class Current:
    """Fixed values, layers of every stage or chunk (None: even), options of a request, and groups of the router."""

    fix: dict[str, Any]
    layers: tuple[int, ...] | None
    options: dict[str, Any] = field(default_factory=dict)
    router: dict[str, Any] = field(default_factory=dict)


def current_of(values: Mapping[str, Any]) -> Current:
    """Values such as ``tp=8,layers=7|8|8|9``: what a plan may fix, options of a request, ``copies``, and ``ROUTER``."""
    fix = dict(values)
    stated, options = str(fix.pop(LAYERS, EVEN)), {name: fix.pop(name) for name in CURRENT if name in fix}
    router = {name: fix.pop(name) for name in ROUTER if name in fix}
    if MODULES in fix:
        options.setdefault(ACTIVATION_SHARE, 1.0)
    if fix.get("vpp", 1) != 1 and "schedule" not in fix:
        fix["schedule"] = CHUNKED
    if stated == EVEN:
        return Current(fix, None, options, router)
    parts = stated.split("|")
    if not all(
        part.isdecimal() and (int(part) > 0 or place in (0, len(parts) - 1)) for place, part in enumerate(parts)
    ):
        raise FieldError("current", f"layers={stated}", "expected even, or layers of every stage such as 7|8|8|9")
    layers = tuple(int(part) for part in parts)
    # One chunk a device has layers unless it is said.
    fix = fix if all(layers) or fix.get("vpp", 1) > 1 else {"empty_ends": True, **fix}
    return Current(fix, layers, options, router)


def with_options(request: PlanRequest, current: Current) -> PlanRequest:
    """The request with the options of what runs, so that both are priced alike; several shares stay the plan's."""
    given = {name: getattr(request, name) for name in PlanRequest.model_fields}
    several = _shares(request)
    modules = {name: value for name, value in current.fix.items() if name == MODULES}
    given["fix"] = modules | given["fix"]
    stated = {name: value for name, value in current.options.items() if name not in several}
    for name, value in stated.items():
        if given[name] not in (None, False, value):
            reason = f"expected {given[name]} as beside it, since both are priced alike"
            raise FieldError("current", f"{name}={value}", reason)
    return PlanRequest(**(given | stated)) if stated or modules else request


def with_copies(current: Current, cluster: ClusterSpec) -> Current:
    """The configuration with the replicas that share one of its copies, on a cluster."""
    return replace(current, fix=fixed_copies(current.fix, cluster.num_devices))


def at_its_share(request: PlanRequest, current: Current) -> PlanRequest:
    """The request with the share of the optimizer states on hosts that runs, none unless it is stated."""
    given = {name: getattr(request, name) for name in PlanRequest.model_fields}
    if not (several := _shares(request)):
        return request
    return PlanRequest(**(given | {name: current.options.get(name, 0.0) for name in several}))


def _shares(request: PlanRequest) -> list[str]:
    """Options of which the request leaves several shares to the plan."""
    return [name for name in CURRENT if isinstance(getattr(request, name), tuple)]


def priced_as_is(request: PlanRequest, current: Current) -> Stated:
    """The configuration with its problem."""
    request = at_its_share(with_options(request, current), current)
    cluster = load_cluster(request.cluster) if isinstance(request.cluster, str) else request.cluster
    current = with_copies(current, cluster)
    try:
        stated = stated_configuration(request.model_copy(update={"fix": current.fix}))
    except FieldError as error:
        raise FieldError("current" if error.field == "fix" else error.field, error.value, error.reason) from None
    _check_router(current, stated.problem.model)
    if current.layers is None:
        return stated
    strategy, total = stated.strategy, len(stated.problem.model.blocks)
    chunks, shown = len(strategy.stages), "|".join(map(str, current.layers))
    if len(current.layers) != chunks or sum(current.layers) != total:
        raise FieldError("current", f"layers={shown}", f"expected {chunks} numbers that add up to {total} layers")
    if not (all(current.layers) or strategy.candidate.end_parts):
        reason = "expected layers in every stage, and in every chunk unless the stack may leave end chunks without"
        raise FieldError("current", f"layers={shown}", reason)
    return stated._replace(strategy=_divided(strategy, current.layers))


def _check_router(current: Current, model: ModelSpec) -> None:
    """Refuse groups of experts that are not those of the model, whose exchanges would be priced."""
    for name, value in current.router.items():
        own = [getattr(layer.experts, name) for layer in model.blocks if layer.experts]
        if own and value not in own:
            reason = f"expected {own[0]} as in {model.name}, or a model file whose experts state it"
            raise FieldError("current", f"{name}={value}", reason)


def _divided(strategy: Strategy, layers: tuple[int, ...]) -> Strategy:
    """The strategy with these layers, each chunk with the recompute that it had."""
    kinds = np.array([RECOMPUTE.index(name) for name in strategy.recompute])
    return Strategy(candidate=strategy.candidate, division=division_of_layers(strategy.candidate, layers, kinds))
