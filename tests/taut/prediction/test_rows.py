"""Predictions of given configurations: the fast path, errors in place, and the planner's own price."""

import csv
import os
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taut.data.calibration import Calibration, uncalibrated
from taut.data.load import load_calibration, load_cluster
from taut.data.memory import MemoryModel
from taut.data.model import ModelSpec
from taut.data.samples import ConfigurationRow
from taut.data.units import GIB
from taut.errors import DataError
from taut.planning.solve import plan
from taut.prediction.fitting import fit_latency
from taut.prediction.rows import predict_file, predict_rows
from taut.prediction.settings import Given, find_device

HEAD = "gpu,n_gpus,hidden,layers,heads,seq,tp,pp,dp,micro_batch,global_batch,recompute,precision,stack"


def configuration(**change: object) -> ConfigurationRow:
    values = {"gpu": "A100", "n_gpus": 64, "hidden": 4096, "layers": 32, "tp": 4, "pp": 4, "dp": 4, "global_batch": 64}
    return ConfigurationRow.parse_cells({**values, **change}, "row")


def test_each_row_gets_its_result_or_its_error(tmp_path: Path) -> None:
    """Order is kept; wrong rows, unknown devices and unknown stacks have an error text and no figures."""
    path = tmp_path / "rows.csv"
    rows = [
        "A100,8,2048,24,16,2048,2,2,2,1,16,full,fp16,megatron-deepspeed-a100",
        "A100,9,2048,24,16,2048,2,2,2,1,16,full,fp16,",
        "Z9,8,2048,24,16,2048,2,2,2,1,16,full,fp16,",
        "A100,8,2048,24,16,2048,2,2,2,1,16,full,fp16,unheard-of",
        "L40S-48GB,8,2048,24,16,2048,2,2,2,1,16,none,bf16,",
        "T4,8,2048,24,16,2048,2,2,2,1,16,none,bf16,",
    ]
    path.write_text("\n".join([HEAD, *rows]) + "\n")
    found = list(csv.DictReader(StringIO(predict_file(path)[0])))
    assert [bool(row["step_time_s"]) for row in found] == [True, False, False, False, True, False]
    assert [row["error"].partition(":")[0] for row in found] == ["", "row 2", "row 3", "row 4", "", "row 6"]
    low, middle, high = (float(found[0][name]) for name in ("step_time_low_s", "step_time_s", "step_time_high_s"))
    assert low < middle < high
    low, middle, high = (float(found[4][name]) for name in ("step_time_low_s", "step_time_s", "step_time_high_s"))
    assert low < 0.88 * middle and high > 1.12 * middle
    assert found[0]["fits"] in ("true", "false")


@pytest.mark.parametrize("name", ["", "megatron-deepspeed-a100-one"])
def test_prediction_is_the_planners_price(name: str) -> None:
    """A plan held to one configuration costs what the prediction says, with and without a calibration."""
    # One node and one stage, so that workers lie as in Megatron's order whatever the placement.
    shape = {"layers": 32, "hidden": 4096, "heads": 32, "seq": 2048, "vocab": 51200}
    calibration = load_calibration(name) if name else None
    cluster = load_cluster("vtrain-multi-node" if name else "dgx-a100")
    one_node = cluster.nodes[0].model_copy(update={"count": 1})
    found = plan(
        ModelSpec.parse({"name": "m", **shape}, "m"),
        cluster.model_copy(update={"nodes": [one_node]}),
        global_batch=8,
        calibration=calibration,
        precision="bf16",
        stack="any",
        fix={"tp": 8, "pp": 1, "micro_batch": 2, "sequence_parallel": False},
    )
    row = configuration(**shape, n_gpus=8, tp=8, pp=1, dp=1, global_batch=8, micro_batch=2, stack="any")
    predicted = predict_rows([row], Given(calibration=calibration or uncalibrated(one_node.device)))[0]
    assert "caution" not in str(found)
    assert found.strategy.recompute == ["none"]
    assert predicted.step_time_s == pytest.approx(found.step_time_s, rel=1e-9)
    assert predicted.memory_bytes == found.document["predicted"]["memory_bytes"][0]


