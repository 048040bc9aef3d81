"""
Measured bandwidth between the devices of one node, from nvbandwidth's JSON (``nvbandwidth -j``) or its text.

Everything stands under the key ``nvbandwidth``; a test case that ran has ``status`` Passed and a
``bandwidth_matrix`` in GB/s whose cells are strings, with "N/A" where nothing was measured. A test that did not run
may stand there without a matrix, and the name of a test may stand twice.

The text has, of every test that ran, a line with the description, a line of columns, and a row for each device; a line
``Waiving NAME.`` names a test that did not run, as those between devices without peer access.

The direction is the one that the test's description states: after ``GPU(row) -> GPU(column)`` the row sends to the
column, after ``GPU(row) <- GPU(column)`` the matrix is turned over. The diagonal is ignored.

Of a test that ran several times, on one node or on nodes alike, the mean is taken if all cells agree within ``NOISE``.
Reports of several runs may follow one another in a file.
"""

import math
import re
import warnings
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

from taut.data.cluster import ClusterSpec, one_node
from taut.data.device import DeviceSpec
from taut.data.read import lines_by_host, number_or_nan, read_json_objects, read_text
from taut.data.readers.nccl_tests import NOISE
from taut.data.spec import shorten
from taut.errors import DataError

EXPECTED = "the JSON of nvbandwidth -j or its text"
_WAIVED = re.compile(r"\s*Waiving (\w+)")
_WAIVED_HERE = re.compile(r"\s*Waived:")
"""What newer versions print beneath the name of a test."""
_RUNNING = re.compile(r"\s*Running (\w+)")
_SUM = re.compile(r"\s*SUM (\w+)")
PREFERRED = tuple(f"device_to_device_memcpy_{way}_{engine}" for engine in ("ce", "sm") for way in ("read", "write"))
"""Tests that are looked for, in this order, when none is named: copy engine before kernel, read before write."""

SENDS, RECEIVES = "GPU(row) -> GPU(column)", "GPU(row) <- GPU(column)"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceBandwidth:
    """The test that was read and its matrix of GB/s, row sends to column, the diagonal 0."""

    test: str
    rows: tuple[tuple[float, ...], ...]


def read_nvbandwidth(path: Path, test: str = "") -> DeviceBandwidth:
    """GB/s from row to column of one test, by default the first of ``PREFERRED`` that passed."""
    text = read_text(path, EXPECTED)
    is_json = text.lstrip().startswith("{")
    cases = (
        _cases(path)
        if is_json
        else [case for host, log in lines_by_host(text).items() for case in _cases_text(log, host)]
    )
    if not (cases or is_json):
        raise DataError(
            f"{path} line 1: has no matrix between devices, expected the JSON of nvbandwidth -j or its text"
        )
    name, chosen = _chosen(cases, test, path)
    return DeviceBandwidth(test=name, rows=_mean([_matrix(case, path) for case in chosen], chosen, path))


def _matrix(case: dict[str, Any], path: Path) -> tuple[tuple[float, ...], ...]:
    """GB/s from row to column of a test."""
    where = f"{path}: {case['name']}"
    words = str(case.get("bandwidth_description", ""))
    if "(GB/s)" not in words or not (SENDS in words or RECEIVES in words):
        raise DataError(f"{where}: bandwidth_description is {shorten(words)}, expected '{SENDS} bandwidth (GB/s)'")
    rows = _rows(case["bandwidth_matrix"], where)
    return rows if SENDS in words else tuple(zip(*rows, strict=True))


def _mean(
    matrices: list[tuple[tuple[float, ...], ...]], cases: list[dict[str, Any]], path: Path
) -> tuple[tuple[float, ...], ...]:
    """The mean of matrices alike; ``DataError`` where a cell of two differs by more than noise."""
    if len(matrices) == 1:
        return matrices[0]
    said = f"{path}: has the matrix of {cases[0]['name']} {len(matrices)} times"
    if len(sizes := {len(matrix) for matrix in matrices}) > 1:
        raise DataError(f"{said}, of {shorten(sorted(sizes))} devices, expected repeats of one run")
    for i, j in product(range(len(matrices[0])), repeat=2):
        cells = [(matrix[i][j], str(case.get("host", ""))) for matrix, case in zip(matrices, cases, strict=True)]
        (low, one), (high, other) = min(cells), max(cells)
        if low < (1 - NOISE) * high:
            on = f" on {one} and {other}" if one or other else ""
            raise DataError(
                f"{said}, from device {i} to {j} {low:g} and {high:g} GB/s{on}, expected repeats within {NOISE:.0%}"
            )
    warnings.warn(f"{said}, within {NOISE:.0%}: their mean is taken", UserWarning, stacklevel=3)
    return tuple(tuple(map(fmean, zip(*rows, strict=True))) for rows in zip(*matrices, strict=True))


