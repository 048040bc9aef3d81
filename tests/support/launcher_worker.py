"""
Asks the launchers' own packages what they make of exports: reads cases as JSON, prints what they said as JSON.

It is a program of its own, since the packages warn when they are imported and keep one process group for a process.
"""

import argparse
import json
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

warnings.simplefilter("ignore")
os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"


def megatron(case: dict[str, Any]) -> dict[str, Any]:
    """Layers of every chunk by pipeline rank, and the groups of some ranks."""
    import torch
    from megatron.core.transformer.pipeline_parallel_layer_layout import PipelineParallelLayerLayout
    from megatron.core.transformer.transformer_config import TransformerConfig

    chosen = case["degrees"]
    found: dict[str, Any] = {}
    if case["layout"]:
        layout = PipelineParallelLayerLayout(case["layout"], chosen["pp"])
        layout.validate_layer_layout(case["num_layers"], 0)
        found["layers"] = layers_of(layout)
    config = TransformerConfig(**case["config"], pipeline_dtype=torch.bfloat16 if chosen["pp"] > 1 else None)
    found["groups"] = [_groups_of(rank, case, config) for rank in case["ranks"]]
    return found


def layers_of(layout: Any) -> list[list[int]]:
    """Layers of every chunk by pipeline rank of a layout that megatron-core has read."""
    return [[sum(part.name == "decoder" for part in chunk) for chunk in chunks] for chunks in layout.layout]


def _groups_of(rank: int, case: dict[str, Any], config: Any) -> dict[str, list[int]]:
    """Every group of one rank by megatron-core's own builder, whose layers then ask how they share experts."""
    import torch.distributed as dist
    from megatron.core import parallel_state as state
    from torch.testing._internal.distributed.fake_pg import FakeStore

    chosen = case["degrees"]
    dist.init_process_group("fake", rank=rank, world_size=case["world"], store=FakeStore())
    try:
        state.initialize_model_parallel(
            chosen["tp"],
            chosen["pp"],
            context_parallel_size=chosen["cp"],
            expert_model_parallel_size=chosen["ep"],
            expert_tensor_parallel_size=chosen["etp"],
            num_distributed_optimizer_instances=case["copies"],
            create_gloo_process_groups=False,
        )
        groups = {
            "tp": state.get_tensor_model_parallel_group(),
            "pp": state.get_pipeline_model_parallel_group(),
            "cp": state.get_context_parallel_group(),
            "dp": state.get_data_parallel_group(with_context_parallel=False),
            "dp_cp": state.get_data_parallel_group(with_context_parallel=True),
            "etp": state.get_expert_tensor_parallel_group(),
            "ep": state.get_expert_model_parallel_group(),
            "expert": state.get_expert_tensor_and_model_parallel_group(),
            "edp": state.get_expert_data_parallel_group(),
            "dp_shard": state.get_data_parallel_group(with_context_parallel=True, partial_data_parallel=True),
            "edp_shard": state.get_expert_data_parallel_group(partial_expert_data_parallel=True),
        }
        if config.num_moe_experts:
            _build_layer_with_experts(config)
        # One copy has no group between copies.
        between = state.get_inter_distributed_optimizer_instance_group() if case["copies"] > 1 else None
        found = {name: dist.get_process_group_ranks(group) for name, group in groups.items()}
        return found | {"dp_replicate": dist.get_process_group_ranks(between) if between else [rank]}
    finally:
        state.destroy_model_parallel()
        dist.destroy_process_group()


def _build_layer_with_experts(config: Any) -> None:
    """Have megatron-core's own class share the experts among the ranks, which it refuses where they do not divide."""
    from megatron.core.process_groups_config import ProcessGroupCollection
    from megatron.core.transformer.moe.moe_layer import BaseMoELayer

    # Experts without weights, which need no pass.
    layer = type("Layer", (BaseMoELayer,), {"forward": lambda _, hidden_states: hidden_states})
    layer(config, 1, ProcessGroupCollection.use_mpu_process_groups())


def refused(ask: Callable[[dict[str, Any]], dict[str, Any]], case: dict[str, Any]) -> dict[str, Any]:
    """What a package said, or the first line of its refusal."""
    try:
        return ask(case)
    except (AssertionError, RuntimeError, ValueError) as error:
        return {"refusal": (str(error) or type(error).__name__).splitlines()[0]}


def deepspeed(case: dict[str, Any]) -> dict[str, Any]:
    """Batch sizes that the configuration holds, hosts of the hostfile, and where stages begin."""
    import torch.distributed as dist
    from deepspeed.comm import init_distributed
    from deepspeed.launcher.runner import fetch_hostfile
    from deepspeed.pipe import LayerSpec
    from deepspeed.runtime.config import DeepSpeedConfig
    from deepspeed.runtime.utils import partition_balanced
    from torch.nn import Linear
    from torch.testing._internal.distributed.fake_pg import FakeStore

    if not dist.is_initialized():
        dist.init_process_group("fake", rank=0, world_size=8, store=FakeStore())
        init_distributed(auto_mpi_discovery=False, verbose=False)

    class Topology:
        """Says how many replicas there are."""

        def get_data_parallel_world_size(self) -> int:
            return int(case["dp"])

    config = DeepSpeedConfig(case["config"], mpu=Topology())
    names: dict[str, Any] = {}
    exec(case["stages"], names)
    marked = names["marked"]([LayerSpec(Linear, 1, 1) for _ in range(case["num_layers"] + 2)], 1)
    pattern = names["METHOD"].partition(":")[2].lower()
    weights = [int(pattern in layer.typename.__name__.lower()) for layer in marked]
    return {
        "batch": [config.train_batch_size, config.train_micro_batch_size_per_gpu, config.gradient_accumulation_steps],
        "zero": config.zero_optimization_stage,
        "hosts": dict(fetch_hostfile(case["hostfile"])),
        "starts": [0, *(int(place) - 1 for place in partition_balanced(weights, len(names["STARTS"]))[1:-1])],
    }


def torchrun(case: dict[str, Any]) -> dict[str, Any]:
    """What torchrun makes of its arguments."""
    from torch.distributed.run import config_from_args, get_args_parser

    config, _, _ = config_from_args(get_args_parser().parse_args(case["arguments"]))
    rank = config.rdzv_configs["rank"]
    return {"nodes": config.max_nodes, "processes": config.nproc_per_node, "rank": rank, "backend": config.rdzv_backend}


def torchtitan(case: dict[str, Any]) -> dict[str, Any]:
    """Degrees that its own class accepts for the number of processes."""
    from torchtitan.config.configs import ParallelismConfig
    from torchtitan.distributed.parallel_dims import ParallelDims

    fields = {name: value for name, value in case["fields"].items() if hasattr(ParallelismConfig(), name)}
    dims = ParallelDims.from_config(ParallelismConfig(**fields), case["world"])
    return {"tp": dims.tp, "pp": dims.pp, "cp": dims.cp, "shard": dims.dp_shard, "replicate": dims.dp_replicate}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("package", choices=["megatron", "deepspeed", "torchrun", "torchtitan"])
    ask = globals()[parser.parse_args().package]
    print("\n" + json.dumps([refused(ask, case) for case in json.load(sys.stdin)]))
