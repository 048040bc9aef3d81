"""Regret bounds against enumeration under random errors, and their arithmetic by hand."""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import taut
from taut.data.arrays import Floats
from taut.data.cluster import ClusterSpec
from taut.data.costs import CostTable
from taut.data.units import GIB
from taut.formulations.latency import step_time
from taut.formulations.mechanisms.latency_models import LatencyName
from taut.formulations.problem import PlanningProblem
from taut.reports.sensitivity import break_even, regret, sensitivity, sensitivity_text
from taut.solver.certificate.document import PlanDocument, devices_of, strategy_of
from taut.solver.certificate.write import plan_document
from taut.solver.result import Limits, Status
from taut.solver.search.search import search
from tests.support.blocks import blocks
from tests.support.instances import random_problem
from tests.support.oracle import enumerate_all, enumerate_candidate
from tests.support.plans import made_plan
from tests.taut.conftest import Run


def priced(seed: int, latency_model: LatencyName = "pipette") -> PlanningProblem:
    """A small random problem in one of the papers' models."""
    given = random_problem(seed, measured=seed % 2 == 0)
    return PlanningProblem(
        given.model, given.cluster, given.costs, given.memory, given.space, latency_model, given.calibration
    )


@cache
def planned(seed: int) -> PlanDocument | None:
    """Its plan after little work, so that most gaps are open, or None where nothing fits or nothing was found."""
    limits = Limits(work_limit=6 if seed % 3 else None, workers=1)
    problem = priced(seed)
    result = search(problem, limits)
    if result.status is Status.INFEASIBLE or result.incumbent is None:
        return None
    return PlanDocument.model_validate(plan_document(problem, result, limits))


def off(problem: PlanningProblem, rng: np.random.Generator, below: float, above: float) -> PlanningProblem:
    """The problem with every price of a layer, an optimizer and a link times a factor of its own."""

    def factor(shape: tuple[int, ...] = ()) -> Floats:
        # The ends of the box are where a bound breaks first.
        return np.asarray(rng.choice([1 - below, 1 + above, rng.uniform(1 - below, 1 + above)], shape))

    costs = problem.costs.model_dump(mode="json")
    for row in costs["rows"]:
        for name in ("forward_s", "input_grad_s", "weight_grad_s"):
            row[name] *= float(factor())
    for name in costs["optimizer_s_per_parameter"]:
        costs["optimizer_s_per_parameter"][name] *= float(factor())
    cluster = problem.cluster.model_dump(mode="json")
    for node in cluster["nodes"]:
        node["intra_bandwidth_gbps"] /= float(factor())
    if cluster["network"].get("bandwidth_gbps"):
        cluster["network"]["bandwidth_gbps"] /= float(factor())
    if cluster["bandwidth_matrix"] is not None:
        rows = np.array(cluster["bandwidth_matrix"]["rows"], dtype=float)
        cluster["bandwidth_matrix"]["rows"] = (rows / factor(rows.shape)).tolist()
    return PlanningProblem(
        problem.model,
        ClusterSpec.parse(cluster, "cluster"),
        CostTable.parse(costs, "costs"),
        problem.memory,
        problem.space,
        problem.latency_model,
        problem.calibration,
    )


@pytest.mark.proof
@pytest.mark.parametrize("block", blocks(6))
def test_no_errors_of_prices_cost_more_than_the_regret(block: int) -> None:
    """With every price wrong by its own factor, in a paper's model, P is at most R slower than the enumerated best."""
    rng, tried = np.random.default_rng(block), 0
    for seed in range(5 * block, 5 * block + 5):
        plan = planned(seed)
        if plan is None:
            continue
        tried += 1
        below, above = rng.uniform(0.0, 0.5, 2).tolist()
        wrong = off(priced(seed), rng, below, above)
        strategy, devices = strategy_of(plan.strategy, "plan"), devices_of(plan, "plan")
        true, best = float(step_time(wrong, strategy, devices).total), enumerate_all(wrong).seconds
        at_most = regret(plan, below, above).at_most
        if at_most is not None:
            assert true <= best * (1 + at_most) * (1 + 1e-9), seed
        assert true <= (1 + above) * plan.certificate.objective_s * (1 + 1e-9), seed
    assert tried


