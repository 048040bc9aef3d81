"""CP-SAT and CBC against each other, against the fast partition, and against enumeration."""

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest

from taut.data.arrays import Floats, Ints
from taut.data.costs import RECOMPUTE
from taut.errors import FormulationError, SolverError
from taut.formulations.partition import PartitionProblem
from taut.formulations.program.program import Option, StrategyChoice, StrategyProgram, nanoseconds, strategy_program
from taut.formulations.space import Candidate
from taut.formulations.strategy import Division
from taut.solver.branch_and_bound.stop import Progress
from taut.solver.layer_division.divide import solve_partition
from taut.solver.program.cbc import solve_cbc
from taut.solver.program.checked import ProgramResult, checked_result
from taut.solver.program.cp_sat import solve_cpsat
from taut.solver.result import Status

pytestmark = pytest.mark.proof

SEEDS = range(160)
BACKENDS = [solve_cpsat, solve_cbc]


def ranges(by_layer: Ints) -> Ints:
    """Sum over the layers of every range [i, j), for each row of ``by_layer`` (..., L)."""
    none = np.zeros((*by_layer.shape[:-1], 1), dtype=np.int64)
    before = np.concatenate([none, np.cumsum(by_layer, axis=-1)], axis=-1)
    return np.asarray(np.maximum(before[..., None, :] - before[..., :, None], 0))


def seconds(count: Ints) -> Floats:
    """Nanoseconds as seconds that are not below them."""
    return np.asarray(np.nextafter(count / 1e9, np.inf))


def random_option(rng: np.random.Generator) -> Option:
    """A candidate with integer nanoseconds of any magnitude up to a second, unequal recomputes and tight memory."""
    layers = int(rng.integers(1, 6))
    pp, m, dp = int(rng.integers(1, min(3, layers) + 1)), int(rng.integers(1, 9)), int(rng.integers(1, 4))
    scale = int(10 ** rng.uniform(0.5, 9))
    fast, slow = seconds(ranges(rng.integers(1, scale + 1, (2, 3, layers))))
    banned = rng.random(3) < 0.2
    banned[rng.integers(3)] = False
    fast, slow = (np.where(banned[:, None, None], np.inf, each) for each in (fast, slow))
    two = rng.random() < 0.4
    # Bytes are small, or gibibytes, where a KiB is far below a solver's relative tolerance.
    unit = int(rng.choice([1, 1_000_003]))
    fixed = unit * (ranges(rng.integers(0, 5000, (3, layers))) + int(rng.integers(0, 2000)))
    activation = unit * ranges(rng.integers(0, 3000, (3, layers)))
    budget = np.ceil(unit * 5000 * layers / pp * rng.uniform(0.1, 1.6, 3 if two else 1) / 1024).astype(np.int64) * 1024
    problem = PartitionProblem(
        pp=pp,
        dp=dp,
        micro_batches=m,
        low=np.stack([fast, slow, np.minimum(fast, slow)]) if two else fast[None],
        high=np.stack([fast, slow, np.maximum(fast, slow)]) if two else fast[None],
        fixed=fixed,
        activation=activation,
        in_flight=np.minimum(np.arange(pp, 0, -1), m) if rng.random() < 0.7 else np.full(pp, m),
        budget=budget,
        gradients=ranges(np.ones(layers, dtype=np.int64)).astype(float),
        slow_groups=int(rng.integers(0, dp * pp + 1)) if two else 0,
    )
    if two and pp > 1:
        problem = problem.with_mixed(2, 1)
    edge, tail = seconds(rng.integers(0, scale, (2, layers + 1)))
    if rng.random() < 0.1:
        edge[rng.integers(layers + 1)] = np.inf
    return Option(Candidate(pp, 1, dp, 1, 1, m, "1f1b", 0, False), problem, edge, tail)


def random_options(seed: int) -> list[Option]:
    """One to four candidates."""
    rng = np.random.default_rng(seed)
    return [random_option(rng) for _ in range(int(rng.integers(1, 5)))]


