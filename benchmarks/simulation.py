"""
How far the closed forms of a step are from its simulation, by schedule, and how fast the simulator is.

Run ``python -m benchmarks.simulation [CONFIGURATIONS]``. For every schedule it draws so many random configurations of
the jobs below: any candidate of 2 to 16 stages and up to 64 micro-batches that has the schedule, recompute at random,
workers in the order of the devices; half of them with even stages, half with every cut moved at random. Rows are the
relative difference ``closed form / simulation - 1`` in percent; ``exact`` is the share within 1e-9. Reductions after
the last pass (ZeRO-0 and 1) are the first table, reductions beside it the second, shards of weights and gradients
(ZeRO-2 and 3) the third. The last lines time the point of MT-NLG 530B that vTrain simulates in 2 s or more.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from dataclasses import replace

import numpy as np

import taut
from taut.data.arrays import Floats, Ints
from taut.data.costs import RECOMPUTE
from taut.data.stack import SCHEDULES
from taut.formulations.latency import step_time
from taut.formulations.problem import PlanningProblem
from taut.formulations.simulation.graph import operator_graph
from taut.formulations.space import Candidate
from taut.formulations.strategy import Division, Strategy
from taut.simulation import of_request, simulate_strategy
from taut.solver.simple_plans import even_chunks, rank_order

JOBS = [
    ("gpt3-175b", "dgx-a100:16", 192),
    ("llama3-70b", "dgx-h100:8", 128),
    ("llama3-8b", "dgx-h100:2", 64),
    ("gpt-11.1b", "pipette-mid-range", 256),
    ("opt-30b", "p4d.24xlarge:8", 64),
    ("llama2-7b", "g5.48xlarge:2", 64),
    ("gpt2-345m", "g4dn.12xlarge:4", 64),
    ("llama2-70b", "hethub-12n96d", 96),
]
"""Fast and slow networks, one and two device types."""
EXACT = 1e-9
"""Relative difference that is rounding."""
MOST_STAGES, MOST_MICRO_BATCHES = 16, 64
"""Pipelines that are drawn; building the published order of a longer one takes seconds."""
MOVED = 8
"""A cut of uneven stages is moved up or down, or stays: by a layer, and one more for so many layers of a stage."""
PARTS = (0.0, 0.05, 0.5, 0.95, 1.0)
"""Quantiles of a row."""


def problems(zero: list[int], *, overlap: bool) -> list[PlanningProblem]:
    """The jobs with every schedule and some ZeRO stages, at stated efficiencies."""
    found = []
    for model, cluster, batch in JOBS:
        request = taut.PlanRequest(model, cluster, global_batch=batch, stack="any", schedules="all", max_cp=1)
        problem = taut.planning_problem(request)
        space = problem.space.model_copy(update={"zero": zero})
        found.append(replace(problem, space=space, overlap_grad_reduce=overlap))
    return found


def _simulated(choice: Candidate) -> bool:
    """Short enough, and replicas with as many micro-batches each, which the simulation asks for."""
    return choice.num_micro_batches <= MOST_MICRO_BATCHES and not choice.uneven_batch


def random_ends(rng: np.random.Generator, layers: int, choice: Candidate, *, even: bool) -> Ints:
    """Ends of even stages, or of stages with random cuts where there is room."""
    ends = even_chunks(layers, choice).cumsum()
    if even:
        return ends
    most = 1 + layers // len(ends) // MOVED
    for k, move in enumerate((rng.integers(-1, 2, len(ends) - 1) * most).tolist()):
        before = ends[k - 1] if k else 0
        if before < ends[k] + move < ends[k + 1]:
            ends[k] += move
    return ends


def difference(rng: np.random.Generator, problem: PlanningProblem, choice: Candidate, *, even: bool) -> float:
    """Closed form over simulation, less 1, of a random strategy of a candidate."""
    ends = random_ends(rng, len(problem.model.blocks), choice, even=even)
    kinds = [RECOMPUTE.index(name) for name in problem.recompute_of(choice)]
    recompute = np.full(len(ends), rng.choice(kinds)) if even else rng.choice(kinds, len(ends))
    plan, devices = Strategy(candidate=choice, division=Division.of_ends(ends, recompute)), rank_order(choice)
    graph = operator_graph(problem, plan, devices)
    simulated = float((graph.times() + graph.seconds).max()) + problem.constant_seconds
    return float(step_time(problem, plan, devices).total) / simulated - 1


def row(name: str, errors: Floats) -> str:
    """A line of a table."""
    exact = f"{(abs(errors) <= EXACT).mean():6.0%}"
    rounded = np.where(abs(errors) <= EXACT, 0.0, 100 * errors)
    return f"{name:<17} {len(errors):>6} {exact} " + " ".join(f"{x:+8.2f}" for x in np.quantile(rounded, PARTS))


def table(title: str, zero: list[int], *, overlap: bool, count: int) -> None:
    """Differences of every schedule, even stages and uneven ones."""
    given = problems(zero, overlap=overlap)
    print(f"\n{title}\n{'schedule':<17} {'number':>6}  exact " + " ".join(f"{f'q{q:.0%}':>8}" for q in PARTS))
    choices = [[c for c in problem.candidates if 1 < c.pp <= MOST_STAGES and _simulated(c)] for problem in given]
    for schedule in SCHEDULES:
        of = [(p, [c for c in each if c.schedule == schedule]) for p, each in zip(given, choices, strict=True)]
        of = [(problem, each) for problem, each in of if each]
        for even in (True, False):
            rng = np.random.default_rng(0)
            found = []
            for k in range(count // 2):
                problem, each = of[k % len(of)]
                found.append(difference(rng, problem, each[rng.integers(len(each))], even=even))
            print(row(f"{schedule}{'' if even else ' *'}", np.array(found)), flush=True)


def best(work: Callable[[], object], repeats: int = 7) -> float:
    """Seconds of the fastest of some runs."""
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def speed() -> None:
    """Seconds of MT-NLG's point (8, 8, 35), and tasks a second of the sweep."""
    fix: dict[str, int | str | bool] = {
        "pp": 35,
        "tp": 8,
        "dp": 8,
        "micro_batch": 1,
        "recompute": "full",
        "zero": 0,
        "sequence_parallel": False,
    }
    given = of_request(taut.PlanRequest("mt-nlg-530b", "dgx-a100:280", global_batch=1920, fix=fix, stack="any"))
    found = simulate_strategy(*given)
    graph = found.graph
    whole = best(lambda: simulate_strategy(*given))
    figures = best(lambda: (vars(found).pop("activity_s", None), found.activity_s))
    sweep = best(graph.times)
    print(f"\nMT-NLG 530B, t=8, d=8, p=35: {found.tasks} tasks; graph and sweep {whole * 1e3:.1f} ms, ", end="")
    print(f"sweep alone {sweep * 1e3:.1f} ms, {found.tasks / sweep / 1e6:.0f} million tasks a second; ", end="")
    print(f"exposed communication and bubble {figures * 1e3:.1f} ms")


def main() -> None:
    """Print the tables and the times."""
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("configurations", nargs="?", type=int, default=1000)
    count = parser.parse_args().configurations
    table("reductions after the last pass (* uneven stages)", [0, 1], overlap=False, count=count)
    table("reductions beside the last backward pass (* uneven stages)", [0, 1], overlap=True, count=count)
    table("shards (* uneven stages)", [2, 3], overlap=False, count=count // 5)
    speed()


if __name__ == "__main__":
    main()
