"""
Steps that papers published for GPT on A100, with attention in several kernels or in one, beside both prices.

Run ``python -m benchmarks.published_steps [--experts | --sweeps] [--write-table FILE]``. Nothing was fitted on these
runs. Rows
with attention in several kernels are priced as vTrain's runs were (calibration ``megatron-deepspeed-a100-many``), those
in one kernel as ``taut plan`` does by default (stack ``megatron-core``). The published TFLOP/s of FlashAttention-2's
table are turned into seconds by its own formula, for L layers of hidden size h, P parameters and b sequences of s
tokens:

(1) :math:`b (6 s P + 12 L h s^2)` FLOP a step.

With ``--sweeps`` the table has Hagemann et al.'s sweeps of layouts: the errors by sequences of a micro-batch, and how
much slower the layout that is predicted to be fastest was than predicted (surprise), and than the fastest (regret).

With ``--experts`` the table has steps of DeepSeek-V3's layers on H100, without and with full recompute, beside the
prices of a plain all-to-all and of DeepEP. They are priced as ``taut compare`` prices what runs today.
"""

import argparse
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.accuracy import as_table
from benchmarks.runs import Campaign
from taut.comparison.compare import current_of, priced_as_is
from taut.data.catalog.builtin import catalog_model
from taut.data.load import load_calibration
from taut.data.model import ModelSpec
from taut.data.samples import ConfigurationRow
from taut.data.units import TERA
from taut.planning.request import request_of
from taut.prediction.rows import predict_rows
from taut.prediction.settings import Given

SEVERAL = "megatron-deepspeed-a100-many"
"""The calibration of runs whose attention took several kernels."""
LOCAL_BATCH, ACCUMULATED = 8, 16
"""
Sequences of a micro-batch and micro-batches of a step where the source states neither: with 4 or more sequences
launches are hidden, and with 16 micro-batches the optimizer and reductions are below a per cent.
"""


class Published(NamedTuple):
    """One published step: its source, the model's name, how attention ran, and the row."""

    source: str
    model: str
    one_kernel: bool
    row: ConfigurationRow


def published() -> list[Published]:
    """All published steps."""
    return [*korthikanti(), *megascale(), *flash_attention()]


def checked_steps() -> Campaign:
    """
    The steps of Megatron-LM as a campaign that no fit has, and that its prices were checked on.

    Korthikanti et al. ran fp16. Jiang et al. do not state their number format, so fp16 counts as seen. Hagemann et
    al. ran bf16.
    """
    rows = [run.row.model_copy(update={"precision": "fp16"}) for run in (*korthikanti(), *megascale())]
    source = "arXiv 2205.05198, 2402.15627 and 2311.05610"
    return Campaign("published", "megatron-core", "dgx-a100", source, [*rows, *sweeps().rows])


def sweeps() -> Campaign:
    """Hagemann et al.'s runs as a campaign."""
    rows = [run.row.model_copy(update={"precision": "bf16"}) for run in hagemann()]
    return Campaign("sweeps", "megatron-core", "dgx-a100", "Hagemann et al. 2023, arXiv 2311.05610", rows)


def korthikanti() -> list[Published]:
    """Korthikanti et al. (arXiv 2205.05198), tables 3 and 5: before Megatron-LM had attention in one kernel."""
    shapes = [
        ("22B", {"n_gpus": 8, "hidden": 6144, "layers": 48, "heads": 64, "micro_batch": 4, "global_batch": 4}, 1, 1),
        ("175B", {"n_gpus": 64, "hidden": 12288, "layers": 96, "heads": 96, "global_batch": 64}, 8, 3),
        ("530B", {"n_gpus": 280, "hidden": 20480, "layers": 105, "heads": 128, "global_batch": 280}, 35, 3),
        ("1T", {"n_gpus": 512, "hidden": 25600, "layers": 128, "heads": 160, "global_batch": 512}, 64, 1),
    ]
    seconds = {"full": (1.42, 18.13, 49.05, 94.42), "selective": (1.10, 13.75, 37.83, 71.49)}
    found = []
    for index, (name, shape, pp, vpp) in enumerate(shapes):
        for recompute, measured in seconds.items():
            degrees = {"tp": 8, "pp": pp, "vpp": vpp, "dp": 1, "recompute": recompute}
            # Full recompute was run without sequence parallelism, selective recompute with it.
            together = {"sequence_parallel": recompute == "selective", "measured_s": measured[index]}
            row = _row(shape | degrees | together)
            found.append(Published("Korthikanti et al. 2022", name, one_kernel=False, row=row))
    return found


