r"""
Laying out the tasks of all passes, compiled: templates copied along the orders of the devices.

Data: passes of the pipeline's devices (``taut.formulations.schedules.recurrence``), a template of tasks
(``taut.formulations.simulation.passes``) for every replica, kind of pass and chunk.

(1) Tasks lie device after device, in the order in which the device starts them.
(2) The first tasks of a pass wait for the end of the pass before on the device, and for the message of the chunk before
    (F), or after (I and B), where that lies on another device. A message also waits for the one before it on its
    stream.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from taut.data.arrays import Floats, Ints
from taut.formulations.compiled import jit
from taut.formulations.schedules.recurrence import FORWARD, WEIGHT_GRADIENT

Narrow = NDArray[np.signedinteger]
"""Whole numbers of fewer bytes: a large graph is read as fast as memory gives it."""


class Templates(NamedTuple):
    """
    Templates one after another; ``first`` is the row of each, and ``of`` (replicas, 4, chunks) the template of a pass.

    ``last`` and ``send`` are places within a template, -1 for none; ``after`` (rows, 2) likewise, -2 for the start.
    """

    of: Ints
    first: Ints
    last: Ints
    send: Ints
    after: Ints
    seconds: Floats
    kind: Ints
    part: Ints
    layer: Ints
    stream: Ints


class Laid(NamedTuple):
    """
    Tasks of all passes, (1), and the pairs of which the second waits for the first, by the second.

    ``row`` (replicas, passes + 1) is the first task of every pass; ``start_of`` and ``before`` the dependencies.
    """

    seconds: Floats
    stream: Narrow
    kind: Narrow
    part: Narrow
    layer: Narrow
    chunk: Narrow
    micro_batch: Narrow
    row: Ints
    first_dependency: Ints
    dependency: Narrow


@jit
def lay_out(
    passes: Ints, first: Ints, device: Ints, templates: Templates, num_micro_batches: int, streams: int
) -> Laid:
    """
    Copy the template of every pass, (1), and connect them, (2).

    ``passes``, ``first``: kind, chunk and micro-batch of every pass (n, 3), and the row of each device's first one;
    ``device``: device of every chunk (C,); ``templates``: tasks of every kind of pass; ``num_micro_batches``:
    micro-batches m; ``streams``: streams of a device.
    """
    replicas, chunks, devices = templates.of.shape[0], len(device), len(first) - 1
    row, sent, tasks = _rows(passes, templates, num_micro_batches)
    seconds, layer = np.zeros(tasks), np.zeros(tasks, np.int16)
    stream, micro_batch = np.zeros(tasks, np.int32), np.zeros(tasks, np.int32)
    kind, part, chunk = np.zeros(tasks, np.int8), np.zeros(tasks, np.int8), np.full(tasks, -1, np.int16)
    first_dependency, dependency = np.zeros(tasks + 1, np.int64), np.zeros(4 * tasks + 4, np.int32)
    last_sent = np.zeros(streams, np.int64)
    edges = 0
    for z in range(replicas):
        for d in range(devices):
            before, base = -1, (z * devices + d) * streams
            last_sent[:] = -1
            for r in range(first[d], first[d + 1]):
                way, c, i = passes[r, 0], passes[r, 1], passes[r, 2]
                made = templates.of[z, way, c]
                start, at = templates.first[made], row[z, r]
                message = -1
                if way == FORWARD:
                    if c > 0 and device[c - 1] != d:
                        message = sent[z, 0, c - 1, i]
                elif way != WEIGHT_GRADIENT and c < chunks - 1 and device[c + 1] != d:
                    message = sent[z, 1, c + 1, i]
                for k in range(templates.first[made + 1] - start):
                    u, of = at + k, start + k
                    seconds[u], kind[u], part[u] = templates.seconds[of], templates.kind[of], templates.part[of]
                    layer[u], chunk[u], micro_batch[u] = templates.layer[of], c, i
                    lane = templates.stream[of]
                    stream[u] = base + lane
                    first_dependency[u] = edges
                    for side in range(2):
                        place = templates.after[of, side]
                        if place >= 0:
                            dependency[edges] = at + place
                            edges += 1
                        elif place == -2:
                            if before >= 0:
                                dependency[edges] = before
                                edges += 1
                            if message >= 0:
                                dependency[edges] = message
                                edges += 1
                    if k == templates.send[made]:
                        if last_sent[lane] >= 0:
                            dependency[edges] = last_sent[lane]
                            edges += 1
                        last_sent[lane] = u
                before = at + templates.last[made]
    first_dependency[tasks] = edges
    return Laid(
        seconds, stream, kind, part, layer, chunk, micro_batch, row, first_dependency, dependency[:edges].copy()
    )


@jit
def _rows(passes: Ints, templates: Templates, num_micro_batches: int) -> tuple[Ints, Ints, int]:
    """First task of every pass, the task that sends the result of every forward and backward pass, and all tasks."""
    replicas, _, chunks = templates.of.shape
    row, at = np.zeros((replicas, len(passes) + 1), np.int64), 0
    sent = np.full((replicas, 2, chunks, num_micro_batches), -1, np.int64)
    for z in range(replicas):
        for r in range(len(passes)):
            way, c, i = passes[r, 0], passes[r, 1], passes[r, 2]
            made = templates.of[z, way, c]
            row[z, r] = at
            if templates.send[made] >= 0:
                sent[z, 0 if way == FORWARD else 1, c, i] = at + templates.send[made]
            at += templates.first[made + 1] - templates.first[made]
        row[z, len(passes)] = at
    return row, sent, at


@jit
def children(first_dependency: Ints, dependency: Narrow) -> tuple[Ints, Narrow]:
    """Tasks that wait for each: the row of each one's first, and the tasks; the dependencies turned round."""
    tasks = len(first_dependency) - 1
    first = np.zeros(tasks + 1, np.int64)
    for e in range(len(dependency)):
        first[dependency[e] + 1] += 1
    for u in range(tasks):
        first[u + 1] += first[u]
    at, child = first[:-1].copy(), np.zeros(len(dependency), np.int32)
    for v in range(tasks):
        for e in range(first_dependency[v], first_dependency[v + 1]):
            u = dependency[e]
            child[at[u]] = v
            at[u] += 1
    return first, child
