"""Random small planning problems, of every shape that the bounds must hold for."""

from dataclasses import replace
from typing import Any

import numpy as np

from taut.data.calibration import OPTIONAL, TERMS, Calibration
from taut.data.cluster import ClusterSpec
from taut.data.costs import RECOMPUTE, CostRow, CostTable
from taut.data.layers.layer import EMBEDDING, HEAD
from taut.data.memory import MemoryModel
from taut.data.model import ModelSpec
from taut.formulations.degrees import divisors, tensor_degrees
from taut.formulations.latency import memory_bytes
from taut.formulations.mechanisms.latency_models import LATENCY_MODELS
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import StrategySpace
from taut.formulations.strategy import Division, Strategy

SHAPES = [(1, 4), (2, 2), (4, 1), (2, 3), (3, 2), (6, 1), (2, 1), (1, 2), (5, 1)]
LARGE_SHAPES = [(2, 4), (4, 2), (8, 1)]
MEASURED_SHAPES = [(1, 3), (1, 4), (1, 5), (1, 6), (2, 2), (2, 3)]


def random_problem(seed: int, *, large: bool = False, measured: bool = False, experts: bool = False) -> PlanningProblem:
    """
    A random problem: up to 6 devices (8 if ``large``), levels, racks or measured matrices, one to three device types.

    Layers are alike or unlike, with or without vocabulary, in one of three with context ranks; memory is tight in most
    instances. If ``measured``, 3 to 6
    devices in one or two nodes have unlike links, measured device by device and direction by direction.
    With ``experts`` some layers have experts, at times shared ones too or groups that a token keeps to, and some latent
    attention.
    """
    rng = np.random.default_rng(seed)
    shapes = MEASURED_SHAPES if measured else LARGE_SHAPES if large else SHAPES
    nodes, gpus = shapes[rng.integers(len(shapes))]
    model = _with_experts(seed, _model(rng, large)) if experts else _model(rng, large)
    cluster = _with_latencies(seed, _cluster(rng, nodes, gpus, memory_gib=1.0))
    if measured:
        cluster = _device_by_device(seed, cluster)
    batch = int(rng.choice([2, 4, 6, 8, 12]))
    max_tp = int(rng.choice([gpus, gpus, nodes * gpus]))
    space = StrategySpace(
        global_batch=batch,
        max_tp=max_tp,
        schedules=list(rng.choice(["1f1b", "gpipe"], size=rng.integers(1, 3), replace=False)),
        zero=[[0], [1], [0, 1], [2], [0, 3]][rng.integers(5)],
        sequence_parallel=[[False], [False, True]][rng.integers(2)],
        recompute=list(RECOMPUTE)
        if rng.random() < 0.7 and not large
        else [["none"], ["none", "full"]][rng.integers(2)],
    )
    space = _of_a_stack(seed, space)
    costs = random_costs(rng, model, cluster, space)
    if seed % 3 == 1:
        space, costs = space.model_copy(update={"max_cp": 4}), _with_contexts(seed, costs)
    margin = float(rng.choice([0.0, 0.1]))
    stack: dict[str, Any] = {"half_gradients": seed % 4 == 0, "weight_remainders": seed % 3 == 0}
    loss = {2: "te", 4: "native"}.get(seed % 6, "none")
    stack |= {"half_moments": seed % 5 == 1, "fused_loss": loss, "fused_logit_bytes": 2 * (seed % 12 == 2)}
    stack["group_overhead_gib"] = 1e-5 * (seed % 5 == 1)
    stack |= {"transformer_engine": {3: "2.10", 5: "2.18"}.get(seed % 7, ""), "passing_gradients": seed % 7 in (3, 6)}
    memory = MemoryModel(
        precision="bf16", overhead_gib=0.0, margin=margin, shared_logit_bytes=8 if seed % 2 else 12, **stack
    )
    latency_model = [*LATENCY_MODELS][rng.integers(len(LATENCY_MODELS))]
    calibration = _calibration(rng) if rng.random() < 0.3 else None
    roomy = PlanningProblem(model, cluster, costs, memory, space, latency_model, calibration)
    if rng.random() < 0.25 or not roomy.candidates:
        return roomy
    return PlanningProblem(model, tightened(rng, roomy), costs, memory, space, latency_model, calibration)


