r"""
Seconds of the passes of a repeat, and what many repeats say together.

A repeat is an iterator that works up to the end of a pass whenever it is asked for the next one. With marks
:math:`m_0, m_1, ...` set before the first pass and after each,

(1) seconds of pass k = :math:`m_k - m_{k-1}`; on a GPU the marks are events in the stream and are read once the repeat
    is over, so that the processor can run ahead of the device as it does in training;
(2) a figure is the median of the repeats after the warm-up, its spread
    (third quartile - first quartile) / median.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Median seconds of every pass, and the largest relative distance between quartiles (None for one repeat)."""

    seconds: tuple[float, ...]
    spread: float | None


def time_passes(repeat: Callable[[], Iterator[object]], device: torch.device, *, warm_up: int, repeats: int) -> Timing:
    """
    Time every pass of a repeat.

    ``repeat``: begins a repeat; every repeat has the same passes; ``device``: where the work is done; ``warm_up``,
    ``repeats``: repeats that are not counted, and those that are (at least 1).
    """
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
