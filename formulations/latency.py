r"""
Step time of a choice: the one evaluator.

Sets: stages x, pipelines z, which are replicas, or those that an expert group goes over together, ranks y of their
blocks (``taut.formulations.degrees`` (2)); worker (x, y, z) runs on device d(x, z, y). m micro-batches a step.
Data: ``StageTables`` of the candidate, ``Links`` of the cluster.

(1) stage time t[x, z]: seconds on the slowest device type of the block, plus the traffic within it over its slowest
    links (``taut.formulations.tables.block_traffic``), and in ``step`` what sharded weights and gradients add to both
    passes (``taut.formulations.sharding`` (2));
(2) hop(x, y, z) = latency + message / B^PP there and, where the latency model says so, back; T_PP[z] = max over y of
    the sum of hops;
(3) T_pipe[z] = sum_x t + (m - 1) max_x t + h T_PP[z], h from ``PlanningProblem.transfer_weight``; of a schedule that
    is order-priced, the makespan of that order (``taut.formulations.order_division``); where replicas divide the
    batch unevenly (``taut.formulations.strategy`` (3)), m and h are the replica's;
(4) end[0, z] = T_pipe[z], and end[x + 1, z] = end[x, z] - backward[x, z] - back[x, z]: the last micro-batch's backward
    pass goes from the last stage to the first. ``backward`` are seconds of the gradients by input and weights, with
    recompute and the traffic of (1) that is not forward; ``back`` is the gradient's hop, one way, the slowest rank's.
    Of an order-priced schedule it is the end of the device's last pass;
(5) where every stage is waited for, T is the end of the last reduction plus the largest optimizer
    (``taut.formulations.gradient_reductions``); elsewhere T = max_z T_pipe[z] + T_DP + T_opt, T_opt of stage 0, T_DP of
    stage 0 or the largest of all stages (``taut.formulations.mechanisms.latency_models`` (1)).

A calibration multiplies the terms, and adds a constant.

Sources: Yim et al. (Pipette) eqs. 3-6; Li et al. (AMP) eqs. 3-5.
"""

from dataclasses import dataclass, replace

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.data.costs import RECOMPUTE
from taut.data.units import KIB
from taut.formulations.divisions import families_of, is_stated
from taut.formulations.gradient_reductions import by_device, end_of_step, optimizer_by_stage
from taut.formulations.order_division import PipelineSeconds, chunk_pipelines
from taut.formulations.problem import PlanningProblem
from taut.formulations.rings import ring_seconds
from taut.formulations.schedules.orders import in_flight_counts
from taut.formulations.sharding import exposed_by_worker
from taut.formulations.strategy import Rule, Strategy, Violation
from taut.formulations.tables.block_traffic import block_link
from taut.formulations.tables.memory import bytes_of_stages, device_memory, stage_memory, weigh_kept
from taut.formulations.tables.stage_tables import StageTables
from taut.formulations.terms import gathers_of


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """
    Step time and its parts in seconds of the slowest replica; ``sharding``: the gathers that nothing hides.

    What no placement changes are ``compute``, ``tensor_parallel``, ``optimizer`` and ``constant``: no traffic between
    replicas or stages is counted there.
    """

    total: Floats
    compute: Floats
    tensor_parallel: Floats
    pipeline_transfers: Floats
    data_parallel: Floats
    optimizer: Floats
    constant: Floats
    sharding: Floats


def step_time(problem: PlanningProblem, strategy: Strategy, devices: Ints) -> StepTime:
    """Price a strategy on placements of devices (..., pp, pipelines, width); leading axes are placements."""
    if strategy.candidate.is_order_priced:
        pipeline = chunk_pipelines(problem, strategy, devices)
    else:
        pipeline = closed_pipelines(problem, strategy, devices)
    worst = np.argmax(pipeline.total, axis=-1, keepdims=True)
    optimizer = optimizer_by_stage(problem, strategy, devices)
    if problem.latency.waits_for_every_stage:
        optimizer = optimizer.max(axis=-1)
        reduced = end_of_step(problem, strategy, devices, pipeline.ends, pipeline.backward)
        data = reduced - pipeline.total.max(axis=-1)
    else:
        optimizer = optimizer[..., 0]
        data = _reduction_after_pipeline(problem, strategy, devices)

    def of_worst(seconds: Floats) -> Floats:
        return np.asarray(np.take_along_axis(seconds, worst, axis=-1)[..., 0])

    return StepTime(
        total=of_worst(pipeline.total) + data + optimizer + problem.constant_of(strategy.candidate),
        compute=of_worst(pipeline.compute),
        tensor_parallel=of_worst(pipeline.tensor_parallel),
        pipeline_transfers=of_worst(pipeline.transfers),
        data_parallel=data + of_worst(pipeline.sharding),
        optimizer=optimizer,
        constant=np.full_like(optimizer, problem.constant_of(strategy.candidate)),
        sharding=of_worst(pipeline.sharding),
    )


