"""The proof of a plan in words: status, bound and gap, the space, and what the prices rest on."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from taut.data.analytic.step_shares import step_shares
from taut.data.calibration import Calibration, features_of
from taut.data.catalog.builtin import catalog_calibrations, catalog_operators
from taut.data.cluster import ClusterSpec
from taut.data.costs import CostTable
from taut.data.seen import deviation_beyond, distance_of
from taut.errors import DataError
from taut.formulations.mechanisms.offload import stated_share, states_on_hosts
from taut.formulations.plainer import FASTEST, LIKE_RUNS, SEEN, restriction_of
from taut.formulations.runs import NAMED, Beyond, beyond, beyond_words
from taut.formulations.space import TEXTS
from taut.formulations.strategy import Strategy
from taut.solver.certificate.document import (
    AnyDocument,
    InputSection,
    PlainerSection,
    PlanDocument,
    mesh_plan_of,
    problem_of,
)
from taut.solver.result import OPTIMALITY_GAP, SOLVED, StoppedBy, relative_gap
from taut.words import percent

NOTHING_LEFT = "the search stopped: nothing was left to refine, more time would change nothing"


def memory_words(spec: dict[str, Any]) -> str:
    """Formats, overhead, margin and samples of a memory model, from its plain values."""
    formats = spec["precision"] + (f" with gradients in {kept}" if (kept := spec.get("grad_precision")) else "")
    if away := states_on_hosts(stated_share(spec)):
        formats += f", {away}"
    if (network := spec["network"]) is not None:
        words = f"{formats}, network of {len(network['layers'])} layers for even partitions"
        return f"{words}, trained on {network['samples']} runs, margin {network['margin']:.1%} of the capacity"
    words = f"{formats}, overhead {spec['overhead_gib']:.3g} GiB"
    words += f" and {each:.3g} a group" if (each := spec.get("group_overhead_gib")) else ""
    words += f", {each:.3g} of CUDA graphs of a single stage" if (each := spec.get("graph_gib")) else ""
    if not spec["samples"]:
        kept = f"{spec['margin']:.0%} of the capacity" if spec["margin"] else f"{spec['margin_gib']:.2f} GiB"
        return f"{words}, margin {kept}"
    return (
        f"{words}, fitted on {spec['samples']} runs ({100 * spec['mape']:.1f}% off on unseen ones), margin "
        f"{spec['margin_gib']:.2f} GiB, exceeded with a chance of {100 * spec['level']:.3g}%"
    )


def calibration_with_errors(plan: AnyDocument) -> Calibration | None:
    """The calibration of a plan; None without one, without errors on unseen runs, or beside other types of device."""
    if (given := plan.inputs.get("calibration")) is None:
        return None
    found = Calibration.parse(given.spec, "inputs.calibration")
    if not found.has_band or others_than(found.device, plan.inputs):
        return None
    return found


def band_of(plan: AnyDocument) -> tuple[float, float] | None:
    """Seconds between which 80 % of runs are expected; None where the errors of a plan's prices are not known."""
    if (calibration := calibration_with_errors(plan)) is None:
        return None
    if plan.format == "taut-meshes/1":
        return calibration.band(plan.predicted.step_time_s, _shares(plan, calibration))
    distances = {each.field: distance_of(each.field, each.value, each.seen) for each in plan.beyond}
    further = deviation_beyond(distances)
    return calibration.band(plan.predicted.step_time_s, _shares(plan, calibration), further)


def _shares(plan: AnyDocument, calibration: Calibration) -> dict[str, float]:
    """What terms take of a plan's step, where the band depends on it; all is products' in plans of meshes."""
    if not calibration.covariance:
        return {}
    if plan.format == "taut-meshes/1":
        return {"gemm": 1.0}
    from taut.planning.tables import described_cluster, described_model

    device, memory = next(iter(described_cluster(plan).devices.values())), plan.inputs["memory_model"].spec
    chosen = plan.strategy
    return step_shares(
        plan.predicted.breakdown_s,
        described_model(plan),
        device,
        memory["precision"],
        catalog_operators().get(device.name),
        calibration,
        tp=chosen.tp,
        cp=chosen.cp,
        ep=chosen.ep,
        etp=chosen.etp,
        micro_batch=chosen.micro_batch,
        zero=chosen.zero,
        recompute=chosen.recompute,
    )


