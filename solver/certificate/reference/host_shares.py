"""
Shares of a candidate's optimizer states and activations on hosts, ``reference.candidates`` (15) and (17), and room.

Chunks of a device have equal parts of its host's memory, the least of any node for each GPU: of optimizer states the
share that is there, and what their layers move for each of the most micro-batches in flight of any chunk.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from taut.data.arrays import Ints
from taut.data.memory import MemoryModel
from taut.data.units import GIB
from taut.solver.certificate.reference.orders import Order
from taut.solver.certificate.reference.space import CLOSED_FORM, SPLIT, Case, Choice


def states_away(case: Case, choice: Choice) -> list[float]:
    """Shares of the optimizer states that the host's memory may have, (15)."""
    listed = case.space.get("optimizer_offload", ())
    found = {each["fraction"] for each in listed if choice.holders == 1 or choice.zero in each["zero"]}
    return sorted(found) if listed else [0.0]


def share_of_states(memory: MemoryModel) -> float:
    """Share of the optimizer states that is in the host's memory."""
    return memory.optimizer_offload_fraction


def activations_away(case: Case, choice: Choice) -> Iterator[Choice]:
    """The candidate with each share of its activations that the host's memory may have, (17)."""
    listed = case.space.get("activation_offload", ())
    if not listed or any(not each["fraction"] for each in listed):
        yield choice
    if choice.schedule in SPLIT or not case.knows_groups:
        return
    for each in listed:
        found = replace(choice, activation_offload=each["fraction"])
        if each["fraction"] and (choice.pp == 1 or each.get("pipelines", True)) and case.recomputes(found):
            yield found


def beyond_host(case: Case, choice: Choice, moved: Ints, states: Ints, order: Order | None) -> Ints:
    """Whether hosts hold too little of chunks, from bytes that a micro-batch of each moves, and of its states."""
    room = min(int((node.host_memory_gib or 0.0) * GIB) // node.gpus_per_node for node in case.cluster.nodes)
    away = share_of_states(case.memory_of(choice))
    key = "most", choice.schedule, choice.pp, choice.vpp, choice.num_micro_batches
    if key not in case.kept:
        case.kept[key] = _most_in_flight(choice, order)
    found = case.kept[key] * moved + np.ceil(away * states) > room // choice.vpp
    return np.asarray(found)


def _most_in_flight(choice: Choice, order: Order | None) -> int:
    """Most micro-batches that any chunk has between its passes."""
    m = choice.num_micro_batches
    if choice.schedule in CLOSED_FORM:
        return m if choice.schedule == "gpipe" else min(choice.pp, m)
    most, held = 0, dict.fromkeys(range(choice.pp * choice.vpp), 0)
    for passes in order or []:
        for kind, chunk, _ in passes:
            held[chunk] += (kind == "F") - (kind == "B")
            most = max(most, held[chunk])
    return most
