"""The staircase of proofs: no bound is above the exact optimum, and no altered witness is accepted."""

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, pairwise, permutations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from taut.data.spec import digest
from taut.formulations.problem import LATENCY_MODELS
from taut.solver.bestlinks import BestLinks
from taut.solver.certificate import plan_document
from taut.solver.cliques import clique_sets, least_slowest_link
from taut.solver.cover import Cover
from taut.solver.covered import CoverCache, Covering, cover_bound, has_cover, witness_of, witnessed
from taut.solver.enumerate import enumerate_candidate
from taut.solver.forest import Potentials, climb, forest_seconds
from taut.solver.partition import Partition
from taut.solver.paths import PathAnnealing
from taut.solver.refutation import Refutation, refuted_seconds
from taut.solver.result import Limits
from taut.solver.search import search
from taut.solver.staircase import Staircase, bound_of
from taut.solver.subset import SubsetSolver
from taut.solver.verify import verify_document
from taut.solver.walks import LongestPath
from tests.small import cluster, costs, model, problem

Floats = NDArray[np.float64]
Document = dict[str, Any]
SHAPES = [(2, 2), (3, 2), (2, 3), (4, 1), (6, 1), (2, 4), (4, 2), (8, 1), (3, 3), (5, 2), (2, 5), (4, 3)]
ROUNDING = 1 + 1e-9


def random_links(seed: int) -> tuple[Floats, Floats, int]:
    """Hops, inverse rates and pp of up to 12 nodes: unlike links, racks, a slow node, ties, all links equal."""
    rng = np.random.default_rng(seed)
    pp, dp = SHAPES[seed % len(SHAPES)]
    n = pp * dp
    rate = np.exp(rng.normal(0, 0.4, (n, n)))
    kind = seed // len(SHAPES) % 5
    if kind == 1:
        rack = rng.integers(0, 2, n)
        rate *= np.where(np.equal.outer(rack, rack), 1.0, 0.25)
    elif kind == 2:
        rate[0] *= 0.3
        rate[:, 0] *= 0.3
    elif kind == 3:
        rate = rng.choice([0.5, 1.0, 1.0], (n, n))
    elif kind == 4:
        rate = np.ones((n, n))
    one_way = 1.0 / rate + (rng.uniform(0, 0.5, (n, n)) if rng.random() < 0.3 else 0.0)
    return one_way + one_way.T, np.maximum(1.0 / rate, 1.0 / rate.T), pp


def optimum(hops: Floats, inverse: Floats, pp: int, ring: float) -> float:
    """Exact least of longest path plus ring, by subset dynamic programming."""
    solver = SubsetSolver(hops, np.arange(len(hops)), pp)
    slowest = np.array([_slowest(inverse, tuple(starts)) for starts in solver.start_sets])
    return solver.solve(ring * slowest, most_sets=10**6).seconds


def _slowest(inverse: Floats, nodes: tuple[int, ...]) -> float:
    return max((float(inverse[a, b]) for a, b in combinations(nodes, 2)), default=0.0)


def refined(hops: Floats, inverse: Floats, pp: int, ring: float, target: float) -> Cover:
    cover = Cover(hops=hops, inverse=inverse, pp=pp, ring=ring, target=target, longest=np.inf)
    for _ in range(25):
        if not cover.refine(rounds=10):
            break
    return cover


@pytest.mark.parametrize("block", range(20))
def test_no_staircase_is_above_the_optimum(block: int) -> None:
    """1,020 instances of every shape: the refined bound and the bound derived again are at most the optimum."""
    for seed in range(block * 51, block * 51 + 51):
        hops, inverse, pp = random_links(seed)
        rng = np.random.default_rng((seed, 1))
        ring = float(rng.choice([0.0, 0.3, 1.0, 4.0]))
        exact = optimum(hops, inverse, pp, ring)
        cover = refined(hops, inverse, pp, ring, exact)
        assert cover.value <= exact * ROUNDING, seed
        derived = bound_of(hops, inverse, pp, cover.staircase())
        assert derived is not None, seed
        assert derived.seconds(1.0, np.array([ring]))[0] == pytest.approx(cover.value, rel=1e-12), seed
        # The same staircase bounds every other weight of the ring.
        other = float(rng.uniform(0, 3))
        assert derived.seconds(1.0, np.array([other]))[0] <= optimum(hops, inverse, pp, other) * ROUNDING, seed


