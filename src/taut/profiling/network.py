r"""
The cluster that the running machines are: its links measured pair by pair, written as a cluster file.

Links are measured by one process a device, and become a bandwidth and a latency matrix, device by device. The file
states no ``nic_bandwidth_gbps``: pairs measured at the same time have shared the network cards already.

The processes that measure together are those that a launcher such as torchrun started, or started here. They talk
through NCCL on GPUs and Gloo on CPUs. Whoever does not answer within ``TIMEOUT_S`` is given up, so that no process
outlives another for long, and processes started here end with the call. From what they say of where they run follows an
order of devices, node by node.

Links are measured between every two of them. Sets: processes :math:`i, j = 0..n-1`, one a device. Measured, on the
clock of i: :math:`T_{ij}(m)`, the median seconds from sending m bytes to j until j's short answer is back.

(1) Rounds: the circle method parts the pairs into n - 1 rounds (n where n is odd) of disjoint pairs. The pairs of a
    round are measured at the same time, all one way, then all the other. What is measured thus includes what disjoint
    pairs do to each other, as when many workers talk at once: pairs that share a network card share its rate.
(2) Latency :math:`\lambda_{ij} = \min_m T_{ij}(m) / 2` over small messages. A round trip does not tell its two halves
    apart, so :math:`\lambda_{ij}` and :math:`\lambda_{ji}` are two measurements of their mean.
(3) Bandwidth :math:`B_{ij} = \max_m m / \max(T_{ij}(m) - 2 \lambda_{ij}, T_{ij}(m) / 2)` over large messages: what a
    message takes beyond an empty round trip, each way apart. The second term keeps noise in (2) from more than
    doubling a rate.

The cost model prices a message with :math:`\lambda + m / B`, so (3) leaves out what (2) has already.
"""

import json
import logging
import os
import re
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from importlib.util import find_spec
from itertools import permutations
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from textwrap import shorten as shorten_words
from typing import TYPE_CHECKING, Any, TypeVar

from taut.data.catalog.devices import catalog_device, catalog_section
from taut.data.cluster import ClusterSpec
from taut.data.device import DeviceSpec
from taut.data.spec import shorten
from taut.data.suggest import one_of
from taut.data.units import GIGABIT, GIGABYTE, KIB, MICROSECOND
from taut.errors import DataError, FieldError

if TYPE_CHECKING:
    from torch import Tensor


Pair = tuple[int, int]

SMALL_BYTES = (8, KIB)
LARGE_BYTES = {"cpu": (2 * KIB**2, 8 * KIB**2), "cuda": (16 * KIB**2, 64 * KIB**2)}
ANSWER_BYTES = 8
SMALL_REPEATS, LARGE_REPEATS = 21, 5
SMALL_TRIPS, LARGE_TRIPS = 5, 2
"""Round trips timed in one go, so that waiting for a GPU to finish hardly counts as latency."""


