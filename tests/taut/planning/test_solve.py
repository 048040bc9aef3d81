"""Plans from Python: what they say of themselves, what repeats, and how they are written."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import taut
from taut.data.cluster import ClusterSpec, MatrixSpec
from taut.data.costs import CostTable
from taut.data.load import load_cluster, load_model
from taut.data.memory import MemoryModel
from taut.errors import DataError, InfeasibleError, NothingFoundError
from taut.planning.plan import Plan
from taut.planning.solve import plan
from taut.planning.summary import bubble_of
from taut.solver.branch_and_bound.stop import Progress

pytestmark = pytest.mark.proof

BATCH = 32


@pytest.fixture(scope="module")
def found() -> Plan:
    """GPT-2 345M on four nodes of four T4, 32 sequences a step, searched to the optimum."""
    return plan("gpt2-345m", "amp-homogeneous", global_batch=BATCH, fix={"zero": 1}, gap=0.0)


def measured() -> ClusterSpec:
    """Sixteen such nodes with a measured matrix, too many for an exact placement, so that annealing takes part."""
    rows = np.random.default_rng(7).uniform(5.0, 50.0, (16, 16)).tolist()
    matrix = MatrixSpec(unit="Gb/s", rows=rows)
    return load_cluster("g4dn.12xlarge:16").model_copy(update={"bandwidth_matrix": matrix})


def repeated(**options: Any) -> dict[str, Any]:
    """Document of a search with a fixed amount of work, without its wall time; its plan is annealed, so not proven."""
    document = plan("gpt2-345m", measured(), global_batch=BATCH, **{"work_limit": 40, **options}).document
    assert document["certificate"]["gap"] > 0
    assert document["provenance"].pop("wall_s") >= 0
    assert all(moment.pop("wall_s") >= 0 for moment in document["provenance"]["history"])
    return document


def test_properties_are_the_documents_figures(found: Plan) -> None:
    """Every property names one figure of the document."""
    document = found.document
    assert found.status == document["status"] == "optimal"
    assert found.strategy.as_dict() == document["strategy"]
    assert found.devices == document["placement"]["devices"]
    assert found.step_time_s == document["predicted"]["step_time_s"] == document["certificate"]["objective_s"]
    assert found.lower_bound_s == document["certificate"]["lower_bound_s"]
    assert found.gap == document["certificate"]["gap"]
    assert str(found).startswith("gpt2-345m on amp-homogeneous: 16 devices, global batch 32")


def test_plan_uses_every_device_layer_and_sequence_once(found: Plan) -> None:
    """Degrees, stages, placement and micro-batches cover what is given exactly."""
    strategy = found.strategy
    assert strategy.pp * strategy.tp * strategy.dp == 16
    assert strategy.dp * strategy.micro_batch * strategy.num_micro_batches == BATCH
    assert np.array(found.devices).shape == (strategy.pp, strategy.dp, strategy.tp)
    assert sorted(np.array(found.devices).ravel().tolist()) == list(range(16))
    ends = [end for _, end in strategy.stages]
    assert [first for first, _ in strategy.stages] == [0, *ends[:-1]]
    assert ends[-1] == 24
    assert len(strategy.recompute) == len(strategy.stages) == strategy.pp * strategy.vpp


def test_bound_gap_and_parts_agree_with_the_step_time(found: Plan) -> None:
    """The bound is below the step time by the gap, and the parts add up to the step time."""
    assert found.lower_bound_s is not None
    assert found.gap is not None
    assert 0 < found.lower_bound_s <= found.step_time_s
    assert found.gap == pytest.approx((found.step_time_s - found.lower_bound_s) / found.step_time_s, abs=1e-12)
    assert found.gap <= 1e-6
    assert sum(found.document["predicted"]["breakdown_s"].values()) == pytest.approx(found.step_time_s)
    certificate = found.document["certificate"]
    assert certificate["lower_bound_no_margin_s"] <= found.lower_bound_s * (1 + 1e-9)


def test_memory_fits_with_its_margin(found: Plan) -> None:
    """Every stage's bytes and margin fit what a process sees of a T4; the margin is 5 % of it, rounded up to a KiB."""
    predicted = found.document["predicted"]
    assert set(predicted["capacity_bytes"]) == {14.75 * 1024**3}
    # 0.05 x 15,466,496 KiB = 773,324.8, so 773,325 KiB.
    assert set(predicted["margin_bytes"]) == {773_325 * 1024}
    for used, margin, capacity in zip(
        predicted["memory_bytes"], predicted["margin_bytes"], predicted["capacity_bytes"], strict=True
    ):
        assert used + margin <= capacity


