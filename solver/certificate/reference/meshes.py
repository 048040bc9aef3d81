r"""
Which pipelines of meshes there are, and what one costs, priced from the definition.

Every type of device has one mesh of (tp, dp, pp), stages on all its devices; P stages of all meshes, m micro-batches a
step. Devices of mesh k are ``devices[k][x, z, y]``.

(1) Stages of mesh k are stages of a pipeline of P at its degrees, with sequence parallelism where tp > 1: their passes,
    all-reduces, rings of gradients and bytes are those of ``figures``, ``gradients`` and ``memory``.
(2) Replicas that hand each other sequences are one pipeline: z and z' of two meshes if [z / dp, (z + 1) / dp] and
    [z' / dp', (z' + 1) / dp'] overlap. A pipeline is as slow as the slowest of its replicas.
(3) Inside a mesh rank (z, y) hands its message to (z, y) of the next stage. Between meshes it sends the part of batch
    and sequence that both have, one piece after another, to all ranks that have some of it; a hop takes as long as all
    pieces of the sender, or all of the receiver if that is more. A node's cards are shared by the ranks of a pipeline.
(4) T_PP is the longest path over ranks, hops there and back; T_pipe, ends, reductions, optimizer as in ``prices``.
(5) tp dp pp are a type's devices; B divides the batch, dp divides B, micro-batches have B / dp sequences. tp divides
    the layers' heads, key-value heads (or the reverse) and widths, every sequence, and the nodes of the type, up to the
    space's most; costs are known on every type. A shared embedding asks for equal tp and dp of first and last mesh.
    ZeRO-0, or ZeRO-1 if some mesh has replicas. Full and selective recompute by stage, or one for all.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations, product

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.data.units import KIB
from taut.solver.certificate.reference.candidates import is_priced, shares, splits
from taut.solver.certificate.reference.figures import Figures
from taut.solver.certificate.reference.gradients import reductions, tied, update_seconds
from taut.solver.certificate.reference.layers import alone
from taut.solver.certificate.reference.memory import capacity_kib, margin_kib, memory_bytes
from taut.solver.certificate.reference.space import Case, Choice, Stages

TIE = 1e-12
"""Relative difference by which pipelines are as slow but for rounding."""
Degrees = tuple[int, int, int, int, int]
"""Place of the device type among the cluster's, tp, dp, pp and micro-batch of a mesh."""


@dataclass(frozen=True)
class Meshes:
    """Degrees of all meshes in the order of the stages; micro-batches, ZeRO stage, and the recompute of all or ''."""

    degrees: tuple[Degrees, ...]
    num_micro_batches: int
    zero: int
    recompute: str = ""

    @property
    def pp(self) -> int:
        """Stages of all meshes."""
        return sum(pp for _, _, _, pp, _ in self.degrees)

    def choice(self, k: int) -> Choice:
        """Mesh k as a candidate of a pipeline of all stages, (2)."""
        _, tp, dp, _, micro_batch = self.degrees[k]
        zero = 0 if dp == 1 else self.zero
        return Choice(
            self.pp,
            tp,
            dp,
            1,
            micro_batch,
            self.num_micro_batches,
            "1f1b",
            zero,
            tp > 1,
            uniform_recompute=self.recompute,
        )


def every_choice(case: Case) -> Iterator[Meshes]:
    """All meshes of the space, (5)."""
    sizes: dict[int, list[int]] = {}
    for kind, node in zip(case.type_of_node.tolist(), case.cluster.node_list, strict=True):
        sizes.setdefault(kind, []).append(node.gpus_per_node)
    own = {kind: [*_triples(case, counts)] for kind, counts in sizes.items()}
    for order in permutations(sorted(own)):
        for each in product(*(own[kind] for kind in order)):
            pp, shared = sum(triple[2] for triple in each), case.model.tied_embedding or case.model.mtp_layers
            alike = not shared or each[0][:2] == each[-1][:2]
            if alike and pp <= len(case.model.blocks) and case.space["fixed"].get("pp", pp) == pp:
                yield from _at_degrees(case, order, each)