def rounded(option: Option) -> Option:
    """The option with whole nanoseconds in place of seconds; sums of them are exact in floats."""

    def whole(array: Floats) -> Floats:
        return np.where(np.isfinite(array), nanoseconds(np.where(np.isfinite(array), array, 0.0)), np.inf)

    partition = option.partition
    priced = replace(partition, low=whole(partition.low), high=whole(partition.high))
    return Option(option.candidate, priced, whole(option.edge), whole(option.tail))


def fast_optimum(options: list[Option]) -> float:
    """Least cost by the fast partition of every candidate, in the unit of the options."""
    return min(solve_partition(option.partition, option.edge, option.tail).seconds for option in options)


def enumerated(program: StrategyProgram) -> int | None:
    """Least cost over every division, recompute and pattern of every candidate; None if nothing is feasible."""
    costs = []
    for c, option in enumerate(program.options):
        pp, layers = option.partition.pp, option.partition.num_layers
        for inner in combinations(range(1, layers), pp - 1):
            for recompute in product(RECOMPUTE, repeat=pp):
                for patterns in product(range(len(option.partition.budget)), repeat=pp):
                    made = StrategyChoice(
                        candidate=c,
                        division=Division(tuple(zip((0, *inner), (*inner, layers), strict=True)), recompute),
                        patterns=patterns,
                    )
                    if not program.violations(made):
                        costs.append(program.cost(made))
    return min(costs, default=None)


def uneven(layers: int, pp: int) -> StrategyProgram:
    """One candidate whose layers differ so that the search takes a moment."""
    rng = np.random.default_rng(7)
    time = seconds(ranges(rng.integers(10**6, 10**8, (3, layers))))[None]
    nothing = np.zeros((3, layers + 1, layers + 1), dtype=np.int64)
    problem = PartitionProblem(
        pp=pp,
        dp=1,
        micro_batches=64,
        low=time,
        high=time,
        fixed=nothing,
        activation=nothing,
        in_flight=np.ones(pp, dtype=np.int64),
        budget=np.array([1024]),
        gradients=time[0, 0],
        slow_groups=0,
    )
    none = np.zeros(layers + 1)
    return strategy_program([Option(Candidate(pp, 1, 1, 1, 1, 64, "1f1b", 0, False), problem, none, none)])


@pytest.mark.parametrize("seed", SEEDS)
def test_backends_agree_with_the_fast_partition(seed: int) -> None:
    """Both backends prove the fast partition's optimum to the nanosecond, or that nothing is feasible."""
    options = random_options(seed)
    program = strategy_program(options)
    best = fast_optimum([rounded(option) for option in options])
    for solve in BACKENDS:
        result = solve(program)
        if np.isinf(best):
            assert result.status is Status.INFEASIBLE
            assert (result.choice, result.objective_ns, result.lower_bound_ns) == (None, None, None)
        else:
            assert result.status is Status.OPTIMAL
            assert result.objective_ns == result.lower_bound_ns == best
            assert result.choice is not None
            assert program.cost(result.choice) == best
            assert result.objective_ns / 1e9 == pytest.approx(fast_optimum(options), rel=1e-9)


@pytest.mark.parametrize("seed", SEEDS[:40])
def test_fast_partition_agrees_with_enumeration(seed: int) -> None:
    """What the backends are compared with is the least over every choice there is."""
    options = random_options(seed)
    best = fast_optimum([rounded(option) for option in options])
    assert (None if np.isinf(best) else best) == enumerated(strategy_program(options))


def test_instances_are_worth_solving() -> None:
    """A good share of the random instances is infeasible, costs more for lack of memory, or has two classes."""
    drawn = [random_options(seed) for seed in SEEDS]
    best = np.array([fast_optimum(options) for options in drawn])
    roomy = np.array([fast_optimum([_roomy(option) for option in options]) for options in drawn])
    two = [any(option.partition.slow_groups for option in options) for options in drawn]
    assert np.isinf(best).sum() >= 30
    assert (best[np.isfinite(best)] > roomy[np.isfinite(best)]).sum() >= 30
    assert sum(two) >= 50


def _roomy(option: Option) -> Option:
    budget = np.full_like(option.partition.budget, 2**50)
    return option._replace(partition=replace(option.partition, budget=budget))


