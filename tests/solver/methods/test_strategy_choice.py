"""The strategy by CP-SAT and by CBC, batch by batch, against the partitions of the branch and bound."""

import math
from dataclasses import replace

import numpy as np
import pytest

from taut.formulations.mechanisms.latency_models import LATENCY_MODELS
from taut.formulations.partition import NO_CROSSING, partition_problem
from taut.formulations.problem import PlanningProblem
from taut.formulations.program.program import windows
from taut.formulations.space import Candidate
from taut.planning.request import PlanRequest
from taut.planning.resolve import planning_problem
from taut.solver.bounds.candidate_bounds import partition_bound
from taut.solver.bounds.least_rings import least_gather
from taut.solver.ladder.ladder import Ladder
from taut.solver.layer_division.divide import solve_partition
from taut.solver.methods.strategy_choice import StrategyPool, best_strategy, options_of, simple_division
from taut.solver.program.cbc import solve_cbc
from taut.solver.program.cp_sat import solve_cpsat
from tests.support.blocks import blocks
from tests.support.flat_rings import option_optimum
from tests.support.instances import random_problem

pytestmark = pytest.mark.proof

BACKENDS = [solve_cpsat, solve_cbc]
CATALOG = [
    ("gpt2-345m", "dgx-a100", 32, {}),
    ("gpt2-345m", "amp-homogeneous", 32, {}),
    pytest.param("gpt2-345m", "amp-heterogeneous", 32, {}, marks=pytest.mark.long),
    ("gpt-1.1b", "dgx-a100:2", 64, {}),
    ("gpt3-2.7b", "dgx-a100", 64, {}),
    ("llama3-8b", "dgx-h100", 64, {}),
]
"""The small problems of the documentation."""


def closed_forms(given: PlanningProblem) -> list[Candidate]:
    """Candidates that the program takes."""
    return [candidate for candidate in given.candidates if not candidate.is_order_priced]


def fast_optimum(ladder: Ladder, candidates: list[Candidate]) -> float:
    """Least bound ``partition`` over candidates, without what the program leaves out (``methods.options`` (1))."""
    return min((_fast(ladder, candidate) for candidate in candidates), default=math.inf)


def _fast(ladder: Ladder, candidate: Candidate) -> float:
    if candidate.dp_shard and candidate.pp == 1:
        # The least of its cases, each a single stage.
        options = options_of(ladder, candidate)
        return min(solve_partition(each.partition, each.edge, each.tail).seconds for each in options)
    gather = least_gather(ladder.problem, candidate, ladder.links)
    stages = partition_problem(ladder.problem, candidate, gather=gather)
    comm = replace(ladder.communication(candidate), crossing=NO_CROSSING)
    if comm.ring == 0.0:
        return solve_partition(stages, comm.edge, comm.tail, later=comm.later).seconds + comm.ring_latency
    near_or_far = min(option_optimum(option) for option in options_of(ladder, candidate))
    assert near_or_far >= partition_bound(ladder.problem, candidate, comm, stages=stages)[0]
    return near_or_far


def check(given: PlanningProblem, seed: object) -> bool:
    """CP-SAT, CBC and the fast partition agree on the optimum; returns whether there is one."""
    ladder, candidates = Ladder(given), closed_forms(given)
    best = fast_optimum(ladder, candidates)
    found = [best_strategy(StrategyPool(ladder, candidates), backend) for backend in BACKENDS]
    for choice in found:
        assert math.isinf(choice.seconds) == math.isinf(best), seed
        if math.isfinite(best):
            assert choice.strategy is not None
            assert choice.seconds == choice.lower_bound
            # A nanosecond for each price that is rounded down, three a stage and one a micro-batch.
            candidate = choice.strategy.candidate
            lost = (3 * candidate.pp + candidate.num_micro_batches) * 1e-9
            assert choice.seconds <= best * (1 + 1e-9), seed
            assert best <= choice.seconds + lost + 1e-9 * best, seed
    assert abs(found[0].seconds - found[1].seconds) <= 1e-6 or math.isinf(best), seed
    return math.isfinite(best)


@pytest.mark.parametrize("block", blocks(20))
def test_both_backends_choose_as_the_search_does(block: int) -> None:
    """200 random problems under every latency model, ten a block: one optimum, or no division fits for all three."""
    checked, seed = 0, 1000 * block
    while checked < 10:
        given = replace(random_problem(seed), latency_model=[*LATENCY_MODELS][seed % len(LATENCY_MODELS)])
        if given.latency_model == "step":
            given = replace(given, overlap_grad_reduce=seed % 8 < 4)
        seed += 1
        if len(closed_forms(given)) > 0:
            check(given, seed - 1)
            checked += 1


@pytest.mark.parametrize(("model", "cluster", "batch", "fix"), CATALOG)
def test_both_backends_choose_as_the_search_does_on_the_catalog(
    model: str, cluster: str, batch: int, fix: dict[str, int]
) -> None:
    """The small problems of the documentation: one optimum for CP-SAT, CBC and the search."""
    assert check(planning_problem(PlanRequest(model, cluster, global_batch=batch, fix=fix)), model)


def test_windows_keep_every_division_of_interest() -> None:
    """The optimum over the windows at the optimum itself is the optimum: no stage of it is left out."""
    for seed in range(60):
        given = random_problem(seed)
        ladder = Ladder(given)
        for candidate in closed_forms(given)[:6]:
            for option in options_of(ladder, candidate):
                problem, edge, tail = option.partition, option.edge, option.tail
                later = option.later
                # Without rings by class of device the seconds are no more.
                found = solve_partition(
                    problem, edge, tail, later=later if later and later.parameters.ndim == 2 else None
                )
                if not found.feasible:
                    continue
                kept = windows(problem, edge, tail, found.seconds)
                ranges = np.array(found.patterns), *found.division.ranges
                for x, allowed in enumerate(kept):
                    assert allowed[tuple(part[x] for part in ranges)], (seed, candidate)
                assert simple_division(option).seconds >= found.seconds * (1 - 1e-9)


def test_a_limit_of_interest_leaves_nothing_above_it() -> None:
    """Below its own optimum a problem has no choice, and the bound says so."""
    given = planning_problem(PlanRequest("gpt2-345m", "dgx-a100", global_batch=32, fix={"pp": 2}))
    ladder, candidates = Ladder(given), closed_forms(given)
    least = best_strategy(StrategyPool(ladder, candidates), solve_cpsat)
    below = least.seconds * (1 - 1e-6)
    found = best_strategy(StrategyPool(ladder, candidates), solve_cpsat, below=below)
    assert found.strategy is None
    assert found.lower_bound >= below
