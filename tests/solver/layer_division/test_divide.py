"""Exact partition against enumeration of every division, recompute and pattern."""

from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest

from taut.formulations.partition import NO_CROSSING, Crossing, LaterStages, PartitionProblem, partition_problem
from taut.solver.layer_division import labels
from taut.solver.layer_division.divide import Partition, Passed, solve_partition
from taut.solver.layer_division.memory_excess import least_excess
from tests.support.blocks import blocks
from tests.support.small import candidate, cluster, costs, model, problem

pytestmark = pytest.mark.proof


def random_partition(seed: int, *, most: int = 5) -> tuple[PartitionProblem, np.ndarray, np.ndarray, float]:
    """A problem with additive times, tight memory, one or two classes of device, and its edge, tail, cap."""
    rng = np.random.default_rng(seed)
    layers, pp, dp = int(rng.integers(2, most + 1)), int(rng.integers(1, most - 1)), int(rng.integers(1, 4))
    pp = min(pp, layers)
    patterns = 3 if rng.random() < 0.4 else 1
    per_layer = rng.integers(1, 20, layers).astype(float)
    sums = np.concatenate([[0.0], np.cumsum(per_layer)])
    base = np.maximum(sums[None, :] - sums[:, None], 0.0)
    seconds = np.stack([base, base * 1.25, base * 1.5])
    slow = seconds * float(rng.choice([1.5, 2.0]))
    low = np.stack([seconds, slow, np.minimum(seconds, slow)]) if patterns == 3 else seconds[None]
    high = np.stack([seconds, slow, np.maximum(seconds, slow)]) if patterns == 3 else seconds[None]
    activation = np.stack([base * 10, base * 5, base * 2]).astype(np.int64)
    fixed = np.stack([base * 7] * 3).astype(np.int64)
    m = int(rng.integers(1, 7))
    budget = rng.integers(int(base[0, -1] * 2), int(base[0, -1] * 15) + 2, patterns)
    return (
        PartitionProblem(
            pp=pp,
            dp=dp,
            micro_batches=m,
            low=low,
            high=high,
            fixed=fixed,
            activation=activation,
            in_flight=np.minimum(np.arange(pp, 0, -1), m).astype(np.int64),
            budget=budget.astype(np.int64),
            gradients=base.copy(),
            slow_groups=int(rng.integers(0, pp * dp + 1)) if patterns == 3 else 0,
            more_slow_groups=int(rng.integers(0, 3)) if patterns == 3 else 0,
        ),
        rng.uniform(0, 5, layers + 1),
        rng.uniform(0, 20, layers + 1),
        float(rng.choice([np.inf, per_layer.max() * 2])),
    )


def enumerated(
    given: PartitionProblem, edge: np.ndarray, tail: np.ndarray, cap: float, crossing: Crossing = NO_CROSSING
) -> float:
    """Least seconds over everything, by equations (1) to (6) of the formulation."""
    best, layers, pp = np.inf, given.num_layers, given.pp
    for inner in combinations(range(1, layers), pp - 1):
        ends = (*inner, layers)
        firsts = (0, *inner)
        if any(given.gradients[i, j] > cap for i, j in zip(firsts, ends, strict=True)):
            continue
        for choice in product(range(3), range(given.low.shape[0]), repeat=pp):
            recompute, patterns = choice[::2], choice[1::2]
            if not _feasible(given, firsts, ends, recompute, patterns):
                continue
            at = list(zip(patterns, recompute, firsts, ends, strict=True))
            total = min(sum(given.low[index] for index in way) for way in one_slow(at))
            straggler = max(given.high[index] for index in at)
            total += (given.micro_batches - 1) * straggler + sum(edge[end] for end in inner) + tail[ends[0]]
            total += crossing.whole if _crosses(patterns) else 0.0
            best = min(best, float(total))
    return best


def _crosses(patterns: tuple[int, ...]) -> bool:
    """Whether some stages are all fast and others all slow."""
    return {0, 1} <= set(patterns)


Index = tuple[int, int, int, int]


def one_slow(at: list[Index]) -> list[list[Index]]:
    """The stages with one of the mixed ones, in turn, on the slow class, (5); a single stage as it is."""
    mixed = [x for x, index in enumerate(at) if index[0] == 2 and len(at) > 1]
    return [[(1, *index[1:]) if x == slow else index for x, index in enumerate(at)] for slow in mixed] or [at]


