"""
Rows priced one by one as plans: by the planner's own evaluator, workers in the order of the devices.

These are rows with experts, and those with several copies of what is sharded, recompute of named modules or of some
layers of every chunk, the optimizer Muon, or optimizer states in the host's memory.

A row's model has layers of its hidden size, the first ``dense_layers`` of them without experts. Where hidden size,
heads and experts are those of a model of the catalog it is that model, at the row's number of layers and its sequence,
since columns have no words for latent attention, windows and heads of another width; groups of experts that the row
states for its router hold. Where ``ep`` is above 1 and
``etp`` is left out an expert lies on one GPU whole, and tensor ranks have sequence parallelism.
"""

from dataclasses import asdict
from functools import cache

import numpy as np

from taut.data.analytic.layer_costs import analytic_costs
from taut.data.analytic.operator_times import OperatorModel
from taut.data.analytic.step_shares import step_shares
from taut.data.calibration import Calibration
from taut.data.catalog.builtin import catalog_models, catalog_operators
from taut.data.cluster import ClusterSpec
from taut.data.costs import RECOMPUTE, CostTable
from taut.data.layers.experts import USUAL_DISPATCH
from taut.data.memory import MemoryModel
from taut.data.model import ModelSpec
from taut.data.samples import APART, ConfigurationRow
from taut.data.stack import ContextKind
from taut.data.units import GIGABIT, MICROSECOND
from taut.errors import DataError
from taut.formulations.batch.configurations import even_division
from taut.formulations.latency import StepTime, memory_bytes, step_time, violations
from taut.formulations.mechanisms.muon import check_muon
from taut.formulations.mechanisms.offload import check_all_hosts
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import BESIDE, FIXES, Candidate, StrategySpace
from taut.formulations.strategy import Rule, Strategy, division_of_layers
from taut.planning.stack import not_hidden_twice
from taut.prediction.settings import Setting, activations_on_hosts, check_room
from taut.solver.simple_plans import rank_order


def priced_alone(row: ConfigurationRow, setting: Setting, division: list[int]) -> tuple[float, int, dict[str, float]]:
    """Seconds of a step, bytes of the fullest device, and shares of the step by term where the band needs them."""
    problem = _problem(row, setting)
    strategy = _strategy(row, problem, division)
    devices = rank_order(strategy.candidate)
    if torn := [each for each in violations(problem, strategy, devices) if each.rule is not Rule.MEMORY]:
        raise DataError(f"{torn[0]}, expected other degrees")
    needed = max(memory_bytes(problem, strategy))
    check_room(row, needed)
    time = step_time(problem, strategy, devices)
    shares = _shares(row, setting, problem, time) if setting.calibration.covariance else {}
    return float(time.total), needed, shares


def _shares(row: ConfigurationRow, setting: Setting, problem: PlanningProblem, time: StepTime) -> dict[str, float]:
    """Shares of a row's step by term."""
    return step_shares(
        {part: float(seconds) for part, seconds in asdict(time).items()},
        problem.model,
        setting.device,
        setting.memory.precision,
        _operators().get(setting.device.name),
        setting.calibration,
        tp=row.tp,
        cp=row.cp,
        ep=row.ep,
        etp=row.expert_tp,
        micro_batch=row.micro_batch,
        zero=row.zero,
        recompute=[row.recompute],
    )


def _strategy(row: ConfigurationRow, problem: PlanningProblem, division: list[int]) -> Strategy:
    """The row's candidate with its layers."""
    candidate = _candidate(row, problem)
    kinds = np.full(len(division), RECOMPUTE.index(row.recompute))
    return Strategy(candidate=candidate, division=division_of_layers(candidate, division, kinds))


def division_of(row: ConfigurationRow) -> list[int]:
    """Layers of every stage, or chunk, of a row: as stated, or even."""
    chunks = row.pp * row.vpp
    shape = np.array([row.layers]), np.array([chunks]), np.array([row.vpp > 1])
    return row.stages or [int(layers) for layers in even_division(*shape)[0, :chunks]]


