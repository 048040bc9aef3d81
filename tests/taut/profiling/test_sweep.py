"""The sweep: every asked key is measured, and what does not fit is left out."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch

from taut.data.costs import CostRow
from taut.data.model import ModelSpec
from taut.profiling import layers as collected
from taut.profiling.layers import (
    Point,
    Timing,
    collect,
    cost_table,
    kernel_rows,
    kernels_csv,
    measure,
    optimizer_seconds,
)
from taut.profiling.slices import PASSES, slice_of
from tests.support.profiling import gated_model, plain_model, sweep_of

pytestmark = pytest.mark.usefixtures("one_thread")


def silent(line: str) -> None:
    """Say nothing."""


def failing(error: RuntimeError) -> Callable[..., object]:
    def fail(*_: object, **__: object) -> object:
        raise error

    return fail


def test_points_are_kinds_degrees_and_micro_batches() -> None:
    """Every layer kind, then embedding and head, at every tensor degree and micro-batch."""
    sweep = sweep_of(plain_model(), tensor_degrees=[1, 4], micro_batches=[2])
    kinds = ["block", "embedding", "head"]
    assert sweep.points == [Point(kind, tp, 2) for tp in (1, 4) for kind in kinds]
    assert [point.kind for point in sweep_of(plain_model(vocab=None)).points] == ["block"] * 4


def test_unlike_layers_are_measured_each() -> None:
    """A list of layers gives rows for every kind, each at its own sequence."""
    shape = {"hidden": 16, "heads": 4}
    layers = [{**shape, "kind": "long", "seq": 16, "attention_window": 8}, {**shape, "kind": "short", "seq": 8}]
    model = ModelSpec.parse({"name": "unlike", "layers": layers}, "unlike")
    found = collect(sweep_of(model, tensor_degrees=[1], micro_batches=[1]), kernels=False, say=silent)
    assert {(row.kind, row.seq) for row in found.rows} == {("long", 16), ("short", 8)}


@pytest.mark.parametrize("model", [plain_model(), gated_model()], ids=str)
def test_rows_hold_what_was_measured(model: ModelSpec) -> None:
    """Seconds above 0, full recompute with the layer's input alone, and no peak on a CPU."""
    plain, full = measure(sweep_of(model), Point("block", 2, 2)) or []
    assert (plain.recompute, full.recompute) == ("none", "full")
    for row in (plain, full):
        assert (row.device, row.kind, row.tp, row.micro_batch, row.seq) == ("cpu", "block", 2, 2, 8)
        assert min(row.forward_s, row.input_grad_s, row.weight_grad_s) > 0
        assert row.spread is not None
        assert row.peak_bytes is None
    # 2 x 8 tokens of 16 channels in fp32, halved by sequence parallelism.
    assert (full.activation_bytes, full.activation_bytes_sp) == (1024, 512)
    assert plain.activation_bytes > full.activation_bytes


def test_sequence_parallelism_divides_what_lies_outside() -> None:
    """Of the plain layer's bytes the norms' share is divided by the ranks, the rest stays; tokens are not divided."""
    (row, _) = measure(sweep_of(plain_model()), Point("block", 4, 2)) or []
    # 16 tokens in fp32: 68 values outside, and (48 + 16 + 4 + 128) / 4 = 49 inside.
    assert (row.activation_bytes, row.activation_bytes_sp) == (16 * 4 * (68 + 49), 16 * 4 * (17 + 49))
    (embedding,) = measure(sweep_of(plain_model()), Point("embedding", 2, 2)) or []
    assert embedding.activation_bytes == embedding.activation_bytes_sp == 16 * 9


def test_backward_is_divided_as_its_parts_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """The seconds of one backward pass are split in the ratio of input and weight gradient."""
    said = Timing(seconds=(1.0, 6.0, 9.0, 3.0, 1.0), spread=0.5)
    monkeypatch.setattr("taut.profiling.layers.time_passes", lambda *_, **__: said)
    (row,) = measure(sweep_of(plain_model()), Point("head", 1, 1)) or []
    # Backward takes 6 s; apart the passes take 3 s and 1 s: 4.5 s and 1.5 s.
    assert (row.forward_s, row.input_grad_s, row.weight_grad_s, row.spread) == (1.0, 4.5, 1.5, 0.5)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_optimizer_is_priced_per_parameter(precision: str) -> None:
    """A step of Adam takes some time for every parameter, in either way of keeping them."""
    seconds = optimizer_seconds(sweep_of(plain_model(), precision=precision))
    assert seconds is not None
    assert 0 < seconds < 1e-3


