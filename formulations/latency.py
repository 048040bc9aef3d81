r"""
Step time of a choice: the one evaluator.

Sets: stages x, tensor ranks y, replicas z; worker (x, y, z) runs on device d(x, z, y). m micro-batches a step.
Data: ``StageTables`` of the candidate, ``Links`` of the cluster.

(1) stage time t[x, z]: seconds on the slowest device type of the tensor group, plus its all-reduces over the group's
    slowest link;
(2) hop(x, y, z) = latency + message / B^PP there and, except in ``amp``, back; T_PP[z] = max over y of the sum of hops;
(3) T_pipe[z] = sum_x t + (m - 1) max_x t + h T_PP[z], h from ``PlanningProblem.transfer_weight``; of a schedule that
    is order-priced, the makespan of that order (``taut.formulations.order_times``);
(4) data-parallel time of a stage, tensor rank y, replicas on nodes n with g_n of them, k nodes in all:
    max over n of 4 (g_n - 1)/g_n M/B(n) + 2 (k - 1)/k M/B(between), with B the slowest link of each kind, M the bytes
    that the stage exchanges (its gradients under ZeRO-0 and 1; ``ParameterBytes.exchanged``); in ``amp`` one ring over
    the slowest link of the whole group, with its latency;
    T_DP is the largest over y on stage 0, in ``amp`` over all stages; a device with several chunks exchanges those of
    all of them;
(5) T = max_z T_pipe[z] + T_DP + T_opt, T_opt the optimizer on stage 0's parameters (divided by dp under ZeRO).

A calibration multiplies the terms, and adds a constant.

Sources: Yim et al. (Pipette) eqs. 3-6; Li et al. (AMP) eqs. 3-5.
"""

from dataclasses import dataclass

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.data.costs import RECOMPUTE
from taut.data.units import KIB
from taut.formulations.links import Links, group_link
from taut.formulations.order_times import PipelineSeconds, chunk_pipelines
from taut.formulations.problem import PlanningProblem
from taut.formulations.rings import inside_factor, ring_factor, ring_steps
from taut.formulations.schedules.plan_orders import device_of_chunk
from taut.formulations.space import Candidate
from taut.formulations.stage_tables import StageTables
from taut.formulations.strategy import Strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """
    Step time and its parts in seconds, of the slowest replica.

    ``total`` may be an array when many placements are priced at once; the parts are then arrays too.
    """

    total: Floats
    compute: Floats
    tensor_parallel: Floats
    pipeline_transfers: Floats
    data_parallel: Floats
    optimizer: Floats
    constant: Floats


def step_time(problem: PlanningProblem, strategy: Strategy, devices: Ints) -> StepTime:
    """
    Price a strategy on one placement, or on many at once.

    Parameters
    ----------
    problem
        Model, cluster, costs and latency model.
    strategy
        Candidate, stages and recompute.
    devices
        Device of every worker, (..., pp, dp, tp); leading axes are placements.

    Returns
    -------
    StepTime
        Total and parts, with the leading axes of ``devices``.
    """
    tables = problem.tables(strategy.candidate)
    if strategy.candidate.is_order_priced:
        pipeline = chunk_pipelines(problem, strategy, devices)
    else:
        pipeline = _pipelines(problem, strategy, tables, devices)
    worst = np.argmax(pipeline.total, axis=-1, keepdims=True)
    optimizer = _optimizer(problem, strategy, tables, devices)
    data = _data_parallel(problem, strategy, tables, devices)

    def of_worst(seconds: Floats) -> Floats:
        return np.asarray(np.take_along_axis(seconds, worst, axis=-1)[..., 0])

    return StepTime(
        total=of_worst(pipeline.total) + data + optimizer + problem.constant_seconds,
        compute=of_worst(pipeline.compute),
        tensor_parallel=of_worst(pipeline.tensor_parallel),
        pipeline_transfers=of_worst(pipeline.transfers),
        data_parallel=data,
        optimizer=optimizer,
        constant=np.full_like(optimizer, problem.constant_seconds),
    )


def _pipelines(problem: PlanningProblem, strategy: Strategy, tables: StageTables, devices: Ints) -> PipelineSeconds:
    """T_pipe of every replica by its closed form, eq. (3)."""
    candidate = strategy.candidate
    compute, tensor = _stage_seconds(problem, strategy, tables, devices)
    transfers = problem.transfer_weight(candidate) * _trip(problem, strategy, tables, devices)
    stage = compute + tensor
    slowest = np.argmax(stage, axis=-2, keepdims=True)

    def pipelined(seconds: Floats) -> Floats:
        straggler = np.take_along_axis(seconds, slowest, axis=-2)[..., 0, :]
        return np.asarray(seconds.sum(axis=-2) + (candidate.num_micro_batches - 1) * straggler)

    return PipelineSeconds(pipelined(stage) + transfers, pipelined(compute), pipelined(tensor), transfers)


