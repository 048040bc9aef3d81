"""Bounds on order-priced candidates: valid on random instances, derived again, refused if altered."""

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from taut.data.model import ModelSpec
from taut.data.stack import SCHEDULES
from taut.data.units import KIB
from taut.formulations.latency import memory_bytes
from taut.formulations.order_division import ChunkProblem, pipeline_ends
from taut.formulations.partition import partition_problem
from taut.formulations.problem import MOST_KEPT, PlanningProblem, Recent
from taut.formulations.schedules.orders import order_of
from taut.formulations.schedules.schedule import timetable
from taut.formulations.space import Candidate
from taut.formulations.strategy import Division
from taut.solver.bounds.candidate_bounds import chunked
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.certificate.verify import verify_document
from taut.solver.certificate.write import margin_free_bound, plan_document
from taut.solver.ladder.ladder import Ladder
from taut.solver.layer_division.memory_excess import least_excess
from taut.solver.order_priced.bound import order_bound
from taut.solver.order_priced.branch_and_bound import BranchAndBound
from taut.solver.order_priced.critical_paths import critical_path, device_path
from taut.solver.order_priced.device_options import DeviceChain
from taut.solver.order_priced.master_rows import MasterRows, durations, least_makespan
from taut.solver.order_priced.witness import missing_bytes, rederived
from taut.solver.result import Limits
from taut.solver.search.search import search
from tests.formulations.schedules.test_plan_orders import pipeline, scheduled
from tests.support.blocks import blocks
from tests.support.expert_ranks import with_expert_ranks
from tests.support.instances import random_problem
from tests.support.oracle import enumerate_all, enumerate_candidate
from tests.support.planted_kinds import of_memory
from tests.support.small import cluster, costs, model, problem
from tests.support.words import with_random_orders

pytestmark = pytest.mark.proof

TOLERANCE = 1 + 1e-9


def random_orders(seed: int, kinds: list[str]) -> PlanningProblem:
    """A random problem with some order-priced schedules, and 1F1B at times."""
    given = random_problem(seed)
    rng = np.random.default_rng((seed, 2))
    chosen = [str(kind) for kind in rng.permutation(kinds)[: 1 + seed % 2]] + (["1f1b"] if seed % 3 == 0 else [])
    recompute = given.space.recompute[: 1 + seed % 2]
    space = given.space.model_copy(update={"schedules": chosen, "recompute": recompute, "max_vpp": 2})
    return replace(
        given,
        space=space,
        latency_model="pipette" if seed % 4 < 2 else "step",
        overlap_grad_reduce=seed % 4 == 3,
    )


def enumerable(given: PlanningProblem) -> list[Candidate]:
    """Candidates with an order that are few enough to enumerate."""
    return [c for c in given.candidates if c.is_order_priced and c.pp * c.vpp <= 5]


@pytest.mark.parametrize("block", blocks(8))
@pytest.mark.parametrize("own", [True, False], ids=["own", "given"])
def test_bounds_are_valid_on_random_instances(block: int, own: bool) -> None:
    """
    No bound is above the enumerated optimum, and its witness derives it again.

    Over 200 candidates of every kind in their own order, and as many on the V in orders drawn at random.
    """
    for seed in range(block * 25, block * 25 + 25):
        given = random_orders(seed, list(SCHEDULES[2:] if own else SCHEDULES[5:]))
        if not own:
            given = with_random_orders(given, np.random.default_rng(seed))
        best = BestLinks(given.links, given.rings)
        for choice in [choice for choice in enumerable(given) if own or choice.order][::4]:
            optimum = enumerate_candidate(given, choice).seconds
            assert Ladder(given).relaxation(choice) <= optimum * TOLERANCE, seed
            if least_excess(partition_problem(given, choice))[0] > 0:
                assert optimum == np.inf, (seed, choice)
                continue
            division = chunked(given, choice, best)
            found = order_bound(division)
            assert found.seconds <= optimum * TOLERANCE, (seed, choice)
            witness = json.loads(json.dumps(found.witness))
            if np.isfinite(found.seconds):
                assert rederived(division, witness) == found.seconds
            else:
                assert missing_bytes(division, witness) == found.missing > 0