def test_throughput_and_utilisation_follow_from_the_step_time(found: Plan) -> None:
    """Tokens per second and model FLOP utilisation are the step's tokens and FLOP over its time."""
    predicted = found.document["predicted"]
    # 32 sequences of 1024 tokens.
    assert predicted["tokens_per_s"] == pytest.approx(32 * 1024 / found.step_time_s)
    # A layer: 2 x 1024 x 12 x 1024^2 + 4 x 1024^3 = 28 x 1024^3 FLOP; 24 of them; head 2 x 1024^2 x 52256; x 3.
    flops = 3 * (24 * 28 * 1024**3 + 2 * 1024**2 * 52_256)
    # 16 devices of 65 TFLOP/s in fp16.
    assert predicted["mfu"] == pytest.approx(32 * flops / found.step_time_s / (16 * 65e12))


def test_utilisation_of_hardware_is_of_the_seconds_of_computation(found: Plan) -> None:
    """What a step executes, half of the cores masked, over the peaks in the seconds of all passes."""
    strategy, costs = found.strategy, CostTable.model_validate(found.document["inputs"]["costs"]["spec"])

    def seconds(kind: str, recompute: str) -> float:
        row = next(
            row
            for row in costs.rows
            if (row.kind, row.tp, row.micro_batch, row.recompute, row.cp)
            == (kind, strategy.tp, strategy.micro_batch, recompute, 1)
        )
        return row.forward_s + row.input_grad_s + row.weight_grad_s

    ranges = zip(strategy.recompute, strategy.stages, strict=True)
    layers = [kind for kind, (first, end) in ranges for _ in range(first, end)]
    busy = sum(seconds("block", kind) for kind in layers) + seconds("embedding", "none") + seconds("head", "none")
    offered = busy * strategy.num_micro_batches * strategy.dp * strategy.tp * 65e12
    core, forward = 4 * 1024**3, 28 * 1024**3
    again = {"none": 0, "selective": core / 2, "full": forward - core / 2}
    flops = sum(3 * (forward - core / 2) + again[kind] for kind in layers) + 3 * 2 * 1024**2 * 52_256
    assert found.document["predicted"]["hfu"] == pytest.approx(BATCH * flops / offered)
    # A device has a stage's passes, and waits for the others: 1F1B of equal stages takes (m + pp - 1) / m as long.
    predicted = found.document["predicted"]
    assert predicted["busy_s"] == pytest.approx(busy * strategy.num_micro_batches / strategy.pp)
    bubble = bubble_of(found.sections)
    assert bubble is None or bubble == pytest.approx(predicted["breakdown_s"]["compute"] - predicted["busy_s"])
    assert predicted["breakdown_s"]["compute"] > predicted["busy_s"] * (1 - 1e-9)


def test_plan_verifies_itself(found: Plan) -> None:
    """The certificate holds, with the stated gap."""
    outcome = found.verify()
    assert outcome.holds
    assert outcome.gap == pytest.approx(found.gap, abs=1e-9)
    assert outcome.candidates == len(found.document["certificate"]["candidates"])


@pytest.mark.parametrize("work", [10, 40])
def test_same_seed_and_work_give_the_same_document(work: int) -> None:
    """A search with a limit of work repeats to the last digit, apart from its wall time."""
    first = repeated(seed=3, work_limit=work)
    assert first == repeated(seed=3, work_limit=work)
    assert first["provenance"]["work"] <= work


def test_search_that_stops_early_has_a_valid_weaker_bound() -> None:
    """Stopped by work, the plan says so; its bound is no better and its step no faster than with more work."""
    early, late = repeated(work_limit=10), repeated(work_limit=40)
    assert early["provenance"]["stopped_by"] == "work"
    assert early["status"] == "feasible"
    assert early["certificate"]["lower_bound_s"] <= late["certificate"]["lower_bound_s"]
    assert early["certificate"]["objective_s"] >= late["certificate"]["objective_s"]
    assert Plan(early).verify().holds


def test_number_of_threads_does_not_change_the_plan() -> None:
    """One thread or three: the same document."""
    assert repeated(workers=1) == repeated(workers=3)


def test_document_is_plain_json(found: Plan) -> None:
    """The document survives JSON without a change, so nothing in it is a tuple, a NaN or an array."""
    assert json.loads(json.dumps(found.document, allow_nan=False)) == found.document


