"""Tests of the QAPLIB reader."""

import csv
import os
from pathlib import Path

import numpy as np
import pytest

from taut.data.readers.qaplib import qaplib_text, read_qaplib, read_qaplib_solution
from taut.errors import DataError
from taut.formulations.assignment import QuadraticAssignment

FILES = Path(os.environ.get("TAUT_SHARED_DATA", "absent")) / "qaplib"


def _file(folder: Path, text: str, name: str = "some.dat") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_reads_two_matrices_in_their_order(tmp_path: Path) -> None:
    """The first matrix is the flow, the second the distance, and lines may break anywhere."""
    read = read_qaplib(_file(tmp_path, "2\n\n0 1 2\n3\t4 5\n\n6 -7", "tiny.dat"))
    assert read.name == "tiny"
    assert read.flow.tolist() == [[0.0, 1.0], [2.0, 3.0]]
    assert read.distance.tolist() == [[4.0, 5.0], [6.0, -7.0]]
    assert read.flow.dtype == read.distance.dtype == np.float64
    assert read.integral


def test_notes_entries_that_are_not_integers(tmp_path: Path) -> None:
    """One broken number makes the instance not integral; 2.0 and 1e1 are integers."""
    assert not read_qaplib(_file(tmp_path, "1 2 0.5")).integral
    assert read_qaplib(_file(tmp_path, "1 2.0 1e1")).integral


def test_matrices_cannot_be_changed(tmp_path: Path) -> None:
    """What was read stays what was read."""
    read = read_qaplib(_file(tmp_path, "1 2 3"))
    with pytest.raises(ValueError, match="read-only"):
        read.flow[0, 0] = 1.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty, expected n"),
        (" \n\n", "is empty, expected n"),
        ("0", "line 1: n is 0, expected an integer from 1 to 4096"),
        ("-2 1", "line 1: n is -2, expected"),
        ("1.5 1 1", "line 1: n is 1.5, expected"),
        ("4097", "line 1: n is 4097, expected"),
        ("two", "line 1: 'two', expected a finite number"),
        ("1\n2\nx", "line 3: 'x', expected a finite number"),
        ("1\n2 nan", "line 2: 'nan', expected a finite number"),
        ("1\n-inf 2", "line 2: '-inf', expected a finite number"),
        ("1\n1e999 2", "line 2: '1e999', expected a finite number"),
        ("1\n1_0 2", "line 2: '1_0', expected a finite number"),
        ("1\n1,2", "line 2: '1,2', expected a finite number"),
        # Two matrices 2 x 2 hold 8 numbers.
        ("2 1 2 3 4 5 6 7", "7 numbers after n, expected 8 (two 2 x 2 matrices)"),
        ("2 1 2 3 4 5 6 7 8 9", "9 numbers after n, expected 8 (two 2 x 2 matrices)"),
        ("3", "0 numbers after n, expected 18 (two 3 x 3 matrices)"),
    ],
)
def test_refuses_wrong_instances_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    """The error names the file and what is wrong in one line."""
    path = _file(tmp_path, text)
    with pytest.raises(DataError) as error:
        read_qaplib(path)
    assert message in str(error.value)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_refuses_what_cannot_be_read(tmp_path: Path) -> None:
    """A missing file, a folder and bytes that are no text are each one clear error."""
    (tmp_path / "bytes.dat").write_bytes(b"\xff\xfe\x00\x81")
    for path, message in [
        (tmp_path / "absent.dat", "cannot be read"),
        (tmp_path, "cannot be read"),
        (tmp_path / "bytes.dat", "is not UTF-8 text, expected a QAPLIB file"),
    ]:
        with pytest.raises(DataError, match=message):
            read_qaplib(path)


@pytest.mark.parametrize("text", ["3 14\n2 3 1\n", "3 14\n2,3,1", "3\n14.5\n2,\n3 1"])
def test_reads_solutions_from_zero(tmp_path: Path, text: str) -> None:
    """QAPLIB counts from one, we count from zero, and commas separate like blanks."""
    assert read_qaplib_solution(_file(tmp_path, text, "some.sln")) == (1, 2, 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("2 5 1", "2 numbers after n, expected 3 (a cost and a permutation of 2)"),
        ("2 5 1 2 2", "4 numbers after n, expected 3"),
        ("2 cost 1 2", "line 1: 'cost', expected a finite number"),
        ("2 5\n1 1", "line 2: 1, expected each of 1, ..., 2 once"),
        ("2 5\n0 1", "line 2: 0, expected each of 1, ..., 2 once"),
        ("2 5\n1 3", "line 2: 3, expected each of 1, ..., 2 once"),
        ("2 5\n1.5 2", "line 2: 1.5, expected each of 1, ..., 2 once"),
    ],
)
def test_refuses_wrong_solutions(tmp_path: Path, text: str, message: str) -> None:
    """A solution that is not a permutation is refused with its line."""
    with pytest.raises(DataError) as error:
        read_qaplib_solution(_file(tmp_path, text, "some.sln"))
    assert message in str(error.value)


@pytest.mark.skipif(not FILES.is_dir(), reason="TAUT_SHARED_DATA holds no qaplib folder")
def test_published_solutions_cost_what_is_published() -> None:
    """Every solution that QAPLIB publishes costs its published value under our orientation of the matrices."""
    with (FILES / "qaplib.csv").open(encoding="utf-8", newline="") as table:
        rows = [row for row in csv.DictReader(table) if row["perm_verified"] == "1"]
    for row in rows:
        instance = read_qaplib(FILES / f"{row['name']}.dat")
        problem = QuadraticAssignment(instance.flow, instance.distance, instance.name)
        permutation = read_qaplib_solution(FILES / f"{row['name']}.sln")
        assert problem.cost(permutation) == float(row["best_known"]), row["name"]
        assert problem.integral and instance.integral


def test_text_of_an_instance_is_read_as_it_was(tmp_path: Path) -> None:
    """Figures of any size come back to the last digit."""
    rng = np.random.default_rng(0)
    flow, distance = 10.0 ** rng.uniform(-12, 12, (2, 5, 5))
    path = tmp_path / "made.dat"
    path.write_text(qaplib_text(flow, distance))
    found = read_qaplib(path)
    assert np.array_equal(found.flow, flow)
    assert np.array_equal(found.distance, distance)
