"""Plans of meshes from Python and the command line: what is refused, written, checked, shown and exported."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import taut
from taut.data.catalog.builtin import catalog_stacks
from taut.planning.plan import Plan
from taut.planning.solve import plan_one_degree
from taut.simulation import MeshSimulation, write_trace
from taut.solver.certificate.document import MeshSection
from taut.solver.meshes.search import ORDERS
from tests.support.pages import run_command

CLUSTER: dict[str, Any] = {
    "name": "two-types",
    "nodes": [
        {
            "device": "a100-80gb",
            "gpus_per_node": 4,
            "intra_bandwidth_gbps": 2400,
            "intra_latency_us": 3,
            "nic_bandwidth_gbps": 400,
        },
        {
            "count": 2,
            "device": "l4-24gb",
            "gpus_per_node": 2,
            "intra_bandwidth_gbps": 256,
            "intra_latency_us": 10,
            "nic_bandwidth_gbps": 100,
        },
    ],
    "network": {"bandwidth_gbps": 100, "latency_us": 15},
}


@pytest.fixture(scope="module")
def plan() -> Plan:
    """GPT-2 345M on four A100 and four L4 in nodes of two."""
    return taut.plan("gpt2-345m", CLUSTER, method="meshes", global_batch=16, max_tp=4)


@pytest.mark.proof
def test_one_mesh_a_type_within_the_bound(plan: Plan) -> None:
    """Either type has a mesh of all its devices, the stages are all layers, and the bound is within 5 % and holds."""
    strategy = plan.meshed.strategy
    devices = {mesh.device: mesh.tp * mesh.dp * mesh.pp for mesh in strategy.meshes}
    assert devices == {"a100-80gb": 4, "l4-24gb": 4}
    assert (strategy.stages[0][0], strategy.stages[-1][1]) == (0, 24)
    assert plan.lower_bound_s is not None and 0.95 * plan.step_time_s <= plan.lower_bound_s <= plan.step_time_s
    outcome = plan.verify()
    assert outcome.holds and outcome.feasible_samples > 20, outcome


def test_what_no_run_has_shown_is_told_of_every_mesh(plan: Plan) -> None:
    """Every micro-batch that runs had not stands in the line that plain plans have, and in Python."""
    document = json.loads(json.dumps(plan.document))
    document["inputs"]["calibration"]["spec"]["seen"]["micro_batch"] = [90, 91]
    given = Plan(document)
    own = [*dict.fromkeys(mesh.micro_batch for mesh in plan.meshed.strategy.meshes)]
    assert [each.value for each in given.beyond if each.field == "micro_batch"] == own
    assert f"beyond      the measured runs in: micro-batch {own[0]} (seen 90 to 91)" in str(given)
    assert all(each.field != "micro_batch" for each in plan.beyond)


def test_degrees_by_type_are_no_worse_than_one_degree(plan: Plan) -> None:
    """The best plan of meshes with the stack's one tensor degree, fixed to stages in a row, is not below the bound."""
    asked = taut.PlanRequest("gpt2-345m", CLUSTER, global_batch=16, stack="flagscale", fix={"pp": 2}, time_limit=20)
    ordinary = plan_one_degree(asked)
    assert plan.lower_bound_s is not None and plan.lower_bound_s <= ordinary.step_time_s


