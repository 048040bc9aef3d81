"""Figures of ranges of layers."""

import numpy as np
import pytest

from taut.data.analytic.layer_costs import analytic_costs
from taut.data.costs import CostTable
from taut.data.device import DeviceSpec
from taut.data.model import ModelSpec
from taut.formulations.space import Candidate
from taut.formulations.tables.memory import in_flight
from taut.formulations.tables.priced_layers import PricedLayers
from taut.formulations.tables.stage_tables import RangeFigures, StageTables
from tests.support.small import candidate, costs, model

DEVICE = DeviceSpec(name="d", memory_gib=1, peak_tflops={"bf16": 1.0}, memory_bandwidth_gbytes=1000)


def priced(spec: ModelSpec, table: CostTable, micro_batch: int = 1) -> PricedLayers:
    """The model's layers on one type of device."""
    candidate = Candidate(1, 1, 1, 1, micro_batch, 1, "1f1b", zero=0, sequence_parallel=False)
    return PricedLayers(model=spec, costs=table, device_types=["d"], precision="bf16", candidate=candidate, node_size=1)


def with_vocabulary(*, tied: bool, single_stage: bool) -> tuple[ModelSpec, StageTables]:
    shape = {"layers": 3, "hidden": 64, "heads": 4, "seq": 16, "vocab": 200, "tied_embedding": tied}
    spec = ModelSpec.parse({"name": "m", **shape}, "m")
    table = analytic_costs(spec, [DEVICE], precision="bf16", tensor_degrees=[1], micro_batches=[1])
    return spec, RangeFigures(priced(spec, table)).tables(sequence_parallel=False, single_stage=single_stage)


def test_embedding_and_head_belong_to_the_ends() -> None:
    """Vocabulary 200 is padded to 256: the first range holds 256 x 64 more, the last that and the final norm."""
    spec, tables = with_vocabulary(tied=False, single_stage=False)
    layer = spec.blocks[0].parameters()
    assert tables.parameters[0, 1] == layer + 256 * 64
    assert tables.parameters[1, 2] == layer
    assert tables.parameters[2, 3] == layer + 256 * 64 + 2 * 64
    assert tables.seconds[0, 0, 2, 3] > tables.seconds[0, 0, 1, 2]


def test_tied_head_is_a_copy_only_on_another_stage() -> None:
    """A tied head costs parameters where pipeline stages part it from the embedding."""
    _, apart = with_vocabulary(tied=True, single_stage=False)
    spec, together = with_vocabulary(tied=True, single_stage=True)
    assert apart.parameters[2, 3] - together.parameters[2, 3] == 256 * 64
    assert together.parameters[0, 3] == 3 * spec.blocks[0].parameters() + 256 * 64 + 2 * 64


def test_ranges_add_up_and_equal_ranges_are_equal_floats() -> None:
    """Seconds of a range are the sum over its layers, and equal ranges have the same float."""
    spec = model(6)
    layers = priced(spec, costs(spec, seconds={"block": 0.1}))
    tables = RangeFigures(layers).tables(sequence_parallel=False, single_stage=False)
    assert tables.seconds[0, 0, 0, 4] == pytest.approx(4 * 0.3)
    assert tables.seconds[0, 0, 0, 3] == tables.seconds[0, 0, 3, 6]
    assert tables.message[1:-1].tolist() == [12_800.0] * 5
    assert tables.equal_messages


def test_unlike_layers_keep_their_own_messages() -> None:
    """A cut sends the output of the layer before it."""
    spec = model(4, unlike=True)
    tables = RangeFigures(priced(spec, costs(spec), micro_batch=2)).tables(sequence_parallel=False, single_stage=False)
    assert tables.message[1:4].tolist() == [25_600.0, 12_800.0, 25_600.0]
    assert not tables.equal_messages


def test_micro_batches_in_flight_by_schedule() -> None:
    """1F1B holds pp - x of them, at most m; GPipe all m."""
    assert in_flight(candidate(4, 1, 1, m=8)).tolist() == [4, 3, 2, 1]
    assert in_flight(candidate(4, 1, 1, m=2)).tolist() == [2, 2, 2, 1]
    assert in_flight(candidate(4, 1, 1, m=8, schedule="gpipe")).tolist() == [8, 8, 8, 8]
    assert np.issubdtype(in_flight(candidate(1, 1, 1)).dtype, np.integer)
