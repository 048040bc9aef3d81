"""
Strategies placed by KaHIP and Scotch beside our quadratic assignment and its bound.

Run ``python -m benchmarks.process_mapping --kahip libkahip.so --scotch libscotch.so``; the libraries are in the
packages ``kahip`` (process mapping, Schulz and Träff 2017) and ``scotchpy64`` (dual recursive bipartitioning onto a
tree of levels, Pellegrini and Roman 1996) of PyPI, which are not among the requirements. Process mapping takes a flow
and the fan-out and distance of every level of a hierarchy: devices of a node, nodes of a rack, racks. So the clusters
here have such levels alone. The seconds of a row are those of one call with the strong configuration, whose flows and
distances are whole numbers. If a mapping puts two blocks on a slot, as KaHIP does even at no imbalance, the second
block goes to the nearest free slot. The mapping is priced by our objective.
"""

import argparse
import ctypes
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import taut
from taut.assignment import StrategyPlacement
from taut.data.arrays import Ints
from taut.formulations.assignment import QuadraticAssignment
from taut.words import percent, text_table

RACKS = {
    "name": "two racks",
    "nodes": [
        {"count": 16, "device": "a100-80gb", "gpus_per_node": 8, "intra_bandwidth_gbps": 2400, "intra_latency_us": 2}
    ],
    "network": {
        "bandwidth_gbps": 50,
        "latency_us": 8,
        "racks": [
            {"nodes": list(range(8)), "bandwidth_gbps": 200},
            {"nodes": list(range(8, 16)), "bandwidth_gbps": 200},
        ],
    },
}


@dataclass(frozen=True, slots=True)
class Case:
    """A strategy: model, cluster, global batch, fixed values, and the fan-out of every level from the slots on."""

    name: str
    model: str
    cluster: object
    global_batch: int
    fix: dict[str, int]
    levels: tuple[int, ...]


CASES = (
    Case("128 blocks, 16 nodes", "gpt-11.1b", "dgx-a100:16", 512, {"tp": 1, "pp": 16, "micro_batch": 1}, (8, 16)),
    Case("64 blocks, 16 nodes", "gpt-11.1b", "dgx-a100:16", 512, {"tp": 2, "pp": 8, "micro_batch": 1}, (4, 16)),
    Case("64 blocks, 2 racks", "gpt-11.1b", RACKS, 512, {"tp": 2, "pp": 8, "micro_batch": 1}, (4, 8, 2)),
    Case("128 blocks, 2 racks", "gpt-11.1b", RACKS, 512, {"tp": 1, "pp": 16, "micro_batch": 1}, (8, 8, 2)),
)
STRONG, MULTISECTION, SEED, QUALITY = 2, 0, 0, 1
UNITS = 10**4
"""Whole steps of the largest flow and of the largest distance."""


def process_mapping(library: ctypes.CDLL, problem: QuadraticAssignment, levels: tuple[int, ...]) -> Ints:
    """Slot of every position (n,) by KaHIP, where slots of a level stand in a row."""
    starts, targets, weights, distances = (each.astype(np.int32) for each in whole_numbers(problem, levels))
    count, part = problem.size, np.zeros(problem.size, dtype=np.int32)
    size, cut, cost, imbalance = ctypes.c_int(count), ctypes.c_int(0), ctypes.c_int(0), ctypes.c_double(0.0)
    ones, fans = np.ones(count, dtype=np.int32), np.array(levels, dtype=np.int32)

    def at(values: Any) -> object:
        return values.ctypes.data_as(ctypes.POINTER(ctypes.c_int))

    library.process_mapping(
        ctypes.byref(size), at(ones), at(starts), at(weights), at(targets), at(fans), at(distances), len(levels),
        STRONG, MULTISECTION, ctypes.byref(imbalance), ctypes.c_bool(True), SEED, ctypes.byref(cut), ctypes.byref(cost),
        at(part),
    )  # fmt: skip
    return spread(problem, part.astype(np.int64))


def whole_numbers(problem: QuadraticAssignment, levels: tuple[int, ...]) -> tuple[Ints, Ints, Ints, Ints]:
    """Starts (n + 1,), targets and weights of the flow's rows, and distances of the levels, in whole ``UNITS``."""
    flow = np.triu(problem.flow + problem.flow.T, 1)
    whole = np.maximum(np.rint(UNITS * flow / flow.max()), flow > 0).astype(np.int64)
    whole = whole + whole.T
    starts = np.concatenate([[0], np.cumsum(np.count_nonzero(whole, axis=1))])
    far = np.array([problem.distance[0, stride] for stride in np.cumprod([1, *levels[:-1]])])
    distances = np.maximum(np.rint(UNITS * far / far.max()), 1).astype(np.int64)
    return starts, np.nonzero(whole)[1], whole[np.nonzero(whole)], distances


