"""Rows of configurations: defaults, rules, and complaints that stay in their row."""

from pathlib import Path

import pytest

from taut.data.samples import ConfigurationRow, read_samples
from taut.errors import DataError

ROW = {"gpu": "a100", "n_gpus": 8, "hidden": 1024, "layers": 8, "tp": 2, "pp": 2, "dp": 2, "global_batch": 16}


def test_empty_cells_take_defaults() -> None:
    """Heads of 128 channels, all of them key-value heads, sequence 2048, one chunk, 1F1B."""
    row = ConfigurationRow.parse(ROW, "row")
    assert (row.attention_heads, row.key_value_heads, row.seq, row.vpp, row.schedule) == (8, 8, 2048, 1, "1f1b")
    assert row.num_micro_batches == 8
    assert not row.gated
    assert ConfigurationRow.parse({**ROW, "ffn_hidden": 2816}, "row").gated
    # Llama 3.2 1B is gated at four times its hidden size, which a width alone does not say.
    assert not ConfigurationRow.parse({**ROW, "ffn_hidden": 4096}, "row").gated
    assert ConfigurationRow.parse({**ROW, "ffn_hidden": 4096, "gated_mlp": True}, "row").gated
    assert not ConfigurationRow.parse({**ROW, "ffn_hidden": 2816, "gated_mlp": False}, "row").gated


def test_stages_are_read_from_a_cell_or_a_list() -> None:
    """Layers of the stages stand with blanks or bars between them, or in a list."""
    assert ConfigurationRow.parse_cells({**ROW, "stages": "5|3"}, "row").stages == [5, 3]
    assert ConfigurationRow.parse_cells({**ROW, "stages": "5 3"}, "row").stages == [5, 3]
    assert ConfigurationRow.parse({**ROW, "stages": [5, 3]}, "row").stages == [5, 3]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"n_gpus": 16}, r"expected tp\*pp\*dp\*cp = 8"),
        ({"global_batch": 15}, r"expected a multiple of dp\*micro_batch"),
        ({"layers": 1}, "layers is 1, expected at least pp = 2"),
        ({"layers": 3, "vpp": 2, "micro_batch": 1}, r"expected at least pp\*vpp = 4"),
        ({"vpp": 4, "micro_batch": 8}, "vpp is 4"),
        ({"heads": 7}, "expected a divisor of hidden"),
        ({"stages": "3 4"}, "stages is 2 of 7 layers, expected 2 of 8 layers"),
        ({"stages": [8]}, "stages is 1 of 8 layers, expected 2 of 8 layers"),
        ({"stages": "4 x"}, "stages"),
        ({"stages": "8 0", "vocab": 0}, r"stages is 8\|0, expected layers, but at an end with a vocab"),
        ({"pp": 4, "dp": 1, "stages": "7 1 0 0"}, r"stages is 7\|1\|0\|0, expected layers, but at an end"),
        ({"grad_precision": "fp8"}, "grad_precision"),
        ({"heads": 1}, "tp is 2"),
        ({"dp": 1, "cp": 2, "seq": 2050}, r"cp is 2, expected 2\*cp to divide seq 2050"),
        ({"hidden": 0}, "hidden"),
        ({"layers": 10**8}, "layers: is 100000000, expected"),
        ({"hidden": 10**8, "layers": 2000}, "the model has .* parameters, expected at most 1e[+]15"),
        ({"seq": 10**8}, "seq is 100000000 and micro_batch 1, expected fewer tokens of a micro-batch"),
        ({"vocab": 10**30}, "vocab: is 10{30}, expected"),
        ({"schedule": "zigzag"}, "schedule"),
        ({"zero": 4}, "zero"),
        ({"measured_s": -1}, "measured_s"),
    ],
)
def test_rows_that_are_no_configuration_are_refused(change: dict[str, object], words: str) -> None:
    """Each rule has its own line."""
    with pytest.raises(DataError, match=words):
        ConfigurationRow.parse({**ROW, **change}, "row")


def test_wrong_rows_keep_their_place(tmp_path: Path) -> None:
    """A file with a good, a wrong and a ragged row gives one row and two complaints, in order."""
    path = tmp_path / "rows.csv"
    head = "gpu,n_gpus,hidden,layers,tp,pp,dp,global_batch\n"
    path.write_text(head + "a100,8,1024,8,2,2,2,16\na100,8,x,8,2,2,2,16\na100,8\n")
    good, wrong, ragged = read_samples(path)
    assert good.row is not None and good.error == ""
    assert wrong.row is None and "row 2: hidden" in wrong.error
    assert ragged.row is None and "number of cells" in ragged.error


@pytest.mark.parametrize(
    ("header", "words"), [("gpu,magic\n", "'magic' is unknown"), ("gpu,hidden\n", "n_gpus is missing")]
)
def test_wrong_headers_are_refused(tmp_path: Path, header: str, words: str) -> None:
    """An unknown or missing column is an error of the file, not of a row."""
    path = tmp_path / "rows.csv"
    path.write_text(header)
    with pytest.raises(DataError, match=words):
        read_samples(path)
