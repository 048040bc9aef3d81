"""
Public runs that no fit, test or table had before, as a user states them: ``python -m benchmarks.unseen``.

Figures are typed from the sources below. ``predicted`` is the answer of ``taut predict`` by default: another framework
is priced as the nearest stack. Below the table stand, by source, the mean error of steps, and how many runs lie in the
printed band and are said to fit. All of them ran.

- ``NeMo 24.12``, ``25.04``, ``25.07``: performance summaries of NVIDIA's NeMo framework, DGX H100 and GB200
- ``KempnerForge``: KempnerInstitute/KempnerForge, benchmarks/mfu_scaling, four H200 a node, full recompute
- ``AutoModel``: NVIDIA-NeMo/Automodel, docs/performance-summary.mdx, and the recipes that it names, DGX H100
- ``Llama 3``: arXiv 2407.21783, table 4, whose FLOP of a token are taken with half of the scores
- ``TinyLlama``: jzhang38/TinyLlama, README, A100 of 40 GB
- ``torchtitan, AWS``: settings of aws-samples/sagemaker-distributed-training-workshop, 14_torchtitan, and speeds of the
  AWS machine learning blog of October 2024 that names it: four nodes of H100, compiled
- ``torchtitan, Trainy``: pytorch/torchtitan, benchmarks/llama3-8b_h200_202506_trainy-whitefiber.md, H200, compiled
- ``torchtitan, torchao``: pytorch/ao, torchao/float8/README.md, eight H100, compiled; scales by rows as by blocks
- ``torchtitan, DDP``: dudeperf3ct/minicode-llm, codellm_pretrain/torch_titan, two H100, compiled
- ``fms-fsdp``: foundation-model-stack/fms-fsdp, README, 128 A100 with two cards of 200 Gb/s a node, FSDP compiled; runs
  whose HFU says that every block or none is recomputed
- ``nanotron``: the fastest run of every model on 1 to 64 nodes of huggingface/nanotron's ultra-scale playbook, H100,
  batch 256 of 4,096 tokens; sizes as of nanotron's scripts/scaling_benchmarks.py
"""

from collections.abc import Iterator
from statistics import mean
from typing import Any, NamedTuple

from benchmarks.accuracy import as_table
from taut.data.samples import ConfigurationRow
from taut.data.units import GIB
from taut.prediction.rows import Prediction, predict_rows

SHAPE = "layers", "hidden", "heads", "kv_heads", "ffn_hidden", "vocab", "seq"
MODELS: dict[str, tuple[int, ...]] = {
    "GPT-3 5B": (24, 4096, 32, 32, 16384, 51200, 2048), "GPT-3 20B": (44, 6144, 48, 48, 24576, 51200, 2048),
    "GPT-3 175B": (96, 12288, 96, 96, 49152, 51200, 2048), "Llama 2 7B": (32, 4096, 32, 32, 11008, 32000, 4096),
    "Llama 2 13B": (40, 5120, 40, 40, 13824, 32000, 4096), "Llama 2 70B": (80, 8192, 64, 8, 28672, 32000, 4096),
    "Nemotron 8B": (32, 4096, 32, 32, 16384, 256000, 4096), "Nemotron 15B": (32, 6144, 48, 8, 24576, 256000, 4096),
    "Nemotron 22B": (40, 6144, 48, 48, 24576, 256000, 4096), "Nemotron 340B": (96, 18432, 96, 8, 73728, 256000, 4096),
    "Llama 3 8B": (32, 4096, 32, 8, 14336, 128256, 8192), "Llama 3 70B": (80, 8192, 64, 8, 28672, 128256, 8192),
    "Llama 3 405B": (126, 16384, 128, 8, 53248, 128256, 8192), "7B": (32, 4096, 32, 8, 14336, 128256, 4096),
    "13B": (40, 5120, 40, 8, 17920, 128256, 4096), "70B": (80, 8192, 64, 8, 28672, 128256, 4096),
    "1.1B": (22, 2048, 32, 4, 5632, 32000, 2048), "1.34B": (16, 2048, 32, 32, 8192, 131072, 4096),
    "3.57B": (28, 3072, 32, 32, 8192, 131072, 4096), "8.86B": (32, 4096, 32, 32, 14336, 131072, 4096),
    "1B": (16, 2048, 32, 8, 8192, 32768, 8192), "Llama 2 34B": (48, 8192, 64, 8, 22016, 32000, 4096),
    "80B": (80, 8192, 64, 64, 28672, 131072, 4096), "Qwen3 30B-A3B": (48, 2048, 32, 4, 6144, 151936, 4096),
    "GPT-OSS 20B": (24, 2880, 64, 8, 2880, 201088, 4096), "GPT-OSS 120B": (36, 2880, 64, 8, 2880, 201088, 4096),
}  # fmt: skip
"""Sizes of models by ``SHAPE``."""
EXPERTS = {"Qwen3 30B-A3B": (128, 8, 768), "GPT-OSS 20B": (32, 4, 2880), "GPT-OSS 120B": (128, 4, 2880)}
FURTHER: dict[str, dict[str, Any]] = {
    **{name: {"dropout": False} for name in MODELS if name.startswith("Nemotron")},
    "1.34B": {"gated_mlp": True, "tied_embedding": True}, "3.57B": {"tied_embedding": True},
    "1B": {"gated_mlp": True, "tied_embedding": True},
}  # fmt: skip

