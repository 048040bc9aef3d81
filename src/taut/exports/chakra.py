r"""
Chakra execution traces of one step of a plan, for simulators of networks such as ASTRA-sim.

A trace has the tasks of one device: messages of protobuf with their length in front, a ``GlobalMetadata`` and a
``Node`` a task (mlcommons/chakra, schema/protobuf/et_def.proto). The tasks are those of the simulated step
(``taut.formulations.simulation``), every replica by itself:

(1) computation is a ``COMP_NODE`` with its microseconds. They are differences of rounded sums, so the durations of a
    stream add up to its seconds within half a microsecond;
(2) a message between stages is a ``COMM_SEND_NODE`` on the sender and a ``COMM_RECV_NODE`` on the receiver, with one
    tag for both. Rank y of a block sends to rank y of the next one;
(3) traffic of tensor, context and expert ranks, shards and gradients is a ``COMM_COLL_NODE`` in its communicator group.
    With sequence parallelism the sum of a tensor group is a gather before a part and a scatter after it;
(4) what follows the passes is the all-reduces by which it is priced: a sharded optimizer's scatter and gather are one,
    and a gather or scatter alone is one of half its bytes. The norm of all gradients is an all-reduce of four bytes of
    all devices, and the constant of a calibration a computation at the end;
(5) a node waits for the nodes for which its task waits in the simulation.

``comm_size`` is what ASTRA-sim reads: the bytes of the sum for all-reduces and scatters, a device's own part for
gathers, and all that a device sends and keeps for all-to-alls. Bytes within blocks follow from the seconds of the same
step on links of one rate without latency, without a calibration. A ring of n ranks passes all keys on in n - 1 steps,
as a gather does; attention hides the same share of its bytes as the plan's price says. Nodes of communication
have the seconds of the plan's price as durations, which a simulator of networks ignores.

Trace N is that of device N of the cluster, as a simulator of networks numbers devices by their places. ``ranks.csv``
says which process that is, and ``comm_groups.json`` lists the devices of every group.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from taut.data.arrays import Ints
from taut.data.cluster import ClusterSpec, NetworkSpec
from taut.data.units import GIGABIT, MICROSECOND
from taut.exports.job import ExportError, Job, rank_table
from taut.files import template
from taut.formulations.gradient_reductions import by_device, tied_bytes
from taut.formulations.problem import PlanningProblem
from taut.formulations.rings import ring_factor
from taut.formulations.simulation.graph import operator_graph
from taut.formulations.simulation.passes import (
    CONTEXT,
    EXCHANGE,
    GATHER,
    NORM,
    REDUCE,
    RETURN,
    SCATTER,
    SEND,
    STREAMS,
    TENSOR,
    TIED,
)
from taut.formulations.strategy import Strategy
from taut.formulations.tables.block_traffic import BlockLink
from taut.formulations.terms import Group, gathers_of, reductions_of
from taut.quoting import json_text, protobuf_text
from taut.simulation import of_plan

SCHEMA = "0.0.4"
COMP_NODE, COMM_SEND_NODE, COMM_RECV_NODE, COMM_COLL_NODE = 4, 5, 6, 7
ALL_REDUCE, ALL_GATHER, ALL_TO_ALL, REDUCE_SCATTER = 0, 2, 6, 7
MOST_NODES = 5_000_000
"""Nodes of all traces: half a gigabyte."""
BYTES_A_SECOND = 1e3
"""Rate of the links on which seconds say bytes: so slow that the seconds which attention hides are nothing beside."""
NORM_BYTES = 4


@lru_cache(maxsize=65536)
def varint(value: int) -> bytes:
    """A whole number of at least 0, seven bits a byte."""
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def _number(place: int, value: int) -> bytes:
    return varint(place << 3) + varint(value)


def _message(place: int, content: bytes) -> bytes:
    return varint(place << 3 | 2) + varint(len(content)) + content


@lru_cache(maxsize=65536)
def _attribute(name: str, place: int, value: int | str) -> bytes:
    """An attribute of a node, its value a whole number or text in a field of ``AttributeProto``."""
    own = _number(place, value) if isinstance(value, int) else _message(place, protobuf_text(value))
    return _message(10, _message(1, name.encode()) + own)


def _framed(content: bytes) -> bytes:
    return varint(len(content)) + content


INT32, INT64, BOOL, STRING = 7, 9, 27, 29
ON_DEVICE = _attribute("is_cpu_op", BOOL, 0)
"""Fields of ``AttributeProto``, and the attribute that a device runs a node."""


@dataclass(slots=True)
class Node:
    """A node of all ranks of a block: kind, name, microseconds, waits, collective, groups and peers (ranks,), tag."""

    kind: int
    name: str
    micros: int
    after: list[int] = field(default_factory=list)
    collective: int = 0
    size: int = 0
    groups: list[int] | None = None
    peers: list[int] | None = None
    tag: int = 0

    def common(self, number: int) -> bytes:
        """What all ranks of a block share."""
        deps = _message(5, b"".join(map(varint, self.after))) if self.after else b""
        found = _number(1, number) + _message(2, protobuf_text(self.name)) + _number(3, self.kind) + deps
        found += _number(7, self.micros) + ON_DEVICE
        if self.kind == COMP_NODE:
            return found
        found += _attribute("comm_size", INT64, self.size)
        if self.kind == COMM_COLL_NODE:
            return found + _attribute("comm_type", INT64, self.collective)
        return found + _attribute("comm_tag", INT32, self.tag)

    def own(self, rank: int, device: int) -> bytes:
        """What a rank of a block, on a device, has of its own."""
        if self.groups is not None:
            return _attribute("pg_name", STRING, str(self.groups[rank]))
        if self.peers is not None:
            ends = (device, self.peers[rank]) if self.kind == COMM_SEND_NODE else (self.peers[rank], device)
            return _attribute("comm_src", INT32, ends[0]) + _attribute("comm_dst", INT32, ends[1])
        return b""


@dataclass(slots=True)
class Groups:
    """Communicator groups by number, from 1 on; each is known by its devices."""

    numbers: dict[tuple[int, ...], int] = field(default_factory=dict)

    def of(self, members: Iterable[int]) -> int:
        """The number of a group of devices in the order of their ranks."""
        return self.numbers.setdefault(tuple(members), len(self.numbers) + 1)

    def by_rank(self, block: Ints, members: Ints) -> list[int]:
        """The group of every device of a block (width,), of groups (n, members) that hold each of them once."""
        number = {device: self.of(group) for group in members.tolist() for device in group}
        return [number[device] for device in block.tolist()]


def chakra_files(job: Job) -> dict[str, str | bytes]:
    """The trace of every device, the groups, and which process is on which device; a ``DataError`` if too many."""
    configuration = of_plan(job.plan)
    if (count := _number_of_nodes(*configuration)) > MOST_NODES:
        raise ExportError(f"{job.plan.source}: its traces have {count} nodes, expected at most {MOST_NODES}")
    step = _Step(*configuration)
    named = {"model": job.plan.model, "cluster": job.plan.cluster}
    stated = (_message(1, k.encode()) + _message(STRING, protobuf_text(v)) for k, v in named.items())
    head = _framed(_message(1, SCHEMA.encode()) + b"".join(_message(2, each) for each in stated))
    traces: dict[int, bytes] = {}
    for x, z in np.ndindex(*step.blocks.shape[:2]):
        nodes = step.of_block(x, z)
        common = [node.common(number) for number, node in enumerate(nodes)]
        for rank, device in enumerate(step.blocks[x, z].tolist()):
            each = (_framed(shared + node.own(rank, device)) for shared, node in zip(common, nodes, strict=True))
            traces[device] = head + b"".join(each)
    groups = {str(number): list(members) for members, number in step.groups.numbers.items()}
    return {
        **{f"trace.{device}.et": traces[device] for device in sorted(traces)},
        "comm_groups.json": json_text(groups),
        "ranks.csv": rank_table(job),
        "plan.json": json_text(job.plan.document),
        "launch.md": template("chakra.md").format(devices=len(traces), seconds=job.plan.step_time_s),
    }


def _number_of_nodes(problem: PlanningProblem, strategy: Strategy, devices: Ints) -> int:
    """About how many nodes all traces have, from a graph in which replicas that are alike stand for each other."""
    graph, chosen = operator_graph(problem, strategy, devices), strategy.candidate
    return graph.tasks * chosen.pipelines * chosen.width // len(graph.replicas.simulated)


class _Step:
    """Nodes of every block (stage, pipeline) of a step, their devices, and the communicator groups."""

    def __init__(self, problem: PlanningProblem, strategy: Strategy, devices: Ints) -> None:
        candidate = strategy.candidate
        self.problem, self.strategy, self.candidate = problem, strategy, candidate
        self.groups, self.blocks = Groups(), devices.reshape(candidate.pp, candidate.pipelines, candidate.width)
        self.graph = operator_graph(problem, strategy, devices, every_replica=True)
        # Without a calibration bytes are those that are sent, without the factor by which their time was scaled.
        self.plain = _plain(problem)
        sent = operator_graph(self.plain, strategy, devices, every_replica=True)
        if not np.array_equal(sent.kind, self.graph.kind):
            raise ExportError("attention hides all keys of some layers, which a trace cannot state; plan with cp=1")
        self.sent = sent.seconds * BYTES_A_SECOND
        self.terms, self.tables = self.plain.terms(candidate), self.plain.tables(candidate)
        self.order = np.argsort(self.graph.stream // len(STREAMS), kind="stable")
        self.first = np.searchsorted(self.graph.stream[self.order] // len(STREAMS), np.arange(self.graph.devices + 1))
        self.after_passes = np.flatnonzero(np.isin(self.graph.kind, (REDUCE, TIED, NORM)))

    def of_block(self, x: int, z: int) -> list[Node]:
        """The nodes of a block in the order of its tasks, each receive before the first task that waits for it."""
        graph, found = self.graph, list[Node]()
        last: dict[int, list[int]] = {}
        ended: dict[int, float] = {}

        def add(node: Node) -> list[int]:
            found.append(node)
            return [len(found) - 1]

        for task in self._tasks(x, z):
            after: list[int] = []
            for other in graph.dependency[graph.first_dependency[task] : graph.first_dependency[task + 1]].tolist():
                if other not in last and graph.kind[other] in (SEND, RETURN):
                    last[other] = add(self._end_of_message(other, z))
                after += last.get(other, [])
            kind, stream = int(graph.kind[task]), int(graph.stream[task])
            before = ended.get(stream, 0.0)
            ended[stream] = before + float(graph.seconds[task]) / MICROSECOND
            micros = round(ended[stream]) - round(before)
            if kind in (SEND, RETURN):
                made = [self._end_of_message(task, z, micros)]
            elif kind in COLLECTIVES:
                made = list(self._collectives(task, micros, x, z))
            else:
                made = [Node(COMP_NODE, graph.name(task), micros)]
            for node in made:
                node.after, after = sorted(set(after)), [len(found)]
                add(node)
            last[task] = after
        if constant := self.problem.constant_of(self.candidate):
            add(Node(COMP_NODE, "constant", round(constant / MICROSECOND), [len(found) - 1]))
        return found

    def _tasks(self, x: int, z: int) -> list[int]:
        """Tasks of a block in ascending order; what follows the passes belongs to all of its members."""
        graph, device = self.graph, z * self.graph.ranks + x
        own = self.order[self.first[device] : self.first[device + 1]]
        own = own[graph.kind[own] != REDUCE]
        tail = self.after_passes
        rank, kind = graph.stream[tail] // len(STREAMS), graph.kind[tail]
        at_ends = x in (0, graph.ranks - 1)
        tail = tail[((kind == REDUCE) & (rank == x)) | ((kind == TIED) & at_ends) | (kind == NORM)]
        return sorted([*own.tolist(), *tail.tolist()])

    def _end_of_message(self, task: int, z: int, micros: int | None = None) -> Node:
        """The send of a message between chunks that takes some microseconds, or without these its receive, (2)."""
        graph, chunk, back = self.graph, int(self.graph.chunk[task]), int(self.graph.kind[task] == RETURN)
        ends = graph.order.device[chunk], graph.order.device[chunk - 1 if back else chunk + 1]
        number = chunk * self.candidate.num_micro_batches + int(graph.micro_batch[task])
        sends, name = micros is not None, graph.name(task)
        return Node(
            COMM_SEND_NODE if sends else COMM_RECV_NODE,
            name if sends else name.replace("send", "receive"),
            micros or 0,
            size=round(float(self.sent[task])),
            peers=self.blocks[ends[int(sends)], z].tolist(),
            tag=2 * number + back,
        )

    def _collectives(self, task: int, micros: int, x: int, z: int) -> Iterator[Node]:
        """The collectives of a task one after another, the first with its microseconds, (3) and (4)."""
        block = self.blocks[x, z]
        for collective, size, members in self._moved(task, int(self.graph.kind[task]), x, z):
            if members is None or members.shape[-1] > 1:
                groups = None if members is None else self.groups.by_rank(block, members)
                name, size = self.graph.name(task), max(round(size), 1)
                yield Node(COMM_COLL_NODE, name, micros, collective=collective, size=size, groups=groups)
                micros = 0

    def _moved(self, task: int, kind: int, x: int, z: int) -> Iterator[tuple[int, float, Ints | None]]:
        """Collective, ``comm_size`` and groups (n, members) of what a task moves; no groups for all devices."""
        block, sent, shape = self.blocks[x, z], float(self.sent[task]), self.candidate.block
        if kind == NORM:
            yield ALL_REDUCE, NORM_BYTES, None
        elif kind == TIED:
            yield ALL_REDUCE, tied_bytes(self.plain, self.candidate), self.blocks[[0, -1], z].T
        elif kind == TENSOR:
            collective = self._tensor_collective(task)
            yield collective, _size(collective, sent, shape.tp), block.reshape(-1, shape.tp)
        elif kind == EXCHANGE:
            peers = block.reshape(-1, shape.ep, shape.etp).swapaxes(-1, -2).reshape(-1, shape.ep)
            yield ALL_TO_ALL, _size(ALL_TO_ALL, sent, shape.ep), peers
        elif kind == CONTEXT:
            rings = block.reshape(-1, shape.cp, shape.tp).swapaxes(-1, -2).reshape(-1, shape.cp)
            shown = self._shown(int(self.graph.layer[task]), self.graph.replicas.link(x, z))
            collective = ALL_TO_ALL if shown is None else ALL_GATHER
            yield collective, _size(collective, sent, shape.cp) * (1.0 if shown is None else shown), rings
        else:
            yield from self._of_terms(task, kind, x)

    def _of_terms(self, task: int, kind: int, x: int) -> Iterator[tuple[int, float, Ints | None]]:
        """What is gathered or scattered of a layer, or reduced of a stage, term by term and ring by ring."""
        if kind == REDUCE:
            graph = self.graph
            every = graph.seconds[(graph.kind == REDUCE) & (graph.stream == graph.stream[task])].sum()
            for term in reductions_of(self.terms):
                moved = by_device(self.strategy, np.asarray(self.tables.carried(term.load) * term.bytes))[x]
                moved = float(moved * graph.seconds[task] / every)
                for ring in term.rings:
                    yield ALL_REDUCE, moved * ring.share, self._members(ring.group, x)
            return
        layer, gathers = int(self.graph.layer[task]), kind == GATHER
        for term in gathers_of(self.terms):
            count = int(self.tables.carried(term.load)[layer, layer + 1])
            moved = count * (term.weight if gathers else term.gradient)
            for ring in term.rings if moved > 0.0 else ():
                members = self._members(ring.group, x)
                yield (ALL_GATHER, moved / ring.group.members, members) if gathers else (REDUCE_SCATTER, moved, members)

    def _members(self, group: Group, x: int) -> Ints:
        """Communicators of a group on a stage, (n, members)."""
        placed: Ints = group.of(self.blocks[x])
        return np.swapaxes(placed, -1, -2).reshape(-1, group.members)

    def _tensor_collective(self, task: int) -> int:
        """With sequence parallelism a gather before a part and a scatter after it, each half of a sum."""
        graph = self.graph
        key = graph.layer * 8 + graph.part

        def encloses(middle: int, other: int) -> bool:
            same = 0 <= other < graph.tasks and key[middle] == key[task] == key[other]
            return bool(same and graph.kind[middle] != TENSOR and graph.kind[other] == TENSOR)

        if not self.candidate.sequence_parallel:
            return ALL_REDUCE
        if encloses(task + 1, task + 2):
            return ALL_GATHER
        return REDUCE_SCATTER if encloses(task - 1, task - 2) else ALL_REDUCE

    def _shown(self, layer: int, link: BlockLink) -> float | None:
        """Share of a ring's bytes that attention does not hide, None where context ranks share by an all-to-all."""
        sent = self.problem.tables(self.candidate).forward.at(layer, layer + 1)
        whole = float(sent.ring_bytes.sum()) * float(link.context_inverse)
        if whole <= 0.0:
            return None
        return float(sent.ring_seconds(link._replace(context_latency=0.0))) / whole


COLLECTIVES = frozenset((TENSOR, CONTEXT, EXCHANGE, GATHER, SCATTER, REDUCE, TIED, NORM))


def _size(collective: int, sent: float, members: int) -> float:
    """``comm_size`` of a collective in which each device sends so many bytes."""
    if collective == ALL_REDUCE:
        return sent / float(ring_factor(members))
    return sent / (members - 1) if collective == ALL_GATHER else sent * members / (members - 1)


def _plain(problem: PlanningProblem) -> PlanningProblem:
    """The problem without a calibration, on links of ``BYTES_A_SECOND`` without latency."""
    rate = BYTES_A_SECOND / GIGABIT
    nodes = [
        node.model_copy(update={"intra_bandwidth_gbps": rate, "intra_latency_us": 0.0, "nic_bandwidth_gbps": None})
        for node in problem.cluster.nodes
    ]
    network = NetworkSpec.model_construct(bandwidth_gbps=rate, latency_us=0.0, racks=[])
    matrices = {"bandwidth_matrix": None, "latency_matrix": None}
    cluster: ClusterSpec = problem.cluster.model_copy(update={"nodes": nodes, "network": network, **matrices})
    return replace(problem.with_costs(problem.costs), cluster=cluster, calibration=None)