def closed_pipelines(problem: PlanningProblem, strategy: Strategy, devices: Ints) -> PipelineSeconds:
    """T_pipe of every replica by its closed form, eq. (3), and the ends of its stages, eq. (4)."""
    candidate, tables = strategy.candidate, problem.tables(strategy.candidate)
    compute, tensor, backward, sharding = _stage_seconds(problem, strategy, tables, devices)
    weights = [problem.transfer_weight(replace(candidate, num_micro_batches=m)) for m in strategy.batches.tolist()]
    forth, back = _hops(problem, strategy, tables, devices)
    trip = (forth + back if problem.latency.both_ways else forth).sum(axis=-3).max(axis=-1)
    transfers = np.array(weights) * trip
    stage = compute + tensor + sharding
    slowest = np.argmax(stage, axis=-2, keepdims=True)

    def pipelined(seconds: Floats) -> Floats:
        straggler = np.take_along_axis(seconds, slowest, axis=-2)[..., 0, :]
        return np.asarray(seconds.sum(axis=-2) + (strategy.batches - 1) * straggler)

    total = pipelined(stage) + transfers
    later = (backward[..., :-1, :] + problem.coefficient("pipeline") * back.max(axis=-1)).cumsum(axis=-2)
    ends = total[..., None, :] - np.concatenate([np.zeros_like(backward[..., :1, :]), later], axis=-2)
    parts = (pipelined(compute), pipelined(tensor), pipelined(sharding))
    return PipelineSeconds(total, *parts, transfers, ends, backward)


def _stage_seconds(
    problem: PlanningProblem, strategy: Strategy, tables: StageTables, devices: Ints
) -> tuple[Floats, Floats, Floats, Floats]:
    """Computation, tensor-parallel, backward and sharding seconds of every (stage, replica), eqs. (1) and (4)."""
    recompute, first, end = strategy.ranges
    passes, candidate = problem.passes(strategy.candidate), strategy.candidate
    types = problem.type_of_node[problem.links.node_of[devices]]
    stage = np.arange(len(first))[:, None, None]

    def of_workers(by_range: Floats) -> Floats:
        return by_range[:, recompute, first, end][types, stage]

    both = of_workers(tables.seconds)
    compute, sharding = both.max(axis=-1), np.zeros(both.shape[:-1])
    # Of one type: another group then takes no longer backward than it takes for both passes.
    backward = of_workers(passes.input_gradient + passes.weight_gradient)
    if gathers_of(problem.terms(candidate)):
        before, after = exposed_by_worker(problem, strategy, stage.ravel(), devices)
        sharding, backward = (both + before + after).max(axis=-1) - compute, backward + after
    backward = backward.max(axis=-1)
    if candidate.width == 1:
        return compute, np.zeros_like(compute), backward, sharding
    link, within = block_link(problem.links, devices, candidate.block), (first[:, None], end[:, None])
    every = tables.traffic.at(recompute[:, None], *within)
    later = every.less(tables.forward.at(*within)).seconds(link)
    return compute, every.seconds(link), backward + later, sharding


def _hops(problem: PlanningProblem, strategy: Strategy, tables: StageTables, devices: Ints) -> tuple[Floats, Floats]:
    """Seconds of every rank's hop to the next stage and of the gradient's back, (..., pp - 1, dp, width), eq. (2)."""
    sites = problem.links.site_of[devices]
    message = tables.message[[end for _, end in strategy.stages[:-1]]][:, None, None]
    return problem.links.hops(sites[..., :-1, :, :], sites[..., 1:, :, :], message, strategy.candidate.width)


def _reduction_after_pipeline(problem: PlanningProblem, strategy: Strategy, devices: Ints) -> Floats:
    """T_DP of stage 0, or of the slowest stage, after the pipeline, (5), (...,)."""
    links, candidate = problem.links, strategy.candidate
    if candidate.dp == 1:
        return np.zeros(devices.shape[:-3])
    gradients = by_device(strategy, problem.gradient_bytes(candidate))
    weight, found = problem.coefficient("data_parallel"), []
    for x in range(1 if problem.latency.waits_for_first_stage else candidate.pp):
        sites = links.site_of[np.swapaxes(devices[..., x, :, :], -1, -2)]
        by_byte, latency = ring_seconds(problem.rings, sites, links.node_of_site[sites])
        found.append((float(gradients[x]) * by_byte + weight * latency).max(axis=-1))
    return np.asarray(np.max(found, axis=0))


def memory_bytes(problem: PlanningProblem, strategy: Strategy) -> list[int]:
    """Predicted bytes of one device of every stage, or of every pipeline rank where it has several chunks."""
    if strategy.candidate.is_order_priced:
        return device_memory(problem, strategy.candidate).bytes_of(*strategy.ranges)
    if problem.memory.is_sum_of_terms:
        return [int(need) for need in bytes_of_stages(problem, strategy.candidate, *strategy.ranges)]
    memory = stage_memory(problem, strategy.candidate)
    return [
        memory.bytes_of(x, first, end, RECOMPUTE.index(recompute))
        for x, ((first, end), recompute) in enumerate(zip(strategy.stages, strategy.recompute, strict=True))
    ]


