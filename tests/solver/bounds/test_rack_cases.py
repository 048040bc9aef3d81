"""Bound ``partition`` by racks: no case is above the least of its placements, whatever the division into racks."""

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from taut.data.arrays import Flags, Ints
from taut.data.cluster import ClusterSpec
from taut.data.costs import CostTable
from taut.data.model import ModelSpec
from taut.formulations.partition import partition_problem
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.solver.bounds import candidate_bounds
from taut.solver.bounds import rack_cases as module
from taut.solver.bounds.candidate_bounds import partition_bound
from taut.solver.bounds.communication import communication
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.bounds.rack_cases import RackCases, least_of_cases, rack_cases, solved_case
from taut.solver.certificate.verify import verify_document
from taut.solver.certificate.write import plan_document
from taut.solver.result import Limits
from taut.solver.search.search import search
from tests.support.blocks import blocks
from tests.support.oracle import enumerate_candidate
from tests.support.small import cluster, costs, problem

pytestmark = pytest.mark.proof

Document = dict[str, Any]
Change = Callable[[RackCases], RackCases]
ROUNDING = 1 + 1e-9
SHAPES = [
    *((1, 1, 1, 2, 2), (1, 1, 1, 3, 2), (1, 1, 1, 2, 3), (1, 1, 2, 2, 1), (1, 1, 2, 3, 1)),
    *((2, 2, 1, 2, 1), (2, 1, 2, 3, 1)),
]
"""Devices of a node, tensor and context degree, stages and replicas, of up to six devices."""
RARE = [(1, 1, 1, 4, 2), (1, 1, 2, 2, 2), (2, 1, 2, 2, 2), (2, 2, 1, 2, 2), (2, 1, 4, 2, 1), (2, 2, 2, 2, 1)]
"""Eight devices take seconds to enumerate: nodes in blocks, blocks on two nodes, several groups on a node."""


def layers(number: int, *, unlike: bool) -> ModelSpec:
    """Layers of 96 tokens, which four context ranks divide; every second one narrower where they are ``unlike``."""
    widths = [32 if unlike and layer % 2 else 64 for layer in range(number)]
    each = [{"kind": f"of{width}", "hidden": width, "heads": 4, "seq": 96} for width in widths]
    return ModelSpec.parse({"name": "small", "layers": each}, "small")


def with_contexts(table: CostTable) -> CostTable:
    """The table with rows for two and four context ranks, which take their share of the time."""
    seconds = ("forward_s", "input_grad_s", "weight_grad_s")
    more = [
        row.model_copy(update={"cp": cp, **{name: getattr(row, name) / cp for name in seconds}})
        for row in table.rows
        for cp in (2, 4)
    ]
    return table.model_copy(update={"rows": [*table.rows, *more]})


