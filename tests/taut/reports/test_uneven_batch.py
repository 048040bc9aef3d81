"""What is shown and exported of a plan whose replicas run different numbers of micro-batches."""

import json
from pathlib import Path

import pytest

import taut
from taut.planning.plan import Plan
from taut.planning.solve import plan_one_degree
from taut.reports.plan_details import timeline_lines
from tests.taut.conftest import Run, refused
from tests.taut.planning.test_meshes import CLUSTER


@pytest.fixture(scope="module")
def uneven() -> Plan:
    """GPT-2 345M on two replicas of two stages on A100 and two on L4."""
    fix: dict[str, int | str] = {"uneven_batch": True, "pp": 2, "tp": 1, "recompute": "none"}
    request = taut.PlanRequest("gpt2-345m", CLUSTER, global_batch=32, stack="any", fix=fix, work_limit=20)
    return plan_one_degree(request)


def test_the_timeline_is_that_of_a_named_replica(uneven: Plan) -> None:
    """The slowest replica is named, and its passes are as many as its micro-batches, in words and on the page."""
    counts = uneven.strategy.micro_batches
    assert counts is not None and len(set(counts)) == 2
    words = timeline_lines(uneven, 200)[1]
    replica = int(words.removeprefix("timeline of replica ").split(",")[0])
    note = f"replica {replica}, the slowest, {counts[replica]} micro-batch"
    assert "the slowest: " in words and note in taut.plan_page(uneven)


@pytest.mark.proof
def test_exports_refuse_it_by_name_and_price_the_nearest(uneven: Plan, run: Run, tmp_path: Path) -> None:
    """No launcher divides a batch so: one line says it, with an even plan's options and seconds."""
    (path := tmp_path / "plan.json").write_text(json.dumps(uneven.document))
    for target in ("megatron", "flagscale"):
        outcome = run("export", path, "--to", target, "--out", tmp_path / "launch")
        refused(outcome, "its replicas divide the batch unevenly, which no launcher here does")
        assert "nearest plan that it can run" in outcome.err
