"""
Exports read by the code of repositories that no package holds: torchtitan's main, FlagScale and Megatron-Bridge.

``TAUT_TORCHTITAN``, ``TAUT_FLAGSCALE`` (with its patched ``third_party/Megatron-LM``) and ``TAUT_MEGATRON_BRIDGE``
name checkouts; ``TAUT_MEGATRON_LM``, beside the last, one of Megatron-LM.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from taut.errors import TautError
from taut.exports.export import environment
from taut.exports.flagscale import flagscale_files
from taut.exports.job import Job
from taut.exports.megatron import bridge_settings
from taut.exports.torchtitan import torchtitan_files
from tests.support.dataclass_sources import fields_of
from tests.support.drawn_launches import drawn, drawn_with_experts
from tests.support.launches import asked, in_order, launched, placed

pytestmark = pytest.mark.proof


def checkout(name: str, file: str) -> pytest.MarkDecorator:
    """Skip unless a variable names a checkout that holds a file."""
    there = Path(os.environ.get(name, ""), file).is_file()
    return pytest.mark.skipif(not there, reason=f"{name} names no checkout")


@checkout("TAUT_TORCHTITAN", "torchtitan/config/configs.py")
def test_torchtitans_main_takes_the_configuration_function() -> None:
    """Its configuration has every field and passes its own checks: degrees, accumulation, chunks and recompute."""
    jobs = drawn("torchtitan", ["1f1b", "gpipe", "interleaved-1f1b", "zb-v"], ["none", "selective", "full"])
    jobs += [launched(pp=2, tp=2, micro_batch=1, schedule="zb-h1", zero=0)]
    cases = []
    for job in jobs:
        files = torchtitan_files(job)
        case = {"module": files["taut_plan.py"], "file": "/files/taut_plan.py", "world": len(job.devices)}
        cases.append(case | {"checkout": os.environ["TAUT_TORCHTITAN"]})
    for job, said in zip(jobs, asked("torchtitan_main", cases, "checkout_worker"), strict=True):
        assert "refusal" not in said, said
        chosen = job.strategy
        assert [said[name] for name in ("tp", "pp", "cp")] == [chosen.tp, chosen.pp, chosen.cp]
        assert said["dp_replicate"] * said["dp_shard"] == chosen.dp
        assert said["steps"] == (1 if chosen.pp > 1 else chosen.num_micro_batches)
        chunks = [sum(name.startswith("layers.") for name in chunk) for chunk in said["chunks"] or []]
        assert chunks == (list(job.layers) if len(job.layers) > 1 else [])
        assert said["csv"] in ("", "/files/schedule.csv")
        kind = {"none": "NoneType", "full": "FullAC.Config", "selective": "SelectiveAC.Config"}
        assert said["checkpoint"] == kind[chosen.recompute[0]]


def flagscale_case(job: Job, folder: Path) -> dict[str, Any]:
    """Configuration, hostfile and environment variables of an export."""
    files = flagscale_files(job)
    hosts = folder / f"hosts{len(list(folder.iterdir()))}"
    hosts.write_text(files["hostfile"])
    set_up = environment(job) | {"RANK": "7", "LOCAL_RANK": "3", "WORLD_SIZE": "8"}
    read = ["tensor_model_parallel_size", "global_batch_size", "recompute_granularity", "hetero_pipeline_layer_split"]
    case = {"config": yaml.safe_load(files["train.yaml"]), "hostfile": str(hosts), "environment": set_up}
    return case | {"checkout": os.environ["TAUT_FLAGSCALE"], "read": read}


@checkout("TAUT_FLAGSCALE", "third_party/Megatron-LM/megatron/training/arguments.py")
def test_flagscale_takes_configuration_and_hostfile(tmp_path: Path) -> None:
    """Its runner's words pass its parser; of unlike devices its checks of meshes too, and its ranks are the plan's."""
    jobs, unlike = [], 0
    for drawn_job in drawn("megatron-core", ["1f1b", "interleaved-1f1b"], ["none", "full"]):
        job = in_order(drawn_job)
        try:
            jobs.append((job, flagscale_case(job, tmp_path)))
        except TautError as refusal:
            assert "FlagScale" in str(refusal)
    answers = asked("flagscale", [case for _, case in jobs], "checkout_worker")
    for (job, _), said in zip(jobs, answers, strict=True):
        assert "refusal" not in said, (job, said)
        assert said["tensor_model_parallel_size"] == job.strategy.tp
        assert said["global_batch_size"] == job.global_batch
        if "ranks" in said:
            unlike += 1
            assert said["ranks"] == list(range(8))
            assert said["hetero_pipeline_layer_split"] == list(job.layers)
    assert len(jobs) > 30 and unlike >= 1, (len(jobs), unlike)


@checkout("TAUT_MEGATRON_BRIDGE", "src/megatron/bridge/training/config.py")
@checkout("TAUT_MEGATRON_LM", "megatron/core/transformer/transformer_config.py")
def test_megatron_bridges_configuration_has_every_attribute_that_a_recipe_sets() -> None:
    """Fields in the sources of its configuration classes, and of those of Megatron-LM that they extend."""
    roots = [Path(os.environ["TAUT_MEGATRON_BRIDGE"], "src"), Path(os.environ["TAUT_MEGATRON_LM"])]
    classes = {"model": "GPTModelProvider", "train": "TrainingConfig", "ddp": "DistributedDataParallelConfig"}
    classes |= {"optimizer": "OptimizerConfig", "comm_overlap": "CommOverlapConfig"}
    known = {section: fields_of(name, roots) for section, name in classes.items()}
    known["dataset"] = fields_of("GPTDatasetConfig", roots)
    jobs = [*drawn("megatron-core", ["1f1b", "interleaved-1f1b"], ["none", "selective", "full"]), *drawn_with_experts()]
    paths = {path for job in jobs for path in bridge_settings(job)}
    assert len(paths) >= 20
    missing = [path for path in paths if path.partition(".")[2] not in known[path.partition(".")[0]]]
    assert missing == [], missing


def test_a_type_that_comes_again_is_refused_for_flagscale() -> None:
    """Stages on one type before and after those on another: FlagScale would number them one after the other."""
    job = launched(types=2, pp=4, tp=2, micro_batch=1, schedule="1f1b", recompute="none")
    order = np.arange(8).reshape(4, 2)[[0, 2, 1, 3]]
    with pytest.raises(TautError, match="before and after"):
        flagscale_files(placed(job, order))
