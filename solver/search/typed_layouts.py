r"""
Layouts of devices of several types: which worker is where, one type of device next to the other.

Sets: stages x = 0..pp-1, replicas d = 0..dp-1, blocks of devices in rank order, types of device.

(1) By stage: blocks of one type in a row before, between or after the stages of the others, which stand in any order: a
    slow type goes well where neither embedding nor head is.
(2) By replica: the F blocks of one type are the first or the last F / R stages of R replicas, for every R that divides
    F, and all else is on the other types. The other dp - R replicas then never cross between types, and where links
    between types are slow few pipelines wait for them. Blocks go to a replica's stages in runs of s, so that a node of
    g blocks holds s stages of g / s replicas: long runs save hops between nodes, short ones share its cards in rings.
    One s holds for the stages on the one type, another for all else.
"""

from collections.abc import Iterator
from itertools import chain, islice, permutations, product
from typing import NamedTuple

import numpy as np

from taut.data.arrays import Ints
from taut.formulations.degrees import divisors
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate

BY_STAGE, BY_REPLICA = 36, 128
"""Layouts that are tried: all by stage of two types on 17 stages; by replica few divisions, some milliseconds each."""


def layouts(problem: PlanningProblem, candidate: Candidate) -> Iterator[Ints]:
    """Devices of all workers (pp, dp, block) by (1) and by (2), each layout once."""
    seen: set[bytes] = set()
    by_stage = islice(_by_stage(problem, candidate), BY_STAGE)
    for devices in chain(by_stage, islice(_by_replica(problem, candidate), BY_REPLICA)):
        if devices.tobytes() not in seen:
            seen.add(devices.tobytes())
            yield devices


def _by_stage(problem: PlanningProblem, candidate: Candidate) -> Iterator[Ints]:
    """Layouts (1)."""
    held, share = devices_of_types(problem), candidate.pipelines * candidate.width
    for kind in range(len(held)):
        for order in permutations(other for other in range(len(held)) if other != kind):
            others = np.concatenate([held[other] for other in order])
            for cut in range(0, len(others) + 1, share):
                every = np.concatenate([others[:cut], held[kind], others[cut:]])
                yield every.reshape(candidate.pp, candidate.pipelines, candidate.width)


def _by_replica(problem: PlanningProblem, candidate: Candidate) -> Iterator[Ints]:
    """Layouts (2), of few replicas with both types first."""
    held, blocks = devices_of_types(problem), max(int(problem.links.gpus_per_node.max()) // candidate.width, 1)
    for kind, own in enumerate(held):
        others = np.concatenate([held[other] for other in range(len(held)) if other != kind])
        number = len(own) // candidate.width
        fitting = [r for r in divisors(number) if r <= candidate.pipelines and number < r * candidate.pp]
        runs = [_Runs(a, b, blocks) for a, b in product(divisors(blocks)[::-1], repeat=2)]
        for mixed, run, last in product(fitting if len(own) % candidate.width == 0 else [], runs, (True, False)):
            yield _placed(candidate, np.concatenate([own, others]), (number // mixed, mixed), run, last=last)


class _Runs(NamedTuple):
    """Stages of a replica that a node holds, of those on the one type and of others, and blocks of a node."""

    own: int
    other: int
    blocks: int


def _placed(candidate: Candidate, devices: Ints, some: tuple[int, int], runs: _Runs, *, last: bool) -> Ints:
    """One layout (2) with some stages of some replicas on the one type, which comes first among the devices."""
    stages, mixed = some
    every, replicas = np.arange(candidate.pp), np.arange(candidate.pipelines)
    first, rest = (every[-stages:], every[:-stages]) if last else (every[:stages], every[stages:])
    places = [
        in_runs(first, replicas[:mixed], runs.own, runs.blocks),
        in_runs(every, replicas[mixed:], runs.other, runs.blocks),
        in_runs(rest, replicas[:mixed], runs.other, runs.blocks),
    ]
    found = np.empty((candidate.pp, candidate.pipelines, candidate.width), dtype=np.int64)
    x, d = np.concatenate(places).T
    found[x, d] = devices.reshape(-1, candidate.width)
    return found


def in_runs(stages: Ints, replicas: Ints, run: int, blocks: int) -> Ints:
    """Stage and replica of one block after the other, in runs of so many stages of blocks / run replicas."""
    together = blocks // run
    pairs = [
        (x, d)
        for group in range(0, len(replicas), together)
        for start in range(0, len(stages), run)
        for d in replicas[group : group + together].tolist()
        for x in stages[start : start + run].tolist()
    ]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def devices_of_types(problem: PlanningProblem) -> list[Ints]:
    """Devices of every type in rank order."""
    type_of = problem.type_of_node[problem.links.node_of]
    return [np.flatnonzero(type_of == kind) for kind in range(len(problem.device_types))]
