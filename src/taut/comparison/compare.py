"""
What runs today beside the proven best, and which single changes gain most.

(1) The current configuration is priced as it is, by the evaluator.
(2) The best plan is that of ``taut.plan`` in a space that holds the current schedule, so its bound L holds for the
    current configuration of J seconds as well: its distance is J / L - 1. The search knows the current configuration
    and those of (3) from the beginning, so the best plan is never slower than one of them that fits. Where it is, as
    the current configuration has a value that no search tries unless it is fixed, such as modules of selective
    recompute, the best plan is that of the space with these values.
    Where the best plan is to lie within all runs of the calibration, the bound is that of plans within, and the
    current configuration may lie beyond them.
(3) A single change lets one choice go: the degree or choice that gains most is taken, the number of replicas follows
    from the other degrees, and all else stays as it is, stages even and workers in the order of the devices. Stages
    and placement are let go together, by a search with everything else held.

The current configuration has degrees, micro-batch, schedule, recompute, layers of the stages, and copies. Launchers
state how many copies of weights or optimizer states there are, ``taut.plan`` how many replicas share one
(``taut.formulations.mechanisms.shards``).

What is not stated is what a framework does by itself: even stages, workers in the order of the devices, no chunks of
stages, no sharding beyond ZeRO's default of the stack (``taut.planning.stated``).
"""

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Unpack, overload

import numpy as np

from taut.comparison.result import Change, Comparison, Priced, stated_fields
from taut.data.calibration import features_of
from taut.data.cluster import ClusterSpec
from taut.data.costs import RECOMPUTE
from taut.data.model import ModelSpec
from taut.data.stack import SCHEDULES
from taut.errors import DataError, FieldError, InfeasibleError, NothingFoundError
from taut.formulations.mechanisms.offload import MODULES
from taut.formulations.mechanisms.recompute import block_words
from taut.formulations.mechanisms.shards import fixed_copies
from taut.formulations.runs import is_within
from taut.formulations.space import CHANGES, COMPARED, SELDOM, fixable_value
from taut.formulations.strategy import Strategy, division_of_layers
from taut.planning.choices import OF_ALL_STAGES
from taut.planning.offload import ACTIVATION_SHARE
from taut.planning.options import CURRENT, PlanOptions
from taut.planning.request import ClusterInput, ModelInput, PlanRequest, request_of
from taut.planning.solve import plan_one_degree
from taut.planning.stack import schedules_of, stack_of
from taut.planning.stated import Stated, fastest, stated_configuration
from taut.solver.branch_and_bound.stop import Listener
from taut.solver.certificate.document import devices_of, strategy_of

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
    if fix.get(FIRST_LAYERS):
        options["block_recompute"] = True
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
    cluster = request.cluster_spec
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


OWN_RECOMPUTE, FIRST_LAYERS = "recompute", "recompute_layers"
CHOICES = (*CHANGES, OWN_RECOMPUTE)
"""What may change alone, in the order in which equal gains are told."""
UNSEARCHED = {*SELDOM, "recompute_modules"} - {"cp", "ep"}
"""Fields and choices that a search may leave out unless they are fixed."""
LEAST_GAIN = 1e-6
"""Share of the step below which a change gains nothing."""


