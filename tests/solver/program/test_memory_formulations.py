"""A learned memory predictor, tabulated and embedded, solved by CP-SAT and by CBC: one optimum."""

from dataclasses import replace
from functools import cache
from itertools import pairwise, product

import numpy as np
import pytest

from taut.data.arrays import Floats
from taut.data.costs import RECOMPUTE
from taut.formulations.candidate_partition import partition_problem
from taut.formulations.problem import PlanningProblem
from taut.formulations.program.learned_memory import PredictedMemory, embedded, even_option, tabulated
from taut.formulations.program.program import Option, StrategyChoice, StrategyProgram
from taut.formulations.program.relu import ReluNetwork, integer_network
from taut.formulations.program.rows import strategy_program
from taut.formulations.space import Candidate
from taut.formulations.strategy import Division
from taut.solver.bounds.communication import communication
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.program.cbc import solve_cbc
from taut.solver.program.checked import ProgramResult
from taut.solver.program.cp_sat import solve_cpsat
from taut.solver.program.learned_memory import solve_predicted
from taut.solver.result import Status
from tests.support.instances import random_problem

pytestmark = pytest.mark.proof

BACKENDS = [solve_cpsat, solve_cbc]
FORMULATIONS = [tabulated, embedded]
SHAPES = [[8], [6, 6], [4, 4, 4]]
SEEDS = range(60)
MOST_OPTIONS = 60


@cache
def planned(seed: int) -> tuple[StrategyProgram, Floats] | None:
    """Program over even stages of a random problem, and its features; None where it is small, large or AMP's."""
    given = random_problem(seed)
    layers = len(given.model.blocks)
    chosen = [
        (candidate, recompute)
        for candidate in given.candidates
        for recompute in given.recompute_of(candidate)
        if layers % candidate.pp == 0
    ]
    if given.latency_model == "amp" or not 4 <= len(chosen) <= MOST_OPTIONS:
        return None
    options = [even_option(priced(given, candidate), recompute) for candidate, recompute in chosen]
    features = np.array([features_of(candidate, recompute) for candidate, recompute in chosen])
    return strategy_program(options), (features - features.mean(axis=0)) / np.maximum(features.std(axis=0), 1e-9)


def priced(given: PlanningProblem, candidate: Candidate) -> Option:
    """A candidate as the fast search sees it."""
    comm = communication(given, candidate, BestLinks(given.links, given.rings))
    return Option(candidate, partition_problem(given, candidate), comm.edge, comm.tail)


def features_of(candidate: Candidate, recompute: str) -> list[float]:
    """Logarithms of the degrees and batches, and what else distinguishes the options."""
    sizes = [candidate.pp, candidate.tp, candidate.dp, candidate.micro_batch, candidate.num_micro_batches]
    kinds = [candidate.schedule == "gpipe", candidate.zero, candidate.sequence_parallel, RECOMPUTE.index(recompute)]
    return [*np.log2(sizes).tolist(), *map(float, kinds)]


def predictor(seed: int, program: StrategyProgram, features: Floats) -> PredictedMemory:
    """A random network of some GiB, and a budget below the cheapest option's need if any option needs less."""
    rng = np.random.default_rng((seed, 7))
    widths = [features.shape[1], *SHAPES[seed % len(SHAPES)], 1]
    weights = [rng.normal(size=(out, width)) * (2 / width) ** 0.5 for width, out in pairwise(widths)]
    biases = [rng.normal(size=out) for out in widths[1:]]
    network = ReluNetwork([*weights[:-1], 0.3 * weights[-1]], [*biases[:-1], biases[-1] + np.log(2.0**35)])
    memory = PredictedMemory(network=network, features=features, budget_kib=1)
    need, cost = memory.kib(), costs(program)
    below = np.unique(need[need < need[int(np.argmin(cost))]])
    return replace(memory, budget_kib=int(rng.choice(below) if len(below) else need.min()))


def costs(program: StrategyProgram) -> Floats:
    """Nanoseconds of every option by enumeration of its patterns; infinite where there are none."""
    least = np.full(len(program.options), np.inf)
    for c, option in enumerate(program.options):
        problem = option.partition
        ends = problem.num_layers // problem.pp * np.arange(1, problem.pp + 1)
        for recompute in range(len(RECOMPUTE)):
            for patterns in product(range(len(problem.budget)), repeat=problem.pp):
                made = StrategyChoice(
                    candidate=c,
                    division=Division.of_ends(ends, np.full(problem.pp, recompute)),
                    patterns=patterns,
                )
                if not program.violations(made):
                    least[c] = min(least[c], program.cost(made))
    return least


