"""Cost tables: what is looked up, interpolated and refused."""

from pathlib import Path

import pytest

from taut.data.costs import CostRow, CostTable, Key, LayerCost, check_kinds, read_costs
from taut.errors import DataError, ExtrapolationWarning, MissingProfileError

HEADER = (
    "device,kind,tp,micro_batch,seq,recompute,forward_s,input_grad_s,weight_grad_s,activation_bytes,activation_bytes_sp"
)
ROW = "a100,block,2,4,128,none,0.001,0.0015,0.0005,1000,600"


def row(micro_batch: int, seconds: float, kept: int) -> CostRow:
    return CostRow(
        device="d",
        kind="block",
        tp=1,
        micro_batch=micro_batch,
        seq=8,
        forward_s=seconds,
        input_grad_s=2 * seconds,
        weight_grad_s=3 * seconds,
        activation_bytes=kept,
    )


def key(micro_batch: int, *, tp: int = 1) -> Key:
    return Key("d", "block", tp, micro_batch, 8, "none")


TABLE = CostTable(name="table", basis="by hand", rows=[row(2, 0.2, 100), row(8, 0.5, 401)])


def test_key_in_the_table_is_exact() -> None:
    """A measured micro-batch is returned as it stands, without a warning."""
    assert TABLE.at(key(8)) == LayerCost(0.5, 1.0, 1.5, 401, 401)


def test_no_more_is_offloaded_than_a_layer_keeps() -> None:
    """A row whose host has more than the layer keeps is refused in one line, with and without sequence parallelism."""
    plain = row(2, 0.2, 100).model_dump()
    kept = CostRow.parse({**plain, "offload_bytes": 100, "offload_bytes_sp": 90}, "row 1")
    assert (kept.cost.offload_bytes, kept.cost.offload_bytes_sp) == (100, 90)
    for more in ({"offload_bytes": 101}, {"offload_bytes_sp": 101}):
        with pytest.raises(DataError, match=r"offload_bytes: is .* expected at most activation_bytes, 100") as no:
            CostRow.parse({**plain, **more}, "row 1")
        assert "\n" not in str(no.value)


def test_micro_batch_between_two_is_interpolated_with_a_warning() -> None:
    """Between micro-batches 2 and 8 the costs at 4 are a third of the way, and the plan is warned of it."""
    with pytest.warns(ExtrapolationWarning, match="micro_batch=4.* interpolated between micro_batch 2 and 8"):
        cost = TABLE.at(key(4))
    # 0.2 + (0.5 - 0.2) / 3 = 0.3 s; 100 + 301 / 3 = 200.33 bytes, rounded to 200.
    assert cost.forward == pytest.approx(0.3)
    assert cost.input_grad == pytest.approx(0.6)
    assert cost.weight_grad == pytest.approx(0.9)
    assert cost.activation_bytes == 200


@pytest.mark.parametrize("missing", [key(1), key(9), key(4, tp=2), key(2)._replace(recompute="full")])
def test_anything_else_missing_is_refused(missing: Key) -> None:
    """Outside the measured micro-batches, or at another key, nothing is guessed."""
    assert not TABLE.prices(missing)
    with pytest.raises(MissingProfileError, match=f"table: no cost for device=d, kind=block, tp={missing.tp}"):
        TABLE.at(missing)


def test_missing_profile_is_a_data_error_and_a_lookup_error() -> None:
    """Callers may catch a missing price as bad data or as a failed look-up."""
    assert issubclass(MissingProfileError, DataError)
    assert issubclass(MissingProfileError, LookupError)


def test_kinds_that_the_model_lacks_are_refused(tmp_path: Path) -> None:
    """A row of a mistyped kind would be left unused, so it is refused with the nearest right kind."""
    path = tmp_path / "profile.csv"
    path.write_text("\n".join([HEADER, ROW, ROW.replace("block", "blok")]) + "\n", encoding="utf-8")
    table = read_costs(path)
    check_kinds(table, ("block", "blok"), "m")
    with pytest.raises(DataError, match=r"row 2: kind 'blok' is no layer of m, expected .*; did you mean block\?"):
        check_kinds(table, ("block", "embedding", "head"), "m")
