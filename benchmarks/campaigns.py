"""
Public measurements of training runs as rows that ``taut predict`` reads.

Every function reads one file of a folder that holds the campaigns (none is part of the project) and returns the runs
that are even configurations, with the seconds that were measured. What a source does not state is an assumption, named
here. A run whose own figures contradict each other is left out or corrected, and the comment says so.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.mlperf import BLACKWELL, even_stages, mlperf
from benchmarks.runs import SHAPES, Campaign, Line, accepted, lines_of
from taut.data.calibration import BETWEEN_REPLICAS, COMPILED, FP8_GATHERS, OVERLAPPED, RING_EFFICIENCY
from taut.data.units import GIB


def vtrain(path: Path, nodes: str) -> Campaign:
    """
    VTrain's runs: Megatron-DeepSpeed on A100, fp16, with activation checkpointing.

    Attention there is one kernel only with ``--use-flash-attn``, which the paper does not name.
    """
    rows = []
    for line in lines_of(path):
        cells = {key.strip().lstrip("# ").lower(): value for key, value in line.items()}
        values: dict[str, Any] = {
            "gpu": "a100-80gb",
            "n_gpus": cells["gpus"],
            "hidden": cells["hidden size"],
            "layers": cells["layers"],
            "heads": cells["attention heads"],
            "seq": cells["sequence length"],
            "tp": cells["tensor parallelism"],
            "pp": cells["pipeline parallelism"],
            "dp": cells["data parallelism"],
            "micro_batch": cells["micro batch"],
            "global_batch": cells["global batch"],
        }
        seconds = float(cells["iteration time (ms)"]) / 1e3
        rows.append({**values, "recompute": "full", "precision": "fp16", "measured_s": seconds})
    kept, left_out = accepted(rows)
    source = f"vTrain (arXiv 2312.12391), {'one node' if nodes == 'one' else 'up to 64 nodes'} of 8 A100"
    name = f"megatron-deepspeed-a100-{nodes}"
    return Campaign(name, "megatron-deepspeed-a100", "vtrain-multi-node", source, kept, left_out, fused_attention=False)


def bloom(path: Path) -> Campaign:
    """
    BLOOM's trials on Jean Zay: Megatron-DeepSpeed on A100 80 GB.

    Three one-stage runs state a batch of 2048 in the table and 512 in the heading above it; their own TFLOP/s agree
    with 512 alone, which is taken. Two runs whose seconds and TFLOP/s look swapped are left out.
    """
    rows = []
    for line in lines_of(path):
        if not line["sec_per_iter"] or not line["layers"] or "swapped" in line["flags"]:
            continue
        values = {
            "gpu": "a100-80gb",
            **{key: line[key] for key in ("n_gpus", "hidden", "layers", "heads", "seq", "tp", "pp", "dp", "precision")},
            "vocab": line["vocab"].replace("k", "000").rpartition("_")[2],
            "micro_batch": line["mbs"],
            "global_batch": 512 if "heading_says_GBS=512" in line["flags"] else line["gbs"],
            "zero": line["zero_stage"],
            "recompute": line["recompute"] or "full",
            "measured_s": line["sec_per_iter"],
        }
        rows.append(values)
    kept, left_out = accepted(rows)
    source = "BigScience tr11-176B chronicles (second iteration of each trial), Jean Zay, 8 A100 80 GB a node"
    return Campaign("megatron-deepspeed-bloom", "megatron-deepspeed-bloom", "jean-zay", source, kept, left_out)


def nvidia(path: Path, family: str, precisions: str) -> Campaign:
    """
    NVIDIA's published DGX H100 runs: NeMo Megatron, MaxText or Paxml (the last two fully sharded).

    Recompute is not stated and taken as none; the sequence is that of the recipe. Fine-tuning rows are not training
    from scratch and left out.
    """
    rows = [values for line in lines_of(path) if (values := _nvidia_row(line, family, precisions))]
    kept, left_out = accepted(rows)
    source = "NVIDIA dgxc-benchmarking 24.11 to 25.04, DGX H100 80 GB"
    stack, narrow = f"{family}-h100", family == "nemo"
    return Campaign(
        _named(stack, precisions),
        stack,
        "dgx-h100",
        source,
        kept,
        left_out,
        fp8_inputs=narrow,
        features=(OVERLAPPED, BETWEEN_REPLICAS, *((FP8_GATHERS,) * (precisions == "fp8"))) if narrow else (),
    )


def _named(stack: str, precisions: str) -> str:
    return stack if " " in precisions else f"{stack}-{precisions}"


def _nvidia_row(line: Line, family: str, precisions: str) -> dict[str, Any] | None:
    model, sharded = line["model"], line["model"].startswith(("maxtext", "paxml"))
    if family != (model.partition("_")[0] if sharded else "nemo"):
        return None
    precision = line["precision"].lower()
    if precision not in precisions.split() or "finetuning" in line["file"]:
        return None
    size = model.rpartition("_")[2]
    seq = 2048 if size in ("175b", "5b") else 4096 if "nemotron" in model else 8192
    if "maxtext" in model:
        seq = 4096 if "LLama2" in line["title"] else 8192
    known = {"nemo_megatron_175b": "gpt_175b", "paxml_175b": "gpt_175b", "paxml_5b": "gpt_5b"}
    shape = SHAPES[known.get(model, "llama2_70b" if seq == 4096 and sharded else model.replace("maxtext", "llama3.1"))]
    degrees = {key: int(line[key]) for key in ("tp", "pp", "cp")}
    gpus = int(line["n_gpus"])
    dp = gpus // (degrees["tp"] * degrees["pp"] * degrees["cp"])
    return {
        "gpu": "h100-80gb",
        "n_gpus": gpus,
        **shape,
        **({"layers": line["layers_override"]} if line["layers_override"] else {}),
        **degrees,
        "dp": dp,
        "seq": seq,
        "vpp": line["vp"] if line["vp"].isdigit() and degrees["pp"] > 1 else 1,
        "micro_batch": line["mbs"],
        "global_batch": line["gbs"],
        "zero": 3 if sharded else 1,
        "precision": precision,
        "measured_s": line["step_s"],
    }


MORE = {"torchtitan_h100_h200.csv": (Path(__file__).parent / "measured" / "torchtitan-h100-96gb.csv",)}
"""Files of the project with further runs of the pages that a file of campaigns is from."""
CHECKPOINTS = {"selective": "selective", "selective_op": "selective", "selective_layer": "selective", "": "none"}


def torchtitan(path: Path, device: str, precisions: str) -> Campaign:
    """
    Torchtitan's runs: FSDP2 (ZeRO-3, in pipelines ZeRO-2), with tensor and pipeline degrees.

    Their rates are turned into seconds a step.

    Those on H100 ran on cards of 96 GB, whose memory is a third slower, and are priced on these. What the fit finds
    stands for cards of 80 GB as well: coefficients are the software's. Gathers take 2 % of these runs' steps at most,
    as the rest is hidden, and the fit alone would price them at twice the links; they are pulled to what NCCL's rings
    reach. Runs without torch.compile are of another feature than the others, which a plan's export switches on, and are
    left out. Of runs on A100 it is not said.
    """
    lines = [line for each in (path, *MORE.get(path.name, ())) for line in lines_of(each) if line.get("compile") != "0"]
    rows = [values for line in lines if (values := torchtitan_row(line, device, precisions))]
    kept, left_out = accepted(rows)
    source = "pytorch/torchtitan benchmarks and docs/performance.md"
    stack = "torchtitan-" + device.partition("-")[0]
    hopper = not device.startswith("a100")
    return Campaign(
        _named(stack, precisions),
        stack,
        _cluster_of(device),
        source,
        kept,
        left_out,
        selective_products=True,
        early_stop=True,
        features=(COMPILED,) * hopper,
        towards={"gather": 1 / RING_EFFICIENCY} if hopper else {},
        cards={stack: "h100-80gb", f"{stack}-96gb": device} if hopper else {},
    )


def _cluster_of(device: str) -> str:
    return "dgx-" + device.partition("-")[0]


def torchtitan_row(line: Line, device: str, precisions: str) -> dict[str, Any] | None:
    """
    One run of torchtitan as a row, or None if it is of another device or precision.

    Scales by rows are read as scales by blocks, the nearest recipe whose products were measured: both find many scales
    for a product, where ``fp8`` has one for a tensor, and PyTorch's products by rows are substantially slower than
    those with one (pytorch/pytorch#147971, pytorch/torchtitan#1207).
    """
    speed = line.get("tps_per_gpu") or line.get("wps_per_gpu") or ""
    precision = "fp8" if line.get("float8") == "1" or "float8" in line["model"] else "bf16"
    if not line["gpu"].lower().startswith(device[:4]) or speed in ("", "OOM") or precision not in precisions.split():
        return None
    size = line["model"].split("+")[0].lower().rpartition("-")[2]
    shape = SHAPES[("llama2_" if line["model"].startswith("llama2") else "llama3.1_") + size]
    tp, pp, cp = (int(line.get(key) or 1) for key in ("tp", "pp", "cp"))
    gpus = int(line["n_gpus"])
    dp = gpus // (tp * pp * cp)
    local = int(line["local_batch"])
    batch = local * dp
    return {
        "gpu": device,
        "n_gpus": gpus,
        **shape,
        "seq": line["seq"],
        **{"tp": tp, "pp": pp, "dp": dp, "cp": cp, "vpp": line.get("vpp") or 1},
        # In 2024 a pipeline cut the local batch into as many micro-batches as it had stages, unless told how many.
        "micro_batch": max(local // pp, 1),
        "global_batch": batch,
        # torchtitan keeps weights for the backward pass where it has a pipeline (``reshard_after_forward_policy``).
        "zero": 2 if pp > 1 else 3,
        "recompute": CHECKPOINTS.get(line["act_ckpt"].rstrip("?"), line["act_ckpt"]),
        "precision": "fp8-blockwise" if line.get("table", "").endswith("rowwise") else precision,
        "measured_s": batch * int(line["seq"]) / (float(speed) * gpus),
        "measured_bytes": float(line["peak_mem_GiB"]) * GIB if line.get("peak_mem_GiB") else "",
    }


def llm_foundry(path: Path, device: str, precision: str) -> Campaign:
    """
    MosaicML's runs of MPT models: FSDP with full or gradient sharding (ZeRO-3 and ZeRO-2).

    Their loss is fused, MPT's default (llm-foundry's ``modeling_mpt.py``, ``fused_crossentropy``). Their checkpoints
    do not reenter (``activation_checkpointing_reentrant`` of ``scripts/train/yamls/pretrain``). The images are of
    PyTorch 1.13 on A100 of 40 GB and of 2.1 on the others (``sweep.sh`` of May and October 2023; two runs of 70B on
    A100 of 80 GB are of May). So the others stop early, but for layers in fp8: products of Transformer Engine keep
    their inputs after they ran.
    """
    rows = []
    for line in lines_of(path):
        if line["gpu"].replace("_", "-").lower() != device or not line["precision"].endswith(precision):
            continue
        gpus, batch = int(line["n_gpus"]), int(line["gbs"])
        rows.append(
            {
                "gpu": device,
                "n_gpus": gpus,
                **SHAPES["mpt_" + line["model"]],
                "seq": line["seq"],
                "dp": gpus,
                "micro_batch": line["mbs"],
                "global_batch": batch,
                "zero": 3 if line["sharding"] == "FULL_SHARD" else 2,
                "recompute": "full" if line["act_ckpt"] == "True" else "none",
                "precision": precision,
                "measured_s": int(line["gbs_tokens"]) / float(line["tokens_per_s"]),
            }
        )
    kept, left_out = accepted(rows)
    stack, source = "llm-foundry-" + device.partition("-")[0], "mosaicml/llm-foundry scripts/train/benchmarking"
    name, early = f"llm-foundry-{device}-{precision}", device != "a100-40gb" and precision != "fp8"
    return Campaign(name, stack, _cluster_of(device), source, kept, left_out, early_stop=early, fused_loss="te")


def megatron_core(path: Path) -> Campaign:
    """
    The scaling table of Megatron-Core on H100: sequence 4096, vocabulary 131072, step times from its own FLOP formula.

    Micro-batch and virtual stages are not stated; 1 is taken for both.
    """
    rows = [
        {
            "gpu": "h100-80gb",
            **{key: line[key] for key in ("n_gpus", "hidden", "layers", "heads", "tp", "pp", "dp")},
            "seq": 4096,
            "vocab": 131072,
            "global_batch": line["gbs"],
            "zero": 1,
            "precision": "bf16",
            "measured_s": line["iter_s_derived"],
        }
        for line in lines_of(path)
    ]
    kept, left_out = accepted(rows)
    source = "NVIDIA/Megatron-LM images/model_table.png, Megatron-Core 0.8"
    return Campaign("megatron-core-h100", "nemo-h100", "dgx-h100", source, kept, left_out)


def megatron_bridge(path: Path) -> Campaign:
    """Dense pre-training runs on DGX H100 from Megatron-Bridge's summary; sequence and degrees as stated."""
    kept, left_out = accepted([*bridge_rows(path, ("DGX-H100",))])
    source = "NVIDIA-NeMo/Megatron-Bridge docs/performance-summary"
    return Campaign("megatron-bridge-h100", "nemo-h100", "dgx-h100", source, kept, left_out)


