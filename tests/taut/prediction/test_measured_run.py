"""Runs as rows of steps and as logs of Megatron-LM."""

from pathlib import Path

import pytest

from taut.data.units import MIB
from taut.errors import DataError
from taut.reports.sensitivity import MeasuredRun, read_run


def logged(iteration: int, milliseconds: float) -> str:
    """A line of a log."""
    return (
        f" iteration {iteration:8d}/     100 | elapsed time per iteration (ms): {milliseconds} | learning rate: 1E-04 |"
    )


def weighed(rank: int, allocated: float, reserved: str = "") -> str:
    """A rank's line of memory."""
    return f"[Rank {rank}] (after 1 iterations) memory (MB) | allocated: 100.0 | max allocated: {allocated}{reserved}"


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_log_of_megatron(tmp_path: Path) -> None:
    """Milliseconds of every line, and the most that any rank reserved; the warm-up does not move the median."""
    memory = [weighed(0, 300.0, " | max reserved: 512.0"), weighed(4, 310.0, " | max reserved: 500.0")]
    lines = [logged(1, 21000.5), *memory, logged(2, 6500.0), logged(3, 6600.0)]
    found = read_run(written(tmp_path, "run.log", "\n".join(lines)))
    assert found == MeasuredRun((21.0005, 6.5, 6.6), 512.0 * MIB)
    assert found.seconds == 6.6


def test_log_without_reserved_memory(tmp_path: Path) -> None:
    """What was allocated stands for what was reserved where that is not printed; without either, memory is unknown."""
    lines = [logged(1, 6500.0), weighed(0, 300.0), weighed(4, 310.0)]
    assert read_run(written(tmp_path, "a.log", "\n".join(lines))).memory_bytes == 310.0 * MIB
    assert read_run(written(tmp_path, "b.log", lines[0])).memory_bytes is None


def test_rows_of_steps(tmp_path: Path) -> None:
    """A CSV has a row a step; memory may be left out of some."""
    path = written(tmp_path, "run.csv", "step,measured_s,measured_bytes\n1,3.0,\n2,2.0,5e9\n3,2.5,4e9\n")
    assert read_run(path) == MeasuredRun((3.0, 2.0, 2.5), 5e9)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.csv", "seconds\n1\n", "a.csv: column measured_s is missing"),
        (
            "a.csv",
            "measured_s,measured_byte\n1,2\n",
            "column 'measured_byte' is unknown, expected one of step, measured_s, measured_bytes",
        ),
        ("a.csv", "measured_s\n1\nnan\n", "a.csv row 2: measured_s is 'nan', expected a number above 0"),
        ("a.csv", "step,measured_s\n1,\n", "a.csv row 1: measured_s is '', expected a number above 0"),
        ("a.csv", "measured_s,measured_bytes\n1,-2\n", "a.csv row 1: measured_bytes is '-2'"),
        ("a.csv", "measured_s\n", "a.csv: holds no measured step, expected a CSV file"),
        ("a.log", "nothing of use\n", "a.log: holds no measured step"),
        ("a.log", "elapsed time per iteration (ms): 0.0 |\n", "a.log line 1: elapsed time per iteration is '0.0'"),
    ],
)
def test_wrong_runs(name: str, text: str, words: str, tmp_path: Path) -> None:
    """What holds no steps, or what is no number above 0, is refused with its place."""
    with pytest.raises(DataError) as caught:
        read_run(written(tmp_path, name, text))
    assert words in str(caught.value)