def test_interleaving_divides_the_bubble() -> None:
    """Without communication the step of vpp chunks is m + (pp - 1) / vpp stage times."""
    device = find_device("A100")
    silent = dict.fromkeys(("tensor_parallel", "pipeline", "data_parallel", "gather", "optimizer"), 0.0)
    compute = Calibration(name="c", coefficients=uncalibrated(device).coefficients | silent)
    plain, halved = predict_rows(
        [configuration(vocab=0, global_batch=32, vpp=vpp) for vpp in (1, 2)], Given(calibration=compute)
    )
    assert plain.step_time_s is not None and halved.step_time_s is not None
    # m = 8, pp = 4: 8 + 3 / 2 stage times against 8 + 3.
    assert halved.step_time_s / plain.step_time_s == pytest.approx(9.5 / 11)


def test_more_work_never_takes_less_time() -> None:
    """Full recompute, longer sequences and more layers each cost time; full recompute saves memory."""
    base, full, longer, deeper = predict_rows(
        [configuration(), configuration(recompute="full"), configuration(seq=4096), configuration(layers=64)]
    )
    for other in (full, longer, deeper):
        assert other.step_time_s is not None and base.step_time_s is not None
        assert other.step_time_s > base.step_time_s
    assert full.memory_bytes is not None and base.memory_bytes is not None
    assert full.memory_bytes < base.memory_bytes


def test_cuda_graphs_take_away_what_launching_adds() -> None:
    """Without tensor ranks a step with CUDA graphs costs what it does with launches of no time."""
    row = configuration(hidden=1024, layers=16, stack="megatron-core", gpu="H100", precision="fp8", tp=1, dp=16)
    launched, recorded = predict_rows([row, row.model_copy(update={"cuda_graphs": True})])
    assert launched.step_time_s is not None and recorded.step_time_s is not None
    assert recorded.step_time_s < launched.step_time_s
    known = load_calibration("nemo-h100-fp8").model_copy(update={"launch_us": 0.0})
    assert predict_rows([row], Given(calibration=known))[0].step_time_s == recorded.step_time_s


def test_cuda_graphs_hold_what_a_memory_model_states() -> None:
    """3 GiB where it states nothing, as in plans."""
    rows = [configuration(cuda_graphs=graphs) for graphs in (False, True)]
    for stated, held in ((0.0, 3.0), (1.0, 1.0)):
        without, graphs = predict_rows(rows, Given(memory_model=MemoryModel(name="m", graph_gib=stated)))
        assert graphs.memory_bytes and without.memory_bytes
        assert graphs.memory_bytes - without.memory_bytes == held * GIB


def test_cuda_graphs_leave_the_waits_of_ranks_for_each_other() -> None:
    """With tensor ranks graphs take away what one device by itself would wait for launches, and no more."""
    row = configuration(hidden=1024, layers=16, stack="megatron-core", gpu="H100", precision="fp8")
    launched, recorded = predict_rows([row, row.model_copy(update={"cuda_graphs": True})])
    known = load_calibration("nemo-h100-fp8").model_copy(update={"launch_us": 0.0})
    unlaunched = predict_rows([row], Given(calibration=known))[0]
    assert launched.step_time_s is not None and recorded.step_time_s is not None and unlaunched.step_time_s is not None
    assert unlaunched.step_time_s < recorded.step_time_s < launched.step_time_s


def test_weights_gathered_in_fp8_are_half_as_many_bytes() -> None:
    """Sixteen replicas wait for 1.5 bytes a parameter, not for 2, with experts too; Megatron's mxfp8 gathers bf16."""
    row = configuration(n_gpus=16, tp=1, pp=1, dp=16, gpu="H100", precision="fp8", grad_precision="bf16", zero=1)
    of_experts = {"num_experts": 8, "experts_per_token": 2, "expert_ffn_hidden": 1024, "ep": 8}
    for more in ({}, of_experts, {"precision": "mxfp8", "gpu": "B200"}):
        asked = row.model_copy(update={"overlap_grad_reduce": False, **more})
        plain, gathered = (
            predict_rows([asked.model_copy(update={"fp8_param_gather": each})])[0].step_time_s or 0.0
            for each in (False, True)
        )
        assert plain == gathered > 0 if "precision" in more else plain > gathered > 0
    sums = [(None, "gradients"), (None, "weights"), ("bf16", "weights"), ("bf16", "fp8")]
    each = [MemoryModel(grad_precision=kept, param_gather=name).parameter_bytes for kept, name in sums]
    assert [one.exchanged_at_end(1) for one in each] == [4, 3, 2, 1.5]
    assert [one.exchanged_at_end(2) for one in each] == [1] * 4 and each[1].exchanged(1, 8) == 4
    for change in ({"zero": 0}, {"precision": "bf16"}):
        with pytest.raises(DataError, match="fp8_param_gather is true, expected"):
            ConfigurationRow.parse(row.model_dump(exclude_none=True) | {"fp8_param_gather": True, **change}, "row")