def megascale() -> list[Published]:
    """
    Megatron-LM as Jiang et al. (MegaScale, arXiv 2402.15627) ran it, table 2: 175B with 128 heads, vocabulary 64,000.

    Its commit is of 2023. Table 1 states tp and pp, section 6.1 six chunks a device; recompute, not stated, is
    taken to be selective, as without it a stage does not fit.
    """
    seconds = {
        768: {256: 40.0, 512: 21.2, 768: 15.2, 1024: 11.9},
        6144: {3072: 29.02, 6144: 14.78, 8192: 12.24, 12288: 8.57},
    }
    shape = {"hidden": 12288, "layers": 96, "heads": 128, "vocab": 64000, "tp": 8, "pp": 8, "vpp": 6}
    return [
        Published(
            "Jiang et al. 2024",
            "175B",
            one_kernel=True,
            row=_row(
                {
                    **shape,
                    "n_gpus": gpus,
                    "dp": gpus // 64,
                    "global_batch": batch,
                    "recompute": "selective",
                    "measured_s": measured,
                }
            ),
        )
        for batch, runs in seconds.items()
        for gpus, measured in runs.items()
    ]


def flash_attention() -> list[Published]:
    """Dao (FlashAttention-2, arXiv 2307.08691), table 1: TFLOP/s a GPU on eight A100 without and with it."""
    runs = [
        ("1.3B", {"hidden": 2048, "layers": 24, "heads": 16, "seq": 2048}, 142, 196),
        ("1.3B", {"hidden": 2048, "layers": 24, "heads": 16, "seq": 8192}, 72, 220),
        ("2.7B", {"hidden": 2560, "layers": 32, "heads": 32, "seq": 2048}, 149, 205),
        ("2.7B", {"hidden": 2560, "layers": 32, "heads": 32, "seq": 8192}, 80, 225),
    ]
    found = []
    for name, shape, *rates in runs:
        for one_kernel, rate in zip((False, True), rates, strict=True):
            measured = _seconds(shape, 8 * LOCAL_BATCH * ACCUMULATED, 8 * rate * TERA)
            batch = {"micro_batch": LOCAL_BATCH, "global_batch": 8 * LOCAL_BATCH * ACCUMULATED}
            degrees = {"n_gpus": 8, "tp": 1, "pp": 1, "dp": 8, "vocab": 50257, "recompute": "none"}
            row = _row(shape | batch | degrees | {"measured_s": measured})
            found.append(Published("Dao 2023", f"{name}, {shape['seq']} tokens", one_kernel, row))
    return found