NEMO: tuple[tuple[str, str, str, int, int, int, tuple[int, ...], int, float], ...] = (
    ("24.12", "GPT-3 5B", "fp8", 64, 2048, 4, (1, 1, 1, 1), 1, 23406),
    ("24.12", "GPT-3 20B", "fp8", 64, 256, 2, (2, 1, 1, 1), 1, 5851),
    ("24.12", "GPT-3 175B", "fp8", 128, 256, 1, (4, 8, 1, 6), 1, 716),
    ("24.12", "GPT-3 175B", "fp8", 512, 2048, 2, (4, 8, 1, 6), 1, 825),
    ("24.12", "Llama 2 7B", "fp8", 8, 128, 1, (1, 1, 1, 1), 1, 16934),
    ("24.12", "Llama 2 13B", "fp8", 16, 128, 1, (1, 4, 1, 10), 1, 8715),
    ("24.12", "Llama 2 70B", "fp8", 64, 128, 1, (4, 4, 1, 20), 1, 1728),
    ("24.12", "Nemotron 8B", "fp8", 64, 256, 4, (2, 1, 1, 1), 1, 12507),
    ("24.12", "Nemotron 22B", "fp8", 64, 256, 2, (2, 4, 1, 10), 1, 4312),
    ("24.12", "Nemotron 340B", "fp8", 128, 32, 1, (8, 8, 1, 12), 1, 326),
    ("24.12", "Llama 3 8B", "fp8", 8, 128, 1, (1, 1, 2, 1), 1, 12273),
    ("24.12", "Llama 3 70B", "fp8", 64, 128, 1, (4, 4, 2, 5), 1, 1524),
    ("24.12, SFT", "Llama 2 7B", "fp8", 8, 32, 1, (1, 1, 1, 1), 1, 16891),
    ("24.12, SFT", "Llama 2 13B", "fp8", 8, 32, 1, (1, 4, 1, 1), 1, 10176),
    ("24.12, SFT", "Llama 2 70B", "fp8", 16, 32, 1, (4, 4, 1, 1), 1, 1816),
    ("25.04", "GPT-3 175B", "fp8", 128, 256, 2, (4, 4, 1, 12), 1, 1804),
    ("25.04", "Llama 3 8B", "fp8", 8, 128, 2, (1, 1, 1, 1), 1, 33099),
    ("25.04", "Llama 3 70B", "fp8", 64, 128, 1, (1, 1, 1, 1), 3, 4035),
    ("25.04", "Llama 3 405B", "fp8", 128, 64, 1, (4, 8, 2, 8), 1, 665),
    ("25.04", "Nemotron 15B", "fp8", 64, 256, 2, (1, 1, 1, 1), 1, 17809),
    ("25.04", "Nemotron 340B", "fp8", 128, 32, 1, (8, 4, 1, 12), 1, 737),
    ("25.07", "Llama 3 8B", "fp8", 8, 128, 2, (1, 1, 1, 1), 1, 31737),
    ("25.07", "Llama 3 8B", "mxfp8", 8, 128, 2, (1, 1, 1, 1), 1, 30341),
    ("25.07", "Llama 3 70B", "fp8", 64, 128, 1, (1, 1, 1, 1), 3, 4066),
    ("25.07", "Llama 3 70B", "mxfp8", 64, 128, 1, (2, 4, 2, 5), 1, 2605),
    ("25.07", "Llama 3 405B", "fp8", 128, 64, 1, (2, 1, 1, 1), 3, 706),
    ("25.07", "Llama 3 405B", "mxfp8", 128, 64, 1, (4, 8, 2, 8), 1, 638),
)  # fmt: skip
"""Release, model, precision, GPUs, batch, micro-batch, tp, pp, cp and chunks, ZeRO, and tokens a second of a GPU."""
KEMPNER = (
    ("7B", 1, 1, 2, 4, 3.13, 80.7), ("7B", 2, 1, 2, 4, 3.5, 62.4), ("7B", 2, 2, 4, 2, 2.49, 57.8),
    ("7B", 4, 1, 4, 2, 3.36, 61.1), ("7B", 4, 4, 4, 2, 1.3, 39.4), ("7B", 4, 2, 4, 2, 2.52, 45.9),
    ("7B", 8, 4, 4, 2, 1.48, 32.7), ("13B", 8, 1, 4, 4, 14.81, 88.5), ("13B", 8, 4, 4, 4, 4.79, 45.1),
    ("7B", 16, 4, 4, 2, 1.58, 29.4), ("13B", 16, 4, 4, 4, 4.87, 39.2), ("7B", 32, 4, 4, 2, 1.68, 27.6),
    ("13B", 32, 4, 4, 4, 5.03, 36.3), ("70B", 32, 4, 2, 4, 14.85, 93.2),
)  # fmt: skip
"""Model, GPUs, tp, micro-batch, micro-batches of a replica, seconds and GB."""
TITAN = (
    ("AWS", "h100-80gb", "Llama 3 8B", "bf16", 32, 1, 7166, None),
    ("AWS", "h100-80gb", "Llama 3 8B", "fp8", 32, 1, 8950, None),
    ("Trainy", "h200-141gb", "Llama 3 8B", "fp8", 32, 2, 10938, 47.96),
    ("Trainy", "h200-141gb", "Llama 3 8B", "fp8", 64, 2, 10753, 46.97),
    ("torchao", "h100-80gb", "Llama 3 8B", "bf16", 8, 1, 6150, 47.65),
    ("torchao", "h100-80gb", "Llama 3 8B", "fp8", 8, 1, 7689.5, 47.77),
    ("torchao", "h100-80gb", "Llama 3 8B", "fp8-blockwise", 8, 1, 6768, 47.79),
)  # fmt: skip
"""Who, device, model, precision, GPUs, micro-batch, tokens a second of a GPU and GB; recompute is selective."""
FMS = (
    ("Llama 2 7B", "none", 8, 4550), ("Llama 2 34B", "full", None, 820), ("Llama 2 70B", "full", None, 410),
)  # fmt: skip
"""Model, recompute, replicas with a copy, and tokens a second of a GPU."""
NANOTRON = (
    ("1.34B", 8, 1, 1, 2, 0, 40150, 50.2), ("1.34B", 16, 1, 1, 2, 1, 38840, 35.0),
    ("1.34B", 32, 1, 1, 2, 1, 36990, 34.9), ("1.34B", 64, 1, 1, 1, 1, 31297, 23.8),
    ("1.34B", 128, 2, 1, 4, 0, 30186, 38.8), ("1.34B", 256, 4, 1, 4, 0, 23775, 19.6),
    ("1.34B", 512, 2, 2, 2, 1, 4603, 8.4), ("3.57B", 8, 1, 2, 2, 1, 16426, 56.9),
    ("3.57B", 16, 1, 1, 2, 1, 16385, 65.0), ("3.57B", 32, 1, 1, 2, 1, 15387, 62.9),
    ("3.57B", 64, 1, 1, 1, 1, 13312, 47.7), ("3.57B", 128, 4, 1, 8, 0, 13337, 66.2),
    ("3.57B", 256, 4, 1, 4, 0, 10323, 39.0), ("3.57B", 512, 4, 1, 2, 1, 4045, 16.4),
    ("8.86B", 8, 1, 4, 1, 1, 7503, 63.1), ("8.86B", 16, 4, 1, 4, 1, 7290, 58.3),
    ("8.86B", 32, 1, 2, 1, 1, 7186, 61.1), ("8.86B", 64, 1, 2, 1, 1, 6555, 59.1),
    ("8.86B", 128, 8, 1, 8, 0, 6028, 66.9), ("8.86B", 256, 8, 1, 8, 0, 5428, 63.4),
    ("8.86B", 512, 4, 1, 2, 0, 3101, 57.8), ("80B", 32, 8, 4, 1, 0, 285, 66.0),
    ("80B", 64, 4, 16, 1, 0, 665, 63.1), ("80B", 128, 4, 32, 1, 0, 662, 61.2),
    ("80B", 256, 4, 16, 1, 1, 594, 64.2), ("80B", 512, 16, 1, 2, 1, 343, 53.5),
)  # fmt: skip
"""Model, GPUs, tp, pp, micro-batch, ZeRO, tokens a second of a GPU and GB."""