def test_products_are_no_faster_than_measured_alone(tmp_path: Path) -> None:
    """Samples far below their predictions leave the products of a measured device at its time less its error."""
    rows = [configuration(layers=layers, micro_batch=b, gpu="A100") for layers in (16, 32, 48) for b in (1, 2, 4)]
    seconds = [0.3 * (found.step_time_s or 0.0) for found in predict_rows(rows)]
    cells = ("gpu", "n_gpus", "hidden", "layers", "tp", "pp", "dp", "micro_batch", "global_batch")
    lines = [[*(getattr(row, name) for name in cells), value] for row, value in zip(rows, seconds, strict=True)]
    path = tmp_path / "samples.csv"
    path.write_text("\n".join(",".join(map(str, line)) for line in [[*cells, "measured_s"], *lines]) + "\n")
    assert fit_latency(path, name="fast").coefficients["gemm"] >= 0.92


def test_fit_recovers_the_machine_behind_its_samples(tmp_path: Path) -> None:
    """Samples predicted by a calibration are predicted again by the calibration fitted to them."""
    rng = np.random.default_rng(0)
    truth = load_calibration("megatron-deepspeed-a100-many")
    rows = []
    for _ in range(60):
        tp, pp, dp = (int(2 ** rng.integers(0, 4)) for _ in range(3))
        if tp * pp * dp <= 8:
            continue
        change = {"n_gpus": tp * pp * dp, "tp": tp, "pp": pp, "dp": dp, "global_batch": dp * 16, "recompute": "full"}
        rows.append(configuration(**change, hidden=int(rng.choice([2048, 4096, 8192])), precision="fp16"))
    lines = [HEAD + ",measured_s"]
    for row, found in zip(rows, predict_rows(rows, Given(calibration=truth)), strict=True):
        cells = [row.gpu, row.n_gpus, row.hidden, row.layers, "", row.seq, row.tp, row.pp, row.dp, 1, row.global_batch]
        lines.append(",".join(map(str, [*cells, "full", "fp16", "", found.step_time_s])))
    path = tmp_path / "samples.csv"
    path.write_text("\n".join(lines) + "\n")
    fitted = fit_latency(path, name="again", cluster="vtrain-multi-node")
    assert fitted.mape is not None and fitted.mape < 0.02
    assert fitted.nodes == "many"


def test_fit_refuses_rows_without_measurement_and_mixed_stacks(tmp_path: Path) -> None:
    """Every sample needs a measured time, and all are of one device and stack."""
    path = tmp_path / "samples.csv"
    row = "A100,8,2048,24,16,2048,2,2,2,1,16,full,fp16,"
    path.write_text(f"{HEAD},measured_s\n{row},\n")
    with pytest.raises(DataError, match="measured_s: missing"):
        fit_latency(path, name="x")
    path.write_text(f"{HEAD},measured_s\n{row},1.0\n{row.replace('A100', 'H100')},1.0\n")
    with pytest.raises(DataError, match="2 kinds"):
        fit_latency(path, name="x")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"schedule": "zb-v"}, "vpp is 1, expected 2 under zb-v"),
        ({"schedule": "interleaved-1f1b"}, "vpp is 1, expected 2 under interleaved-1f1b"),
        ({"schedule": "zb-v", "vpp": 2, "global_batch": 16}, "expected another for 4 micro-batches and pp = 4"),
        ({"schedule": "zb-h1", "recompute": "full"}, "expected none or selective under zb-h1"),
        ({"schedule": "zb-h1", "pp": 1, "dp": 16}, "expected 1f1b where pp is 1"),
        ({"schedule": "gpipe", "vpp": 2}, "vpp is 2, expected 1 under gpipe"),
    ],
)
def test_schedules_that_are_not_defined_get_an_error(change: dict[str, object], words: str) -> None:
    """Chunks, micro-batches and recompute have to suit the schedule; the rows beside are priced."""
    right, wrong = predict_rows([configuration(), configuration(**change)])
    assert right.step_time_s is not None and not right.error
    assert wrong.step_time_s is None and words in wrong.error


