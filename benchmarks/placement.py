"""
Certified placement of whole-node tensor groups: gaps, against identity order and against Pipette's annealing.

Run ``python -m benchmarks.placement [--nodes 32,64] [--kinds racks] [--models pipette] [--stages 8] [--seeds 5]
[--pipette-seconds 10] [--out table.csv]``; nothing is compared with Pipette's annealing at 0 seconds.
Workload: GPT 11.1B (96 layers of 3072, sequence 2048), global batch 512, micro-batch 2, tensor degree 8, 140 TFLOP/s,
bf16, full recompute, both latency models. Nodes have 8 devices and 25 GB/s links at best times 1.5:

``lognormal20``, ``lognormal40``  rates spread by a factor exp(N(0, 0.2)) or exp(N(0, 0.4));
``racks``     two racks, a quarter of the rate between them;
``slow``      one node with 0.4 of the rate;
``fat-tree``  leaves of 4 nodes, pods of 16: 1, 0.75 and 0.5 of the rate;

the last three with 10 % noise, and all with the nodes in random order. Every row is a median over seeds: ``gap_%`` of
the step time and ``communication_gap_%`` of its communication after the time limit; ``slower_%`` is how much slower a
step is in identity order, and placed by simulated annealing as Pipette's paper states it (10 s, temperature times
0.999, migration, swap and reversal); ``verify_ms`` is what checking the certificate takes. Every certificate must hold.
"""

import argparse
import csv
import statistics
import time
from pathlib import Path

import numpy as np
from numba import njit
from numpy.typing import NDArray

from taut.data.cluster import ClusterSpec
from taut.data.costs import CostRow, CostTable
from taut.data.memory import MemoryModel
from taut.data.model import ModelSpec
from taut.formulations.latency import step_time
from taut.formulations.placement import PlacementProblem, placement_problem
from taut.formulations.problem import LATENCY_MODELS, PlanningProblem
from taut.formulations.space import StrategySpace
from taut.solver.certificate import plan_document
from taut.solver.prices import Prices, Scratch, pipeline_seconds, prices_of, ring_seconds
from taut.solver.result import Limits
from taut.solver.search import search
from taut.solver.verify import verify_document

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
KINDS = ("lognormal20", "lognormal40", "racks", "slow", "fat-tree")
STAGES = {16: (4,), 32: (4, 8, 16), 64: (8, 16), 128: (8, 16)}
SECONDS = {16: 5.0, 32: 5.0, 64: 10.0, 128: 30.0}
RATE = 25.0
COLUMNS = ["nodes", "stages", "kind", "model", "time_limit_s", "gap_%", "worst_gap_%", "communication_gap_%"]
COLUMNS += ["identity_slower_%", "pipette_annealing_slower_%", "verify_ms"]
ALPHA = 0.999