BRIDGE_BLACKWELL = ("DGX-B200", "DGX-B300", "DGX-GB200", "DGX-GB300")
BRIDGE_PRECISIONS = {
    "BF16": "bf16",
    "FP8": "fp8",
    "FP8-CS": "fp8",
    "MXFP8": "mxfp8",
    "FP8-MX": "mxfp8",
    "NVFP4": "nvfp4",
}


def megatron_bridge_blackwell(path: Path) -> Campaign:
    """
    Dense pre-training runs on Blackwell from Megatron-Bridge's summary, the newest release of each plan.

    Racks are nodes of 64 GPUs. 8B Llama's recipes record whole steps as CUDA graphs. A run of 70B whose table has four
    stages and no virtual ones is left out: the release before and the one after have five, with the same speed, and
    without them a quarter of the step would be a bubble.
    """
    found: list[dict[str, Any]] = []
    for values in bridge_rows(path, BRIDGE_BLACKWELL):
        misprinted = values["pp"] > 1 and values["vpp"] == 1
        if not misprinted and all(values != {**each, "measured_s": values["measured_s"]} for each in found):
            found.append(values)
    kept, left_out = accepted(found)
    source = "NVIDIA-NeMo/Megatron-Bridge docs/performance-summary"
    return Campaign(
        "megatron-bridge-blackwell",
        "megatron-bridge",
        "",
        source,
        kept,
        left_out,
        fp8_inputs=True,
        features=(OVERLAPPED, BETWEEN_REPLICAS),
    )


