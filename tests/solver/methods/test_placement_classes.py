"""Classes of placement in the strategy program against enumerated placements, and by hand on two nodes."""

import math
from dataclasses import replace

import numpy as np
import pytest

from taut import PlanRequest, planning_problem
from taut.formulations.problem import PlanningProblem
from taut.solver.bounds.candidate_bounds import partition_bound
from taut.solver.ladder.ladder import Ladder
from taut.solver.methods.strategy_choice import StrategyPool, best_strategy, options_of, undominated
from taut.solver.program.cp_sat import solve_cpsat
from tests.support.flat_rings import option_optimum
from tests.support.instances import random_problem
from tests.support.oracle import enumerate_candidate

pytestmark = pytest.mark.proof


def flat_problem(seed: int) -> PlanningProblem:
    """A random problem under AMP's model."""
    return replace(random_problem(seed), latency_model="amp")


def test_classes_bound_every_placement_and_some_bind() -> None:
    """The least over near and far is at most the enumerated optimum; it exceeds ``partition`` or is attained."""
    raised, attained = 0, 0
    for seed in range(30):
        given = flat_problem(seed)
        ladder = Ladder(given)
        for candidate in [each for each in given.closed_forms if each.pp > 1 and each.dp > 1][:2]:
            exact = enumerate_candidate(given, candidate).seconds
            least = min(option_optimum(option) for option in options_of(ladder, candidate))
            if math.isfinite(exact):
                assert least <= exact * (1 + 1e-9), (seed, candidate)
                raised += least > partition_bound(given, candidate, ladder.communication(candidate))[0] * (1 + 1e-9)
                attained += least >= exact * (1 - 1e-6)
    assert raised >= 5 and attained >= 3


def test_near_and_far_of_four_stages_on_four_nodes() -> None:
    """Four V100 nodes of four: near takes three hops between nodes, far a ring over 10 Gb/s, 17 times as slow."""
    given = planning_problem(PlanRequest("gpt2-345m", "amp-unlike-layers", global_batch=32, latency_model="amp"))
    ladder = Ladder(given)
    candidate = next(each for each in given.closed_forms if (each.pp, each.dp, each.micro_batch) == (4, 4, 1))
    near, far = options_of(ladder, candidate)
    assert near.later is not None and far.later is not None
    inside, apart = ladder.links.hops(1, float(given.tables(candidate).message[1]), False)
    comm = ladder.communication(candidate)
    tail = comm.tail[1] + comm.ring_latency
    assert near.tail[1] == pytest.approx(tail + 3 * (apart - inside), rel=1e-9)
    # The slowest ring takes 2 (4 - 1) / 4 of the bytes of the leanest layer at 1.25e9 bytes a second.
    least = np.diagonal(near.partition.gradients, 1).min()
    assert far.tail[1] - tail == pytest.approx(1.5 * least / 1.25e9, rel=1e-6)
    rings = near.later.optimizer * near.later.parameters[0, 0, 1] / near.partition.gradients[0, 1]
    assert rings == pytest.approx(1.5 / (170e9 / 8), rel=1e-6)


def test_dominated_options_do_not_change_the_optimum() -> None:
    """The program over all candidates and the one without dominated options have one optimum; many are left out."""
    left_out = 0
    for seed in range(40):
        given = random_problem(seed)
        ladder = Ladder(given)
        options = [option for each in given.closed_forms[:6] for option in options_of(ladder, each)]
        kept = list(undominated(options))
        left_out += len(options) - len(kept)
        least = min((option_optimum(option) for option in options), default=math.inf)
        assert least == min((option_optimum(option) for option in kept), default=math.inf), seed
    assert left_out >= 20


def test_the_program_alone_is_near_the_optimum_of_the_mixed_cluster() -> None:
    """A shape of AMP's mixed cluster: 0.256762320 s by the program, 0.256762329 s by ``node-slots``."""
    fix = {"pp": 4, "tp": 1, "micro_batch": 1, "zero": 1}
    given = planning_problem(
        PlanRequest("gpt2-345m", "amp-heterogeneous", global_batch=32, latency_model="amp", fix=fix)
    )
    ladder = Ladder(given)
    found = best_strategy(StrategyPool(ladder, given.closed_forms), solve_cpsat)
    assert found.lower_bound == pytest.approx(0.256762329, rel=1e-6)
