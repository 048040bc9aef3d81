r"""
The sweep: layer costs of a model over tensor degrees and micro-batches, as rows of a cost table.

For every layer kind, the embedding and the head, every tensor degree :math:`t` that can split it and every micro-batch:

(1) forward, input-gradient and weight-gradient seconds without recompute, and for layers with full recompute, each
    measured (``taut.profiling.slices``). There are no rows for selective recompute: the fused attention core keeps no
    scores, so there is nothing that it could give up, and the planner takes the rows without recompute for it;
(2) activation bytes measured without recompute; under full recompute the layer's input; with sequence parallelism
    derived, :math:`\lceil outside / t \rceil + inside`; tokens of the embedding are not divided;
(3) peak bytes, on a GPU alone: the most that the allocator gave out over the repeats, beyond what it had given out
    before, with weights, summed gradients, inputs and everything temporary. On a CPU PyTorch does not count.

What does not fit the device's memory is left out.

The optimizer's price is its seconds for one parameter. A step does, on all parameters of one layer: (4) gradients to
fp32 where they are kept in another type; (5) fused Adam on fp32 weights with two fp32 moments; (6) the weights back to
the number format of the training, if that is another. The figure is the median step divided by the number of
parameters; on a GPU a small layer has launches in it that a larger model's step would spread.

Passes are timed by repeats. A repeat is an iterator that works up to the end
of a pass whenever it is asked for the next one. With marks :math:`m_0, m_1, ...` set before the first pass and after
each,

(7) seconds of pass k = :math:`m_k - m_{k-1}`; on a GPU the marks are events in the stream and are read once the repeat
    is over, so that the processor can run ahead of the device as it does in training;
(8) a figure is the median of the repeats after the warm-up, its spread
    (third quartile - first quartile) / median.

A further table says which kernels an operator runs, in which pass, and how long they take. Forward, input-gradient and
weight-gradient pass of a slice are worked through under PyTorch's profiler, each by itself, ``REPEATS`` times after a
first that is not counted. Then

(9) operator: the outermost operator that PyTorch was asked for, or the node of the backward graph;
(10) kernel: on a GPU what the operator launched; on a CPU the ATen operators inside it, each with its own time, without
    that of the operators that it calls;
(11) calls in one pass, and mean microseconds of a call.

On a CPU the profiler itself takes about a microsecond a call. Figures come with their origin: the machine and software
as PyTorch sees them, and the catalog's name for the device. Ctrl-C ends a sweep and keeps the points that were done.
"""

import gc
import os
import platform
import re
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from taut.data.costs import CostRow, CostTable, Recompute
from taut.data.device import DeviceSpec, Precision
from taut.data.layers.layer import EMBEDDING, HEAD
from taut.data.memory import PARAMETER_BYTES
from taut.data.model import ModelSpec
from taut.data.units import GIB
from taut.errors import FieldError, NothingFoundError
from taut.profiling.slices import Passes, Slice, kept_bytes, slice_of
from taut.words import csv_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Median seconds of every pass, and the largest relative distance between quartiles (None for one repeat)."""

    seconds: tuple[float, ...]
    spread: float | None


def time_passes(repeat: Callable[[], Iterator[object]], device: torch.device, *, warm_up: int, repeats: int) -> Timing:
    """Time every pass of a repeat on a device, after ``warm_up`` repeats that do not count."""
    laps = _cuda_laps if device.type == "cuda" else _cpu_laps
    for _ in range(warm_up):
        laps(repeat())
    seconds = np.array([laps(repeat()) for _ in range(repeats)])
    first, middle, third = np.percentile(seconds, [25, 50, 75], axis=0)
    spread = float(np.max((third - first) / np.maximum(middle, np.finfo(float).tiny))) if repeats > 1 else None
    return Timing(seconds=tuple(float(median) for median in middle), spread=spread)


def _cpu_laps(passes: Iterator[object]) -> list[float]:
    marks = [time.perf_counter()]
    marks.extend(time.perf_counter() for _ in passes)
    return [after - before for before, after in pairwise(marks)]


def _cuda_laps(passes: Iterator[object]) -> list[float]:
    marks = [_cuda_mark()]
    marks.extend(_cuda_mark() for _ in passes)
    torch.cuda.synchronize()
    return [before.elapsed_time(after) * 1e-3 for before, after in pairwise(marks)]


def _cuda_mark() -> torch.cuda.Event:
    mark = torch.cuda.Event(enable_timing=True)
    mark.record()
    return mark


def adam_seconds_per_parameter(module: nn.Module, gradient_dtype: torch.dtype, *, warm_up: int, repeats: int) -> float:
    """Seconds of Adam for one parameter of a layer, whose weights change, with gradients kept in a number format."""
    weights = list(module.parameters())
    gradients = [torch.randn_like(weight, dtype=gradient_dtype) for weight in weights]
    masters = [nn.Parameter(weight.detach().float()) for weight in weights]
    adam = torch.optim.Adam(masters, fused=True)

    def step() -> Iterator[None]:
        with torch.no_grad():
            for master, gradient in zip(masters, gradients, strict=True):
                master.grad = gradient.float()
            adam.step()
            for weight, master in zip(weights, masters, strict=True):
                if weight.dtype != master.dtype:
                    weight.copy_(master)
        yield

    timing = time_passes(step, weights[0].device, warm_up=warm_up, repeats=repeats)
    return timing.seconds[0] / sum(weight.numel() for weight in weights)


DTYPES: dict[Precision, torch.dtype] = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
Found = TypeVar("Found")


class Point(NamedTuple):
    """What is measured at once: one layer kind, ``embedding`` or ``head``, at one tensor degree and micro-batch."""

    kind: str
    tp: int
    micro_batch: int

    def __str__(self) -> str:
        return f"{self.kind} tp={self.tp} micro_batch={self.micro_batch}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """What is measured: ``gpu`` as the rows name it, ``device`` where, degrees that can split every layer."""

    model: ModelSpec
    gpu: str
    device: torch.device
    precision: Precision
    tensor_degrees: Sequence[int]
    micro_batches: Sequence[int]
    warm_up: int
    repeats: int

    @property
    def points(self) -> list[Point]:
        """Every point, small micro-batches first."""
        kinds = [*self.model.kinds, *((EMBEDDING, HEAD) if self.model.vocab else ())]
        return [Point(k, tp, batch) for tp in self.tensor_degrees for batch in self.micro_batches for k in kinds]

    @property
    def gradient_dtype(self) -> torch.dtype:
        """Number format in which gradients are summed over micro-batches."""
        return torch.float32 if PARAMETER_BYTES[self.precision].gradient == 4 else DTYPES[self.precision]

    def slice_at(self, point: Point) -> Slice:
        """The slice at a point, on the device."""
        return slice_of(self.model, *point, device=self.device, dtype=DTYPES[self.precision])

    def seq_of(self, kind: str) -> int:
        """Tokens of a sequence in a layer kind."""
        edges = {EMBEDDING: self.model.blocks[0], HEAD: self.model.blocks[-1]}
        return (edges.get(kind) or self.model.kinds[kind]).seq


def measure(sweep: Sweep, point: Point) -> list[CostRow] | None:
    """Rows of the cost table at a point, (1) to (3); None if they do not fit the device's memory."""
    return unless_out_of_memory(lambda: _rows(sweep, point))


