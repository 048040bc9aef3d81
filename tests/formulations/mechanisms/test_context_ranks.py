"""Kinds of context ranks that suit heads and nodes, and those that another one is never slower than."""

from dataclasses import replace

import numpy as np
import pytest

from taut.formulations.candidates import candidates
from taut.formulations.latency import step_time
from taut.formulations.problem import PlanningProblem
from tests.support.contexts import all_context_kinds
from tests.support.instances import random_problem
from tests.support.reference import random_placement, random_strategy


def every_kind(given: PlanningProblem) -> PlanningProblem:
    """The problem with the candidates that (2) leaves out as well."""
    found = replace(given)
    found.__dict__["candidates"] = candidates(given.space, given.model, given.cluster, given.costs)
    return found


@pytest.mark.proof
def test_what_is_left_out_is_never_faster_than_the_ring() -> None:
    """On random links and attention, every all-to-all that is no candidate takes at least as long on any placement."""
    rng, left_out, kept = np.random.default_rng(1), 0, 0
    for seed in range(120):
        given = random_problem(3 * seed + 1, measured=seed % 4 == 0, large=seed % 2 == 0)
        given = all_context_kinds(replace(given, latency_model="step"), seed)
        own, whole = set(given.candidates), every_kind(given)
        kept += sum(each.cp_comm.startswith("a2a") for each in own)
        for candidate in [each for each in whole.candidates if each not in own]:
            strategy, devices = random_strategy(whole, candidate, rng), random_placement(whole, candidate, rng)
            ring = replace(strategy, candidate=replace(candidate, cp_comm="p2p"))
            assert ring.candidate in own
            assert float(step_time(given, ring, devices).total) <= float(step_time(given, strategy, devices).total)
            left_out += 1
    assert left_out > 30
    assert kept > 30
