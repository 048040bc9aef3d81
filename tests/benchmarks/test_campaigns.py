"""What the readers of campaigns make of what their sources state."""

import pytest

from benchmarks.campaigns import torchtitan_row

RUN = {
    **{"model": "llama3-8B", "gpu": "H100-96GB", "n_gpus": "64", "fsdp": "8", "tp": "8", "pp": "1", "cp": "1"},
    **{"seq": "8192", "local_batch": "12", "act_ckpt": "selective_op", "tps_per_gpu": "4000"},
}


@pytest.mark.parametrize(
    ("table", "float8", "precision"),
    [("8B_bf16", "0", "bf16"), ("8B_fp8_tensorwise", "1", "fp8"), ("8B_fp8_rowwise", "1", "fp8-blockwise")],
)
def test_torchtitan_has_the_recipe_of_its_scales(table: str, float8: str, precision: str) -> None:
    """One scale for a tensor is ``fp8``; scales by rows are the recipe of many scales, among the runs in 8 bits."""
    line = {**RUN, "table": table, "float8": float8}
    row = torchtitan_row(line, "h100-80gb", "bf16 fp8")
    assert row is not None and row["precision"] == precision
    narrow = torchtitan_row(line, "h100-80gb", "fp8")
    assert (narrow is None) == (precision == "bf16")
