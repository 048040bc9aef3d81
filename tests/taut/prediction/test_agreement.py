"""Predictions are what a plan's evaluator says of the same configuration: seconds, bytes, and every default."""

from typing import Any

import numpy as np
import pytest

import taut
from taut.data.costs import RECOMPUTE
from taut.data.load import load_stack
from taut.data.samples import ConfigurationRow
from taut.formulations.batch.configurations import even_division
from taut.formulations.latency import memory_bytes, step_time
from taut.formulations.schedules.orders import SPLIT
from taut.formulations.strategy import Strategy, division_of_layers
from taut.prediction.rows import predict_rows
from tests.support.blocks import blocks

CLUSTERS = {"a100-80gb": "dgx-a100", "h100-80gb": "dgx-h100", "b200-180gb": "dgx-b200", "l40s-48gb": "g6e.48xlarge"}
STACKS = ("", "any", "megatron-core", "megatron-deepspeed", "torchtitan", "deepspeed")


def random_row(rng: np.random.Generator) -> dict[str, Any]:
    """A configuration that a plan of its stack may choose, in whole nodes of eight devices."""
    stack = load_stack(str(rng.choice(STACKS)) or "megatron-core")
    schedule, pp = str(rng.choice(stack.schedules)), int(rng.choice([2, 4]))
    tp, nodes = int(rng.choice([1, 2, 4, 8])), int(rng.choice([1, 2, 3, 4]))
    pp = pp if nodes * 8 % (tp * pp) == 0 else 1
    cp = int(rng.choice([1, 2, 4, 8]))
    cp = cp if stack.context_parallel and nodes * 8 % (tp * pp * cp) == 0 else 1
    schedule = schedule if pp > 1 else "1f1b"
    v_shaped = schedule in ("zb-v", "v-half", "v-min")
    vpp = 2 if v_shaped or schedule == "interleaved-1f1b" else 1
    m, micro_batch, dp = int(rng.choice([2, 3])) * pp, int(rng.choice([1, 2])), nodes * 8 // tp // pp // cp
    sizes = rng.integers(1, 4, pp * vpp).tolist() if rng.random() < 0.5 else None
    layers = sum(sizes) if sizes else pp * vpp * 2 + int(rng.integers(0, pp)) - 2 * int(vpp > 1 and rng.random() < 0.5)
    zero = [stage for stage in stack.zero if pp == 1 or stage in (stack.pipeline_zero or stack.zero)]
    kinds = [kind for kind in stack.recompute if kind != "full" or schedule not in SPLIT]
    ways = [kind for kind in stack.cp_comm if kind in ("p2p", "all_gather") or 8 % (tp * cp) == 0]
    ways = [kind for kind in ways if kind != "a2a+p2p" or 1 < 8 // tp < cp]
    row: dict[str, Any] = {
        **{"gpu": str(rng.choice(list(CLUSTERS))), "n_gpus": nodes * 8, "hidden": 2048, "heads": 16, "layers": layers},
        **{
            "tp": tp,
            "pp": pp,
            "cp": cp,
            "dp": dp,
            "vpp": vpp,
            "micro_batch": micro_batch,
            "schedule": schedule,
            "stages": sizes,
        },
        **{"global_batch": dp * micro_batch * m, "recompute": str(rng.choice(kinds)), "zero": int(rng.choice(zero))},
        **{"kv_heads": int(rng.choice([8, 16])), "ffn_hidden": int(rng.choice([6144, 8192]))},
        "tied_embedding": bool(rng.random() < 0.5) and (pp == 1 or stack.tied_pipelines),
        "dropout": [None, True, False][int(rng.integers(3))],
        "sequence_parallel": bool(rng.choice(stack.sequence_parallel)) and tp > 1,
        "overlap_grad_reduce": (rng.random() < 0.3 and (pp == 1 or stack.overlap_in_pipelines)) or None,
        "stack": stack.name if rng.random() < 0.7 or stack.name != "megatron-core" else "",
        "cp_comm": str(rng.choice(ways)) if cp > 1 and rng.random() < 0.6 else None,
        "grad_precision": [None, None, stack.grad_precision[0], "fp32"][int(rng.integers(4))],
    }
    whole = pp == 1 and (row["zero"] < 2 or dp * cp == 1) and row["recompute"] != "full"
    # What a plan on Blackwell assumes of its software, a row has to state.
    row["cuda_graphs"] = (whole and row["gpu"] == "b200-180gb" and stack.name == "megatron-core") or None
    if sizes and stack.empty_ends and pp > 1:
        # The embedding or the head alone; layers move to a chunk beside.
        for end, next_to in ((0, 1), (-1, -2)):
            if len(sizes) > 2 and rng.random() < 0.4:
                sizes[next_to] += sizes[end]
                sizes[end] = 0
    return {name: value for name, value in row.items() if value is not None}


def planned(row: ConfigurationRow) -> tuple[float, int]:
    """Seconds and bytes of the planner's evaluator, on the row's division in Megatron's order."""
    names = ("hidden", "layers", "seq", "vocab", "kv_heads", "ffn_hidden", "tied_embedding", "dropout")
    shape = {name: getattr(row, name) for name in names} | {"heads": row.attention_heads, "gated_mlp": row.gated}
    zero = row.zero if row.dp * row.cp > 1 else 0
    fix = {name: getattr(row, name) for name in ("tp", "pp", "cp", "dp", "vpp", "micro_batch", "recompute")}
    fix |= {"schedule": row.run_schedule, "zero": zero, "sequence_parallel": bool(row.sequence_parallel)}
    # Rows hold embedding and head beside layers unless they say otherwise.
    fix |= {"empty_ends": row.has_empty_ends}
    fix |= {"cp_comm": row.cp_comm or taut.load_stack(row.stack or "megatron-core").cp_comm[0]} if row.cp > 1 else {}
    cluster = CLUSTERS[row.gpu] + (f":{row.n_gpus // 8}" if row.n_gpus > 8 else "")
    request = taut.PlanRequest(
        {"name": "m", **shape},
        cluster,
        global_batch=row.global_batch,
        fix=fix,
        overlap_grad_reduce=bool(row.overlap_grad_reduce),
        grad_precision=row.grad_precision,
        stack=row.stack or None,
    )
    problem = taut.planning_problem(request)
    candidate = next(each for each in problem.candidates if not each.dp_shard)
    chunks = np.array([row.pp * row.vpp])
    sizes = np.array(row.stages) if row.stages else even_division(np.array([row.layers]), chunks, chunks > row.pp)[0]
    recompute = np.full(len(sizes), RECOMPUTE.index(row.recompute))
    strategy = Strategy(candidate=candidate, division=division_of_layers(candidate, sizes.tolist(), recompute))
    devices = np.arange(row.n_gpus).reshape(row.pp, row.dp, row.cp * row.tp)
    return float(step_time(problem, strategy, devices).total), max(memory_bytes(problem, strategy))


@pytest.mark.filterwarnings("ignore::taut.errors.ExtrapolationWarning")
@pytest.mark.parametrize("block", blocks(8, proof=True))
def test_predictions_are_the_planners_prices(block: int) -> None:
    """Random rows of every stack on catalog clusters: seconds to 1e-9, and bytes, whatever is left to defaults."""
    rows = [ConfigurationRow.parse(random_row(np.random.default_rng([block, k])), "row") for k in range(25)]
    for k, (row, found) in enumerate(zip(rows, predict_rows(rows), strict=True)):
        seconds, needed = planned(row)
        assert not found.error, (block, k, found.error)
        assert found.step_time_s == pytest.approx(seconds, rel=1e-9), (block, k, row)
        assert found.memory_bytes == needed, (block, k, row)


@pytest.mark.filterwarnings("ignore::taut.errors.ExtrapolationWarning")
def test_a_head_alone_gathers_no_keys() -> None:
    """A last stage without layers is the fullest under GPipe: context ranks gather keys and values on others alone."""
    shape = {"hidden": 2048, "heads": 16, "layers": 9, "ffn_hidden": 8192, "kv_heads": 16, "sequence_parallel": False}
    degrees = {"n_gpus": 16, "tp": 1, "pp": 4, "cp": 2, "dp": 2, "schedule": "gpipe", "zero": 2, "recompute": "full"}
    run = {"gpu": "h100-80gb", "global_batch": 32, "stack": "torchtitan", "stages": [1, 3, 5, 0]}
    row = ConfigurationRow.parse(shape | degrees | run, "row")
    (found,) = predict_rows([row])
    seconds, needed = planned(row)
    assert found.step_time_s == pytest.approx(seconds, rel=1e-9)
    assert found.memory_bytes == needed
