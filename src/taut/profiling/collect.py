"""Everything that a sweep finds, as far as it came: Ctrl-C ends it and keeps the points that were done."""

from collections.abc import Callable
from dataclasses import dataclass, field

from taut.data.costs import CostRow, CostTable
from taut.errors import NothingFoundError
from taut.profiling.kernels import KernelRow, kernel_rows
from taut.profiling.layers import Point, Sweep, measure, optimizer_seconds
from taut.profiling.origin import machine, today


@dataclass(slots=True, kw_only=True)
class Collected:
    """Rows of the two tables, optimizer seconds for one parameter, points that did not fit, and how far it came."""

    rows: list[CostRow] = field(default_factory=list)
    kernels: list[KernelRow] = field(default_factory=list)
    optimizer: float | None = None
    left_out: list[Point] = field(default_factory=list)
    done: int = 0
    interrupted: bool = False


def collect(sweep: Sweep, *, kernels: bool, say: Callable[[str], None]) -> Collected:
    """
    Measure every point of a sweep.

    ``sweep``: what is to be measured; ``kernels``: whether to record kernels too; ``say``: called with a line about
    every point.
    """
    found, points = Collected(), sweep.points
    try:
        say("optimizer")
        found.optimizer = optimizer_seconds(sweep)
        for number, point in enumerate(points, start=1):
            say(f"{number}/{len(points)} {point}")
            _add(found, sweep, point, kernels)
            found.done = number
    except KeyboardInterrupt:
        found.interrupted = True
    return found


def _add(found: Collected, sweep: Sweep, point: Point, kernels: bool) -> None:
    rows = measure(sweep, point)
    table = kernel_rows(sweep, point) if kernels and rows is not None else []
    if rows is None or table is None:
        found.left_out.append(point)
    found.rows.extend(rows or [])
    found.kernels.extend(table or [])


def cost_table(sweep: Sweep, found: Collected) -> CostTable:
    """
    The rows with their provenance.

    Raises ``NothingFoundError`` if nothing was measured.
    """
    if not found.rows:
        too_large = "nothing fits the device's memory, expected a smaller --micro-batch or a larger --tp"
        raise NothingFoundError(f"no row: {'interrupted before the first' if found.interrupted else too_large}")
    return CostTable(
        name=sweep.model.name,
        basis="\n".join(remarks(sweep, found)),
        rows=found.rows,
        optimizer_s_per_parameter={} if found.optimizer is None else {sweep.gpu: found.optimizer},
    )


def remarks(sweep: Sweep, found: Collected) -> list[str]:
    """What a reader of the tables must know, a line each."""
    said = [
        f"{sweep.model.name}, measured by taut profile on {today()}: {machine(sweep.device)}.",
        f"{sweep.precision}; medians of {sweep.repeats} repeats after {sweep.warm_up} to warm up.",
        "One tensor rank's slice by itself: no communication, dropout or position encodings.",
    ]
    if found.optimizer is not None:
        said.append("Optimizer: fused Adam on one layer's parameters.")
    if found.left_out:
        said.append(f"Left out for want of memory: {', '.join(map(str, found.left_out))}.")
    if found.interrupted:
        said.append(f"Interrupted after {found.done} of {len(sweep.points)} points.")
    return said
