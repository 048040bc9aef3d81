"""Comparing what runs today with the best plan: prices as they are, the distance, changes, two plans, and refusals."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import taut
from taut.comparison.compare import compare, current_of, priced_as_is
from taut.comparison.result import Comparison, Priced, compare_plans
from taut.errors import FieldError
from taut.formulations.latency import memory_bytes, step_time, violations
from taut.launchers.read import launch_of_text
from taut.planning.request import PlanRequest
from tests.taut.conftest import Run, refused

MODEL, CLUSTER, BATCH = "gpt2-345m", "dgx-a100", 32
CURRENT = {"tp": 2, "pp": 2, "micro_batch": 4, "zero": 0, "recompute": "none", "layers": "10|14"}


@pytest.fixture(scope="module")
def found() -> Comparison:
    """Two uneven stages of GPT-2 beside the best plan."""
    return compare(MODEL, CLUSTER, global_batch=BATCH, current=CURRENT)


def test_the_current_configuration_is_priced_as_it_is(found: Comparison) -> None:
    """Step time and memory are the evaluator's for the stated layers in the order of the devices."""
    stated = priced_as_is(PlanRequest(MODEL, CLUSTER, global_batch=BATCH), current_of(CURRENT))
    assert [end - first for first, end in stated.strategy.stages] == [10, 14] == list(found.current.layers)
    assert stated.devices.ravel().tolist() == list(range(8))
    seconds = step_time(stated.problem, stated.strategy, np.arange(8).reshape(2, 2, 2)).total
    assert found.current.step_time_s == pytest.approx(float(seconds), rel=1e-12)
    assert list(found.current.memory_bytes) == memory_bytes(stated.problem, stated.strategy)


def test_the_distance_is_that_from_the_proven_bound(found: Comparison) -> None:
    """J / L - 1 with the bound of the best plan, which is no slower than what runs."""
    assert found.lower_bound_s == found.best.lower_bound_s
    assert found.best.lower_bound_s is not None
    assert found.distance == pytest.approx(found.current.step_time_s / found.best.lower_bound_s - 1)
    assert found.best.step_time_s <= found.current.step_time_s


def test_changes_gain_and_change_one_thing(found: Comparison) -> None:
    """The largest gain comes first, each is faster than today and none faster than the best plan's bound."""
    seconds = [each.step_time_s for each in found.changes]
    assert seconds and seconds == sorted(seconds)
    assert found.best.lower_bound_s is not None
    for each in found.changes:
        assert found.best.lower_bound_s * (1 - 1e-9) <= each.step_time_s < found.current.step_time_s
        assert each.before != each.after and each.fits


def test_a_change_is_the_plan_that_it_names(found: Comparison) -> None:
    """A change of the micro-batch alone costs what that configuration costs by itself."""
    change = next(each for each in found.changes if each.what == "micro_batch")
    other = {**CURRENT, "layers": "even", "micro_batch": int(change.after)}
    stated = priced_as_is(PlanRequest(MODEL, CLUSTER, global_batch=BATCH), current_of({**other, "dp": 2}))
    assert change.step_time_s == pytest.approx(stated.seconds)


def test_what_does_not_fit_is_priced_and_said() -> None:
    """GPT-3 6.7B on one device of 80 GB in each replica has a step time, and its first stage lacks memory."""
    request = PlanRequest("gpt3-6.7b", "dgx-a100", global_batch=8)
    stated = priced_as_is(request, current_of({"tp": 1, "pp": 1, "micro_batch": 1, "zero": 0}))
    priced = taut.comparison.result.Priced.of(stated)
    assert not priced.fits and "stage 0" in priced.why and np.isfinite(priced.step_time_s)


def test_two_plans_stand_side_by_side(found: Comparison, tmp_path: Path, run: Run) -> None:
    """A plan beside itself differs in nothing; files are compared on the command line."""
    rows = compare_plans(found.best, found.best)
    assert all(one == other for _, one, other in rows[:-1]) and rows[-1][2] == "0"
    path = tmp_path / "plan.json"
    found.best.write(path)
    made = run("compare", str(path), str(path), "--json")
    assert made.code == 0 and [each["what"] for each in json.loads(made.out)] == [what for what, _, _ in rows]
    refused(run("compare", str(path), str(path), "--time-limit", "3"), "--time-limit")