class Run(NamedTuple):
    """A run of a source, its seconds and GiB, which few state, and its row."""

    source: str
    model: str
    seconds: float
    gib: float | None
    row: ConfigurationRow


def _run(source: str, model: str, speed: float, gib: float | None = None, **said: Any) -> Run:
    """A run from its seconds, or from tokens a second of a GPU, which are more than 100."""
    values = dict(zip(SHAPE, MODELS[model], strict=True)) | FURTHER.get(model, {}) | said
    if model in EXPERTS:
        values |= dict(zip(("num_experts", "experts_per_token", "expert_ffn_hidden"), EXPERTS[model], strict=True))
    ranks = [values.get(name, 1) for name in ("tp", "pp", "cp")]
    values["dp"] = values["n_gpus"] // (ranks[0] * ranks[1] * ranks[2])
    row = ConfigurationRow.parse({"sequence_parallel": ranks[0] > 1, **values}, model)
    tokens = row.global_batch * row.seq / row.n_gpus
    return Run(source, model, tokens / speed if speed > 100 else speed, gib, row)


def runs() -> Iterator[Run]:
    """Every run, source by source."""
    for release, model, precision, gpus, batch, micro, (tp, pp, cp, vpp), zero, speed in NEMO:
        gpu, node = ("h100-80gb", 8) if release.startswith("24") else ("gb200-186gb", min(gpus, 64))
        said: dict[str, Any] = {"gpu": gpu, "gpus_per_node": node, "precision": precision, "n_gpus": gpus}
        said |= {"tp": tp, "pp": pp, "cp": cp, "vpp": vpp, "zero": zero}
        yield _run(f"NeMo {release}", model, speed, global_batch=batch, micro_batch=micro, **said)
    torch: dict[str, Any] = {"precision": "bf16", "stack": "torchtitan"}
    for model, gpus, tp, micro, steps, seconds, gib in KEMPNER:
        batch = gpus // tp * micro * steps
        said = {"gpu": "h200-141gb", "gpus_per_node": 4, "n_gpus": gpus, "tp": tp, "zero": 3, "recompute": "full"}
        yield _run("KempnerForge", model, seconds, gib, global_batch=batch, micro_batch=micro, **torch, **said)
    torch |= {"gpu": "h100-80gb"}
    experts = (
        ("Qwen3 30B-A3B", 8, 512, 4, 8, "full", 2, 21.773),
        ("GPT-OSS 20B", 8, 256, 2, 8, "none", 3, 10.04),
        ("GPT-OSS 120B", 64, 512, 2, 64, "none", 2, 4.3),
    )
    for model, gpus, batch, micro, ep, again, zero, seconds in experts:
        said = {"n_gpus": gpus, "global_batch": batch, "micro_batch": micro, "ep": ep, "recompute": again, "zero": zero}
        yield _run("AutoModel", model, seconds, **torch, **said)
    said = {"n_gpus": 64, "global_batch": 128, "cp": 2, "zero": 3, "recompute": "full"}
    yield _run("AutoModel", "Llama 3 70B", 18.9, **torch, **said)
    tokens = 8192 * 2048
    for gpus, cp, seq, tflops in ((8192, 1, 8192, 430), (16384, 1, 8192, 400), (16384, 16, 131072, 380)):
        said = {"tp": 8, "pp": 16, "vpp": 8, "cp": cp, "seq": seq, "zero": 1, "stages": [0, *[1] * 126, 0]}
        flop = 6 * (405.85e9 - 128256 * 16384) + 6 * 126 * 16384 * seq
        seconds, batch = tokens * flop / (gpus * tflops * 1e12), tokens // seq
        yield _run("Llama 3", "Llama 3 405B", seconds, gpu="h100-80gb", n_gpus=gpus, global_batch=batch, **said)
    said = {"n_gpus": 16, "global_batch": 1024, "micro_batch": 8, "zero": 3}
    yield _run("TinyLlama", "1.1B", 24000, **(torch | {"gpu": "a100-40gb"}), **said)
    torch = {"precision": "bf16", "stack": "torchtitan"}
    for who, gpu, model, precision, gpus, micro, speed, peak in TITAN:
        said = {"gpu": gpu, "n_gpus": gpus, "global_batch": gpus * micro, "micro_batch": micro, "zero": 3}
        said |= torch | {"precision": precision, "recompute": "selective"}
        yield _run(f"torchtitan, {who}", model, speed, peak, **said)
    said = {"gpu": "h100-80gb", "n_gpus": 2, "global_batch": 12, "micro_batch": 6}
    yield _run("torchtitan, DDP", "1B", 55000, 72.82, **torch, **said)
    for model, again, copies, speed in FMS:
        said = {
            "gpu": "a100-80gb",
            "n_gpus": 128,
            "global_batch": 256,
            "micro_batch": 2,
            "zero": 3,
            "cluster": "jean-zay",
            "grad_precision": "bf16",
        }
        yield _run("fms-fsdp", model, speed, **torch, **said, recompute=again, dp_shard=copies)
    for model, gpus, tp, pp, micro, zero, speed, gib in NANOTRON:
        said = {"n_gpus": gpus, "tp": tp, "pp": pp, "micro_batch": micro, "zero": zero}
        yield _run("nanotron", model, speed, gib, gpu="h100-80gb", global_batch=256, **said)


