"""
Schedules as the CSV of ``torch.distributed.pipelining``, written and read.

One row per device, its cells the passes in execution order: ``<stage><letter><micro-batch>``, where PyTorch's stage is
our chunk. An empty cell is idle; ``(3F1;4B0)OVERLAP_F_B`` is a pair that PyTorch may overlap, read as one after the
other. Cells of communication are skipped on reading: what is sent follows from the passes. PyTorch takes the device of
every stage from the rows themselves, so any map can be written.

Where W follows its own I on a device, and the gradient is awaited no earlier than the end of W, both are written as
one B: PyTorch runs it faster than its halves, and no pass starts later than before, (3) of
``taut.formulations.schedules.schedule``.
"""

import csv
import re
from collections.abc import Iterable
from io import StringIO
from pathlib import Path

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.data.read import read_text
from taut.data.spec import shorten
from taut.errors import DataError
from taut.formulations.schedules.pipeline import ScheduleProblem
from taut.formulations.schedules.schedule import BACKWARD, INPUT_GRADIENT, LETTERS, WEIGHT_GRADIENT, Schedule, timetable

_PASS = re.compile(r"(\d+)([FIWB])(\d+)")
_OVERLAP = re.compile(r"\(([^()]*)\)OVERLAP_F_B")
_COMMUNICATION = re.compile(r"\d+(UNSHARD|RESHARD|REDUCE_GRAD|SEND_F|RECV_F|SEND_B|RECV_B)\d*")


def torch_csv(problem: ScheduleProblem, schedule: Schedule) -> str:
    """
    Text that PyTorch's runtime loads in its format ``compute_only``.

    ``problem``: the pipeline, whose times decide where I and W become one B.
    """
    return orders_csv(fused(problem, schedule).orders)


def orders_csv(orders: Iterable[Ints]) -> str:
    """
    The same text of passes as they are.

    ``orders``: for each device kind of pass, chunk and micro-batch (n, 3), in execution order.
    """
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for order in orders:
        writer.writerow(f"{chunk}{LETTERS[kind]}{i}" for kind, chunk, i in order.tolist())
    return text.getvalue()


def fused(problem: ScheduleProblem, schedule: Schedule) -> Schedule:
    """
    Make one B of every I that its own W follows, unless its gradient is awaited before the end of W.

    Returns orders in which no pass starts later and no device holds more.
    """
    times = timetable(problem, schedule)
    awaited = _awaited(problem, schedule, times.start)
    orders = zip(schedule.orders, times.end, strict=True)
    return Schedule(schedule.kind, tuple(_fused_order(order, end, awaited) for order, end in orders))


def _awaited(problem: ScheduleProblem, schedule: Schedule, starts: tuple[Floats, ...]) -> Floats:
    """When the gradient of chunk and micro-batch must have left its device (chunks, m); infinite before chunk 0."""
    needed = np.full((problem.num_chunks, problem.num_micro_batches), np.inf)
    for order, start in zip(schedule.orders, starts, strict=True):
        takes = ((order[:, 0] == INPUT_GRADIENT) | (order[:, 0] == BACKWARD)) & (order[:, 1] < problem.num_chunks - 1)
        _, chunk, i = order[takes].T
        needed[chunk + 1, i] = start[takes] - problem.transfer[chunk]
    return needed


def _fused_order(order: Ints, end: Floats, awaited: Floats) -> Ints:
    kind, chunk, i = order.T
    pairs = (
        (kind[:-1] == INPUT_GRADIENT) & (kind[1:] == WEIGHT_GRADIENT) & (order[:-1, 1:] == order[1:, 1:]).all(axis=1)
    )
    pairs &= end[1:] <= awaited[chunk[:-1], i[:-1]]
    joined = order.copy()
    joined[:-1][pairs, 0] = BACKWARD
    return joined[np.concatenate(([True], ~pairs))]


def read_torch_csv(path: Path) -> Schedule:
    """
    Read the orders of a CSV that PyTorch or ``torch_csv`` wrote.

    ``path``: CSV file, one row per device. Returns kind ``torch-csv``; whether it suits a pipeline is not checked.
    Raises ``DataError`` if the file cannot be read or a cell is no pass: row, cell and what was expected.
    """
    rows = csv.reader(StringIO(read_text(path, "a CSV file of passes, one row for each device")))
    try:
        orders = tuple(_read_row(f"{path} row {number}", row) for number, row in enumerate(rows, 1))
    except csv.Error as error:
        raise DataError(f"{path}: {error}, expected a CSV file of passes") from None
    if not orders:
        raise DataError(f"{path}: is empty, expected one row for each device")
    return Schedule("torch-csv", orders)


def _read_row(source: str, row: list[str]) -> Ints:
    cells = [part.strip() for cell in row for part in _OVERLAP.sub(r"\1", cell.strip()).split(";")]
    passes = [_read_cell(source, cell) for cell in cells if cell and not _COMMUNICATION.fullmatch(cell)]
    return np.array(passes, dtype=np.int64).reshape(-1, 3)


def _read_cell(source: str, cell: str) -> tuple[int, int, int]:
    found = _PASS.fullmatch(cell)
    if found is None or max(len(found[1]), len(found[3])) > 9:
        raise DataError(f"{source}: cell {shorten(cell)}, expected <stage>F, I, W or B<micro-batch>, such as 3F0")
    return LETTERS.index(found[2]), int(found[1]), int(found[3])
