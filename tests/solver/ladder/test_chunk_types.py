"""Layers counted by class of device against every pattern of classes, and bounds that candidates share in all cases."""

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from taut.data.arrays import Ints
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.solver.certificate.verify import verify_document
from taut.solver.certificate.write import plan_document
from taut.solver.ladder import chunk_types
from taut.solver.ladder.checks import derived_bound
from taut.solver.ladder.chunk_racks import ChunkRacks
from taut.solver.ladder.chunk_types import chunk_cases, most_within
from taut.solver.ladder.dominance import dominates_in_cases, inherited
from taut.solver.ladder.ladder import Ladder
from taut.solver.order_priced import layer_bounds
from taut.solver.order_priced.bound import low_memory_divisions
from taut.solver.order_priced.capacity import most_refuted
from taut.solver.order_priced.layer_bounds import linear_figures
from taut.solver.result import Limits
from taut.solver.search.rack_trees import case_trees
from taut.solver.search.search import search
from tests.support.interleaved import drawn
from tests.support.reference import small_buckets
from tests.support.small import cluster, costs, model, problem

Counts = chunk_types._Counts


def test_layers_are_the_most_of_any_pattern() -> None:
    """The recursion finds the most layers over all choices of slow devices, in which each knows how many are before."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        devices = int(rng.integers(2, 6))
        stages = int(rng.integers(1, devices + 1))
        asked = rng.uniform(0, 1, (2, devices, 1)) + rng.uniform(0, 0.4, (2, devices, stages + 1)).cumsum(axis=2)
        counts = Counts(
            asked, rng.uniform(0.1, 1, (2, devices)), rng.integers(1, 3, devices), rng.integers(2, 9, devices)
        )
        assert counts.within(2.0) == max(
            _taken(counts, set(slow), 2.0) for slow in combinations(range(devices), stages)
        )


def _taken(counts: Any, slow: set[int], seconds: float) -> float:
    """Layers that devices of known classes take within so many seconds."""
    layers = 0.0
    for d, (least, most) in enumerate(zip(counts.least.tolist(), counts.most.tolist(), strict=True)):
        own, before = int(d in slow), sum(e < d for e in slow)
        room = seconds - counts.asked[own, d, before]
        taken = min(least + np.floor(max(room, 0) / counts.each[own, d]), most)
        if room < 0 or taken < least:
            return -np.inf
        layers += taken
    return layers


def _one_layer_less(counts: Any, seconds: float) -> float:
    return WITHIN(counts, seconds) - 1


def _twice_before(*given: Any) -> Any:
    found = OF(*given)
    return found._replace(asked=2 * found.asked - found.asked[..., :1])


WITHIN: Callable[..., float] = Counts.within
OF: Callable[..., Any] = Counts.of
BUGS = {"a layer less": (4, "within", _one_layer_less), "slow devices twice": (13, "of", staticmethod(_twice_before))}
"""Problems with an enumerated optimum by which a bug of counting shows."""


@pytest.mark.proof
@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_of_counting_shows(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting refutes no seconds beyond the least of all plans, and with the bug it does."""
    seed, name, planted = BUGS[bug]
    small_buckets(monkeypatch)
    assert _most_of_optimum(seed) <= 1 + 1e-9
    monkeypatch.setattr(Counts, name, planted)
    assert _most_of_optimum(seed) > 1 + 1e-9


def _most_of_optimum(seed: int) -> float:
    """What counting refutes at most, as a share of a candidate's optimum."""
    given, every = drawn(seed, mixed=True)
    ladder, shares = Ladder(given), [0.0]
    for candidate, plans in every:
        if np.isfinite(plans.optimum) and (refutes := most_within(given, candidate, ladder.links)):
            shares.append(most_refuted(refutes, 2 * plans.optimum) / plans.optimum)
    return max(shares)


SIZES = [(2, 1, 4), (2, 1, 6), (4, 2, 6), (4, 2, 8), (4, 1, 8), (4, 3, 4), (2, 2, 5), (6, 2, 6)]
"""Blocks that a node holds, pipelines, and stages."""