def optimizer_seconds(sweep: Sweep) -> float | None:
    """Optimizer seconds for one parameter, on the first layer at the least tensor degree; None if it does not fit."""
    point = Point(sweep.model.blocks[0].kind, min(sweep.tensor_degrees), 1)

    def found() -> float:
        module = sweep.slice_at(point).module
        return adam_seconds_per_parameter(module, sweep.gradient_dtype, warm_up=sweep.warm_up, repeats=sweep.repeats)

    return unless_out_of_memory(found)


def unless_out_of_memory(work: Callable[[], Found]) -> Found | None:
    """What the work yields, or None if the device's memory did not suffice."""
    free()
    try:
        return work()
    except RuntimeError as error:
        if not (isinstance(error, torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error)):
            raise
    # Out here nothing refers to the failed attempt any more, so that its memory can go back.
    free()
    return None


def free() -> None:
    """Give the memory of slices that are done with back: they and their hooks refer to each other."""
    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def _rows(sweep: Sweep, point: Point) -> list[CostRow]:
    before = torch.cuda.memory_allocated() if sweep.device.type == "cuda" else 0
    piece = sweep.slice_at(point)
    recomputes: tuple[Recompute, ...] = ("none",) if point.kind in (EMBEDDING, HEAD) else ("none", "full")
    kept = {recompute: _kept(piece, point, recompute) for recompute in recomputes}
    passes = Passes(piece, sweep.gradient_dtype)
    found = []
    for recompute in recomputes:
        _forget_peak(sweep.device)
        timing = time_passes(
            partial(passes.repeat, recompute), sweep.device, warm_up=sweep.warm_up, repeats=sweep.repeats
        )
        peak = torch.cuda.max_memory_allocated() - before if sweep.device.type == "cuda" else None
        found.append(_row(sweep, point, recompute, timing, kept[recompute], peak))
    return found


def _kept(piece: Slice, point: Point, recompute: str) -> tuple[int, int]:
    """Activation bytes without and with sequence parallelism, (2)."""
    if recompute == "full":
        kept = piece.inputs.untyped_storage().nbytes()
        return kept, -(-kept // point.tp)
    outside, inside = kept_bytes(piece)
    shards = 1 if point.kind == EMBEDDING else point.tp
    return outside + inside, -(-outside // shards) + inside


def _row(
    sweep: Sweep, point: Point, recompute: Recompute, timing: Timing, kept: tuple[int, int], peak: int | None
) -> CostRow:
    forward, backward, _, input_grad, weight_grad = timing.seconds
    share = input_grad / (input_grad + weight_grad)
    return CostRow(
        device=sweep.gpu,
        kind=point.kind,
        tp=point.tp,
        micro_batch=point.micro_batch,
        seq=sweep.seq_of(point.kind),
        recompute=recompute,
        forward_s=forward,
        input_grad_s=share * backward,
        weight_grad_s=(1.0 - share) * backward,
        activation_bytes=kept[0],
        activation_bytes_sp=kept[1],
        peak_bytes=peak,
        spread=timing.spread,
    )


def _forget_peak(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()


REPEATS = 3
_ENGINE = "autograd::engine::evaluate_function: "
_SILENT = "6"
"""Level above what the profiler's backend says on stderr whenever it starts or stops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRow:
    """One row of the kernel table, (9) to (11); the field names are its columns, ``phase`` the pass."""

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
    """Operator, kernel and microseconds of every call, (9) and (10)."""
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