@pytest.mark.parametrize("solve", BACKENDS)
def test_silent_and_deterministic(solve: Callable[..., ProgramResult], capfd: pytest.CaptureFixture[str]) -> None:
    """The same program and seed give the same choice, and nothing is printed."""
    program = uneven(12, 3)
    first, second = solve(program, seed=5), solve(program, seed=5)
    assert first.choice == second.choice
    assert first.status is Status.OPTIMAL
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("solve", BACKENDS)
def test_progress_ends_at_the_optimum(solve: Callable[..., ProgramResult]) -> None:
    """Progress is told the incumbent in seconds, never below the bound, and last the optimum."""
    seen: list[Progress] = []
    result = solve(uneven(12, 3), progress=seen.append)
    assert result.objective_ns is not None
    assert seen[-1].incumbent == pytest.approx(result.objective_ns / 1e9, rel=1e-12)
    assert all(told.lower_bound <= told.incumbent * (1 + 1e-12) for told in seen)
    assert {told.doing for told in seen} == {result.solver}


@pytest.mark.parametrize("solve", BACKENDS)
def test_time_limit_leaves_a_valid_answer(solve: Callable[..., ProgramResult]) -> None:
    """Stopped early, a backend returns what it has, with a bound that is valid or none."""
    program = uneven(40, 6)
    best = fast_optimum([rounded(option) for option in program.options])
    result = solve(program, time_limit=0.3)
    if result.lower_bound_ns is not None:
        assert result.lower_bound_ns <= best
    if result.objective_ns is not None:
        assert result.objective_ns >= best
    assert (result.choice is None) == (result.status is Status.UNKNOWN)


def test_names_of_the_solvers() -> None:
    """A result names the solver with its version."""
    program = strategy_program(random_options(0))
    assert solve_cpsat(program).solver.startswith("cp-sat 9.")
    assert solve_cbc(program).solver.startswith("cbc via pulp ")


@pytest.mark.parametrize(
    ("status", "claimed", "bound", "words"),
    [
        (Status.OPTIMAL, -1, None, "claims"),
        (Status.OPTIMAL, 1, None, "claims"),
        (Status.FEASIBLE, -1, None, "claims"),
        (Status.FEASIBLE, 0, 1, "claims a bound"),
        (Status.OPTIMAL, 0, -1, "claims a bound"),
    ],
)
def test_wrong_claims_are_refused(status: Status, claimed: int, bound: int | None, words: str) -> None:
    """An objective or a bound that the choice's own cost contradicts by one nanosecond raises SolverError."""
    program = uneven(4, 1)
    best = solve_cpsat(program)
    assert best.objective_ns is not None
    values = np.zeros(len(program.upper))
    values[0] = 1.0
    values[1 + int(np.argmin(program.stages.price))] = 1.0
    with pytest.raises(SolverError, match=words):
        checked_result(
            program,
            status,
            list(values),
            claimed_ns=best.objective_ns + claimed,
            lower_bound_ns=None if bound is None else best.objective_ns + bound,
            solver="a solver",
        )


def test_values_that_are_no_choice_are_refused() -> None:
    """A chosen candidate without stages raises SolverError."""
    program = uneven(4, 1)
    values = [1.0] + [0.0] * (len(program.upper) - 1)
    with pytest.raises(SolverError, match=r"the values are no candidate: .* are wrong, expected 1 in order"):
        checked_result(program, Status.FEASIBLE, values, claimed_ns=None, lower_bound_ns=None, solver="a solver")


def test_numbers_beyond_what_cbc_reads_are_refused() -> None:
    """CBC gets 13 digits, so a price of more is refused rather than rounded; CP-SAT takes it."""
    (option,) = uneven(4, 1).options
    # 20000 seconds are 2e13 nanoseconds.
    program = strategy_program([option._replace(tail=np.full(5, 20_000.0))])
    with pytest.raises(SolverError, match="expected less than 10000000000000"):
        solve_cbc(program)
    assert solve_cpsat(program).status is Status.OPTIMAL
    with pytest.raises(FormulationError, match="outside 0 to 1e"):
        strategy_program([option._replace(tail=np.full(5, 2e6))])
