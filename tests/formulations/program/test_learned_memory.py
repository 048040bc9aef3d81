"""Predicted memory as a constraint: even stages, tabulated bytes, embedded columns."""

from dataclasses import replace

import numpy as np
import pytest

from taut.errors import FormulationError
from taut.formulations.program.learned_memory import (
    PredictedMemory,
    embedded,
    even_option,
    forbidden,
    tabulated,
)
from taut.formulations.program.program import Option, StrategyProgram
from taut.formulations.program.relu import ReluNetwork
from taut.formulations.program.rows import strategy_program
from tests.formulations.program.test_program import choice, option

IDENTITY = ReluNetwork(weights=[np.ones((1, 1))], biases=[np.zeros(1)])


def four_layers() -> Option:
    """Two stages over four layers of 10, 20, 30 and 40 seconds."""
    before = np.cumsum([0.0, 10.0, 20.0, 30.0, 40.0])
    seconds = np.maximum(before[None, :] - before[:, None], 0.0)
    one = option(2, 3, [1])
    nothing = np.zeros((3, 5, 5), dtype=np.int64)
    problem = replace(
        one.partition,
        low=np.stack([seconds] * 3)[None],
        high=np.stack([seconds] * 3)[None],
        fixed=nothing + 10**6,
        activation=nothing + 10**6,
        gradients=seconds,
    )
    return Option(one.candidate, problem, np.zeros(5), np.zeros(5))


def program_of(needs: list[float], budget_kib: int) -> tuple[StrategyProgram, PredictedMemory]:
    """One option for each need in KiB, which a network without hidden layers passes on."""
    features = np.log(1024.0 * np.array(needs))[:, None]
    memory = PredictedMemory(network=IDENTITY, features=features, budget_kib=budget_kib)
    return strategy_program([option(1, 2, [10])] * len(needs)), memory


def test_even_option_leaves_one_choice() -> None:
    """Two of four layers a stage with the recompute asked for, and room whatever they need."""
    even = even_option(four_layers(), "full")
    program = strategy_program([even])
    stages = list(zip(program.stages.stage, program.stages.first, program.stages.end, strict=True))
    assert stages == [(0, 0, 2), (1, 2, 4)]
    assert program.stages.recompute.tolist() == [2, 2]
    # 30 and 70 seconds, and two more micro-batches of the slower.
    assert program.cost(choice(0, [2, 4], ["full"] * 2)) == 240_000_000_000
    assert program.violations(choice(0, [2, 4], ["none"] * 2))
    assert program.violations(choice(0, [1, 4], ["full"] * 2))


def test_even_option_of_uneven_layers_is_refused() -> None:
    """Two stages cannot have as many of three layers each."""
    with pytest.raises(FormulationError, match="2 stages do not divide 3 layers"):
        even_option(option(2, 3, [9]), "none")


def test_tabulated_rows() -> None:
    """KiB are rounded up; what exceeds the budget by a hair is forbidden, what is a hair below it is not."""
    program, memory = program_of([2.999999, 3.000001, 2.5, 1e-300, 1e300], 3)
    # No device has more than 2^50 bytes.
    needs = [3, 4, 3, 1, 2**40]
    assert memory.kib().tolist() == needs
    stated = tabulated(program, memory)
    assert stated.upper[:5].tolist() == [1, 0, 1, 1, 0]
    assert [memory.admits(c) for c in range(5)] == [True, False, True, True, False]
    row = stated.rows[-1]
    assert (row.columns.tolist(), row.coefficients.tolist()) == ([0, 1, 2, 3, 4], needs)
    assert (row.lower, row.upper) == (None, 3)
    assert stated.rows[:-1] == program.rows


def test_embedded_program_keeps_the_program() -> None:
    """The program's own columns stay first and are decoded as before."""
    program, memory = program_of([3.0, 4.0], 3)
    stated, count = embedded(program, memory), len(program.upper)
    # One feature; there are no hidden units.
    assert len(stated.upper) == len(stated.objective) == len(stated.binary) == count + 1
    assert (stated.upper[:count] == program.upper).all()
    assert (stated.objective[count:] == 0).all()
    values = np.zeros(count + 1)
    values[[0, 2]], values[count] = 1.0, 7.0
    assert stated.decode(values) == program.decode(values[:count])


def test_forbidden_candidates_cannot_be_chosen() -> None:
    """A forbidden candidate is bounded by 0, and the given program stays as it is."""
    program, _ = program_of([1.0, 2.0], 3)
    assert forbidden(program, [1]).upper[:2].tolist() == [1, 0]
    assert forbidden(program, []).upper.tolist() == program.upper.tolist()
    assert program.upper[:2].tolist() == [1, 1]


def test_features_of_other_options_are_refused() -> None:
    """There must be a row of features for every option."""
    program, memory = program_of([1.0, 2.0], 3)
    less = replace(memory, features=memory.features[:1])
    for state in (tabulated, embedded):
        with pytest.raises(FormulationError, match="1 rows of features for 2 options"):
            state(program, less)


@pytest.mark.parametrize("budget", [0, 2**40])
def test_budgets_of_no_device_are_refused(budget: int) -> None:
    """A budget is above 0 and below what any device has."""
    program, memory = program_of([1.0], budget)
    with pytest.raises(FormulationError, match=f"budget {budget} KiB, expected above 0 and below 1099511627776"):
        embedded(program, memory)