def _at_degrees(case: Case, order: tuple[int, ...], each: Sequence[tuple[int, int, int]]) -> Iterator[Meshes]:
    """Choices of given degrees, (5)."""
    batch, piped = case.space["global_batch"], case.space.get("pipeline_zero")
    stages = [z for z in case.space["zero"] if z < 2 and (piped is None or z in piped)]
    stages = [0] if all(dp == 1 for _, dp, _ in each) else stages
    kinds = [""] if case.space.get("recompute_by_stage", True) else case.space["recompute"]
    for whole in range(1, batch + 1):
        if batch % whole or any(whole % dp for _, dp, _ in each):
            continue
        degrees = tuple((k, tp, dp, n, whole // dp) for k, (tp, dp, n) in zip(order, each, strict=True))
        if all(is_priced(case, tp, count) for _, tp, _, _, count in degrees):
            for zero, kind in product(stages, kinds):
                if case.space["fixed"].get("zero", zero) == zero:
                    yield Meshes(degrees, batch // whole, zero, kind)


def _triples(case: Case, sizes: list[int]) -> Iterator[tuple[int, int, int]]:
    """Degrees tp, dp and pp of a type with nodes of these sizes, (5)."""
    for tp in range(1, min(*sizes, case.space["max_tp"]) + 1):
        whole = all(size % tp == 0 for size in sizes)
        layers = [layer for block in case.model.blocks for layer in alone(block)]
        if whole and shares(case, tp) and all(splits(layer, tp) and layer.seq % tp == 0 for layer in layers):
            groups = sum(sizes) // tp
            yield from ((tp, dp, groups // dp) for dp in range(1, groups + 1) if groups % dp == 0)


def _parts(
    here: tuple[int, ...], there: tuple[int, ...], *, alike: bool
) -> dict[tuple[tuple[int, ...], tuple[int, ...]], float]:
    """Part of batch and sequence that ranks (z, y) of two stages both have, where they have some, (3)."""
    if alike:
        return {(a, a): 1 / math.prod(here) for a in np.ndindex(here)}
    axes = [
        [
            (i, j, share)
            for i, j in product(range(of), range(to))
            if (share := min((i + 1) * to, (j + 1) * of) - max(i * to, j * of)) > 0
        ]
        for of, to in zip(here, there, strict=True)
    ]
    total = math.prod(here) * math.prod(there)
    return {((z, y), (u, v)): one * other / total for (z, u, one), (y, v, other) in product(*axes)}


@dataclass(frozen=True)
class MeshFigures:
    """A plan of meshes with what its stages take."""

    case: Case
    meshes: Meshes
    stages: Stages
    recompute: tuple[str, ...]
    devices: Sequence[Ints]

    @cached_property
    def mesh_of(self) -> list[int]:
        """Mesh of every stage."""
        return [k for k, degrees in enumerate(self.meshes.degrees) for _ in range(degrees[3])]

    @cached_property
    def figures(self) -> list[Figures]:
        """Figures of a pipeline of all stages at every mesh's degrees; those of its own stages count, (1)."""
        found = []
        for k, own in enumerate(self.devices):
            first, last = self.mesh_of.index(k), len(self.mesh_of) - self.mesh_of[::-1].index(k)
            every = np.stack([own[min(max(x, first), last - 1) - first] for x in range(self.meshes.pp)])
            if k == 0 and own[0].shape == self.devices[-1][-1].shape:
                every[-1] = self.devices[-1][-1]
            found.append(Figures(self.case, self.meshes.choice(k), self.stages, self.recompute, every[None]))
        return found

    def total(self) -> float:
        """Seconds of a step, (2) to (4)."""
        return math.fsum(self.breakdown({}).values())

    def breakdown(self, stated: dict[str, float]) -> dict[str, float]:
        """Parts of a step, (2) to (4), of the slowest pipeline; of several, the one nearest to the stated passes."""
        pp, (seconds, backward) = self.meshes.pp, self._passes
        paths, back = self._paths()
        m, weight = self.meshes.num_micro_batches, self.case.coefficient("pipeline")
        passes, transfers = seconds.sum(axis=0) + (m - 1) * seconds.max(axis=0), weight * max(1.0, m / pp) * paths
        ends = [passes + transfers]
        for x in range(pp - 1):
            ends.append(ends[x] - backward[x] - weight * back[x])
        last = np.array(ends).max(axis=1)
        reduced = max(last[x] + reductions(self.figures[k])[0, x] for x, k in enumerate(self.mesh_of))
        end = max(float(reduced), float(max(last[0], last[-1]) + tied(self.figures[0])[0]))
        slowest = np.flatnonzero(ends[0] >= ends[0].max() * (1 - TIE))
        own = slowest[np.abs(passes[slowest] - stated.get("passes", math.inf)).argmin()]
        return {
            "passes": float(passes[own]),
            "pipeline_transfers": float(transfers[own]),
            "data_parallel": end - float(ends[0][own]),
            "optimizer": max(map(self._update, range(pp))),
            "constant": self.case.coefficient("constant"),
        }

    def after(self, x: int) -> float:
        """Seconds of a stage's reduction and optimizer, (4)."""
        return float(reductions(self.figures[self.mesh_of[x]])[0, x]) + self._update(x)

    @cached_property
    def _passes(self) -> Floats:
        """Seconds of both passes, and of the backward pass, of every stage and pipeline, (2, P, D), (2)."""
        found = np.zeros((2, self.meshes.pp, self._pipelines))
        for x, k in enumerate(self.mesh_of):
            plan, kind = self.figures[k], self.meshes.degrees[k][0]
            both = plan.passes.sum(axis=0)[kind, x] + plan.rings(plan.every, np.arange(self.meshes.pp))[0, x]
            for part, each in enumerate((both, plan.backward()[0, x])):
                found[part, x] = each.reshape(self._pipelines, -1).max(axis=1)
        return found

    def _update(self, x: int) -> float:
        """Seconds of the optimizer on a stage."""
        plan, (kind, _, dp, _, _) = self.figures[self.mesh_of[x]], self.meshes.degrees[self.mesh_of[x]]
        each = update_seconds(self.case, plan.choice, list(self.case.cluster.devices)[kind])
        return float(each * plan.parameters[x] / (dp if plan.choice.zero else 1))

    @property
    def _pipelines(self) -> int:
        """Pipelines that share no sequence, (2)."""
        cuts = [{z * math.lcm(*self._replicas) // dp for z in range(dp)} for dp in self._replicas]
        return len(set.intersection(*cuts))

    @property
    def _replicas(self) -> list[int]:
        return [dp for _, _, dp, _, _ in self.meshes.degrees]

    def _paths(self) -> tuple[Floats, Floats]:
        """Longest paths of every pipeline, and the slowest hop back to every stage but the last, (3) and (4)."""
        count, back = self._pipelines, np.zeros((self.meshes.pp - 1, self._pipelines))
        reached = {rank: 0.0 for rank in np.ndindex(self.devices[0][0].shape)}
        for x in range(self.meshes.pp - 1):
            hops, following = self._hops(x), dict[tuple[int, ...], float]()
            for (a, b), (forth, again) in hops.items():
                following[b] = max(following.get(b, 0.0), reached[a] + forth + again)
                pipeline = a[0] * count // self._replicas[self.mesh_of[x]]
                back[x, pipeline] = max(back[x, pipeline], again)
            reached = following
        paths = np.zeros(count)
        for (z, *_), seconds in reached.items():
            pipeline = z * count // self._replicas[-1]
            paths[pipeline] = max(paths[pipeline], seconds)
        return paths, back

    def _hops(self, x: int) -> dict[tuple[tuple[int, ...], tuple[int, ...]], tuple[float, float]]:
        """Seconds there and back between every two ranks of stage x and the next that exchange something, (3)."""
        k, n = self.mesh_of[x], self.mesh_of[x + 1]
        here, there = self._on(x), self._on(x + 1)
        whole = self.figures[k].layers.output[self.stages[x][1] - 1] * here.shape[0]
        sent: dict[tuple[int, ...], Floats] = {}
        got: dict[tuple[int, ...], Floats] = {}
        for (a, b), part in _parts(here.shape, there.shape, alike=k == n).items():
            i, j, message = int(here[a]), int(there[b]), float(whole * part)
            piece = np.array([self._link(i, j, k, n, message), self._link(j, i, n, k, message)])
            sent[a], got[b] = sent.get(a, 0.0) + piece, got.get(b, 0.0) + piece
        both = {(a, b): np.maximum(sent[a], got[b]) for a, b in _parts(here.shape, there.shape, alike=k == n)}
        return {pair: (float(forth), float(again)) for pair, (forth, again) in both.items()}

    def _on(self, x: int) -> Ints:
        found: Ints = self.devices[self.mesh_of[x]][x - self.mesh_of.index(self.mesh_of[x])]
        return found

    def _link(self, i: int, j: int, k: int, n: int, message: float) -> float:
        """Seconds of a message from device i of mesh k to device j of mesh n."""
        network = self.figures[0].network
        a, b = network.node_of[i], network.node_of[j]
        rate = float(network.rate(np.array(i), np.array(j)))
        if a != b:
            for node, mesh in ((a, k), (b, n)):
                _, tp, dp, _, _ = self.meshes.degrees[mesh]
                rate = min(rate, network.cards[node] / min(tp * dp // self._pipelines, network.size[node]))
        return float(network.latency(np.array(i), np.array(j))) + message / rate

    def memory(self) -> list[int]:
        """Bytes of a device of every stage, (1)."""
        every = [
            memory_bytes(self.case, self.meshes.choice(k), self.stages, self.recompute, None)
            for k in range(len(self.devices))
        ]
        return [every[k][x] for x, k in enumerate(self.mesh_of)]

    def faults(self) -> Iterator[str]:
        """Rules that the plan breaks; the first kind of them alone where the rest would mean nothing."""
        layers = len(self.case.model.blocks)
        allowed = [self.meshes.recompute] if self.meshes.recompute else self.case.space["recompute"]
        ends = [0, *(end for _, end in self.stages)]
        if len(self.stages) != self.meshes.pp or len(self.recompute) != self.meshes.pp:
            yield f"stages or recompute are not of {self.meshes.pp} stages"
        elif [first for first, _ in self.stages] != ends[:-1] or sorted(set(ends)) != ends or ends[-1] != layers:
            yield "stages do not divide the layers in order"
        elif any(kind not in allowed for kind in self.recompute):
            yield f"recompute {list(self.recompute)} is not of the space"
        else:
            yield from self._misplaced()

    def _misplaced(self) -> Iterator[str]:
        """Devices that break a rule, and stages that they do not hold."""
        shapes = [(pp, dp, tp) for _, tp, dp, pp, _ in self.meshes.degrees]
        used = sorted(np.concatenate([own.ravel() for own in self.devices]).tolist())
        if [own.shape for own in self.devices] != shapes or used != list(range(self.case.cluster.num_devices)):
            yield "not every device is used exactly once, by the stages' degrees"
            return
        for k, own in enumerate(self.devices):
            nodes, kind = self.figures[0].network.node_of[own], self.meshes.degrees[k][0]
            if (self.case.type_of_node[nodes] != kind).any():
                yield f"mesh {k} has devices that are not {list(self.case.cluster.devices)[kind]}"
            if (nodes.max(axis=-1) != nodes.min(axis=-1)).any():
                yield f"mesh {k} has a tensor group on several nodes"
        capacity = capacity_kib(self.case)
        for x, need in enumerate(self.memory()):
            kib = capacity[self.meshes.degrees[self.mesh_of[x]][0]]
            if need > KIB * (kib - margin_kib(self.case, kib)):
                yield f"stage {x} needs {need} bytes, more than a device has beside its margin"