@pytest.mark.proof
@pytest.mark.parametrize("block", blocks(6))
def test_every_candidate_that_can_win_is_counted(block: int) -> None:
    """A candidate whose enumerated optimum may be truly faster in the box is one of the rivals."""
    rng, tried = np.random.default_rng(block), 0
    for seed in range(5 * block, 5 * block + 5):
        plan = planned(seed)
        if plan is None:
            continue
        tried += 1
        below, above = rng.uniform(0.0, 0.3, 2).tolist()
        problem, own = priced(seed), strategy_of(plan.strategy, "plan").candidate
        optima = [enumerate_candidate(problem, each).seconds for each in problem.candidates if each != own]
        worst = (1 + above) * plan.certificate.objective_s
        assert (
            sum((1 - below) * seconds < worst * (1 - 1e-9) for seconds in optima) <= regret(plan, below, above).rivals
        )
    assert tried


def test_regret_by_hand() -> None:
    """J = 2, LB = 1.5: 1.1 * 2 / (0.9 * 1.5) - 1 = 0.62963; without errors 2 / 1.5 - 1 = 1 / 3."""
    plan = made_plan().typed
    assert regret(plan, 0.1, 0.1).at_most == pytest.approx(2.2 / 1.35 - 1)
    assert regret(plan, 0.0, 0.0).at_most == pytest.approx(1 / 3)
    unproven = made_plan(certificate={"lower_bound_s": None}).typed
    assert regret(unproven, 0.1, 0.1).at_most is None


def test_errors_up_to_the_break_even_exclude_a_candidate() -> None:
    """With r = 2.2 / 2, (1 + e) / (1 - e) = 1.1 at e = 0.1 / 2.1; an open candidate may win without any error."""
    assert break_even(2.2, 2.0) == pytest.approx(0.1 / 2.1)
    assert break_even(1.9, 2.0) == 0.0
    entry = {"strategy": {"pp": 2}, "state": "pruned", "lower_bound_s": 2.2, "source": "cover", "witness": {}}
    plan = made_plan(certificate={"candidates": [entry]}).typed
    error = break_even(2.2, 2.0)
    assert regret(plan, 0.999 * error, 0.999 * error).rivals == 0
    assert regret(plan, 1.001 * error, 1.001 * error).rivals == 1


def test_memory_may_be_too_low_by_what_the_fullest_stage_has_left() -> None:
    """15 of 16 GiB are used on the fuller stage: 16 / 15 - 1 = 6.7 %."""
    memory = {"memory_bytes": [8 * GIB, 15 * GIB], "capacity_bytes": [16 * GIB, 16 * GIB]}
    found = sensitivity(made_plan(pp=2, predicted=memory).typed)
    assert found.memory_error == pytest.approx(1 / 15)


def test_words_keep_to_the_columns() -> None:
    """At 80 columns no line is longer, and without a calibration the band is not known."""
    text = sensitivity_text(made_plan().typed, width=80)
    assert [line for line in text.splitlines() if len(line) > 80] == []
    assert "not known" in text


def test_command_adds_the_sensitivity(tmp_path: Path, run: Run) -> None:
    """``show --sensitivity`` prints it below the plan, and ``--json`` adds it beside the document."""
    found = taut.plan("gpt2-345m", "dgx-a100", global_batch=32, fix={"pp": 2, "tp": 1, "micro_batch": 4})
    path = tmp_path / "plan.json"
    found.write(path)
    shown = run("show", path, "--sensitivity")
    assert (shown.code, shown.err) == (0, "")
    assert "if the prices are wrong" in shown.out
    printed = json.loads(run("show", path, "--sensitivity", "--json").out)
    assert printed.pop("sensitivity") == json.loads(json.dumps(sensitivity(found.typed).as_dict()))
    assert printed == found.document
