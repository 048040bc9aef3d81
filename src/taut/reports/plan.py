"""The plan in words: strategy, where the time and the memory go, bound and gap, and what they rest on."""

from collections import Counter
from io import StringIO
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from taut.data.catalog.builtin import catalog_calibrations
from taut.data.units import GIB
from taut.reports.errors_known import calibration_with_errors

if TYPE_CHECKING:
    from taut.solver.certificate.document import PlanDocument, PredictedSection, StrategySection

_STOPPED = {
    "exhausted": "nothing was left to refine, more time would change nothing",
    "gap": "the gap that was asked for is reached",
    "time": "the time limit was reached",
    "work": "the work limit was reached",
    "interrupt": "it was interrupted",
}
LABEL = 12
"""Columns of what a line of the report is about."""
CONTEXT_WORDS = {
    "p2p": "a ring of keys",
    "all_gather": "gathered keys",
    "a2a": "all-to-all of heads",
    "a2a+p2p": "all-to-all of heads in nodes, a ring of keys between them",
}
PARTS = {
    "compute": "computation",
    "tensor_parallel": "tensor-parallel all-reduces",
    "pipeline_transfers": "pipeline transfers",
    "data_parallel": "data-parallel all-reduce",
    "optimizer": "optimizer",
    "constant": "constant of the calibration",
}


def summary(plan: "PlanDocument", *, width: int = 110, details: str = "") -> str:
    """
    Text of a plan.

    Parameters
    ----------
    plan
        What was found, or read.
    width
        Columns of the text.
    details
        What is to stand before the proof.
    """
    console = Console(file=StringIO(), width=width, color_system=None, force_jupyter=False)
    console.print(_wrapped(_head(plan), width), highlight=False, markup=False)
    console.print(_time_table(plan))
    console.print(_stage_table(plan))
    if details:
        console.print(details, highlight=False, markup=False)
    console.print(_wrapped(proof(plan), width), highlight=False, markup=False)
    output = console.file
    assert isinstance(output, StringIO)
    return "\n".join(line.rstrip() for line in output.getvalue().splitlines())


def _wrapped(lines: list[str], width: int) -> str:
    """Lines in so many columns; what follows a label of the first 12 columns stays behind them."""
    found: list[str] = []
    for line in lines:
        indent = " " * LABEL if line[:LABEL].endswith("  ") else ""
        found += wrap(line, width, subsequent_indent=indent, break_on_hyphens=False) or [""]
    return "\n".join(found)


def _head(plan: "PlanDocument") -> list[str]:
    strategy, predicted = plan.strategy, plan.predicted
    devices = strategy.pp * strategy.tp * strategy.cp * strategy.dp
    overlap = " with overlapped gradient reductions" if plan.certificate.overlap_grad_reduce else ""
    return [
        f"{plan.inputs['model'].name} on {plan.inputs['cluster'].name}: {devices} devices, "
        f"global batch {plan.certificate.space['global_batch']}{_sequence_length(plan)}",
        f"latency model {plan.certificate.latency_model}{overlap}{_stack(plan)}",
        "",
        f"strategy    {strategy_words(strategy)}",
        f"            micro-batch {strategy.micro_batch}, {strategy.num_micro_batches} of them a pipeline and step",
        f"step time   {predicted.step_time_s:.4g} s: {_throughput(predicted)}",
        "",
    ]


def strategy_words(strategy: "StrategySection") -> str:
    """Degrees, schedule and sharding in a line."""
    contexts = f", context {strategy.cp} ({CONTEXT_WORDS[strategy.cp_comm]})" if strategy.cp > 1 else ""
    wide = f" of {strategy.etp} tensor ranks each" if strategy.etp > 1 else ""
    experts = f", experts {strategy.ep}{wide}" if strategy.ep > 1 else ""
    degrees = f"pipeline {strategy.pp}, tensor {strategy.tp}{contexts}, data {strategy.dp}{experts}"
    copies = f" with a copy for every {strategy.dp_shard} replicas" if strategy.dp_shard else ""
    sharding = f"ZeRO-{strategy.zero}{copies}" + (", sequence parallel" if strategy.sequence_parallel else "")
    return f"{degrees}; {_schedule(strategy)}, {sharding}"


def _stack(plan: "PlanDocument") -> str:
    """The framework that is to run the plan, where it is for one."""
    return f", stack {name}" if (name := plan.certificate.space.get("stack")) else ""


def _sequence_length(plan: "PlanDocument") -> str:
    """Tokens of a sequence, the longest of the layers where they differ, and the most that the model takes."""
    spec = plan.inputs["model"].spec
    layers = spec["layers"] if isinstance(spec["layers"], list) else [spec]
    lengths = [layer["seq"] for layer in layers if layer.get("seq")]
    most = f" of at most {spec['max_seq']}" if spec.get("max_seq") else ""
    most += f", {spec['mtp_layers']} further tokens predicted" if spec.get("mtp_layers") else ""
    return f", sequence length {max(lengths)}{most}" if lengths else ""


