"""
Asks checkouts of the launchers' repositories what they make of exports, as ``launcher_worker`` asks packages.

They are imported where they lie, on a machine without GPU.
"""

import argparse
import contextlib
import io
import json
import os
import sys
import types
import typing
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from tests.support.launcher_worker import layers_of, refused

warnings.simplefilter("ignore")


def megatron_arguments(case: dict[str, Any]) -> dict[str, Any]:
    """What the argument parser of a Megatron-LM checkout makes of flags, and the layers that its model would build."""
    _without_gpu(case["checkout"])
    from megatron.core.transformer.transformer_block import get_num_layers_to_build

    args, config = _parsed(case["words"], case["environment"])
    chunks = config.virtual_pipeline_model_parallel_size or 1
    layout = config.pipeline_model_parallel_layout
    layers = [
        [get_num_layers_to_build(config, chunk if chunks > 1 else None, rank) for chunk in range(chunks)]
        for rank in range(0 if layout else config.pipeline_model_parallel_size)
    ]
    return {"layers": layers_of(layout) if layout else layers} | {
        name: getattr(args, name, None) for name in case["read"]
    }


def _parsed(words: list[str], environment: dict[str, str], before: Callable[[Any], None] = lambda _: None) -> Any:
    """Arguments and configuration that Megatron-LM's parser takes words for; ``before`` sees them before the checks."""
    from megatron.training import arguments

    os.environ.pop("CUDA_DEVICE_MAX_CONNECTIONS", None)
    os.environ.update(environment)
    sys.argv = ["pretrain_gpt.py", *words]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            args = arguments.parse_args()
            before(args)
            arguments.validate_args(args)
        except SystemExit:
            raise ValueError(printed.getvalue().splitlines()[-1]) from None
        return args, arguments.core_transformer_config_from_args(args)


def megatron_rules(case: dict[str, Any]) -> dict[str, Any]:
    """What a Megatron-LM checkout says of a line: parser, configuration, layers of the chunks, and micro-batches."""
    set_up = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(case["world"]), "CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    checkout = os.environ["TAUT_MEGATRON_LM"]
    said = megatron_arguments({"checkout": checkout, "words": case["words"], "environment": set_up, "read": BATCH})
    from megatron.core.num_microbatches_calculator import ConstantNumMicroBatchesCalculator

    ConstantNumMicroBatchesCalculator(*(said[name] for name in BATCH), False, 0)
    return {}


BATCH = ["global_batch_size", "micro_batch_size", "data_parallel_size"]


def flagscale(case: dict[str, Any]) -> dict[str, Any]:
    """What FlagScale's runner and its Megatron-LM make of a configuration and a hostfile, as its last process."""
    checkout = case["checkout"]
    sys.path.insert(0, checkout)
    _without_gpu(f"{checkout}/third_party/Megatron-LM")
    from flagscale.runner.utils import flatten_dict_to_args, parse_hostfile
    from flagscale.train.arguments import FSTrainArguments
    from flagscale.train.hetero.parallel_context import RankMapper

    hosts = parse_hostfile(case["hostfile"])
    types = [host["type"] for host in hosts.values() for _ in range(host["slots"])]
    config = case["config"]
    words = [*flatten_dict_to_args(config["system"]), *flatten_dict_to_args(config["model"])]
    found: dict[str, Any] = {"types": types}

    def unlike(args: Any) -> None:
        if not args.enable_hetero:
            return
        args.hetero_current_device_type = types[-1]
        with _process_group(len(types), types):
            mapper = RankMapper(args)
            found["ranks"] = mapper.to_logical_ranks(list(range(len(types))))
            FSTrainArguments(args, mapper).pre_validate_args()

    args, _ = _parsed(words, case["environment"], unlike)
    return found | {name: getattr(args, name, None) for name in case["read"]}


@contextlib.contextmanager
def _process_group(world: int, types: list[str]) -> Iterator[None]:
    """A process group in which every process has said what its device is."""
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    def gathered(into: list[Any], _: Any) -> None:
        into[:] = [{"rank": rank, "device_type": kind} for rank, kind in enumerate(types)]

    dist.init_process_group("fake", rank=world - 1, world_size=world, store=FakeStore())
    replaced: Any = dist
    kept, replaced.all_gather_object = dist.all_gather_object, gathered
    try:
        yield
    finally:
        replaced.all_gather_object = kept
        dist.destroy_process_group()


def _without_gpu(checkout: str) -> None:
    """Let a checkout be imported on a machine without GPU and, main, by Python 3.11; it then believes in an H100."""
    import torch

    if checkout not in sys.path:
        sys.path.insert(0, checkout)
    if not hasattr(typing, "override"):
        newer: Any = typing
        newer.override = lambda method: method
    hopper = types.SimpleNamespace(major=9, minor=0, total_memory=80 * 2**30)
    cuda: Any = torch.cuda
    cuda.get_device_capability, cuda.get_device_properties = lambda *_: (9, 0), lambda *_: hopper


def torchtitan_main(case: dict[str, Any]) -> dict[str, Any]:
    """What a torchtitan checkout makes of an exported module, over its small Llama 3: degrees, tokens and chunks."""
    sys.path.insert(0, case["checkout"])
    from dataclasses import replace

    from torchtitan.distributed.parallel_dims import ParallelDims
    from torchtitan.models.llama3.config_registry import llama3_debugmodel

    names: dict[str, Any] = {"__file__": case["file"], "__name__": "taut_plan"}
    exec(case["module"], names)
    names["base"] = llama3_debugmodel
    config = names["taut_plan"]()
    for section, values in (("parallelism", names["PARALLELISM"]), ("training", names["TRAINING"])):
        known = getattr(config, section).__dataclass_fields__
        if unknown := [name for name in values if name not in known]:
            raise ValueError(f"{section} has no {unknown}")
    replace(config)  # Its own checks run again.
    dims, several = ParallelDims.from_config(config.parallelism, case["world"]), config.parallelism.num_pp_microbatches
    at_once = config.training.num_tokens_per_microbatch_per_dp_rank * dims.dp_replicate * dims.dp_shard * several
    return {
        **{name: getattr(dims, name) for name in ("tp", "pp", "cp", "dp_replicate", "dp_shard")},
        "steps": config.training.num_tokens_per_train_step / at_once,
        "chunks": config.parallelism.module_fqns_per_model_part,
        "csv": config.parallelism.pipeline_parallel_schedule_csv,
        "checkpoint": type(config.activation_checkpoint).__qualname__,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("checkout", choices=["megatron_arguments", "megatron_rules", "flagscale", "torchtitan_main"])
    ask = globals()[parser.parse_args().checkout]
    print("\n" + json.dumps([refused(ask, case) for case in json.load(sys.stdin)]))