def rates(nodes: int, kind: str, seed: int) -> Floats:
    """GB/s between nodes of one kind of cluster."""
    rng = np.random.default_rng(seed)
    spread = {"lognormal20": 0.2, "lognormal40": 0.4}.get(kind, 0.1)
    noise = np.triu(np.exp(rng.normal(0, spread, (nodes, nodes))), 1)
    matrix = RATE * (noise + noise.T)
    where = np.arange(nodes)
    if kind == "racks":
        rack = where // (nodes // 2)
        matrix *= np.where(np.equal.outer(rack, rack), 1.0, 0.25)
    elif kind == "slow":
        matrix[0] *= 0.4
        matrix[:, 0] *= 0.4
    elif kind == "fat-tree":
        leaf, pod = np.equal.outer(where // 4, where // 4), np.equal.outer(where // 16, where // 16)
        matrix *= np.where(leaf, 1.0, np.where(pod, 0.75, 0.5))
    order = rng.permutation(nodes)
    return np.minimum(matrix[np.ix_(order, order)], 1.5 * RATE)


def problem(nodes: int, stages: int, kind: str, seed: int, latency_model: str) -> PlanningProblem:
    """The frozen workload on one cluster, with everything but the placement fixed."""
    device = {
        "name": "d",
        "memory_gib": 80,
        "peak_tflops": {"bf16": 312},
        "memory_bandwidth_gbytes": 2000,
    }
    values = {
        "name": f"{kind}-{nodes}",
        "nodes": [{"count": nodes, "gpus_per_node": 8, "intra_bandwidth_gbps": 4800, "device": device}],
        "network": {"latency_us": 0},
        "bandwidth_matrix": {"unit": "GB/s", "rows": rates(nodes, kind, seed).tolist()},
    }
    model = ModelSpec.parse({"name": "gpt-11.1b", "layers": 96, "hidden": 3072, "heads": 32, "seq": 2048}, "benchmark")
    forward = 2 * 12 * 3072**2 * 2 * 2048 / 8 / 140e12
    block = CostRow(
        device="d",
        kind="block",
        tp=8,
        micro_batch=2,
        seq=2048,
        recompute="full",
        forward_s=forward,
        input_grad_s=2 * forward,
        weight_grad_s=forward,
        activation_bytes=2 * 2 * 2048 * 3072,
    )
    rows = [block, block.model_copy(update={"recompute": "none", "input_grad_s": forward})]
    fixed = {"tp": 8, "pp": stages, "micro_batch": 2, "zero": 0, "sequence_parallel": False, "schedule": "1f1b"}
    space = StrategySpace(global_batch=512, max_tp=8, fixed=fixed, recompute=["full"])
    costs = CostTable(name="140-tflops", basis="140 TFLOP/s", rows=rows)
    known = next(name for name in LATENCY_MODELS if name == latency_model)
    return PlanningProblem(model, ClusterSpec.parse(values, "benchmark"), costs, MemoryModel(), space, known)


@njit(cache=True, nogil=True)
def _price(prices: Prices, scratch: Scratch, pos: Ints) -> float:
    """Step seconds of a placement without its constant parts."""
    longest = 0.0
    for z in range(len(pos) // prices.pp):
        longest = max(longest, pipeline_seconds(prices, pos, z))
    return longest + ring_seconds(prices, scratch, pos, 0)


@njit(cache=True, nogil=True)
def _pipette(
    prices: Prices, scratch: Scratch, pos: Ints, best: Ints, state: Floats, drawn: Ints, chances: Floats
) -> None:
    """Moves of Pipette's annealing by drawn (kind, a, b); ``state`` is seconds now, best seconds and temperature."""
    old = pos.copy()
    for move in range(len(drawn)):
        kind, a, b = drawn[move]
        low, high = min(a, b), max(a, b)
        if kind == 0:
            pos[a, 0], pos[b, 0] = pos[b, 0], pos[a, 0]
        elif kind == 1:
            moved = pos[a, 0]
            towards = 1 if b > a else -1
            for p in range(a, b, towards):
                pos[p, 0] = pos[p + towards, 0]
            pos[b, 0] = moved
        else:
            pos[low : high + 1] = pos[low : high + 1][::-1].copy()
        seconds = _price(prices, scratch, pos)
        state[2] *= ALPHA
        if seconds <= state[0] or chances[move] < np.exp((state[0] - seconds) / max(state[2], 1e-300)):
            state[0] = seconds
            old[:] = pos
            if seconds < state[1]:
                state[1] = seconds
                best[:] = pos
        else:
            pos[:] = old


def pipette_annealing(given: PlacementProblem, seconds: float, seed: int) -> float:
    """
    Step seconds of the placement that Pipette's annealing finds from identity order in the given time.

    Its paper leaves the first temperature open: the step time of the start is used.
    """
    prices = prices_of(given)
    dp, sites = given.candidate.dp, len(prices.node_of_site)
    scratch = Scratch(np.zeros(dp, np.int64), np.zeros(dp, np.int64), np.zeros(dp), np.full(sites, -1, np.int64))
    pos = given.slots.copy()
    best = pos.copy()
    start = _price(prices, scratch, pos)
    state = np.array([start, start, start])
    rng = np.random.default_rng(seed)

    def moves(count: int) -> None:
        drawn = np.stack([rng.integers(top, size=count) for top in (3, len(pos), len(pos))], axis=1)
        _pipette(prices, scratch, pos, best, state, drawn, rng.random(count))

    moves(0)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        moves(20_000)
    return given.cost(best)


def one(given: PlanningProblem, seconds: float, pipette_seconds: float, seed: int) -> list[float]:
    """Gap, communication gap, excess of identity order and of Pipette's annealing (%), and milliseconds to verify."""
    limits = Limits(time_limit=seconds, seed=seed)
    result = search(given, limits)
    if result.incumbent is None:
        raise SystemExit(f"{given.cluster.name}: no plan")
    document = plan_document(given, result, limits)
    started = time.perf_counter()
    if not verify_document(document).holds:
        raise SystemExit(f"{given.cluster.name}: the certificate does not hold")
    checked = time.perf_counter() - started
    strategy, best = result.incumbent.strategy, result.incumbent.seconds
    placement = placement_problem(given, strategy)
    identity = float(step_time(given, strategy, placement.devices(placement.slots)).total)
    annealed = pipette_annealing(placement, pipette_seconds, seed) if pipette_seconds else np.nan
    gaps = [document["certificate"][name] for name in ("gap", "communication_gap")]
    return [*(100 * gap for gap in gaps), *(100 * (other / best - 1) for other in (identity, annealed)), 1000 * checked]


def row(nodes: int, stages: int, kind: str, model: str, seeds: int, pipette_seconds: float) -> list[str]:
    """Medians over seeds, and the worst gap."""
    figures = [
        one(problem(nodes, stages, kind, seed, model), SECONDS[nodes], pipette_seconds, seed)
        for seed in range(1, seeds + 1)
    ]
    gap, communication, identity, pipette, verify = (statistics.median(column) for column in zip(*figures, strict=True))
    worst = max(figure[0] for figure in figures)
    values = [gap, worst, communication, identity, pipette]
    return [str(nodes), str(stages), kind, model, f"{SECONDS[nodes]:g}", *(f"{v:.2f}" for v in values), f"{verify:.0f}"]


def main() -> None:
    """Print the table, and write it where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", default="16,32,64,128")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--models", default="pipette,pipette-printed")
    parser.add_argument("--stages", default="")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--pipette-seconds", type=float, default=10.0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    warm = problem(32, 8, "racks", 0, "pipette")
    search(warm, Limits(time_limit=20.0))
    rows = []
    print("  ".join(COLUMNS))
    for nodes in map(int, options.nodes.split(",")):
        for stages in [int(s) for s in options.stages.split(",") if s] or STAGES[nodes]:
            for kind in options.kinds.split(","):
                for model in options.models.split(","):
                    rows.append(row(nodes, stages, kind, model, options.seeds, options.pipette_seconds))
                    print("  ".join(rows[-1]), flush=True)
    if options.out:
        with options.out.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([COLUMNS, *rows])


if __name__ == "__main__":
    main()