def hagemann() -> list[Published]:
    """
    Hagemann et al. (arXiv 2311.05610), the runs of their sweeps with sequence parallelism, from their repository.

    Llama in bf16 under 1F1B and ZeRO-1, no recompute, FlashAttention-2 and a kernel for norms, 2,048 sequences of 2,048
    tokens or 512 of 8,192. The software is not Megatron-LM. Their utilisations state a vocabulary of 128,000.
    """
    shapes = {
        "13B": {"hidden": 5120, "layers": 40, "heads": 40, "ffn_hidden": 13824},
        "30B": {"hidden": 6656, "layers": 60, "heads": 52, "ffn_hidden": 17920},
        "65B": {"hidden": 8192, "layers": 80, "heads": 64, "ffn_hidden": 22016},
    }
    found = []
    for (name, seq, gpus), runs in SWEPT.items():
        for tp, pp, micro_batch, measured in runs:
            batch = {"seq": seq, "micro_batch": micro_batch, "global_batch": 2048 if seq == 2048 else 512}
            degrees = {"n_gpus": gpus, "tp": tp, "pp": pp, "dp": gpus // (tp * pp), "zero": 1, "recompute": "none"}
            more = {"vocab": 128000, "sequence_parallel": tp > 1, "measured_s": measured}
            found.append(Published("Hagemann et al. 2023", name, True, _row(shapes[name] | batch | degrees | more)))
    return found


SWEPT = {
    ("13B", 2048, 32): (
        *((1, 1, 1, 54.0), (1, 2, 1, 58.0), (1, 2, 2, 59.6), (2, 1, 1, 61.0)),
        *((2, 1, 2, 61.1), (2, 2, 1, 66.3), (2, 2, 2, 65.0), (2, 2, 4, 67.5)),
    ),
    ("13B", 8192, 64): (
        *((2, 2, 1, 34.8), (2, 4, 1, 35.8), (4, 1, 1, 37.0), (4, 2, 1, 38.8), (4, 4, 1, 40.8), (4, 4, 2, 41.1)),
        *((8, 1, 1, 46.4), (8, 2, 1, 50.0), (8, 2, 2, 46.9), (8, 4, 1, 54.8), (8, 4, 2, 51.9)),
    ),
    ("30B", 2048, 64): (
        *((1, 4, 1, 72.6), (2, 2, 1, 76.8), (2, 4, 1, 76.6), (2, 4, 2, 72.7), (4, 1, 1, 89.3), (4, 1, 2, 85.2)),
        *((4, 2, 1, 85.5), (4, 2, 2, 81.1), (4, 2, 4, 83.1), (4, 4, 1, 87.7), (4, 4, 2, 82.2), (4, 4, 4, 77.6)),
    ),
    ("30B", 8192, 64): ((4, 2, 1, 84.4), (4, 4, 1, 85.7), (4, 8, 1, 86.2), (4, 16, 1, 86.2)),
    ("65B", 2048, 64): (
        *((2, 4, 1, 147.0), (2, 8, 1, 150.0), (4, 2, 1, 162.3), (4, 4, 1, 159.6), (4, 4, 2, 149.9)),
        *((4, 8, 1, 166.4), (4, 8, 2, 156.4), (8, 2, 1, 192.5), (8, 2, 2, 178.6), (8, 4, 1, 198.1)),
        *((8, 4, 2, 179.9), (8, 8, 1, 201.4), (8, 8, 2, 186.5)),
    ),
}
"""Hagemann et al.'s seconds by model, tokens of a sequence and GPUs: tp, pp, micro-batch and step of every run."""


def _row(values: dict[str, Any]) -> ConfigurationRow:
    usual = {"gpu": "a100-80gb", "seq": 2048, "vocab": 51200, "micro_batch": 1}
    if values.get("vpp", 1) > 1:
        usual["schedule"] = "interleaved-1f1b"
    return ConfigurationRow.parse_cells({key: str(value) for key, value in (usual | values).items()}, "row")


def _seconds(shape: dict[str, int], sequences: int, rate: float) -> float:
    """Seconds of a step by (1) at a rate of FLOP/s of all GPUs."""
    layers, hidden, tokens = shape["layers"], shape["hidden"], shape["seq"]
    parameters = 12 * layers * hidden**2 + 50257 * hidden
    return sequences * (6 * tokens * parameters + 12 * layers * hidden * tokens**2) / rate


def priced(run: Published) -> tuple[float, float]:
    """Seconds with attention in several kernels and in one."""
    several = predict_rows([run.row], Given(calibration=load_calibration(SEVERAL)))[0].step_time_s
    one = predict_rows([run.row])[0].step_time_s
    assert several is not None and one is not None
    return several, one


def rows() -> list[dict[str, Any]]:
    """The table: measured and predicted seconds, errors of the run's own kind of attention and of the other."""
    table = []
    for run in published():
        measured, (several, one) = run.row.measured_s or np.nan, priced(run)
        table.append(
            {
                "source": run.source,
                "model": run.model,
                "GPUs": run.row.n_gpus,
                "tp, pp, chunks": f"{run.row.tp}, {run.row.pp}, {run.row.vpp}",
                "recompute": run.row.recompute,
                "attention": "one kernel" if run.one_kernel else "several",
                "measured s": f"{measured:.2f}",
                "predicted s": f"{one if run.one_kernel else several:.2f}",
                "error": f"{100 * ((one if run.one_kernel else several) / measured - 1):+.1f} %",
                "of the other kind": f"{100 * ((several if run.one_kernel else one) / measured - 1):+.1f} %",
            }
        )
    return table


def sweep_rows() -> list[dict[str, Any]]:
    """The table of sweeps: mean errors by micro-batch, and surprise and regret of the layout that prices pick."""
    every, jobs = hagemann(), dict[tuple[str, int, int], list[tuple[int | None, float, float]]]()
    for run, found in zip(every, predict_rows([run.row for run in every]), strict=True):
        told = run.row.micro_batch, found.step_time_s or np.nan, run.row.measured_s or np.nan
        jobs.setdefault((run.model, run.row.seq, run.row.n_gpus), []).append(told)
    table = []
    for (model, seq, gpus), runs in jobs.items():
        of_batch = {b: [100 * (p / m - 1) for each, p, m in runs if each == b] for b in (1, 2, 4)}
        picked, best = min(runs, key=lambda run: run[1]), min(measured for *_, measured in runs)
        errors = {f"mean error at {b}": f"{np.mean(e):+.1f} %" if e else "-" for b, e in of_batch.items()}
        more = {
            "surprise": f"{100 * (picked[2] / picked[1] - 1):+.1f} %",
            "regret": f"{100 * (picked[2] / best - 1):.1f} %",
        }
        table.append({"model": model, "tokens": seq, "GPUs": gpus, "layouts": len(runs), **errors, **more})
    return table


def expert_seconds(recompute: str, dispatcher: str) -> float:
    """
    Predicted seconds of 14 layers of DeepSeek-V3 and one for further tokens, 16 expert ranks on 64 H100.

    Four stages of two chunks with two layers each, the last with the layer for further tokens and both heads.
    """
    values = catalog_model("deepseek-v3").model_dump(exclude_none=True)
    model = ModelSpec.parse({**values, "layers": 14, "seq": 2048, "mtp_layers": 1, "name": "proxy"}, "proxy")
    asked = {"global_batch": 256, "precision": "bf16", "moe_token_dispatcher": dispatcher}
    degrees = {"pp": 4, "vpp": 2, "ep": 16, "etp": 1, "tp": 1, "cp": 1, "micro_batch": 1, "zero": 1}
    current = current_of({**degrees, "recompute": recompute, "layers": "2|2|2|2|2|2|2|0"})
    return priced_as_is(request_of(model, "dgx-h100:8", asked), current).seconds


def expert_rows() -> list[dict[str, Any]]:
    """The table of steps with experts; the published TFLOP/s become seconds by the ratio of both that one step has."""
    table = []
    for recompute, rate in (("none", 225.1), ("full", 185.2)):
        measured = 3.044 * 185.2 / rate
        line = {"source": "Megatron-LM #6311, #6429", "recompute": recompute, "measured s": f"{measured:.2f}"}
        for dispatcher in ("alltoall", "flex"):
            seconds = expert_seconds(recompute, dispatcher)
            line |= {f"{dispatcher} s": f"{seconds:.2f}", f"{dispatcher}": f"{100 * (seconds / measured - 1):+.1f} %"}
        table.append(line)
    return table


def main() -> None:
    """Print the table and the mean error of every source."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--experts", action="store_true")
    parser.add_argument("--sweeps", action="store_true")
    parser.add_argument("--write-table", type=Path)
    options = parser.parse_args()
    if options.experts or options.sweeps:
        print(as_table(expert_rows() if options.experts else sweep_rows()))
        return
    table = rows()
    text = as_table(table)
    print(text)
    for source, kind in dict.fromkeys((row["source"], row["attention"]) for row in table):
        errors = [abs(float(row["error"][:-2])) for row in table if (row["source"], row["attention"]) == (source, kind)]
        print(f"{source}, attention in {kind}: {np.mean(errors):.1f} % in the mean, {max(errors):.1f} % at the most")
    if options.write_table:
        options.write_table.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
