"""
Whole searches over models and clusters of the catalog: step time, bound, gaps and time, one row each.

Run ``python -m benchmarks.search_table [--out table.csv] [--mpigraph MATRIX.csv]``. Every row is checked with
``verify`` before it is printed; the last column is its time. ``--mpigraph`` adds the search on a measured matrix.
The first row includes loading the compiled loops.
"""

import argparse
import csv
import platform
import sys
import time
from pathlib import Path
from typing import Any

import taut
from taut.data.catalog.devices import device_named
from taut.data.cluster import ClusterSpec
from taut.data.readers.mpigraph import cluster_from_mpigraph, read_mpigraph

CASES: list[tuple[str, str | ClusterSpec, int, str]] = [
    ("gpt3-175b", "dgx-a100:16", 512, "pipette"),
    ("gpt3-175b", "dgx-a100:128", 1536, "pipette"),
    ("mt-nlg-530b", "dgx-a100:280", 1920, "pipette"),
    ("llama3-8b", "dgx-h100", 64, "pipette"),
    ("llama3-70b", "dgx-h100:32", 1024, "pipette"),
    ("llama3-405b", "dgx-h100:128", 2048, "pipette"),
    ("gpt-3.1b", "pipette-mid-range", 512, "pipette"),
    ("gpt-11.1b", "pipette-high-end", 512, "pipette"),
    ("gpt-11.1b", "pipette-high-end", 512, "pipette-printed"),
    ("gpt-39.1b", "vtrain-multi-node", 1536, "pipette"),
    ("gpt2-345m", "amp-homogeneous", 32, "amp"),
    ("gpt2-345m", "amp-heterogeneous", 32, "amp"),
    ("transgan-generator", "amp-unlike-layers", 64, "amp"),
    ("llama2-70b", "hethub-12n96d", 2048, "pipette"),
]
COLUMNS = ["model", "cluster", "latency_model", "devices", "candidates", "step_time_s", "lower_bound_s"]
COLUMNS += ["gap_%", "communication_gap_%", "search_s", "verify_s"]


def measured(path: Path) -> ClusterSpec:
    """Pipette's high-end cluster with measured links between the nodes."""
    return cluster_from_mpigraph(
        read_mpigraph(path),
        name=path.stem,
        device=device_named("a100-80gb", "benchmark"),
        gpus_per_node=8,
        intra_bandwidth_gbps=4800,
    )


def row(model: str, cluster: str | ClusterSpec, global_batch: int, latency_model: str) -> list[Any]:
    """Plan and verify one case."""
    started = time.perf_counter()
    whole: dict[str, Any] = {"gap": 1e-6, "time_limit": None, "schedules": "1f1b"}
    plan = taut.plan(model, cluster, global_batch=global_batch, latency_model=latency_model, **whole)
    searched = time.perf_counter()
    if not plan.verify().holds:
        raise SystemExit(f"{model} on {cluster}: the certificate does not hold")
    verified = time.perf_counter()
    certificate, strategy = plan.certificate, plan.strategy
    return [
        model,
        plan.cluster,
        latency_model,
        strategy.pp * strategy.tp * strategy.dp,
        len(plan.candidates),
        f"{plan.step_time_s:.5g}",
        f"{plan.lower_bound_s:.5g}",
        *(f"{100 * getattr(certificate, name):.3f}" for name in ("gap", "communication_gap")),
        f"{searched - started:.2f}",
        f"{verified - searched:.2f}",
    ]


def main() -> None:
    """Print the table, and write it where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--mpigraph", type=Path)
    options = parser.parse_args()
    cases = list(CASES)
    if options.mpigraph:
        cases += [("gpt-11.1b", measured(options.mpigraph), 512, name) for name in ("pipette", "pipette-printed")]
    rows = []
    print(f"taut {taut.__version__}, {platform.platform()}", file=sys.stderr)
    print("  ".join(COLUMNS))
    for case in cases:
        rows.append(row(*case))
        print("  ".join(map(str, rows[-1])), flush=True)
    if options.out:
        with options.out.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([COLUMNS, *rows])


if __name__ == "__main__":
    main()