def test_what_two_plans_differ_in_has_a_row() -> None:
    """Batch, length, format, stack and expert ranks stand where plans differ, and modules with their recompute."""
    fix: dict[str, Any] = {"pp": 2, "ep": 8, "micro_batch": 1, "recompute": "selective"}
    usual: dict[str, Any] = {"work_limit": 1, "schedules": ("1f1b",)}
    one = taut.plan("qwen3-30b-a3b", "dgx-h100:2", global_batch=64, fix=fix, **usual)
    fix |= {"ep": 4, "tp": 2, "etp": 2}
    other = taut.plan("qwen3-30b-a3b", "dgx-h100:2", global_batch=32, seq=2048, stack="any", fix=fix, **usual)
    rows = {what: values for what, *values in compare_plans(one, other)}
    assert rows["global batch"] == ["64", "32"] and rows["sequence length"] == ["4096", "2048"]
    assert rows["stack"] == ["megatron-core", "-"] and rows["expert ranks"] == ["8", "4 of 2 tensor ranks"]
    assert rows["recompute"][0] == "selective:layernorm+moe_act" and "precision" not in rows
    assert not {"global batch", "sequence length", "stack", "precision"} & {row[0] for row in compare_plans(one, one)}


def test_the_command_prints_json_and_words(run: Run) -> None:
    """JSON has the fields that scripts read, and the words say how far the configuration is from the bound."""
    given = ("compare", MODEL, CLUSTER, "--global-batch", "32", "--current", "tp=8,micro_batch=4", "--quiet")
    values = json.loads(run(*given, "--json").out)
    assert {"current", "best", "lower_bound_s", "distance", "changes"} <= values.keys()
    assert {"step_time_s", "memory_bytes", "fits"} <= values["current"].keys()
    assert "above the bound" in run(*given).out


@pytest.mark.parametrize(
    ("given", "absent"),
    [
        ("--tensor-model-parallel-size 2 --sequence-parallel", "--tp-comm-overlap, --overlap-grad-reduce"),
        ("--tensor-model-parallel-size 2 --sequence-parallel --tp-comm-overlap", "--overlap-grad-reduce"),
        ("--tensor-model-parallel-size 8 --sequence-parallel --tp-comm-overlap", ""),
        ("model.tensor_model_parallel_size=2 model.sequence_parallel=true", ""),
    ],
)
@pytest.mark.filterwarnings("default")
def test_what_the_runs_behind_the_prices_had_and_the_command_has_not_is_named(
    given: str, absent: str, run: Run
) -> None:
    """Overlaps of NVIDIA's runs, as far as the degrees have them; a recipe decides them by itself."""
    sizes = "--micro-batch-size 1 --global-batch-size 16" if "--" in given else "train.micro_batch_size=1"
    options = ("--global-batch", "16", "--time-limit", "3", "--schedules", "1f1b")
    made = run("compare", "gpt2-345m", "dgx-h100", *options, "--current", f"{given} {sizes}")
    assert made.code == 0, made.err
    said = f"the prices are of runs with {absent}, which are not set: what runs today is slower than priced"
    assert (said in made.err.replace("\n", " ")) == bool(absent) and ("which are not set" in made.err) == bool(absent)


@pytest.mark.parametrize(
    ("current", "words"),
    [
        ("tp=3", "tp=3"),
        ("tp=2,pp=2,micro_batch=4,layers=10|13", "add up to 24 layers"),
        ("tp=2,pp=2,micro_batch=4,layers=ten", "layers=ten"),
        ("tq=2", "--current tq=2: unknown name"),
        ("tp", "--current tp: expected NAME=VALUE"),
    ],
)
def test_wrong_configurations_are_refused_in_one_line(run: Run, current: str, words: str) -> None:
    """The value and what was expected, exit code 2."""
    refused(run("compare", MODEL, CLUSTER, "--global-batch", "32", "--current", current), words)