def _costs(plan: AnyDocument) -> CostTable | None:
    """The cost table of a plan; None where it is none, which ``verify`` refuses and a page need not."""
    try:
        return CostTable.parse(plan.inputs["costs"].spec, "inputs.costs")
    except DataError:
        return None


def others_than(device: str | None, inputs: Mapping[Any, InputSection]) -> list[str]:
    """Types of device of a plan's cluster beside the one of its calibration; none where that names no device."""
    if not device:
        return []
    return sorted(set(ClusterSpec.parse(inputs["cluster"].spec, "inputs.cluster").devices) - {device})


def proof(plan: AnyDocument, spaces: Sequence[str] = ()) -> list[str]:
    """Status, bound, space, and what the prices rest on, line by line; lines of several spaces before its own."""
    from taut.planning.tables import described_cluster, described_model
    from taut.solver.certificate.narrowed import space_in_words

    certificate, inputs = plan.certificate, plan.inputs
    lines = [
        "",
        *spaces,
        f"{'this space  ' if spaces else 'status      '}{plan.status}{_within(plan)}: "
        f"lower bound {_seconds(certificate.lower_bound_s)}, gap {percent(certificate.gap)}{_communication(plan)}",
        *_why_stopped(plan),
        *_space(plan),
    ]
    words = space_in_words(plan, described_model(plan), described_cluster(plan), _costs(plan))
    lines += [f"            {words.held}"]
    lines += [f"            the bound is on a narrowed space, {each}" for each in words.narrowed]
    lines += [f"            taut does not search {each}" for each in words.unsearched]
    lines += [f"            {each}" for each in words.renamed]
    lines += [f"{'' if k else 'beyond':<12}{words}" for k, words in enumerate(runs_words(plan))]
    lines += [f"{'' if k else 'plainer':<12}{words}" for k, words in enumerate(plainer_words(plan))]
    calibration = inputs.get("calibration")
    free = [term for term, value in (calibration.spec["coefficients"] if calibration else {}).items() if value == 0]
    if free:
        lines.append(
            f"caution     the calibration prices these terms at 0, so the plan does not weigh them: {', '.join(free)}"
        )
    memory = inputs["memory_model"]
    return [
        *lines,
        f"priced by   {inputs['costs'].spec['basis']}",
        *_band(plan),
        *_release(plan),
        *_calibrations(plan),
        f"memory      model {memory.name}: {memory_words(memory.spec)}",
        "The gap is a claim about these prices, not about the machine; `taut verify` derives it again.",
    ]


def plainer_words(plan: AnyDocument) -> list[str]:
    """What plainer plans cost, what they cost at least, and what they do otherwise; one that is best twice once."""
    if plan.format == "taut-meshes/1":
        return []
    found: dict[tuple[str, str], list[str]] = {}
    for tie in plan.plainer:
        if tie.restriction != SEEN:
            restriction, colon, words = _tie_words(plan, tie).partition(": ")
            found.setdefault((colon + words, repr(tie.strategy)), []).append(restriction)
    return [" and ".join(restrictions) + words for (words, _), restrictions in found.items()]


def runs_words(plan: AnyDocument) -> list[str]:
    """In what the plan lies beyond all runs of its calibration, and what the best plan within them costs."""
    if not (given := beyond_of(plan)):
        return []
    experts = bool(plan.inputs["calibration"].spec.get("experts")) if "calibration" in plan.inputs else False
    first = f"the measured runs in: {beyond_words(given, experts=experts)}"
    if plan.format == "taut-meshes/1":
        return [first]
    return [first, *(_tie_words(plan, tie) for tie in plan.plainer if tie.restriction == SEEN)]


def beyond_of(plan: AnyDocument) -> list[Beyond]:
    """What of a plan and its job lies beyond all runs of its calibration; of meshes what lies so of any of them."""
    if plan.format != "taut-meshes/1":
        return [Beyond(each.field, each.value, each.seen) for each in plan.beyond]
    problem = problem_of(plan, "plan")
    given = mesh_plan_of(plan, problem, "plan")
    candidates = (given.choice.candidate(k) for k in range(len(given.choice.meshes)))
    strategies = (Strategy(candidate=each, division=given.division) for each in candidates)
    every = [one for strategy in strategies for one in beyond(problem, strategy)]
    return sorted(
        {(one.field, str(one.value)): one for one in every}.values(), key=lambda one: [*NAMED].index(one.field)
    )


