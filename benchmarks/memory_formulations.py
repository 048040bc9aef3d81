"""
A learned memory predictor as a constraint: tabulated against embedded, build and solve time side by side.

Run ``python -m benchmarks.memory_formulations [REPEATS]``. Options are the candidates of a planning problem with even
stages and one recompute each. The networks have random hidden layers, and an output layer that is fitted to the
analytic memory of the options by ridge regression, so that the constraint rules out about what memory does. Both
programs of ``taut.formulations.program.learned_memory`` are built and solved in turn, the least of a few repeats is
printed in milliseconds, and a row ends the run if the two optima differ.
"""

import argparse
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats
from taut.data.costs import RECOMPUTE
from taut.formulations.candidate_partition import partition_problem
from taut.formulations.latency import memory_bytes
from taut.formulations.problem import PlanningProblem
from taut.formulations.program.learned_memory import PredictedMemory, embedded, even_option, tabulated
from taut.formulations.program.program import Option, StrategyProgram
from taut.formulations.program.relu import ReluNetwork
from taut.formulations.program.rows import strategy_program
from taut.formulations.space import Candidate
from taut.formulations.strategy import Division, Strategy
from taut.planning.request import PlanRequest
from taut.planning.resolve import planning_problem
from taut.solver.bounds.communication import communication
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.program.cbc import solve_cbc
from taut.solver.program.checked import ProgramResult
from taut.solver.program.cp_sat import solve_cpsat
from taut.solver.program.learned_memory import PredictedResult, solve_predicted

CASES: list[tuple[str, str, int, dict[str, int | str | bool]]] = [
    ("gpt-3.1b", "pipette-mid-range", 512, {"pp": 8, "schedule": "1f1b", "zero": 0}),
    ("llama3-70b", "dgx-h100:4", 64, {"schedule": "1f1b", "zero": 1, "sequence_parallel": True}),
    ("llama3-8b", "dgx-h100", 64, {"schedule": "1f1b", "zero": 1}),
]
NETWORKS = {"1x8": [8], "2x16": [16, 16], "2x32": [32, 32]}
SOLVERS: dict[str, Callable[..., ProgramResult]] = {"cp-sat": solve_cpsat, "cbc": solve_cbc}
MARGIN, RIDGE = 0.05, 0.1
ENOUGH = 5.0
"""Seconds after which nothing is repeated."""
HEAD = "problem,options,fits,binds,network,columns,rows,solver,tabulated,embedded,ratio,refused"


class Instance(NamedTuple):
    """A program without memory, scaled features (C, F) and analytic bytes (C,) of its options, a device's KiB."""

    program: StrategyProgram
    features: Floats
    bytes: Floats
    budget_kib: int


def instance(model: str, cluster: str, global_batch: int, fix: dict[str, int | str | bool]) -> Instance:
    """Every candidate of a planning problem whose stages divide the layers, with every recompute."""
    given = planning_problem(PlanRequest(model, cluster, global_batch=global_batch, stack="any", fix=fix))
    layers, links = len(given.model.blocks), BestLinks(given.links, given.rings)
    options, features, need = [], [], []
    for candidate in given.candidates:
        if layers % candidate.pp == 0:
            comm = communication(given, candidate, links)
            option = Option(candidate, partition_problem(given, candidate), comm.edge, comm.tail)
            for recompute in RECOMPUTE:
                options.append(even_option(option, recompute))
                features.append(features_of(candidate, recompute))
                need.append(peak(given, candidate, recompute))
    table = np.array(features)
    scaled = (table - table.mean(axis=0)) / np.maximum(table.std(axis=0), 1e-9)
    budget = int((1 - MARGIN) * min(given.capacity_kib))
    return Instance(strategy_program(options), scaled, np.array(need), budget)


