"""
Exports of sixty random plans, accepted by the launchers' own code and understood as the plan.

Packages that are not installed are skipped; ``pip install 'taut[launchers]'`` gets them.
"""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taut.exports.deepspeed import deepspeed_files
from taut.exports.job import Job, torchrun_script
from taut.exports.megatron import megatron_flags
from taut.exports.torchtitan import parallelism
from tests.support.drawn_launches import drawn, drawn_with_experts
from tests.support.launches import asked, divided, groups_of_rank, in_order
from tests.support.rank_groups import rank_groups

pytestmark = pytest.mark.proof


@pytest.mark.skipif(find_spec("megatron") is None, reason="megatron-core is not installed")
def test_megatron_core_makes_the_plans_groups() -> None:
    """Its layout, its configuration and its group builder: layers of every chunk and groups of a random rank."""
    dense = drawn("megatron-core", ["1f1b", "interleaved-1f1b"], ["none", "selective", "full"])
    jobs, rng = [*dense, *drawn_with_experts()], np.random.default_rng(5)
    ranks = [int(rng.integers(8)) for _ in jobs]
    for job, rank, said in zip(jobs, ranks, asked("megatron", list(map(_megatron_case, jobs, ranks))), strict=True):
        chosen, groups = job.strategy, rank_groups(job.strategy)
        assert said["groups"] == [groups_of_rank(groups, rank)]
        x, z, c, _ = np.unravel_index(rank, (chosen.pp, chosen.dp, chosen.cp, chosen.tp))
        on_stage = np.array(job.plan.devices).reshape(chosen.pp, chosen.dp, chosen.cp, chosen.tp)
        assert job.devices[said["groups"][0]["tp"]].tolist() == on_stage[x, z, c].tolist()
        if "layers" in said:
            assert said["layers"] == [list(job.layers[rank :: chosen.pp]) for rank in range(chosen.pp)]


def _megatron_case(job: Job, rank: int) -> dict[str, Any]:
    flags, chosen = megatron_flags(job), job.strategy
    config = {
        "num_layers": int(flags["--num-layers"] or 0),
        "hidden_size": int(flags["--hidden-size"] or 0),
        "num_attention_heads": int(flags["--num-attention-heads"] or 0),
        "num_moe_experts": int(flags.get("--num-experts") or 0) or None,
        "add_bias_linear": "--disable-bias-linear" not in flags,
        "expert_model_parallel_size": chosen.ep,
        "expert_tensor_parallel_size": chosen.etp or chosen.tp,
        "tensor_model_parallel_size": chosen.tp,
        "pipeline_model_parallel_size": chosen.pp,
        "context_parallel_size": chosen.cp,
        "sequence_parallel": "--sequence-parallel" in flags,
        "recompute_granularity": flags.get("--recompute-granularity"),
        "recompute_method": flags.get("--recompute-method"),
        "recompute_num_layers": 1 if "--recompute-num-layers" in flags else None,
        "pipeline_model_parallel_layout": flags.get("--pipeline-model-parallel-layout"),
        "virtual_pipeline_model_parallel_size": chosen.vpp if chosen.vpp > 1 else None,
    }
    layout = flags.get("--pipeline-model-parallel-layout")
    degrees = {"tp": chosen.tp, "pp": chosen.pp, "cp": chosen.cp, "ep": chosen.ep}
    degrees["etp"] = chosen.etp or chosen.tp
    copies = int(flags.get("--num-distributed-optimizer-instances") or 1)
    return {
        "config": config,
        **{"degrees": degrees, "layout": layout, "num_layers": sum(job.layers), "ranks": [rank]},
        **{"world": 8, "copies": copies},
    }


@pytest.mark.skipif(find_spec("deepspeed") is None, reason="deepspeed is not installed")
def test_deepspeed_reads_the_plan(tmp_path: Path) -> None:
    """Its configuration has the batch, its reader of hostfiles the hosts, and its partition begins at the marks."""
    jobs = [job for job in drawn("deepspeed", ["1f1b"], ["none", "full"]) if job.strategy.pp > 1]
    jobs += [divided(job, (0, 6, 7, 0)) for job in jobs if job.strategy.pp == 4][:1]
    cases = []
    for number, job in enumerate(jobs):
        files = deepspeed_files(in_order(job))
        (tmp_path / f"hosts{number}").write_text(files["hostfile"])
        case = {"config": json.loads(files["ds_config.json"]), "stages": files["taut_stages.py"], "num_layers": 13}
        cases.append(case | {"hostfile": str(tmp_path / f"hosts{number}"), "dp": job.strategy.dp})
    assert len(cases) > 20
    for job, said in zip(jobs, asked("deepspeed", cases), strict=True):
        chosen = job.strategy
        assert said["batch"] == [16, chosen.micro_batch, chosen.num_micro_batches]
        assert said["zero"] == chosen.zero and said["hosts"] == {"alpha": 4, "beta": 4}
        assert said["starts"] == [first for first, _ in chosen.stages]


@pytest.mark.skipif(find_spec("torchtitan") is None, reason="torchtitan is not installed")
def test_torchtitan_accepts_the_degrees() -> None:
    """Its own class takes the degrees for eight processes as the plan's."""
    jobs = drawn("torchtitan", ["1f1b", "gpipe", "interleaved-1f1b", "zb-v"], ["none", "selective", "full"])
    cases = [{"fields": parallelism(job), "world": 8} for job in jobs]
    for job, said in zip(jobs, asked("torchtitan", cases), strict=True):
        chosen = job.strategy
        assert [said[name] for name in ("tp", "pp", "cp")] == [chosen.tp, chosen.pp, chosen.cp]
        assert said["shard"] * said["replicate"] == chosen.dp


def test_torchrun_takes_the_arguments() -> None:
    """Its own parser reads nodes, processes and the number of the node, with a static rendezvous."""
    jobs = drawn("megatron-core", ["1f1b"], ["none"], 10)
    cases, wanted = [], []
    for job in jobs:
        script = torchrun_script(job)
        nodes, count = (2, 4) if job.is_node_major else (8, 1)
        assert f"--nnodes {nodes} " in script
        words = ["--nnodes", str(nodes), "--nproc-per-node", str(count), "--node-rank", "1", "--master-addr", "alpha"]
        cases.append({"arguments": [*words, "--master-port", "29500", "train.py"]})
        wanted.append({"nodes": nodes, "processes": count, "rank": 1, "backend": "static"})
    assert asked("torchrun", cases) == wanted
