"""What has no effect is refused by name, and figures at the ends of what is accepted end in no traceback."""

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

import taut
from taut.commands.app import app
from taut.errors import DataError, FieldError
from taut.simulation import summary

runner = CliRunner()
RATED = "jobs: [{name: a, steps: 100, rates: {8: 1.0}}]\n"
KIND = "--stages 4 --micro-batches 8 --forward 1 --backward 1 --weight 1 --kind zb-h1"
SIMULATED = "kind: simulate\nmodel: gpt2-345m\ncluster: dgx-a100\nglobal_batch: 32\nfix: {tp: 2, pp: 2}\n"


@pytest.mark.parametrize(
    ("command", "wrong"),
    [
        *(
            (f"jobs jobs.yaml dgx-a100 --policy {policy} {option}", option)
            for policy, options in {
                "elasticflow": ("--rounds 3", "--workers 2", "--seed 3", "--time-limit 5.0"),
                "rolling": ("--rounds 3", "--workers 2", "--time-limit 5.0"),
                "annealing": ("--workers 2",),
                "cbc": ("--workers 2",),
                "first-come": ("--plans data-parallel", "--stack any", "--processes 2", "--memory-model x.yaml"),
            }.items()
            for option in options
        ),
        *((f"schedule {KIND} {option}", option) for option in ("--seed 3", "--gap 0.1", "--workers 1")),
    ],
)
def test_an_option_without_effect_is_refused(
    command: str, wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every policy of jobs, and a schedule that is built and not searched."""
    monkeypatch.chdir(tmp_path)
    Path("jobs.yaml").write_text(RATED)
    done = runner.invoke(app, command.split())
    assert isinstance(done.exception, FieldError), done.output
    assert done.exception.field == wrong.split()[0][2:].replace("-", "_")
    assert str(done.exception.value) == wrong.split()[1] and "has no effect" in str(done.exception)


@pytest.mark.parametrize("field", ["gap: 0.1", "time_limit: 3", "work_limit: 3", "seed: 1", "workers: 2"])
def test_a_simulated_point_has_no_search(field: str, tmp_path: Path) -> None:
    """Its row would name a gap that nothing kept to."""
    (tmp_path / "s.yaml").write_text(f"{SIMULATED}{field}\n")
    with pytest.raises(DataError, match=f"{field.split(':')[0]}: has no effect on a simulation"):
        taut.sweep(str(tmp_path / "s.yaml"))


@pytest.mark.parametrize(
    "said",
    [
        {"imbalance": 2.0},
        {"moe_token_dispatcher": "flex"},
        {"fp8_dispatch": True},
        {"moe_router_dtype": "fp32"},
        {"overlap_moe_expert_parallel_comm": True},
        {"cp_comm": "p2p"},
    ],
)
def test_a_dense_row_has_no_columns_of_experts(said: dict[str, object]) -> None:
    """Nor ways to share attention without context ranks."""
    row = {"gpu": "A100", "n_gpus": 8, "hidden": 2048, "layers": 24, "dp": 8, "global_batch": 64}
    (found,) = taut.predict([row | said])
    name = next(iter(said))
    assert found["error"].startswith(f"row 1: {name} is ") and "expected" in found["error"]


FIXED: dict[str, int | str] = {"tp": 2, "pp": 1, "micro_batch": 4, "recompute": "none"}


@pytest.mark.parametrize("kept", [{"selective_products": True}, {"fp8_inputs": False}])
def test_a_memory_model_that_the_calibration_overrules_is_refused(kept: dict[str, object]) -> None:
    """By plan and by predict, with the name of the calibration whose value counts."""
    request = taut.PlanRequest("gpt2-345m", "dgx-h100", global_batch=32, fix=FIXED, memory_model=kept)
    with pytest.raises(DataError, match=f"{next(iter(kept))} .*calibration nemo-h100-bf16"):
        taut.planning_problem(request)
    row = {"gpu": "H100", "n_gpus": 8, "hidden": 2048, "layers": 24, "dp": 8, "global_batch": 64}
    (found,) = taut.predict([row], memory_model=taut.MemoryModel.parse({"name": "mine", **kept}, "mine"))
    assert next(iter(kept)) in found["error"] and "nemo-h100-bf16" in found["error"]
    free = taut.PlanRequest("gpt2-345m", "dgx-h100", global_batch=32, fix=FIXED, memory_model=kept, stack="any")
    assert taut.planning_problem(free).calibration is None


def test_a_memory_model_says_how_the_loss_keeps_logits() -> None:
    """Whatever the stack and the calibration's runs had; a column and an option say it before the memory model does."""
    row = {"gpu": "H100", "n_gpus": 8, "hidden": 2048, "layers": 24, "dp": 8, "global_batch": 64, "vocab": 51200}
    entries = 2048 * 51200
    fused, unfused = (taut.MemoryModel.parse({"name": "mine", "fused_loss": said}, "mine") for said in (True, False))
    found = {}
    for name, memory, said in (
        ("fused", fused, None),
        ("unfused", unfused, None),
        ("column", unfused, True),
        ("usual", None, None),
        ("usual, unfused", None, "none"),
        ("usual, overwritten", None, "te"),
    ):
        (one,) = taut.predict([row | {"fused_loss": said}], memory_model=memory)
        assert one["error"] == ""
        found[name] = one["memory_bytes"]
    # Single precision and 8 bytes for a moment by the analytic model, 2 by Megatron-Core's, fused or not; half
    # precision where the gradient overwrites the logits.
    assert found["unfused"] - found["fused"] == 10 * entries
    assert found["column"] == found["fused"]
    assert found["usual"] == found["usual, unfused"] == found["usual, overwritten"] + 4 * entries
    for how, loss in (
        ({}, "native"),
        ({"fused_loss": False}, "none"),
        ({"memory_model": {"fused_loss": False}}, "none"),
        ({"memory_model": {"fused_loss": "native"}, "fused_loss": True}, "te"),
        ({"stack": "torchtitan"}, "none"),
    ):
        request = taut.PlanRequest("gpt2-345m", "dgx-h100", global_batch=32, fix={"tp": 2, "pp": 1}, **how)
        problem = taut.planning_problem(request)
        assert problem.calibration is not None
        assert problem.calibration.fused_loss == problem.memory.fused_loss == loss, how


def test_bytes_of_a_fused_loss_need_one() -> None:
    """Bytes of a gradient beside the logits are refused where the loss keeps single precision, and count elsewhere."""
    memory = taut.MemoryModel.parse({"name": "mine", "fused_logit_bytes": 4}, "mine")
    row = {"gpu": "H100", "n_gpus": 8, "hidden": 2048, "layers": 24, "dp": 8, "global_batch": 64, "vocab": 51200}
    refused, counted = taut.predict([row, row | {"fused_loss": "te"}], memory_model=memory)
    assert "fused_logit_bytes has no effect" in refused["error"]
    (plain,) = taut.predict([row | {"fused_loss": "te"}], memory_model=taut.MemoryModel.parse({"name": "mine"}, "mine"))
    assert counted["memory_bytes"] - plain["memory_bytes"] == 4 * 2048 * 51200


def test_what_a_memory_model_says_of_formats_counts() -> None:
    """Gradients in ``predict`` as in ``plan``; a precision chooses the calibration however it is said."""
    row = {"gpu": "H100", "n_gpus": 8, "hidden": 2048, "layers": 24, "dp": 8, "global_batch": 64}
    plain, memory = (
        taut.MemoryModel.parse({"name": "mine", **formats}, "mine") for formats in ({}, {"grad_precision": "bf16"})
    )
    (said,) = taut.predict([row], memory_model=memory)
    (written,) = taut.predict([row | {"grad_precision": "bf16"}], memory_model=plain)
    assert said["memory_bytes"] == written["memory_bytes"] and said["step_time_s"] == written["step_time_s"]
    names = []
    for how in ({"precision": "fp8"}, {"memory_model": {"precision": "fp8"}}):
        problem = taut.planning_problem(taut.PlanRequest("gpt2-345m", "dgx-h100", global_batch=32, fix=FIXED, **how))
        assert problem.calibration is not None and problem.memory.precision == "fp8"
        names.append(problem.calibration.name)
    assert names == ["nemo-h100-fp8"] * 2


@pytest.mark.parametrize(("tflops", "gbytes"), [(1e-30, 2000.0), (312.0, 1e30), (312.0, 1e-30)])
def test_rates_at_the_ends_of_what_is_accepted_are_refused_in_words(tflops: float, gbytes: float) -> None:
    """Each figure is within its limits, and a cost of a layer is not."""
    device = {"name": "x", "memory_gib": 80, "peak_tflops": {"bf16": tflops}, "memory_bandwidth_gbytes": gbytes}
    node = {"count": 1, "gpus_per_node": 8, "intra_bandwidth_gbps": 2400, "device": device}
    with pytest.raises(DataError, match=r"costs of layers: .*expected a size from"):
        taut.planning_problem(taut.PlanRequest("gpt2-345m", {"nodes": [node]}, global_batch=8))


def zero_profile(path: Path) -> Path:
    """Costs of all layers that take no time."""
    rows = [
        f"a100-80gb,{kind},1,{size},128,{recompute},0,0,0,100"
        for kind in ("block", "embedding", "head")
        for size in (1, 2, 4)
        for recompute in ("none", "selective", "full")
    ]
    head = "device,kind,tp,micro_batch,seq,recompute,forward_s,input_grad_s,weight_grad_s,activation_bytes"
    path.write_text("\n".join(["# optimizer_s_per_parameter a100-80gb: 0", head, *rows]) + "\n")
    return path


@pytest.mark.proof
def test_a_profile_of_zero_seconds_plans_and_verifies(tmp_path: Path) -> None:
    """With every schedule, over links that take time; on one device, where the step takes none, it is simulated."""
    model = {"layers": 4, "hidden": 64, "heads": 4, "seq": 128, "vocab": 512}
    node = {"count": 2, "device": "a100-80gb", "gpus_per_node": 1, "intra_bandwidth_gbps": 2400}
    cluster = {"nodes": [node], "network": {"bandwidth_gbps": 100}}
    profile = str(zero_profile(tmp_path / "zero.csv"))
    for schedule in ("1f1b", "gpipe", "interleaved-1f1b", "zb-h1", "zb-v"):
        fix = {"pp": 2, "schedule": schedule}
        plan = taut.plan(model, cluster, global_batch=4, profile=profile, stack="any", fix=fix)
        assert plan.step_time_s > 0 and plan.verify().holds
    alone = taut.plan(model, {"nodes": [node | {"count": 1}]}, global_batch=4, profile=profile)
    assert alone.step_time_s == 0 and alone.verify().holds
    assert "closed form 0 s (+0.00%)" in summary(taut.simulate(alone))


def test_arithmetic_that_fails_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Products of several figures may leave what a double holds."""
    from taut.commands import app as module

    def fail(error: ArithmeticError) -> Callable[..., int]:
        def run(**_: object) -> int:
            raise error

        return run

    for error in (ZeroDivisionError("division by zero"), OverflowError("too large"), FloatingPointError("nan")):
        monkeypatch.setattr(module, "app", fail(error))
        with pytest.raises(SystemExit) as stopped:
            module.main()
        assert stopped.value.code == 2 and capsys.readouterr().err.count("\n") == 1