def test_the_subset_optimum_is_that_of_all_placements() -> None:
    """The yardstick of these tests against enumeration of all orders of six and eight nodes."""
    for seed in (1, 13, 25, 37, 49, 5):
        hops, inverse, pp = random_links(seed)
        least = min(
            max(sum(hops[a, b] for a, b in pairwise(row)) for row in rows)
            + 0.7 * _slowest(inverse, tuple(row[0] for row in rows))
            for order in permutations(range(len(hops)))
            if (rows := [order[i : i + pp] for i in range(0, len(order), pp)]) and rows[0][0] == min(r[0] for r in rows)
        )
        assert optimum(hops, inverse, pp, 0.7) == pytest.approx(least, rel=1e-12)


def test_equal_links_are_closed_at_once() -> None:
    """Equal links: 2 hops of 2 s and a ring of 1 s; the forest proves 4 s, the cliques the rest."""
    hops, inverse = np.full((18, 18), 2.0), np.ones((18, 18))
    cover = Cover(hops=hops, inverse=inverse, pp=3, ring=1.0, target=5.0, longest=4.0)
    assert cover.value == pytest.approx(5.0, rel=1e-10)
    assert not cover.refine()


def test_two_racks_are_closed() -> None:
    """Two racks of eight nodes, two pipelines of eight that both start in one rack: both must cross."""
    # A hop or ring link takes 1 s in a rack, 4 s between racks. Stage 0 in one rack: 100 x 1 + 6 x 1 + 4 = 110 s;
    # in both: 100 x 4 + 7 x 1 s.
    rack = np.arange(16) // 8
    hops = np.where(np.equal.outer(rack, rack), 1.0, 4.0)
    cover = refined(hops, hops, 8, 100.0, 110.0)
    assert cover.value == pytest.approx(110.0, rel=3e-3)
    assert Cover(hops=hops, inverse=hops, pp=8, ring=100.0, target=110.0, longest=10.0).value <= 107.0 * ROUNDING


def test_any_potentials_give_a_valid_bound() -> None:
    """Random potentials never exceed the exact longest path; climbing is no worse than none."""
    for seed in range(120):
        hops, inverse, pp = random_links(seed)
        exact = optimum(hops, inverse, pp, 0.0)
        rng = np.random.default_rng((seed, 2))
        wild = Potentials(values=tuple(rng.integers(-(1 << 40), 1 << 40, len(hops)).tolist()))
        assert forest_seconds(hops, pp, wild) <= exact * ROUNDING, seed
        none = forest_seconds(hops, pp, Potentials(values=(0,) * len(hops)))
        best, climbed = climb(hops, pp, longest=exact, rounds=200)
        assert none <= best <= exact * ROUNDING, seed
        assert forest_seconds(hops, pp, climbed) == best


def test_any_gains_give_a_valid_bound() -> None:
    """Random gains prove nothing that is not so, whatever set the paths start in."""
    proven = 0
    for seed in range(300):
        hops, _, pp = random_links(seed % 60)
        rng = np.random.default_rng((seed, 3))
        exact = optimum(hops, np.zeros_like(hops), pp, 0.0)
        gains = tuple(np.maximum(rng.normal(1000, 400 if seed % 2 else 5, len(hops)), 0).astype(int).tolist())
        quantum = float(rng.uniform(0.2, 1.3)) * exact / 64
        proof = Refutation(quantum=quantum, levels=int(rng.integers(2, 64)), gains=gains)
        found = refuted_seconds(hops, np.ones(len(hops), dtype=bool), pp, proof)
        assert found <= exact * ROUNDING, seed
        proven += np.isfinite(found)
    assert proven > 20