def test_memory_beyond_whole_numbers_of_64_bits_does_not_fit() -> None:
    """All activations of a hundred million micro-batches, kept at once under GPipe, stay a large figure."""
    (found,) = predict_rows(
        [configuration(stack="any", schedule="gpipe", seq=2**20, hidden=2**13, dp=4, global_batch=10**8)]
    )
    assert found.memory_bytes == 2**62
    assert found.fits is False


def test_calibrations_of_another_device_are_refused_or_have_a_wider_band() -> None:
    """The caller's is refused in the row; runs that a row names lend another device their losses, with more spread."""
    row = configuration(gpu="H100", stack="megatron-core")
    wrong, right = (
        predict_rows([row], Given(calibration=load_calibration(name)))[0]
        for name in ("megatron-deepspeed-a100-many", "nemo-h100-bf16")
    )
    assert wrong.error == "calibration megatron-deepspeed-a100-many is of a100-80gb, expected one of h100-80gb"
    assert right.band is not None
    rows = [configuration(gpu=gpu, stack="nemo-h100") for gpu in ("H100", "H200")]
    own, lent = predict_rows(rows)
    assert own.band is not None
    assert lent.step_time_s is not None and own.step_time_s is not None and lent.band is not None
    assert lent.band[0] / lent.step_time_s < own.band[0] / own.step_time_s
    assert lent.band[1] / lent.step_time_s > own.band[1] / own.step_time_s


def test_links_that_differ_are_refused() -> None:
    """A row has no placement, so clusters of several kinds of nodes, and with racks, price none."""
    rows = [configuration(cluster=name) for name in ("dgx-a100", "amp-heterogeneous", "hethub-12n96d")]
    right, *wrong = predict_rows(rows)
    assert not right.error
    assert all("has links that differ, expected one kind of node" in one.error for one in wrong)


def test_groups_of_alike_nodes_are_one_kind(tmp_path: Path) -> None:
    """Nodes that a file lists in two groups have the links of one; latencies that were measured differ."""
    node = "{count: 1, device: a100-80gb, gpus_per_node: 8, intra_bandwidth_gbps: 2400}"
    written = {"two": f"[{node}, {node}]", "one": f"[{node.replace('1', '2', 1)}]", "told": f"[{node}, {node}]"}
    for name, nodes in written.items():
        matrix = "latency_matrix: {rows_us: [[0, 5], [5, 0]]}\n" if name == "told" else ""
        (tmp_path / f"{name}.yaml").write_text(f"nodes: {nodes}\nnetwork: {{bandwidth_gbps: 200}}\n{matrix}")
    two, one, told = predict_rows([configuration(cluster=str(tmp_path / f"{name}.yaml")) for name in written])
    assert two.step_time_s is not None and two == one
    assert "has links that differ" in told.error


def test_cards_without_nvlink_have_none_by_default() -> None:
    """A GeForce has the links of a node of L40S, and exchanges of tensor ranks take longer than over NVLink."""
    card, linked = predict_rows([configuration(gpu="rtx-4090", cluster=name) for name in ("", "dgx-a100")])
    (stated,) = predict_rows([configuration(gpu="rtx-4090", cluster="g6e.48xlarge")])
    assert card.step_time_s == stated.step_time_s
    assert card.step_time_s is not None and linked.step_time_s is not None
    assert card.step_time_s > 1.2 * linked.step_time_s


def test_columns_override_the_stack() -> None:
    """Gradients in bf16 halve their bytes, stages move layers, and overlap hides reductions."""
    base, half, moved, hidden = predict_rows(
        [
            configuration(),
            configuration(grad_precision="bf16"),
            configuration(stages="5 9 9 9"),
            configuration(overlap_grad_reduce=True, global_batch=16),
        ]
    )
    shown = predict_rows([configuration(global_batch=16)])[0]
    assert base.memory_bytes and half.memory_bytes and moved.memory_bytes and hidden.step_time_s and shown.step_time_s
    # 8 layers of 12 h^2 + 13 h on four ranks, and the embedding, each parameter by two bytes less.
    parameters = (8 * (12 * 4096**2 + 13 * 4096) + 51200 * 4096) / 4
    assert base.memory_bytes - half.memory_bytes == pytest.approx(2 * parameters, rel=1e-3)
    assert moved.memory_bytes != base.memory_bytes
    assert hidden.step_time_s != shown.step_time_s