def meshes_of(config: dict[str, Any]) -> list[MeshSection]:
    """Meshes that a configuration of FlagScale states by five numbers each: tp, cp, ep, dp and pp."""
    hetero = config["system"]["hetero"]
    numbers, kinds = hetero["hetero_process_meshes"], hetero["hetero_device_types"]
    whole = numbers[3] * config["model"]["micro_batch_size"]
    return [
        MeshSection(device=kind, tp=tp, dp=dp, pp=pp, micro_batch=whole // dp)
        for kind, tp, dp, pp in zip(kinds, numbers[0::5], numbers[3::5], numbers[4::5], strict=True)
    ]


def test_export_is_read_back(plan: Plan, tmp_path: Path) -> None:
    """FlagScale's words state meshes, layers and order of ranks of the plan; the hostfile every node with its type."""
    names = [path.name for path in taut.export(plan, "flagscale", tmp_path / "launch", hosts=["a", "b", "c"])]
    assert names == ["train.yaml", "hostfile", "plan.json", "launch.md"]
    config = yaml.safe_load((tmp_path / "launch" / "train.yaml").read_text())
    strategy = plan.meshed.strategy
    layers = [end - first for first, end in strategy.stages]
    assert meshes_of(config) == strategy.meshes
    assert config["system"]["hetero"]["hetero_pipeline_layer_split"] == layers
    assert config["system"].get("use_tp_pp_dp_mapping", False) == (strategy.rank_order != ORDERS[0])
    assert config["system"]["pipeline_model_parallel_size"] == len(layers)
    assert config["model"]["global_batch_size"] == 16
    hosts = (tmp_path / "launch" / "hostfile").read_text().splitlines()
    assert hosts == ["a slots=4 type=a100-80gb", "b slots=2 type=l4-24gb", "c slots=2 type=l4-24gb"]
    with pytest.raises(taut.DataError, match="expected flagscale alone"):
        taut.export(plan, "megatron", tmp_path / "other")


@pytest.mark.proof
def test_the_hostfile_lists_nodes_in_the_order_of_their_ranks(plan: Plan, tmp_path: Path) -> None:
    """With the two L4 nodes exchanged the plan holds, and the hostfile has them the other way round."""
    values = json.loads(json.dumps(plan.document))
    place = {4: 6, 5: 7, 6: 4, 7: 5}
    values["devices"] = [[[place.get(d, d) for d in rank] for rank in stage] for stage in values["devices"]]
    exchanged = taut.Plan(values)
    assert exchanged.verify().holds
    taut.export(exchanged, "flagscale", tmp_path / "launch", hosts=["a", "b", "c"])
    hosts = (tmp_path / "launch" / "hostfile").read_text().splitlines()
    assert [line.split()[0] for line in hosts] == ["a", "c", "b"]
    split = {4: 6, 6: 4}
    values["devices"] = [[[split.get(d, d) for d in rank] for rank in stage] for stage in values["devices"]]
    with pytest.raises(taut.DataError, match="a tensor group of mesh 0 lies on several nodes"):
        taut.export(taut.Plan(values), "flagscale", tmp_path / "other")


def test_first_replicas_times_micro_batch_divide_by_all_replicas(plan: Plan) -> None:
    """FlagScale divides what the first mesh takes at once, dp times micro-batch, by the replicas of every mesh."""
    meshes = plan.meshed.strategy.meshes
    whole = meshes[0].dp * meshes[0].micro_batch
    assert all(whole % mesh.dp == 0 and mesh.micro_batch == whole // mesh.dp for mesh in meshes)


@pytest.mark.proof
def test_command_line_writes_checks_and_shows(tmp_path: Path) -> None:
    """``--method meshes`` prints the plan and writes it; verify and show take the file, in words and as JSON."""
    cluster, out = tmp_path / "cluster.yaml", tmp_path / "plan.json"
    cluster.write_text(yaml.safe_dump(CLUSTER))
    words = ["gpt2-345m", str(cluster), "--global-batch", "8", "--fix", "zero=1", "--quiet"]
    printed = run_command(["taut", "plan", *words, "--method", "meshes", "--out", str(out)])
    assert "a100-80gb" in printed and "gap" in printed
    shown = run_command(["taut", "show", str(out)])
    before, after = shown.split("timeline")
    assert (
        printed.startswith(before.rstrip())
        and "stage 1  " in after
        and set(printed.splitlines()) <= {*shown.splitlines()}
    )
    assert json.loads(run_command(["taut", "show", str(out), "--json"])) == json.loads(out.read_text())
    assert "memory      model" in printed and "The gap is a claim about these prices" in printed
    with pytest.raises(AssertionError, match="exit code 2"):
        run_command(["taut", "show", str(out), "--break-even"])
    checked = run_command(["taut", "verify", str(out)])
    assert "choices of meshes" in checked and "exact: the lower bound holds in exact arithmetic" in checked
    assert json.loads(run_command(["taut", "verify", str(out), "--json"]))["holds"] is True


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"stack": "torchtitan"}, "stack: torchtitan, runs no plans of meshes, expected flagscale or any"),
        ({"latency_model": "pipette"}, "latency_model: pipette, does not price meshes, expected step"),
        ({"stack": "any", "optimizer_offload_fraction": (0.0, 0.5)}, "expected one number"),
        ({"fix": {"tp": 2}}, "fix: tp=2, differs by mesh"),
        ({"fix": {"schedule": "gpipe"}}, "fix: schedule=gpipe"),
        ({"fix": {"pp": 7}}, "cluster: two-types, has no choice of meshes"),
    ],
    ids=["stack", "latency", "shares", "degree", "schedule", "none"],
)
def test_what_meshes_do_not_have_is_refused(options: dict[str, Any], words: str) -> None:
    """One line that names the argument and what was expected."""
    with pytest.raises(taut.FieldError, match=words):
        taut.plan("gpt2-345m", CLUSTER, method="meshes", **{"global_batch": 8, **options})


@pytest.mark.proof
def test_what_takes_one_degree_refuses_meshes_by_name(plan: Plan, tmp_path: Path) -> None:
    """What needs one degree says that the file is a plan of meshes; reading and checking take it."""
    plan.write(path := tmp_path / "plan.json")
    words = "is a plan of meshes, expected a plan of one degree for all stages"
    for asked in (taut.place_strategy, taut.plot_time, taut.plot_placement, Plan.to_networkx):
        with pytest.raises(taut.DataError, match=words):
            asked(taut.load_plan(path))
    outcome = taut.verify(path)
    assert isinstance(outcome, taut.Verification) and outcome.holds
    assert "schedules 1f1b;" in outcome.space and taut.verify(plan.document) == outcome
    assert plan.status == "optimal" and plan.cluster_spec.num_devices == 8 and "<table>" in plan._repr_html_()