def _tie_words(plan: PlanDocument, tie: PlainerSection) -> str:
    """What one plainer plan costs, and what it does otherwise; of the fastest what it would gain."""
    other = differing(plan, tie)
    by = f", by {other}" if other else ""
    if tie.restriction == FASTEST:
        gained = max(1 - tie.step_time_s / plan.certificate.objective_s, 0.0)
        return f"taken in place of {restriction_words(tie)}: -{percent(gained)}{by}"
    return f"{restriction_words(tie)}: {plainer_cost(plan, tie)}{by}"


def restriction_words(tie: PlainerSection) -> str:
    """What a plainer plan is the best of, its restriction by name where that is of another version."""
    if tie.restriction == FASTEST:
        return "the fastest that was found"
    if tie.restriction == SEEN:
        return f"the best {LIKE_RUNS}"
    restriction = restriction_of(tie.restriction)
    return f"the best {tie.restriction if restriction is None else restriction.words}"


def plainer_cost(plan: PlanDocument, tie: PlainerSection) -> str:
    """What a plainer plan costs beside the plan, and what its restriction costs at least."""
    best = plan.certificate.objective_s
    cost, least = (max(seconds / best - 1, 0.0) for seconds in (tie.step_time_s, tie.lower_bound_s))
    if tie.step_time_s - tie.lower_bound_s <= OPTIMALITY_GAP * best:
        return f"+{percent(cost, places=2)} (proven)"
    cut_off = ", cut off" if tie.stopped_by in ("time", "work", "interrupt") else ""
    return f"+{percent(cost, places=2)} (at least +{percent(least, places=2)}{cut_off})"


def differing(plan: PlanDocument, tie: PlainerSection) -> str:
    """What a plainer plan's candidate has otherwise than the plan's, as short as candidates are named."""
    return " ".join(filter(None, (text(tie.strategy) for text in TEXTS if text(tie.strategy) != text(plan.strategy))))


def _communication(plan: AnyDocument) -> str:
    """The gap of the communication time alone, which plans of meshes do not tell; 0 where the whole is rounding."""
    if plan.format == "taut-meshes/1":
        return ""
    stated, whole = plan.certificate.communication_gap, plan.certificate.gap
    share = 0.0 if stated is None and whole is not None and whole <= SOLVED else stated
    return f" ({percent(share)} of communication time)"


def _space(plan: AnyDocument) -> list[str]:
    """Candidates, or choices of meshes, and what is known of them; who made the plan where it was not the search."""
    if plan.format == "taut-meshes/1":
        count = plan.certificate.choices
        words = "choices of meshes" if count is not None else "choices of meshes not counted within the limit"
        return [f"space       {'' if count is None else f'{count} '}{words}, one a type of device, all bounded"]
    candidates = plan.certificate.candidates
    states = Counter(f"{entry.state} ({entry.source})" for entry in candidates)
    counted = ", ".join(f"{count} {state}" for state, count in states.most_common())
    return [
        *_method(plan),
        *_no_margin(plan.certificate.lower_bound_no_margin_s),
        f"space       {len(candidates)} candidates: {counted}",
    ]


def _band(plan: AnyDocument) -> list[str]:
    """Seconds between which a run is expected, where the calibration knows errors on unseen runs."""
    given = plan.inputs["calibration"].spec if "calibration" in plan.inputs else {}
    if (quantile := given.get("quantile")) is not None:
        return [f"            {100 * quantile:g} % of runs are expected within the step time, if all prices err alike"]
    if (band := band_of(plan)) is None:
        return _unchecked(plan.inputs)
    low, high = band
    return [f"            80 % of runs are expected between {low:.4g} and {high:.4g} s"]