@pytest.mark.parametrize("chunks", [1, 2])
def test_end_stages_may_have_no_layers(chunks: int) -> None:
    """Embedding and head alone beside 24 layers on the inner two of four chunks, on four stages or on two."""
    values = {"tp": 1, "pp": 4 // chunks, "vpp": chunks, "micro_batch": 1, "layers": "0|12|12|0"}
    stated = priced_as_is(PlanRequest(MODEL, CLUSTER, global_batch=BATCH), current_of(values))
    assert stated.strategy.layer_stages == ((0, 0), (0, 12), (12, 24), (24, 24))
    assert not [
        broken for broken in violations(stated.problem, stated.strategy, stated.devices) if "layers" in str(broken)
    ]
    with pytest.raises(FieldError, match=r"layers=12\|0\|12"):
        current_of({"tp": 1, "pp": 3, "layers": "12|0|12"})


def test_layers_are_even_or_numbers() -> None:
    """Anything else is refused before a problem is built."""
    assert current_of({"layers": "even"}).layers is None
    assert current_of({"layers": "7|9", "pp": 2}).layers == (7, 9)
    with pytest.raises(FieldError, match="7\\|8"):
        current_of({"layers": "7|x"})


def test_copies_are_of_the_replicas_that_share_one() -> None:
    """Of eight replicas two copies are of four each, eight are without shards; others are refused."""
    request, one = PlanRequest(MODEL, CLUSTER, global_batch=BATCH), {"tp": 1, "pp": 1, "micro_batch": 1, "zero": 1}
    for copies, wanted in ((2, (1, 4)), (1, (1, 0)), (8, (0, 0))):
        candidate = priced_as_is(request, current_of({**one, "copies": copies})).strategy.candidate
        assert (candidate.zero, candidate.dp_shard) == wanted
    for more, words in (({"copies": 3}, "divisor of the 8 replicas"), ({"copies": 2, "cp": 2}, "with cp=2")):
        with pytest.raises(FieldError, match=words):
            priced_as_is(request, current_of({**one, **more}))


def test_chunks_mean_the_interleaved_schedule() -> None:
    """Stages in chunks without a schedule are interleaved 1F1B, as in Megatron-LM."""
    assert current_of({"vpp": 2}).fix == {"vpp": 2, "schedule": "interleaved-1f1b"}


def test_the_best_plan_is_never_slower_than_one_that_runs() -> None:
    """With no time to search at all the current configuration itself is the best plan known."""
    found = taut.compare("gpt2-345m", "dgx-a100", global_batch=32, current=CURRENT, work_limit=1)
    assert found.current.fits
    assert found.best.step_time_s <= found.current.step_time_s * (1 + 1e-9)


@pytest.mark.proof
def test_a_command_line_with_states_on_hosts_is_compared_with_them(run: Run) -> None:
    """The share that runs holds for the best plan too; another one beside it is refused."""
    flags = "--tensor-model-parallel-size 2 --micro-batch-size 2 --use-distributed-optimizer"
    # Megatron-LM has states on hosts with the precision-aware optimizer alone.
    hosts = f"{flags} --optimizer-cpu-offload --use-precision-aware-optimizer"
    words = ["compare", MODEL, CLUSTER, "--global-batch", "32", "--quiet", "--json", "--current"]
    away = json.loads(run(*words, hosts).out)
    option = json.loads(run(*words, flags, "--optimizer-offload-fraction", "1").out)
    here = json.loads(run(*words, flags).out)
    assert (away["current"], away["best"]) == (option["current"], option["best"])
    for role in ("current", "best"):
        assert away[role]["step_time_s"] > here[role]["step_time_s"]
    wrong = [*words, hosts, "--optimizer-offload-fraction", "0.5"]
    refused(run(*wrong), "optimizer_offload_fraction=1.0")
    free = [*words, hosts, "--optimizer-offload-fraction", "0,1"]
    chosen = json.loads(run(*free).out)
    assert chosen["current"] == away["current"]
    assert chosen["best"]["step_time_s"] == here["best"]["step_time_s"]
    chosen = json.loads(run(*words, flags, "--optimizer-offload-fraction", "0,1").out)
    assert (chosen["current"], chosen["best"]) == (here["current"], here["best"])


def test_a_precision_aware_optimizer_keeps_less() -> None:
    """Remainders of fp32 weights take 2 bytes a parameter less, moments in bf16 4 more; in fp8 they are not priced."""
    line = "--tensor-model-parallel-size 2 --micro-batch-size 2 --use-distributed-optimizer"
    aware = f"{line} --use-precision-aware-optimizer"
    half, narrow = f"{aware} --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16", f"{aware} --exp-avg-dtype fp8"

    def needed(text: str) -> int:
        launch = launch_of_text(text)
        request = PlanRequest(MODEL, CLUSTER, global_batch=BATCH, **launch.options)
        return max(Priced.of(priced_as_is(request, current_of(launch.values))).memory_bytes)

    whole, rest, least = map(needed, (line, aware, half))
    assert 2 * (whole - rest) == pytest.approx(rest - least, rel=1e-3) and whole > rest
    assert needed(narrow) == whole
    assert "not priced: --use-precision-aware-optimizer, --exp-avg-dtype" in launch_of_text(narrow).named[0]
    assert not launch_of_text(half).named


def test_rows_of_one_plan_alone_stand_beside_none() -> None:
    """Context ranks and states on hosts are rows where one of the plans has them, however their share came about."""
    fix = {"pp": 1, "tp": 1, "micro_batch": 1, "zero": 1}
    plain, away = (
        taut.plan(MODEL, CLUSTER, global_batch=32, fix=fix, optimizer_offload_fraction=share) for share in (None, 0.5)
    )
    contexts = taut.plan(MODEL, CLUSTER, global_batch=32, fix=fix | {"cp": 2})
    both = {name for name, *_ in taut.compare_plans(plain, plain)}
    assert not both & {"context ranks", "optimizer states on hosts"}
    assert ("optimizer states on hosts", "-", "50 %") in taut.compare_plans(plain, away)
    assert ("context ranks", contexts.strategy.cp_comm, "-") in taut.compare_plans(contexts, away)


@pytest.mark.proof
def test_the_best_plan_is_no_slower_than_a_single_change() -> None:
    """A search that ends at once still knows every single change that fits."""
    found = taut.compare(
        "gpt2-345m", "amp-heterogeneous", global_batch=32, work_limit=1, current={"tp": 2, "pp": 4, "micro_batch": 1}
    )
    assert found.changes
    assert found.best.step_time_s <= found.changes[0].step_time_s < found.current.step_time_s
    assert found.best.verify().holds


@pytest.mark.proof
def test_the_best_plan_is_no_slower_than_other_modules_of_recompute() -> None:
    """Modules that no search tries unless they are fixed are searched where a plan with them is faster."""
    current = {"pp": 2, "tp": 1, "ep": 4, "micro_batch": 1, "recompute": "selective", "recompute_modules": "layernorm"}
    found = taut.compare(
        "moonlight-16b-a3b", "dgx-h100", current=current, global_batch=64, work_limit=1, schedules=("1f1b",)
    )
    # With the usual modules the same plan takes longer.
    assert found.best.step_time_s <= found.changes[0].step_time_s < found.current.step_time_s
    assert found.best.certificate.space["recompute_modules"] == ["layernorm"]


def test_prices_of_a_quantile_are_those_of_both() -> None:
    """At nine tenths what runs today and the best plan take longer, the latter as taut.plan has it."""
    current = {"tp": 8, "micro_batch": 4}
    usual = compare(MODEL, CLUSTER, global_batch=BATCH, current=current)
    risky = compare(MODEL, CLUSTER, global_batch=BATCH, current=current, risk=0.9)
    assert risky.current.step_time_s > usual.current.step_time_s
    assert risky.best.step_time_s == pytest.approx(taut.plan(MODEL, CLUSTER, global_batch=BATCH, risk=0.9).step_time_s)


def test_the_best_plan_within_all_runs_is_compared_with_what_lies_beyond() -> None:
    """What runs today may lie beyond the runs; the best plan does not, and is at most as fast as one of all plans."""
    current = {"tp": 8, "micro_batch": 8}
    # To the optimum: within a gap the search of more plans may end with a slower one.
    within = compare("llama3-8b", "dgx-h100", global_batch=64, current=current, seen=True, gap=0.0)
    every = compare("llama3-8b", "dgx-h100", global_batch=64, current=current, gap=0.0)
    assert within.current.step_time_s == every.current.step_time_s
    assert within.best.step_time_s >= every.best.step_time_s * (1 - 1e-9)
    fields = {each.field for each in within.best.beyond}
    assert not fields & {"micro_batch", "zero", "recompute", "tp", "pp"}
