"""The program where a step waits for all stages: three layers by hand, and a price against its definition."""

import numpy as np

from taut.formulations.partition import LaterStages
from taut.formulations.program.program import Option, option_cost, strategy_program
from taut.formulations.strategy import Division
from taut.solver.program.cp_sat import solve_cpsat
from tests.formulations.program.test_program import LAYERS, every_choice, option, ranges, seconds, values_of


def later(pp: int, *, overlap: bool = False, optimizer: float = 0.0) -> LaterStages:
    """A byte a layer over rings of 100 ns a byte, a cut of 1 ns ahead, 2 ns of others."""
    each = ranges([1.0] * LAYERS)
    return LaterStages(
        edge=seconds(np.array([0.0, 1.0, 1.0, 0.0])),
        ring=np.full(pp, float(seconds(np.array(100.0)))),
        exchanged=each,
        unhidden=each / 10,
        overlap=overlap,
        others=float(seconds(np.array(2.0))),
        parameters=each,
        optimizer=float(seconds(np.array(optimizer))),
    )


def waiting(pp: int, micro_batches: int, *, overlap: bool = False, optimizer: float = 0.0) -> Option:
    """The option of ``option`` that waits for all stages; a forward pass is a third of both."""
    one = option(pp, micro_batches, [10] if pp == 1 else [9])
    forward = one.partition.low[:, 0] / 3
    made = later(pp, overlap=overlap, optimizer=optimizer)
    return one._replace(partition=one.partition.__class__(**{**vars(one.partition), "forward": forward}), later=made)


def test_a_step_ends_when_the_last_stage_has_reduced() -> None:
    """
    Two stages, layers [0, 1) and [1, 3), three micro-batches, in nanoseconds.

    Prices: 10 + 4 (cut before layer 1) + 2 (tail) + 50 = 66. Stage 0 reduces at 10 + 4 + 50 + 100 + 2 = 166. Stage 1
    ends its passes earlier by stage 0's backward and its hop's way back: 3 + 1 + 50 + 200 + 2 = 256. The slowest stage
    takes 2 * 50 more: 356.
    """
    two = waiting(2, 3)
    division = Division(((0, 1), (1, 3)), ("none", "none"))
    assert option_cost(two, division, (0, 0)) == 356


def test_the_optimizer_is_that_of_the_largest_stage() -> None:
    """With 7 ns a parameter the larger stage, of two layers, adds 14 ns."""
    division = Division(((0, 1), (1, 3)), ("none", "none"))
    assert option_cost(waiting(2, 3, optimizer=7.0), division, (0, 0)) == 370


def test_columns_and_rows_price_every_choice_as_the_options_do() -> None:
    """With the least Z and O that the rows allow, the objective is the cost of the choice; CP-SAT finds the least."""
    program = strategy_program([waiting(1, 2), waiting(2, 3, overlap=True, optimizer=7.0), option(2, 3, [9])])
    costs = []
    for made in every_choice(program):
        values = values_of(program, made)
        if values is not None and not program.violations(made):
            assert int(values @ program.objective) == program.cost(made)
            costs.append(program.cost(made))
    assert solve_cpsat(program).objective_ns == min(costs)