def _feasible(
    given: PartitionProblem,
    firsts: tuple[int, ...],
    ends: tuple[int, ...],
    recompute: tuple[int, ...],
    patterns: tuple[int, ...],
) -> bool:
    for x, (i, j, r, q) in enumerate(zip(firsts, ends, recompute, patterns, strict=True)):
        if given.fixed[r, i, j] + given.in_flight[x] * given.activation[r, i, j] > given.budget[q]:
            return False
    if given.low.shape[0] == 1:
        return True
    slow, mixed = patterns.count(1), patterns.count(2)
    least, most = given.dp * slow + mixed, given.dp * slow + (given.dp - 1) * mixed
    return any(least <= n <= most for n in range(given.slow_groups, given.slow_groups + given.more_slow_groups + 1))


@pytest.mark.parametrize("block", blocks(10, first=4))
def test_partition_is_exact_on_random_instances(block: int) -> None:
    """Dynamic programming equals enumeration, infeasible instances included, and its choice attains its value."""
    for seed in range(block * 20, block * 20 + 20):
        given, edge, tail, cap = random_partition(seed)
        found = solve_partition(given, edge, tail, gradient_cap=cap)
        wanted = enumerated(given, edge, tail, cap)
        assert found.seconds == pytest.approx(wanted, rel=1e-12), seed
        assert found.feasible == np.isfinite(wanted)


@pytest.mark.parametrize("block", range(4))
def test_partition_whose_pipelines_cross_between_classes(block: int) -> None:
    """With a hop between classes it equals enumeration for stage 0, and where all stages wait is rarely less."""
    crossed, instances, equal = 0, 0, 0
    for seed in range(block * 100, block * 100 + 100):
        given, edge, tail, cap = random_partition(seed)
        if given.low.shape[0] == 1:
            continue
        whole = float(np.random.default_rng(seed).uniform(1, 60))
        crossing = Crossing(whole, whole * 0.4)
        found = solve_partition(given, edge, tail, crossing=crossing, gradient_cap=cap)
        assert found.seconds == pytest.approx(enumerated(given, edge, tail, cap, crossing), rel=1e-12), seed
        given, later = random_later(seed, given)
        edge = np.maximum(edge, later.edge)
        found = solve_partition(given, edge, tail, later=later, crossing=crossing)
        wanted = enumerated_later(given, edge, tail, later, crossing)
        assert found.seconds <= wanted * (1 + 1e-12), seed
        crossed += _crosses(found.patterns)
        instances, equal = instances + 1, equal + (found.seconds == pytest.approx(wanted, rel=1e-12))
    assert crossed > 0 and equal >= 0.9 * instances


def random_later(seed: int, given: PartitionProblem) -> tuple[PartitionProblem, LaterStages]:
    """The problem with forward seconds, and what its later stages wait for: reductions of every size, an optimizer."""
    rng = np.random.default_rng(seed + 10**6)
    forward = given.low.min(axis=1) * rng.uniform(0.2, 0.5)
    per_layer = rng.integers(1, 20, given.num_layers).astype(float)
    sums = np.concatenate([[0.0], np.cumsum(per_layer)])
    parameters = np.maximum(sums[None, :] - sums[:, None], 0.0)
    ring = rng.choice([0.1, 1.0, 10.0]) * rng.uniform(0.5, 1.0, given.pp)
    later = LaterStages(
        edge=rng.uniform(0, 3, given.num_layers + 1),
        ring=ring,
        exchanged=parameters,
        unhidden=np.minimum(parameters, 5.0),
        overlap=bool(rng.random() < 0.5) and given.low.shape[0] == 1,
        others=float(rng.uniform(0, 5)),
        parameters=parameters,
        optimizer=float(rng.choice([0.0, 0.01, 2.0])),
        each=rng.uniform(0, 5, given.pp) * rng.integers(0, 2, given.pp),
    )
    return replace(given, forward=forward), later


