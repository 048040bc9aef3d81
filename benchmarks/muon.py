"""
Muon on real models: what its step takes, who is busiest, and published figures beside ours.

Run ``python -m benchmarks.muon steps`` for Moonlight, GLM-4.5 and Kimi K2 on H100 at stated degrees, even stages, full
recompute, micro-batches of one and 1F1B. Columns: seconds of a step and GiB of the fullest device under both
optimizers; seconds of Muon, and their share of its step; GiB of what buffers of matrices have beyond their parameters;
the fullest rank's seconds over the bound on any assignment, the most of any stage.

``published`` prices the configurations that NVIDIA measured with both optimizers (NVIDIA developer blog, "Advancing
Emerging Optimizers for Accelerated LLM Training with NVIDIA Megatron", April 2026, table 1): degrees are the blog's,
batches and chunks those of Megatron-Bridge's recipes. TFLOP/s of the model a GPU fell from 1,051 to 1,029 and from 713
to 686, and Newton-Schulz products were 51 and 35 beside them. Columns: seconds of a step, and how much longer the
optimizer and the rings of gradients take; FLOP of the products over those of the model, here and stated, and the batch
at which the stated share follows; GiB of the fullest device.

``tensor`` prices what tensor ranks do twice: every rank of a group orthogonalises the same matrices. Beside the
framework's order, by sizes of a rank's parts, stand the order by seconds of whole matrices, the bound on any assignment
to replicas, and the bound if tensor ranks divided the matrices as well. An issue of Megatron-LM (6676) measured 632 ms
of a step of the optimizer as 157 ms with matrices divided over 16 ranks that did the same (GB300, matrices not stated).
"""

import argparse
from typing import Any

import numpy as np

import taut
from benchmarks.accuracy import as_table
from taut.data.arrays import Ints
from taut.data.samples import ConfigurationRow
from taut.data.units import GIB
from taut.formulations.degrees import BlockShape
from taut.formulations.latency import memory_bytes, step_time
from taut.formulations.mechanisms.muon import assign, least_makespan, matrices_of, ranks_of, rates_of
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.prediction.experts import division_of, priced_alone, row_model
from taut.prediction.settings import Given, setting_of, within_domain
from taut.solver.simple_plans import even_strategy, rank_order
from taut.words import percent

GLM = {
    "name": "glm-4.5",
    "layers": 92,
    "hidden": 5120,
    "heads": 96,
    "kv_heads": 8,
    "head_dim": 128,
    "qk_norm": True,
    "ffn_hidden": 12288,
    "seq": 4096,
    "vocab": 151552,
    "gated_mlp": True,
    "dense_layers": 3,
    "experts": {"num_experts": 160, "experts_per_token": 8, "expert_ffn_hidden": 1536, "shared_ffn_hidden": 1536},
}
"""GLM-4.5 without its layer for further tokens (GLM-5, arXiv 2602.15763, table of both)."""
MODELS: dict[str, tuple[Any, dict[str, Any]]] = {
    "moonlight-16b-a3b": ("moonlight-16b-a3b", {"pp": 4, "ep": 8}),
    "glm-4.5": (GLM, {"pp": 8, "ep": 16}),
    "kimi-k2": ("kimi-k2", {"pp": 16, "ep": 16}),
}
NODES = (32, 64, 128, 256)
SHAPE = {"hidden": 7168, "layers": 61, "heads": 64, "ffn_hidden": 18432, "seq": 4096, "vocab": 163840}
EXPERTS = {"num_experts": 384, "experts_per_token": 8, "expert_ffn_hidden": 2048, "shared_ffn_hidden": 2048}
SMALL = {"hidden": 2048, "layers": 48, "heads": 32, "kv_heads": 4, "seq": 4096, "vocab": 151936}
FEW = {"num_experts": 128, "experts_per_token": 8, "expert_ffn_hidden": 768}
GB300: dict[str, Any] = {"gpu": "gb300", "precision": "mxfp8", "zero": 1, "cuda_graphs": True}
PUBLISHED: dict[str, tuple[dict[str, Any], float, float, float]] = {
    "kimi-k2, 256 GB300": (
        {**SHAPE, **EXPERTS, "dense_layers": 1, "n_gpus": 256, "pp": 4, "dp": 64, "ep": 64, "vpp": 4,
         "micro_batch": 2, "stages": [*[4] * 15, 1], "schedule": "interleaved-1f1b", "global_batch": 2048,
         "recompute": "selective", "recompute_modules": "mla_up_proj"},
        1051, 1029, 51,
    ),
    "qwen3-30b-a3b, 8 GB300": (
        {**SMALL, **FEW, "n_gpus": 8, "dp": 8, "ep": 8, "micro_batch": 8, "global_batch": 512},
        713, 686, 35,
    ),
}  # fmt: skip
"""Rows, TFLOP/s of the model under Adam and under Muon, and those of Newton-Schulz products."""