def test_a_gradient_beside_the_head_takes_the_place_of_its_bytes() -> None:
    """Unlike layers with experts on two devices, memory for the best plan and no more: it fits, and takes no less."""
    given = with_expert_ranks(134, orders=False)
    memory = given.memory.model_copy(update={"passing_gradients": True, "margin": 0.0})
    space = given.space.model_copy(update={"schedules": ["zb-h1"], "recompute": ["none"]})
    ample = replace(
        given, space=space, memory=memory, cluster=of_memory(given.cluster, 2**20), _shared=Recent(MOST_KEPT)
    )
    choice = next(one for one in ample.candidates if one.pp == 2 and one.tp == 1 and one.micro_batch == 2)
    best = enumerate_candidate(ample, choice)
    assert best.strategy is not None
    need = -(-max(memory_bytes(ample, best.strategy)) // KIB)
    tight = replace(ample, cluster=of_memory(given.cluster, need), _shared=Recent(MOST_KEPT))
    division = chunked(tight, choice, BestLinks(tight.links, tight.rings))
    assert (division.closing < np.maximum.accumulate(division.moments[-1, ::-1])[::-1]).any()
    assert order_bound(division).seconds <= best.seconds * TOLERANCE


def test_infinite_bytes_are_missing_only_where_no_division_fits() -> None:
    """
    Any prices prove that no division has chunks that fit alone, and only then; all divisions are tried one by one.

    Budgets lie between the chunks' own bytes, so that about half of them let some division fit.
    """
    outcomes = {True: 0, False: 0}
    for seed in range(60):
        given = random_orders(seed, list(SCHEDULES[2:]))
        for choice in enumerable(given)[::8]:
            division = chunked(given, choice, BestLinks(given.links, given.rings))
            layers, chunks = division.num_layers, division.num_chunks
            ends = np.array([[*cuts, layers] for cuts in combinations(range(1, layers), chunks - 1)], dtype=np.int64)
            rows = MasterRows(division)
            excess = np.min([rows.excess_of(ends, int(r)).max(axis=1) for r in division.recomputes], axis=0)
            for quantile in (-0.5, 0.0, 0.5):
                budget = division.budget + float(excess.min()) + quantile * float(np.ptp(excess) + 1000)
                small, priced = replace(division, budget=budget), {"prices": [1.0] * len(rows.memory_rows)}
                proven = missing_bytes(small, priced) == np.inf
                assert not (proven and quantile >= 0), (seed, choice)
                outcomes[proven] += 1
    assert min(outcomes.values()) > 5


@pytest.mark.parametrize("block", blocks(12))
def test_global_bound_is_valid_with_orders(block: int) -> None:
    """Global bound <= optimum <= plan; no plan where nothing fits; the plan's certificate holds."""
    for seed in range(500 + block * 6, 500 + block * 6 + 6):
        given = random_orders(seed, ["zb-h1", "zb-h2", "zb-v", "v-half", "v-min", "interleaved-1f1b"])
        if any(c.pp * c.vpp > 5 for c in given.candidates) or given.cluster.num_devices > 4:
            continue
        limits = Limits(workers=1)
        result = search(given, limits)
        optimum = enumerate_all(given.with_orders(result.orders)).seconds
        assert margin_free_bound(Ladder(given.with_orders(result.orders))).seconds <= optimum * TOLERANCE, seed
        if not np.isfinite(optimum):
            assert result.incumbent is None and result.status in ("infeasible", "unknown"), seed
            continue
        assert result.lower_bound <= optimum * TOLERANCE, seed
        if result.incumbent is not None:
            assert result.incumbent.seconds >= optimum / TOLERANCE, seed
            made = json.loads(json.dumps(plan_document(given, result, limits)))
            assert verify_document(made).faults == (), seed


@pytest.mark.parametrize("kind", SCHEDULES[2:])
def test_paths_are_no_longer_than_the_makespan(kind: str) -> None:
    """Every device's path is a lower bound under random times, and the critical path is the makespan itself."""
    vpp = 1 if kind.startswith("zb-h") else 2
    for seed in range(20):
        rng = np.random.default_rng(seed)
        pp = int(rng.integers(2, 5))
        m = pp * int(rng.integers(2, 4))
        times, order = pipeline(kind, pp, vpp, m, rng), scheduled(kind, pp, vpp, m)
        makespan = timetable(times, order).makespan
        passes = np.stack((times.forward, times.input_gradient, times.weight_gradient))
        given = order_of(kind, pp, vpp, m)
        lengths = [
            (path.passes * passes.T).sum() + (path.transfers * times.transfer).sum()
            for path in (*(device_path(given, d) for d in range(pp)), critical_path(given, passes, times.transfer, m))
        ]
        assert max(lengths) == pytest.approx(makespan, rel=1e-9)
        assert lengths[-1] == pytest.approx(makespan, rel=1e-9)


@pytest.mark.parametrize("kind", SCHEDULES[2:])
def test_the_longest_path_of_a_mixture_joins(kind: str) -> None:
    """Of two divisions, a path joins that is as long in the mean as the makespan of the mean figures; it joins once."""
    given = problem(cluster(2, 1), model(8), schedules=[kind], max_tp=1, fixed={"pp": 2})
    choice = max(given.candidates, key=lambda c: (c.vpp, c.num_micro_batches))
    division = chunked(given, choice, BestLinks(given.links, given.rings))
    chunks = division.num_chunks
    one = Division.of_ends(np.array([*range(1, chunks), 8]), np.zeros(chunks, np.int64))
    other = Division.of_ends(np.array([*range(9 - chunks, 9)]), np.zeros(chunks, np.int64))
    rows, weights = MasterRows(division, with_memory=False), np.array([0.25, 0.75])
    known = float((rows.path_seconds([one, other]) @ weights).max())
    (f_one, hops), (f_other, more) = durations(division, one), durations(division, other)
    passes, transfers = 0.25 * f_one + 0.75 * f_other, 0.25 * hops + 0.75 * more
    loads = weights @ [division.device_loads(one), division.device_loads(other)]
    ends = pipeline_ends(division.order, passes.reshape(1, -1), transfers[None], division.micro_batches)
    longest = float(division.seconds(ends, loads[None])[0]) - division.constant
    added = rows.separate([one, other], weights, known * TOLERANCE)
    assert added == (longest > known * (1 + 1e-6))
    assert (rows.path_seconds([one, other]) @ weights).max() == pytest.approx(longest, rel=1e-5)
    assert not rows.separate([one, other], weights, known * TOLERANCE)


def even() -> tuple[PlanningProblem, Candidate, ChunkProblem]:
    """Eight equal layers on four stages under ZB-H1, with memory for little more than two layers a stage."""
    given = problem(cluster(4, 1, memory_gib=2.2e-3), model(8), schedules=["zb-h1"], max_tp=1, fixed={"pp": 4})
    choice = next(c for c in given.candidates if c.micro_batch == 1)
    return given, choice, chunked(given, choice, BestLinks(given.links, given.rings))


def unlike() -> ChunkProblem:
    """Twelve layers, every second one unlike, on a V of two devices, which prices of memory bound."""
    fixed = {"pp": 2, "micro_batch": 1}
    given = problem(cluster(2, 1), model(12, unlike=True), latency_model="step", schedules=["v-half"], fixed=fixed)
    return chunked(given, given.candidates[0], BestLinks(given.links, given.rings))


def test_few_unlike_layers_in_front_are_bounded_by_the_devices_options() -> None:
    """Of six layers the first two are of another kind, as dense ones before experts: the bound has a tree."""
    kinds = [{"kind": "narrow", "ffn_hidden": 128}] * 2 + [{"kind": "wide", "ffn_hidden": 256}] * 4
    layers = [{**kind, "hidden": 64, "heads": 4, "seq": 100} for kind in kinds]
    spec = ModelSpec.parse({"name": "small", "layers": layers}, "small")
    table = costs(spec, seconds={"narrow": 0.5})
    fixed = {"pp": 2, "micro_batch": 1}
    given = problem(cluster(2, 1), spec, table=table, latency_model="step", schedules=["zb-h1"], fixed=fixed)
    division = chunked(given, given.candidates[0], BestLinks(given.links, given.rings))
    found = order_bound(division)
    assert division.lead == 2 and "tree" in found.witness
    assert rederived(division, found.witness) == pytest.approx(found.seconds)
    assert found.seconds <= enumerate_candidate(given, given.candidates[0]).seconds * (1 + 1e-9)


def test_even_stages_are_bounded_closely() -> None:
    """Memory leaves two layers a stage alone: the bound is the price of the even division but for its hops."""
    given, choice, division = even()
    found = order_bound(division)
    assert found.seconds == pytest.approx(enumerate_candidate(given, choice).seconds, rel=1e-6)


def leaf(witness: dict[str, Any]) -> dict[str, Any]:
    """The first leaf of a tree, or the witness itself where it has none."""
    node = witness.get("tree", witness)
    while "few" in node:
        node = node["few"]
    return dict(node) if node is witness else node


def shares_of(witness: dict[str, Any]) -> list[float]:
    """Shares that a tampering can change in place."""
    return list.__iadd__(leaf(witness)["shares" if "tree" in witness else "devices"], [])


def _share(witness: dict[str, Any]) -> None:
    shares_of(witness)[0] += 0.1


def _negative(witness: dict[str, Any]) -> None:
    shares_of(witness)[0] -= 10.0
    shares_of(witness)[1] += 10.0


def _fewer(witness: dict[str, Any]) -> None:
    shares_of(witness).pop()


def _price(witness: dict[str, Any]) -> None:
    witness["prices"][0] = -1e-6


def _missing_price(witness: dict[str, Any]) -> None:
    witness["prices"].pop()


def _field(witness: dict[str, Any]) -> None:
    witness["more"] = 1


def _words(witness: dict[str, Any]) -> None:
    witness["limit_s"] = "large"


def _no_limit(witness: dict[str, Any]) -> None:
    del witness["limit_s"]


def critical() -> dict[str, Any]:
    """Numbers of a path through four stages."""
    return {"passes": [[1, 2, 1, 1]] * 3, "transfers": [0, 1, 0], "after": [0, 0, 3, 0], "most": 1}


def _short(witness: dict[str, Any]) -> None:
    witness["critical"] = [{**critical(), "passes": [[1, 2, 1, 1]] * 2}]


def _ragged(witness: dict[str, Any]) -> None:
    witness["critical"] = [{**critical(), "passes": [[1, 2, 1, 1], [1, 2, 1], [1, 2, 1, 1]]}]


def _transfers(witness: dict[str, Any]) -> None:
    witness["critical"] = [{**critical(), "transfers": [0, 1, 0, 0]}]


def _after(witness: dict[str, Any]) -> None:
    witness["critical"] = [{**critical(), "after": [0]}]


def _most(witness: dict[str, Any]) -> None:
    witness["critical"] = [{**critical(), "most": 4}]


def _below_zero(witness: dict[str, Any]) -> None:
    witness["critical"] = [{**critical(), "transfers": [0, -1, 0]}]


def _twice(witness: dict[str, Any]) -> None:
    witness["critical"] = [critical()] * 2


def _chunk(witness: dict[str, Any]) -> None:
    witness["tree"] = {"chunk": 7, "layers": 2, "few": witness["tree"], "many": witness["tree"]}


def _device(witness: dict[str, Any]) -> None:
    witness["tree"] = {"device": 4, "layers": 2, "few": witness["tree"], "many": witness["tree"]}


def _nowhere(witness: dict[str, Any]) -> None:
    witness["tree"] = {"layers": 2, "few": witness["tree"], "many": witness["tree"]}


def _far(witness: dict[str, Any]) -> None:
    witness["critical"] = [{**critical(), "after": [2**63 - 1, 0, 10**30, 0]}]


def _huge(witness: dict[str, Any]) -> None:
    witness["tree"] = {"chunk": 1, "layers": 10**30, "few": witness["tree"], "many": witness["tree"]}


def _half(witness: dict[str, Any]) -> None:
    witness["tree"] = {"chunk": 1, "layers": 2, "few": witness["tree"]}


BOTH = [_share, _negative, _fewer, _field, _words, _no_limit]
PATHS = [_short, _ragged, _transfers, _after, _most, _below_zero, _twice, _far]


@pytest.mark.parametrize("tamper", [*BOTH, *PATHS, _chunk, _device, _nowhere, _half, _huge])
def test_branches_that_prove_nothing_are_refused(tamper: Callable[[dict[str, Any]], None]) -> None:
    """Weights that are no shares, other fields, no limit, half a split, and divisions or chunks that do not exist."""
    _, _, division = even()
    witness = copy.deepcopy(order_bound(division).witness)
    assert "tree" in witness and rederived(division, witness) > 0
    tamper(witness)
    assert rederived(division, witness) == -np.inf


@pytest.mark.parametrize("tamper", [*BOTH, _price, _missing_price])
def test_prices_that_prove_nothing_are_refused(tamper: Callable[[dict[str, Any]], None]) -> None:
    """Where layers are unlike, memory is priced: prices below 0, too few, and much of the above."""
    division = unlike()
    witness = copy.deepcopy(order_bound(division).witness)
    assert witness["prices"] and rederived(division, witness) > 0
    tamper(witness)
    assert rederived(division, witness) == -np.inf


@pytest.mark.parametrize("limit", [-1.0, 0.0, "1", None, float("nan"), 1e9, 1.7e308, 10**400])
def test_limits_that_prove_nothing_are_refused(limit: object) -> None:
    """What is no number of seconds, and seconds within which there is a division."""
    _, _, division = even()
    assert rederived(division, {"limit_s": limit}) == -np.inf


def test_large_prices_prove_no_more() -> None:
    """A division fills its memory to the byte: whatever memory costs, rounding does not make it cost more."""
    given = random_orders(4, list(SCHEDULES[2:]))
    choice = next(c for c in given.candidates if c.schedule == "v-half" and c.pp == 2 and c.micro_batch == 1)
    division = chunked(given, choice, BestLinks(given.links, given.rings))
    cuts = Division.of_ends(np.array([1, 2, 4, 5]), np.zeros(4, dtype=np.int64))
    excess = MasterRows(division).excess(cuts)
    full = replace(division, budget=division.budget + float(excess.max()))
    for exponent in range(31):
        prices = np.where(excess == excess.max(), 1.1 * 10.0**exponent, 0.0).tolist()
        witness = {"devices": [0.5, 0.5], "critical": [], "prices": prices, "limit_s": 1e9}
        assert rederived(full, witness) <= least_makespan(full, cuts) * TOLERANCE


def test_another_valid_witness_proves_no_more() -> None:
    """Whatever the shares, the splits and the prices, what they derive is a bound."""
    given, choice, division = even()
    optimum = enumerate_candidate(given, choice).seconds
    for seed in range(20):
        rng = np.random.default_rng(seed)
        few, many, weights = rng.dirichlet(np.ones(4), 3).tolist()
        leaves = {"layers": seed % 3 + 1, "few": {"shares": few}, "many": {"shares": many}}
        tree, of_device = {"chunk": seed % 4, **leaves}, {"device": seed % 4, **leaves}
        prices = {"devices": weights, "prices": rng.uniform(0, 1, 4).tolist()}
        for other in ({"tree": tree}, {"tree": of_device}, {"tree": {"shares": weights}}, prices):
            derived = rederived(division, {**other, "critical": [], "limit_s": 1e9})
            assert derived <= optimum * TOLERANCE


def test_claims_of_what_devices_take_prove_no_more() -> None:
    """Seconds at a leaf, alone or of a split, count only where they follow from what the devices can take."""
    given, choice, division = even()
    optimum = enumerate_candidate(given, choice).seconds
    derived = []
    for factor in (0.5, 0.9, 0.99, 1.0001, 1.2, 3.0):
        claim = {"seconds": factor * optimum}
        split = {"chunk": 1, "layers": 1, "few": claim, "many": claim}
        for tree in (claim, split, {**split, "few": {"seconds": 0.5 * optimum}}, {**split, "chunk": 0, "layers": 2}):
            for limit in (optimum * 1.1, optimum * 4):
                derived.append(rederived(division, {"tree": tree, "critical": [], "limit_s": limit}))
    assert max(derived) <= optimum * TOLERANCE
    assert max(derived) > 0.98 * optimum, "what follows counts"


def test_branches_raise_the_bound() -> None:
    """Ten equal layers on four devices mix well, and no division is as good: splits prove more, and derive again."""
    given = problem(cluster(4, 1), model(10), schedules=["zb-h1"], max_tp=1, fixed={"pp": 4})
    choice = max(given.candidates, key=lambda c: c.num_micro_batches)
    division = chunked(given, choice, BestLinks(given.links, given.rings))
    branching = BranchAndBound(DeviceChain(division, 1e3), [])
    optimum, values = enumerate_candidate(given, choice).seconds, [branching.seconds]
    while len(values) < 12 and branching.branch():
        values.append(branching.seconds)
        witness = json.loads(json.dumps(branching.witness()))
        assert rederived(division, witness) == pytest.approx(branching.seconds * (1 - 1e-10), rel=1e-15)
    assert values == sorted(values)
    assert values[0] < values[-1] <= optimum * TOLERANCE


def test_memory_that_no_division_fits_is_proven() -> None:
    """A V of two devices whose chunks fit alone and not in pairs: what devices take proves it, and names the bytes."""
    # 18 x 49,984 B of states a layer: two layers and their activations need 1.83 MB and more, one 0.9 MB.
    given = problem(cluster(2, 1, memory_gib=1.7e-3), model(4), schedules=["zb-v"], max_tp=1, fixed={"pp": 2})
    choice = next(c for c in given.candidates if c.micro_batch == 1)
    assert least_excess(partition_problem(given, choice))[0] == 0
    division = chunked(given, choice, BestLinks(given.links, given.rings))
    found = order_bound(division)
    assert found.seconds == np.inf
    assert enumerate_candidate(given, choice).seconds == np.inf
    assert missing_bytes(division, found.witness) == found.missing > 0
    assert missing_bytes(replace(division, budget=division.budget * 1.5), found.witness) < 0
    assert missing_bytes(division, {"missing": int(found.missing * 2)}) < 0
    assert missing_bytes(division, {"missing": -1}) < 0
    assert missing_bytes(division, {"missing": found.missing + 0.5}) < 0
    for words in ({"missing": True}, {"missing": 10**400}, {"prices": ["x"]}, {"prices": [[1.0]]}, {"prices": 1}, {}):
        assert missing_bytes(division, words) < 0
    even_prices = [1.0] * len(MasterRows(division).memory_rows)
    assert missing_bytes(division, {"prices": even_prices}) > 0, "priced memory proves it as well"


def test_a_chunk_that_fits_nowhere_names_no_bytes() -> None:
    """Where no chunk fits alone prices of any size prove that nothing fits, and no bytes are named."""
    _, _, division = even()
    small, rows = replace(division, budget=1.0), len(MasterRows(division).memory_rows)
    for price in (0.0, 1.0, 1e30):
        assert missing_bytes(small, {"prices": [price] * rows}) == np.inf
        assert missing_bytes(division, {"prices": [price] * rows}) == -np.inf
    assert missing_bytes(small, {"prices": [1.0] * (rows + 1)}) == -np.inf


def test_one_layer_may_take_longer_than_several_chunks() -> None:
    """A layer in the middle that takes nearly all the time leaves a division to begin with, and a bound."""
    _, _, division = even()
    times = np.where(np.arange(8) == 4, 100.0, 1.0)
    until = np.r_[0.0, times.cumsum()]
    spans = np.where(np.isfinite(division.passes), until[None, :] - until[:, None], np.inf)
    heavy = replace(division, passes=spans, budget=1e12)
    assert 0 < order_bound(heavy).seconds < np.inf


def test_divisions_that_are_alike_on_all_devices_are_known() -> None:
    """Ten layers on four devices of two chunks: three each in either round, less one on the last and the first."""
    given = problem(cluster(4, 1), model(10), schedules=["interleaved-1f1b"], max_tp=1, fixed={"pp": 4, "vpp": 2})
    choice = given.candidates[0]
    known = {
        division.stages
        for division in order_bound(chunked(given, choice, BestLinks(given.links, given.rings))).divisions
    }
    for layers in ([1, 2, 2, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 2, 2, 1]):
        ends = np.cumsum(layers)
        assert tuple(zip((ends - layers).tolist(), ends.tolist(), strict=True)) in known


def test_divisions_beyond_the_limit_do_not_weaken_a_bound() -> None:
    """Of ten equal layers on four devices, a tree begins as well with divisions that no option within its limit has."""
    given = problem(cluster(4, 1), model(10), schedules=["interleaved-1f1b"], max_tp=1, fixed={"pp": 4, "vpp": 2})
    choice = max(given.candidates, key=lambda c: c.num_micro_batches)
    division = chunked(given, choice, BestLinks(given.links, given.rings))
    chunks = np.zeros(8, np.int64)
    starts = [
        Division.of_ends(np.cumsum(layers), chunks) for layers in ([1] * 7 + [3], [3] + [1] * 7, [1, 1, 1, 3] + [1] * 4)
    ]
    limit = min(least_makespan(division, start) for start in order_bound(division).divisions)
    devices = DeviceChain(division, limit)
    assert not any(devices.contains(start) for start in starts)
    with_them, without = BranchAndBound(devices, starts), BranchAndBound(devices, [])
    assert with_them.seconds == pytest.approx(without.seconds, rel=1e-6)
