"""
Pipeline schedules beside published ones: makespan, span, memory and scheduling time, and passes evaluated a second.

``python -m benchmarks.schedules FOLDER`` reads the tables of a folder of simulated published schedules:
``adaptive_V_pareto.csv`` (the authors' search over V-shaped blocks, best per memory limit), ``baseline_all.csv`` (fixed
and automatic schedules) and ``baseline_zb_bytes_model.csv`` (ZB's automatic schedule where gradients by the input free
part of the memory). Ours is the best schedule on the same placement in the same memory. ``--stages`` and ``--every``
take part of the rows. Without a folder only our own speed is measured.
"""

import argparse
import csv
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Ints
from taut.formulations.schedules.recurrence import execute
from taut.formulations.schedules.schedule import (
    ScheduleProblem,
    round_robin,
    sequential,
    timetable,
    v_shape,
    violations,
)
from taut.solver.schedules.kinds import KINDS, build, fastest_kind

HEADER = f"{'published':26} {'p x m':>8} {'times':>10} {'memory':>8} {'makespan':>12} {'ours':>12} {'longer':>8} "
HEADER += f"{'span':>12} {'ours':>12} {'kind':>16} {'s':>6} {'ours':>6}"


class Row(NamedTuple):
    """A published schedule and the pipeline that it is for, limited to its memory."""

    method: str
    times: str
    problem: ScheduleProblem
    makespan: float
    span: float
    seconds: float


def even(
    device: Ints, m: int, seconds: tuple[float, float, float, float], limit: float, kept: float = 1.0
) -> ScheduleProblem:
    """Equal chunks: seconds of F, I, W and of a transfer; one memory unit each, of which ``kept`` stays for W."""
    n = len(device)
    f, b, w, c = seconds
    return ScheduleProblem(
        device=device,
        forward=np.full(n, f),
        input_gradient=np.full(n, b),
        weight_gradient=np.full(n, w),
        transfer=np.full(n - 1, c),
        num_micro_batches=m,
        activation=np.ones(n),
        kept_for_weight=np.full(n, kept),
        memory_limit=np.full(int(device.max()) + 1, float(limit)),
    )


def table(path: Path) -> Iterator[dict[str, str]]:
    """Rows without an error; none if the file is absent."""
    if path.exists():
        with path.open(encoding="utf-8", newline="") as lines:
            yield from (row for row in csv.DictReader(lines) if not row.get("err"))


def adaptive(folder: Path) -> Iterator[Row]:
    """The authors' search over V-shaped blocks."""
    for row in table(folder / "adaptive_V_pareto.csv"):
        seconds = (float(row["f"]), float(row["b"]), float(row["w"]), float(row["c(chunk_costs)"]))
        problem = even(v_shape(int(row["p"])), int(row["m"]), seconds, float(row["peak_chunks"]))
        best, span = float(row["best_makespan"]), float(row["best_span"])
        yield Row("adaptive V", row["triple"], problem, best, span, float(row["search_s"]))


def baselines(folder: Path) -> Iterator[Row]:
    """Fixed and automatic schedules with unit memory."""
    for row in table(folder / "baseline_all.csv"):
        p, v = int(row["p"]), int(row["v"])
        device = v_shape(p) if row["placement"] == "V" else round_robin(p, v)
        f, b, w = (float(row[key]) / v for key in "fbw")
        limit = v * max(float(peak) for peak in row["peak_per_device_unit"].split())
        problem = even(device, int(row["m"]), (f, b, w, float(row["c"])), limit)
        spent = float(row["sched_time_s"])
        yield Row(row["method"], row["triple"], problem, float(row["makespan"]), float(row["span"]), spent)