def _of_a_stack(seed: int, space: StrategySpace) -> StrategySpace:
    """The space, one in four with one recompute for all stages, and one in four with fewer ZeRO stages in pipelines."""
    rng = np.random.default_rng((seed, 3))
    alike, fewer, whole = (rng.random(3) < 0.25).tolist()
    zero = space.zero[:1] if fewer else None
    return space.model_copy(
        update={"recompute_by_stage": not alike, "pipeline_zero": zero, "hybrid_sharding": not whole}
    )


def _calibration(rng: np.random.Generator) -> Calibration:
    """Random coefficients, some of them zero; in half of them gathers have one of their own, and exchanges."""
    names = [term for term in TERMS if term not in OPTIONAL]
    values = np.where(rng.random(len(names)) < 0.2, 0.0, rng.uniform(0.1, 3, len(names)))
    coefficients = dict(zip(names, values.tolist(), strict=True)) | {"constant": float(rng.uniform(0, 0.01))}
    if values[0] < values[1]:
        coefficients["gather"] = float(values[2])
    if values[1] < values[2]:
        coefficients["exchange"] = float(values[3])
    slowdown = float(values[4] / 10) if values[2] < values[3] else 0.0
    return Calibration(name="random", coefficients=coefficients, gather_slowdown=slowdown)


def _model(rng: np.random.Generator, large: bool) -> ModelSpec:
    vocab = {"vocab": 64, "tied_embedding": bool(rng.random() < 0.5)}
    layers = int(rng.integers(2, 4 if large else 6))
    if rng.random() < 0.5:
        shape = {"name": "alike", "layers": layers, "hidden": 64, "heads": 4, "kv_heads": 2, "seq": 16}
        return ModelSpec.parse({**shape, **(vocab if rng.random() < 0.5 else {})}, "alike")
    kinds = [
        {
            "kind": f"k{i}",
            "hidden": int(rng.choice([16, 32, 64])),
            "heads": 4,
            "seq": int(rng.choice([8, 16])),
        }
        for i in range(layers)
    ]
    return ModelSpec.parse({"name": "unlike", "layers": kinds, **(vocab if rng.random() < 0.3 else {})}, "unlike")


def _with_experts(seed: int, model: ModelSpec) -> ModelSpec:
    """The model as a list of layers, one kind in three dense, the others with experts, half with latent attention."""
    rng, kinds = np.random.default_rng((seed, 5)), dict[str, dict[str, Any]]()
    for kind, layer in model.kinds.items():
        values = layer.model_dump(exclude={"kind", "experts", "latent"})
        if rng.random() < 0.67:
            count, shared = int(rng.choice([2, 4, 8])), int(rng.choice([0, 16]))
            chosen, width = int(rng.integers(1, count + 1)), int(rng.choice([8, 64]))
            values["experts"] = {"num_experts": count, "experts_per_token": chosen, "expert_ffn_hidden": width}
            values["experts"] |= {"shared_ffn_hidden": shared, **_router(seed, count, chosen)}
        if rng.random() < 0.5:
            sizes = {"kv_lora_rank": 8, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 12}
            values["latent"] = {**sizes, "q_lora_rank": 16} if rng.random() < 0.5 else sizes
            values["kv_heads"] = None
        kinds[kind] = {"gated_mlp": bool(rng.random() < 0.5), **values}
    stack = {"vocab": model.vocab, "tied_embedding": model.tied_embedding}
    layers = [{"kind": layer.kind, **kinds[layer.kind]} for layer in model.blocks]
    return ModelSpec.parse({"name": model.name, "layers": layers, **stack}, "experts")


