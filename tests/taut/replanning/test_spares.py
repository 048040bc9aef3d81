"""Expected speeds with spare nodes: against enumeration of all states, birth and death, and hand values."""

import json
import math
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import taut
from taut.errors import FieldError
from taut.planning.plan import Plan
from taut.replanning.replan import replica_speeds
from taut.replanning.spares import GPU_DAYS, LOST_MINUTES, expected_speeds, replicas_of, spare_nodes
from tests.taut.conftest import Run, refused


@pytest.fixture(scope="module")
def plan() -> Plan:
    """Four nodes of one replica each."""
    fix: Any = {"pp": 1, "tp": 8, "micro_batch": 2}
    return taut.plan("gpt2-345m", "dgx-a100:4", global_batch=48, fix=fix, workers=1)


def by_states(speeds: list[float], nodes: int, spares: int, down: float, stop: float, *, rigid: bool) -> float:
    """E(s) as the sum over every combination of nodes that are up and down."""
    found, dp = 0.0, len(speeds) - 1
    for states in product((0, 1), repeat=nodes + spares):
        up = sum(states)
        replicas = min(up, nodes) * dp // nodes
        if rigid and replicas < dp:
            continue
        used = math.ceil(replicas * nodes / dp)
        chance = (1 - down) ** up * down ** (len(states) - up)
        found += chance * speeds[replicas] / (1 + used * stop)
    return found


def test_500_expectations_against_all_states() -> None:
    """The closed form agrees with the sum over up to 2^9 states of the nodes."""
    for seed in range(500):
        rng = np.random.default_rng(seed)
        nodes, spares = int(rng.integers(1, 6)), int(rng.integers(0, 5))
        speeds = [0.0, *np.cumsum(rng.random(int(rng.integers(1, 7)))).tolist()]
        down, stop, rigid = float(rng.uniform(0.01, 0.5)), float(rng.uniform(0, 0.1)), bool(rng.integers(2))
        found, complete = expected_speeds(speeds, nodes, spares, down, stop, rigid=rigid)
        assert math.isclose(found, by_states(speeds, nodes, spares, down, stop, rigid=rigid), rel_tol=1e-9)
        assert 0 < complete <= 1 + 1e-12


def test_chances_are_those_of_birth_and_death() -> None:
    """The stationary distribution of the rates (N - j) l and j m, solved as a linear system, gives the same."""
    failing, repaired, nodes, spares = 0.2, 1.5, 3, 2
    whole = nodes + spares
    rates = np.zeros((whole + 1, whole + 1))
    for j in range(whole + 1):
        if j < whole:
            rates[j, j + 1] = (whole - j) * failing
        if j:
            rates[j, j - 1] = j * repaired
        rates[j, j] = -rates[j].sum()
    system = np.vstack([rates.T, np.ones(whole + 1)])
    chance = np.linalg.lstsq(system, np.array([0.0] * (whole + 1) + [1.0]), rcond=None)[0]
    speeds = [0.0, 1.0, 2.0, 3.0]
    expected = sum(chance[j] * speeds[min(whole - j, nodes)] for j in range(whole + 1))
    found, complete = expected_speeds(speeds, nodes, spares, failing / (failing + repaired), 0.0)
    assert math.isclose(found, expected, rel_tol=1e-9)
    assert math.isclose(complete, chance[: spares + 1].sum(), rel_tol=1e-9)


def test_one_node_by_hand() -> None:
    """A node that is down one day of five: 0.8 without a spare node, 0.96 with one; halved by stops as long as runs."""
    assert math.isclose(expected_speeds([0.0, 1.0], 1, 0, 0.2, 0.0)[0], 0.8)
    assert math.isclose(expected_speeds([0.0, 1.0], 1, 1, 0.2, 0.0)[0], 0.96)
    assert math.isclose(expected_speeds([0.0, 1.0], 1, 0, 0.2, 1.0)[0], 0.4)


def test_replicas_smaller_and_larger_than_nodes() -> None:
    """Of 4 nodes with 2 replicas, 3 nodes hold 1; of 2 nodes with 4 replicas, 1 node holds 2."""
    assert [replicas_of(2, 4, up) for up in range(6)] == [0, 0, 1, 1, 2, 2]
    assert [replicas_of(4, 2, up) for up in range(4)] == [0, 2, 4, 4]


def test_published_rates() -> None:
    """419 interruptions of 16,384 GPUs in 54 days; a tenth of 54 days over 466 interruptions."""
    assert math.isclose(GPU_DAYS / 8, 263.9, rel_tol=1e-3) and math.isclose(LOST_MINUTES, 16.69, rel_tol=1e-3)


@pytest.mark.parametrize("rigid", [False, True])
@pytest.mark.parametrize("days", [2.0, 20.0, 200.0])
def test_the_best_numbers_are_those_of_enumeration(plan: Plan, days: float, rigid: bool) -> None:
    """Of 0 to 60 spare nodes none has more speed a node, and none below ``enough`` reaches the goal."""
    found = spare_nodes(plan, node_days=days, goal=0.9, rigid=rigid)
    speeds = replica_speeds(plan)
    down, stop = 1 / (1 + days), found.lost_minutes / (days * 1440)
    every = [expected_speeds(speeds, 4, s, down, stop, rigid=rigid)[0] for s in range(61)]
    assert found.best == int(np.argmax([speed / (4 + s) for s, speed in enumerate(every)]))
    reached = [s for s, speed in enumerate(every) if speed >= 0.9 * speeds[-1]]
    assert found.enough == (reached[0] if reached else None)
    assert max(every) <= found.most_share * speeds[-1] * (1 + 1e-12)


def test_a_goal_that_no_number_reaches_is_said(plan: Plan) -> None:
    """With long stops no number of spare nodes reaches 0.99."""
    found = spare_nodes(plan, node_days=2.0, lost_minutes=120.0, goal=0.99)
    assert found.enough is None and "no number of spare nodes" in str(found)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"node_days": 0.0}, "node_days"),
        ({"repair_hours": math.nan}, "repair_hours"),
        ({"lost_minutes": -1.0}, "lost_minutes"),
        ({"goal": 1.0}, "goal"),
    ],
)
def test_wrong_rates_are_refused(plan: Plan, given: Any, field: str) -> None:
    """Each by the name of its field."""
    with pytest.raises(FieldError) as error:
        spare_nodes(plan, **given)
    assert error.value.field == field


def test_the_command_line(run: Run, plan: Plan, tmp_path: Path) -> None:
    """A table, JSON, and one line with exit code 2 for a wrong rate."""
    path = tmp_path / "plan.json"
    plan.write(path)
    assert "most speed" in run("spares", path).out
    assert json.loads(run("spares", path, "--goal", "0.9", "--json").out)["nodes"] == 4
    refused(run("spares", path, "--goal", "2"), "--goal 2: expected a share")
