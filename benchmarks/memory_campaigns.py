"""
Public measurements of device memory as rows that ``taut fit memory`` reads.

Every function reads one file of a folder that holds the campaigns (none is part of the project). Figures in GB that a
tool printed are taken as GiB, as such tools count; what a source does not state is an assumption, named here.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.campaigns import torchtitan_row
from benchmarks.runs import accepted, lines_of
from taut.data.memory import LOGIT_BYTES, MemoryModel
from taut.data.samples import ConfigurationRow
from taut.data.units import GIB, KIB
from taut.prediction.settings import find_device

MEBIBYTE = 2**20
LOSS_PARALLEL_BYTES = 12
"""Passing copies of PyTorch's loss over shared logits: the gradient, the exponential and their sum, in fp32 beside the
logarithms that stay (torch/distributed/tensor/parallel/loss.py, _nll_loss_and_log_softmax_backward)."""


FSDP: dict[str, Any] = {"weight_remainders": True}
"""PyTorch's FSDP casts sharded fp32 weights when it gathers them, and keeps no copy in half precision beside them: 16
bytes a parameter, as remainders beside a copy take."""
PROCESS = {"overhead_gib": 0.5, "group_overhead_gib": 0.25}
"""GiB of a process beside its tensors: CUDA's context with kernels loaded on demand, and NCCL's buffers of a group."""
STATED = [
    MemoryModel(
        name=f"llm-foundry-{device}",
        stack=f"llm-foundry-{device}",
        source="FSDP of fp32 weights, MPT's fused loss, whose gradient lies beside the logits; CUDA's context, whose "
        "kernels PyTorch has loaded on demand since 1.13, and the buffers of NCCL's group assumed; not fitted",
        **FSDP,
        **PROCESS,
        fused_loss="te",
        fused_logit_bytes=2,
    )
    for device in ("a100", "h100")
] + [
    MemoryModel(
        name="megatron-core",
        stack="megatron-core",
        source="Megatron-LM main of August 2026 with Transformer Engine, counted by their sources: a loss over logits "
        "in fp32 beside their copy in half precision (core/tensor_parallel/cross_entropy.py), cached stand-ins of "
        "gradients; CUDA's context and the buffers of NCCL's groups assumed",
        whole_logit_bytes=2,
        shared_logit_bytes=2,
        transformer_engine="2.10",
        passing_gradients=True,
        **PROCESS,
    ),
    MemoryModel(
        name="torchtitan",
        stack="torchtitan",
        source="pytorch/torchtitan main of August 2026: FSDP's 16 bytes a parameter, a compiled loss of 4 bytes an "
        "entry (12 in December 2024, as the run on H200 of June 2025 shows, which takes 14 GiB less), that of ranks "
        "which share the vocabulary as torchtitan-h100 has it; overheads by three runs of 2025 (#1789, #1690, H200)",
        **FSDP,
        sequence_parallel=True,
        selective_products=True,
        whole_logit_bytes=0,
        shared_logit_bytes=LOSS_PARALLEL_BYTES,
        overhead_gib=1.5,
        group_overhead_gib=1.0,
    ),
]
"""Memory models of stacks whose formats are known and whose memory is not."""


@dataclass(frozen=True)
class MemoryCampaign:
    """Measured memory of one stack, precision and device, and runs that ended out of memory."""

    name: str
    stack: str
    source: str
    rows: list[ConfigurationRow]
    out_of_memory: list[ConfigurationRow]
    left_out: int
    device: str = ""
    sequence_parallel: bool = False
    fused_attention: bool = True
    half_gradients: bool = False
    weight_remainders: bool = False
    selective_products: bool = False
    shared_logit_bytes: int = LOGIT_BYTES

    @property
    def about(self) -> dict[str, Any]:
        """What a memory model from these runs says of itself."""
        names = ["name", "stack", "source", "sequence_parallel", "fused_attention", "half_gradients"]
        names += ["weight_remainders", "selective_products", "shared_logit_bytes"]
        return {name: getattr(self, name) for name in names}


def bloom(path: Path) -> MemoryCampaign:
    """
    BLOOM's trials: the most memory on the first or last node, read by hand, in whole GiB.

    The readings are ``nvidia-smi``'s, whose "used" held what the driver reserves of a card (NVML's first structure of
    memory; releases from 510 on state it apart): one trial read 80 on a card of which processes see 79.2. What a
    process does not see is taken off. Scores of attention are not at the peak: trials with 16, 32, 64, 112, 128 and 256
    heads took 54, 55, 55, 53, 55 and 54, where the scores of a layer that is computed again are 0.2 to 2.5 GiB. So they
    stay out of memory, as in a kernel, though they were several.

    Vocabulary 250880 where the source leaves it open, embedding and head tied (``TiedLayerSpec`` of the stack's
    ``GPTModelPipe``), full recompute, ZeRO as stated. One run whose figure the source's reader found suspicious
    (65 GiB at micro-batch 2, 56 at 4) is left out; the batch is cut to whole micro-batches.
    """
    rows: list[dict[str, Any]] = []
    reserved = 80 * GIB - find_device("a100-80gb").capacity_kib * KIB
    for line in lines_of(path):
        if not line["mem_GB"] or not line["layers"] or "suspicious" in line["flags"]:
            continue
        degrees = {key: int(line[key]) for key in ("tp", "pp", "dp")}
        together = degrees["dp"] * int(line["mbs"])
        values = {
            "gpu": "a100-80gb",
            "n_gpus": degrees["tp"] * degrees["pp"] * degrees["dp"],
            **{key: line[key] for key in ("hidden", "layers", "heads", "seq", "precision")},
            **degrees,
            "vocab": 250880,
            "tied_embedding": True,
            "micro_batch": line["mbs"],
            "global_batch": together * max(int(line["gbs"]) // together, 1),
            "zero": line["zero_stage"],
            "recompute": "full",
        }
        measured = "" if line["mem_GB"] == "OOM" else float(line["mem_GB"]) * GIB - reserved
        rows.append({**values, "measured_bytes": measured})
    kept, left_out = accepted(rows)
    source = "BigScience tr11-176B chronicles, Jean Zay, A100 80 GB"
    return _campaign("megatron-deepspeed-bloom", source, kept, left_out, half_gradients=True)


def torchtitan(path: Path) -> MemoryCampaign:
    """
    Torchtitan's peak memory on H100 in December 2024: FSDP2 (ZeRO-3), sequence parallelism with tensor degrees.

    Runs with 8-bit products hold bf16 weights, so they are taken as bf16; the run on H200 half a year later is another
    version of the software, which needs 14 GiB less for the same configuration, and is left out.
    """
    rows = []
    for line in lines_of(path):
        if not line["peak_mem_GiB"] or line["gpu"].startswith("H200"):
            continue
        values = torchtitan_row({**line, "gbs": ""}, "h100-80gb", "bf16 fp8")
        if values is not None:
            measured = {"measured_bytes": float(line["peak_mem_GiB"]) * GIB}
            rows.append({**values, "precision": "bf16", "measured_s": "", **measured})
    kept, left_out = accepted(rows)
    source = "pytorch/torchtitan benchmarks, December 2024"
    stack = {"sequence_parallel": True, "selective_products": True, "shared_logit_bytes": LOSS_PARALLEL_BYTES, **FSDP}
    return _campaign("torchtitan-h100", source, kept, left_out, device="h100-96gb", **stack)


def sailor(path: Path) -> MemoryCampaign:
    """Sailor's validation runs of OPT-350M on GH200: fp32, tensor degree 4, the most allocated memory of each stage."""
    rows = []
    for line in lines_of(path):
        if line["campaign"] != "memory":
            continue
        dp, pp = int(line["dp"]), int(line["pp"])
        rows.append(
            {
                "gpu": "gh200-96gb",
                "n_gpus": 4 * dp * pp,
                "gpus_per_node": 4,
                **{"hidden": 1024, "layers": 24, "heads": 16, "seq": 2048, "vocab": 50272},
                **{"tp": 4, "pp": pp, "dp": dp, "stage": line["stage"]},
                "micro_batch": line["mbs"],
                "global_batch": line["gbs"],
                "precision": "fp32",
                "measured_bytes": float(line["max_allocated"]) * MEBIBYTE,
            }
        )
    kept, left_out = accepted(rows)
    return _campaign("aceso-gh200", "eth-easl/sailor, Aceso's runtime on Alps", kept, left_out, fused_attention=False)


def _campaign(name: str, source: str, rows: list[ConfigurationRow], left_out: int, **stack: Any) -> MemoryCampaign:
    measured = [row for row in rows if row.measured_bytes is not None]
    beyond = [row for row in rows if row.measured_bytes is None]
    return MemoryCampaign(name, name, source, measured, beyond, left_out, **stack)


def memory_campaigns(folder: Path) -> Iterator[MemoryCampaign]:
    """Every campaign of the folder."""
    yield bloom(folder / "bloom_a100.csv")
    yield torchtitan(folder / "torchtitan_h100_h200.csv")
    yield sailor(folder / "sailor_per_stage_gh200.csv")
