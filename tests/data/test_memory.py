"""How memory is accounted."""

import math

import pytest

from taut.data.catalog.builtin import POOLED_MARGIN_GIB, with_pooled_margin
from taut.data.catalog.devices import catalog_device
from taut.data.device import Precision
from taut.data.memory import GradPrecision, MemoryModel
from taut.errors import DataError


@pytest.mark.parametrize(
    ("precision", "kept", "total"),
    # Megatron-LM's table: weights, gradients, optimizer states; 18, 20 and 16 bytes a parameter in all.
    [("bf16", (2, 4, 12), 18), ("fp16", (2, 2, 16), 20), ("fp32", (4, 4, 8), 16)],
)
def test_bytes_per_parameter_are_megatrons(precision: Precision, kept: tuple[int, int, int], total: int) -> None:
    """Mixed-precision Adam takes the documented bytes per parameter."""
    found = MemoryModel(precision=precision).parameter_bytes[:3]
    assert found == kept
    assert sum(found) == total


@pytest.mark.parametrize(
    ("precision", "summed", "held"),
    # Beside sums in fp32 those of the weights' two bytes stay; where both have one format there is one copy.
    [("bf16", None, 6), ("bf16", "bf16", 2), ("fp16", None, 2), ("fp16", "fp32", 6), ("fp32", None, 4)],
)
def test_half_gradients_stay_beside_longer_sums(precision: Precision, summed: GradPrecision | None, held: int) -> None:
    """Memory holds both, while links carry the summed ones alone."""
    model = MemoryModel(precision=precision, grad_precision=summed, half_gradients=True)
    assert model.held_parameter_bytes.gradient == held
    assert model.parameter_bytes.gradient == (held if held in (2, 4) else 4)
    assert model.model_copy(update={"half_gradients": False}).held_parameter_bytes == model.parameter_bytes


@pytest.mark.parametrize(
    ("margin", "capacity_kib", "kept_free"),
    # 5 % of 1000 is 50; of 1001 it is 50.05, rounded up to 51; of 16 GiB (16,777,216 KiB) 838,860.8, rounded up.
    [(0.05, 1000, 50), (0.05, 1001, 51), (0.05, 16_777_216, 838_861), (0.0, 1000, 0), (0.5, 3, 2)],
)
def test_margin_is_rounded_up(margin: float, capacity_kib: int, kept_free: int) -> None:
    """The margin is a whole number of KiB, never less than its share."""
    assert MemoryModel(margin=margin).margin_kib(capacity_kib) == kept_free


def test_overhead_is_whole_bytes() -> None:
    """The overhead is rounded to a byte: 0.1 GiB is 107,374,182.4 bytes."""
    assert MemoryModel(overhead_gib=2).overhead_bytes == 2 * 1024**3
    assert MemoryModel(overhead_gib=0.1).overhead_bytes == 107_374_182


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"margin": 1}, "m.yaml: margin: is 1, expected to be less than 1"),
        ({"margin": -0.1}, "m.yaml: margin: is -0.1, expected to be greater than or equal to 0"),
        ({"overhead_gib": -1}, "m.yaml: overhead_gib: is -1, expected"),
        ({"overhead_gib": 1e308}, r"m.yaml: overhead_gib: is 1e\+308, expected"),
        (
            {"precision": "int8"},
            "m.yaml: precision: is 'int8', expected to be 'bf16', 'fp16', 'fp32', 'fp8', 'fp8-blockwise', 'mxfp8' or",
        ),
        ({"colour": "red"}, "m.yaml: colour: unknown field"),
    ],
)
def test_impossible_memory_models_are_refused(values: dict[str, object], words: str) -> None:
    """The message names the file, the field, its value and what was expected."""
    with pytest.raises(DataError, match=words):
        MemoryModel.parse(values, "m.yaml")


def test_a_share_of_a_large_card_is_no_larger_margin_than_that_of_unseen_runs() -> None:
    """5 % of 80 GB stays 5 %; of 180 GB it is the pooled margin, unless a smaller device or a fit is there."""
    small, large = catalog_device("h100-80gb"), catalog_device("b200-180gb")
    model = MemoryModel()
    assert with_pooled_margin(model, [small]) == with_pooled_margin(model, [small, large]) == model
    kept = with_pooled_margin(model, [large]).margin_kib(large.capacity_kib)
    assert kept == math.ceil(POOLED_MARGIN_GIB * 2**20) < model.margin_kib(large.capacity_kib)
    fitted = model.model_copy(update={"samples": 9})
    assert with_pooled_margin(fitted, [large]) == fitted
