"""AMP's profile: series in, layer costs out, with figures computed by hand, and what is refused."""

from pathlib import Path
from typing import Any

import pytest

from taut.data.analytic.micro_batch_scaling import PassSeconds
from taut.data.cluster import ClusterSpec
from taut.data.costs import CostTable, Key, LayerCost
from taut.data.layers.layer import EMBEDDING, HEAD
from taut.data.model import ModelSpec
from taut.errors import DataError
from taut.papers import amp as ampcost
from taut.papers.amp import AMP_LAYERS, amp_costs, read_amp_profile

GPT = ModelSpec.parse({"name": "g", "layers": 24, "hidden": 64, "heads": 4, "seq": 100, "vocab": 128}, "g")
DEVICE = {"name": "d", "memory_gib": 1, "peak_tflops": {"fp16": 1}, "memory_bandwidth_gbytes": 1}
# 8 Gb/s inside the node are 1 GB/s; 0.8 of the memory's 1 GB/s are reached.
CLUSTER = ClusterSpec.parse(
    {"name": "c", "nodes": [{"device": DEVICE, "gpus_per_node": 4, "intra_bandwidth_gbps": 8}]}, "c"
)
SECONDS = [0.1, 0.2, *[1.0, 3.0] * 12, 0.3, 0.3, 0.5, 0.9]


def write(folder: Path, series: dict[str, list[float]], *, extra: str = "") -> Path:
    path = folder / "known.csv"
    lines = [f"{name},{i},{seconds}" for name, entries in series.items() for i, seconds in enumerate(entries)]
    path.write_text("\n".join(["# from somewhere", "file,layer,seconds", *lines, extra]) + "\n", encoding="utf-8")
    return path


def costs(folder: Path, monkeypatch: pytest.MonkeyPatch, **work: float) -> CostTable:
    """Costs at micro-batches 1 and 4 with a given work of one sequence, forward, by kind."""

    def added(model: ModelSpec, devices: Any, *, tensor_degrees: list[int], **_: Any) -> dict[Key, PassSeconds]:
        kinds = (EMBEDDING, "block", HEAD)
        return {
            Key("d", kind, tp, 1, 100, "none"): PassSeconds(work.get(kind, 0.0), 0.0, 0.0)
            for kind in kinds
            for tp in tensor_degrees
        }

    monkeypatch.setattr(ampcost, "sequence_seconds", added)
    path = write(folder, {"gpt2_d_1": SECONDS, "gpt2_d_2": SECONDS})
    return amp_costs(path, "gpt2", GPT, CLUSTER, micro_batches=[4, 1])


def at(table: CostTable, kind: str, tp: int, micro_batch: int) -> LayerCost:
    return table.by_key[Key("d", kind, tp, micro_batch, 100, "none")]


def test_launches_are_once_and_work_twice_in_the_backward_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean block of 2 s with 0.5 s of work has 1.5 s of launches: 1.5 + 0.5 b forward, 1.5 + 2 x 0.5 b backward."""
    table = costs(tmp_path, monkeypatch, block=0.5)
    assert at(table, "block", 1, 1).forward == pytest.approx(2.0)
    assert at(table, "block", 1, 1).input_grad == pytest.approx(1.25)
    cost = at(table, "block", 1, 4)
    assert (cost.forward, cost.input_grad, cost.weight_grad) == pytest.approx((3.5, 2.75, 2.75))
    # Kept for the backward pass: no price, but bytes in proportion to the micro-batch.
    assert cost.activation_bytes == 4 * at(table, "block", 1, 1).activation_bytes > 0


def test_all_reduces_in_the_profile_grow_with_the_micro_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two all-reduces of 12,800 bytes between 2 ranks at 0.8 of 1 GB/s are 32 us of the work of a sequence."""
    table = costs(tmp_path, monkeypatch)
    # 2 x 2 x 1/2 x 12,800 bytes / 0.8e9 bytes/s.
    assert at(table, "block", 2, 4).forward == pytest.approx(2.0 + 3 * 32e-6)
    assert at(table, "block", 1, 4).forward == pytest.approx(2.0)


