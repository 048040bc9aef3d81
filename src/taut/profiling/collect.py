"""
Everything that a sweep finds, as far as it came: Ctrl-C ends it and keeps the points that were done.

Figures come with their origin: the machine and software as PyTorch sees them, and the catalog's name for the device.

A table says which kernels an operator runs, in which pass, and how long they take. Forward, input-gradient and
weight-gradient pass of a slice (``taut.profiling.slices``) are worked through under PyTorch's profiler, each by itself,
``REPEATS`` times after a first that is not counted. Then

(1) operator: the outermost operator that PyTorch was asked for, or the node of the backward graph;
(2) kernel: on a GPU what the operator launched; on a CPU the ATen operators inside it, each with its own time, without
    that of the operators that it calls;
(3) calls in one pass, and mean microseconds of a call.

On a CPU the profiler itself takes about a microsecond a call.
"""

import os
import platform
import re
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, field, fields
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from taut.data.costs import CostRow, CostTable
from taut.data.device import DeviceSpec
from taut.data.units import GIB
from taut.errors import FieldError, NothingFoundError
from taut.profiling.layers import Point, Sweep, measure, optimizer_seconds, unless_out_of_memory
from taut.profiling.slices import Passes
from taut.words import csv_text

REPEATS = 3
_ENGINE = "autograd::engine::evaluate_function: "
_SILENT = "6"
"""Level above what the profiler's backend says on stderr whenever it starts or stops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRow:
    """One row of the kernel table, (1) to (3); the field names are its columns, ``phase`` the pass."""

    device: str
    kind: str
    tp: int
    micro_batch: int
    seq: int
    phase: str
    operator: str
    kernel: str
    calls: float
    mean_us: float


def kernel_rows(sweep: Sweep, point: Point) -> list[KernelRow] | None:
    """Kernels of every pass at a point, without recompute; None if they do not fit the device's memory."""
    return unless_out_of_memory(lambda: list(_kernel_rows(sweep, point)))


def kernels_csv(rows: Iterable[KernelRow], remarks: str) -> str:
    """The table as CSV text, with its provenance in ``#`` lines at the head."""
    heads = ["pass" if field.name == "phase" else field.name for field in fields(KernelRow)]
    cells = ([f"{cell:.6g}" if isinstance(cell, float) else cell for cell in astuple(row)] for row in rows)
    return "".join(f"# {line}\n" for line in remarks.splitlines()) + csv_text([heads, *cells])


def _kernel_rows(sweep: Sweep, point: Point) -> Iterator[KernelRow]:
    os.environ.setdefault("KINETO_LOG_LEVEL", _SILENT)
    passes = Passes(sweep.slice_at(point), sweep.gradient_dtype)
    for _ in passes.parted("none"):
        pass
    found: defaultdict[tuple[str, str, str], list[float]] = defaultdict(list)
    for _ in range(REPEATS):
        for phase, events in _profiled(passes.parted("none"), sweep.device):
            for operator, kernel, microseconds in _kernels(events, sweep.device):
                found[phase, operator, kernel].append(microseconds)
    for (phase, operator, kernel), times in found.items():
        yield KernelRow(
            device=sweep.gpu,
            kind=point.kind,
            tp=point.tp,
            micro_batch=point.micro_batch,
            seq=sweep.seq_of(point.kind),
            phase=phase,
            operator=operator,
            kernel=kernel,
            calls=len(times) / REPEATS,
            mean_us=sum(times) / len(times),
        )


def _profiled(passes: Iterator[str], device: torch.device) -> Iterator[tuple[str, Any]]:
    """Every pass with the profiler's events; the profiler's classes carry no types."""
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
    while True:
        with profile(activities=activities, acc_events=True) as profiler:
            phase = next(passes, None)
            if device.type == "cuda":
                torch.cuda.synchronize()
        if phase is None:
            return
        yield phase, profiler.events()


def _kernels(events: Any, device: torch.device) -> Iterator[tuple[str, str, float]]:
    """Operator, kernel and microseconds of every call, (1) and (2)."""
    for event in events:
        if device.type == "cuda":
            for kernel in event.kernels:
                yield _operator_of(event), kernel.name, float(kernel.duration)
        elif event.name.startswith("aten::") and event.self_cpu_time_total > 0:
            yield _operator_of(event), event.name, float(event.self_cpu_time_total)


def _operator_of(event: Any) -> str:
    while event.cpu_parent is not None:
        event = event.cpu_parent
    return str(event.name).removeprefix(_ENGINE)


MEMORY_TOLERANCE = 0.15
"""Share by which a device's usable memory may differ from the catalog's round figure."""


def machine(device: torch.device) -> str:
    """One line on the device and the software."""
    software = f"PyTorch {torch.__version__}, Python {platform.python_version()}"
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name()}, {software}, CUDA {torch.version.cuda}, driver {_driver()}"
    capability = torch.backends.cpu.get_cpu_capability()
    cores = f"{os.cpu_count()}-core {platform.machine()} CPU ({capability})"
    threads = torch.get_num_threads()
    gpu = "a GPU not used" if torch.cuda.is_available() else "no GPU available"
    return f"{cores}, {threads} thread{'s' if threads > 1 else ''}, {gpu}, {software}"


def today() -> str:
    """The date in UTC."""
    return datetime.now(UTC).date().isoformat()


def device_name(device: torch.device, known: Mapping[str, DeviceSpec]) -> str:
    """The catalog's name for the device at hand."""
    if device.type == "cpu":
        return "cpu"
    return guess(torch.cuda.get_device_name(), torch.cuda.get_device_properties(device).total_memory, known)


def guess(name: str, memory_bytes: int, known: Mapping[str, DeviceSpec]) -> str:
    """The catalog's device whose words stand in a device's name and whose memory comes nearest, within 15 %."""
    words = re.split(r"[^a-z0-9]+", name.lower())
    words += [first + second for first, second in pairwise(words)]
    apart = {
        device: abs(spec.memory_gib * GIB / memory_bytes - 1.0)
        for device, spec in known.items()
        if all(word in words for word in device.split("-") if not re.fullmatch(r"\d+gb", word))
    }
    nearest = min(apart, key=lambda device: apart[device], default=None)
    if nearest is None or apart[nearest] > MEMORY_TOLERANCE:
        lacks = f"missing, and {name!r} with {memory_bytes / GIB:.1f} GiB is not in the catalog"
        raise FieldError("gpu", None, f"{lacks}, expected one of {', '.join(known)}")
    return nearest


def _driver() -> str:
    """Version of NVIDIA's driver; ``unknown`` where its tool is missing."""
    ask = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        said = subprocess.run(ask, capture_output=True, text=True, timeout=10, check=True).stdout.split()
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return said[0] if said else "unknown"


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
    """Measure every point of a sweep, with its kernels if asked; ``say`` hears a line about every point."""
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
    """The rows with their provenance."""
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
