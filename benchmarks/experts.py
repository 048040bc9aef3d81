"""
Predicted against measured step times of models with experts, on Megatron-Bridge's published runs.

Run ``python -m benchmarks.experts DATA [--terms]``. DATA is a folder with ``megatron_bridge_h100_b200_gb200.csv`` and
``megatron_bridge_recipes_config.csv``; neither is part of the project. The script prints every run with its prediction
and its error, and with ``--terms`` what each term of the step time takes.
"""

import argparse
from collections import defaultdict
from pathlib import Path

import numpy as np

from benchmarks.expert_rows import ExpertRun, expert_runs
from taut.data.samples import ConfigurationRow
from taut.prediction.expert_terms import expert_terms
from taut.prediction.rows import predict_rows

SHOWN = ("gpu", "n_gpus", "tp", "pp", "vpp", "ep", "micro_batch", "global_batch", "precision")


def main() -> None:
    """Predict, and print every run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--terms", action="store_true")
    options = parser.parse_args()
    runs = expert_runs(options.data)
    found = predict_rows([run.row for run in runs])
    errors: dict[str, list[float]] = defaultdict(list)
    for run, one in zip(runs, found, strict=True):
        assert run.row.measured_s is not None
        error = (one.step_time_s or np.nan) / run.row.measured_s - 1
        errors[run.row.gpu].append(error)
        print(f"{described(run)}  {run.row.measured_s:7.3f} s  {100 * error:+6.1f} %  {one.error}")
        if options.terms:
            print("    " + "  ".join(f"{name} {part:.2f}" for name, part in expert_terms(run.row).items()))
    errors["all"] = [error for each in errors.values() for error in each]
    for gpu, each in errors.items():
        print(f"{gpu}: {len(each)} runs, mean {100 * np.mean(each):+.1f} %, MAPE {100 * np.mean(np.abs(each)):.1f} %")


def described(run: ExpertRun) -> str:
    """A run in words."""
    return f"{run.model:16} {run.container:8} " + " ".join(_cell(run.row, name) for name in SHOWN)


def _cell(row: ConfigurationRow, name: str) -> str:
    value, short = getattr(row, name), {"micro_batch": "mb", "global_batch": "gb"}.get(name, name)
    return f"{value:8}" if isinstance(value, str) else f"{short} {value:<4}"


if __name__ == "__main__":
    main()
