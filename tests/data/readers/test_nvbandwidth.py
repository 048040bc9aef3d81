"""nvbandwidth's JSON as a cluster of one node."""

import json
from pathlib import Path
from typing import Any

import pytest

from taut.data.catalog.devices import catalog_devices
from taut.data.load import load_cluster
from taut.data.readers.nvbandwidth import DeviceBandwidth, cluster_from_nvbandwidth, read_nvbandwidth
from taut.errors import DataError
from taut.formulations.links import links
from taut.reports.catalog import cluster_yaml

READ, WRITE = "device_to_device_memcpy_read_ce", "device_to_device_memcpy_write_ce"
MATRIX = [["N/A", "101.5", "102.5"], ["201.5", "N/A", "203.5"], ["301.5", "302.5", "N/A"]]
ROWS = ((0.0, 101.5, 102.5), (201.5, 0.0, 203.5), (301.5, 302.5, 0.0))


def case(name: str = READ, arrow: str = "->", **changes: object) -> dict[str, Any]:
    words = f"memcpy CE GPU(row) {arrow} GPU(column) bandwidth (GB/s)"
    own = {"name": name, "status": "Passed", "bandwidth_description": words, "bandwidth_matrix": MATRIX, "sum": 1213.0}
    return {**own, **changes}


def waived(name: str) -> dict[str, Any]:
    return {"name": name, "status": "Waived"}


def read(folder: Path, *cases: object, test: str = "") -> DeviceBandwidth:
    path = folder / "node.json"
    head = {"CUDA Runtime Version": 12080, "Driver Version": "570", "git_version": "v0.8"}
    path.write_text(json.dumps({"nvbandwidth": {**head, "testcases": list(cases)}}), encoding="utf-8")
    return read_nvbandwidth(path, test)


def changed(row: int, column: int, cell: object) -> list[list[object]]:
    """The matrix with one cell changed."""
    return [[cell if (i, j) == (row, column) else own for j, own in enumerate(line)] for i, line in enumerate(MATRIX)]


def test_matrix_is_read_row_to_column(tmp_path: Path) -> None:
    """Cells are strings, the row sends to the column, and the diagonal is ignored whatever it holds."""
    assert read(tmp_path, case()) == DeviceBandwidth(test=READ, rows=ROWS)
    assert read(tmp_path, case(bandwidth_matrix=changed(1, 1, "0"))).rows == ROWS


def test_description_that_turns_the_arrow_turns_the_matrix(tmp_path: Path) -> None:
    """Where the row receives from the column, the transpose is what the row sends."""
    found = read(tmp_path, case(WRITE, "<-"))
    # Row 0 receives 101.5 GB/s from column 1, so device 1 sends 101.5 to device 0.
    assert found == DeviceBandwidth(test=WRITE, rows=((0, 201.5, 301.5), (101.5, 0, 302.5), (102.5, 203.5, 0)))


def test_preferred_test_is_the_read_of_the_copy_engine(tmp_path: Path) -> None:
    """It is taken before the write wherever it stands; where it was waived the write is taken, or the one named."""
    assert read(tmp_path, case(WRITE, "<-"), case()).test == READ
    assert read(tmp_path, waived(READ), case(WRITE, "<-")).test == WRITE
    assert read(tmp_path, case(), case(WRITE, "<-"), test=WRITE).test == WRITE
    # A name may stand twice: without a matrix while it was waived or running, and with it.
    assert read(tmp_path, waived(READ), case()).test == READ


def test_cluster_is_one_node_with_the_matrix(tmp_path: Path) -> None:
    """As many devices as rows, links as measured in bytes per second, and the slowest link as the one figure."""
    device = catalog_devices()["a100-80gb"]
    found = cluster_from_nvbandwidth(read(tmp_path, case()), name="measured", device=device)
    assert (found.num_nodes, found.num_devices, found.measured_by_device) == (1, 3, True)
    # 101.5 GB/s are 812 Gb/s.
    assert found.nodes[0].intra_bandwidth_gbps == pytest.approx(812.0)
    rate = links(found).rate
    assert (rate[0, 1], rate[1, 0]) == (pytest.approx(101.5e9), pytest.approx(201.5e9))
    path = tmp_path / "measured.yaml"
    path.write_text(cluster_yaml(found), encoding="utf-8")
    assert load_cluster(str(path)) == found