def test_memory_model_of_the_caller_holds_for_all_rows() -> None:
    """A given memory model takes the place of the stack's, with its overhead and its sequence parallelism."""
    more = MemoryModel(name="own", overhead_gib=12.0)
    row = configuration(stack="any")
    own, plain = (predict_rows([row], given)[0] for given in (Given(memory_model=more), Given()))
    assert own.memory_bytes is not None and plain.memory_bytes is not None
    assert own.memory_bytes - plain.memory_bytes == 10 * GIB
    assert own.step_time_s == plain.step_time_s


DATA = Path(os.environ.get("TAUT_SHARED_DATA", "absent")) / "measured"


@pytest.mark.skipif(not DATA.is_dir(), reason="the public campaigns are not here")
def test_public_campaign_is_predicted_as_the_calibration_says() -> None:
    """The shipped calibrations' mean errors on their campaigns are at most the stated ones."""
    with (DATA / "vtrain_multi.csv").open() as file:
        lines = list(csv.DictReader(file))
    rows, measured = [], []
    for line in lines:
        rows.append(
            configuration(
                n_gpus=line["# GPUs"],
                hidden=line["hidden size"],
                layers=line["# layers"],
                heads=line["attention heads"],
                seq=line["sequence length"],
                tp=line["tensor parallelism"],
                dp=line["data parallelism"],
                pp=line["pipeline parallelism"],
                micro_batch=line["micro batch"],
                global_batch=line["global batch"],
                recompute="full",
                precision="fp16",
                stack="megatron-deepspeed-a100",
            )
        )
        measured.append(float(line["iteration time (ms)"]) / 1e3)
    found = np.array([prediction.step_time_s for prediction in predict_rows(rows)], dtype=float)
    stated = load_calibration("megatron-deepspeed-a100-many").mape
    assert stated is not None
    assert np.abs(found / np.array(measured) - 1).mean() <= stated


def test_a_framework_is_a_stack_of_rows_too() -> None:
    """A row for megatron-core has its calibration for the device, and one for any has stated costs and no band."""
    core, named, free = predict_rows(
        [
            configuration(gpu="h100-80gb", stack="megatron-core"),
            configuration(gpu="h100-80gb", stack="nemo-h100"),
            configuration(gpu="h100-80gb", stack="any"),
        ]
    )
    assert (core.step_time_s, core.band) == (named.step_time_s, named.band) and core.band is not None
    assert free.band is None and free.step_time_s is not None


CORE: dict[str, Any] = {"tp": 1, "pp": 2, "dp": 4, "stack": "megatron-core"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tp": 2, "cp": 2, "dp": 2, "cp_comm": "p2p"}, "cp_comm is p2p, expected all_gather in torchtitan"),
        (
            {"tp": 4, "dp": 2, "heads": 32, "kv_heads": 2},
            "tp is 4, expected a divisor of 2 key-value heads in torchtitan",
        ),
        ({"tp": 2, "cp": 2, "dp": 2, "cp_comm": "all_gather"}, None),
        ({"tp": 2, "cp": 2, "dp": 2, "cp_comm": "p2p", "stack": "megatron-core"}, None),
        ({"tp": 1, "dp": 8, "zero": 1}, "zero is 1, expected 0 or 2 or 3 in torchtitan"),
        (
            {"tp": 1, "dp": 8, "recompute": "selective", "stack": "deepspeed"},
            "recompute is selective, expected none or full in deepspeed",
        ),
        (CORE | {"zero": 2}, "zero is 2, expected 0 or 1 in pipelines in megatron-core"),
        (
            CORE | {"stack": "", "schedule": "gpipe"},
            "schedule is gpipe, expected 1f1b or interleaved-1f1b in megatron-core",
        ),
        (CORE | {"stack": "any", "schedule": "gpipe", "zero": 2}, None),
        (CORE | {"stack": "deepspeed", "vpp": 2}, "schedule is interleaved-1f1b, expected 1f1b in deepspeed"),
    ],
)
def test_what_a_framework_has_not_is_refused(changes: dict[str, Any], words: str | None) -> None:
    """Torchtitan gathers keys and values before attention, and shares no key-value head among tensor ranks."""
    (found,) = predict_rows([configuration(**{"stack": "torchtitan", "n_gpus": 8, "pp": 1, **changes})])
    assert (found.error or None) == words