def lines(every: list[Run], found: list[Prediction]) -> list[dict[str, Any]]:
    """The table."""
    return [
        {
            "source": run.source,
            "run": f"{run.model}, {run.row.precision or 'bf16'}"
            + (f", {run.row.seq // 1024}K tokens" if run.row.seq > 8192 else ""),
            "GPUs": run.row.n_gpus,
            "measured s": f"{run.seconds:.4g}",
            "predicted s": f"{one.step_time_s:.4g}",
            "ratio": f"{(one.step_time_s or 0.0) / run.seconds:.2f}",
            "in the band": "yes" if _holds(run, one) else "no",
            "measured GB": run.gib or "-",
            "predicted GiB": f"{(one.memory_bytes or 0) / GIB:.1f}",
            "fits": "yes" if one.fits else "no",
        }
        for run, one in zip(every, found, strict=True)
    ]


def _holds(run: Run, found: Prediction) -> bool:
    return found.band is not None and found.band[0] <= run.seconds <= found.band[1]


def main() -> None:
    """Print the table, and the counts of every source."""
    every = list(runs())
    found = predict_rows([run.row for run in every])
    print(as_table(lines(every, found)))
    for source in dict.fromkeys(run.source for run in every):
        pairs = [(run, one) for run, one in zip(every, found, strict=True) if run.source == source]
        ratios = [(one.step_time_s or 0.0) / run.seconds - 1 for run, one in pairs]
        held, fits = sum(_holds(*pair) for pair in pairs), sum(bool(one.fits) for _, one in pairs)
        error = f"{100 * mean(map(abs, ratios)):.1f} % in the mean ({100 * mean(ratios):+.1f} %)"
        print(f"{source}: {len(pairs)} run{'s' * (len(pairs) > 1)}, {error}, {held} in the band, {fits} said to fit")


if __name__ == "__main__":
    main()
