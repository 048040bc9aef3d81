"""Two plans side by side: inputs, strategy, stages, time, memory, bound, and how many workers are elsewhere."""

from taut.data.units import GIB
from taut.planning.batch_words import batch_words
from taut.planning.plan import Plan
from taut.reports.memory_words import activations_on_hosts
from taut.reports.text_table import percent

Row = tuple[str, str, str]


NONE = "-"
SELDOM = "context ranks", "optimizer states on hosts"
"""Rows that are left out where neither plan has them."""


def side_by_side(one: Plan, other: Plan) -> list[Row]:
    """
    Figures of two plans.

    Parameters
    ----------
    one, other
        The plans.
    """
    columns = [_figures(each) for each in (one, other)]
    rows = [(name, columns[0][name], columns[1][name]) for name in columns[0]]
    rows = [row for row in rows if row[0] not in SELDOM or set(row[1:]) != {NONE}]
    return [*rows, ("workers on another device", *_moved(one, other))]


def _figures(plan: Plan) -> dict[str, str]:
    chosen, figures, kept = plan.strategy, plan.predicted, plan.typed.inputs["memory_model"].spec
    share = chosen.optimizer_offload or kept.get("optimizer_offload_fraction", 0.0)
    recompute = sorted(set(chosen.recompute))
    return {
        "model": plan.model,
        "cluster": plan.cluster,
        "latency model": plan.certificate.latency_model,
        "pp, tp, cp, dp": ", ".join(str(each) for each in (chosen.pp, chosen.tp, chosen.cp, chosen.dp)),
        "context ranks": chosen.cp_comm if chosen.cp > 1 else NONE,
        "micro-batch": f"{chosen.micro_batch}, {batch_words(chosen, 'a pipeline')}"
        if chosen.micro_batches
        else f"{chosen.micro_batch}, {chosen.num_micro_batches} of them",
        "schedule": chosen.schedule + (f", {chosen.vpp} chunks" if chosen.vpp > 1 else ""),
        "ZeRO": str(chosen.zero),
        "optimizer states on hosts": f"{100 * share:.3g} %" if share else NONE,
        "activations on hosts": activations_on_hosts(chosen.activation_offload, plan.certificate.space) or NONE,
        "recompute": ", ".join(recompute),
        "layers": "|".join(str(end - first) for first, end in chosen.stages),
        "step time": f"{plan.step_time_s:.6g} s",
        "lower bound": "-" if plan.lower_bound_s is None else f"{plan.lower_bound_s:.6g} s",
        "gap": percent(plan.gap),
        "fullest device": f"{max(figures.memory_bytes) / GIB:.2f} GiB",
        "communication": f"{plan.step_time_s - figures.breakdown_s['compute']:.4g} s",
    }


def _moved(one: Plan, other: Plan) -> tuple[str, str]:
    """How many workers of the second plan are not where the first has them; a dash where degrees differ."""
    if _shape(one) != _shape(other):
        return "-", "-"
    pairs = zip(_flat(one), _flat(other), strict=True)
    return "-", str(sum(a != b for a, b in pairs))


def _shape(plan: Plan) -> tuple[int, int, int]:
    return len(plan.devices), len(plan.devices[0]), len(plan.devices[0][0])


def _flat(plan: Plan) -> list[int]:
    return [device for stage in plan.devices for replica in stage for device in replica]