@overload
def compare(model: PlanRequest, /, *, current: dict[str, Any], progress: Listener | None = None) -> Comparison: ...
@overload
def compare(
    model: ModelInput,
    cluster: ClusterInput,
    *,
    current: dict[str, Any],
    progress: Listener | None = None,
    **options: Unpack[PlanOptions],
) -> Comparison: ...
def compare(
    model: ModelInput | PlanRequest,
    cluster: ClusterInput | None = None,
    *,
    current: dict[str, Any],
    progress: Listener | None = None,
    **options: Any,
) -> Comparison:
    """
    Compare what runs today with the best plan.

    Parameters
    ----------
    model, cluster
        As of ``taut.plan``.
    current
        What runs today: values that ``taut.plan`` can fix, such as ``{"tp": 8, "pp": 4, "micro_batch": 1}``, and
        ``layers``, which is ``even`` or the layers of every stage such as ``"7|8|8|9"``. Some options, such as
        ``moe_token_dispatcher`` and shares on hosts, hold for the best plan too. If the request lists
        several shares for an option, the best plan chooses among these.
    progress
        As of ``taut.plan``.
    **options
        Those of ``taut.plan``; limits hold for the search of the best plan.

    Returns
    -------
    Comparison
        The current configuration, the best plan with its bound, the distance, and the changes that gain.

    Raises
    ------
    DataError
        If an input is wrong, or no candidate holds the current values.
    InfeasibleError
        If no plan fits the devices' memory.

    Examples
    --------
    >>> import taut
    >>> found = taut.compare("gpt2-345m", "dgx-a100", global_batch=32, current={"tp": 8, "micro_batch": 4})
    >>> found.current.fits, found.distance > 1, found.changes[0].what
    (True, True, 'tp')
    """
    stated = current_of(current)
    asked = with_options(request_of(model, cluster, options), stated)
    request = asked.model_copy(update={"seen": False})
    today = priced_as_is(request, stated)
    if request.schedules is None:
        own = schedules_of(request, stack_of(request), today.problem.memory)
        every = [kind for kind in SCHEDULES if kind in {*own, *today.problem.space.schedules}]
        request = request.model_copy(update={"schedules": tuple(every)})
    priced = Priced.of(today)
    alike = at_its_share(request, stated)
    found = [*_single(alike, stated, today.strategy), *_placed(alike, stated, today)]
    gains = [each for each in found if each.change.fits and each.change.gain(priced.step_time_s) > LEAST_GAIN]
    gains.sort(key=lambda each: each.change.step_time_s)
    starts = [today, *(each.stated for each in gains)]
    if asked.seen:
        request, starts = request.model_copy(update={"seen": True}), [each for each in starts if _within_runs(each)]
    best = plan_one_degree(request, progress=progress, starts=starts)
    known = fastest(today.problem, starts)
    held = {name: value for name, value in stated.fix.items() if name in UNSEARCHED}
    if held and known is not None and known.seconds < best.predicted.step_time_s * (1 - LEAST_GAIN):
        request = request.model_copy(update={"fix": request.fix | held})
        other = plan_one_degree(request, progress=progress, starts=starts)
        best = min(best, other, key=lambda plan: plan.predicted.step_time_s)
    runs, chosen = today.problem.calibration, today.strategy
    assumed = features_of(runs.features if runs else (), chosen.candidate, chosen.recompute)
    return Comparison(current=priced, best=best, changes=tuple(each.change for each in gains), features=tuple(assumed))


def _within_runs(stated: Stated) -> bool:
    """Whether a configuration is one of those that a search within all runs has."""
    calibration, strategy = stated.problem.calibration, stated.strategy
    if calibration is None or (seen := calibration.seen) is None:
        return False
    return is_within(seen, strategy.candidate) and set(strategy.recompute) <= {*seen.recompute}


class _Changed(NamedTuple):
    """A change, and the configuration then."""

    change: Change
    stated: Stated


def _single(request: PlanRequest, current: Current, strategy: Strategy) -> Iterator[_Changed]:
    """The best of every choice with the others held, (3)."""
    held = _held(current, strategy)
    for what in CHOICES:
        free = {what, *CHANGES.get(what, ()), *([FIRST_LAYERS] if what == OWN_RECOMPUTE else [])}
        fix = {name: value for name, value in held.items() if name not in free}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                stated = stated_configuration(request.model_copy(update={"fix": fix}))
            except DataError:
                continue
        priced, before, after = Priced.of(stated), _value(strategy, what), _value(stated.strategy, what)
        if before != after:
            change = Change(
                what=what,
                before=before,
                after=after,
                step_time_s=priced.step_time_s,
                memory_bytes=max(priced.memory_bytes),
                fits=priced.fits,
            )
            yield _Changed(change, stated)


def _placed(request: PlanRequest, current: Current, today: Stated) -> Iterator[_Changed]:
    """Stages and placement let go, by a search with all else held, (3)."""
    try:
        found = plan_one_degree(request.model_copy(update={"fix": _held(current, today.strategy)}))
    except (InfeasibleError, NothingFoundError):
        return
    layers = "even" if current.layers is None else "as stated"
    change = Change(
        what="stages and placement",
        before=f"{layers}, in order",
        after="searched",
        step_time_s=found.step_time_s,
        memory_bytes=max(found.predicted.memory_bytes),
        fits=True,
    )
    document, source = found.typed, found.source
    strategy, devices = strategy_of(document.strategy, source), devices_of(document, source)
    yield _Changed(change, Stated(today.problem, strategy, devices))


def _held(current: Current, strategy: Strategy) -> dict[str, Any]:
    """Everything that the current configuration is, as fixed values."""
    candidate, fixed = strategy.candidate, current.fix
    held = stated_fields(candidate, lambda each: each.held)
    usual = {name: fixable_value(candidate, name, fixed) for name in fixed if name in COMPARED and name in SELDOM}
    held |= {name: value for name, value in usual.items() if name not in held and value is not None}
    held |= {name: fixed[name] for name in OF_ALL_STAGES if name in fixed}
    return held | {OWN_RECOMPUTE: strategy.recompute[0]}


def _value(strategy: Strategy, what: str) -> str:
    if what == OWN_RECOMPUTE:
        return block_words(strategy.candidate.recompute_layers) or strategy.recompute[0]
    value = getattr(strategy.candidate, what)
    return str(value).lower() if isinstance(value, bool) else str(value)