@pytest.mark.parametrize(
    "fix",
    [
        {"tp": 2},
        {"pp": 4, "dp": 2},
        {"micro_batch": 4},
        {"schedule": "1f1b", "pp": 2},
        {"zero": 0, "dp": 4},
        {"sequence_parallel": True},
    ],
)
def test_fixed_values_are_honoured(fix: dict[str, int | str | bool], found: Plan) -> None:
    """The plan has the fixed values, its space says so, and it is no faster than the freer one under ZeRO-1."""
    fix = {"zero": 1, **fix}
    fixed = plan("gpt2-345m", "amp-homogeneous", global_batch=BATCH, fix=fix, work_limit=30)
    assert {field: getattr(fixed.strategy, field) for field in fix} == fix
    assert fixed.document["certificate"]["space"]["fixed"] == fix
    assert all(fix.items() <= entry["strategy"].items() for entry in fixed.document["certificate"]["candidates"])
    assert found.lower_bound_s is not None
    assert fixed.step_time_s >= found.lower_bound_s


def test_largest_tensor_degree_limits_the_space() -> None:
    """With ``max_tp`` no candidate has a larger tensor degree."""
    limited = plan("gpt2-345m", "amp-homogeneous", global_batch=BATCH, max_tp=2, work_limit=5)
    assert {entry["strategy"]["tp"] for entry in limited.document["certificate"]["candidates"]} == {1, 2}


def test_specs_and_names_give_the_same_plan(found: Plan) -> None:
    """Specs in place of names lead to the same plan; the inputs are resolved either way."""
    given = plan(load_model("gpt2-345m"), load_cluster("amp-homogeneous"), global_batch=BATCH, fix={"zero": 1})
    assert given.document["strategy"] == found.document["strategy"]
    assert given.document["inputs"] == found.document["inputs"]


def test_precision_and_memory_model_reach_the_inputs(tmp_path: Path) -> None:
    """A memory model may be a spec or a file, and a precision replaces its own."""
    path = tmp_path / "roomy.yaml"
    path.write_text("{precision: fp16, overhead_gib: 1, margin: 0.0}", encoding="utf-8")
    by_file = plan("gpt2-345m", "amp-homogeneous", global_batch=BATCH, memory_model=str(path), work_limit=3)
    assert by_file.document["inputs"]["memory_model"]["spec"]["overhead_gib"] == 1
    assert set(by_file.document["predicted"]["margin_bytes"]) == {0}
    given = MemoryModel(name="own", precision="fp16")
    other = plan("gpt2-345m", "amp-homogeneous", global_batch=BATCH, memory_model=given, precision="fp32", work_limit=3)
    assert other.document["inputs"]["memory_model"]["spec"]["precision"] == "fp32"


def test_precision_defaults_to_what_every_device_computes_in() -> None:
    """bf16 where all devices have it, fp16 where one has not."""
    on_a100 = plan("gpt2-345m", "dgx-a100", global_batch=8, work_limit=3)
    on_t4 = plan("gpt2-345m", "g4dn.12xlarge", global_batch=8, work_limit=3)
    assert on_a100.document["inputs"]["memory_model"]["spec"]["precision"] == "bf16"
    assert on_t4.document["inputs"]["memory_model"]["spec"]["precision"] == "fp16"


@pytest.mark.parametrize("latency_model", ["pipette", "pipette-printed", "amp"])
def test_every_latency_model_gives_a_plan_that_holds(latency_model: str) -> None:
    """The plan says which latency model it was priced by, and verifies under it."""
    priced = plan("gpt2-345m", "g4dn.12xlarge", global_batch=8, latency_model=latency_model)
    assert priced.document["certificate"]["latency_model"] == latency_model
    assert priced.verify().holds