def _cases(path: Path) -> list[dict[str, Any]]:
    """All test cases that have a name, of every run."""
    found, runs = list[dict[str, Any]](), read_json_objects(path, "the JSON of nvbandwidth -j")
    for number, run in enumerate(runs, start=1):
        report, of = run.get("nvbandwidth"), f" of run {number}" if len(runs) > 1 else ""
        if not isinstance(report, dict):
            raise DataError(f"{path}: nvbandwidth{of}: is {shorten(report)}, expected the report of nvbandwidth -j")
        cases = report.get("testcases")
        if not isinstance(cases, list):
            said = f" (it reports {shorten(report['error'])})" if "error" in report else ""
            expected = "expected a list of test cases"
            raise DataError(f"{path}: nvbandwidth.testcases{of}: is {shorten(cases)}{said}, {expected}")
        own = {"host": f"run {number}"} if of else {}
        found += [case | own for case in cases if isinstance(case, dict) and isinstance(case.get("name"), str)]
    return found


def _cases_text(lines: list[tuple[int, str]], host: str) -> list[dict[str, Any]]:
    """Test cases of a host's text, as the JSON has them."""
    cases: list[dict[str, Any]] = []
    running, description, rows = "", "", list[list[str]]()
    for _, line in lines:
        words = line.split()
        if waived := _WAIVED.match(line):
            cases.append({"name": waived[1], "status": "Waived", "host": host})
        elif running and _WAIVED_HERE.match(line):
            cases.append({"name": running, "status": "Waived", "host": host})
        elif match := _RUNNING.match(line):
            running, description, rows = match[1], "", []
        elif "bandwidth (GB/s)" in line:
            description, rows = line.strip(), []
        elif description and len(words) > 1 and words[0].isdigit() and not all(word.isdigit() for word in words):
            rows.append(words[1:])
        elif rows and (total := _SUM.match(line)):
            name = running or total[1]
            own = {"bandwidth_description": description, "bandwidth_matrix": rows}
            cases.append({"name": name, "status": "Passed", "host": host, **own})
            running, description, rows = "", "", []
    return cases


def _chosen(cases: list[dict[str, Any]], test: str, path: Path) -> tuple[str, list[dict[str, Any]]]:
    """The test that is read, and its runs."""
    wanted = (test,) if test else PREFERRED
    for name in wanted:
        passed = [case for case in cases if case["name"] == name and case.get("status") == "Passed"]
        found_in = [case for case in passed if "bandwidth_matrix" in case]
        if found_in and any("host" in case for case in cases if (case["name"], case.get("status")) == (name, "Waived")):
            raise DataError(f"{path}: {name} is Waived in one run and Passed in another, expected runs on nodes alike")
        if found_in:
            return name, found_in
    waived = [case["name"] for case in cases if case.get("status") == "Waived" and case["name"] in wanted]
    if waived:
        raise DataError(
            f"{path}: {waived[0]} is Waived, as there is no peer access between these devices, expected Passed with a "
            "bandwidth_matrix; their traffic goes through the host"
        )
    states = {case["name"]: str(case.get("status")) for case in cases}
    found = ", ".join(f"{name} is {states.get(name, 'missing')}" for name in wanted)
    raise DataError(f"{path}: {found}, expected Passed with a bandwidth_matrix")


def _rows(matrix: object, where: str) -> tuple[tuple[float, ...], ...]:
    if not isinstance(matrix, list) or not all(isinstance(row, list) for row in matrix):
        raise DataError(f"{where}: bandwidth_matrix is {shorten(matrix)}, expected a list of rows")
    for number, row in enumerate(matrix, start=1):
        if len(row) != len(matrix):
            raise DataError(f"{where} row {number}: has {len(row)} cells, expected {len(matrix)} as there are rows")
    return tuple(tuple(_cell(cell, i, j, where) for j, cell in enumerate(row, 1)) for i, row in enumerate(matrix, 1))


def _cell(cell: object, row: int, column: int, where: str) -> float:
    if row == column:
        return 0.0
    value = number_or_nan(cell)
    if not (math.isfinite(value) and value > 0):
        raise DataError(f"{where} row {row} column {column}: is {shorten(cell)}, expected GB/s > 0")
    return value


def cluster_from_nvbandwidth(
    measured: DeviceBandwidth, *, name: str, device: DeviceSpec, intra_latency_us: float = 3.0
) -> ClusterSpec:
    """One node with the measured device-by-device matrix; ``DataError`` if a figure is out of range."""
    source = f"nvbandwidth {measured.test}, row sends to column; latency stated"
    return one_node(measured.rows, "GB/s", name=name, device=device, intra_latency_us=intra_latency_us, source=source)