def kept_and_held(problem: PlanningProblem, strategy: Strategy) -> tuple[Floats, Floats]:
    """Bytes that stay of a micro-batch of every chunk (chunks,), and the most that a rank holds beside them, (pp,)."""
    candidate, (recompute, first, end) = strategy.candidate, strategy.ranges
    if not candidate.is_order_priced:
        stages = stage_memory(problem, candidate)
        kept, held = stages.activation[recompute, first, end], stages.held[recompute, first, end]
        return kept.astype(float), held.astype(float)
    kept = weigh_kept(problem.memory, recompute, problem.tables(candidate).activation[recompute, first, end])
    device, counts = device_memory(problem, candidate).device, in_flight_counts(*candidate.order_key)
    most = [(count @ kept[device == d]).max() for d, count in enumerate(counts)]
    return kept.astype(float), np.array(memory_bytes(problem, strategy), dtype=float) - np.array(most, dtype=float)


def violations(problem: PlanningProblem, strategy: Strategy, devices: Ints) -> tuple[Violation, ...]:
    """Rules that stages, devices, micro-batches of replicas, blocks on nodes, or memory break, one line each."""
    if shape := _shape_violations(problem, strategy, devices) or _batch_violations(problem, strategy, devices):
        return tuple(shape)
    return (*_group_violations(problem, strategy, devices), *_memory_violations(problem, strategy, devices))


def _batch_violations(problem: PlanningProblem, strategy: Strategy, devices: Ints) -> list[Violation]:
    """Micro-batches that replicas do not divide, or replicas on several types, of a batch that is divided unevenly."""
    candidate, found = strategy.candidate, list(strategy.micro_batches)
    count = candidate.dp * candidate.num_micro_batches
    if not candidate.pipelines_by_type:
        return [Violation(Rule.BATCH, f"micro-batches {found} by replica of an even batch")] if found else []
    if len(found) != candidate.dp or min(found) < 1 or sum(found) != count:
        return [Violation(Rule.BATCH, f"micro-batches {found} do not divide {count} over {candidate.dp} replicas")]
    types = problem.type_of_node[problem.links.node_of[devices]]
    mixed = np.flatnonzero((types != types[:1, :, :1]).any(axis=(0, 2)))
    words = (f"replica {z} of an uneven batch is on several types of device" for z in mixed[:1].tolist())
    return [Violation(Rule.TYPES, each) for each in words]


def _shape_violations(problem: PlanningProblem, strategy: Strategy, devices: Ints) -> list[Violation]:
    candidate, found = strategy.candidate, list[Violation]()
    ends = [0, *(end for _, end in strategy.stages)]
    chained = all(first == before for (first, _), before in zip(strategy.stages, ends, strict=False))
    rising = all(first < end for first, end in strategy.stages)
    count = candidate.pp * candidate.vpp
    if len(strategy.stages) != count or not (chained and rising and ends[-1] == problem.num_layers(candidate)):
        words = f"stages {list(strategy.layer_stages)} do not divide {len(problem.model.blocks)} layers in order"
        found.append(Violation(Rule.DIVISION, words))
    elif not is_stated(strategy.division.layers, families_of(problem, candidate)):
        forms = ", ".join(problem.space.divisions)
        words = f"layers {strategy.division.layers.tolist()} of the stages are no division that is {forms}"
        found.append(Violation(Rule.DIVISION, words))
    allowed = set(problem.recompute_of(candidate))
    if len(strategy.recompute) != count or not set(strategy.recompute) <= allowed:
        words = f"recompute {list(strategy.recompute)} is not one of {sorted(allowed)} for each stage"
        found.append(Violation(Rule.RECOMPUTE, words))
    if devices.shape != (candidate.pp, candidate.pipelines, candidate.width):
        found.append(Violation(Rule.DEVICES, f"devices have shape {devices.shape}, not (pp, pipelines, width)"))
    elif sorted(devices.ravel().tolist()) != list(range(problem.cluster.num_devices)):
        found.append(Violation(Rule.DEVICES, "not every device is used exactly once"))
    return found


def _group_violations(problem: PlanningProblem, strategy: Strategy, devices: Ints) -> list[Violation]:
    """Blocks and their groups that are torn apart."""
    links, candidate, found = problem.links, strategy.candidate, list[Violation]()
    size, nodes = int(links.gpus_per_node.max()), links.node_of[devices]
    for count, name in candidate.block.groups.items():
        spread = max(len(set(group)) for group in nodes.reshape(-1, count).tolist())
        allowed = max(count // size, 1)
        if spread > allowed:
            found.append(Violation(Rule.GROUPS, f"a {name} of {count} lies on {spread} nodes, not {allowed}"))
    return found[-1:]


def _memory_violations(problem: PlanningProblem, strategy: Strategy, devices: Ints) -> list[Violation]:
    budget = problem.budget
    types = problem.type_of_node[problem.links.node_of[devices]]
    names = problem.device_types
    words = (
        f"stage {x} needs {-(-need // KIB)} KiB, device type {names[kind]} has {budget[kind] // KIB}"
        for x, need in enumerate(memory_bytes(problem, strategy))
        for kind in sorted(set(types[x].ravel().tolist()))
        if need > budget[kind]
    )
    return [Violation(Rule.MEMORY, each) for each in words]
