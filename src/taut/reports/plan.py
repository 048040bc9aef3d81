"""The plan in words: strategy, where the time and the memory go, bound and gap, and what they rest on."""

from collections import Counter
from io import StringIO
from typing import Any

from rich.console import Console
from rich.table import Table

from taut.data.units import GIB

PARTS = {
    "compute": "computation",
    "tensor_parallel": "tensor-parallel all-reduces",
    "pipeline_transfers": "pipeline transfers",
    "data_parallel": "data-parallel all-reduce",
    "optimizer": "optimizer",
    "constant": "constant of the calibration",
}


def summary(document: dict[str, Any], *, width: int = 110) -> str:
    """
    Text of a plan document.

    Parameters
    ----------
    document
        A plan in the ``taut-plan/1`` format.
    width
        Columns of the text.
    """
    console = Console(file=StringIO(), width=width, color_system=None, force_jupyter=False)
    console.print("\n".join(_head(document)), highlight=False)
    console.print(_time_table(document))
    console.print(_stage_table(document))
    console.print("\n".join(_proof(document)), highlight=False)
    output = console.file
    assert isinstance(output, StringIO)
    return "\n".join(line.rstrip() for line in output.getvalue().splitlines())


def _head(document: dict[str, Any]) -> list[str]:
    strategy, predicted, inputs = document["strategy"], document["predicted"], document["inputs"]
    devices = strategy["pp"] * strategy["tp"] * strategy["dp"]
    space = document["certificate"]["space"]
    degrees = f"pipeline {strategy['pp']}, tensor {strategy['tp']}, data {strategy['dp']}"
    sharding = f"ZeRO-{strategy['zero']}" + (", sequence parallel" if strategy["sequence_parallel"] else "")
    return [
        f"{inputs['model']['name']} on {inputs['cluster']['name']}: {devices} devices, "
        f"global batch {space['global_batch']}",
        "",
        f"strategy    {degrees}; {_schedule(strategy)}, {sharding}",
        f"            micro-batch {strategy['micro_batch']}, "
        f"{strategy['num_micro_batches']} of them a pipeline and step",
        f"step time   {predicted['step_time_s']:.4g} s: {predicted['tokens_per_s']:.4g} tokens/s, "
        f"model FLOP utilisation {predicted['mfu']:.1%}",
        "",
    ]


def _schedule(strategy: dict[str, Any]) -> str:
    """The schedule, with the chunks of a device where there are several, and whether its order is its own."""
    chunks = f" with {strategy['vpp']} chunks a device" if strategy["vpp"] > 1 else ""
    adapted = ", adapted to its times" if "order" in strategy else ""
    return f"{strategy['schedule']}{chunks}{adapted}"


def _time_table(document: dict[str, Any]) -> Table:
    table = Table(title="where the step's time goes", title_justify="left", box=None, pad_edge=False)
    table.add_column("part")
    table.add_column("seconds", justify="right")
    table.add_column("share", justify="right")
    total = document["predicted"]["step_time_s"]
    for part, words in PARTS.items():
        seconds = document["predicted"]["breakdown_s"][part]
        if part == "constant" and seconds == 0.0:
            continue
        table.add_row(words, f"{seconds:.4f}", f"{seconds / total:.1%}")
    return table


def _stage_table(document: dict[str, Any]) -> Table:
    """One row per run of stages that differ in their layer numbers alone."""
    table = Table(title="\nstages", title_justify="left", box=None, pad_edge=False)
    for column in ("stage", "layers", "recompute", "memory GiB", "margin", "capacity", "first device"):
        table.add_column(column, justify="left" if column in ("stage", "layers", "recompute") else "right")
    for x, chunks in enumerate(_chunks(document["strategy"])):
        predicted = document["predicted"]
        ranges = [document["strategy"]["stages"][c] for c in chunks]
        recompute = [document["strategy"]["recompute"][c] for c in chunks]
        table.add_row(
            str(x),
            ", ".join(f"{first}-{end - 1} ({end - first})" for first, end in ranges),
            ", ".join(recompute) if len(set(recompute)) > 1 else recompute[0],
            f"{predicted['memory_bytes'][x] / GIB:.2f}",
            f"{predicted['margin_bytes'][x] / GIB:.2f}",
            f"{predicted['capacity_bytes'][x] / GIB:.2f}",
            str(document["placement"]["devices"][x][0][0]),
        )
    return table


def _chunks(strategy: dict[str, Any]) -> list[list[int]]:
    """Chunks of every pipeline rank, as ``taut.formulations.schedules.plan_orders`` lays them out."""
    from taut.formulations.schedules.plan_orders import device_of_chunk

    device = device_of_chunk(strategy["schedule"], strategy["pp"], strategy["vpp"])
    return [[c for c, d in enumerate(device.tolist()) if d == x] for x in range(strategy["pp"])]


def _proof(document: dict[str, Any]) -> list[str]:
    certificate = document["certificate"]
    states = Counter(f"{entry['state']} ({entry['source']})" for entry in certificate["candidates"])
    fixed = certificate["space"]["fixed"]
    lines = [
        "",
        f"status      {document['status']}: lower bound {_seconds(certificate['lower_bound_s'])}, "
        f"gap {percent(certificate['gap'])}, of the communication {percent(certificate['communication_gap'])}",
        *_no_margin(certificate["lower_bound_no_margin_s"]),
        f"space       {len(certificate['candidates'])} candidates: "
        + ", ".join(f"{count} {state}" for state, count in states.most_common()),
    ]
    if adapted := len(certificate["space"].get("orders", [])):
        lines.append(f"            the bound is on the schedules' own orders and {adapted} adapted, not on every order")
    if fixed:
        lines.append("            fixed by the user: " + ", ".join(f"{k}={v}" for k, v in fixed.items()))
    memory = document["inputs"]["memory_model"]
    calibration = document["inputs"].get("calibration")
    free = [term for term, value in (calibration["spec"]["coefficients"] if calibration else {}).items() if value == 0]
    if free:
        lines.append(
            f"caution     the calibration prices these terms at 0, so the plan does not weigh them: {', '.join(free)}"
        )
    lines += [
        f"priced by   latency model {certificate['latency_model']}; {document['inputs']['costs']['spec']['basis']}",
        f"memory      model {memory['name']}: {_memory_words(memory['spec'])}",
        "The gap is a claim about these prices, not about the machine; `taut verify` derives it again.",
    ]
    return lines


def _memory_words(spec: dict[str, Any]) -> str:
    """What a memory model rests on."""
    if spec["network"] is not None:
        network = spec["network"]
        words = f"{spec['precision']}, network of {len(network['layers'])} layers for even partitions"
        return f"{words}, trained on {network['samples']} runs, margin {network['margin']:.1%} of the capacity"
    words = f"{spec['precision']}, overhead {spec['overhead_gib']:.3g} GiB"
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