def rounds(size: int) -> list[list[Pair]]:
    """Every pair of ``size`` players once, the smaller number first, in rounds of disjoint pairs (1)."""
    circle = size if size % 2 else size - 1
    schedule = []
    for turn in range(circle):
        meetings = [((turn + step) % circle, (turn - step) % circle) for step in range(1, circle // 2 + 1)]
        if circle < size:
            meetings.append((turn, circle))
        schedule.append([(min(pair), max(pair)) for pair in meetings])
    return schedule


def link_figures(seconds: Mapping[int, float]) -> tuple[float, float]:
    """Bandwidth (bytes/s) and latency (s) of one link, (3) and (2), from median round trips by bytes."""
    small = [size for size in seconds if size <= max(SMALL_BYTES)]
    empty = min(seconds[size] for size in small)
    large = seconds.keys() - small
    return max(size / max(seconds[size] - empty, seconds[size] / 2) for size in large), empty / 2


def measure_links(
    rank: int, size: int, gpu: int | None, announce: Callable[[int, int, int], None]
) -> tuple[list[float], list[float]]:
    """Bandwidth (bytes/s) and latency (s) from this process to every other, 0 to itself; all call it at once."""
    import torch
    import torch.distributed as dist

    sizes = SMALL_BYTES + LARGE_BYTES["cpu" if gpu is None else "cuda"]
    # Ones rather than zeros: untouched zero pages would all be the same page, and in cache.
    buffer = torch.ones(max(sizes) + ANSWER_BYTES, dtype=torch.uint8, device="cpu" if gpu is None else gpu)
    bandwidth, latency = [0.0] * size, [0.0] * size
    schedule = rounds(size)
    for number, pairs in enumerate(schedule, start=1):
        announce(number, len(schedule), len(pairs))
        peer = next((sum(pair) - rank for pair in pairs if rank in pair), None)
        for first_asks in (True, False):
            dist.barrier()
            if peer is not None and (rank < peer) is first_asks:
                bandwidth[peer], latency[peer] = link_figures(_ask(peer, buffer, sizes))
            elif peer is not None:
                _answer(peer, buffer, sizes)
    return bandwidth, latency


def _ask(peer: int, buffer: "Tensor", sizes: tuple[int, ...]) -> dict[int, float]:
    """Median seconds of a round trip to the peer by bytes of the message, after a trip to warm up."""
    return {size: median([_trips(peer, buffer, size, trips) for trips in _plan(size)][1:]) for size in sizes}


def _answer(peer: int, buffer: "Tensor", sizes: tuple[int, ...]) -> None:
    """The other side of ``_ask``."""
    import torch.distributed as dist

    for size in sizes:
        for _ in range(sum(_plan(size))):
            dist.recv(buffer[:size], peer)
            dist.send(buffer[-ANSWER_BYTES:], peer)


def _plan(size: int) -> list[int]:
    """Round trips to time in one go: one to warm up, then the repeats."""
    small = size <= max(SMALL_BYTES)
    return [1] + ([SMALL_TRIPS] * SMALL_REPEATS if small else [LARGE_TRIPS] * LARGE_REPEATS)


def _trips(peer: int, buffer: "Tensor", size: int, trips: int) -> float:
    """Seconds of one of so many round trips."""
    import torch
    import torch.distributed as dist

    message, answer = buffer[:size], buffer[-ANSWER_BYTES:]
    begin = time.perf_counter()
    for _ in range(trips):
        dist.send(message, peer)
        dist.recv(answer, peer)
    if buffer.is_cuda:
        torch.cuda.synchronize()
    return (time.perf_counter() - begin) / trips


@dataclass(frozen=True, slots=True)
class Seat:
    """Where a process runs: its host, and its number among how many there, -1 where the launcher does not say."""

    host: str
    local_rank: int = -1
    local_size: int = -1


def device_order(seats: Sequence[Seat], gpus_per_node: int | None = None) -> tuple[list[int], int]:
    """Processes node by node, and how many a node has: as given, as the launcher says, or by host."""
    size = len(seats)
    if gpus_per_node is not None:
        if gpus_per_node < 1 or size % gpus_per_node:
            raise FieldError("gpus_per_node", str(gpus_per_node), f"expected a divisor of the {size} processes")
        return list(range(size)), gpus_per_node
    told = all(seat.local_size > 0 and rank % seat.local_size == seat.local_rank for rank, seat in enumerate(seats))
    node_of = [rank - seat.local_rank if told else seat.host for rank, seat in enumerate(seats)]
    counts = Counter(node_of)
    if len(set(counts.values())) > 1:
        found = shorten(list(counts.values()))
        raise DataError(f"network profile: nodes have {found} processes, expected as many on each")
    place = {node: index for index, node in enumerate(counts)}
    return sorted(range(size), key=lambda rank: place[node_of[rank]]), counts[node_of[0]]


T = TypeVar("T")
Matrix = Sequence[Sequence[float]]

BACKENDS = {"cpu": "gloo", "cuda": "nccl"}
DEFAULT_PORT = 29500
"""Where torchrun lets processes meet, for launchers that set no MASTER_PORT."""
TIMEOUT_S = 60
"""Seconds after which a process that does not answer is given up."""

_SOURCE = re.compile(r"\[\S*\.cc:\d+\] ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Bandwidth (bytes/s) and latency (s), device by device, row sends to column, and what they were measured with."""

    bandwidth: Matrix
    latency: Matrix
    gpus_per_node: int
    software: str


def launched() -> bool:
    """Whether a launcher started this process among others."""
    return all(os.environ.get(variable) for variable in ("RANK", "WORLD_SIZE", "MASTER_ADDR"))


def measure_launched(device: str, gpus_per_node: int | None, quiet: bool) -> Measured | None:
    """What this process of a launcher measures together with the others; None but in process 0."""
    rank, size = _number("RANK"), _number("WORLD_SIZE")
    if size < 2:
        raise DataError(f"WORLD_SIZE={size}: expected at least 2 processes, with a link between them")
    os.environ.setdefault("MASTER_PORT", str(DEFAULT_PORT))
    if device == "cpu":
        # Gloo's errors reach the caller; NCCL's end the process, and its log is all that is left of them.
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")
    local = {"local_rank": _number("LOCAL_RANK", -1), "local_size": _number("LOCAL_WORLD_SIZE", -1)}
    try:
        measured = _measured(rank, size, "env://", Seat(socket.gethostname(), **local), device, gpus_per_node, quiet)
    except DataError:
        raise
    except (RuntimeError, ValueError) as error:
        raise DataError(_lost(f"process {rank}: {error}")) from None
    return measured if rank == 0 else None


def _number(variable: str, default: int | None = None) -> int:
    text = os.environ.get(variable, "" if default is None else str(default))
    try:
        return int(text)
    except ValueError:
        raise DataError(f"{variable}={shorten(text)}: expected a whole number, as launchers set it") from None


def _lost(reason: str) -> str:
    """The last line of what PyTorch says, without the places in its sources."""
    lines = [line for line in reason.splitlines() if line.strip()]
    said = shorten_words(_SOURCE.sub("", lines[-1]), 160, placeholder=" ...").rstrip(".")
    return f"network profile: {said}, expected every process to answer within {TIMEOUT_S} s"


def measure_started(processes: int, device: str, gpus_per_node: int | None, quiet: bool) -> Measured:
    """What as many processes, started here and ended here, measure."""
    if processes < 2:
        raise FieldError("processes", str(processes), "expected at least 2, with a link between them")
    device_order([Seat("")] * processes, gpus_per_node)
    if device == "cuda" and (expected := _too_many(processes)):
        raise FieldError("processes", str(processes), expected)
    from torch.multiprocessing.spawn import ProcessExitedException, ProcessRaisedException

    with TemporaryDirectory(prefix="taut-") as folder:
        context = _spawn(processes, device, gpus_per_node, quiet, folder)
        try:
            while not context.join():
                pass
        except (ProcessExitedException, ProcessRaisedException) as error:
            raise DataError(_lost(str(error))) from None
        finally:
            for process in context.processes:
                process.kill()
                process.join()
        return Measured(**json.loads(Path(folder, "measured.json").read_text(encoding="utf-8")))


def _spawn(processes: int, device: str, gpus_per_node: int | None, quiet: bool, folder: str) -> Any:
    """Start the processes, which leave Ctrl-C to this one: it ends them."""
    from torch.multiprocessing.spawn import spawn

    start: Callable[..., Any] = spawn
    # When one process dies the others are ended, and the error says why: no need of a line on each.
    logging.getLogger(spawn.__module__).setLevel(logging.ERROR)
    arguments = (processes, device, gpus_per_node, quiet, folder)
    with _deaf_to_interrupts():
        return start(_child, arguments, nprocs=processes, join=False, daemon=True)


def _child(rank: int, size: int, device: str, gpus_per_node: int | None, quiet: bool, folder: str) -> None:
    seat = Seat("", rank, size)
    measured = _measured(rank, size, f"file://{folder}/store", seat, device, gpus_per_node, quiet)
    if rank == 0:
        Path(folder, "measured.json").write_text(json.dumps(asdict(measured)), encoding="utf-8")


def _too_many(processes: int) -> str | None:
    """What was expected of the number of processes, where there are fewer GPUs."""
    import torch

    most = torch.cuda.device_count()
    return f"expected at most {most}, as many as this machine has GPUs" if processes > most else None


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Nothing started inside the block hears Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _measured(
    rank: int, size: int, store: str, seat: Seat, device: str, gpus_per_node: int | None, quiet: bool
) -> Measured:
    """Join the others, measure, and gather what all have measured, devices node by node."""
    import torch

    gpu = None if device == "cpu" else _own_gpu(rank, seat)
    with _no_stdout(), _group(rank, size, store, gpu):
        order, per_node = device_order(_gathered(seat, size), gpus_per_node)
        rows = _gathered(measure_links(rank, size, gpu, _announcer(quiet or rank > 0)), size)
    return Measured(
        bandwidth=[[rows[i][0][j] for j in order] for i in order],
        latency=[[rows[i][1][j] for j in order] for i in order],
        gpus_per_node=per_node,
        software=f"{BACKENDS[device]}, torch {torch.__version__}",
    )


def _own_gpu(rank: int, seat: Seat) -> int:
    """Number of this process's GPU, which becomes its current one."""
    import torch

    # NCCL, told its GPU at once, keeps to one communicator; that its messages then take turns is as wanted.
    os.environ.setdefault("TORCH_NCCL_SHOW_EAGER_INIT_P2P_SERIALIZATION_WARNING", "false")
    seen = torch.cuda.device_count()
    gpu = seat.local_rank if seat.local_rank >= 0 else rank % max(seen, 1)
    if seen == 1 and os.environ.get("CUDA_VISIBLE_DEVICES"):
        gpu = 0  # The launcher shows every process its own.
    if expected := _too_many(gpu + 1):
        raise DataError(f"process {rank}, number {gpu} of its host: {expected}")
    torch.cuda.set_device(gpu)
    return gpu


@contextmanager
def _group(rank: int, size: int, store: str, gpu: int | None) -> Iterator[None]:
    """Process group of all; after a failure it is not left in order, as that could wait for the dead."""
    import torch
    import torch.distributed as dist

    dist.init_process_group(
        "gloo" if gpu is None else "nccl",
        init_method=store,
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=TIMEOUT_S),
        device_id=None if gpu is None else torch.device("cuda", gpu),
    )
    yield
    dist.destroy_process_group()


def _gathered(own: T, size: int) -> list[T]:
    """What every process has, in their order."""
    import torch.distributed as dist

    every: list[T] = [own] * size
    dist.all_gather_object(every, own)
    return every


@contextmanager
def _no_stdout() -> Iterator[None]:
    """Whatever libraries print to stdout inside the block is lost: results alone belong there."""
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def _announcer(quiet: bool) -> Callable[[int, int, int], None]:
    """Prints a line on stderr before every round, or nothing."""
    begin = time.monotonic()

    def announce(number: int, rounds: int, pairs: int) -> None:
        if not quiet:
            elapsed = time.monotonic() - begin
            print(f"{elapsed:7.1f}s  round {number} of {rounds}  pairs {pairs}", file=sys.stderr, flush=True)

    return announce


def profile_network(
    *, out: Path, device: str, gpu: str, processes: int, gpus_per_node: int | None, name: str, quiet: bool
) -> None:
    """Measure every link and write a cluster file, in all processes of a launcher, or in ones that are started here."""
    if gpu not in catalog_section("devices"):
        raise FieldError("gpu", gpu, f"expected {one_of(gpu, catalog_section('devices'))}")
    spec = catalog_device(gpu)
    if device not in BACKENDS:
        raise FieldError("device", device, f"expected {one_of(device, BACKENDS)}")
    if os.environ.get("RANK", "0") == "0" and not out.parent.is_dir():
        raise DataError(f"{out}: cannot be written (no such folder), expected a writable file name")
    if find_spec("torch") is None:
        raise DataError("torch: not installed, expected it for measuring (pip install 'taut[learn]')")
    if launched():
        measured = measure_launched(device, gpus_per_node, quiet)
    else:
        measured = measure_started(processes, device, gpus_per_node, quiet)
    if measured is not None:
        _write(measured, spec, out, name or out.stem, quiet)


def _write(measured: Measured, device: DeviceSpec, out: Path, name: str, quiet: bool) -> None:
    from taut.files import write_atomically
    from taut.reports.catalog import cluster_yaml

    cluster = cluster_from_matrices(
        measured.bandwidth,
        measured.latency,
        gpus_per_node=measured.gpus_per_node,
        name=name,
        device=device,
        source=f"measured pair by pair with {measured.software}, row sends to column; disjoint pairs at the same time",
    )
    write_atomically(out, cluster_yaml(cluster))
    if not quiet:
        print(f"{out}: {cluster.num_nodes} nodes, {cluster.num_devices} devices", file=sys.stderr)


def cluster_from_matrices(
    bandwidth: Matrix, latency: Matrix, *, gpus_per_node: int, name: str, device: DeviceSpec, source: str
) -> ClusterSpec:
    """Cluster of equal nodes from bytes per second and seconds (n, n), row sends to column, in five digits."""
    size = len(bandwidth)
    if size < 2 or gpus_per_node < 1 or size % gpus_per_node:
        raise DataError(f"{name}: has {size} devices, expected two or more that fill nodes of {gpus_per_node}")
    rates, waits = _scaled(bandwidth, GIGABYTE), _scaled(latency, MICROSECOND)
    pairs = list(permutations(range(size), 2))
    between = [(i, j) for i, j in pairs if i // gpus_per_node != j // gpus_per_node]
    inside = [(i, j) for i, j in pairs if i // gpus_per_node == j // gpus_per_node] or pairs
    values = {
        "name": name,
        "nodes": [
            {
                "count": size // gpus_per_node,
                "device": device,
                "gpus_per_node": gpus_per_node,
                "intra_bandwidth_gbps": _gbps(rates, inside),
                "intra_latency_us": max(waits[i][j] for i, j in inside),
            }
        ],
        "bandwidth_matrix": {"unit": "GB/s", "rows": rates},
        "latency_matrix": {"rows_us": waits},
        "source": source,
    }
    if between:
        longest = max(waits[i][j] for i, j in between)
        values["network"] = {"bandwidth_gbps": _gbps(rates, between), "latency_us": longest}
    return ClusterSpec.parse(values, name)


def _scaled(matrix: Matrix, unit: float) -> list[list[float]]:
    return [
        [0.0 if i == j else float(f"{entry / unit:.5g}") for j, entry in enumerate(row)] for i, row in enumerate(matrix)
    ]


def _gbps(rates: Matrix, pairs: Sequence[tuple[int, int]]) -> float:
    """Gb/s of the slowest link."""
    return float(f"{min(rates[i][j] for i, j in pairs) * GIGABYTE / GIGABIT:.5g}")