def test_progress_is_told_of_every_refinement() -> None:
    """The callback gets rising time, a falling incumbent, a rising bound below it, and words, first of the bounds."""
    told: list[Progress] = []
    plan("gpt2-345m", measured(), global_batch=BATCH, work_limit=20, progress=told.append)
    assert 1 <= sum(not news.doing.startswith("bounds of ") for news in told) <= 20
    elapsed, incumbent, bound = (np.array([news[k] for news in told], dtype=float) for k in range(3))
    assert np.all(np.diff(elapsed) >= 0)
    assert np.all(incumbent[1:] <= incumbent[:-1])
    assert np.all(bound <= incumbent * (1 + 1e-9))
    assert all(news.doing for news in told)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"global_batch": 0}, "global_batch: 0, expected a number of sequences from 1 to"),
        ({"global_batch": 10**18}, "global_batch: 1000000000000000000, expected a number of sequences from 1 to"),
        ({"fix": {"dp": 3}}, "fix: dp=3, expected a divisor of the 16 devices"),
        ({"fix": {"dp": 16}, "global_batch": 8}, "fix: dp=16, expected a divisor of the global batch 8"),
        ({"fix": {"micro_batch": 5}}, "fix: micro_batch=5, expected a divisor of the global batch 32"),
        ({"fix": {"np": 2}}, "fix: np=2, unknown name, expected one of pp, tp, cp, dp"),
        ({"fix": {"ep": 2}}, "fix: ep=2, gpt2-345m has no experts, expected 1"),
        ({"fix": {"vpp": 0}}, "fix: vpp=0, expected a number of chunks a device"),
        (
            {"fix": {"pp": 16, "tp": 2}},
            "fix: pp=16,tp=2, no candidate has these values, expected pp.tp.cp.dp = 16 devices",
        ),
        (
            {"model": "llama3-8b", "cluster": "dgx-h100", "seq": 8194, "fix": {"cp": 2}},
            "2.cp divides the sequence, tp.cp the node size or the reverse",
        ),
        (
            {
                "model": "llama3-8b",
                "cluster": "dgx-h100:2",
                "fix": {"pp": 1, "tp": 1, "cp": 2, "zero": 3, "dp_shard": 4},
            },
            "devices share a copy under ZeRO-1 to 3: a divisor of dp, and dp.cp where cp > 1",
        ),
        ({"fix": {"schedule": "zigzag"}}, "fix: schedule=zigzag, expected one of 1f1b"),
        ({"latency_model": "guess"}, "latency_model: guess, expected one of step, pipette, pipette-printed, amp"),
        ({"precision": "bf16"}, "device t4-16gb: no peak rate for precision bf16"),
        ({"model": "gpt-5"}, "model 'gpt-5' is not in the catalog"),
        ({"cluster": "b999"}, "cluster 'b999' is not in the catalog"),
    ],
)
def test_wrong_inputs_are_refused_in_one_line(options: dict[str, Any], words: str) -> None:
    """What is wrong is named with its value and what was expected."""
    given: dict[str, Any] = {"model": "gpt2-345m", "cluster": "amp-homogeneous", "global_batch": BATCH, **options}
    with pytest.raises(DataError, match=words) as caught:
        plan(**given)
    assert "\n" not in str(caught.value)


def test_cluster_with_too_many_devices_for_the_model_is_refused() -> None:
    """With fewer layers and sequences than the devices need there is no candidate, and the rule is said."""
    # 16 devices: tp is at most 2 (2 heads), pp at most 2 layers, dp divides a batch of 1.
    small = taut.ModelSpec(name="small", layers=2, hidden=8, heads=2, seq=4)
    with pytest.raises(
        DataError, match=r"no candidate exists, expected pp.tp.cp.dp = 16 devices, dp divides the global"
    ):
        plan(small, "amp-homogeneous", global_batch=1)


def test_profile_that_prices_no_candidate_is_refused(tmp_path: Path) -> None:
    """A profile without a row for some layer kind prices nothing, and the message says what it needs."""
    path = tmp_path / "profile.csv"
    path.write_text(
        "device,kind,tp,micro_batch,seq,forward_s,input_grad_s,weight_grad_s,activation_bytes\n"
        "t4-16gb,block,1,1,1024,0.1,0.1,0.1,1000\n",
        encoding="utf-8",
    )
    with pytest.raises(DataError, match="profile: prices no candidate, expected costs for every layer kind"):
        plan("gpt2-345m", "amp-homogeneous", global_batch=BATCH, profile=str(path))


def test_profile_replaces_the_analytic_costs(found: Plan) -> None:
    """With twice the analytic seconds as a profile a step takes longer, and the inputs name the profile."""
    table = CostTable.parse(found.document["inputs"]["costs"]["spec"], "costs")
    slower = [
        row.model_copy(
            update={field: 2 * getattr(row, field) for field in ("forward_s", "input_grad_s", "weight_grad_s")}
        )
        for row in table.rows
    ]
    profile = table.model_copy(update={"name": "slower", "basis": "made up", "rows": slower})
    doubled = plan("gpt2-345m", "amp-homogeneous", global_batch=BATCH, profile=profile)
    assert doubled.document["inputs"]["costs"]["name"] == "slower"
    # Computation at least doubles where it was already the best division; communication stays.
    assert found.step_time_s < doubled.step_time_s <= 2 * found.step_time_s


def test_model_that_cannot_fit_raises_with_the_way_out() -> None:
    """Infeasibility is an exception that names device, bytes and way out."""
    with pytest.raises(InfeasibleError, match=r"no plan fits: .* lacks .* GiB \(\d+ bytes\) on device .*way out: "):
        plan("llama2-7b", "g4dn.12xlarge", global_batch=4)