def bytes_model(folder: Path) -> Iterator[Row]:
    """ZB's automatic schedule; of an activation I leaves all, 32h of 34h + 5as, or 32h of 34h."""
    hidden, heads, sequence = 6144, 48, 1024
    kept = {
        "unit": 1.0,
        "bytes_noflash": 32 * hidden / (34 * hidden + 5 * heads * sequence),
        "bytes_flash": 32 / 34,
    }
    for row in table(folder / "baseline_zb_bytes_model.csv"):
        p = int(row["p"])
        seconds = (float(row["f_us"]), float(row["b_us"]), float(row["w_us"]), float(row["c_us"]))
        limit = float(row["peak_bytes_rel1f1b"]) * p * (1 + 1e-5)
        problem = even(sequential(p), int(row["m"]), seconds, limit, kept[row["mem_model"]])
        method = f"ZB-auto {row['limit_p']}p {row['mem_model']}"
        spent = float(row["sched_time_s"])
        yield Row(method, row["triple"], problem, float(row["makespan"]), float(row["span"]), spent)


def compare(rows: list[Row]) -> None:
    """Print our best schedule beside every published one, and how often it is shorter or longer."""
    print(HEADER)
    longer = shorter = 0
    for row in rows:
        begin = time.perf_counter()
        schedule = fastest_kind(row.problem)
        spent = time.perf_counter() - begin
        assert violations(row.problem, schedule) == ()
        ours = timetable(row.problem, schedule)
        change = ours.makespan / row.makespan - 1
        longer += change > 1e-6
        shorter += change < -1e-6
        size = f"{row.problem.num_devices}x{row.problem.num_micro_batches}"
        print(
            f"{row.method:26} {size:>8} {row.times:>10} {row.problem.memory_limit[0]:8.3f} {row.makespan:12.3f} "
            f"{ours.makespan:12.3f} {100 * change:7.2f}% {row.span:12.3f} {ours.span:12.3f} {schedule.kind:>16} "
            f"{row.seconds:6.2f} {spent:6.2f}",
            flush=True,
        )
    print(f"{len(rows)} rows: shorter {shorter}, equal {len(rows) - shorter - longer}, longer {longer}")


def placement(kind: str, p: int) -> Ints:
    """A device map that a kind is defined for."""
    if kind in ("1f1b", "zb-h1", "zb-h2", "zb-auto", "gpipe"):
        return sequential(p)
    return round_robin(p, 2) if kind == "interleaved-1f1b" else v_shape(p)


def speed() -> None:
    """Print the scheduling time of every kind at 32 stages and 128 micro-batches, and passes evaluated a second."""
    seconds = (5.21, 5.1, 3.86, 0.41)
    for kind in KINDS:
        problem = even(placement(kind, 32), 128, seconds, np.inf if kind != "blocks" else 24.0)
        build(kind, even(placement(kind, 2), 4, seconds, np.inf))  # Loads the compiled loops.
        begin = time.perf_counter()
        schedule = build(kind, problem)
        spent = time.perf_counter() - begin
        found = timetable(problem, schedule)
        print(f"{kind:18} 32x128 {spent:6.2f} s  bubble {100 * found.bubble:6.2f} %  peak {found.peak_memory.max():g}")
    for p, m in ((8, 32), (32, 128)):
        problem = even(v_shape(p), m, seconds, np.inf)
        schedule = build("v-half", problem)
        passes, first = schedule.flat
        start, end = np.zeros(len(passes)), np.zeros(len(passes))
        count = 2_000_000 // len(passes)
        begin = time.perf_counter()
        for _ in range(count):
            execute(passes, first, problem.seconds, problem.transfer, m, start, end)
        middle = time.perf_counter()
        for _ in range(count):
            timetable(problem, schedule)
        done = time.perf_counter()
        rate, whole = (count * len(passes) / spent / 1e6 for spent in (middle - begin, done - middle))
        print(f"{p}x{m}: {rate:.0f} million passes a second, {whole:.0f} with checks and peaks")


def main() -> None:
    """Compare with the tables of a folder, then measure our speed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="folder of the published tables")
    parser.add_argument("--stages", type=int, help="rows of so many stages alone")
    parser.add_argument("--every", type=int, default=1, help="one row in so many")
    arguments = parser.parse_args()
    if arguments.folder:
        rows = [*adaptive(arguments.folder), *baselines(arguments.folder), *bytes_model(arguments.folder)]
        rows = [row for row in rows if arguments.stages in (None, row.problem.num_devices)]
        compare(rows[:: arguments.every])
    speed()


if __name__ == "__main__":
    main()
