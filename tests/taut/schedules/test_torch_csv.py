"""PyTorch's CSV of a schedule: text, fused passes, reading, and complaints."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from taut.errors import DataError
from taut.formulations.schedules.schedule import timetable, violations
from taut.schedules.reading import fused, read_torch_csv, torch_csv
from tests.support.pipelines import SPLIT, WHOLE, placed, schedule


def test_text_is_that_of_pytorch() -> None:
    """One row a device, stage, letter and micro-batch a cell."""
    text = torch_csv(placed().problem, schedule(WHOLE))
    assert text == "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"


def test_only_gradients_that_nobody_awaits_are_fused() -> None:
    """
    No device needs the gradient of chunk 0, so its halves become one.

    Device 0 starts I of micro-batch 0 at 4, as soon as that of device 1, which ends at 3.5, has come; one B there would
    end at 4.5 and cost a second.
    """
    text = torch_csv(placed().problem, schedule(SPLIT))
    assert text == "0F0,0F1,0B0,0B1\n1F0,1I0,1W0,1F1,1I1,1W1\n"


def test_gradients_awaited_late_are_fused() -> None:
    """Device 0 runs both W before the second I, at 6 or later: the gradient may leave device 1 a second later."""
    problem = placed().problem
    orders = (SPLIT[0], [SPLIT[1][at] for at in (0, 3, 1, 2, 4, 5)])
    # Device 1: F 1.5-3.5, I 3.5-4.5, W 4.5-5.5, I 5.5-6.5, W 6.5-7.5; device 0: I 5-6, W 6-7, I 7-8, W 8-9.
    before = schedule(orders)
    after = fused(problem, before)
    assert timetable(problem, before).makespan == timetable(problem, after).makespan == 9
    assert violations(problem, after) == ()
    assert [order[:, 0].tolist() for order in after.orders] == [[0, 0, 3, 3], [0, 0, 1, 2, 1, 2]]
    slow = replace(problem, weight_gradient=np.array([3.0, 0.5]))
    # Device 1: I 3.5-4.5, W to 5, I 5-6, W to 6.5; device 0: I 5-6, W to 9, I 9: W ends 2 before it is awaited.
    assert [order[:, 0].tolist() for order in fused(slow, before).orders] == [[0, 0, 3, 3], [0, 0, 1, 2, 3]]


@pytest.mark.parametrize("orders", [WHOLE, (WHOLE[0], SPLIT[1])])
def test_what_is_written_is_read(orders: tuple[list[tuple[int, int, int]], ...], tmp_path: Path) -> None:
    """Orders without anything to fuse come back as they were."""
    path = tmp_path / "s.csv"
    path.write_text(torch_csv(placed().problem, schedule(orders)), encoding="utf-8")
    for ours, theirs in zip(read_torch_csv(path).orders, orders, strict=True):
        assert ours.tolist() == [list(passed) for passed in theirs]


def test_idle_cells_pairs_and_communication_are_read(tmp_path: Path) -> None:
    """Empty cells are idle, a pair runs one after the other, and what is sent follows from the passes."""
    path = tmp_path / "s.csv"
    path.write_text("0UNSHARD,0F0,,0SEND_F0, 0RECV_B0\n,(3F1;4B0)OVERLAP_F_B,4REDUCE_GRAD\n", encoding="utf-8")
    first, second = read_torch_csv(path).orders
    assert first.tolist() == [[0, 0, 0]]
    assert second.tolist() == [[0, 3, 1], [3, 4, 0]]


@pytest.mark.parametrize("cell", ["0X1", "F0", "0F", "-1F0", "0F0 0F1", "(0F0;1B0)", "0F99999999999999999999", "0f0"])
def test_cells_that_are_no_pass_are_refused(cell: str, tmp_path: Path) -> None:
    """The message names file, row and cell."""
    path = tmp_path / "s.csv"
    path.write_text(f"0F0\n{cell}\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"s\.csv row 2: cell '.*, expected <stage>F, I, W or B<micro-batch>"):
        read_torch_csv(path)


def test_empty_files_are_refused(tmp_path: Path) -> None:
    """No row is no schedule."""
    path = tmp_path / "s.csv"
    path.write_text("", encoding="utf-8")
    with pytest.raises(DataError, match="is empty"):
        read_torch_csv(path)
