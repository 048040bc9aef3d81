"""Racks told apart for groups of two tensor ranks, measured device by device: no case is bounded above its optimum."""

from itertools import permutations, product

import numpy as np
import pytest

from taut.data.arrays import Floats, Ints
from taut.data.model import ModelSpec
from taut.formulations.latency import step_time
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.solver.bounds.link_bounds import BestLinks
from taut.solver.placement.path_cover import bound
from taut.solver.placement.path_cover.bound import Covered, cover_bound, has_cover
from taut.solver.placement.path_cover.build import CaseSearch
from taut.solver.placement.path_cover.racks import RackCase, Racks, known_racks
from taut.solver.placement.slots import slot_graph
from tests.support.blocks import blocks
from tests.support.rack_cases import holds
from tests.support.small import cluster, costs, model, problem, strategy

pytestmark = pytest.mark.proof

NODES, PP, DP = 6, 3, 2
ROUNDING = 1 + 1e-9


def planned(rate: Floats, spec: ModelSpec, seconds: float, batch: int, schedule: str = "1f1b") -> PlanningProblem:
    """Three stages of two replicas, each on both devices of a node."""
    table = costs(spec, seconds=dict.fromkeys(spec.kinds, seconds))
    fixed = {"pp": PP, "tp": 2, "zero": 0, "micro_batch": 1, "schedule": schedule}
    nodes = cluster(NODES, 2, rows=rate.tolist())
    return problem(nodes, spec, table=table, latency_model="step", global_batch=batch, fixed=fixed, recompute=["none"])


def ways_back_of_different_ranks(slower: float) -> tuple[PlanningProblem, Ints]:
    """Two full racks and two single nodes; one rank is slow on the way back of each hop between them, in turn."""
    rack = np.array([0, 0, 1, 1, 2, 3])
    of, local = np.repeat(rack, 2), np.arange(2 * NODES) % 2
    rate = np.where(np.equal.outer(of, of), 1000.0, 1.0)
    rate[np.ix_((of == 1) & (local == 0), of == 0)] /= slower
    rate[np.ix_((of >= 2) & (local == 1), of == 1)] /= slower
    spec = ModelSpec.parse({"name": "small", "layers": 3, "hidden": 64, "heads": 4, "seq": 10}, "small")
    return planned(rate, spec, 1e-12, 2), rack


def random_ranks(seed: int) -> tuple[PlanningProblem, Ints]:
    """Racks of two or three nodes, links of two devices each of their own."""
    rng = np.random.default_rng(seed)
    rack = rng.permutation(np.arange(NODES) // (2 + seed % 2))
    of = np.repeat(rack, 2)
    rate = np.exp(rng.normal(-3, float(rng.choice([0.3, 1.0])), (2 * NODES, 2 * NODES)))
    rate /= np.where(np.equal.outer(of, of), 1.0, 4.0) * np.exp(rng.choice([0, 3], rate.shape) * (seed % 3 == 0))
    seconds, batch = float(np.exp(rng.uniform(-13, -7))), 2 * int(rng.integers(1, 9))
    return planned(rate, model(3), seconds, batch, ["1f1b", "gpipe"][seed % 2]), rack


def covered(racks: Racks, case: RackCase, gradients: float) -> Covered:
    graph = racks.restricted(case)
    longest = float(graph.hops.sum(axis=1).max())
    search = CaseSearch(graph=graph, gradients=gradients, target=10 * longest, longest=longest)
    for _ in range(6):
        if not search.refine(rounds=10):
            break
    return Covered(bound=search.bound(), case=case, ring=racks.ring)


def optimum(planning: PlanningProblem, choice: Candidate, placed: Ints) -> float:
    """Least seconds of placements (placements, dp, pp) of nodes, with both orders of the devices of every node."""
    nodes = placed.swapaxes(1, 2)
    flips = np.array(list(product((0, 1), repeat=NODES)))[:, nodes]
    devices = np.stack([2 * nodes + flips, 2 * nodes + 1 - flips], axis=-1).reshape(-1, PP, DP, 2)
    return float(step_time(planning, strategy(choice, 1, 2, 3), devices).total.min())


def check(given: tuple[PlanningProblem, Ints]) -> int:
    """Check every case on its own and all together; returns how many have placements."""
    planning, rack = given
    (choice,) = [each for each in planning.candidates if not each.sequence_parallel]
    assert has_cover(planning, choice) and not planning.links.by_node
    racks, best = known_racks(slot_graph(planning, choice), rack), BestLinks(planning.links, planning.rings)
    assert racks is not None
    orders = np.array(list(permutations(range(NODES)))).reshape(-1, DP, PP)
    orders = orders[orders[:, 0, 0] < orders[:, 1, 0]]
    gradients = float(planning.gradient_bytes(choice)[0, 1]) / planning.transfer_weight(choice)
    proven, least, met = [], np.inf, 0
    for case in racks.cases(PP + 1):
        proven.append(covered(racks, case, gradients))
        among = orders[holds(case, racks.rack, orders)]
        if len(among):
            exact, met = optimum(planning, choice, among), met + 1
            least = min(least, exact)
            assert cover_bound(planning, choice, best, (proven[-1],))[0] <= exact * ROUNDING, case
    assert cover_bound(planning, choice, best, tuple(proven))[0] <= least * ROUNDING
    return met


@pytest.mark.parametrize("slower", [2.0, 5.0, 20.0])
def test_ways_back_of_different_ranks_may_take_more_than_the_path(slower: float) -> None:
    """Ranks that are slow on the way back of one hop each leave less than nothing of a path of two hops."""
    assert check(ways_back_of_different_ranks(slower)) == 3


@pytest.mark.parametrize("block", blocks(20))
def test_no_case_of_two_ranks_is_above_its_optimum(block: int) -> None:
    """120 instances of three stages, whose hops are as slow as the slower sum of two ranks."""
    assert sum(check(random_ranks(seed)) for seed in range(6 * block, 6 * block + 6)) > 6


def test_a_planted_bug_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """If ways back never took more than their hops of one rank, a bound would be above its optimum."""
    one_hop = bound.CoveredSeconds.ways_back

    def within_the_path(self: bound.CoveredSeconds, longest: float, place: int) -> float:
        return min(one_hop(self, longest, place), longest)

    monkeypatch.setattr(bound.CoveredSeconds, "ways_back", within_the_path)
    with pytest.raises(AssertionError):
        check(ways_back_of_different_ranks(20.0))
