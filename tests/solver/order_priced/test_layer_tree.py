"""Trees over the layers of chunks: valid and tight against enumeration, derived again, refused if altered."""

import copy
import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from taut.data.arrays import Floats
from taut.formulations.order_division import ChunkProblem, SlowLinks, pipeline_ends
from taut.formulations.schedules.orders import in_flight_counts, order_of
from taut.formulations.strategy import Division
from taut.solver.order_priced import layer_bounds, layer_tree
from taut.solver.order_priced.bound import order_bound
from taut.solver.order_priced.layer_bounds import (
    Branch,
    LayerPaths,
    least_missing,
    least_value,
    linear_figures,
    linear_paths,
)
from taut.solver.order_priced.layer_tree import LayerTree
from taut.solver.order_priced.master_rows import MasterRows, durations, least_makespan
from taut.solver.order_priced.staircases import Mixture, mix
from taut.solver.order_priced.stated import MOST_LISTED, number_of, stated_missing, stated_seconds
from taut.solver.order_priced.witness import missing_bytes, rederived

TOLERANCE = 1 + 1e-9
CASES = [(2, 2, 4, 7), (2, 2, 8, 9), (2, 3, 4, 9), (3, 2, 6, 9), (2, 4, 6, 10)]


def ranges(layers: Floats) -> Floats:
    """Sums of figures of layers (L,) by range, (L + 1, L + 1)."""
    until = np.append(0.0, layers.cumsum())
    return np.asarray(np.maximum(until[None, :] - until[:, None], 0.0))


def chunk_problem(
    rng: np.random.Generator, p: int, v: int, m: int, layers: int, budget: float, *, differing: int = 0
) -> ChunkProblem:
    """
    A division problem with layers alike but for the first and the last one, and for some behind the first.

    The order is interleaved 1F1B, and with one chunk a device that of ZB-H1.
    """
    kind = "interleaved-1f1b" if v > 1 else "zb-h1"
    every = np.ones(layers)
    tables = []
    for scale in (1.0, 1.1, 0.9, 10.0, 2.0):
        figures = scale * every
        figures[[0, -1]] *= 2 * rng.random(2)
        figures[1 : 1 + differing] *= 2 * rng.random(differing)
        tables.append(ranges(figures))
    forbidden = np.arange(layers + 1)[:, None] >= np.arange(layers + 1)
    passes = np.where(forbidden, np.inf, np.array(tables[:3]))[:, None]
    # The other kinds of recompute are not allowed.
    passes = np.concatenate((passes, np.full((3, 2, layers + 1, layers + 1), np.inf)), axis=1)
    return ChunkProblem(
        order=order_of(kind, p, v, m),
        micro_batches=m,
        counts=in_flight_counts(kind, p, v, m),
        passes=passes,
        edge=np.full(layers + 1, float(rng.choice([0.0, 0.02]))),
        ring=float(rng.choice([0.0, 0.05])),
        optimizer=0.01,
        waits_for_all=True,
        constant=0.5,
        reduced=0.0,
        loads=tables[3],
        activation=np.stack((tables[4], tables[4], tables[4])),
        beside=tables[3] + ranges(3.0 * every),
        always=0.0,
        passing=0.0,
        moments=np.zeros((1, layers)),
        closing=np.zeros(layers),
        losses=np.zeros(layers),
        budget=budget,
    )


def divisions(given: ChunkProblem) -> list[Division]:
    """Every division of the layers."""
    cuts = itertools.combinations(range(1, given.num_layers), given.num_chunks - 1)
    none = np.zeros(given.num_chunks, np.int64)
    return [Division.of_ends(np.array([*cut, given.num_layers]), none) for cut in cuts]


def optimum(given: ChunkProblem) -> float:
    """The least makespan of a division that fits memory."""
    rows = MasterRows(given)
    fitting = [one for one in divisions(given) if (rows.excess(one) <= 0).all()]
    return min((least_makespan(given, one) for one in fitting), default=np.inf)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("budget", [1e6, 130.0, 60.0])