def test_start_sets_are_respected() -> None:
    """Paths that start in a set: the proven seconds are at most those of the best, by enumeration."""
    for seed in (0, 1, 2, 12, 13, 14, 24, 25, 26, 37, 38):
        hops, _, pp = random_links(seed)
        n = len(hops)
        rng = np.random.default_rng((seed, 4))
        starts = np.zeros(n, dtype=bool)
        starts[rng.choice(n, n // pp + 1 if pp < n else 1, replace=False)] = True
        exact = _from_set(hops, pp, starts)
        path = LongestPath(hops, starts, pp, floor=0.5 * exact, ceiling=np.inf)
        for _ in range(12):
            path.raise_towards(1.5 * exact, rounds=20)
        assert path.seconds <= exact * ROUNDING, seed
        if path.proof is not None:
            assert refuted_seconds(hops, starts, pp, path.proof) == pytest.approx(path.seconds, rel=1e-12)


def _from_set(hops: Floats, pp: int, starts: NDArray[np.bool_]) -> float:
    return min(
        max(sum(float(hops[a, b]) for a, b in pairwise(order[i : i + pp])) for i in range(0, len(order), pp))
        for order in permutations(range(len(hops)))
        if all(starts[order[i]] for i in range(0, len(order), pp))
    )


def test_clique_sets_hold_every_clique() -> None:
    """Every clique of links below a threshold lies in one of the sets, and none is named where there is none."""
    for seed in range(80):
        _, inverse, pp = random_links(seed)
        size = len(inverse) // pp
        below = float(np.quantile(inverse, 0.2 + 0.7 * (seed % 7) / 7))
        sets = clique_sets(inverse, below, size)
        cliques = [c for c in combinations(range(len(inverse)), size) if size == 1 or _slowest(inverse, c) < below]
        assert all(any(part[list(clique)].all() for part in sets) for clique in cliques), seed
        least = min(_slowest(inverse, c) for c in combinations(range(len(inverse)), size))
        assert least_slowest_link(inverse, size) <= least


def test_candidate_bound_is_below_the_enumerated_optimum() -> None:
    """With stages, recompute, gradients and asymmetric links: the bound of a candidate is at most its optimum."""
    checked = 0
    for seed in range(24):
        rng = np.random.default_rng(seed)
        n = 6 if seed % 12 == 7 else 4
        rows = np.exp(rng.normal(-6, 0.8, (n, n)))
        spec = model(int(rng.integers(4, 6)), unlike=bool(seed % 3 == 0))
        table = costs(spec, seconds=dict.fromkeys(spec.kinds, 0.01), optimizer=1e-8)
        nodes = cluster(n, 1, rows=rows.tolist(), latency_us=50.0 * (seed % 2), memory_gib=2e-3)
        given = problem(nodes, spec, table=table, latency_model=LATENCY_MODELS[seed % 2], global_batch=12)
        best = BestLinks(given.links)
        for choice in given.candidates[seed % 3 :: 3]:
            if not has_cover(given, choice):
                continue
            exact = enumerate_candidate(given, choice).seconds
            if not np.isfinite(exact):
                continue
            covering = Covering(given, choice, Partition(seconds=np.inf, stages=((0, 1),)), best, CoverCache())
            while not covering.annealed:
                covering.anneal(0, 1, moves=2000)
            for _ in range(10):
                if not covering.refine(exact):
                    break
            assert covering.lower_bound <= exact * ROUNDING, (seed, choice)
            proven = witnessed(given, choice, json.loads(json.dumps(covering.witness())))
            assert proven is not None
            assert cover_bound(given, choice, best, proven)[0] == pytest.approx(covering.lower_bound, rel=1e-12)
            checked += 1
    assert checked > 40


def test_unlike_devices_have_no_staircase() -> None:
    """The pipeline of the slowest stage need not make the longest trip, so that their sum is no bound."""
    unlike = problem(cluster(4, 1, devices=("a", "b")), table=costs(model(), devices={"a": 1.0, "b": 2.0}))
    assert not any(has_cover(unlike, choice) for choice in unlike.candidates)


def test_annealing_finds_the_optimum_of_small_instances() -> None:
    """The best of the annealed pipelines is at least the optimum, and mostly equal to it."""
    met = 0
    for seed in range(24):
        hops, inverse, pp = random_links(seed)
        start = np.arange(len(hops)).reshape(-1, pp)
        run = PathAnnealing(hops, inverse, 0.5, start, moves=60_000, seed=seed)
        while not run.finished:
            run.advance()
        exact = optimum(hops, inverse, pp, 0.5)
        assert sorted(run.best.ravel().tolist()) == list(range(len(hops)))
        assert run.seconds >= exact / ROUNDING
        met += run.seconds <= exact * ROUNDING
    assert met >= 22


@pytest.fixture(scope="module")
def plan() -> Document:
    """A plan on 18 nodes, beyond the subset dynamic program, whose one candidate carries a staircase."""
    rng = np.random.default_rng(4)
    rows = np.exp(rng.normal(-7.5, 0.5, (18, 18))).tolist()
    spec = model(6)
    table = costs(spec, seconds={"block": 0.01})
    fixed = {"pp": 6, "tp": 1, "zero": 0, "micro_batch": 1, "schedule": "1f1b"}
    given = problem(cluster(18, 1, rows=rows), spec, table=table, global_batch=18, fixed=fixed)
    result = search(given, Limits(work_limit=40, workers=1))
    made: Document = json.loads(json.dumps(plan_document(given, result, Limits(work_limit=40))))
    entry = covered_entry(made)
    kinds = {"gains" if "gains" in proof else "potentials" for proof in entry["witness"]["proofs"]}
    assert "gains" in kinds
    assert len(entry["witness"]["steps"]) > 2
    return made


def covered_entry(made: Document) -> Document:
    entries: list[Document] = made["certificate"]["candidates"]
    return next(entry for entry in entries if entry["source"] == "cover")


def test_a_staircase_in_a_plan_holds(plan: Document) -> None:
    """The document is accepted, its bound derived from the witness, and better than without it."""
    outcome = verify_document(plan)
    assert outcome.faults == ()
    assert outcome.lower_bound == pytest.approx(plan["certificate"]["lower_bound_s"], rel=1e-12)


def test_same_work_gives_the_same_plan() -> None:
    """The plan and its bound depend on seed and work alone, not on threads."""
    rng = np.random.default_rng(6)
    rows = np.exp(rng.normal(-7.5, 0.4, (20, 20))).tolist()
    given = problem(cluster(20, 1, rows=rows), model(6), global_batch=20, fixed={"pp": 4, "tp": 1, "zero": 0})
    one, other = (search(given, Limits(work_limit=25, workers=workers)) for workers in (1, 2))
    assert one.incumbent is not None and other.incumbent is not None
    assert one.incumbent.seconds == other.incumbent.seconds
    assert one.lower_bound == other.lower_bound
    assert [bound.witness for bound in one.bounds] == [bound.witness for bound in other.bounds]


def _quantum(witness: Document) -> None:
    _gains(witness)["quantum_s"] *= 1.2


def _levels(witness: Document) -> None:
    _gains(witness)["levels"] += 30


def _gain(witness: Document) -> None:
    gains = _gains(witness)["gains"]
    gains[:] = [1] * len(gains)


def _short_gains(witness: Document) -> None:
    del _gains(witness)["gains"][0]


def _huge_gains(witness: Document) -> None:
    _gains(witness)["gains"][0] = 1 << 80


def _dropped_step(witness: Document) -> None:
    del witness["steps"][1]


def _later_step(witness: Document) -> None:
    witness["steps"][1]["threshold_s_per_byte"] *= 1.5


def _first_step(witness: Document) -> None:
    witness["steps"][0]["threshold_s_per_byte"] = 1e-12


def _falling_steps(witness: Document) -> None:
    witness["steps"][-1]["threshold_s_per_byte"] = 0.0


def _no_proofs(witness: Document) -> None:
    witness["steps"][-1]["proofs"] = []


def _unknown_proof(witness: Document) -> None:
    witness["steps"][-1]["proofs"] = [len(witness["proofs"])]


def _smaller_set(witness: Document) -> None:
    for proof in witness["proofs"]:
        del proof["nodes"][-1]


def _repeated_node(witness: Document) -> None:
    witness["proofs"][0]["nodes"][0] = witness["proofs"][0]["nodes"][1]


def _no_such_node(witness: Document) -> None:
    witness["proofs"][0]["nodes"][0] = 18


def _no_kind(witness: Document) -> None:
    del _gains(witness)["gains"]


def _no_steps(witness: Document) -> None:
    witness["steps"] = []


def _text(witness: Document) -> None:
    witness["proofs"] = "none"


def _gains(witness: Document) -> Document:
    proofs: list[Document] = [witness["proofs"][i] for step in witness["steps"] for i in step["proofs"]]
    return next(proof for proof in proofs if "gains" in proof)


TAMPERED = [v for k, v in list(globals().items()) if k.startswith("_") and callable(v) and v.__module__ == __name__]
TAMPERED = [v for v in TAMPERED if v.__name__ not in ("_slowest", "_from_set", "_gains")]


@pytest.mark.parametrize("tamper", TAMPERED, ids=lambda tamper: tamper.__name__.strip("_"))
def test_a_tampered_witness_is_refused(plan: Document, tamper: Callable[[Document], None]) -> None:
    """With its digest made to match, a changed witness proves another bound or none."""
    changed = copy.deepcopy(plan)
    witness = covered_entry(changed)["witness"]
    tamper(witness)
    witness["sha256"] = digest({name: value for name, value in witness.items() if name != "sha256"})
    assert not verify_document(changed).holds


def test_any_changed_figure_of_a_witness_is_refused(plan: Document) -> None:
    """Without a new digest no number of the witness can be changed unnoticed."""
    for number in range(40):
        changed = copy.deepcopy(plan)
        witness = covered_entry(changed)["witness"]
        rng = np.random.default_rng(number)
        proof = witness["proofs"][rng.integers(len(witness["proofs"]))]
        name = "gains" if "gains" in proof else "potentials"
        proof[name][rng.integers(len(proof[name]))] += 1
        assert not verify_document(changed).holds


def test_a_bound_beyond_the_witness_is_refused(plan: Document) -> None:
    """Stating more than the witness proves, or naming the source without a witness, fails the check."""
    changed = copy.deepcopy(plan)
    covered_entry(changed)["lower_bound_s"] *= 1.001
    assert not verify_document(changed).holds
    changed = copy.deepcopy(plan)
    covered_entry(changed)["witness"] = {}
    assert not verify_document(changed).holds


def test_a_staircase_with_a_set_left_out_proves_nothing() -> None:
    """Two racks, stage 0 in either: proofs for one rack do not cover the other."""
    rack = np.arange(18) // 9
    hops = np.where(np.equal.outer(rack, rack), 1.0, 4.0) + np.random.default_rng(0).uniform(0, 0.1, (18, 18))
    hops = hops + hops.T
    cover = refined(hops, hops, 6, 3.0, 100.0)
    whole = cover.staircase()
    assert bound_of(hops, hops, 6, whole) is not None
    for index, step in enumerate(whole.steps):
        if step.proofs:
            steps = (*whole.steps[:index], replace(step, proofs=()), *whole.steps[index + 1 :])
            assert bound_of(hops, hops, 6, Staircase(proofs=whole.proofs, steps=steps)) is None
    assert witness_of(whole)["sha256"] == digest({k: v for k, v in witness_of(whole).items() if k != "sha256"})