def _router(seed: int, count: int, chosen: int) -> dict[str, int]:
    """In two of three problems groups of the experts, of which a token keeps to some that have enough."""
    rng = np.random.default_rng((seed, 12, count))
    if rng.random() < 1 / 3:
        return {}
    groups = int(rng.choice([each for each in divisors(count) if each > 1]))
    enough = -(-chosen * groups // count)
    return {"router_num_groups": groups, "router_group_topk": int(rng.integers(enough, groups + 1))}


def _cluster(rng: np.random.Generator, nodes: int, gpus: int, memory_gib: float) -> ClusterSpec:
    types = int(rng.integers(2, min(nodes, 3) + 1)) if nodes > 1 and rng.random() < 0.4 else 1
    cuts = np.sort(rng.choice(np.arange(1, nodes), types - 1, replace=False)).tolist()
    counts = [end - first for first, end in zip([0, *cuts], [*cuts, nodes], strict=True)]
    groups = [
        {
            "count": count,
            "device": random_device(f"d{i}", memory_gib),
            "gpus_per_node": gpus,
            "intra_bandwidth_gbps": float(rng.uniform(0.5, 5)),
            "intra_latency_us": float(rng.choice([0, 20])),
            **({"nic_bandwidth_gbps": float(rng.uniform(0.2, 2))} if rng.random() < 0.4 else {}),
        }
        for i, count in enumerate(counts)
    ]
    values = {"name": "random", "nodes": groups, "network": random_network(rng, nodes)}
    kind = rng.random()
    size = nodes if kind < 0.4 else nodes * gpus
    if kind < 0.7:
        rows = rng.uniform(0.1, 2, (size, size))
        values["bandwidth_matrix"] = {"unit": "Gb/s", "rows": rows.tolist()}
    return ClusterSpec.parse(values, "random")


def _with_latencies(seed: int, cluster: ClusterSpec) -> ClusterSpec:
    """The cluster, one in four with measured latencies between nodes or devices, either way its own."""
    rng = np.random.default_rng((seed, 1))
    size = int(rng.choice([cluster.num_nodes, cluster.num_devices]))
    rows = rng.uniform(0, 200, (size, size)).tolist()
    if rng.random() < 0.75:
        return cluster
    return ClusterSpec.parse({**cluster.model_dump(), "latency_matrix": {"rows_us": rows}}, "random")


def _device_by_device(seed: int, cluster: ClusterSpec) -> ClusterSpec:
    """The cluster with links of its own for every pair of devices, and latencies in every second one."""
    rng = np.random.default_rng((seed, 2))
    shape = (cluster.num_devices, cluster.num_devices)
    values = {**cluster.model_dump(), "latency_matrix": None}
    values["bandwidth_matrix"] = {"unit": "Gb/s", "rows": rng.uniform(0.1, 2, shape).tolist()}
    if rng.random() < 0.5:
        values["latency_matrix"] = {"rows_us": rng.uniform(0, 200, shape).tolist()}
    return ClusterSpec.parse(values, "random")


def random_device(name: str, memory_gib: float) -> dict[str, object]:
    return {"name": name, "memory_gib": memory_gib, "peak_tflops": {"bf16": 1}, "memory_bandwidth_gbytes": 1}


def random_network(rng: np.random.Generator, nodes: int) -> dict[str, object]:
    network: dict[str, object] = {
        "bandwidth_gbps": float(rng.uniform(0.1, 1)),
        "latency_us": float(rng.choice([0, 50])),
    }
    if nodes > 2 and rng.random() < 0.5:
        cut = int(rng.integers(1, nodes))
        network["racks"] = [
            {"nodes": list(range(cut)), "bandwidth_gbps": float(rng.uniform(0.5, 2))},
            {
                "nodes": list(range(cut, nodes)),
                "bandwidth_gbps": float(rng.uniform(0.5, 2)),
                "latency_us": 10,
            },
        ]
    return network


def random_costs(rng: np.random.Generator, model: ModelSpec, cluster: ClusterSpec, space: StrategySpace) -> CostTable:
    kinds = [(layer.kind, layer.seq) for layer in model.kinds.values()]
    edges = [(EMBEDDING, model.blocks[0].seq), (HEAD, model.blocks[-1].seq)] if model.vocab else []
    rows = [
        row
        for device in cluster.devices
        for tp in tensor_degrees(model, cluster, space.max_tp)
        for batch in divisors(space.global_batch)
        for kind, seq in kinds + edges
        for row in _rows(rng, device, kind, seq, tp, batch, layered=(kind, seq) in kinds)
    ]
    optimizer = {device: float(rng.uniform(0, 1e-8)) for device in cluster.devices}
    return CostTable(name="random", basis="random", rows=rows, optimizer_s_per_parameter=optimizer)


def _with_contexts(seed: int, table: CostTable) -> CostTable:
    """The table with rows for two and four context ranks, which take a random share of the time and the bytes."""
    rng, rows = np.random.default_rng((seed, 4)), list(table.rows)
    seconds, kept = ("forward_s", "input_grad_s", "weight_grad_s"), ("activation_bytes", "activation_bytes_sp")
    for row in table.rows:
        for cp in (2, 4):
            share = float(rng.uniform(0.8, 1.5)) / cp
            shared = {name: share * getattr(row, name) for name in seconds}
            shared |= {name: int(share * getattr(row, name)) for name in kept}
            rows.append(row.model_copy(update={"cp": cp, **shared}))
    return table.model_copy(update={"rows": rows})


def _rows(
    rng: np.random.Generator, device: str, kind: str, seq: int, tp: int, batch: int, *, layered: bool
) -> list[CostRow]:
    forward, grads = rng.uniform(1e-4, 2e-3), rng.uniform(1e-4, 2e-3, 2)
    kept = [
        int(rng.integers(50_000, 100_000)),
        int(rng.integers(30_000, 50_000)),
        int(rng.integers(5_000, 30_000)),
    ]
    again = [0.0, 0.3 * forward, forward]
    return [
        CostRow(
            device=device,
            kind=kind,
            tp=tp,
            micro_batch=batch,
            seq=seq,
            recompute=recompute,
            forward_s=forward,
            input_grad_s=grads[0] + extra,
            weight_grad_s=grads[1],
            activation_bytes=batch * stays,
            activation_bytes_sp=batch * stays // tp,
        )
        for recompute, extra, stays in zip(RECOMPUTE, again, kept, strict=True)
        if layered or recompute == "none"
    ]


def tightened(rng: np.random.Generator, problem: PlanningProblem) -> ClusterSpec:
    """The cluster with memories near what some even division of some candidate needs."""
    groups = []
    devices: dict[str, object] = {}
    for group in problem.cluster.nodes:
        candidate = problem.candidates[rng.integers(len(problem.candidates))]
        layers = len(problem.model.blocks)
        ends = [round((x + 1) * layers / candidate.pp) for x in range(candidate.pp)]
        stages = tuple(zip([0, *ends[:-1]], ends, strict=True))
        recompute = (problem.space.recompute[rng.integers(len(problem.space.recompute))],) * candidate.pp
        need = max(memory_bytes(problem, Strategy(candidate=candidate, division=Division(stages, recompute))))
        memory = float(need) / 2**30 * float(rng.uniform(0.9, 1.3)) / (1 - problem.memory.margin)
        device = group.device.model_copy(update={"memory_gib": memory})
        groups.append(group.model_copy(update={"device": devices.setdefault(device.name, device)}))
    return problem.cluster.model_copy(update={"nodes": groups})


def with_offload(seed: int, given: PlanningProblem) -> PlanningProblem:
    """A problem in ``step`` with some or all optimizer states on hosts of any rates, memory tight at times."""
    rng = np.random.default_rng((seed, 6))
    groups, devices = [], dict[str, object]()
    for group in given.cluster.nodes:
        device = devices.setdefault(
            group.device.name, group.device.model_copy(update={"host_link_gbytes": float(rng.uniform(0.3, 5))})
        )
        groups.append(group.model_copy(update={"device": device, "host_memory_gbytes": float(rng.uniform(2, 80))}))
    fraction = float(rng.choice([0.25, 0.7, 1.0]))
    kept = {"half_moments": False, "weight_remainders": False, "optimizer_offload_fraction": fraction}
    cluster, memory = given.cluster.model_copy(update={"nodes": groups}), given.memory.model_copy(update=kept)
    found = replace(given, cluster=cluster, memory=memory, latency_model="step")
    if rng.random() < 0.3 or not found.candidates or any(choice.vpp > 1 for choice in found.candidates):
        return found
    return replace(found, cluster=tightened(rng, found))
