"""
Predicted against measured device memory of models with experts, with recompute of named modules.

Run ``python -m benchmarks.expert_memory DATA``. DATA is a folder with ``moe_memory_and_overlap_h100.csv`` and
``moe_cp_recompute_h100.csv``; neither is part of the project. The script prints every run that states degrees and a
peak, with the prediction, its error, and whether it is called fit; those that ran out of memory should not be.

Measured is what PyTorch had allocated at most on one rank, in 1e9 bytes (``memory_stats() / 1e9`` of Megatron-Bridge's
training/utils/train_utils.py), so that predictions are compared without the overhead of CUDA and NCCL, which counts
when they are called fit. What the tables leave open is that of the recipes they name, of the tables' time: formats of
gradients and moments, and NVIDIA's fused loss.
"""

import argparse
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.expert_rows import shape_of
from benchmarks.runs import SHAPES, Line, lines_of
from taut.data.calibration import uncalibrated
from taut.data.load import load_memory_model
from taut.data.memory import MemoryModel
from taut.data.samples import ConfigurationRow
from taut.prediction.rows import predict_rows
from taut.prediction.settings import Given, find_device

MODULES, THREADS = "moe_memory_and_overlap_h100.csv", "moe_cp_recompute_h100.csv"
TUNED = {"grad_precision": "bf16", "weight_remainders": True, "half_moments": True}
"""Moonlight's optimizer: moments in bf16, of fp32 weights what their bf16 copies lack."""
SUMMED_IN_HALF = {"grad_precision": "bf16"}
FORMATS: dict[str, dict[str, Any]] = {
    "moonlight-16b-a3b": TUNED,
    "qwen3-30b-a3b": SUMMED_IN_HALF,
    "llama3-70b-sft": SUMMED_IN_HALF,
    "deepseek-v3 proxy 14L": {},
}
"""Formats of gradients and optimizer states by model, as in the recipes of the time; Megatron-LM's own without one."""
PROXY = "2 2 2 2 2 2 2 1"
"""Layers of the DeepSeek proxy's chunks, with the layer that predicts further tokens in the last one."""


class MemoryRun(NamedTuple):
    """A run: its model and source, the row, bytes at the peak, and whether it ran out of memory."""

    model: str
    source: str
    row: ConfigurationRow
    measured: float
    out_of_memory: bool