def test_limit_before_the_first_plan_raises_with_the_bound() -> None:
    """Nothing found is an exception that says which limit came first and what was proven."""
    with pytest.raises(
        NothingFoundError, match=r"no plan found: the time limit came first; no plan is faster than [\d.e-]+ s"
    ):
        plan("llama2-7b", "g4dn.12xlarge", global_batch=4, fix={"schedule": "interleaved-1f1b"}, time_limit=1e-9)


def test_written_plan_reads_back(found: Plan, tmp_path: Path) -> None:
    """The file holds the document, with the usual permissions and no rest of its making."""
    path = tmp_path / "plan.json"
    before = os.umask(0o027)
    try:
        found.write(path)
    finally:
        os.umask(before)
    assert json.loads(path.read_text(encoding="utf-8")) == found.document
    assert list(tmp_path.iterdir()) == [path]
    if os.name == "posix":
        assert path.stat().st_mode & 0o777 == 0o640


def test_schedules_are_chosen_with_everything_else() -> None:
    """Of all schedules the plan is no slower than of the default two; its certificate holds and names the chunks."""
    options: dict[str, Any] = {"global_batch": BATCH, "stack": "any", "fix": {"pp": 4, "tp": 4, "micro_batch": 2}}
    default = plan("gpt2-345m", "amp-homogeneous", **options, schedules=["1f1b", "gpipe"])
    every = plan("gpt2-345m", "amp-homogeneous", **options, schedules="all", gap=0.03)
    assert every.step_time_s <= default.step_time_s
    assert {entry["strategy"]["schedule"] for entry in every.document["certificate"]["candidates"]} > {"1f1b", "gpipe"}
    assert every.strategy.vpp * every.strategy.pp == len(every.strategy.stages)
    assert len(every.document["predicted"]["memory_bytes"]) == every.strategy.pp
    assert every.verify().holds


@pytest.mark.parametrize(
    ("options", "schedule", "vpp"),
    [
        ({"fix": {"pp": 2, "schedule": "zb-v"}}, "zb-v", 2),
        ({"fix": {"pp": 2, "vpp": 2, "schedule": "interleaved-1f1b"}}, "interleaved-1f1b", 2),
        pytest.param({"fix": {"pp": 2, "vpp": 6}}, "interleaved-1f1b", 6, marks=pytest.mark.long),
        ({"fix": {"pp": 4, "tp": 4}, "schedules": "v-half"}, "v-half", 2),
    ],
)
def test_schedule_and_chunks_can_be_fixed(options: dict[str, Any], schedule: str, vpp: int) -> None:
    """A fixed schedule or number of chunks joins the space; the plan has it, says so and holds."""
    chosen = plan("gpt2-345m", "amp-homogeneous", global_batch=BATCH, gap=0.05, stack="any", **options)
    assert (chosen.strategy.schedule, chosen.strategy.vpp) == (schedule, vpp)
    assert f"{schedule} with {vpp} chunks a device" in str(chosen)
    assert chosen.verify().holds


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"schedules": "zb-w"}, "schedules: zb-w, 'zb-w', expected all or some of 1f1b"),
        ({"schedules": "1f1b,1f1b"}, "1f1b stands twice"),
        (
            {"schedules": "zb-v", "latency_model": "amp"},
            "latency_model: amp, does not price zb-v, expected step or pipette",
        ),
        ({"schedules": "zb-v", "fix": {"vpp": 3}}, "no candidate has these values"),
    ],
)
def test_schedules_that_cannot_be_priced_are_refused(options: dict[str, Any], words: str) -> None:
    """One line names the option and what was expected."""
    with pytest.raises(DataError) as refusal:
        plan("gpt2-345m", "amp-homogeneous", global_batch=BATCH, stack="any", **options)
    assert words in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("shape", [pytest.param({}, marks=pytest.mark.long), {"pp": 2, "tp": 8}])
def test_ordered_schedule_that_does_not_fit_is_explained(shape: dict[str, int]) -> None:
    """A model too large under ZB-V alone: what is missing on which device, and as a way out more nodes."""
    with pytest.raises(InfeasibleError, match=r"no plan fits: the nearest, pp=.* zb-v.*nearest way out"):
        fix: dict[str, str | int] = {"schedule": "zb-v", "zero": 0, **shape}
        plan("gpt3-175b", "dgx-a100:2", global_batch=BATCH, stack="any", fix=fix)
