"""The integer program over all candidates against the partitions of the fast search, on real planning problems."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from taut.data.units import NANOSECONDS_PER_SECOND
from taut.formulations.mechanisms.latency_models import LATENCY_MODELS
from taut.formulations.problem import PlanningProblem
from taut.formulations.program.program import Option, StrategyProgram, strategy_program
from taut.solver.bounds.relaxation import ROUNDING
from taut.solver.ladder.ladder import Ladder
from taut.solver.methods.strategy_choice import options_of, rounded_off
from taut.solver.program.cbc import solve_cbc
from taut.solver.program.checked import ProgramResult
from taut.solver.program.cp_sat import solve_cpsat
from taut.solver.result import Status
from tests.support.blocks import blocks
from tests.support.flat_rings import option_optimum
from tests.support.instances import random_problem

pytestmark = pytest.mark.proof

SEEDS = range(200)
MEMORY = [1.0, 0.8, 0.6]
"""Shares of the drawn memory; the smaller, the more problems are infeasible."""
MOST_CANDIDATES = 12
MOST_COLUMNS = 1500


def with_memory(given: PlanningProblem, share: float) -> PlanningProblem:
    """The problem with a share of every device's memory."""
    groups = []
    for group in given.cluster.nodes:
        device = group.device.model_copy(update={"memory_gib": share * group.device.memory_gib})
        groups.append(group.model_copy(update={"device": device}))
    return replace(given, cluster=given.cluster.model_copy(update={"nodes": groups}))


def every_option(given: PlanningProblem) -> list[Option]:
    """Every candidate as the fast search sees it."""
    ladder = Ladder(given)
    return [option for candidate in given.candidates for option in options_of(ladder, candidate)]


def small_programs(seeds: range, share: float) -> Iterator[tuple[int, PlanningProblem, StrategyProgram]]:
    """Seed, problem and program of the random problems that are small enough."""
    for seed in seeds:
        given = small_problem(seed)
        if given is not None:
            program = program_of(seed, share)
            if len(program.upper) <= MOST_COLUMNS:
                yield seed, given, program


@cache
def small_problem(seed: int) -> PlanningProblem | None:
    """A random problem with few candidates; None where it has many, or none."""
    given = random_problem(seed)
    return given if 0 < len(given.candidates) <= MOST_CANDIDATES else None


@cache
def program_of(seed: int, share: float) -> StrategyProgram:
    """The program of a small problem with a share of its memory."""
    given = small_problem(seed)
    assert given is not None
    return strategy_program(every_option(with_memory(given, share)))


def fast_optimum(program: StrategyProgram) -> float:
    """Least seconds by the fast partition of every candidate, infinite if none has room."""
    return min(option_optimum(option) for option in program.options)


def check_result(program: StrategyProgram, result: ProgramResult, best: float, seed: int) -> None:
    """Infeasible together, or optima that differ by less than a nanosecond for each price of the choice."""
    if np.isinf(best):
        assert (result.status, result.choice, result.objective_ns) == (Status.INFEASIBLE, None, None), seed
        return
    assert result.status is Status.OPTIMAL, seed
    assert result.choice is not None
    assert result.objective_ns is not None
    assert result.objective_ns == result.lower_bound_ns, seed
    chosen = program.options[result.choice.candidate].partition
    lost = best - result.objective_ns / NANOSECONDS_PER_SECOND
    assert -ROUNDING * best <= lost < rounded_off(chosen) + ROUNDING * best, seed


@pytest.mark.parametrize("share", MEMORY)
@pytest.mark.parametrize("block", blocks(10, first=5))
def test_backends_agree_with_the_fast_search_of_every_candidate(block: int, share: float) -> None:
    """CP-SAT and CBC prove the least partition over all candidates, or that none has room."""
    for seed, _, program in small_programs(SEEDS[block * 20 : block * 20 + 20], share):
        best = fast_optimum(program)
        exact, floating = solve_cpsat(program), solve_cbc(program)
        check_result(program, exact, best, seed)
        check_result(program, floating, best, seed)
        assert exact.objective_ns == floating.objective_ns, seed


def test_problems_are_many_and_unlike() -> None:
    """The problems above are feasible and infeasible, of every latency model, of two classes, and calibrated."""
    drawn = [found for share in MEMORY for found in small_programs(SEEDS, share)]
    best = [fast_optimum(program) for _, _, program in drawn]
    assert len({seed for seed, _, _ in drawn}) >= 25
    assert np.isinf(best).sum() >= 10
    assert np.isfinite(best).sum() >= 25
    assert {given.latency_model for _, given, _ in drawn} == set(LATENCY_MODELS)
    assert sum(any(option.partition.slow_groups for option in program.options) for _, _, program in drawn) >= 10
    assert sum(given.calibration is not None for _, given, _ in drawn) >= 10