def _release(plan: AnyDocument) -> list[str]:
    """The software release whose speed the prices stand for, and what the plan's exports switch on, in a line."""
    given = plan.inputs["calibration"].spec if "calibration" in plan.inputs else {}
    release, features = given.get("release", ""), given.get("features", ())
    if plan.format != "taut-meshes/1":
        features = features_of(features, plan.strategy, plan.strategy.recompute)
    if not release:
        return [f"            its runs had {', '.join(features)}, which exports switch on"] if features else []
    return [f"            at the speed of {release} with {', '.join(features) or 'its defaults'}"]


def _unchecked(inputs: Mapping[Any, InputSection]) -> list[str]:
    """The devices of the cluster that a calibration has no runs of, or that its runs had no two types together."""
    given = inputs["calibration"].spec if "calibration" in inputs else {}
    if not (others := others_than(given.get("device"), inputs)):
        return []
    unknown = [device for device in others if device not in given.get("computation", {})]
    said = f"on {' or '.join(unknown)}" if unknown else "of these types together"
    return [f"            no run {said} checks these prices"]


def _calibrations(plan: AnyDocument) -> list[str]:
    """Calibrations of the catalog for the plan's devices, where none was used."""
    if "calibration" in plan.inputs or not plan.inputs["costs"].spec["basis"].startswith("analytic"):
        return []
    from taut.planning.tables import described_cluster

    devices = set(described_cluster(plan).devices)
    named = [name for name, entry in catalog_calibrations().items() if entry.device in devices]
    exist = "calibrations exist" if len(named) > 1 else "calibration exists"
    return [f"            {exist} for these devices (--calibration): {', '.join(named)}"] if named else []


def _within(plan: AnyDocument) -> str:
    """What a status is called beside its name where the search stopped at the gap that was asked for."""
    return ", within the gap asked for" if is_within(plan) else ""


def _why_stopped(plan: AnyDocument) -> list[str]:
    """Why the search ended with a gap, and what would close the gap, in a line."""
    if not (words := why_stopped(plan)):
        return []
    return [f"            {'; '.join(filter(None, (words, goes_on(plan))))}"]


def _method(plan: PlanDocument) -> list[str]:
    """Who made the plan, where it was not the search, what that proves by itself, and what the search found."""
    method = plan.provenance.get("method")
    if not isinstance(method, dict) or "name" not in method:
        return []
    solver, own, best = method.get("solver"), *(figure_of(method.get(name)) for name in ("lower_bound_s", "best_s"))
    claimed = "it proves no bound by itself"
    if own is not None:
        known, distance = plan.certificate.lower_bound_s, ""
        if known is not None and own < known * (1 - 1e-6):
            distance = f", {percent(1 - own / known)} less than the search"
        count, every = method.get("candidates"), len(plan.certificate.candidates)
        known_to_it = "no plan" if count == every else f"none of the {count} candidates that it knows"
        claimed = f"by itself it claims that {known_to_it} is faster than {_seconds(own)}{distance}"
    lines = [
        f"method      {method['name']}{f' ({solver})' if solver else ''}; {claimed}",
        *([f"            strategy by {by}"] if isinstance(by := method.get("strategy_by"), str) else []),
        *_simulated(method),
        *_assignment(method),
    ]
    objective = plan.certificate.objective_s
    if best is not None and best < objective * (1 - 1e-9):
        lines.append(f"            the search found a plan of {best:.6g} s, {percent(1 - best / objective)} less")
    return lines


def _simulated(method: dict[str, Any]) -> list[str]:
    """The simulated step beside the closed form, where plans were scored by it."""
    found = method.get("simulated")
    if not isinstance(found, dict) or (step := figure_of(found.get("step_time_s"))) is None:
        return []
    count, bound, gap = method.get("candidates"), figure_of(found.get("lower_bound_s")), figure_of(found.get("gap"))
    known = "" if bound is None else f"; no plan of the space simulates faster than {bound:.6g} s, gap {percent(gap)}"
    return [f"            simulated {step:.6g} s, the least of {count} plans{known}"]