def _hops(stages: Ints, slow_nodes: Ints, held: int, *, back: bool, exact: bool) -> tuple[int, int]:
    """
    Hops of the pipeline with most slow blocks, and those that its case says at least.

    ``stages``: nodes of the replicas of every stage (pp, dp); ``exact``: whether cases know all slow stages.
    """
    pp, dp = stages.shape
    slow = np.isin(stages, slow_nodes)
    own, n = slow[:, slow.sum(axis=0).argmax()], -(-int(slow.sum()) // dp)
    nodes = stages[:, slow.sum(axis=0).argmax()]
    known = exact and own.sum() == n
    ends = [0, pp - 1] if back else []
    between = [x for x in np.flatnonzero(own).tolist() if x not in ends]
    ends = [x for x in ends if own[x]]
    some = {*ends, *between[: max(n + (exact and not known) - len(ends), 0)]}
    confined = [len({*row}) <= max(dp // held, 1) for row in stages.tolist()]
    first = confined.index(False) if False in confined else pp
    found = chunk_types._crossings(
        tuple(x in some for x in range(pp)), held, dp, pp, whole=slow.sum() == n * dp, back=back, known=known
    )
    return int((nodes[1:] != nodes[:-1]).sum()), int(found[first])


def test_no_case_has_more_hops_than_a_placement() -> None:
    """Of random placements the pipeline with most slow blocks makes the hops of its case, and many make no more."""
    rng, tight = np.random.default_rng(0), dict.fromkeys([(b, e) for b in (False, True) for e in (False, True)], 0)
    for _ in range(4000):
        held, dp, pp = SIZES[int(rng.integers(len(SIZES)))]
        nodes = pp * dp // held
        slow = rng.choice(nodes, int(rng.integers(1, nodes)), replace=False)
        slots = np.repeat(rng.permutation(nodes), held)
        returns = 2 * dp <= held and rng.random() < 0.5
        if returns:
            slots = np.roll(slots, dp)
        for _ in range(int(rng.integers(4))):
            one, other = rng.integers(dp * returns, len(slots) - dp * returns, size=2)
            slots[[one, other]] = slots[[other, one]]
        stages = slots.reshape(pp, dp)
        for exact in (False, True):
            back = bool(returns and (stages[0] == stages[-1]).all())
            hops, least = _hops(stages, slow, held, back=back, exact=exact)
            assert least <= hops, (stages, slow, held, back, exact)
            tight[back, exact] += least == hops
    assert min(tight.values()) > 100, tight


def mixed(**space: Any) -> PlanningProblem:
    """Interleaved stages on two nodes of unlike devices, whose gradients take a second."""
    spec = model(6)
    table = costs(spec, devices={"d": 1.0, "e": 1.5}, optimizer=1e-6)
    fixed = {"pp": 2, "tp": 1, "dp": 2, "micro_batch": 1, "schedule": "interleaved-1f1b", "vpp": 2}
    return problem(
        cluster(2, 2, devices=("d", "e")), spec, table=table, latency_model="step", fixed=fixed, max_tp=1,
        schedules=["interleaved-1f1b"], max_vpp=2, recompute=["none"], **space,
    )  # fmt: skip


def pair() -> tuple[Ladder, Candidate, Candidate]:
    """A ladder, a candidate with the plain optimizer, and one with the distributed optimizer, which dominates."""
    given = mixed(zero=[0, 1])
    plain, lean = sorted(given.candidates, key=lambda one: one.zero)
    return Ladder(given), plain, lean


def _cases(ladder: Ladder, candidate: Candidate) -> list[ChunkRacks]:
    return chunk_cases(ladder.problem, candidate, ladder.links)


def _witness(ladder: Ladder, candidate: Candidate) -> tuple[float, dict[str, Any]]:
    """A bound of all cases and its witness."""
    cases = _cases(ladder, candidate)
    trees = case_trees(cases, 1e3, low_memory_divisions(cases[0].given)[:1], 0.0)
    assert trees is not None
    trees.branch_early()
    return trees.seconds, json.loads(json.dumps(trees.witness()))


def test_a_bound_of_all_cases_is_shared() -> None:
    """The bound of the distributed optimizer holds for the plain one, is less than its own, and never the reverse."""
    ladder, plain, lean = pair()
    seconds, witness = _witness(ladder, lean)
    derived = derived_bound(ladder, plain, "order", inherited(plain, lean, witness))
    own, other = _witness(ladder, plain)
    assert derived == pytest.approx(seconds)
    assert seconds < own
    assert derived_bound(ladder, lean, "order", inherited(lean, plain, other)) == -np.inf
    assert derived_bound(ladder, plain, "order", inherited(plain, lean, {"classes": witness["classes"][1:]})) == -np.inf


@pytest.mark.parametrize("field", ["hop", "crossings", "ring", "exchange", "fills", "passes", "slow", "number"])
def test_only_the_same_cases_are_shared(field: str) -> None:
    """No case of the first may take longer in any figure, or be another one."""
    ladder, _, lean = pair()
    cases = _cases(ladder, lean)
    one, changed = cases[0], dict[str, Any]()
    slower = one.given.slower
    assert slower is not None
    assert dominates_in_cases(cases, cases)
    if field in ("passes", "slow"):
        other = (
            slower._replace(passes=slower.passes + 1) if field == "passes" else slower._replace(devices=~slower.devices)
        )
        changed["given"] = replace(one.given, slower=other)
    elif field != "number":
        value = getattr(one, field)
        changed[field] = (
            not value if field == "fills" else tuple(np.add(value, 1)) if field == "exchange" else value + 1
        )
    harder = [*([] if field == "number" else [replace(one, **changed)]), *cases[1:]]
    assert not dominates_in_cases(harder, cases)


def test_cases_with_fewer_hops_between_nodes_dominate() -> None:
    """Fewer hops that take longer are no harder in any case; of different numbers of cases neither dominates."""
    ladder, _, lean = pair()
    cases = _cases(ladder, lean)
    more = [replace(each, crossings=each.crossings + 1) for each in cases]
    assert dominates_in_cases(cases, more) and not dominates_in_cases(more, cases)
    longer = [replace(each, crossings=np.append(each.crossings, each.crossings[-1] + 1)) for each in cases]
    assert not dominates_in_cases(longer, cases) and not dominates_in_cases(cases, longer)


def test_a_certificate_with_shared_cases_holds() -> None:
    """A search gives dominated candidates the bound of another one, which is derived again."""
    given, limits = mixed(zero=[0, 1]), Limits(work_limit=4, workers=1)
    document = json.loads(json.dumps(plan_document(given, search(given, limits), limits)))
    shared = [each for each in document["certificate"]["candidates"] if "of" in each["witness"]]
    assert verify_document(document).faults == ()
    assert any("classes" in each["witness"]["by"] for each in shared)


def test_figures_of_a_candidate_before_serve_none_after() -> None:
    """Lines of all cases of several candidates, in turn, are those that each has alone."""
    given = problem(
        cluster(4, 1, devices=("a", "b")), model(9), latency_model="step", schedules=["interleaved-1f1b"],
        table=costs(model(9), devices={"a": 1.0, "b": 1.7}), fixed={"pp": 4}, max_vpp=2, recompute=["none"],
    )  # fmt: skip
    ladder = Ladder(given)
    of_each = [chunk_cases(given, candidate, ladder.links) for candidate in given.candidates]
    in_turn = [case.given for cases in zip(*of_each, strict=False) for case in cases]
    found = [linear_figures(case) for case in in_turn]
    assert len(given.candidates) > 1 and len(in_turn) > len(given.candidates) and all(found)
    for case, lines in zip(in_turn, found, strict=True):
        layer_bounds._latest.clear()
        for one, alone in zip(lines, linear_figures(case), strict=True):
            assert one.cut == alone.cut
            assert (one.none == alone.none).all() and (one.one == alone.one).all()
            assert (one.lower == alone.lower).all() and (one.passing == alone.passing).all()
