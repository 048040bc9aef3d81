"""
Quadratic assignment on a folder of QAPLIB instances: objective, bound, gap and where the bound comes from.

Run ``python -m benchmarks.qaplib FOLDER [--time-limit S] [--out table.csv] [--largest N] [NAME ...]``. The best known
value is the cost of the permutation in NAME.sln, where there is one. The columns on the right are root gaps without an
incumbent, in per cent of the best known value, that prototypes of three bounds reached: Gilmore and Lawler, the convex
quadratic program, and Hahn and Grant with five seconds on one core.
"""

import argparse
import csv
import platform
import statistics
import sys
from pathlib import Path
from typing import Any

import taut
from taut.data.readers.qaplib import read_qaplib, read_qaplib_solution
from taut.formulations.assignment import QuadraticAssignment
from taut.solver.qap.quadratic import place

COLUMNS = ["instance", "n", "best_known", "objective", "above_%", "bound", "gap_%", "status", "source", "seconds"]
COLUMNS += ["gilmore-lawler_%", "convex_%", "hahn-grant_%"]
# Gilmore and Lawler, convex quadratic, Hahn and Grant; None where a bound was not measured or means nothing.
ROOT_GAPS: dict[str, tuple[float | None, float | None, float | None]] = {
    "nug12": (14.7, 17.1, 10.7),
    "nug20": (20.0, 12.9, 16.1),
    "nug30": (25.9, 12.9, 22.9),
    "wil50": (22.0, 5.5, 19.1),
    "had12": (7.0, 3.9, 2.3),
    "tai12a": (12.7, 11.4, 2.3),
    "tai20a": (17.5, 17.1, 12.9),
    "tai30a": (17.2, 16.7, 14.3),
    "tai40a": (20.6, 20.4, 18.5),
    "chr12a": (24.0, None, 0.2),
    "chr18a": (39.0, None, 5.3),
    "chr25a": (27.0, None, 5.3),
    "scr12": (11.0, 75.0, 6.5),
    "scr20": (21.0, 80.0, 15.0),
    "tai20b": (88.0, None, 23.8),
    "esc16a": (44.0, 32.0, 41.0),
    "esc16b": (25.0, 14.0, 13.5),
    "esc16h": (37.0, 29.0, 30.0),
    "esc128": (97.0, None, None),
}


def row(path: Path, time_limit: float, seed: int) -> list[Any]:
    """Solve one instance and set it beside what is known."""
    read = read_qaplib(path)
    problem = QuadraticAssignment(read.flow, read.distance, read.name)
    known = _best_known(problem, path.with_suffix(".sln"))
    result = place(problem, seed=seed, time_limit=time_limit)
    return [
        read.name,
        problem.size,
        "" if known is None else f"{known:.10g}",
        f"{result.objective:.10g}",
        "" if known is None else f"{100 * (result.objective - known) / max(abs(known), 1e-300):.3f}",
        f"{result.lower_bound:.10g}",
        "" if result.gap is None else f"{100 * result.gap:.2f}",
        result.status,
        result.bound_source,
        f"{result.wall_s:.2f}",
        *("" if gap is None else f"{gap:g}" for gap in ROOT_GAPS.get(read.name, (None, None, None))),
    ]


def _best_known(problem: QuadraticAssignment, path: Path) -> float | None:
    """Cost of a published permutation, which some files state the other way round; None without a file."""
    if not path.exists():
        return None
    there = read_qaplib_solution(path)
    back = tuple(sorted(range(problem.size), key=there.__getitem__))
    return min(problem.cost(there), problem.cost(back))


def _print(cells: list[Any]) -> None:
    """One aligned line."""
    widths = [8, 4, 11, 11, 8, 11, 7, 9, 17, 8, 17, 9, 13]
    print("".join(f"{cell!s:>{width}}" for cell, width in zip(cells, widths, strict=True)), flush=True)


def _summary(rows: list[list[Any]]) -> str:
    """Medians over all rows, and how many are proven or best known."""
    known = [float(cells[4]) for cells in rows if cells[4]]
    reached = sum(above <= 0 for above in known)
    gaps, seconds = [float(cells[6]) for cells in rows if cells[6]], [float(cells[9]) for cells in rows]
    proven = sum(cells[7] == "optimal" for cells in rows)
    return (
        f"median: {statistics.median(known or [0.0]):.3f} % above the best known value, gap "
        f"{statistics.median(gaps or [0.0]):.2f} %, {statistics.median(seconds):.2f} s; "
        f"proven {proven} of {len(rows)}; best known value reached on {reached} of {len(known)}"
    )


def main() -> None:
    """Print the table, and write it where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", help="instances, all by default")
    parser.add_argument("--time-limit", type=float, default=10.0, help="seconds for each instance")
    parser.add_argument("--largest", type=int, default=4096, help="skip instances of more items")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    paths = [path for path in sorted(options.folder.glob("*.dat")) if not options.names or path.stem in options.names]
    if not paths:
        raise SystemExit(f"{options.folder}: holds no .dat file of that name")
    print(f"taut {taut.__version__}, {platform.platform()}, {options.time_limit:g} s each", file=sys.stderr)
    _print(COLUMNS)
    rows = []
    for path in paths:
        if read_qaplib(path).flow.shape[0] <= options.largest:
            rows.append(row(path, options.time_limit, options.seed))
            _print(rows[-1])
    print(_summary(rows))
    if options.out:
        with options.out.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([COLUMNS, *rows])


if __name__ == "__main__":
    main()
