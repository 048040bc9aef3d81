"""
What waiting for every stage's gradients changes: best plans under ``pipette`` beside best plans under ``step``.

Run ``python -m benchmarks.latency_models [--seconds 20] [--jobs bert,llama]``. Whole searches at analytic prices
(``--stack any``) over 1F1B and GPipe, one row for each job: layers of the stages under ``pipette``; seconds of that
plan as both models price it; layers, seconds and gap under ``step``.
"""

import argparse
import sys
from itertools import groupby

import numpy as np

import taut
from taut.data.cluster import ClusterSpec
from taut.data.load import load_cluster
from taut.data.model import ModelSpec
from taut.formulations.latency import step_time
from taut.formulations.mechanisms.latency_models import LatencyName
from taut.formulations.problem import PlanningProblem
from taut.solver.result import Incumbent, Limits, SearchResult
from taut.solver.search.search import search


def bert_large() -> ModelSpec:
    """BERT-large as its Hugging Face configuration states it, priced as a decoder."""
    shape = {"layers": 24, "hidden": 1024, "heads": 16, "ffn_hidden": 4096, "seq": 512, "vocab": 30522}
    return ModelSpec.parse({"name": "bert-large", **shape, "tied_embedding": True}, "benchmark")


def mixed() -> ClusterSpec:
    """Eight nodes of A100 and eight of H100, at the rate between nodes of the former."""
    one, other = load_cluster("dgx-a100:8"), load_cluster("dgx-h100:8")
    return one.model_copy(update={"name": "a100-and-h100", "nodes": [*one.nodes, *other.nodes]})


JOBS: dict[str, tuple[str, ModelSpec | str, ClusterSpec | str, int]] = {
    "bert": ("BERT-large, 64 H100", bert_large(), "dgx-h100:8", 512),
    "6.7b": ("GPT-3 6.7B, 128 A100", "gpt3-6.7b", "dgx-a100:16", 256),
    "11.1b": ("GPT 11.1B, 128 A100", "gpt-11.1b", "pipette-high-end", 512),
    "175b": ("GPT-3 175B, 128 A100", "gpt3-175b", "dgx-a100:16", 512),
    "405b": ("Llama-3 405B, 512 H100", "llama3-405b", "dgx-h100:64", 512),
    "70b": ("Llama-3 70B, 64 A100 and 64 H100", "llama3-70b", mixed(), 512),
}


def found(job: str, latency_model: LatencyName, seconds: float) -> tuple[PlanningProblem, SearchResult, Incumbent]:
    """The problem of a job, and what a search finds."""
    _, model, cluster, batch = JOBS[job]
    request = taut.PlanRequest(
        model, cluster, global_batch=batch, latency_model=latency_model, stack="any", schedules="1f1b,gpipe"
    )
    problem = taut.planning_problem(request)
    result = search(problem, Limits(time_limit=seconds))
    if result.incumbent is None:
        raise taut.NothingFoundError(f"{job}: no plan in {seconds:g} s")
    return problem, result, result.incumbent


def layers(plan: Incumbent) -> str:
    """Layers of the stages, runs of equal ones as a product, and degrees."""
    numbers = [end - first for first, end in plan.strategy.division.stages]
    runs = [(number, len(list(run))) for number, run in groupby(numbers)]
    c = plan.strategy.candidate
    shown = ", ".join(str(number) if count == 1 else f"{count} x {number}" for number, count in runs)
    return f"{shown} (tp {c.tp}, dp {c.dp})"


def row(job: str, seconds: float) -> str:
    """One row of the table."""
    name, _, _, batch = JOBS[job]
    _, quick, plan = found(job, "pipette", seconds)
    problem, result, best = found(job, "step", seconds)
    priced = float(np.asarray(step_time(problem, plan.strategy, plan.devices[None]).total)[0])
    gap = 100 * (1 - result.lower_bound / best.seconds)
    figures = (
        f"{layers(plan)} | {plan.seconds:.4g} (gap {100 * (1 - quick.lower_bound / plan.seconds):.2g} %), {priced:.4g}"
    )
    return f"| {name}, batch {batch} | {figures} | {layers(best)} | {best.seconds:.4g} | {gap:.2g} % |"


def main(arguments: list[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.latency_models", description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="limit of every search")
    parser.add_argument("--jobs", default=",".join(JOBS), help="some of the jobs")
    options = parser.parse_args(arguments)
    print(
        "| job | layers a stage under `pipette` | its step by `pipette`, by `step` | layers under `step` | step | gap |"
    )
    print("|---|---|---|---|---|---|")
    for job in options.jobs.split(","):
        print(row(job, options.seconds), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