@pytest.mark.proof
def test_a_plan_of_meshes_stands_beside_one_of_one_degree(plan: Plan, tmp_path: Path) -> None:
    """Degrees and micro-batches are each mesh's; beside itself no worker moves, beside another plan none is counted."""
    plan.write(path := tmp_path / "meshes.json")
    rows = {what: values for what, *values in taut.compare_plans(path, plan)}
    assert all(one == other for one, other in rows.values() if one != "-")
    assert rows["workers on another device"] == ["-", "0"]
    first, second = plan.meshed.strategy.meshes
    degrees = [f"{mesh.device} {mesh.pp}, {mesh.tp}, 1, {mesh.dp}" for mesh in (first, second)]
    assert rows["pp, tp, cp, dp"][0] == "; ".join(degrees)
    ordinary = taut.plan("gpt2-345m", CLUSTER, global_batch=16, stack="megatron-core", fix={"pp": 2, "tp": 1})
    beside = {what: values for what, *values in taut.compare_plans(ordinary, plan)}
    assert beside["pp, tp, cp, dp"][0].startswith("2, ") and beside["step time"][1] == f"{plan.step_time_s:.6g} s"
    assert beside["workers on another device"] == ["-", "-"] and beside["communication"][1] == "-"


def test_a_step_is_simulated_pass_by_pass(plan: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its passes are those of 1F1B, near the closed form that planned it; a trace has each; parts add up."""
    plan.write(path := tmp_path / "plan.json")
    found, stages = taut.simulate(path), plan.meshed.strategy.stages
    assert isinstance(found, MeshSimulation)
    assert found.closed_form_s == pytest.approx(plan.step_time_s, rel=1e-12)
    assert abs(found.step_time_s / found.closed_form_s - 1) < 0.05
    assert sum(found.breakdown_s.values()) == pytest.approx(found.step_time_s) and found.breakdown_s["waiting"] >= 0
    write_trace(found, trace := tmp_path / "trace.json")
    slices = [event for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X"]
    count = plan.meshed.strategy.num_micro_batches * len(stages) * len(found.timeline.pipelines)
    assert len(slices) == found.tasks == 2 * count
    assert max(event["ts"] + event["dur"] for event in slices) == pytest.approx(1e6 * found.timeline.ended.max())
    printed = run_command(["taut", "simulate", str(path)])
    assert f"closed form {plan.step_time_s:.6g} s" in printed and "passes end" in printed
    values = json.loads(run_command(["taut", "simulate", str(path), "--json"]))
    assert values["step_time_s"] == found.step_time_s and len(values["passes_end_s"]) == len(stages)
    for words in (["--share-links"], ["--picture", str(tmp_path / "t.svg")]):
        with pytest.raises(AssertionError, match="exit code 2"):
            run_command(["taut", "simulate", str(path), *words])
        assert f"{words[0]}: {path} is a plan of meshes, expected" in capsys.readouterr().err


def test_a_page_has_meshes_memory_and_passes(plan: Plan, tmp_path: Path) -> None:
    """The page is one document with the plan's figures, a bar for every stage's memory and all choices listed."""
    plan.write(path := tmp_path / "plan.json")
    page = taut.plan_page(plan)
    assert page.startswith("<!doctype html>") and "http-equiv" in page and "src=" not in page
    assert all(mesh.device in page for mesh in plan.meshed.strategy.meshes) and f"{plan.step_time_s:.4g}" in page
    assert all(f"{each.step_time_s:.6g}" in page for each in plan.meshed.certificate.examined)
    assert page.count("GiB used") == 3 * len(plan.stages) and "timeline of the schedule" in page
    run_command(["taut", "report", str(path), "--out", str(tmp_path / "page.html")])
    assert (tmp_path / "page.html").read_text() == page
    values = json.loads(path.read_text())
    del values["predicted"]["breakdown_s"]["optimizer"]
    with pytest.raises(taut.DataError, match="lacks or contradicts a figure"):
        taut.plan_page(taut.Plan(values))


def test_nothing_fits_is_infeasible() -> None:
    """GPT-3 175B fits on no choice of meshes of eight devices."""
    with pytest.raises(taut.InfeasibleError, match="choices of meshes fits"):
        taut.plan("gpt3-175b", CLUSTER, method="meshes", global_batch=8)


def test_stacks_say_whether_they_have_meshes() -> None:
    """FlagScale and the whole space have meshes, nothing else; the rules of FlagScale's name their sources."""
    assert {name for name, stack in catalog_stacks().items() if stack.process_meshes} == {"flagscale", "any"}
    assert all(rule.source for rule in taut.load_stack("flagscale").rules)