def check(program: StrategyProgram, memory: PredictedMemory, seed: int) -> int:
    """Both formulations and both backends give the enumerated optimum; how many choices the predictor refused."""
    best = float(np.where(memory.kib() <= memory.budget_kib, costs(program), np.inf).min())
    refusals = 0
    for state, solve in product(FORMULATIONS, BACKENDS):
        found = solve_predicted(state(program, memory), memory, solve)
        result = found.result
        if np.isinf(best):
            assert (result.status, result.choice) == (Status.INFEASIBLE, None), (seed, state, solve)
        else:
            assert result.status is Status.OPTIMAL, (seed, state, solve)
            assert result.objective_ns == result.lower_bound_ns == best, (seed, state, solve)
            assert result.choice is not None
            assert memory.admits(result.choice.candidate)
        assert state is embedded or not found.refused
        refusals += len(found.refused)
    return refusals


def drawn() -> list[int]:
    """Seeds of the problems that are small enough."""
    return [seed for seed in SEEDS if planned(seed) is not None]


def problem_of(seed: int) -> tuple[StrategyProgram, Floats]:
    """A drawn problem."""
    found = planned(seed)
    assert found is not None
    return found


@pytest.mark.parametrize("seed", drawn())
def test_both_formulations_give_one_optimum(seed: int) -> None:
    """Where the predicted memory binds, all four ways give the least cost of the options that it admits."""
    program, features = problem_of(seed)
    check(program, predictor(seed, program, features), seed)


@pytest.mark.parametrize("seed", [130, 204, 253])
def test_sums_beyond_32_bits_lose_no_choice(seed: int) -> None:
    """CP-SAT 9.15 proves too much here where its presolve may add up coefficients in 32 bits."""
    program, features = problem_of(seed)
    check(program, predictor(seed, program, features), seed)


@pytest.mark.parametrize("seed", drawn()[:6])
def test_no_option_has_room(seed: int) -> None:
    """A KiB below the least prediction all four ways prove that nothing is feasible, the embedded one after asking."""
    program, features = problem_of(seed)
    memory = predictor(seed, program, features)
    assert check(program, replace(memory, budget_kib=int(memory.kib().min()) - 1), seed) > 0
    # At a hundredth of that the rows say so at once.
    assert check(program, replace(memory, budget_kib=int(memory.kib().min()) // 100), seed) == 0


def with_one_cheapest() -> list[int]:
    """Seeds of the problems of which no two options cost least."""
    found = [(seed, np.sort(costs(problem_of(seed)[0]))) for seed in drawn()]
    return [seed for seed, cost in found if len(cost) > 1 and cost[0] < cost[1]]


@pytest.mark.parametrize("seed", with_one_cheapest()[:6])
def test_a_choice_within_the_tolerance_is_left_to_the_predictor(seed: int) -> None:
    """With the cheapest option's own KiB it is chosen; with one less the rows let it in, the predictor does not."""
    program, features = problem_of(seed)
    memory, cheapest = predictor(seed, program, features), int(np.argmin(costs(program)))
    exactly = replace(memory, budget_kib=int(memory.kib()[cheapest]))
    assert check(program, exactly, seed) == 0
    less = replace(exactly, budget_kib=exactly.budget_kib - 1)
    assert check(program, less, seed) >= 2
    assert cheapest in solve_predicted(embedded(program, less), less, solve_cpsat).refused


@pytest.mark.parametrize("bits", [6, 10])
def test_fewer_bits_give_the_same_optimum(bits: int) -> None:
    """Coarse integers refuse more often, and end at the same optimum."""
    for seed in drawn()[:6]:
        program, features = problem_of(seed)
        memory = predictor(seed, program, features)
        best = solve_predicted(tabulated(program, memory), memory, solve_cpsat).result
        found = solve_predicted(embedded(program, memory, bits), memory, solve_cpsat)
        assert (found.result.status, found.result.objective_ns) == (best.status, best.objective_ns), seed
        output, integers = memory.network.evaluate(features), integer_network(memory.network, features, bits)
        assert (output[list(found.refused)] <= memory.limit + integers.tolerance).all(), seed


def test_out_of_time_leaves_no_refused_choice() -> None:
    """When time is up, a choice that the predictor refused is not returned, and the bound stays."""
    program, features = problem_of(with_one_cheapest()[0])
    memory, cost = predictor(0, program, features), costs(program)
    less = replace(memory, budget_kib=int(memory.kib()[int(np.argmin(cost))]) - 1)

    def late(stated: StrategyProgram, time_limit: float, workers: int, seed: int) -> ProgramResult:
        """Answers as if it had been in time."""
        assert time_limit == 0.1
        return solve_cpsat(stated, workers=workers, seed=seed)

    found = solve_predicted(embedded(program, less), less, late, time_limit=1e-6)
    result = found.result
    assert (result.status, result.choice, result.objective_ns) == (Status.UNKNOWN, None, None)
    assert result.lower_bound_ns == cost.min()
    assert len(found.refused) == 1


def test_problems_are_worth_solving() -> None:
    """Many problems have an optimum, and memory rules the cheapest option out of most."""
    binding = 0
    for seed in drawn():
        program, features = problem_of(seed)
        memory, cost = predictor(seed, program, features), costs(program)
        admitted = memory.kib() <= memory.budget_kib
        binding += np.isfinite(cost[admitted].min()) and cost[admitted].min() > cost.min()
    assert len(drawn()) >= 12
    assert binding >= 8