def scotch(library: ctypes.CDLL, problem: QuadraticAssignment, levels: tuple[int, ...]) -> Ints:
    """Slot of every position (n,) by Scotch's strategy for quality, where slots of a level stand in a row."""
    whole = np.int64 if library.SCOTCH_numSizeof() == 8 else np.int32
    starts, targets, weights, distances = (each.astype(whole) for each in whole_numbers(problem, levels))
    sizes, links = np.array(levels[::-1], dtype=whole), np.ascontiguousarray(distances[::-1])
    part = np.zeros(problem.size, dtype=whole)

    def number(value: int) -> object:
        return ctypes.c_int64(value) if whole is np.int64 else ctypes.c_int32(value)

    def made(kind: str) -> ctypes.c_void_p:
        allocate = getattr(library, f"SCOTCH_{kind}Alloc")
        allocate.restype = ctypes.c_void_p
        found = ctypes.c_void_p(allocate())
        getattr(library, f"SCOTCH_{kind}Init")(found)
        return found

    def at(values: Any) -> ctypes.c_void_p:
        return ctypes.c_void_p(values.ctypes.data)

    library.SCOTCH_randomSeed(number(SEED))
    graph, tree, strategy, none = made("graph"), made("arch"), made("strat"), ctypes.c_void_p()
    library.SCOTCH_graphBuild(
        graph, number(0), number(problem.size), at(starts), none, none, none, number(len(targets)), at(targets),
        at(weights),
    )  # fmt: skip
    library.SCOTCH_archTleaf(tree, number(len(levels)), at(sizes), at(links))
    slots = number(problem.size)
    library.SCOTCH_stratGraphMapBuild(strategy, number(QUALITY), slots, ctypes.c_double(0.0))
    if library.SCOTCH_graphMap(graph, tree, strategy, at(part)):
        raise RuntimeError("scotch: found no mapping")
    return spread(problem, part.astype(np.int64))


def spread(problem: QuadraticAssignment, slots: Ints) -> Ints:
    """Slots (n,) where every position beyond the first of a slot has moved to the nearest free slot."""
    slots, kept = slots.copy(), np.unique(slots, return_index=True)[1]
    free = set(range(problem.size)) - set(slots.tolist())
    for position in sorted(set(range(problem.size)) - set(kept.tolist())):
        taken = int(slots[position])
        slots[position] = min(free, key=lambda slot: (problem.distance[taken, slot], slot))
        free.remove(int(slots[position]))
    return slots


def row(kahip: ctypes.CDLL, others: ctypes.CDLL, case: Case) -> tuple[str, ...]:
    """A case as a line of the table."""
    given = case.cluster
    cluster = taut.load_cluster(given) if isinstance(given, str) else taut.ClusterSpec.parse(given, case.name)
    request = taut.PlanRequest(case.model, cluster, global_batch=case.global_batch, fix=case.fix)
    ours: StrategyPlacement = taut.place_strategy(request, time_limit=5.0)
    cells = [f"{ours.lower_bound:.5g}", f"{ours.objective:.5g}", percent(ours.gap)]
    for mapped, library in ((process_mapping, kahip), (scotch, others)):
        began = time.perf_counter()
        slots = mapped(library, ours.instance, case.levels)
        seconds, value = time.perf_counter() - began, ours.instance.cost(slots)
        cells += [f"{value:.5g}", percent(value / ours.objective - 1, places=2), f"{seconds:.2f}"]
    return case.name, *cells


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--kahip", "--scotch"):
        parser.add_argument(name, type=Path, required=True)
    given = parser.parse_args()
    # Scotch leaves its error routine to a library of its own, which stands beside it.
    ctypes.CDLL(str(given.scotch.with_name("libscotcherr.so")), mode=ctypes.RTLD_GLOBAL)
    kahip, others = (ctypes.CDLL(str(path)) for path in (given.kahip, given.scotch))
    above = ("above ours", "in s")
    head = ("strategy", "bound s", "ours s", "gap", "KaHIP s", *above, "Scotch s", *above)
    print(text_table([head, *(row(kahip, others, case) for case in CASES)]))


if __name__ == "__main__":
    main()
