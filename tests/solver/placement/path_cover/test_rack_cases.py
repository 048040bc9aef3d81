"""Bounds with racks told apart: none is above the enumerated optimum, and no altered witness is accepted."""

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from taut.data.arrays import Flags, Floats, Ints
from taut.data.spec import digest
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.certificate.verify import verify_document
from taut.solver.certificate.write import plan_document
from taut.solver.placement.exact import node_sets
from taut.solver.placement.path_cover import bound, proving, racks
from taut.solver.placement.path_cover.bound import Covered, cover_bound, has_cover
from taut.solver.placement.path_cover.build import CaseSearch
from taut.solver.placement.path_cover.racks import RackCase, Racks, has_racks, known_racks
from taut.solver.placement.slots import slot_graph
from taut.solver.result import Limits
from taut.solver.search.search import search
from tests.support.blocks import blocks
from tests.support.oracle import enumerate_candidate
from tests.support.rack_cases import holds
from tests.support.small import cluster, costs, model, problem

pytestmark = pytest.mark.proof

Document = dict[str, Any]
ROUNDING = 1 + 1e-9
SHAPES = [(2, 2), (3, 2), (2, 3), (4, 2)]
"""Stages and replicas of up to eight nodes; eight take seconds to enumerate, so they are rare."""


def racked_problem(seed: int) -> tuple[PlanningProblem, Candidate, Ints]:
    """One candidate under the whole step on nodes in racks: gradients from small to all that counts."""
    rng = np.random.default_rng(seed)
    pp, dp = SHAPES[3 if seed % 20 == 19 else seed % 3]
    n = pp * dp
    rack = rng.permutation(np.arange(n) // dp if seed % 2 else rng.integers(0, 2, n))
    slower = float(rng.choice([1.5, 4.0, 10.0]))
    rate = np.exp(rng.normal(-3, 0.3, (n, n))) / np.where(np.equal.outer(rack, rack), 1.0, slower)
    spec = model(pp + int(rng.integers(0, 2)), unlike=bool(seed % 5 == 0))
    seconds = float(np.exp(rng.uniform(-11, -6)))
    table = costs(spec, seconds=dict.fromkeys(spec.kinds, seconds), optimizer=1e-9 * (seed % 2))
    nodes = cluster(n, 1, rows=rate.tolist(), latency_us=20.0 * (seed % 3), nic_gbps=0.5 if seed % 7 == 0 else None)
    fixed = {"pp": pp, "tp": 1, "zero": 0, "micro_batch": 1, "schedule": ["1f1b", "gpipe"][seed % 2]}
    planning = problem(
        nodes, spec, table=table, latency_model="step", global_batch=dp * int(rng.integers(1, 9)), fixed=fixed,
        recompute=["none", "full"] if pp == 2 else ["none"],
    )  # fmt: skip
    planning = replace(planning, overlap_grad_reduce=seed % 4 == 1)
    (choice,) = planning.candidates
    return planning, choice, rack


def racks_of_problem(planning: PlanningProblem, choice: Candidate, rack: Ints) -> Racks | None:
    graph = slot_graph(planning, choice)
    return known_racks(graph, rack) if has_cover(planning, choice) and has_racks(graph) else None


def covered_case(racks: Racks, case: RackCase, gradients: float) -> Covered:
    """What a short refinement proves of a case."""
    graph = racks.restricted(case)
    longest = float(graph.hops.sum(axis=1).max())
    case_search = CaseSearch(graph=graph, gradients=gradients, target=10 * longest, longest=longest)
    for _ in range(8):
        if not case_search.refine(rounds=10):
            break
    return Covered(bound=case_search.bound(), case=case, ring=racks.ring)


def placed_in(case: RackCase, rack: Ints) -> Callable[[Ints], Flags]:
    """Flags of the placements (placements, pp, dp, 1) that belong to a case."""
    return lambda devices: holds(case, rack, devices[..., 0].swapaxes(1, 2))


def check(seed: int) -> list[float]:
    """Check every case on its own, and all together; returns how much of the optimum of each case p > 0 is proven."""
    planning, choice, rack = racked_problem(seed)
    racks = racks_of_problem(planning, choice, rack)
    if racks is None:
        return []
    best, shares, least = BestLinks(planning.links, planning.rings), [], np.inf
    gradients = float(planning.gradient_bytes(choice)[0, 1]) / planning.transfer_weight(choice)
    covered = tuple(covered_case(racks, case, gradients) for case in racks.cases(choice.pp + 1))
    for each in covered:
        exact = enumerate_candidate(planning, choice, placed_in(each.case, racks.rack)).seconds
        found = cover_bound(planning, choice, best, (each,))[0]
        assert found <= exact * ROUNDING, (seed, each.case)
        least = min(least, exact)
        if each.case.confined and np.isfinite(exact):
            shares.append(found / exact)
    assert cover_bound(planning, choice, best, covered)[0] <= least * ROUNDING, seed
    return shares


@pytest.mark.parametrize("block", blocks(20))
def test_no_case_is_above_the_optimum_of_its_placements(block: int) -> None:
    """800 instances: stage p spans racks, or none does; each case is at most the least of its placements alone."""
    shares = np.array([share for seed in range(40 * block, 40 * block + 40) for share in check(seed)])
    assert len(shares) > 20
    assert (shares > 0.95).mean() > 0.3


def slowest_rate(inverse: Floats, *_: object) -> float:
    """The slowest of all links, which is what no spanning stage needs to use."""
    return float(inverse[~np.eye(len(inverse), dtype=bool)].max())


@pytest.mark.parametrize("planted", ["ways back forgotten", "ring of a spanning stage doubled", "slowest link taken"])
def test_a_planted_bug_shows(planted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the terms of the bound is needed: without it some instance is bounded above its optimum."""
    if planted == "ways back forgotten":
        monkeypatch.setattr(bound.CoveredSeconds, "ways_back", lambda *_: 0.0)
    elif planted == "ring of a spanning stage doubled":
        monkeypatch.setattr(Racks, "ring", property(lambda racks: 4.0 * racks.slowest))
    else:
        monkeypatch.setattr(racks, "spanning_rate", slowest_rate)
    with pytest.raises(AssertionError):
        for seed in range(120):
            check(seed)


def made() -> Document:
    """A plan without ``node-sets`` for four stages of three replicas on four racks of three nodes, with a witness."""
    rng, rack = np.random.default_rng(2), np.random.default_rng(1).permutation(np.arange(12) // 3)
    rows = np.exp(rng.normal(-5.0, 0.2, (12, 12))) / np.where(np.equal.outer(rack, rack), 1.0, 4.0)
    spec = model(8)
    fixed = {"pp": 4, "tp": 1, "zero": 0, "micro_batch": 1, "schedule": "1f1b"}
    table = costs(spec, seconds={"block": 1e-4})
    nodes = cluster(12, 1, rows=rows.tolist())
    planning = problem(nodes, spec, table=table, global_batch=24, latency_model="step", fixed=fixed)
    limits = Limits(work_limit=60, workers=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node_sets, "MOST_REPLICAS", 1)
        result = search(planning, limits)
    document: Document = json.loads(json.dumps(plan_document(planning, result, limits)))
    return document


@pytest.fixture(scope="module")
def plan() -> Document:
    """A plan whose witness tells racks apart."""
    document = made()
    witness = covered_entry(document)["witness"]
    assert "racks" in witness
    assert len(witness["stages"]) > 2
    return document


def covered_entry(document: Document) -> Document:
    entries: list[Document] = document["certificate"]["candidates"]
    return next(entry for entry in entries if entry["source"] == "cover")


def test_a_certificate_with_racks_holds(plan: Document) -> None:
    """The document is accepted and its bound derived from the witness."""
    outcome = verify_document(plan)
    assert outcome.faults == ()
    assert outcome.lower_bound == pytest.approx(plan["certificate"]["lower_bound_s"], rel=1e-12)


def _case_left_out(witness: Document) -> None:
    del witness["stages"][0]


def _last_case_left_out(witness: Document) -> None:
    del witness["stages"][-1]


def _case_without_ring(witness: Document) -> None:
    witness["stages"][1]["spanning"] = False


def _case_of_a_later_stage(witness: Document) -> None:
    witness["stages"][1]["confined"] += 1


def _case_of_no_stage(witness: Document) -> None:
    witness["stages"][-1]["confined"] = 100


def _cases_exchanged(witness: Document) -> None:
    one, other = witness["stages"][0], witness["stages"][-1]
    for name in ("confined", "spanning"):
        one[name], other[name] = other[name], one[name]


def _fewer_stages_than_none(witness: Document) -> None:
    witness["stages"] = [{**witness["stages"][-1], "confined": -1}]


def _no_cases(witness: Document) -> None:
    witness["stages"] = []


def _one_rack(witness: Document) -> None:
    witness["racks"] = [0] * len(witness["racks"])


def _every_node_a_rack(witness: Document) -> None:
    witness["racks"] = list(range(len(witness["racks"])))


def _nodes_left_out(witness: Document) -> None:
    del witness["racks"][0]


def _huge_rack(witness: Document) -> None:
    witness["racks"][0] = 1 << 80


def _no_proofs(witness: Document) -> None:
    witness["stages"][0]["proofs"] = []


def _no_boxes(witness: Document) -> None:
    witness["stages"][0]["boxes"] = []


def _racks_forgotten(witness: Document) -> None:
    stage = witness["stages"][-1]
    digest_alone = {"proofs": stage["proofs"], "boxes": stage["boxes"], "sha256": ""}
    witness.clear()
    witness.update(digest_alone)


TAMPERED = [v for k, v in list(globals().items()) if k.startswith("_") and callable(v) and v.__module__ == __name__]


@pytest.mark.parametrize("tamper", TAMPERED, ids=lambda tamper: tamper.__name__.strip("_"))
def test_a_tampered_witness_is_refused(plan: Document, tamper: Callable[[Document], None]) -> None:
    """With its digest made to match, a changed witness proves another bound or none."""
    changed = copy.deepcopy(plan)
    witness = covered_entry(changed)["witness"]
    tamper(witness)
    witness["sha256"] = digest({name: value for name, value in witness.items() if name != "sha256"})
    assert not verify_document(changed).holds


def test_a_search_that_forgets_a_case_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that never looks at a stage 0 that spans racks states what it has not proven."""
    told_apart = proving.CoverProof._told_apart
    monkeypatch.setattr(proving.CoverProof, "_told_apart", lambda proof: told_apart(proof)[1:])
    assert not verify_document(made()).holds