def _stage_seconds(
    problem: PlanningProblem, strategy: Strategy, tables: StageTables, devices: Ints
) -> tuple[Floats, Floats]:
    """Computation and tensor-parallel seconds of every (stage, replica), eq. (1)."""
    recompute, first, end = strategy.ranges
    by_type = tables.seconds[:, recompute, first, end]
    types = problem.type_of_node[problem.links.node_of[devices]]
    stage = np.arange(len(first))[:, None, None]
    compute = by_type[types, stage].max(axis=-1)
    tp = strategy.candidate.tp
    if tp == 1:
        return compute, np.zeros_like(compute)
    volume = tables.volume[recompute, first, end][:, None]
    reductions = tables.reductions[recompute, first, end][:, None]
    inverse, latency = group_link(problem.links, devices)
    return compute, ring_factor(tp) * volume * inverse + ring_steps(tp) * reductions * latency


def _trip(problem: PlanningProblem, strategy: Strategy, tables: StageTables, devices: Ints) -> Floats:
    """T_PP of every replica, eq. (2)."""
    sites = problem.links.site_of[devices]
    before, after = sites[..., :-1, :, :], sites[..., 1:, :, :]
    message = tables.message[[end for _, end in strategy.stages[:-1]]][:, None, None]
    inverse = 1.0 / problem.links.pipeline_rate(strategy.candidate.tp)
    latency = problem.links.latency
    hop = latency[before, after] + message * inverse[before, after]
    if problem.latency_model != "amp":
        hop = hop + latency[after, before] + message * inverse[after, before]
    return np.asarray(hop.sum(axis=-3).max(axis=-1))


def _data_parallel(problem: PlanningProblem, strategy: Strategy, tables: StageTables, devices: Ints) -> Floats:
    """T_DP, eq. (4)."""
    gradients = problem.gradient_bytes(strategy.candidate)
    if strategy.candidate.dp == 1:
        return np.zeros(devices.shape[:-3])
    if problem.latency_model != "amp":
        return _hierarchical(problem.links, devices[..., 0, :, :], float(_on_first_device(strategy, gradients)))
    rings = [
        _flat(problem, devices[..., x, :, :], float(gradients[first, end]))
        for x, (first, end) in enumerate(strategy.stages)
    ]
    return np.asarray(np.max(rings, axis=0))


def _hierarchical(links: Links, group: Ints, message: float) -> Floats:
    """Two rings inside each node and one between nodes, (..., dp, tp) devices of one stage."""
    sites = links.site_of[np.swapaxes(group, -1, -2)]
    return np.asarray(message * ring_by_byte(links.ring_inverse, sites, links.node_of_site[sites]).max(axis=-1))


def ring_by_byte(inverse: Floats, sites: Ints, nodes: Ints) -> Floats:
    """
    T_DP per byte of one tensor rank's replicas, eq. (4).

    Parameters
    ----------
    inverse
        Seconds per byte between sites, symmetric.
    sites, nodes
        Site and node of every replica, (..., dp).
    """
    pair = inverse[sites[..., :, None], sites[..., None, :]]
    same = nodes[..., :, None] == nodes[..., None, :]
    replicas = same.sum(axis=-1)
    own = np.where(same & ~np.eye(sites.shape[-1], dtype=bool), pair, 0.0).max(axis=-1)
    inside = (inside_factor(replicas) * own).max(axis=-1)
    touched = (1.0 / replicas).sum(axis=-1)
    between = np.where(same, 0.0, pair).max(axis=(-1, -2))
    return np.asarray(inside + ring_factor(touched) * between)


def _flat(problem: PlanningProblem, group: Ints, message: float) -> Floats:
    """One ring over the slowest link of the group, as AMP prices it; its coefficient scales latencies as well."""
    links, weight = problem.links, problem.coefficient("data_parallel")
    sites = links.site_of[np.swapaxes(group, -1, -2)]
    pairs = sites[..., :, None], sites[..., None, :]
    apart = ~np.eye(sites.shape[-1], dtype=bool)
    inverse = np.where(apart, 1.0 / links.data_rate[pairs], 0.0).max(axis=(-1, -2))
    latency = np.where(apart, links.latency[pairs], 0.0).max(axis=(-1, -2))
    n = sites.shape[-1]
    return np.asarray((ring_factor(n) * message * inverse + weight * ring_steps(n) * latency).max(axis=-1))