def main() -> None:
    """Print one of the tables."""
    tables = {"steps": steps, "published": published, "tensor": tensor}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=tables)
    print(as_table(tables[parser.parse_args().table]()))


def steps() -> list[dict[str, Any]]:
    """A row for every model and size: both optimizers at the same degrees and even stages."""
    found = []
    for name, (model, fix) in MODELS.items():
        for nodes in NODES:
            values: dict[str, Any] = {"tp": 1, "cp": 1, "zero": 1, "schedule": "1f1b", "micro_batch": 1, **fix}
            row: dict[str, Any] = {"model": name, "GPUs": 8 * nodes}
            for optimizer in ("adam", "muon"):
                options: dict[str, Any] = {"global_batch": 4096, "optimizer": optimizer, "fix": values}
                problem = taut.planning_problem(taut.PlanRequest(model, f"dgx-h100:{nodes}", **options))
                candidate = next(each for each in problem.candidates if each.uniform_recompute == "full")
                strategy, devices = even_strategy(problem, candidate, "full"), rank_order(candidate)
                time, kept = step_time(problem, strategy, devices), max(memory_bytes(problem, strategy))
                fits = "" if kept <= problem.budget.min() else " (too much)"
                row |= {f"{optimizer} s": f"{float(time.total):.2f}", f"{optimizer} GiB": f"{kept / GIB:.0f}{fits}"}
            _, first, end = strategy.ranges
            row["optimizer s"] = f"{float(time.optimizer):.3f}"
            row["share"] = percent(float(time.optimizer / time.total))
            padding = problem.tables(candidate).padding
            assert padding is not None
            each = problem.memory.held_parameter_bytes
            more = float(np.max(padding[0][first, end] + padding[1][first, end])) * (each.weight + each.gradient)
            row["padding GiB"] = f"{more / GIB:.0f}"
            row["makespan"] = f"{over_bound(problem, candidate, first, end):.2f}"
            found.append(row)
    return found


def over_bound(problem: PlanningProblem, candidate: Candidate, first: Ints, end: Ints) -> float:
    """The most that the fullest rank of a chunk takes beyond what any assignment takes."""
    layers = problem.priced_layers(candidate)
    (parameter,) = problem.costs.optimizer_s_per_parameter.values()
    rates, found = rates_of(problem.cluster, parameter, problem.coefficient("tensor_parallel")), 1.0
    for start, stop in zip(first.tolist(), end.tolist(), strict=True):
        spent = least = 0.0
        for apart, ranks in zip((False, True), ranks_of(candidate), strict=True):
            held = [
                (one, one.copies * int(layers.count[kind, start, stop]))
                for kind, layer in enumerate(layers.kinds)
                for one in matrices_of(layer, candidate.block)
                if one.apart == apart
            ]
            held.sort(key=lambda each: (each[0].order, each[0].size, rates.seconds(each[0])), reverse=True)
            if not held:
                continue
            order, size = (np.array([getattr(one, name) for one, _ in held]) for name in ("order", "size"))
            seconds, amount = np.array([rates.seconds(one) for one, _ in held]), np.array([n for _, n in held])
            spent += assign(order, size, seconds, amount, ranks)[0]
            least += least_makespan(seconds, amount, ranks)
        found = max(found, spent / least if least else 1.0)
    return found


