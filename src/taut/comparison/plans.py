"""Two plans side by side: inputs, strategy, stages, time, memory, bound, and how many workers are elsewhere."""

from pathlib import Path

from taut.data.units import GIB
from taut.formulations.mechanisms.offload import activations_on_hosts, stated_share, states_share
from taut.planning.plan import Plan
from taut.planning.tables import batch_words
from taut.words import percent

Row = tuple[str, str, str]


NONE = "-"
SELDOM = "context ranks", "optimizer states on hosts", "activations on hosts"
"""Rows that are left out where neither plan has them."""


def compare_plans(one: Plan | str | Path, other: Plan | str | Path) -> list[tuple[str, str, str]]:
    """
    Two plans side by side, of one degree for all stages or of meshes, whose degrees are stated in stage order.

    Parameters
    ----------
    one, other
        Plans, or their files.

    Returns
    -------
    list
        What, and its value in either plan, as text.

    Raises
    ------
    DataError
        If a file is no plan.

    Examples
    --------
    >>> import taut
    >>> plan = taut.plan("gpt2-345m", "dgx-a100", global_batch=32, fix={"pp": 1, "tp": 1, "micro_batch": 4})
    >>> taut.compare_plans(plan, plan)[0]
    ('model', 'gpt2-345m', 'gpt2-345m')
    """
    plans = [each if isinstance(each, Plan) else Plan.read(each) for each in (one, other)]
    columns = [_figures(each) for each in plans]
    rows = [(name, columns[0][name], columns[1][name]) for name in columns[0]]
    rows = [row for row in rows if row[0] not in SELDOM or set(row[1:]) != {NONE}]
    return [*rows, ("workers on another device", *_moved(*plans))]


def _figures(plan: Plan) -> dict[str, str]:
    chosen, predicted = plan.sections.strategy, plan.sections.predicted
    return {
        "model": plan.model,
        "cluster": plan.cluster,
        "latency model": plan.sections.certificate.latency_model,
        **(_of_meshes(plan) if plan.meshes else _of_degrees(plan)),
        "recompute": ", ".join(sorted(set(chosen.recompute))),
        "layers": "|".join(str(end - first) for first, end in chosen.stages),
        "step time": f"{plan.step_time_s:.6g} s",
        "lower bound": NONE if plan.lower_bound_s is None else f"{plan.lower_bound_s:.6g} s",
        "gap": percent(plan.gap, places=2),
        "fullest device": f"{max(predicted.memory_bytes) / GIB:.2f} GiB",
        "communication": _communication(plan),
    }


def _of_degrees(plan: Plan) -> dict[str, str]:
    """The strategy of a plan of one degree for all stages."""
    chosen, kept = plan.strategy, plan.sections.inputs["memory_model"].spec
    share = states_share(chosen, kept)
    return {
        "pp, tp, cp, dp": ", ".join(str(each) for each in (chosen.pp, chosen.tp, chosen.cp, chosen.dp)),
        "context ranks": chosen.cp_comm if chosen.cp > 1 else NONE,
        "micro-batch": f"{chosen.micro_batch}, {batch_words(chosen, 'a pipeline')}"
        if chosen.micro_batches
        else f"{chosen.micro_batch}, {chosen.num_micro_batches} of them",
        "schedule": chosen.schedule + (f", {chosen.vpp} chunks" if chosen.vpp > 1 else ""),
        "ZeRO": str(chosen.zero),
        "optimizer states on hosts": f"{100 * share:.3g} %" if share else NONE,
        "activations on hosts": activations_on_hosts(chosen, plan.certificate.space) or NONE,
    }


def _of_meshes(plan: Plan) -> dict[str, str]:
    """The strategy of a plan of meshes, which divide neither contexts nor chunks and keep all on devices."""
    chosen, kept = plan.meshed.strategy, plan.sections.inputs["memory_model"].spec
    share, each = stated_share(kept), plan.meshes
    sizes = "/".join(str(mesh.micro_batch) for mesh in each)
    return {
        "pp, tp, cp, dp": "; ".join(f"{mesh.device} {mesh.pp}, {mesh.tp}, 1, {mesh.dp}" for mesh in each),
        "context ranks": NONE,
        "micro-batch": f"{sizes}, {chosen.num_micro_batches} of them",
        "schedule": "1f1b",
        "ZeRO": str(chosen.zero),
        "optimizer states on hosts": f"{100 * share:.3g} %" if share else NONE,
        "activations on hosts": NONE,
    }


def _communication(plan: Plan) -> str:
    """Seconds of the step beside computation, which passes of meshes do not tell apart from their tensor traffic."""
    if plan.meshes:
        return NONE
    return f"{plan.step_time_s - plan.predicted.breakdown_s['compute']:.4g} s"


def _moved(one: Plan, other: Plan) -> tuple[str, str]:
    """How many workers of the second plan are not where the first has them; a dash where degrees differ."""
    ours, theirs = one.devices, other.devices
    if _shape(ours) != _shape(theirs):
        return NONE, NONE
    return NONE, str(sum(a != b for a, b in zip(_flat(ours), _flat(theirs), strict=True)))


def _shape(devices: list[list[list[int]]]) -> list[list[int]]:
    """Tensor ranks of every replica of every stage."""
    return [[len(replica) for replica in stage] for stage in devices]


def _flat(devices: list[list[list[int]]]) -> list[int]:
    return [device for stage in devices for replica in stage for device in replica]