def _optimizer(problem: PlanningProblem, strategy: Strategy, tables: StageTables, devices: Ints) -> Floats:
    """T_opt, on the slowest device type of stage 0, eq. (5)."""
    types = problem.type_of_node[problem.links.node_of[devices[..., 0, :, :]]]
    seconds = problem.optimizer_seconds[types].max(axis=(-1, -2))
    parameters = _on_first_device(strategy, tables.parameters)
    return np.asarray(seconds * parameters / optimizer_shards(strategy.candidate))


def _on_first_device(strategy: Strategy, figures: Floats | Ints) -> float:
    """A figure of ranges, summed over the chunks of the first device."""
    _, first, end = strategy.ranges
    hosted = device_of_chunk(strategy.candidate.schedule, strategy.candidate.pp, strategy.candidate.vpp) == 0
    return float(figures[first, end][hosted].sum())


def optimizer_shards(candidate: Candidate) -> int:
    """Replicas that share the optimizer's work."""
    return candidate.dp if candidate.zero else 1


def memory_bytes(problem: PlanningProblem, strategy: Strategy) -> list[int]:
    """Predicted bytes of one device of every stage, or of every pipeline rank where it has several chunks."""
    if strategy.candidate.is_order_priced:
        return problem.device_memory(strategy.candidate).bytes_of(*strategy.ranges)
    memory = problem.stage_memory(strategy.candidate)
    return [
        memory.bytes_of(x, first, end, RECOMPUTE.index(recompute))
        for x, ((first, end), recompute) in enumerate(zip(strategy.stages, strategy.recompute, strict=True))
    ]


def violations(problem: PlanningProblem, strategy: Strategy, devices: Ints) -> tuple[str, ...]:
    """
    What is wrong with a choice, one line each.

    Checks the stages, every device used once, the rule that a tensor group lies in one node or fills whole nodes,
    and memory.
    """
    if shape := _shape_violations(problem, strategy, devices):
        return tuple(shape)
    return (*_group_violations(problem.links, devices), *_memory_violations(problem, strategy, devices))


def _shape_violations(problem: PlanningProblem, strategy: Strategy, devices: Ints) -> list[str]:
    candidate, found = strategy.candidate, []
    ends = [0, *(end for _, end in strategy.stages)]
    chained = all(first == before for (first, _), before in zip(strategy.stages, ends, strict=False))
    rising = all(first < end for first, end in strategy.stages)
    count = candidate.pp * candidate.vpp
    if len(strategy.stages) != count or not (chained and rising and ends[-1] == len(problem.model.blocks)):
        found.append(f"stages {list(strategy.stages)} do not divide {len(problem.model.blocks)} layers in order")
    allowed = set(problem.recompute_of(candidate))
    if len(strategy.recompute) != count or not set(strategy.recompute) <= allowed:
        found.append(f"recompute {list(strategy.recompute)} is not one of {sorted(allowed)} for each stage")
    if devices.shape != (candidate.pp, candidate.dp, candidate.tp):
        found.append(f"devices have shape {devices.shape}, not (pp, dp, tp)")
    elif sorted(devices.ravel().tolist()) != list(range(problem.cluster.num_devices)):
        found.append("not every device is used exactly once")
    return found


def _group_violations(links: Links, devices: Ints) -> list[str]:
    """Tensor groups that are torn apart."""
    tp, nodes = devices.shape[-1], links.node_of[devices]
    spread = [len(set(group)) for group in nodes.reshape(-1, tp).tolist()]
    size = int(links.gpus_per_node.max())
    allowed = 1 if tp <= size else tp // size
    return [f"a tensor group of {tp} lies on {max(spread)} nodes, not {allowed}"] if max(spread) > allowed else []


def _memory_violations(problem: PlanningProblem, strategy: Strategy, devices: Ints) -> list[str]:
    budget = problem.stage_memory(strategy.candidate).budget
    types = problem.type_of_node[problem.links.node_of[devices]]
    return [
        f"stage {x} needs {-(-need // KIB)} KiB, device type {problem.device_types[kind]} has {budget[kind] // KIB}"
        for x, need in enumerate(memory_bytes(problem, strategy))
        for kind in sorted(set(types[x].ravel().tolist()))
        if need > budget[kind]
    ]