def main() -> None:
    """Predict and print every run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    options = parser.parse_args()
    errors, refused = [], []
    for run in memory_runs(options.data):
        allocated, fits = predicted(run)
        error = allocated / run.measured - 1
        if run.out_of_memory:
            refused.append(not fits)
        elif run.row.num_experts:
            errors.append(error)
        words = "ran out of memory" if run.out_of_memory else "ran"
        print(
            f"{run.model:22} {described(run.row):46} {run.measured / 1e9:7.3f} GB  predicted {allocated / 1e9:7.3f} "
            f"{100 * error:+6.1f} %  {words}, {'fits' if fits else 'refused'}  {run.source}"
        )
    mean, most = 100 * np.mean(np.abs(errors)), 100 * np.max(np.abs(errors))
    print(f"{len(errors)} runs with experts that ran: MAPE {mean:.1f} %, most {most:.1f} %")
    print(f"{sum(refused)} of {len(refused)} runs that ended out of memory are refused")


def memory_runs(folder: Path) -> list[MemoryRun]:
    """
    Runs with degrees and a peak.

    Left out are Nemotron 3, whose layers with state spaces are not priced, and rows without degrees. Two dense runs
    whose allocator was fragmented, as their source says, count as having run. A run that ended after its first step had
    no moments of the optimizer in its peak.
    """
    found = []
    for line in lines_of(folder / MODULES):
        if line["model"] not in FORMATS or not line["peak_gb"] or not line["tp"]:
            continue
        values = {"vpp": line["vpp"] or 1, "recompute": _recompute(line["recompute_modules"]), **_line(line)}
        found.append(_run(line, line["source_section"], values, out=line["result"].startswith("OOM after")))
    for line in lines_of(folder / THREADS):
        if line["model"] not in FORMATS or not line["peak_gb"]:
            continue
        given = {**line, "tp": line["tp"] or "1", "pp": line["pp"] or "1", "cp": line["cp"] or "1"}
        given["ep"] = line["ep"] or "16"
        recompute = "full" if line["recompute"].startswith("full") else _recompute(line["recompute"])
        values = {"recompute": recompute, **_line(given)}
        if line["model"].startswith("deepseek"):
            values |= {"layers": 15, "vpp": 2, "stages": PROXY}
        found.append(_run(line, line["source"].removeprefix("NVIDIA-NeMo/"), values, out="OOM" in line["result"]))
    return found


def _recompute(modules: str) -> str:
    return "none" if modules in ("", "[]", "none") else f"selective:{modules}"


def _line(line: Line) -> dict[str, Any]:
    gpus, tp, pp, cp = (int(line[name] or 1) for name in ("n_gpus", "tp", "pp", "cp"))
    return {
        "gpu": line["gpu"].lower(),
        "n_gpus": gpus,
        **{"tp": tp, "pp": pp, "cp": cp, "dp": gpus // tp // pp // cp, "ep": line["ep"] or 1},
        **{"seq": line["seq"], "micro_batch": line["mbs"], "global_batch": line["gbs"]},
        "zero": int(gpus > tp * pp),
        "sequence_parallel": tp > 1,
        "precision": {"bf16": "bf16", "fp8-cs": "fp8"}[line["precision"]],
    }


def _run(line: Line, source: str, values: dict[str, Any], *, out: bool) -> MemoryRun:
    model = line["model"]
    names = {"llama3-70b-sft": "llama3.1_70b", "deepseek-v3 proxy 14L": "deepseek-v3"}
    shape = SHAPES["llama3.1_70b"] if model == "llama3-70b-sft" else shape_of(names.get(model, model))
    cells = {k: str(v) for k, v in {**shape, **values}.items() if v is not None}
    return MemoryRun(model, source, ConfigurationRow.parse_cells(cells, model), float(line["peak_gb"]) * 1e9, out)


def predicted(run: MemoryRun) -> tuple[float, bool]:
    """Bytes that a run allocates, as predicted, and whether it is called fit."""
    memory, row = formats_of(run)
    given = Given(memory_model=memory, calibration=uncalibrated(find_device(row.gpu)).model_copy(update=memory.kept))
    found = predict_rows([row], given)[0]
    assert found.memory_bytes is not None, found.error
    return found.memory_bytes - beside_allocation(memory, row), bool(found.fits)


def beside_allocation(memory: MemoryModel, row: ConfigurationRow) -> float:
    """Bytes of a process that PyTorch does not allocate: CUDA's and those of groups of ranks."""
    groups = (row.pp > 1) + (row.dp * row.cp > 1)
    return memory.overhead_bytes + groups * memory.group_bytes


def formats_of(run: MemoryRun) -> tuple[MemoryModel, ConfigurationRow]:
    """The analytic memory model with the formats of a run's recipe, and the row with that of its gradients."""
    formats = {name: value for name, value in FORMATS[run.model].items() if name != "grad_precision"}
    row = run.row.model_copy(update={"grad_precision": FORMATS[run.model].get("grad_precision")})
    stated = {"sequence_parallel": True, "fp8_inputs": True, "fused_loss": "te", **formats}
    return load_memory_model("megatron-core").model_copy(update=stated), row


def described(row: ConfigurationRow) -> str:
    """A run's degrees and recompute in words."""
    words = "+".join(row.recompute_modules) or row.recompute
    return f"{row.n_gpus} tp {row.tp} pp {row.pp} ep {row.ep} mb {row.micro_batch} {words}"


if __name__ == "__main__":
    main()
