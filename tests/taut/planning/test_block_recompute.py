"""Recompute of the first layers of every chunk: prices by hand, launch files, and what is refused."""

from typing import Any

import pytest

import taut
from taut.errors import FieldError
from taut.exports.deepspeed import deepspeed_files
from taut.exports.job import ExportError, Job
from taut.exports.megatron import bridge_settings, megatron_flags
from taut.exports.torchtitan import torchtitan_files
from taut.formulations.latency import memory_bytes, step_time
from taut.formulations.simulation.graph import operator_graph
from taut.formulations.strategy import Division, Strategy
from taut.launchers.megatron import megatron_values
from taut.launchers.settings import Run
from taut.solver.simple_plans import rank_order
from tests.support.small import cluster, costs, model, problem

SHAPE = {"layers": 8, "hidden": 1024, "heads": 16, "ffn_hidden": 4096, "seq": 2048, "vocab": 32000}
MODEL = taut.ModelSpec.parse({"name": "row", **SHAPE}, "row")
FIXED: dict[str, Any] = {"pp": 2, "tp": 2, "dp": 2, "micro_batch": 2, "zero": 1, "schedule": "1f1b"}


def test_seconds_and_bytes_by_hand() -> None:
    """
    Two stages of 3 and 1 layers and two micro-batches, the first layer of each stage recomputed.

    A layer takes 3 s, and 1 s more if it is recomputed, where it keeps 100 bytes in the place of 1,000.
    """
    spec = model(4)
    table = costs(spec, activation_bytes=1000)
    given = problem(cluster(1, 2), spec, table=table, latency_model="step", global_batch=2, recompute_by_stage=False)
    given = taut.PlanningProblem(
        spec,
        given.cluster,
        table,
        given.memory,
        given.space.model_copy(update={"block_recompute": True, "fixed": {"pp": 2}}),
        "step",
    )
    layers = {each.recompute_layers for each in given.candidates}
    assert layers == {0, 1}
    chosen = {
        (each.uniform_recompute, each.recompute_layers): each
        for each in given.candidates
        if each.schedule == "1f1b" and each.micro_batch == 1
    }
    plan = {
        key: Strategy(candidate=one, division=Division(((0, 3), (3, 4)), (key[0],) * 2)) for key, one in chosen.items()
    }
    assert plan["full", 1].recompute_of_parts == ["full", "none", "none", "full"]
    seconds = {k: float(step_time(given, one, rank_order(one.candidate)).compute) for k, one in plan.items()}
    # Stages of 3 x 3 + 1 and 3 + 1 seconds: their sum, and the slower one once more.
    assert seconds["full", 1] == 14 + 10 and seconds["none", 0] == 12 + 9 and seconds["full", 0] == 16 + 12
    bytes_of = {k: memory_bytes(given, one) for k, one in plan.items()}
    # Two micro-batches in flight keep 900 bytes less each, and 900 come back for a moment.
    assert bytes_of["none", 0][0] - bytes_of["full", 1][0] == 2 * 900 - 900
    assert bytes_of["none", 0][0] - bytes_of["full", 0][0] == 2 * 2700 - 900
    # Forward passes of 3 s, the first gradient after 7 s (6 s), then two backward passes of 7 s (6 s, 9 s).
    for key, last in ((("full", 1), 21.0), (("none", 0), 18.0), (("full", 0), 25.0)):
        graph = operator_graph(given, plan[key], rank_order(plan[key].candidate))
        assert float((graph.times() + graph.seconds).max()) == pytest.approx(last, rel=1e-3)


def test_a_plan_is_written_read_back_compared_and_predicted() -> None:
    """Megatron's block method with the number of layers; other launchers refuse it."""
    plan = taut.plan(MODEL, "dgx-a100", global_batch=32, fix={**FIXED, "recompute_layers": 3})
    assert plan.verify().holds and plan.strategy.recompute_layers == 3
    assert "recompute of the first 3 layers of a chunk" in " ".join(str(plan).split())
    flags = megatron_flags(Job(plan))
    assert flags["--recompute-method"] == "block" and flags["--recompute-num-layers"] == "3"
    settings = bridge_settings(Job(plan))
    assert settings["model.recompute_method"] == "block" and settings["model.recompute_num_layers"] == 3
    values = megatron_values(flags, Run(MODEL))
    assert values["recompute"] == "full" and values["recompute_layers"] == 3
    for files in (deepspeed_files, torchtitan_files):
        with pytest.raises(ExportError):
            files(Job(plan))
    stages = [end - first for first, end in plan.strategy.stages]
    row = {"gpu": "a100", "n_gpus": 8, "global_batch": 32, **SHAPE, **FIXED, "stages": stages, "recompute": "full"}
    row |= {"sequence_parallel": plan.strategy.sequence_parallel, "stack": "megatron-core"}
    said, wrong, whole = taut.predict(
        [{**row, **more} for more in ({"recompute_layers": 3}, {"recompute_layers": 4}, {})]
    )
    assert said["error"] == "" and said["step_time_s"] == pytest.approx(plan.step_time_s, rel=1e-9)
    assert said["memory_bytes"] == max(plan.predicted.memory_bytes)
    assert "expected fewer than an even chunk has" in wrong["error"]
    assert whole["step_time_s"] > said["step_time_s"] and whole["memory_bytes"] < said["memory_bytes"]
    current = {**FIXED, "recompute": "full", "recompute_layers": 3, "sequence_parallel": True}
    found = taut.compare(MODEL, "dgx-a100", global_batch=32, current=current, work_limit=200)
    assert found.current.strategy["recompute_layers"] == 3
    change = next(each for each in found.changes if each.what == "recompute")
    assert (change.before, change.after) == ("recompute of the first 3 layers of a chunk", "none")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"stack": "torchtitan"}, "chunks of torchtitan recompute all layers or none"),
        ({"fix": {"recompute": "none"}}, "recompute is none, expected full"),
        ({"latency_model": "pipette", "stack": "megatron-core"}, "does not price recompute of some layers"),
        ({"mtp_layers": 1}, "expected mtp_layers 0"),
        ({"activation_offload_fraction": 0.5}, "goes with no activations in the host's memory"),
    ],
)
def test_what_has_no_such_plans_is_refused(options: dict[str, Any], words: str) -> None:
    """One line with the option, and what was expected."""
    with pytest.raises(FieldError, match=words):
        taut.planning_problem(taut.PlanRequest(MODEL, "dgx-a100", global_batch=32, block_recompute=True, **options))


def test_a_space_without_says_so() -> None:
    """A plan of the usual space names what is not searched, and one with these plans has them in its line."""
    fix = {**FIXED, "sequence_parallel": True}
    words = "recompute of the first layers of every chunk alone, unless block_recompute asks for it"
    usual, more = (taut.plan(MODEL, "dgx-a100", global_batch=32, fix=fix, block_recompute=b) for b in (False, True))
    assert words in usual.verify().unsearched and words not in more.verify().unsearched
    assert "of chunks' first layers, one for all stages" in more.verify().space
    assert more.step_time_s == usual.step_time_s
