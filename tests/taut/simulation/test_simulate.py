"""``taut.simulate``: of a plan, of a request, of fixed values; and what it refuses."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import taut
from taut.errors import DataError, FieldError
from taut.formulations.simulation.passes import STREAMS
from taut.simulation import summary, write_trace
from tests.support.launches import model_with_experts, small_cluster
from tests.taut.conftest import Run, refused

FIX: dict[str, int | str] = {"pp": 2, "tp": 2, "micro_batch": 4, "zero": 0, "recompute": "none"}


@pytest.fixture(scope="module")
def found() -> taut.Simulation:
    """Two stages on eight devices."""
    return taut.simulate("gpt2-345m", "dgx-a100", global_batch=32, fix=FIX)


def test_the_parts_of_the_average_device_add_up_to_the_step(found: taut.Simulation) -> None:
    """Computation, exposed communication, bubble and constant are the whole step."""
    assert sum(found.breakdown_s.values()) == pytest.approx(found.step_time_s)
    assert 0 < found.bubble < 1
    assert found.exposed_s["tensor_parallel"] > 0
    assert {name: len(shares) for name, shares in found.utilisation.items()} == dict.fromkeys(STREAMS, 2)


def test_memory_over_time_peaks_at_the_predicted_bytes(found: taut.Simulation) -> None:
    """Of every stage, and it fits the devices."""
    assert [curve.held.max() for curve in found.memory] == pytest.approx(found.memory_bytes)
    assert found.fits


def test_a_plan_is_simulated_as_it_stands(tmp_path: Path) -> None:
    """From the plan, its file and its values: the same figures, near the planned step time."""
    plan = taut.plan("gpt2-345m", "dgx-a100", global_batch=32, fix=FIX)
    plan.write(tmp_path / "plan.json")
    steps = [taut.simulate(given).step_time_s for given in (plan, tmp_path / "plan.json", plan.document)]
    assert len(set(steps)) == 1
    assert steps[0] == pytest.approx(plan.step_time_s, rel=0.02)


def test_shared_links_are_said() -> None:
    """A step with shared cards takes no less, and its figures and words say so; on one node nothing is shared."""
    fix = {"pp": 2, "tp": 1, "micro_batch": 4}
    alone = taut.simulate("gpt2-345m", "dgx-a100", global_batch=32, fix=fix)
    shared = taut.simulate("gpt2-345m", "dgx-a100", global_batch=32, fix=fix, share_links=True)
    assert shared.step_time_s == alone.step_time_s
    assert (alone.as_dict()["share_links"], shared.as_dict()["share_links"]) == (False, True)
    assert "slow each other" in summary(shared)
    assert "slow each other" not in summary(alone)


def test_papers_latency_models_give_way_to_the_prices_of_step() -> None:
    """A plan made in ``pipette`` is simulated with the same prices as one made in ``step``."""
    steps = [
        taut.simulate("gpt2-345m", "dgx-a100", global_batch=32, fix=FIX, latency_model=name, stack="any").step_time_s
        for name in ("step", "pipette")
    ]
    assert steps[0] == pytest.approx(steps[1], rel=1e-12)


def test_open_choices_go_to_the_fastest_simple_plan_that_fits() -> None:
    """Without a tensor degree the closed form chooses, and what is fixed stays."""
    found = taut.simulate("gpt2-345m", "dgx-a100", global_batch=32, fix={"pp": 2})
    assert found.strategy.candidate.pp == 2
    assert found.fits
    better = taut.simulate("gpt2-345m", "dgx-a100", global_batch=32, fix=FIX)
    assert found.closed_form_s <= better.closed_form_s


def test_a_configuration_that_does_not_fit_is_simulated_and_said_so() -> None:
    """175 billion parameters on eight devices."""
    fix: dict[str, int | str] = {"pp": 1, "tp": 8, "micro_batch": 1, "recompute": "none"}
    assert not taut.simulate("gpt3-175b", "dgx-a100", global_batch=8, fix=fix).fits


def test_options_beside_a_plan_are_refused() -> None:
    """A plan holds everything."""
    beside: dict[str, Any] = {"global_batch": 8}
    with pytest.raises(FieldError, match="given together with a plan"):
        taut.simulate("plan.json", **beside)


def test_too_many_open_candidates_are_refused() -> None:
    """Thousands of candidates are a search, not a simulation."""
    with pytest.raises(DataError, match="fix more"):
        taut.simulate("gpt3-175b", "dgx-a100:128", global_batch=1536, stack="any", schedules="all")


def test_events_of_a_trace_are_the_tasks(found: taut.Simulation, tmp_path: Path) -> None:
    """A slice for every task that lasts, on the thread of its stream, that adds up to the streams' busy time."""
    write_trace(found, tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert events == list(found.trace_events())
    slices = [event for event in events if event["ph"] == "X"]
    assert len(slices) == np.count_nonzero(found.graph.seconds)
    assert max(event["ts"] + event["dur"] for event in slices) == pytest.approx(1e6 * float(found.end.max()))
    busy = sum(event["dur"] for event in slices if (event["pid"], event["tid"]) == (1, 0)) / 1e6
    assert busy / found.step_time_s == pytest.approx(found.utilisation["compute"][1])
    names = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert names == {
        "stage 0, replica 0 (stands for 2 replicas)",
        "stage 1, replica 0 (stands for 2 replicas)",
        "whole job",
    }
    assert {event["pid"] for event in events if event["ph"] == "C"} == {0, 1}


def test_command_prints_writes_and_draws(run: Run, tmp_path: Path) -> None:
    """JSON with the fields of the design, a trace that parses, a picture."""
    trace, picture = tmp_path / "t.json", tmp_path / "t.png"
    fix = ",".join(f"{name}={value}" for name, value in FIX.items())
    words = ("simulate", "gpt2-345m", "dgx-a100", "--global-batch", 32, "--fix", fix)
    outcome = run(*words, "--json", "--trace", trace, "--picture", picture)
    assert outcome.code == 0
    figures = json.loads(outcome.out)
    assert {"step_time_s", "tasks", "wall_s", "bubble", "memory_bytes"} <= set(figures)
    assert json.loads(trace.read_text())["displayTimeUnit"] == "ms"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert f"step        {figures['step_time_s']:.6g} s" in run(*words).out


def test_command_refuses_in_one_line(run: Run, tmp_path: Path) -> None:
    """A plan with options, a model without a cluster, a picture of no format."""
    refused(run("simulate", tmp_path / "plan.json", "--fix", "tp=2"), "--fix: given together with a plan")
    refused(run("simulate", "gpt2-345m"), "CLUSTER: missing")
    refused(run("simulate", tmp_path / "none.json"), "none.json: No such file")
    refused(run("simulate", "gpt2-345m", "dgx-a100"), "--global-batch: missing")
    words = ("simulate", "gpt2-345m", "dgx-a100", "--global-batch", 32)
    refused(run(*words, "--picture", "t.gif"), "--picture t.gif: expected a name")
    refused(run(*words, "--fix", "tp=3"), "--fix tp=3: expected a divisor")


def test_expert_ranks_are_simulated() -> None:
    """A group of replicas that share experts runs in step, and waits for its exchanges."""
    fix = {"tp": 1, "pp": 2, "ep": 4, "etp": 1, "micro_batch": 1, "zero": 1}
    found = taut.simulate(model_with_experts(8), small_cluster(), global_batch=16, fix=fix)
    assert found.exposed_s["expert_parallel"] > 0.0
    assert "expert ranks" in summary(found)
    assert found.step_time_s == pytest.approx(found.closed_form_s, rel=0.1)
