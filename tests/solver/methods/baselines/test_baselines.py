"""The baselines' own parts, each against its definition."""

from itertools import combinations

import numpy as np
import pytest

from taut.planning.request import PlanRequest
from taut.planning.resolve import planning_problem
from taut.solver.methods.baselines import balanced, fsdp, megatron, random_search, sample_domino, varuna
from taut.solver.result import Limits
from taut.solver.simple_plans import simple_plan

pytestmark = pytest.mark.proof


@pytest.mark.parametrize(("gpus", "nodes", "degrees"), [(4, 4, (8, 2, 1)), (4, 4, (2, 2, 4)), (8, 2, (2, 4, 2))])
def test_dominoes_tile_the_mesh(gpus: int, nodes: int, degrees: tuple[int, int, int]) -> None:
    """Every device has one worker, and every tensor group lies on one node."""
    rng, tilings = np.random.default_rng(0), set()
    for _ in range(40):
        placed = sample_domino(rng, gpus, nodes, degrees)
        assert placed is not None
        pp, tp, dp = degrees
        assert placed.shape == (pp, dp, tp)
        assert sorted(placed.ravel().tolist()) == list(range(gpus * nodes))
        assert (placed // gpus == placed[..., :1] // gpus).all()
        tilings.add(placed.tobytes())
    assert len(tilings) > 1


def test_load_balance_gives_faster_devices_more_layers() -> None:
    """Twelve layers on stages of 3 and 1 seconds for the whole model: three and nine, 0.75 s each."""
    ends = balanced(12, np.array([3.0, 1.0]))
    assert ends is not None
    assert ends.tolist() == [3, 12]
    assert balanced(1, np.array([1.0, 1.0])) is None


def test_load_balance_is_the_least_slowest_stage() -> None:
    """Against all divisions of ten layers over three random stages."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        whole = rng.uniform(0.5, 4.0, 3)
        ends = balanced(10, whole)
        assert ends is not None
        least = min(max(np.diff([0, *inner, 10]) * whole) for inner in combinations(range(1, 10), 2))
        assert max(np.diff([0, *ends]) * whole) == pytest.approx(least)


def test_megatrons_rule_takes_the_least_model_parallelism() -> None:
    """GPT-1.1B fits one device of 80 GB; GPT-3 175B takes all eight of a node and the least pipeline that fits."""
    small = planning_problem(PlanRequest("gpt-1.1b", "dgx-a100:2", global_batch=64))
    chosen = megatron(small, Limits()).incumbent
    assert chosen is not None
    assert (chosen.strategy.candidate.tp, chosen.strategy.candidate.pp) == (1, 1)
    large = planning_problem(PlanRequest("gpt3-175b", "dgx-a100:16", global_batch=512, fix={"micro_batch": 1}))
    chosen = megatron(large, Limits()).incumbent
    assert chosen is not None
    candidate = chosen.strategy.candidate
    assert candidate.tp == 8
    less = [each for each in large.candidates if each.zero <= 1 and each.tp * each.pp < candidate.tp * candidate.pp]
    assert all(simple_plan(large, each) is None for each in less if each.cp == 1 and each.zero <= 1)


def test_pipelines_alone_and_sharding_alone_stay_what_they_are() -> None:
    """Varuna has no tensor ranks and recomputes everything, FSDP has one stage and shards all states."""
    given = planning_problem(PlanRequest("gpt-1.1b", "dgx-a100:2", global_batch=64))
    pipeline, sharded = varuna(given, Limits()).incumbent, fsdp(given, Limits()).incumbent
    assert pipeline is not None
    assert pipeline.strategy.candidate.tp == 1
    assert set(pipeline.strategy.recompute) == {"full"}
    assert sharded is not None
    assert (sharded.strategy.candidate.pp, sharded.strategy.candidate.tp, sharded.strategy.candidate.zero) == (1, 1, 3)


def test_random_search_repeats_itself() -> None:
    """The same seed and number of samples draw the same plan; more samples are no worse."""
    given = planning_problem(PlanRequest("gpt2-345m", "dgx-a100", global_batch=32))
    once, again, more = (random_search(given, Limits(work_limit=n)).incumbent for n in (50, 50, 200))
    assert once is not None
    assert again is not None
    assert more is not None
    assert once.seconds == again.seconds
    assert more.seconds <= once.seconds
