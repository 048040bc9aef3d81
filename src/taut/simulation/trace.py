"""
A simulated step in the trace format of Chrome and Perfetto: a process a device, a thread a stream, a slice a task.

Times are microseconds. Tasks of no duration are left out; memory is a counter of its device. Open the file at
https://ui.perfetto.dev or in ``chrome://tracing``.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from taut.data.units import GIB, MICROSECOND
from taut.errors import DataError
from taut.files import write_atomically
from taut.formulations.simulation.operators import STREAMS

if TYPE_CHECKING:
    from taut.simulation.meshes import MeshSimulation
    from taut.simulation.result import Simulation

MOST_SLICES = 2_000_000
"""Slices of a trace: about 300 MB of JSON, as much as the viewers read."""


def write_trace(found: "Simulation | MeshSimulation", path: str | Path) -> None:
    """
    Write a trace, whole or not at all.

    ``path``: A ``.json`` file. Raises ``DataError`` if the step has more than ``MOST_SLICES`` tasks, or the file cannot
    be written.
    """
    if found.tasks > MOST_SLICES:
        raise DataError(f"{path}: {found.tasks} tasks, expected at most {MOST_SLICES} for a trace")
    lines = ",\n".join(json.dumps(event) for event in found.trace_events())
    write_atomically(Path(path), f'{{"displayTimeUnit": "ms", "traceEvents": [\n{lines}\n]}}\n')


def trace_events(found: "Simulation") -> Iterator[dict[str, Any]]:
    """Events of a trace as plain values."""
    graph, devices = found.graph, found.graph.devices
    for device in range(devices):
        yield named("process_name", device, 0, found.device_name(device))
        yield {**named("process_sort_index", device, 0, ""), "args": {"sort_index": device}}
        yield from (named("thread_name", device, k, name) for k, name in enumerate(STREAMS))
    yield named("process_name", devices, 0, "whole job")
    for task in np.flatnonzero(graph.seconds > 0).tolist():
        device, stream = divmod(int(graph.stream[task]), len(STREAMS))
        yield {
            "name": graph.name(task),
            "cat": found.kinds[task],
            "ph": "X",
            "ts": float(found.start[task]) / MICROSECOND,
            "dur": float(graph.seconds[task]) / MICROSECOND,
            "pid": device,
            "tid": stream,
        }
    for rank, (moment, held) in enumerate(found.memory):
        for second, size in zip((moment / MICROSECOND).tolist(), (held / GIB).tolist(), strict=True):
            yield {"name": "memory (GiB)", "ph": "C", "ts": second, "pid": rank, "tid": 0, "args": {"held": size}}


def named(kind: str, device: int, thread: int, name: str) -> dict[str, Any]:
    """The name of a process or thread."""
    return {"name": kind, "ph": "M", "pid": device, "tid": thread, "args": {"name": name}}