def enumerated_later(
    given: PartitionProblem, edge: np.ndarray, tail: np.ndarray, later: LaterStages, crossing: Crossing = NO_CROSSING
) -> float:
    """Least seconds over everything, by equations (1'), (5) and (6) of the formulation."""
    best, layers, pp = np.inf, given.num_layers, given.pp
    assert given.forward is not None
    for inner in combinations(range(1, layers), pp - 1):
        ends, firsts = (*inner, layers), (0, *inner)
        for choice in product(range(3), range(given.low.shape[0]), repeat=pp):
            recompute, patterns = choice[::2], choice[1::2]
            if not _feasible(given, firsts, ends, recompute, patterns):
                continue
            at = list(zip(patterns, recompute, firsts, ends, strict=True))
            straggler = max(given.high[index] for index in at)
            largest = max(later.parameters[i, j] for i, j in zip(firsts, ends, strict=True))
            hops = _crossing_of(patterns, crossing)
            waited = min(_longest_wait(given, edge, tail, later, way, hops) for way in one_slow(at))
            best = min(best, float((given.micro_batches - 1) * straggler + waited + later.optimizer * largest))
    return best


def _crossing_of(patterns: tuple[int, ...], crossing: Crossing) -> list[float]:
    """What the hop between classes adds for every stage that is waited for, (6)."""
    if not _crosses(patterns):
        return [0.0] * len(patterns)
    first, second = sorted([patterns.index(0), patterns.index(1)])
    behind = patterns.count(2) == 1 and patterns[first] == 1
    either = [x >= second or (x > first and patterns[x] == 2 and not behind) for x in range(len(patterns))]
    return [crossing.before if one else crossing.whole for one in either]


def _longest_wait(
    given: PartitionProblem,
    edge: np.ndarray,
    tail: np.ndarray,
    later: LaterStages,
    at: list[Index],
    hops: list[float],
) -> float:
    assert given.forward is not None
    ends = [j for _, _, _, j in at]
    low = np.array([given.low[index] for index in at]) + np.array([edge[end] for end in ends[:-1]] + [0.0])
    ahead = np.array([given.forward[q, i, j] for q, _, i, j in at])
    waits = [low.sum() + tail[ends[0]] + hops[0]]
    for x, index in enumerate(at):
        q, _, i, j = index
        whole = later.ring[x] * later.exchanged[i, j]
        hidden = whole - given.low[index] + given.forward[q, i, j]
        wait = max(later.ring[x] * later.unhidden[i, j], hidden) if later.overlap else whole
        before = (ahead[:x] + [later.edge[end] for end in ends[:x]]).sum()
        waits.append(before + low[x:].sum() + wait + later.each[x] + later.others + hops[x])
    return float(max(waits))


@pytest.mark.parametrize("block", blocks(10, first=4))
def test_partition_that_waits_for_every_stage_is_exact(block: int) -> None:
    """With reductions of later stages, their overlap and the largest optimizer it equals enumeration as well."""
    for seed in range(block * 40, block * 40 + 40):
        given, edge, tail, _ = random_partition(seed)
        given, later = random_later(seed, given)
        edge = np.maximum(edge, later.edge)
        found, wanted = solve_partition(given, edge, tail, later=later), enumerated_later(given, edge, tail, later)
        assert found.seconds == pytest.approx(wanted, rel=1e-12), seed
        assert found.feasible == np.isfinite(wanted)


