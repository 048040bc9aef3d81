"""
The plans that NVIDIA publishes for dense models on DGX H100, priced beside the best plan of the same space.

Run ``python -m benchmarks.vendor_plans FILE [--seconds 60] [--only MODEL]``. FILE is a table of NVIDIA's measured runs
(dgxc-benchmarking, columns ``model``, ``precision``, ``n_gpus``, ``tp``, ``pp``, ``cp``, ``vp``, ``mbs``, ``gbs``,
``layers_override``, ``step_s``), which is not part of the project. For every model and size in bf16 with all layers:

- the measured step, the median where there are several;
- NVIDIA's degrees with the best division of the layers, and the best plan that the search finds in the time. Both are
  priced by the stack's calibration, which was fitted on these runs among others, and keep gradients in bf16, as the
  recipes do;
- how much faster the latter is predicted to be, its gap, and the part of the step in which the two differ most.
"""

import argparse
import csv
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

import taut

MODELS = {
    "llama3.1_8b": ("llama3-8b", 8192),
    "llama3.1_70b": ("llama3-70b", 8192),
    "llama3.1_405b": ("llama3-405b", 8192),
    "nemotron_15b": ("nemotron4-15b", 4096),
    "nemotron_340b": ("nemotron4-340b", 4096),
    "nemo_megatron_175b": ("gpt3-175b", 2048),
}
"""Catalog model and sequence length by name in the table."""
GPUS_PER_NODE = 8
HEAD = ["model", "GPUs", "batch", "measured s", "NVIDIA's degrees", "predicted s", "best plan", "predicted s", "gap %"]
HEAD += ["faster %", "differs most in"]
MEMORY = {"overhead_gib": 2.0, "margin": 0.05, "grad_precision": "bf16"}
"""The analytic memory model with gradients in bf16."""
Runs = dict[tuple[str, int], list[dict[str, str]]]


def runs_of(path: Path) -> Runs:
    """Rows in bf16 with all layers, by model and number of GPUs."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    found: Runs = defaultdict(list)
    for row in csv.DictReader(lines):
        if row["model"] in MODELS and row["precision"] == "BF16" and row["mbs"]:
            layers = row["layers_override"]
            if not layers or int(layers) == len(taut.load_model(MODELS[row["model"]][0]).blocks):
                found[row["model"], int(row["n_gpus"])].append(row)
    return found


def degrees_of(row: dict[str, str]) -> dict[str, Any]:
    """What NVIDIA fixes; recipes shard the optimizer and recompute nothing."""
    chunks = int(row["vp"]) if row["vp"].isdigit() else 1
    fixed: dict[str, Any] = {name: int(row[name]) for name in ("tp", "pp", "cp")}
    fixed |= {"micro_batch": int(row["mbs"]), "recompute": "none", "sequence_parallel": fixed["tp"] > 1}
    return fixed | ({"schedule": "interleaved-1f1b", "vpp": chunks} if chunks > 1 else {"schedule": "1f1b"})


def compared(name: str, gpus: int, rows: list[dict[str, str]], seconds: float) -> list[str]:
    """One line of the table."""
    model, seq = MODELS[name]
    batch, measured = int(rows[0]["gbs"]), statistics.median(float(row["step_s"]) for row in rows)
    cluster = f"dgx-h100:{gpus // GPUS_PER_NODE}" if gpus > GPUS_PER_NODE else "dgx-h100"
    given: dict[str, Any] = {"global_batch": batch, "seq": seq, "time_limit": seconds, "memory_model": MEMORY}
    replicated = int(rows[0]["tp"]) * int(rows[0]["pp"]) * int(rows[0]["cp"]) < gpus
    theirs = taut.plan(model, cluster, fix=degrees_of(rows[0]) | {"zero": int(replicated)}, **given)
    best = taut.plan(model, cluster, schedules=["1f1b", "interleaved-1f1b"], **given)
    faster = 100 * (theirs.step_time_s / best.step_time_s - 1)
    parts = theirs.predicted.breakdown_s
    differing = max(parts, key=lambda part: abs(parts[part] - best.predicted.breakdown_s[part]))
    change = parts[differing] - best.predicted.breakdown_s[differing]
    gap = "-" if best.gap is None else f"{100 * best.gap:.2f}"
    figures = [model, str(gpus), str(batch), f"{measured:.2f}", words(theirs), f"{theirs.step_time_s:.2f}", words(best)]
    return [*figures, f"{best.step_time_s:.2f}", gap, f"{faster:.1f}", f"{differing} {-change:+.2f} s"]


def words(plan: taut.Plan) -> str:
    """Degrees of a plan, those of 1 left out."""
    chosen = plan.strategy
    degrees = {"tp": chosen.tp, "cp": chosen.cp, "pp": chosen.pp, "vpp": chosen.vpp, "dp": chosen.dp}
    said = [f"{name} {value}" for name, value in degrees.items() if value > 1]
    return " ".join([*said, f"mb {chosen.micro_batch}", f"ZeRO-{chosen.zero}"])


def main() -> None:
    """Print the table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    for line in (HEAD, ["---"] * len(HEAD)):
        print("| " + " | ".join(line) + " |")
    for (name, gpus), rows in sorted(runs_of(options.file).items()):
        if options.only in name:
            print("| " + " | ".join(compared(name, gpus, rows, options.seconds)) + " |", flush=True)


if __name__ == "__main__":
    main()