def test_few_divisions_are_priced_one_by_one(seed: int, budget: float) -> None:
    """The least makespan of all that fit is exact, and proven up to a limit; where none fits bytes are missing."""
    rng = np.random.default_rng(seed)
    p, v, m, layers = CASES[seed % len(CASES)]
    given = chunk_problem(rng, p, v, m, layers, budget, differing=seed % 3)
    every, best, rows = divisions(given), optimum(given), MasterRows(given)
    assert number_of(given) == len(every) <= MOST_LISTED
    seconds, found = stated_seconds(given)
    if np.isinf(best):
        assert np.isinf(seconds) and stated_missing(given) == min(rows.excess(one).max() for one in every)
        return
    assert seconds == pytest.approx(best, rel=1e-8) and least_makespan(given, found[0]) == best
    assert len(found) < len(every)
    for limit in (0.9 * best, 1.1 * best):
        proven = stated_seconds(given, limit)[0]
        assert min(limit, best) * (1 - 1e-8) <= proven <= best
        assert rederived(given, {"stated": len(every), "limit_s": limit}) == proven
    assert rederived(given, {"stated": len(every) + 1}) == -np.inf


def test_many_divisions_are_not_listed() -> None:
    """Nor are those whose chunks may choose their recompute."""
    rng = np.random.default_rng(0)
    assert number_of(chunk_problem(rng, 4, 4, 8, 32, 1e6)) == 0
    given = chunk_problem(rng, 2, 2, 4, 7, 1e6)
    assert number_of(replace(given, passes=np.repeat(given.passes[:, :1], 3, axis=1))) == 0


def grown(given: ChunkProblem, limit: float) -> LayerTree:
    """The tree, branched until it stops."""
    tree = LayerTree(given, linear_paths(given), limit, divisions(given)[:1])
    while tree.branch():
        continue
    return tree


@pytest.mark.proof
@pytest.mark.parametrize(("p", "v", "m", "layers"), CASES)
@pytest.mark.parametrize("budget", [1e6, 130.0])
def test_trees_bound_all_divisions_closely(p: int, v: int, m: int, layers: int, budget: float) -> None:
    """Random ends, links and reductions, with memory to spare and without: at most the optimum, and near it."""
    rng = np.random.default_rng((p, v, m, layers))
    for _ in range(6):
        given = chunk_problem(rng, p, v, m, layers, budget)
        exact = optimum(given)
        limit = 1.1 * min(exact, 1e3)
        tree = grown(given, limit)
        proven = rederived(given, json.loads(json.dumps(tree.witness())))
        assert tree.seconds <= limit
        assert proven == pytest.approx(tree.seconds, rel=1e-8)
        assert proven <= min(exact, limit) * TOLERANCE
        assert tree.seconds >= exact * (1 - 5e-3) or budget < 1e6