def _assignment(method: dict[str, Any]) -> list[str]:
    """The placement as a quadratic assignment: objective, bound and gap, and who solved which part."""
    found = method.get("assignment")
    if not isinstance(found, dict) or (objective := figure_of(found.get("objective"))) is None:
        return []
    bound = figure_of(found.get("lower_bound"))
    proven = (
        "no lower bound" if bound is None else f"lower bound {bound:.6g} s, gap {percent(figure_of(found.get('gap')))}"
    )
    return [
        f"            quadratic assignment of {found.get('positions')} positions: {objective:.6g} s, {proven}",
        f"            permutation by {found.get('permutation_by')}, bound by {found.get('bound_by')}",
    ]


def figure_of(value: object) -> float | None:
    """A figure that no check has looked at, None where it is none."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _no_margin(bound: float | None) -> list[str]:
    """What is proven of plans that need not keep a memory margin; a search that Ctrl-C ended does not say."""
    return [] if bound is None else [f"            without a memory margin no plan is faster than {_seconds(bound)}"]


def _seconds(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.6g} s"


def why_stopped(plan: AnyDocument) -> str:
    """Why the search of a plan ended with a gap; nothing where the gap is another method's, or closed."""
    named = _named(plan)
    if plan.status == "optimal" or ("method" in plan.provenance and named in (StoppedBy.GAP, StoppedBy.EXHAUSTED)):
        # The search that bounds another method's plan ended by itself; the gap is that plan's.
        return ""
    limits, spent = _figures(plan.provenance.get("limits")), _figures(plan.provenance)
    if named == StoppedBy.GAP:
        asked = f", as asked (--gap {limits['gap']:g})" if "gap" in limits else ""
        of_fastest = " of the fastest plan" if _fastest(plan) else ""
        return f"stopped at a gap of {percent(_gap_of_search(plan))}{of_fastest}{asked}"
    if named == StoppedBy.TIME:
        seconds = limits.get("time_s", spent.get("wall_s"))
        return "stopped by the time limit" if seconds is None else f"stopped after {seconds:.3g} s of search"
    if named == StoppedBy.WORK:
        # The numbers of nodes of an objective are searched in turns, which no user limits.
        return f"stopped after {spent.get('work', limits['work']):g} refinements" if "work" in limits else ""
    if named == StoppedBy.INTERRUPT:
        return "stopped by an interrupt"
    return NOTHING_LEFT + ("; a part of the gap is the price of the plainer plan" if _fastest(plan) else "")


def goes_on(plan: AnyDocument) -> str:
    """What would close the gap that a search left; nothing where no refinement is left."""
    words = {
        StoppedBy.GAP: "--gap 0 goes on",
        StoppedBy.TIME: "--time-limit none goes on",
        StoppedBy.WORK: "a larger --work-limit goes on",
        StoppedBy.INTERRUPT: "a run to its end goes on",
    }
    return next((said for reason, said in words.items() if reason == _named(plan)), "")


def is_within(plan: AnyDocument) -> bool:
    """Whether the search stopped at the gap that was asked for, larger than that of an optimal plan."""
    if plan.status == "optimal" or "method" in plan.provenance or _named(plan) != StoppedBy.GAP:
        return False
    asked = _figures(plan.provenance.get("limits")).get("gap", math.inf)
    return not _fastest(plan) or (plan.certificate.gap or 0.0) <= asked


def _fastest(plan: AnyDocument) -> PlainerSection | None:
    """The fastest plan that was found, where a plainer one has taken its place."""
    ties = [] if plan.format == "taut-meshes/1" else plan.plainer
    return next((tie for tie in ties if tie.restriction == FASTEST), None)


def _gap_of_search(plan: AnyDocument) -> float | None:
    """The gap at which the search ended, of the fastest plan that it found."""
    fastest, bound = _fastest(plan), plan.certificate.lower_bound_s
    if fastest is None or bound is None:
        return plan.certificate.gap
    return relative_gap(fastest.step_time_s, bound)


def _named(plan: AnyDocument) -> str:
    """Why the search stopped, as the document states it; plans of older versions leave out that nothing was left."""
    named = plan.provenance.get("stopped_by")
    return named if isinstance(named, str) else StoppedBy.EXHAUSTED


def _figures(values: object) -> dict[str, float]:
    """The numbers of a section that no check has looked at."""
    given: Mapping[str, Any] = values if isinstance(values, Mapping) else {}
    return {name: figure for name, each in given.items() if (figure := figure_of(each)) is not None}