@pytest.mark.proof
@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("no"), RuntimeError("DefaultCPUAllocator: can't allocate memory")]
)
def test_what_does_not_fit_is_left_out(monkeypatch: pytest.MonkeyPatch, error: RuntimeError) -> None:
    """A point that runs out of memory is named in the remarks, and the others are measured."""
    sweep = sweep_of(plain_model(), tensor_degrees=[1], micro_batches=[1, 2])
    monkeypatch.setattr(
        "taut.profiling.layers.slice_of",
        lambda model, kind, *at, **how: failing(error)() if kind == "head" else slice_of(model, kind, *at, **how),
    )
    found = collect(sweep, kernels=True, say=silent)
    assert found.left_out == [Point("head", 1, 1), Point("head", 1, 2)]
    assert {row.kind for row in found.rows} == {row.kind for row in found.kernels} == {"block", "embedding"}
    basis = cost_table(sweep, found).basis
    assert "Left out for want of memory: head tp=1 micro_batch=1, head tp=1 micro_batch=2." in basis


def test_other_errors_are_not_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault that is not want of memory is raised."""
    monkeypatch.setattr("taut.profiling.layers.slice_of", failing(RuntimeError("broken")))
    with pytest.raises(RuntimeError, match="broken"):
        measure(sweep_of(plain_model()), Point("block", 1, 1))


def test_weights_are_left_out_of_the_input_gradient() -> None:
    """Each of the four matrices is one product forward, one for the input and one for the weight."""
    rows = kernel_rows(sweep_of(plain_model()), Point("block", 2, 2)) or []
    products = {"aten::addmm", "aten::mm"}
    calls = {phase: sum(row.calls for row in rows if row.phase == phase and row.kernel in products) for phase in PASSES}
    assert calls == {"forward": 4, "input_grad": 4, "weight_grad": 4}
    assert {row.operator for row in rows if row.phase == "forward"} >= {"aten::linear", "aten::layer_norm"}
    assert "AddmmBackward0" in {row.operator for row in rows if row.phase == "input_grad"}
    assert all(row.mean_us > 0 for row in rows)


def test_kernel_table_is_written_with_its_origin() -> None:
    """The remarks stand at the head, and the columns have the words of the documentation."""
    rows = kernel_rows(sweep_of(plain_model()), Point("embedding", 1, 1)) or []
    lines = kernels_csv(rows, "measured\nhere").splitlines()
    assert lines[:2] == ["# measured", "# here"]
    assert lines[2] == "device,kind,tp,micro_batch,seq,pass,operator,kernel,calls,mean_us"
    assert lines[3].startswith("cpu,embedding,1,1,8,forward,aten::embedding,")
    assert len(lines) == 3 + len(rows)


def test_kernels_of_a_gpu_are_what_operators_launched() -> None:
    """On a GPU an operator's row is a launched kernel, under the outermost operator or node of the backward graph."""
    node = SimpleNamespace(name="autograd::engine::evaluate_function: MmBackward0", cpu_parent=None, kernels=[])
    launched = [SimpleNamespace(name="gemm", duration=7), SimpleNamespace(name="reduce", duration=2)]
    product = SimpleNamespace(name="aten::mm", cpu_parent=node, kernels=launched)
    found = list(collected._kernels([node, product], torch.device("cuda")))
    assert found == [("MmBackward0", "gemm", 7.0), ("MmBackward0", "reduce", 2.0)]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS, but there was no current CUDA context")
def test_cuda_is_measured_too() -> None:
    """On a GPU seconds are the stream's, the peak holds at least what is kept, and kernels are the device's own."""
    model = gated_model(hidden=256, head_dim=64, ffn_hidden=512, seq=128)
    sweep = sweep_of(model, gpu="gpu", device=torch.device("cuda"), precision="bf16")
    rows: list[CostRow] = [row for point in sweep.points for row in measure(sweep, point) or []]
    # Two layer rows, embedding and head at four keys.
    assert len(rows) == 16
    for row in rows:
        assert min(row.forward_s, row.weight_grad_s) > 0
        assert row.peak_bytes is not None
        assert row.peak_bytes > row.activation_bytes
    assert optimizer_seconds(sweep)
    launched = kernel_rows(sweep, Point("block", 1, 1)) or []
    assert {row.phase for row in launched} == set(PASSES)
    assert not any(row.kernel.startswith("aten::") for row in launched)