@pytest.mark.proof
@pytest.mark.parametrize(("p", "v", "m", "layers"), CASES)
@pytest.mark.parametrize("budget", [1e6, 130.0])
def test_trees_of_unlike_layers_bound_all_divisions_closely(
    p: int, v: int, m: int, layers: int, budget: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Layers that differ everywhere, or take turns: at most the optimum, and near it."""
    monkeypatch.setattr(layer_bounds, "MOST_DIFFERING", 0)
    rng = np.random.default_rng((p, v, m, layers, 1))
    for seed in range(3):
        given = chunk_problem(rng, p, v, m, layers, budget, differing=layers - 2)
        if seed % 2:
            given = in_turns(given, 2, float(rng.uniform(0.2, 3)))
        assert [paths.lines.beyond is not None for paths in linear_paths(given)] == [True]
        exact = optimum(given)
        limit = 1.1 * min(exact, 1e3)
        tree = grown(given, limit)
        proven = rederived(given, json.loads(json.dumps(tree.witness())))
        assert proven == pytest.approx(tree.seconds, rel=1e-8)
        assert proven <= min(exact, limit) * TOLERANCE
        assert tree.seconds >= exact * (1 - 2e-2) or budget < 1e6


@pytest.mark.proof
def test_without_the_least_beside_a_line_trees_are_above_the_optimum(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equation (7) is needed: with 0 in its place some tree of unlike layers is above the optimum."""
    monkeypatch.setattr(layer_bounds, "MOST_DIFFERING", 0)
    monkeypatch.setattr(LayerPaths, "beside", lambda *_: np.zeros(1))
    rng, above = np.random.default_rng(3), 0
    for _ in range(6):
        given = in_turns(chunk_problem(rng, 2, 2, 4, 7, 1e6, differing=5), 2, 3.0)
        exact = optimum(given)
        above += grown(given, 1.1 * exact).seconds > exact * TOLERANCE
    assert above


@pytest.mark.parametrize("budget", [1e6, 130.0, 110.0])
def test_a_brief_bound_of_unlike_layers_leaves_out_no_proof(budget: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most the optimum, derived again; where (1) to (3) are left out they do not reach the limit; each occurs."""
    monkeypatch.setattr(layer_bounds, "MOST_DIFFERING", 0)
    rng, briefs, reached = np.random.default_rng(7), 0, 0
    for seed in range(24):
        given = in_turns(
            chunk_problem(rng, *CASES[seed % 2], budget, differing=seed % 4), 2, float(rng.uniform(0.2, 3))
        )
        every, rows, paths = divisions(given), MasterRows(given), linear_paths(given)[0]
        for division in every[::7]:
            assert paths.fits(np.diff(division.ends, prepend=0.0)) == bool((rows.excess(division) <= 0).all())
        exact = optimum(given)
        limit = min(exact, 1e3) * float(rng.choice([0.9, 0.99, 1.0]))
        found = order_bound(given, limit, brief=True)
        assert found.seconds <= exact * TOLERANCE
        if np.isfinite(found.seconds):
            assert rederived(given, json.loads(json.dumps(found.witness))) == pytest.approx(found.seconds, rel=1e-12)
        whole = order_bound(given, limit)
        assert found.brief or found.seconds == whole.seconds
        assert not found.brief or whole.seconds < limit * (1 - 1e-9) or "critical" not in whole.witness
        briefs += found.brief
        reached += found.seconds >= limit * TOLERANCE**-1
    assert reached and (briefs or budget < 1e6)


def in_turns(given: ChunkProblem, every: int, longer: float) -> ChunkProblem:
    """The same problem where one in so many layers takes so many times as long."""
    layers = np.where(np.arange(given.num_layers) % every == 1, longer, 1.0)
    passes = np.array(given.passes)
    passes[:, 0] = np.where(np.isfinite(passes[:, 0]), ranges(layers), np.inf)
    return replace(given, passes=passes)


@pytest.mark.proof
def test_a_lower_limit_leaves_trees_valid() -> None:
    """Trees begun far above the optimum: a lower limit, below the optimum too, keeps the proof and its bound."""
    rng, fewer = np.random.default_rng(5), 0
    for (p, v, m, layers), part, grown_by in itertools.product(CASES, (0.98, 1.0, 1.02), (1, 4)):
        given = chunk_problem(rng, p, v, m, layers, 1e6)
        exact = optimum(given)
        tree = LayerTree(given, linear_paths(given), 2 * exact, divisions(given)[:1])
        for _ in range(grown_by):
            tree.branch()
        before, roots = tree.seconds, [paths.root(tree.limit).most for paths in linear_paths(given)]
        tree.lower(part * exact)
        lowered = [paths.root(tree.limit).most for paths in linear_paths(given)]
        fewer += bool((np.array(lowered) < np.array(roots)).any())
        for _ in range(8):
            proven = rederived(given, json.loads(json.dumps(tree.witness())))
            assert proven == pytest.approx(tree.seconds, rel=1e-8)
            assert min(before, part * exact) <= tree.seconds * TOLERANCE
            assert tree.seconds <= min(exact, part * exact) * TOLERANCE
            if not tree.branch():
                break
    assert fewer > 5


def test_a_solution_without_weights_is_a_leaf_all_the_same() -> None:
    """Where no row binds the leaf is that of one path, and its bound a number."""
    paths, *_ = linear_paths(chunk_problem(np.random.default_rng(0), 2, 2, 4, 8, 1e6))
    case = layer_tree._Case(paths, 10.0)
    answer = case.solve()
    assert answer is not None
    leaf = case.leaf(answer._replace(duals=np.zeros_like(answer.duals)))
    assert leaf == layer_tree._single(paths, 0) and sum(leaf.shares) == 1.0


def depth(node: dict[str, Any]) -> int:
    """Branchings one below another in a tree of a witness."""
    below = [node[name] for name in ("few", "many") if name in node]
    return 1 + max(map(depth, below)) if below else 0


def test_the_device_with_a_layer_more_is_branched_on_first() -> None:
    """Eleven like layers on five devices, one of which has three: as many branchings prove the optimum."""
    given = chunk_problem(np.random.default_rng(0), 5, 2, 10, 11, 1e6)
    tree = LayerTree(given, linear_paths(given), 1e3, [next(iter(divisions(given)))])
    for _ in range(6):
        tree.branch()
    assert tree.seconds == pytest.approx(optimum(given), rel=1e-5)


def test_trees_are_no_deeper_than_a_file_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leaf with the least bound is left where it is as deep as allowed, and the bound is derived again."""
    given = chunk_problem(np.random.default_rng(0), 2, 4, 6, 10, 1e6)
    least = optimum(given)
    whole = depth(grown(given, 1.1 * least).witness()["layers"])
    monkeypatch.setattr("taut.solver.order_priced.layer_tree.MOST_DEEP", whole - 1)
    tree = grown(given, 1.1 * least)
    assert whole > 1 and depth(tree.witness()["layers"]) == whole - 1
    assert rederived(given, json.loads(json.dumps(tree.witness()))) == pytest.approx(tree.seconds, rel=1e-8)


OTHERS = [(2, 2, 4, 8, 2), (2, 2, 2, 7, 0), (2, 1, 5, 7, 0), (3, 1, 4, 8, 3), (2, 3, 4, 9, 1), (3, 2, 3, 8, 2)]


@pytest.mark.proof
@pytest.mark.parametrize(("p", "v", "m", "layers", "differing"), OTHERS)
@pytest.mark.parametrize("budget", [1e6, 160.0])
def test_cases_bound_all_divisions(p: int, v: int, m: int, layers: int, differing: int, budget: float) -> None:
    """Layers that differ behind the first one, as few micro-batches as devices, and ZB-H1, with little memory too."""
    rng = np.random.default_rng((p, v, m, layers, differing))
    for _ in range(6):
        given = chunk_problem(rng, p, v, m, layers, budget, differing=differing)
        exact = optimum(given)
        limit = 1.1 * min(exact, 1e3)
        tree = grown(given, limit)
        proven = rederived(given, json.loads(json.dumps(tree.witness())))
        assert proven == pytest.approx(tree.seconds, rel=1e-8)
        assert proven <= min(exact, limit) * TOLERANCE
        assert tree.seconds >= exact * (1 - 2e-2) or budget < 1e6


def with_moments(given: ChunkProblem, rng: np.random.Generator, differing: int) -> ChunkProblem:
    """The same with bytes that devices hold for a moment, of layers that differ and of all others."""
    moments = np.repeat(5 * rng.random((4, 1)), given.num_layers, axis=1)
    moments[:, : 1 + differing] = 20 * rng.random((4, 1 + differing)) * (rng.random((4, 1 + differing)) < 0.5)
    moments[:, -1] = 20 * rng.random(4)
    losses = np.append(np.zeros(given.num_layers - 1), 10 * rng.random())
    # With the head a gradient is less by its bytes, of whatever layer it is.
    closing = np.maximum(np.maximum.accumulate(moments[-1, ::-1])[::-1] - 10 * rng.random(), 0.0)
    moments[-1, -1] = closing[-1]
    return replace(given, moments=moments, closing=closing, losses=losses, beside=given.beside + ranges(losses))


def excess(given: ChunkProblem, division: Division) -> float:
    """Bytes that the fullest device lacks, with those that it holds for a moment."""
    rows, beyond = MasterRows(given), np.full(len(given.counts), -np.inf)
    np.maximum.at(beyond, [d for d, _ in rows.memory_rows], rows.excess(division))
    return float((beyond + held_for_a_moment(given, division)).max())


def held_for_a_moment(given: ChunkProblem, division: Division) -> Floats:
    """Bytes that devices hold for a moment (p,)."""
    device, found = given.order.device.repeat(division.layers), np.zeros(len(given.counts))
    for d in range(len(found)):
        most, last = given.moments[:, device == d].max(axis=1), given.num_layers - division.layers[-1]
        each = np.append(given.moments[-1, :last][device[:last] == d], given.closing[last] if device[-1] == d else 0.0)
        found[d] = most[:-1].sum() + max(each.max() - given.losses[device == d].sum(), 0.0)
    return found


def refuted_by_moments(number: int, rng: np.random.Generator, scale: float = 1.0) -> tuple[bool, bool]:
    """Whether a problem is refuted with a byte more than the best division needs, and with 2 % less, by them alone."""
    p, v, m, layers, differing = OTHERS[number % len(OTHERS)]
    given = with_moments(chunk_problem(rng, p, v, m, layers, 1e3, differing=differing), rng, differing)
    least = 1e3 + min(excess(given, one) for one in divisions(given))
    wide, tight = replace(given, budget=least + 1e-6), replace(given, budget=0.98 * least)
    without = replace(tight, moments=np.zeros_like(given.moments), closing=np.zeros(layers))
    found = []
    for one in (wide, tight, without):
        cases = linear_paths(one)
        for case in cases:
            case.lines = case.lines._replace(passing=scale * case.lines.passing)
        found.append(all(case.is_refuted(np.inf) for case in cases))
    return found[0], found[1] and not found[2]


@pytest.mark.proof
def test_no_device_holds_less_for_a_moment_than_any_division_has() -> None:
    """Without a case, of 100 problems: none is above the least of all divisions, and half are some device's least."""
    rng, met = np.random.default_rng(0), 0
    for number in range(100):
        p, v, m, layers, differing = OTHERS[number % len(OTHERS)]
        given = with_moments(chunk_problem(rng, p, v, m, layers, 1e3, differing=differing), rng, differing)
        least = np.min([held_for_a_moment(given, one) for one in divisions(given)], axis=0)
        found = layer_bounds.passing_bytes(given, ())
        assert (found <= least * TOLERANCE).all()
        met += bool((found >= least / TOLERANCE)[least > 0].any())
    assert met >= 50


@pytest.mark.proof
def test_what_devices_hold_for_a_moment_refutes_no_division_that_fits() -> None:
    """Of 500 problems none is refuted that has a division which fits, and a third are by nothing else."""
    rng = np.random.default_rng(0)
    found = [refuted_by_moments(k, rng) for k in range(500)]
    assert not any(false for false, _ in found) and sum(alone for _, alone in found) > 500 / 3


@pytest.mark.proof
def test_more_for_a_moment_refutes_a_division_that_fits() -> None:
    """Planted: a tenth more of what devices hold for a moment is noticed."""
    rng = np.random.default_rng(0)
    assert any(refuted_by_moments(k, rng, 1.1)[0] for k in range(100))


@pytest.mark.proof
@pytest.mark.parametrize(("p", "v", "m", "layers"), [(3, 2, 6, 9), (4, 2, 8, 10), (3, 1, 5, 6), (4, 1, 6, 6)])
@pytest.mark.parametrize("hops", [1, 2])
def test_slow_links_lie_after_any_devices(p: int, v: int, m: int, layers: int, hops: int) -> None:
    """Slower transfers after some devices, and one device with a longer reduction: at most the least over all."""
    rng, shares = np.random.default_rng((p, v, m, layers, hops)), list[float]()
    for _ in range(4):
        plain = chunk_problem(rng, p, v, m, layers, 1e6)
        slow = SlowLinks(hops, float(rng.choice([0.1, 1.0])), int(rng.integers(p)), float(rng.choice([0.0, 0.4])))
        given = replace(plain, slow=slow)
        exact = min(
            slowed(given, division, after)
            for division in divisions(given)
            for after in itertools.combinations(range(p - 1), hops)
        )
        tree = grown(given, 1.1 * exact)
        proven = rederived(given, json.loads(json.dumps(tree.witness())))
        assert proven == pytest.approx(tree.seconds, rel=1e-8)
        assert proven <= exact * TOLERANCE
        shares.append(tree.seconds / exact)
    assert np.mean(shares) > 0.95


def slowed(given: ChunkProblem, division: Division, after: tuple[int, ...]) -> float:
    """The makespan of a division with slower transfers after some devices."""
    passes, transfers = durations(given, division)
    transfers = transfers + np.where(np.isin(given.order.device[:-1], after), given.slow.seconds, 0.0)
    ends = pipeline_ends(given.order, passes.reshape(1, -1), transfers[None], given.micro_batches)
    return float(given.seconds(ends, given.device_loads(division)[None])[0])


@pytest.mark.proof
def test_missing_memory_is_what_every_division_lacks() -> None:
    """Budgets too small for any division: the bytes that are proven missing are at most those of the best one."""
    rng, proven = np.random.default_rng(8), 0
    for p, v, m, layers, differing in (*OTHERS, *((*case, 0) for case in CASES)):
        given = chunk_problem(rng, p, v, m, layers, 60.0, differing=differing)
        rows = MasterRows(given)
        lacking = min(float(rows.excess(one).max()) for one in divisions(given))
        found = least_missing(linear_paths(given))
        assert found <= max(np.ceil(lacking), 0.0)
        if found > 0:
            proven += 1
            assert missing_bytes(given, {"missing": found}) == found
            assert missing_bytes(given, {"missing": int(lacking) + 2}) == -np.inf
    assert proven > 5


def test_what_devices_take_bounds_before_any_branch() -> None:
    """Without branches the bound is what the devices' own passes refute; it is valid and derived again."""
    rng = np.random.default_rng(3)
    for p, v, m, layers in CASES:
        given = chunk_problem(rng, p, v, m, layers, 1e6)
        tree = LayerTree(given, linear_paths(given), 1e4, divisions(given)[:1])
        assert not tree.is_branched
        assert 0.7 * optimum(given) < rederived(given, tree.witness()) <= optimum(given)


def test_greedy_choice_is_the_least_over_a_branch() -> None:
    """Random slopes and branches: the least of all whole points, or infinite where there is none."""
    rng, device = np.random.default_rng(4), np.array([0, 1, 0, 1])
    found = []
    for _ in range(300):
        lower, least = rng.integers(0, 3, 4), rng.integers(0, 6, 2)
        branch = Branch(lower, lower + rng.integers(0, 4, 4), least, least + rng.integers(0, 4, 2))
        slope, total = rng.integers(-3, 4, 4).astype(float), int(rng.integers(4, 14))
        points = np.array(list(itertools.product(*(range(a, b + 1) for a, b in zip(lower, branch.upper, strict=True)))))
        sums = np.stack((points[:, 0] + points[:, 2], points[:, 1] + points[:, 3]), axis=1)
        inside = (sums >= branch.least).all(axis=1) & (sums <= branch.most).all(axis=1)
        inside &= points.sum(axis=1) == total
        exact = (points[inside] @ slope + 1.5).min(initial=np.inf)
        found.append(np.isfinite(exact))
        assert least_value(slope, 1.5, branch, device, total) == exact
    assert 0.1 < np.mean(found) < 0.9


def test_other_problems_have_no_tree() -> None:
    """Figures that no line states, two kinds of recompute, or another order."""
    given = chunk_problem(np.random.default_rng(1), 2, 2, 4, 8, 1e6)
    assert len(linear_figures(given)) == 1
    bent, mixed = copy.deepcopy(given), copy.deepcopy(given)
    bent.passes[0, 0, 2, 5] *= 1.01
    mixed.passes[:, 1] = mixed.passes[:, 0]
    other = copy.deepcopy(given)
    object.__setattr__(other, "order", order_of("zb-v", 2, 2, 4))
    for each in (bent, mixed, other):
        assert linear_figures(each) == []


def first_leaf(node: dict[str, Any]) -> dict[str, Any]:
    """A leaf of a stated tree."""
    return first_leaf(node["few"]) if "few" in node else node


def _heavier(witness: dict[str, Any]) -> None:
    leaf = first_leaf(witness["layers"])
    leaf["ends"] = [[[2.0 * one for one in way] for way in each] for each in leaf["ends"]]
    leaf["shares"] = [2.0 * one for one in leaf["shares"]]


def _negative(witness: dict[str, Any]) -> None:
    first_leaf(witness["layers"])["rounds_in"][-1] = -0.5


def _fewer(witness: dict[str, Any]) -> None:
    first_leaf(witness["layers"])["rounds_out"].pop()


def _ragged(witness: dict[str, Any]) -> None:
    first_leaf(witness["layers"])["ends"][0][0].pop()


def _price(witness: dict[str, Any]) -> None:
    first_leaf(witness["layers"])["prices"].append(1.0)


def _nowhere(witness: dict[str, Any]) -> None:
    witness["layers"]["number"] = 99


def _place(witness: dict[str, Any]) -> None:
    witness["layers"]["place"] = "layer"


def _other_split(witness: dict[str, Any]) -> None:
    witness["layers"]["layers"] += 2


def _one_side(witness: dict[str, Any]) -> None:
    witness["layers"]["many"] = witness["layers"]["few"]


def _limit(witness: dict[str, Any]) -> None:
    witness["limit_s"] *= 0.5


TAMPERED = [_heavier, _negative, _fewer, _ragged, _price, _nowhere, _place, _other_split, _one_side, _limit]


@pytest.mark.parametrize("tamper", TAMPERED)
def test_altered_trees_prove_less(tamper: Callable[[dict[str, Any]], None]) -> None:
    """Numbers that are no mixture prove nothing; another split or limit proves no more than is true."""
    given = chunk_problem(np.random.default_rng(8), 2, 3, 6, 11, 1e6)
    exact = optimum(given)
    tree = grown(given, exact * 1.02)
    witness = json.loads(json.dumps(tree.witness()))
    assert "few" in witness["layers"] and rederived(given, witness) > 0.99 * exact
    tamper(witness)
    assert rederived(given, witness) < tree.seconds * (1 - 1e-9)
    assert rederived(given, witness) <= exact


def test_planted_longer_rounds_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mixture that counts a pass too many breaks the comparison with enumeration."""

    def wrong(*given: Any) -> Mixture:
        found = mix(*given)
        return found._replace(forward=found.forward * 1.2)

    given = chunk_problem(np.random.default_rng(9), 2, 2, 4, 8, 1e6)
    exact = optimum(given)
    monkeypatch.setattr("taut.solver.order_priced.layer_bounds.mix", wrong)
    assert grown(given, 2 * exact).seconds > exact * TOLERANCE
