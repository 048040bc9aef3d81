"""Profiles as CSV files: what is read, written and refused."""

from pathlib import Path

import pytest

from taut.data.costs import CostRow, CostTable, Key, LayerCost, costs_csv, read_costs
from taut.errors import DataError

HEADER = (
    "device,kind,tp,micro_batch,seq,recompute,forward_s,input_grad_s,weight_grad_s,activation_bytes,activation_bytes_sp"
)
ROW = "a100,block,2,4,128,none,0.001,0.0015,0.0005,1000,600"


def write(folder: Path, *lines: str) -> Path:
    path = folder / "profile.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_profile_is_read_as_written(tmp_path: Path) -> None:
    """Every column reaches its field; blank lines are skipped, and the remarks say the basis."""
    table = read_costs(write(tmp_path, "# measured on a Friday", HEADER, "", ROW))
    assert table.name == "profile"
    assert table.basis == "profile profile.csv: measured on a Friday"
    cost = table.at(Key("a100", "block", 2, 4, 128, "none"))
    assert cost == LayerCost(0.001, 0.0015, 0.0005, 1000, 600)
    assert cost.seconds == pytest.approx(0.003)


def test_empty_cells_take_defaults(tmp_path: Path) -> None:
    """An empty recompute is none, and without a figure of its own sequence parallelism is credited with nothing."""
    table = read_costs(write(tmp_path, HEADER, "a100,block,2,4,128,,0.001,0.0015,0.0005,1000,"))
    assert table.at(Key("a100", "block", 2, 4, 128, "none")).activation_bytes_sp == 1000


def test_spreadsheet_export_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    """A mark before the first column's name, as spreadsheets write it, is not part of the name."""
    path = tmp_path / "profile.csv"
    path.write_text(f"{HEADER}\r\n{ROW}\r\n", encoding="utf-8-sig", newline="")
    assert len(read_costs(path).rows) == 1


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([HEADER], r"has no rows, expected columns device, kind, tp"),
        ([], "is empty, expected a cost table"),
        ([HEADER.replace("forward_s", "foward_s"), ROW], "row 1: (forward_s: missing|foward_s: unknown field)"),
        ([HEADER + ",kind", ROW + ",block"], "column 'kind' stands twice"),
        ([HEADER + ",spred", ROW + ",0.1"], "row 1: spred: unknown field, did you mean spread?"),
        ([HEADER, ROW.replace("0.0015", "1e-320")], "row 1: input_grad_s: is 9.99989e-321, expected a size from 1e-30"),
        ([HEADER, ROW, ROW], "row 2: device=a100, kind=block, tp=2, micro_batch=4.* stands twice, expected once"),
        ([HEADER, ROW + ",7"], "row 1: has another number of cells than the header"),
        ([HEADER, "a100,block,2"], "row 1: has another number of cells than the header"),
        ([HEADER.replace("kind", "layer"), ROW], "row 1: (kind: missing|layer: unknown field)"),
        ([HEADER, ROW, ROW.replace("0.0015", "-1")], "row 2: input_grad_s: is '-1', expected"),
        ([HEADER, ROW.replace("0.0015", "nan")], "row 1: input_grad_s: is 'nan', expected a finite number"),
        ([HEADER, ROW.replace("0.0015", "fast")], "row 1: input_grad_s: is 'fast', expected to be a valid number"),
        ([HEADER, ROW.replace(",2,4,", ",0,4,")], "row 1: tp: is '0', expected to be greater than 0"),
        ([HEADER, ROW.replace(",none,", ",some,")], "row 1: recompute: is 'some', expected to be 'none'"),
        ([HEADER, ROW.replace("1000,", "1" + "0" * 30 + ",")], "row 1: activation_bytes: is '1000"),
        ([HEADER, ROW.replace("block", "x" * 200_000)], "field larger than field limit"),
    ],
)
def test_wrong_profiles_are_refused_in_one_line(tmp_path: Path, lines: list[str], words: str) -> None:
    """The message names the file, the row, the column and the value."""
    with pytest.raises(DataError, match=rf"profile\.csv:? ?{words}") as caught:
        read_costs(write(tmp_path, *lines))
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    """A missing file, a folder and a binary file each say what they are."""
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"\xff\xfe\x00\x01")
    for path, words in [
        (tmp_path / "nowhere.csv", "No such file"),
        (tmp_path, "Is a directory"),
        (binary, "not UTF-8"),
    ]:
        with pytest.raises(DataError, match=f"{words}.*expected a cost table"):
            read_costs(path)


def test_a_written_table_reads_back(tmp_path: Path) -> None:
    """Rows, provenance and the optimizer's price survive the way through a file."""
    row = CostRow(
        device="d", kind="block", tp=1, micro_batch=2, seq=8, forward_s=0.125, input_grad_s=0.25, weight_grad_s=0.5,
        activation_bytes=64, spread=0.01,
    )  # fmt: skip
    table = CostTable(name="t", basis="measured\non a desk", rows=[row], optimizer_s_per_parameter={"d": 2e-11})
    path = tmp_path / "t.csv"
    path.write_text(costs_csv(table), encoding="utf-8")
    found = read_costs(path)
    assert found.rows == [row]
    assert "cp" not in path.read_text(encoding="utf-8")
    assert found.optimizer_s_per_parameter == {"d": 2e-11}
    assert found.basis == "profile t.csv: measured on a desk"


def test_context_ranks_are_a_column_where_there_are_several(tmp_path: Path) -> None:
    """A row for two context ranks keeps its degree through a file, beside one without."""
    one = CostRow.parse_cells(dict(zip(HEADER.split(","), ROW.split(","), strict=True)), "row")
    table = CostTable(name="t", basis="measured", rows=[one, one.model_copy(update={"cp": 2})])
    path = tmp_path / "t.csv"
    path.write_text(costs_csv(table), encoding="utf-8")
    assert [key.cp for key in read_costs(path).by_key] == [1, 2]


def test_a_wrong_optimizer_remark_is_refused(tmp_path: Path) -> None:
    """A price that is not a number is named with its file."""
    path = tmp_path / "t.csv"
    path.write_text(f"# optimizer_s_per_parameter d: fast\n{HEADER}\n{ROW}\n", encoding="utf-8")
    with pytest.raises(DataError, match="d: fast': expected optimizer_s_per_parameter DEVICE: SECONDS"):
        read_costs(path)