def features_of(candidate: Candidate, recompute: str) -> list[float]:
    """Logarithms of the degrees and batches, and what else distinguishes the options."""
    sizes = [candidate.pp, candidate.tp, candidate.dp, candidate.micro_batch, candidate.num_micro_batches]
    kinds = [candidate.schedule == "gpipe", candidate.zero, candidate.sequence_parallel]
    return [*np.log(sizes).tolist(), *map(float, kinds), recompute == "selective", recompute == "full"]


def peak(given: PlanningProblem, candidate: Candidate, recompute: str) -> float:
    """Analytic bytes of the fullest device."""
    ends = len(given.model.blocks) // candidate.pp * np.arange(candidate.pp + 1)
    stages = tuple(zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True))
    strategy = Strategy(candidate=candidate, division=Division(stages, (recompute,) * candidate.pp))
    return float(max(memory_bytes(given, strategy)))


def fitted(features: Floats, need: Floats, widths: list[int]) -> ReluNetwork:
    """Random hidden layers, and the output layer that explains the logarithm of the bytes best."""
    rng, hidden = np.random.default_rng(0), features
    weights, biases = [], []
    for width in widths:
        inputs = hidden.shape[1]
        weights.append(rng.normal(size=(width, inputs)) * (2 / inputs) ** 0.5)
        biases.append(0.5 * rng.normal(size=width))
        hidden = np.maximum(hidden @ weights[-1].T + biases[-1], 0.0)
    centre, mean = np.log(need).mean(), hidden.mean(axis=0)
    gram = (hidden - mean).T @ (hidden - mean) + RIDGE * np.eye(widths[-1])
    output = np.linalg.solve(gram, (hidden - mean).T @ (np.log(need) - centre))
    return ReluNetwork([*weights, output[None]], [*biases, np.array([centre - output @ mean])])


def timed(
    state: Callable[[StrategyProgram, PredictedMemory], StrategyProgram],
    program: StrategyProgram,
    memory: PredictedMemory,
    solve: Callable[..., ProgramResult],
    repeats: int,
) -> tuple[PredictedResult, float]:
    """Result, and least seconds to build and solve."""
    taken: list[float] = []
    while len(taken) < repeats and sum(taken) < ENOUGH:
        started = time.perf_counter()
        found = solve_predicted(state(program, memory), memory, solve)
        taken.append(time.perf_counter() - started)
    return found, min(taken)


def lines(name: str, given: Instance, repeats: int) -> list[str]:
    """One line for every network and solver."""
    found, roomy = [], solve_cpsat(given.program).objective_ns
    for size, widths in NETWORKS.items():
        network = fitted(given.features, given.bytes, widths)
        memory = PredictedMemory(network=network, features=given.features, budget_kib=given.budget_kib)
        stated, fits = embedded(given.program, memory), int((memory.kib() <= memory.budget_kib).sum())
        columns = len(stated.upper) - len(given.program.upper)
        rows = len(stated.rows) - len(given.program.rows)
        for solver, solve in SOLVERS.items():
            table, one = timed(tabulated, given.program, memory, solve, repeats)
            inside, other = timed(embedded, given.program, memory, solve, repeats)
            answers = {(each.result.status, each.result.objective_ns) for each in (table, inside)}
            if len(answers) > 1:
                raise SystemExit(f"{name}, {size}, {solver}: the formulations differ: {answers}")
            times = f"{1e3 * one:.0f},{1e3 * other:.0f},{other / one:.1f},{len(inside.refused)}"
            binds = "no" if table.result.objective_ns == roomy else "yes"
            found.append(f"{name},{len(given.features)},{fits},{binds},{size},{columns},{rows},{solver},{times}")
    return found


def main() -> None:
    """Print the table as CSV."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("repeats", nargs="?", type=int, default=3)
    repeats = max(1, parser.parse_args().repeats)
    print(HEAD)
    for model, cluster, global_batch, fix in CASES:
        for line in lines(model, instance(model, cluster, global_batch, fix), repeats):
            print(line, flush=True)


if __name__ == "__main__":
    main()