def test_merged_labels_bound_what_all_labels_find(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one or three labels a state no division takes less, infeasible instances included; three are close."""

    def solved(most: int) -> Partition:
        monkeypatch.setattr(labels, "MOST_LABELS", most)
        return solve_partition(given, edge, tail, later=later)

    lost, feasible = np.zeros(2), 0
    for seed in range(300):
        given, edge, tail, _ = random_partition(seed, most=14)
        given, later = random_later(seed, given)
        edge = np.maximum(edge, later.edge)
        exact = solved(64)
        feasible += exact.feasible
        for number in (1, 3):
            found = solved(number)
            assert found.feasible == exact.feasible, seed
            assert found.seconds <= exact.seconds * (1 + 1e-12), seed
            lost[number // 2] += exact.seconds / found.seconds - 1 if exact.feasible else 0.0
    assert 0 < lost[1] < lost[0] / 20 and 50 < feasible < 300


def test_random_instances_include_infeasible_ones() -> None:
    """The random instances above are a fair mix."""
    feasible = [solve_partition(*random_partition(seed)[:3]).feasible for seed in range(200)]
    assert 20 < sum(feasible) < 180


def test_even_layers_divide_evenly() -> None:
    """Four equal layers on two stages: two and two, 12 + 7 x 6 seconds."""
    given = partition_problem(problem(cluster(2, 1)), candidate(2, 1, 1))
    found = solve_partition(given, np.zeros(5), np.zeros(5))
    assert found.division.stages == ((0, 2), (2, 4))
    assert found.seconds == pytest.approx(54.0)
    assert found.division.recompute == ("none", "none")


def test_unlike_layers_are_balanced_by_time_not_number() -> None:
    """Layers of 9, 3, 9, 3 seconds on two stages: 12 + 12; on three 9 + 12 + 3."""
    spec = model(4, unlike=True)
    given = problem(cluster(6, 1), spec, table=costs(spec, seconds={"wide": 3.0}), global_batch=24)
    two = solve_partition(partition_problem(given, candidate(2, 1, 3)), np.zeros(5), np.zeros(5))
    three = solve_partition(partition_problem(given, candidate(3, 1, 2)), np.zeros(5), np.zeros(5))
    assert two.division.stages == ((0, 2), (2, 4))
    assert three.seconds == pytest.approx(24 + 7 * 12)


def test_tight_memory_forces_recompute_where_it_is_needed() -> None:
    """With 3,600 bytes beside messages stage 0 (4,000, or 2,000 and 500) recomputes, stage 1 (2,000) does not."""
    states = 2 * (12 * 64 * 64 + 13 * 64) * 18
    buffers = 2 * 12_800
    gib = (states + buffers + 3_600) / 2**30
    given = problem(cluster(2, 1, memory_gib=gib), max_tp=1)
    found = solve_partition(partition_problem(given, candidate(2, 1, 1)), np.zeros(5), np.zeros(5))
    assert found.division.recompute == ("selective", "none")


def test_least_excess_is_the_missing_memory_of_the_best_division() -> None:
    """Least over divisions and recompute of the worst stage's excess; zero where one fits."""
    for seed in range(60):
        given, edge, tail, _ = random_partition(seed)
        if given.low.shape[0] > 1:
            continue
        excess, stage = least_excess(given)
        assert (excess == 0) == solve_partition(given, edge, tail).feasible
        if excess:
            assert excess == _least_excess(given)
            assert 0 <= stage < given.pp


def _least_excess(given: PartitionProblem) -> int:
    best = None
    for inner in combinations(range(1, given.num_layers), given.pp - 1):
        stages = list(zip((0, *inner), (*inner, given.num_layers), strict=True))
        worst = max(
            min(
                int(given.fixed[r, i, j] + given.in_flight[x] * given.activation[r, i, j] - given.budget[0])
                for r in range(3)
            )
            for x, (i, j) in enumerate(stages)
        )
        best = worst if best is None else min(best, worst)
    assert best is not None
    return best


def test_one_pipeline_has_its_share_of_the_slow_blocks() -> None:
    """Five slow blocks of eight on two pipelines of four stages: one has three of 2 s, and 9 x 2 s of waiting."""
    sums = np.arange(5.0)
    base = np.maximum(sums[None, :] - sums[:, None], 0.0)[None]
    seconds, nothing = np.stack([base, 2 * base, base]), np.zeros((1, 5, 5), np.int64)
    given = PartitionProblem(
        pp=4,
        dp=2,
        micro_batches=10,
        low=seconds,
        high=np.stack([base, 2 * base, 2 * base]),
        fixed=nothing,
        activation=nothing,
        in_flight=np.ones(4, np.int64),
        budget=np.ones(3, np.int64),
        gradients=base[0],
        slow_groups=5,
    )
    whole = solve_partition(given, np.zeros(5), np.zeros(5)).seconds
    passed, crossing = Passed(3, 4), Crossing(0.5, 0.25)
    one = solve_partition(given, np.zeros(5), np.zeros(5), crossing=crossing, passed=passed).seconds
    assert (whole, one) == (6.0 + 9 * 2.0, 3 * 2.0 + 1.0 + 9 * 2.0 + 0.5)