@pytest.mark.parametrize(
    ("cases", "words"),
    [
        ([], f"node.json: {READ} is missing, {WRITE} is missing, .*, expected Passed with a bandwidth_matrix"),
        ([waived(READ)], f"node.json: {READ} is Waived, .*, expected Passed"),
        ([case(status="Error")], f"node.json: {READ} is Error, .*, expected Passed"),
        ([3, {}, case(bandwidth_matrix="N/A")], "bandwidth_matrix is 'N/A', expected a list of rows"),
        ([case(arrow="<->")], r"bandwidth_description is 'memcpy CE GPU\(row\) <-> .*, expected 'GPU\(row\) ->"),
        ([case(bandwidth_description="CPU(row) -> GPU(column) (GB/s)")], "bandwidth_description is 'CPU"),
        ([case(bandwidth_matrix=[*MATRIX[:2], ["301.5", "302.5"]])], f"{READ} row 3: has 2 cells, expected 3"),
        ([case(bandwidth_matrix=MATRIX[:2])], f"{READ} row 1: has 3 cells, expected 2 as there are rows"),
        ([case(bandwidth_matrix=changed(0, 2, "N/A"))], f"{READ} row 1 column 3: is 'N/A', expected GB/s > 0"),
        ([case(bandwidth_matrix=changed(2, 0, "-1"))], f"{READ} row 3 column 1: is '-1', expected GB/s > 0"),
        ([case(bandwidth_matrix=changed(2, 0, None))], f"{READ} row 3 column 1: is None, expected GB/s > 0"),
    ],
)
def test_wrong_report_is_refused_in_one_line(tmp_path: Path, cases: list[object], words: str) -> None:
    """The message names the file, the test, row, column and cell; a sum of both ways is not read as one."""
    with pytest.raises(DataError, match=words) as caught:
        read(tmp_path, *cases)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{}", "node.json: nvbandwidth: is None, expected the report of nvbandwidth -j"),
        ('{"nvbandwidth": {"error": "no device"}}', r"testcases: is None \(it reports 'no device'\), expected a list"),
        ("Running device_to_device", "node.json line 1: .*, expected the JSON of nvbandwidth -j"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, text: str, words: str) -> None:
    """What is not the tool's JSON is said to be so, with the tool's own error where it has one."""
    path = tmp_path / "node.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=words):
        read_nvbandwidth(path)


def test_appended_runs_are_their_mean(tmp_path: Path) -> None:
    """101.5 and 103.5 GB/s of two runs in one file are 102.5; runs that differ, or one that is cut off, are refused."""

    def appended(*runs: list[dict[str, Any]]) -> DeviceBandwidth:
        path = tmp_path / "node.json"
        texts = [json.dumps({"nvbandwidth": {"testcases": run}}, indent=2) for run in runs]
        path.write_text("\n".join(texts) + "\n", encoding="utf-8")
        return read_nvbandwidth(path)

    again = [case(bandwidth_matrix=changed(0, 1, "103.5"))]
    with pytest.warns(UserWarning, match=f"has the matrix of {READ} 2 times, within 10%: their mean is taken"):
        assert appended([case()], again).rows[0] == (0.0, 102.5, 102.5)
    with pytest.raises(DataError, match=r"from device 0 to 1 50 and 101.5 GB/s on run 2 and run 1, expected repeats"):
        appended([case()], [case(bandwidth_matrix=changed(0, 1, "50"))])
    with pytest.raises(DataError, match=f"{READ} is Waived in one run and Passed in another"):
        appended([case()], [waived(READ)])
    whole = json.dumps({"nvbandwidth": {"testcases": [case()]}})
    (tmp_path / "node.json").write_text(whole + "\n{", encoding="utf-8")
    with pytest.raises(
        DataError, match=r"node.json line 2: Expecting property name .*, expected the JSON of nvbandwid"
    ):
        read_nvbandwidth(tmp_path / "node.json")


def test_named_test_that_is_missing_is_named(tmp_path: Path) -> None:
    """A test asked for by name is not replaced by another."""
    with pytest.raises(DataError, match=r"node\.json: device_local_copy is missing, expected Passed"):
        read(tmp_path, case(), test="device_local_copy")


def test_one_device_has_no_link(tmp_path: Path) -> None:
    """A matrix of one device makes no cluster."""
    measured = read(tmp_path, case(bandwidth_matrix=[["N/A"]]))
    with pytest.raises(DataError, match="alone: has 1 devices, expected at least two"):
        cluster_from_nvbandwidth(measured, name="alone", device=catalog_devices()["a100-80gb"])
