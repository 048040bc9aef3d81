"""
What plans promise beside the best speed that anyone published of the same job.

Run ``python -m benchmarks.promises DATA [--only WORDS] [--time-limit 20]``. DATA is a folder with the
campaigns' files (``benchmarks/campaigns.py``, ``benchmarks/expert_rows.py``); none is part of the project. A job is a
model, sequence length, system, number of GPUs, batch and precision; of several runs of a job the fastest counts, of
whatever software release. Every job is planned with default options but a time limit. Promised is the plan's speed over
the published one: 1.1 says that the plan would be a tenth faster than the best run.

A plan may be faster than the best run because nobody tried it, or because its price is wrong. The column ``as run``
tells the two apart: it is the predicted speed of the published layout, with the features that its recipe had, over the
measured one. Where it is near 1 the price is right, and the rest of the ratio is what the plan gains over the layout.
``as planned`` is the published layout with the software that the plan assumes. The ratio is then a product of three
factors, whose geometric means a second table has:

(1) price (as run), software (as planned over as run), search (ratio over as planned).

A ratio outside the range of its kind of model has a reason: the factor of (1) that takes it farthest out. A price is
wrong, today's software is faster, or the search found a faster plan (a slower one, where a limit cut it off).

``best`` is the fastest run of the model on these GPUs in this precision, of any release, batch and number of GPUs.
Where it is far above the job's own, newer software or another batch ran faster, and a plan may.
"""

import argparse
import math
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import taut
from benchmarks.accuracy import as_table
from benchmarks.campaigns import megatron_bridge, megatron_bridge_blackwell, megatron_core, nvidia, torchtitan
from benchmarks.expert_rows import expert_runs
from benchmarks.mlperf import BLACKWELL, mlperf
from benchmarks.published_steps import sweeps
from taut.data.calibration import RECORDING
from taut.data.cluster import ClusterSpec
from taut.data.load import load_cluster
from taut.data.samples import ConfigurationRow
from taut.errors import TautError
from taut.prediction.experts import row_model
from taut.prediction.rows import predict_rows
from taut.prediction.settings import default_cluster, find_device, within_domain
from taut.words import percent

RANGES = {True: (0.85, 1.15), False: (0.9, 1.12)}
"""Ratios that are asked for, of models with and without experts."""
DEGREES = ("pp", "tp", "cp", "ep", "etp", "vpp", "micro_batch", "zero")


class Job(NamedTuple):
    """A job with its best published run: where it is from, the software's release, and the run's row."""

    name: str
    source: str
    release: str
    row: ConfigurationRow

    @property
    def has_experts(self) -> bool:
        """Whether the model has experts."""
        return self.row.num_experts is not None

    @property
    def key(self) -> tuple[Any, ...]:
        """What two runs of one job share."""
        row, shape = self.row, ("hidden", "layers", "heads", "num_experts", "seq", "global_batch", "precision")
        return (row.gpu.lower(), row.n_gpus, self.stack, *(getattr(row, name) for name in shape))

    @property
    def kind(self) -> tuple[Any, ...]:
        """What runs share whose speeds tell of each other: model, sequence, GPU, precision and stack."""
        return self.name, self.row.seq, self.row.gpu.lower(), self.row.precision, self.stack

    @property
    def stack(self) -> str:
        """The stack that plans the job."""
        return "torchtitan" if "torchtitan" in self.source else "megatron-core"

    @property
    def speed(self) -> float:
        """Tokens a second and GPU of the run."""
        return self.row.global_batch * self.row.seq / self.row.n_gpus / (self.row.measured_s or math.nan)


def jobs(folder: Path) -> list[Job]:
    """Every job of the folder once, with its fastest run, experts first."""
    best: dict[tuple[Any, ...], Job] = {}
    for job in _runs(folder):
        if job.key not in best or job.speed > best[job.key].speed:
            best[job.key] = job
    return sorted(best.values(), key=lambda job: (not job.has_experts, job.name, job.row.gpu, job.row.n_gpus))