def racked_problem(seed: int) -> tuple[PlanningProblem, Candidate, Ints]:
    """One candidate on nodes in random racks: gradients from small to all that counts, links by node or device."""
    rng = np.random.default_rng(seed)
    rare = seed % 20 == 19
    gpus, tp, cp, pp, dp = RARE[seed // 20 % len(RARE)] if rare else SHAPES[seed % len(SHAPES)]
    nodes = pp * dp * tp * cp // gpus
    members = nodes // pp
    rack = rng.permutation(np.arange(nodes) // members if seed % 2 else rng.integers(0, 3, nodes))
    by_device = seed % 4 == 3 and gpus > 1
    of = np.repeat(rack, gpus) if by_device else rack
    slower, n = float(rng.choice([1.5, 4.0, 10.0])), len(of)
    rate = np.exp(rng.normal(-3, 0.3, (n, n))) / np.where(np.equal.outer(of, of), 1.0, slower)
    spec = layers(pp + int(rng.integers(0, 2)), unlike=bool(seed % 5 == 0))
    table = with_contexts(costs(spec, seconds=dict.fromkeys(spec.kinds, float(np.exp(rng.uniform(-11, -6))))))
    table = table.model_copy(update={"optimizer_s_per_parameter": {"d": 1e-9 * (seed % 2)}})
    links = cluster(
        nodes, gpus, rows=rate.tolist(), latency_us=20.0 * (seed % 3), nic_gbps=0.5 if seed % 7 == 0 else None
    )
    fixed = {
        "pp": pp,
        "tp": tp,
        "cp": cp,
        "dp": dp,
        "zero": 0,
        "micro_batch": 1,
        "sequence_parallel": False,
        "schedule": ["1f1b", "gpipe"][seed // 2 % 2],
    }
    planning = problem(
        links, spec, table=table, latency_model="step", global_batch=dp * int(rng.integers(1, 9)), fixed=fixed,
        recompute=["none", "full"] if pp == 2 else ["none"], max_cp=4,
    )  # fmt: skip
    planning = replace(planning, overlap_grad_reduce=seed % 3 == 1)
    (choice,) = planning.candidates
    return planning, choice, np.asarray(np.unique(rack, return_inverse=True)[1], dtype=np.int64)


def best_links(planning: PlanningProblem, rack: Ints) -> BestLinks:
    """Best links with a division into racks from anyone."""
    best = BestLinks(planning.links, planning.rings)
    best.__dict__["racks"] = rack
    return best


def placed_in(planning: PlanningProblem, rack: Ints, place: int, *, spans: bool) -> Callable[[Ints], Flags]:
    """Flags of the placements (placements, pp, pipelines, width) of a case."""

    def holds(devices: Ints) -> Flags:
        of = rack[planning.links.node_of[devices]].reshape(*devices.shape[:2], -1)
        apart = (of != of[..., :1]).any(axis=2)
        leading = ~apart[:, :place].any(axis=1)
        return np.asarray(leading & apart[:, place] if spans else leading)

    return holds


def check(seed: int) -> list[float]:
    """Check every case on its own, and all together; returns how much of the optimum of each case is proven."""
    planning, choice, rack = racked_problem(seed)
    best = best_links(planning, rack)
    racks = rack_cases(planning, choice, best)
    if racks is None:
        return []
    stages, comm = partition_problem(planning, choice), communication(planning, choice, best)
    shares = []
    for place in range(len(racks.crossings)):
        for spans in [False, True][: 1 + (place < choice.pp)]:
            among = placed_in(planning, rack, place, spans=spans)
            exact = enumerate_candidate(planning, choice, among).seconds
            found = solved_case(stages, comm, racks, place, spans=spans, limit=np.inf).seconds
            assert found <= exact * ROUNDING, (seed, place, spans)
            shares += [found / exact] if np.isfinite(exact) else []
    optimum = enumerate_candidate(planning, choice).seconds
    assert least_of_cases(stages, comm, racks).seconds <= optimum * ROUNDING, seed
    assert partition_bound(planning, choice, comm, links=best)[0] <= optimum * ROUNDING, seed
    return shares


@pytest.mark.parametrize("block", blocks(40))
def test_no_case_is_above_the_optimum_of_its_placements(block: int) -> None:
    """800 instances: stage p spans racks, or may lie anywhere, after p confined ones; blocks of one node or two."""
    shares = np.array([share for seed in range(20 * block, 20 * block + 20) for share in check(seed)])
    assert len(shares) > 30
    assert (shares > 0.8).mean() > 0.25


def one_crossing_more(racks: RackCases) -> RackCases:
    return replace(racks, crossings=racks.crossings + 1)


PLANTED = {
    "ways back forgotten": (180, lambda racks: replace(racks, before=racks.whole)),
    "ring doubled": (0, lambda racks: replace(racks, ring=2 * racks.ring)),
    "one crossing more": (0, one_crossing_more),
    "cases left out": (0, lambda racks: replace(racks, crossings=racks.crossings[-1:])),
}
"""First instance, and the change; few instances show that a way back does not count, as it is short of a ring."""


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_bug_shows(planted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the terms of the bound is needed: without it some instance is bounded above its optimum."""
    first, change = PLANTED[planted]
    monkeypatch.setitem(globals(), "rack_cases", changed(change))
    with pytest.raises(AssertionError):
        for seed in range(first, first + 20):
            check(seed)


def changed(change: Change) -> Callable[..., RackCases | None]:
    """The cases of a candidate with a planted bug."""

    def told(planning: PlanningProblem, choice: Candidate, best: BestLinks) -> RackCases | None:
        racks = module.rack_cases(planning, choice, best)
        return None if racks is None else change(racks)

    return told


def test_racks_of_levels_and_of_a_matrix_are_the_same() -> None:
    """Three racks of two nodes of a cluster file: as its levels state them, and as a matrix shows them."""
    own = [{"nodes": [number, number + 3], "bandwidth_gbps": 32} for number in range(3)]
    values = {**cluster(6, 2).model_dump(mode="json"), "network": {"bandwidth_gbps": 8, "racks": own}}
    rate = np.where(np.equal.outer(np.arange(6) % 3, np.arange(6) % 3), 4.0, 1.0)
    for spec in (ClusterSpec.parse(values, "racks"), cluster(6, 2, rows=rate.tolist())):
        planning = problem(spec, latency_model="step")
        racks = BestLinks(planning.links, planning.rings).racks
        assert racks is not None
        assert np.array_equal(np.equal.outer(racks, racks), rate == 4.0)
    alike = problem(cluster(6, 2), latency_model="step")
    assert BestLinks(alike.links, alike.rings).racks is None


def made() -> Document:
    """A plan for three stages of two replicas of two context ranks, on three racks of four nodes."""
    own = [{"nodes": list(range(4 * number, 4 * number + 4)), "bandwidth_gbps": 32} for number in range(3)]
    values = {**cluster(12, 1).model_dump(mode="json"), "network": {"bandwidth_gbps": 2, "racks": own}}
    spec = layers(6, unlike=False)
    fixed = {"pp": 3, "tp": 1, "cp": 2, "dp": 2, "zero": 0, "micro_batch": 1, "schedule": "1f1b"}
    table = with_contexts(costs(spec, seconds={"of64": 1e-4}))
    nodes = ClusterSpec.parse(values, "racks")
    planning = problem(nodes, spec, table=table, global_batch=16, latency_model="step", fixed=fixed, max_cp=2, max_tp=1)
    limits = Limits(work_limit=30, workers=1)
    document: Document = json.loads(json.dumps(plan_document(planning, search(planning, limits), limits)))
    return document


@pytest.fixture(scope="module")
def plan() -> Document:
    """A plan whose bound tells racks apart."""
    return made()


def entry(document: Document) -> Document:
    """The candidate with the plan."""
    entries: list[Document] = document["certificate"]["candidates"]
    return min((each for each in entries if each["source"] == "partition"), key=lambda each: each["lower_bound_s"])


def test_a_certificate_by_racks_holds(plan: Document, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is derived again, and is more than without racks."""
    outcome = verify_document(plan)
    assert outcome.faults == ()
    assert outcome.lower_bound == pytest.approx(plan["certificate"]["lower_bound_s"], rel=1e-12)
    monkeypatch.setattr(candidate_bounds, "rack_cases", lambda *_: None)
    assert entry(made())["lower_bound_s"] < entry(plan)["lower_bound_s"] * (1 - 1e-4)


def _bound_raised(document: Document) -> None:
    entry(document)["lower_bound_s"] *= 1 + 1e-6


def _racks_named(document: Document) -> None:
    entry(document)["witness"] = {"racks": [0] * 12}


def _links_between_racks_slower(document: Document) -> None:
    document["inputs"]["cluster"]["spec"]["network"]["bandwidth_gbps"] /= 2


@pytest.mark.parametrize("tamper", [_bound_raised, _racks_named, _links_between_racks_slower])
def test_a_tampered_bound_is_refused(plan: Document, tamper: Callable[[Document], None]) -> None:
    """A bound that is raised, a witness that none needs, and other links than those that the digest names."""
    document = copy.deepcopy(plan)
    tamper(document)
    assert not verify_document(document).holds


def test_a_search_that_counts_too_many_hops_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search whose paths cross racks once more than they have to states what it has not proven."""
    monkeypatch.setattr(candidate_bounds, "rack_cases", changed(one_crossing_more))
    document = made()
    monkeypatch.undo()
    assert not verify_document(document).holds