def test_edges_are_sums_and_the_head_holds_the_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Embedding 0.1 + 0.2 s; head 0.3 + 0.3 + 0.5 + 0.9 = 2 s, and 32 + 8 bytes for each of its logits."""
    table = costs(tmp_path, monkeypatch)
    assert at(table, EMBEDDING, 1, 4).forward == pytest.approx(0.3)
    # 100 x 128 logits x 32 bytes at 0.8 GB/s are 512 us a sequence, x 8 bytes 128 us; tp = 2 halves 256 padded columns.
    assert at(table, HEAD, 1, 4).forward == pytest.approx(2.0 + 4 * 512e-6)
    assert at(table, HEAD, 1, 4).input_grad == pytest.approx(1.0 + 4 * 128e-6)
    assert at(table, HEAD, 2, 1).forward == pytest.approx(2.0 + 512e-6)


def test_only_shared_degrees_are_priced(tmp_path: Path) -> None:
    """A degree that one device type lacks is no key."""
    nodes = [{"device": {**DEVICE, "name": name}, "gpus_per_node": 4, "intra_bandwidth_gbps": 8} for name in "de"]
    both = ClusterSpec.parse({"name": "c", "nodes": nodes, "network": {"bandwidth_gbps": 1}}, "c")
    path = write(tmp_path, {"gpt2_d_1": SECONDS, "gpt2_d_2": SECONDS, "gpt2_e_2": SECONDS})
    assert {(row.device, row.tp) for row in amp_costs(path, "gpt2", GPT, both).rows} == {("d", 2), ("e", 2)}


def test_blocks_before_a_cut() -> None:
    """GPT-2's blocks are entries 2 to 25; TransGAN's 3 to 14 and 41 to 52, and what upsamples is behind the twelfth."""
    gpt, gan = AMP_LAYERS["gpt2"], AMP_LAYERS["transgan"]
    assert [gpt.blocks_before(cut) for cut in (0, 2, 3, 14, 26, 30)] == [0, 0, 1, 12, 24, 24]
    assert [gan.blocks_before(cut) for cut in (0, 3, 12, 14, 15, 41, 42, 53, 56)] == [0, 0, 9, 11, 12, 12, 13, 24, 24]
    assert gan.alike == {"wide", "narrow"}


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ("gpt2_d_1,31,0.1", "row 31: layer of gpt2_d_1 is '31', expected 30"),
        ("gpt2_d_1,30,fast", "row 31: seconds is 'fast', expected a number above 0"),
        ("gpt2_d_1,30,-1", "row 31: seconds is '-1', expected a number above 0"),
        ("gpt2_d_1,30,nan", "row 31: seconds is 'nan', expected a number above 0"),
        ("gpt2_d_1,30", "row 31: lacks a cell, expected the columns file,layer,seconds"),
        ("gpt2_d_1,30,0.1", "gpt2 on d has 31 layers, expected 30"),
    ],
)
def test_wrong_profiles_are_refused_in_one_line(tmp_path: Path, extra: str, words: str) -> None:
    """The message names file, row, series and value."""
    path = write(tmp_path, {"gpt2_d_1": SECONDS}, extra=extra)
    with pytest.raises(DataError, match=words) as caught:
        amp_costs(path, "gpt2", GPT, CLUSTER)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_files_without_the_model_are_refused(tmp_path: Path) -> None:
    """A missing file, an empty one and one of another model each say what was expected."""
    with pytest.raises(DataError, match=r"No such file.*expected AMP's profile"):
        read_amp_profile(tmp_path / "nowhere.csv")
    with pytest.raises(DataError, match="has no rows, expected the columns file,layer,seconds"):
        read_amp_profile(write(tmp_path, {}))
    with pytest.raises(DataError, match="has no tensor degree of gpt2 on all of d, expected one"):
        amp_costs(write(tmp_path, {"transgan_d_1": [0.1] * 56}), "gpt2", GPT, CLUSTER)