def _runs(folder: Path) -> Iterator[Job]:
    for run in expert_runs(folder, every_release=True):
        yield Job(run.model, "Megatron-Bridge", run.container, run.row)
    bridge = folder / "megatron_bridge_h100_b200_gb200.csv"
    dense = [megatron_bridge(bridge), megatron_bridge_blackwell(bridge)]
    dense += [nvidia(folder / "nvidia_dgxc_h100.csv", "nemo", precision) for precision in ("bf16", "fp8")]
    dense += [mlperf(folder / "mlperf_dense.csv", kinds) for kinds in ({"H100": "h100", "H200": "h200"}, BLACKWELL)]
    dense += [megatron_core(folder / "megatron_core_h100_model_table.csv")]
    dense += [torchtitan(folder / "torchtitan_h100_h200.csv", "h100-96gb", "bf16 fp8"), sweeps()]
    for campaign in dense:
        for row in campaign.rows:
            yield Job(_size(row), campaign.source.split(",")[0].split(" docs")[0], "", row)


def _size(row: ConfigurationRow) -> str:
    """A dense model by its layers and width."""
    return f"{row.layers} x {row.hidden}"


def cluster_of(row: ConfigurationRow) -> ClusterSpec:
    """The catalog's cluster of a row's device, with this device and as many nodes as the row has."""
    row = within_domain(row)
    device = find_device(row.gpu)
    spec = load_cluster(default_cluster(device))
    size = min(row.gpus_per_node, row.n_gpus)
    node = spec.nodes[0]
    update: dict[str, Any] = {"device": device, "count": row.n_gpus // size, "gpus_per_node": size}
    if node.nic_bandwidth_gbps is not None:
        update["nic_bandwidth_gbps"] = node.nic_bandwidth_gbps * size / node.gpus_per_node
    return spec.model_copy(update={"nodes": [node.model_copy(update=update)], "name": f"{row.n_gpus} {row.gpu}"})


def fastest(every: list[Job]) -> dict[tuple[Any, ...], float]:
    """Tokens a second and GPU of the fastest run of every kind."""
    found: dict[tuple[Any, ...], float] = {}
    for job in every:
        found[job.kind] = max(job.speed, found.get(job.kind, 0.0))
    return found


def promised(job: Job, best: float, time_limit: float) -> dict[str, Any]:
    """A line of the table; ``best``: tokens a second and GPU of the fastest run of the job's kind."""
    row, began = job.row, time.perf_counter()
    line: dict[str, Any] = {
        "model": job.name,
        "system": f"{row.n_gpus} {row.gpu.upper()}",
        "precision": row.precision,
        "seq": row.seq,
        "batch": row.global_batch,
        "published": f"{job.speed:.0f}",
        "best": f"{best:.0f}",
        "by": f"{job.source} {job.release}".strip(),
        "its degrees": degrees({name: getattr(row, name, None) for name in DEGREES}, row.recompute),
        "as run": speed_of(job, {} if job.row.stack else {"stack": job.stack}),
        "as planned": "-",
    }
    try:
        plan = taut.plan(
            row_model(row),
            cluster_of(row),
            global_batch=row.global_batch,
            seq=row.seq,
            precision=row.precision,
            stack=job.stack,
            time_limit=time_limit,
            grad_precision=row.grad_precision,
        )
    except TautError as error:
        return line | {
            "promised": "-",
            "ratio": "-",
            "reason": "",
            "plan": str(error)[:80],
            "calibration": "-",
            "s": "",
        }
    seconds, priced = plan.step_time_s, plan.typed.inputs.get("calibration")
    features = priced.spec.get("features", ()) if priced else ()
    line["as planned"] = speed_of(job, {"stack": job.stack, **assumed(row, features)})
    speed = row.global_batch * row.seq / row.n_gpus / seconds
    strategy = plan.strategy
    line |= {"promised": f"{speed:.0f}", "ratio": f"{speed / job.speed:.2f}"}
    return line | {
        "reason": reason(line, has_experts=job.has_experts),
        "plan": degrees(
            {name: getattr(strategy, name, None) for name in DEGREES}, "/".join(sorted(set(strategy.recompute)))
        ),
        "gap": percent(plan.certificate.gap),
        "calibration": plan.document["inputs"].get("calibration", {}).get("name", ""),
        "s": f"{time.perf_counter() - began:.0f}",
    }


def speed_of(job: Job, software: dict[str, Any]) -> str:
    """Predicted over measured speed of a job's layout with some software, in two digits; a dash if it is not priced."""
    row = job.row.model_copy(update=software)
    found = predict_rows([row])[0].step_time_s
    return f"{(row.measured_s or math.nan) / found:.2f}" if found else "-"


def assumed(row: ConfigurationRow, features: Sequence[str]) -> dict[str, Any]:
    """
    What a plan with a layout has of the features that a row states.

    Graphs are its calibration's, as far as a plan may have them; what runs beside computation is the stack's default.
    """
    graphs = row.pp == 1 and row.zero < 2 and row.recompute != "full" and not {*RECORDING}.isdisjoint(features)
    beside = dict.fromkeys(("overlap_grad_reduce", "overlap_moe_expert_parallel_comm"))
    return {"cuda_graphs": graphs, "fp8_param_gather": False, **beside}


def reason(line: dict[str, Any], *, has_experts: bool) -> str:
    """The factor (1) that takes a ratio out of its range; empty within it, or where a factor is not known."""
    low, high = RANGES[has_experts]
    parts = [str(line[key]).strip(" *") for key in ("as run", "as planned", "ratio")]
    if "-" in parts or low <= float(parts[2]) <= high:
        return ""
    price, planned, ratio = (math.log(float(part)) for part in parts)
    shares = {"price": price, "software": planned - price, "search": ratio - planned}
    return max(shares, key=lambda name: math.copysign(shares[name], shares[name] * ratio))


def factors(name: str, lines: list[dict[str, Any]]) -> dict[str, str]:
    """Geometric means of the factors (1) of the lines that have all."""
    parts = [[str(line[key]).strip(" *") for key in ("as run", "as planned", "ratio")] for line in lines]
    known = [[math.log(float(part)) for part in each] for each in parts if "-" not in each]
    price, planned, ratio = (math.exp(sum(column) / len(known)) for column in zip(*known, strict=True))
    means = {"price": price, "software": planned / price, "search": ratio / planned, "ratio": ratio}
    return {"jobs": name, "number": str(len(known)), **{key: f"{value:.3f}" for key, value in means.items()}}


def degrees(values: dict[str, Any], recompute: str) -> str:
    """Degrees above 1, kind of sharding and recompute in words."""
    short = {"micro_batch": "mb", "zero": "ZeRO"}
    said = [f"{short.get(name, name)} {value}" for name, value in values.items() if value and value > (name != "zero")]
    return " ".join([*said, *([] if recompute == "none" else [recompute])]) or "dp"


def main() -> None:
    """Plan the jobs, print a line of each, and their table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--only", nargs="+", default=[""], help="words that a job's line has")
    parser.add_argument("--time-limit", type=float, default=20.0)
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    lines, every = dict[bool, list[dict[str, Any]]]({True: [], False: []}), jobs(options.data)
    best = fastest(every)
    for job in every:
        words = f"{job.name} {job.row.n_gpus} {job.row.gpu} {job.row.precision} {job.row.global_batch} {job.source}"
        if not any(each in words for each in options.only):
            continue
        if options.list:
            print(words, f"{job.speed:.0f}", job.release)
            continue
        line = promised(job, best[job.kind], options.time_limit)
        lines[job.has_experts].append(line)
        print(*line.values(), sep=" | ", file=sys.stderr, flush=True)
    if any(lines.values()):
        print(as_table([*lines[True], *lines[False]]))
        names = {True: "with experts", False: "dense"}
        print("\n" + as_table([factors(names[kind], some) for kind, some in lines.items() if some]))


if __name__ == "__main__":
    main()
