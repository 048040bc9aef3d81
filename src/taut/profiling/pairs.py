r"""
What the links between running processes carry, measured between every two of them.

Sets: processes :math:`i, j = 0..n-1`, one a device. Measured, on the clock of i: :math:`T_{ij}(m)`, the median seconds
from sending m bytes to j until j's short answer is back.

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

import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import TYPE_CHECKING

from taut.data.units import KIB

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
    """
    Every pair of ``size`` players once, in rounds of disjoint pairs (1).

    The last of an even number of players stays where it is while the others move around a circle; with an odd number
    its place is empty, and whoever would meet it rests.

    ``size``: number of players, at least 2. Returns the rounds; of each pair the smaller number first.
    """
    circle = size if size % 2 else size - 1
    schedule = []
    for turn in range(circle):
        meetings = [((turn + step) % circle, (turn - step) % circle) for step in range(1, circle // 2 + 1)]
        if circle < size:
            meetings.append((turn, circle))
        schedule.append([(min(pair), max(pair)) for pair in meetings])
    return schedule


def link_figures(seconds: Mapping[int, float]) -> tuple[float, float]:
    """
    Bandwidth (bytes/s) and latency (s) of one link, eqs (3) and (2).

    ``seconds``: median round trip by bytes of the message. Messages of at most ``max(SMALL_BYTES)`` bytes are small;
    there must be a small and a large one.
    """
    small = [size for size in seconds if size <= max(SMALL_BYTES)]
    empty = min(seconds[size] for size in small)
    large = seconds.keys() - small
    return max(size / max(seconds[size] - empty, seconds[size] / 2) for size in large), empty / 2


def measure_links(
    rank: int, size: int, gpu: int | None, announce: Callable[[int, int, int], None]
) -> tuple[list[float], list[float]]:
    """
    Bandwidth (bytes/s) and latency (s) from this process to every other, 0 to itself.

    All processes of the default process group call this at the same time.

    ``rank``, ``size``: this process and how many there are; ``gpu``: number of this process's GPU; None on CPUs;
    ``announce``: called before every round with its number, how many there are and the pairs in it.
    """
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