def _candidate(row: ConfigurationRow, problem: PlanningProblem) -> Candidate:
    """The one candidate that the row is."""
    if not problem.candidates:
        if row.num_experts is None:
            raise DataError(f"tp={row.tp}, cp={row.cp}, zero={row.zero}: no plan has these degrees, expected others")
        raise DataError(
            f"tp={row.tp}, cp={row.cp}, ep={row.ep}, etp={row.expert_tp}, zero={row.zero}: no plan has these degrees, "
            f"expected ep to divide the {row.num_experts} experts, etp 1 or tp, groups in nodes or on whole ones, "
            "and no exchange that overlaps under ZeRO-2 or 3"
        )
    return problem.candidates[0]


def _problem(row: ConfigurationRow, setting: Setting) -> PlanningProblem:
    """The problem whose space has the row's candidate alone."""
    _refuse_network(row, setting.memory)
    model, overlap = row_model(row), setting.overlap if row.overlap_grad_reduce is None else row.overlap_grad_reduce
    calibration = not_hidden_twice(setting.calibration) if overlap else setting.calibration
    space = _space(row, setting)
    costs = _costs(row, setting, model, space, calibration)
    cluster = _cluster(row, setting)
    if setting.memory.optimizer == "muon":
        _check_muon(row)
        check_muon(model, cluster, setting.memory)
    check_all_hosts(cluster, setting.memory, space)
    return PlanningProblem(model, cluster, costs, setting.memory, space, "step", calibration, overlap)


def _check_muon(row: ConfigurationRow) -> None:
    """Refuse what is not priced beside the row's optimizer."""
    if row.overlap_grad_reduce:
        raise DataError("overlap_grad_reduce is true, not priced with optimizer muon, expected false")
    if row.zero > 1 or row.dp_shard:
        name, value = ("dp_shard", row.dp_shard) if row.dp_shard else ("zero", row.zero)
        raise DataError(f"{name} is {value}, not priced with optimizer muon, expected ZeRO-0 or 1 and one copy")


def _costs(
    row: ConfigurationRow, setting: Setting, model: ModelSpec, space: StrategySpace, calibration: Calibration
) -> CostTable:
    """Costs of the row's degrees alone."""
    return analytic_costs(
        model,
        [setting.device],
        precision=setting.memory.precision,
        tensor_degrees=[row.tp],
        micro_batches=[row.micro_batch],
        context_degrees=[row.cp],
        expert_degrees=[row.ep],
        recompute_modules=space.recompute_modules,
        offload_modules=space.offload_modules,
        dispatch=space.dispatch,
        operators=_operators(),
        calibration=calibration,
    )


def _refuse_network(row: ConfigurationRow, memory: MemoryModel) -> None:
    """Refuse a memory network, which knows none of what these rows have."""
    if memory.is_sum_of_terms:
        return
    name, value = next((name, value) for name in APART if (value := getattr(row, name)))
    shown = ", ".join(value) if isinstance(value, list) else value
    raise DataError(f"{name} is {shown}, expected none, as {memory.name} does not know it")


def _space(row: ConfigurationRow, setting: Setting) -> StrategySpace:
    """The space of the row's degrees and choices alone."""
    kind = row.cp_comm or setting.cp_comm
    usual = setting.stack.dispatch if setting.stack and row.num_experts else USUAL_DISPATCH
    return StrategySpace(
        global_batch=row.global_batch,
        max_tp=row.tp,
        max_cp=row.cp,
        max_ep=row.ep,
        cp_comm=[kind],
        overlap_context=setting.machine.core_inverse > 0.0,
        max_vpp=row.vpp,
        schedules=[row.run_schedule],
        zero=[row.zero],
        recompute=[row.recompute],
        recompute_modules=[] if row.recompute_modules == ["core_attn"] else row.recompute_modules,
        recompute_by_stage=not row.recompute_layers,
        block_recompute=bool(row.recompute_layers),
        offload_modules=row.offload_modules,
        dispatch=row.dispatch(usual),
        hybrid_sharding=False,
        empty_ends=row.has_empty_ends,
        fixed=_fixed(row, setting, kind),
        **activations_on_hosts(row),
    )