def published() -> list[dict[str, Any]]:
    """NVIDIA's configurations: how much a step grows, and FLOP of Newton-Schulz products to those of the model."""
    found = []
    for name, (values, adam, muon, products) in PUBLISHED.items():
        row = within_domain(ConfigurationRow.parse({**GB300, **values}, name))
        (before, held, usual), (after, more, spent) = (
            priced_alone(each, setting_of(each, Given()), division_of(each))
            for each in (row, row.model_copy(update={"optimizer": "muon"}))
        )
        model, block = row_model(row), BlockShape(row.tp, row.cp, row.ep, row.expert_tp)
        flop = sum(
            one.flop * one.copies * (row.ep if one.apart else 1)
            for layer in model.blocks
            for one in matrices_of(layer, block)
        )
        head = 2 * row.seq * row.hidden * row.vocab
        sequence = 3 * (sum(layer.forward_flops() for layer in model.blocks) + head)
        found.append(
            {
                "run": name,
                "batch": row.global_batch,
                "Adam s": f"{before:.2f}",
                "Muon s": f"{after:.2f}",
                "optimizer": _more(after * spent["optimizer"] - before * usual["optimizer"]),
                "rings": _more(after * spent["data_parallel"] - before * usual["data_parallel"]),
                "longer": percent(after / before - 1),
                "measured": percent(adam / muon - 1),
                "products": percent(flop / (sequence * row.global_batch)),
                "stated": percent(products / muon),
                "batch at that share": f"{flop / (sequence * products / muon):.0f}",
                "GiB": f"{held / GIB:.0f} to {more / GIB:.0f}",
            }
        )
    return found


def _more(seconds: float) -> str:
    return f"{round(seconds, 2) + 0.0:+.2f}"


def tensor() -> list[dict[str, Any]]:
    """Llama-3 70B in eight stages of sixteen replicas: the optimizer of an inner stage by tensor ranks."""
    found = []
    for tp in (1, 2, 4, 8):
        fix = {"tp": tp, "pp": 8, "cp": 1, "zero": 1, "micro_batch": 1, "schedule": "1f1b"}
        options: dict[str, Any] = {"global_batch": 256, "optimizer": "muon", "fix": fix}
        problem = taut.planning_problem(taut.PlanRequest("llama3-70b", f"dgx-h100:{16 * tp}", **options))
        candidate, layers = problem.candidates[0], problem.model.blocks
        (parameter,) = problem.costs.optimizer_s_per_parameter.values()
        rates = rates_of(problem.cluster, parameter, problem.coefficient("tensor_parallel"))
        matrices = matrices_of(layers[0], candidate.block)
        matrices.sort(key=lambda one: (one.order, one.size, rates.seconds(one)), reverse=True)
        order, size = (np.array([getattr(one, name) for one in matrices]) for name in ("order", "size"))
        seconds, amount = np.array([rates.seconds(one) for one in matrices]), np.full(len(matrices), 10)
        spent, divided = assign(order, size, seconds, amount, 16)[0], least_makespan(seconds, amount, 16 * tp)
        longest = np.argsort(-seconds, kind="stable")
        picoseconds = np.rint(seconds[longest] * 1e12).astype(np.int64)
        whole = assign(picoseconds, size[longest], seconds[longest], amount[longest], 16)[0]
        found.append(
            {
                "tensor ranks": tp,
                "GPUs": 128 * tp,
                "ms": f"{1e3 * spent:.0f}",
                "by seconds": f"{1e3 * whole:.0f}",
                "bound over replicas": f"{1e3 * least_makespan(seconds, amount, 16):.0f}",
                "bound over all ranks": f"{1e3 * divided:.0f}",
                "ratio": f"{spent / divided:.1f}",
            }
        )
    return found


if __name__ == "__main__":
    main()
