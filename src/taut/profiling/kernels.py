r"""
Which kernels an operator runs, in which pass, and how long they take.

Forward, input-gradient and weight-gradient pass of a slice (``taut.profiling.passes``) are worked through under
PyTorch's profiler, each by itself, ``REPEATS`` times after a first that is not counted. Then

(1) operator: the outermost operator that PyTorch was asked for, or the node of the backward graph;
(2) kernel: on a GPU what the operator launched; on a CPU the ATen operators inside it, each with its own time, without
    that of the operators that it calls;
(3) calls in one pass, and mean microseconds of a call.

On a CPU the profiler itself takes about a microsecond a call.
"""

import csv
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, fields
from io import StringIO
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from taut.profiling.layers import Point, Sweep, unless_out_of_memory
from taut.profiling.passes import Passes

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
    return unless_out_of_memory(lambda: list(_rows(sweep, point)))


def kernels_csv(rows: Iterable[KernelRow], remarks: str) -> str:
    """The table as CSV text, with its provenance in ``#`` lines at the head."""
    out = StringIO()
    out.write("".join(f"# {line}\n" for line in remarks.splitlines()))
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow("pass" if field.name == "phase" else field.name for field in fields(KernelRow))
    for row in rows:
        writer.writerow(f"{cell:.6g}" if isinstance(cell, float) else cell for cell in astuple(row))
    return out.getvalue()


def _rows(sweep: Sweep, point: Point) -> Iterator[KernelRow]:
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
                yield _operator(event), kernel.name, float(kernel.duration)
        elif event.name.startswith("aten::") and event.self_cpu_time_total > 0:
            yield _operator(event), event.name, float(event.self_cpu_time_total)


def _operator(event: Any) -> str:
    while event.cpu_parent is not None:
        event = event.cpu_parent
    return str(event.name).removeprefix(_ENGINE)