def _fixed(row: ConfigurationRow, setting: Setting, kind: ContextKind) -> dict[str, int | str | bool]:
    """Values that the row's candidate has."""
    said = setting.memory.sequence_parallel if row.sequence_parallel is None else row.sequence_parallel
    sharded = row.tp > 1 and (said or row.ep > 1)
    stated = {name: getattr(row, name, None) for name in FIXES if name not in BESIDE}
    fixed = {name: value for name, value in stated.items() if value is not None}
    fixed |= {"cp_comm": kind} if row.cp > 1 else {}
    fixed |= {"etp": row.expert_tp, "schedule": row.run_schedule, "sequence_parallel": sharded}
    return fixed | ({"empty_ends": True} if row.has_empty_ends else {})


def row_model(row: ConfigurationRow) -> ModelSpec:
    """The model whose layers a row has."""
    groups = {"router_num_groups": row.router_num_groups, "router_group_topk": row.router_group_topk}
    router = {name: value for name, value in groups.items() if value}
    if (known := known_model(row)) is not None:
        values = known.model_dump(exclude_none=True)
        own = {"layers": row.layers, "seq": row.seq, "dense_layers": row.dense_layers or known.dense_layers}
        return ModelSpec.parse({**values, **own, "experts": values["experts"] | router, "name": "row"}, "row")
    experts = router | {
        "num_experts": row.num_experts,
        "experts_per_token": row.experts_per_token,
        "expert_ffn_hidden": row.expert_ffn_hidden,
        "shared_ffn_hidden": row.shared_ffn_hidden,
    }
    shape = {name: getattr(row, name) for name in ("layers", "hidden", "seq", "dense_layers", "tied_embedding")}
    shape |= {"heads": row.attention_heads, "kv_heads": row.key_value_heads, "ffn_hidden": row.ffn_hidden}
    shape |= {"vocab": row.vocab or None, "dropout": row.dropout}
    shape |= {"gated_mlp": row.gated if row.num_experts is None else row.gated_mlp is not False}
    shape |= {} if row.num_experts is None else {"experts": experts}
    return ModelSpec.parse({"name": "row", **{k: v for k, v in shape.items() if v is not None}}, "row")


@cache
def _models() -> tuple[ModelSpec, ...]:
    """The catalog's models, read once."""
    return tuple(catalog_models().values())


@cache
def _operators() -> dict[str, OperatorModel]:
    """The catalog's operator models, read once."""
    return catalog_operators()


def known_model(row: ConfigurationRow) -> ModelSpec | None:
    """The catalog's model whose hidden size, heads and experts a row has."""
    mine = row.hidden, row.heads, row.num_experts, row.experts_per_token, row.expert_ffn_hidden
    for model in _models():
        if (experts := model.experts) is not None:
            sizes = experts.num_experts, experts.experts_per_token, experts.expert_ffn_hidden
            if mine == (model.hidden, model.heads, *sizes):
                return model
    return None


def _cluster(row: ConfigurationRow, setting: Setting) -> ClusterSpec:
    """Nodes of the row's size with the setting's links."""
    machine, size = setting.machine, min(row.gpus_per_node, row.n_gpus)
    if row.n_gpus % size:
        raise DataError(f"n_gpus is {row.n_gpus}, expected a multiple of gpus_per_node = {size} with experts")
    node = {
        "count": row.n_gpus // size,
        "device": setting.device.model_dump(),
        "gpus_per_node": size,
        "intra_bandwidth_gbps": machine.inside_rate / GIGABIT,
        "intra_latency_us": machine.inside_latency / MICROSECOND,
        **setting.host,
    }
    if np.isfinite(machine.cards):
        node["nic_bandwidth_gbps"] = machine.cards / GIGABIT
    between = machine.between_rate / GIGABIT, machine.between_latency / MICROSECOND
    network = dict(zip(("bandwidth_gbps", "latency_us"), between, strict=True))
    return ClusterSpec.parse({"name": "row", "nodes": [node], "network": network}, "row")
