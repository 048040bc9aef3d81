"""
The processes that measure together, one a device: those that a launcher such as torchrun started, or started here.

They talk through NCCL on GPUs and Gloo on CPUs. Whoever does not answer within ``TIMEOUT_S`` is given up, so that no
process outlives another for long, and processes started here end with the call.
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import shorten as shorten_words
from typing import Any, TypeVar

from taut.data.spec import shorten
from taut.errors import DataError, FieldError
from taut.profiling.pairs import measure_links
from taut.profiling.seats import Seat, device_order

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
    """
    What this process of a launcher measures together with the others.

    ``device``, ``gpus_per_node``, ``quiet``: as of ``taut.profiling.network.profile_network``. Returns None but in
    process 0. Raises ``DataError`` if the launcher's numbers are wrong, nodes are unequal, or another process does not
    answer.
    """
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
    """
    What as many processes, started here and ended here, measure.

    ``device``, ``gpus_per_node``, ``quiet``: as of ``taut.profiling.network.profile_network``. Raises ``DataError`` if
    there are fewer than two, more than GPUs, they do not fill nodes, or one dies.
    """
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