def _throughput(predicted: "PredictedSection") -> str:
    """Tokens a second and utilisation, which a step without duration does not have."""
    if predicted.tokens_per_s is None or predicted.mfu is None:
        return "throughput unknown"
    return f"{predicted.tokens_per_s:.4g} tokens/s, model FLOP utilisation {predicted.mfu:.1%}"


def _schedule(strategy: "StrategySection") -> str:
    """The schedule, with the chunks of a device where there are several, and whether its order is its own."""
    chunks = f" with {strategy.vpp} chunks a device" if strategy.vpp > 1 else ""
    adapted = ", adapted to its times" if strategy.order else ""
    return f"{strategy.schedule}{chunks}{adapted}"


def _time_table(plan: "PlanDocument") -> Table:
    table = Table(title="where the step's time goes", title_justify="left", box=None, pad_edge=False)
    table.add_column("part")
    table.add_column("seconds", justify="right")
    table.add_column("share", justify="right")
    total = plan.predicted.step_time_s
    for part, usual in PARTS.items():
        words = _traffic(plan.strategy) or usual if part == "tensor_parallel" else usual
        seconds = plan.predicted.breakdown_s[part]
        if part == "constant" and seconds == 0.0:
            continue
        table.add_row(words, f"{seconds:.4f}", f"{seconds / total:.1%}" if total else "")
    return table


def _traffic(strategy: "StrategySection") -> str:
    """Ranks whose traffic lies within blocks, where these are not tensor ranks alone."""
    more = [name for name, degree in (("context", strategy.cp), ("expert", strategy.ep)) if degree > 1]
    return f"traffic of {', '.join(['tensor', *more][:-1])} and {more[-1]} ranks" if more else ""


def _stage_table(plan: "PlanDocument") -> Table:
    """One row a stage; the kind of device where the cluster has several."""
    from taut.planning.tables import device_ranges, stage_records

    table = Table(title="\nstages", title_justify="left", box=None, pad_edge=False)
    stages = stage_records(plan)
    several = len({stage["device"] for stage in stages}) > 1
    for column in ("stage", "layers", "recompute", *(["device"] if several else [])):
        table.add_column(column)
    for column in ("memory GiB", "margin", "capacity"):
        table.add_column(column, justify="right")
    table.add_column("devices", overflow="fold")
    for stage in stages:
        table.add_row(
            str(stage["stage"]),
            f"{stage['layers']} ({stage['num_layers']})",
            stage["recompute"],
            *([stage["device"]] if several else []),
            *(f"{stage[name] / GIB:.2f}" for name in ("memory_bytes", "margin_bytes", "capacity_bytes")),
            device_ranges(device for group in plan.placement.devices[stage["stage"]] for device in group),
        )
    return table


def proof(plan: "PlanDocument") -> list[str]:
    """Status, bound, space, and what the prices rest on, line by line."""
    from taut.planning.tables import described_cluster, described_model
    from taut.solver.certificate.narrowed import narrowed

    certificate, inputs = plan.certificate, plan.inputs
    states = Counter(f"{entry.state} ({entry.source})" for entry in certificate.candidates)
    lines = [
        "",
        f"status      {plan.status}: lower bound {_seconds(certificate.lower_bound_s)}, "
        f"gap {percent(certificate.gap)} ({percent(certificate.communication_gap)} of communication time)",
        *_why_stopped(plan),
        *_method(plan),
        *_no_margin(certificate.lower_bound_no_margin_s),
        f"space       {len(certificate.candidates)} candidates: "
        + ", ".join(f"{count} {state}" for state, count in states.most_common()),
    ]
    experts = described_model(plan).has_experts
    left_out = narrowed(certificate.space, described_cluster(plan), experts=experts)
    lines += [f"            the bound is on a narrowed space, {each}" for each in left_out]
    calibration = inputs.get("calibration")
    free = [term for term, value in (calibration.spec["coefficients"] if calibration else {}).items() if value == 0]
    if free:
        lines.append(
            f"caution     the calibration prices these terms at 0, so the plan does not weigh them: {', '.join(free)}"
        )
    lines += [
        f"priced by   {inputs['costs'].spec['basis']}",
        *_band(plan),
        *_calibrations(plan),
        f"memory      model {inputs['memory_model'].name}: {_memory_words(inputs['memory_model'].spec)}",
        "The gap is a claim about these prices, not about the machine; `taut verify` derives it again.",
    ]
    return lines