def bridge_rows(path: Path, systems: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Megatron-Bridge's dense pre-training runs, newest first, two where a cell has two precisions' speeds."""
    for line in lines_of(path):
        shape = SHAPES.get(line["model"].lower().replace("llama3_", "llama3.1_"))
        if shape is None or line["system"] not in systems or line["kind"] != "Pre-Training Performance":
            continue
        gpu, gpus = line["system"].removeprefix("DGX-").lower(), int(line["n_gpus"])
        hopper = gpu == "h100"
        # Before October 2025 a line of Blackwell's table has the degrees of two precisions, and names neither.
        if not hopper and not line["precision"]:
            continue
        degrees = {key: int(line[key]) for key in ("tp", "pp", "cp")}
        chunks = int(line["vp"]) if line["vp"].isdigit() and degrees["pp"] > 1 else 1
        speeds = [float(each.strip("()")) for each in line["tokens_per_s_per_gpu"].split()]
        precision = BRIDGE_PRECISIONS.get(line["precision"].split()[0] if line["precision"] else "", "fp8")
        if hopper:
            precision = "bf16" if line["precision"].startswith("BF16") else "fp8"
        values: dict[str, Any] = {
            "gpu": "h100-80gb" if hopper else gpu,
            "n_gpus": gpus,
            **shape,
            **degrees,
            "dp": gpus // (degrees["tp"] * degrees["pp"] * degrees["cp"]),
            "vpp": chunks,
            "seq": line["seq"],
            "micro_batch": line["mbs"],
            "global_batch": line["gbs"],
            "zero": 3 if line["fsdp"].isdigit() and int(line["fsdp"]) > 1 else 1,
        }
        if not hopper:
            values["gpus_per_node"] = min(64, gpus) if gpu.startswith("gb") else 8
            values["cuda_graphs"] = shape == SHAPES["llama3.1_8b"]
            if degrees["pp"] > 1:
                values["stages"] = " ".join(map(str, even_stages(shape["layers"], degrees["pp"] * chunks)))
        for each, speed in zip((precision, "mxfp8"), speeds if not hopper else speeds[:1], strict=False):
            yield {**values, "precision": each, "measured_s": int(line["gbs"]) * int(line["seq"]) / gpus / speed}


def checks(folder: Path) -> Iterator[Campaign]:
    """Campaigns that are predicted with another one's calibration, their ``stack``, and not fitted."""
    yield megatron_core(folder / "megatron_core_h100_model_table.csv")
    yield megatron_bridge(folder / "megatron_bridge_h100_b200_gb200.csv")
    for kinds in ({"H100": "h100", "H200": "h200"}, BLACKWELL):
        yield mlperf(folder / "mlperf_dense.csv", kinds)


def campaigns(folder: Path) -> Iterator[Campaign]:
    """Every campaign of the folder."""
    yield vtrain(folder / "vtrain_single.csv", "one")
    yield vtrain(folder / "vtrain_multi.csv", "many")
    yield bloom(folder / "bloom_a100.csv")
    for family, groups in (("nemo", ("bf16", "fp8")), ("maxtext", ("bf16", "fp8")), ("paxml", ("bf16 fp8",))):
        yield from (nvidia(folder / "nvidia_dgxc_h100.csv", family, precisions) for precisions in groups)
    readers: list[tuple[Callable[[Path, str, str], Campaign], str, str, str]] = [
        (torchtitan, "torchtitan_h100_h200.csv", "h100-96gb", "bf16 fp8"),
        (torchtitan, "torchtitan_2024_a100_fsdp.csv", "a100-80gb", "bf16"),
        (llm_foundry, "llm_foundry_mpt_a100_h100.csv", "a100-40gb", "bf16"),
        (llm_foundry, "llm_foundry_mpt_a100_h100.csv", "a100-80gb", "bf16"),
        (llm_foundry, "llm_foundry_mpt_a100_h100.csv", "h100-80gb", "bf16"),
        (llm_foundry, "llm_foundry_mpt_a100_h100.csv", "h100-80gb", "fp8"),
    ]
    yield from (reader(folder / name, device, precision) for reader, name, device, precision in readers)