def _band(plan: "PlanDocument") -> list[str]:
    """Seconds between which a run is expected, where the calibration knows errors on unseen runs."""
    if (calibration := calibration_with_errors(plan)) is None:
        return []
    low, high = calibration.band(plan.predicted.step_time_s)
    return [f"            80 % of runs are expected between {low:.4g} and {high:.4g} s"]


def _calibrations(plan: "PlanDocument") -> list[str]:
    """Calibrations of the catalog for the plan's devices, where none was used."""
    if "calibration" in plan.inputs or not plan.inputs["costs"].spec["basis"].startswith("analytic"):
        return []
    from taut.planning.tables import described_cluster

    devices = set(described_cluster(plan).devices)
    named = [name for name, entry in catalog_calibrations().items() if entry.device in devices]
    exist = "calibrations exist" if len(named) > 1 else "calibration exists"
    return [f"            {exist} for these devices (--calibration): {', '.join(named)}"] if named else []


def _why_stopped(plan: "PlanDocument") -> list[str]:
    """Why the search ended with a gap; plans of older versions leave out that nothing was left."""
    if plan.status == "optimal":
        return []
    named = plan.provenance.get("stopped_by")
    if "method" in plan.provenance and named in ("gap", "exhausted"):
        # The search that bounds another method's plan ended by itself; the gap is that plan's.
        return []
    reason = _STOPPED.get(named if isinstance(named, str) else "exhausted")
    return [f"            the search stopped: {reason}"] if reason else []


def _method(plan: "PlanDocument") -> list[str]:
    """Who made the plan, where it was not the search, what that proves by itself, and what the search found."""
    method = plan.provenance.get("method")
    if not isinstance(method, dict) or "name" not in method:
        return []
    by, own, best = method.get("solver"), *(_figure(method.get(name)) for name in ("lower_bound_s", "best_s"))
    claimed = "it proves no bound by itself"
    if own is not None:
        known, distance = plan.certificate.lower_bound_s, ""
        if known is not None and own < known * (1 - 1e-6):
            distance = f", {percent(1 - own / known)} less than the search"
        count, every = method.get("candidates"), len(plan.certificate.candidates)
        known_to_it = "no plan" if count == every else f"none of the {count} candidates that it knows"
        claimed = f"by itself it claims that {known_to_it} is faster than {_seconds(own)}{distance}"
    lines = [f"method      {method['name']}{f' ({by})' if by else ''}; {claimed}", *_simulated(method)]
    objective = plan.certificate.objective_s
    if best is not None and best < objective * (1 - 1e-9):
        lines.append(f"            the search found a plan of {best:.6g} s, {percent(1 - best / objective)} less")
    return lines


def _simulated(method: dict[str, Any]) -> list[str]:
    """The simulated step beside the closed form, where plans were scored by it."""
    found = method.get("simulated")
    if not isinstance(found, dict) or (step := _figure(found.get("step_time_s"))) is None:
        return []
    count, bound, gap = method.get("candidates"), _figure(found.get("lower_bound_s")), _figure(found.get("gap"))
    known = "" if bound is None else f"; no plan of the space simulates faster than {bound:.6g} s, gap {percent(gap)}"
    return [f"            simulated {step:.6g} s, the least of {count} plans{known}"]


def _figure(value: object) -> float | None:
    """A figure that no check has looked at, None where it is none."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _memory_words(spec: dict[str, Any]) -> str:
    """What a memory model rests on."""
    formats = spec["precision"] + (f" with gradients in {kept}" if (kept := spec.get("grad_precision")) else "")
    if spec["network"] is not None:
        network = spec["network"]
        words = f"{formats}, network of {len(network['layers'])} layers for even partitions"
        return f"{words}, trained on {network['samples']} runs, margin {network['margin']:.1%} of the capacity"
    group = f" and {each:.3g} a group" if (each := spec.get("group_overhead_gib")) else ""
    words = f"{formats}, overhead {spec['overhead_gib']:.3g} GiB{group}"
    if not spec["samples"]:
        return f"{words}, margin {spec['margin']:.0%} of the capacity"
    return (
        f"{words}, fitted on {spec['samples']} runs ({100 * spec['mape']:.1f}% off on unseen ones), margin "
        f"{spec['margin_gib']:.2f} GiB, exceeded with a chance of {100 * spec['level']:.3g}%"
    )


def _no_margin(bound: float | None) -> list[str]:
    """What is proven of plans that need not keep a memory margin; a search that Ctrl-C ended does not say."""
    return [] if bound is None else [f"            without a memory margin no plan is faster than {_seconds(bound)}"]


def _seconds(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.6g} s"


def percent(value: float | None) -> str:
    """A gap as text; ``unknown`` where it is not defined, 0 where it is rounding alone."""
    from taut.solver.result import SOLVED

    return "unknown" if value is None else f"{100 * (value if value > SOLVED else 0.0):.3g} %"
