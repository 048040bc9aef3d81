r"""
Random small problems with interleaving, with an optimum of their own: every plan, priced from the figures drawn.

Sets: plans of a candidate, divisions of its parts into chunks times recompute of every chunk times placements.
Nothing of the formulations is used: seconds, bytes and links are those that were drawn, and orders are run by
``tests.support.events``. One tensor rank, one or two replicas, Adam in bf16 with gradients in fp32, 18 bytes in all.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, permutations, product
from math import comb, factorial
from typing import Any

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.data.cluster import ClusterSpec
from taut.data.costs import RECOMPUTE, CostRow, CostTable
from taut.data.layers.layer import EMBEDDING, HEAD
from taut.data.memory import MemoryModel
from taut.data.model import ModelSpec
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate, StrategySpace
from taut.formulations.strategy import Division, Strategy
from tests.support.events import held, simulate

SHAPES = [(2, 1, 1), (2, 1, 2), (2, 1, 2), (2, 1, 3), (2, 2, 2), (3, 1, 1), (3, 1, 2), (4, 1, 1), (2, 2, 1), (4, 1, 2)]
"""Stages, replicas, and most chunks of a device; with one chunk the order is that of ZB-H1."""
RACKED = [(2, 2, 1), (2, 2, 2), (2, 2, 2), (2, 2, 3), (3, 2, 1), (3, 2, 2)]
"""The same of problems on racks: a node for each worker, and stages of two nodes."""
MIXED = [(2, 2, 2), (2, 2, 2), (3, 2, 2), (4, 1, 2), (4, 1, 2), (3, 1, 2), (2, 2, 1), (3, 2, 1)]
"""The same of problems on nodes of two types."""
MOST_PLANS = 20_000
"""Plans of a candidate at most: fewer layers where there are more."""
KIB, GIB = 1024, 2**30
BUCKET = 10_000
"""Parameters of a bucket of gradients: with real ones no reduction of so small a model would be hidden."""
Array = Any


@dataclass(frozen=True, kw_only=True)
class Plans:
    """
    Plans of a candidate.

    Divisions by ends of chunks and recompute (n, C), with bytes that stay of a micro-batch (n, C), and bytes of devices
    with and without them (n, p); placements by devices and their types (q, p, dp); seconds of each division on each
    placement, and whether it fits (n, q).
    """

    ends: Ints
    recompute: Ints
    stays: Ints
    need: Ints
    still: Ints
    devices: Ints
    types: Ints
    seconds: Floats
    fits: Flags

    @property
    def layers(self) -> Ints:
        """Layers of chunks (n, C)."""
        return np.diff(self.ends, prepend=0)

    @property
    def least(self) -> Floats:
        """Least seconds of each plan on a placement that it fits, infinite where there is none (n,)."""
        return np.asarray(np.where(self.fits, self.seconds, np.inf).min(axis=1))

    @property
    def optimum(self) -> float:
        """Least seconds of a plan that fits; infinite where none does."""
        return float(self.seconds[self.fits].min(initial=np.inf))


class Drawn:
    """The figures of one problem, drawn at random, and its plans."""

    def __init__(self, seed: int, *, racked: bool = False, mixed: bool = False) -> None:
        self.rng = rng = np.random.default_rng((seed, 43))
        shapes = RACKED if racked else MIXED if mixed else SHAPES
        self.p, self.dp, most = shapes[int(rng.integers(len(shapes)))]
        self.count = self.p * self.dp
        # ZB-H1 has no full recompute.
        self.recompute = [*([[0]] * 5), [0, 1], [0, 2], [2] if most > 1 else [1]][int(rng.integers(8))]
        self.recompute = self.recompute[:1] if mixed else self.recompute
        self.vocab = int(rng.choice([0, 128, 128]))
        self.tied = bool(self.vocab and rng.random() < 0.5)
        self.ends = bool(self.vocab and most > 1 and rng.random() < 0.25)
        chunks = self.p * most
        self.size = chunks + int(rng.integers(0, 5 if len(self.recompute) == 1 else 3))
        while self.size > chunks and self._plans(chunks) > MOST_PLANS:
            self.size -= 1
        self.layers = max(self.size, 3)
        self.schedules = ["zb-h1"] if most == 1 else ["interleaved-1f1b", *["zb-h1"] * int(rng.integers(2))]
        self.most, self.rounds = most, int(rng.integers(1, 4))
        self.types = 1 + int(rng.random() < 0.2 or mixed)
        # Layers alike, with some dense ones before the others, or of any kinds.
        self.differing = int(rng.choice([0, 0, 1, 2, 3]))
        kinds = ["a"] * self.layers
        kinds[: self.differing] = ["b"] * min(self.differing, self.layers - 1)
        if rng.random() < 0.15:
            kinds = [str(each) for each in rng.choice(["a", "b", "c"], self.layers)]
        self.kinds = kinds
        self.overlap = bool(rng.random() < 0.4)
        self.seconds = {
            (t, kind): rng.uniform(0.5, 1.5, 3) * float(rng.choice([0.2, 1.0, 1.0]))
            for t in range(self.types)
            for kind in ("a", "b", "c", EMBEDDING, HEAD)
        }
        self.kept = {kind: int(rng.integers(20_000, 400_000)) for kind in ("a", "b", "c", EMBEDDING, HEAD)}
        self.optimizer = rng.choice([0.0, 1e-6]) * rng.uniform(0.5, 2, self.types)
        self.per_node = int(rng.choice([each for each in (1, self.dp, self.count) if self.count % each == 0]))
        if mixed:
            self._mix()
        nodes = self.count // self.per_node
        slow = float(rng.choice([1e-6, 3e-6, 1e-5, 1e-4] if mixed else [1e-5, 1e-4, 1e-3, 1e-2]))
        # GB/s between nodes, either way its own in three of ten problems, and within them.
        self.rates = slow * (rng.uniform(0.5, 2, (nodes, nodes)) if rng.random() < 0.3 else np.ones((nodes, nodes)))
        self.within, self.waits = 10 * slow, float(rng.choice([0.0, 1e6 if mixed else 5e4]))
        self.type_of_node = np.sort(np.arange(nodes) * self.types // nodes)
        if mixed:
            self.type_of_node = (np.arange(nodes) < rng.integers(1, nodes)).astype(np.int64)[::-1]
        self.racks = np.zeros(0, np.int64)
        if racked:
            self._put_in_racks(slow)
        self.budgets = [GIB] * self.types
        self.margin = float(rng.choice([0.0, 0.1]))

    def _mix(self) -> None:
        """Layers that are alike for linear figures, on two or more nodes of two types, the second one slower."""
        rng, slower = self.rng, float(self.rng.choice([1.0, 1.5, 3.0]))
        self.kinds = ["b"] * min(self.differing, self.layers - 1) + ["a"] * self.layers
        self.kinds = self.kinds[: self.layers]
        self.seconds = {(t, kind): slower**t * figures for (t, kind), figures in self.seconds.items()}
        self.per_node = int(rng.choice([each for each in (2, 2, 3, 1) if self.count % each == 0 and each < self.count]))

    def _put_in_racks(self, slow: float) -> None:
        """Nodes of one device and type in two or three racks, with links between these that are slower."""
        rng, nodes = self.rng, self.count
        self.types, self.per_node, self.type_of_node = 1, 1, np.zeros(nodes, np.int64)
        self.optimizer = self.optimizer[:1]
        self.seconds = {(t, kind): figures for (t, kind), figures in self.seconds.items() if t == 0}
        cuts = rng.choice(np.arange(1, nodes), int(rng.integers(1, 3)), replace=False)
        self.racks = np.searchsorted(np.sort(cuts), np.arange(nodes), side="right")
        together = self.racks[:, None] == self.racks
        self.rates = slow * np.where(together, float(rng.choice([2.0, 5.0, 30.0])), 1.0)

    def _plans(self, chunks: int) -> int:
        divisions: int = comb(self.size + 2 * self.ends - 1, chunks - 1) * len(self.recompute) ** chunks
        return divisions * factorial(self.count)

    @cached_property
    def model(self) -> ModelSpec:
        """The model, a list of layers."""
        hidden = {"a": 32, "b": 64, "c": 16}
        layers = [{"kind": k, "hidden": 32, "ffn_hidden": 2 * hidden[k], "heads": 4, "seq": 16} for k in self.kinds]
        vocab = {"vocab": self.vocab, "tied_embedding": self.tied} if self.vocab else {}
        return ModelSpec.parse({"name": "drawn", "layers": layers, **vocab}, "drawn")

    def problem(self) -> PlanningProblem:
        """The problem as taut takes it."""
        nodes = self.count // self.per_node
        groups = [
            {
                "count": int((self.type_of_node == t).sum()),
                "device": {
                    "name": f"d{t}",
                    "memory_gib": self.budgets[t] / GIB,
                    "peak_tflops": {"bf16": 1},
                    "memory_bandwidth_gbytes": 1,
                },
                "gpus_per_node": self.per_node,
                "intra_bandwidth_gbps": 8 * self.within,
                "intra_latency_us": 0.0,
            }
            for t in range(self.types)
            if (self.type_of_node == t).any()
        ]
        values: dict[str, Any] = {"name": "drawn", "nodes": groups}
        values["network"] = {"bandwidth_gbps": 8 * float(self.rates.max()), "latency_us": self.waits}
        if len(self.racks):
            values["network"]["bandwidth_gbps"] = 8 * float(self.rates.min())
            values["network"]["racks"] = [
                {"nodes": np.flatnonzero(self.racks == k).tolist(), "bandwidth_gbps": 8 * float(self.rates.max())}
                for k in range(int(self.racks.max()) + 1)
            ]
        elif nodes > 1:
            values["bandwidth_matrix"] = {"unit": "GB/s", "rows": self.rates.tolist()}
        rows = [
            CostRow(
                device=f"d{t}",
                kind=kind,
                tp=1,
                micro_batch=1,
                seq=16,
                recompute=name,
                forward_s=forward,
                input_grad_s=by_input + self.again(r) * forward,
                weight_grad_s=by_weight,
                activation_bytes=self.stays(kind, r),
            )
            for (t, kind), (forward, by_input, by_weight) in self.seconds.items()
            for r, name in enumerate(RECOMPUTE)
            if r == 0 or kind not in (EMBEDDING, HEAD)
        ]
        rates = {f"d{t}": float(self.optimizer[t]) for t in range(self.types)}
        space = StrategySpace(
            global_batch=self.dp * self.p * self.rounds,
            max_tp=1,
            schedules=self.schedules,
            max_vpp=self.most,
            zero=[0],
            sequence_parallel=[False],
            recompute=[RECOMPUTE[r] for r in self.recompute],
            empty_ends=self.ends,
            fixed={"pp": self.p, "dp": self.dp, "micro_batch": 1},
        )
        return PlanningProblem(
            self.model,
            ClusterSpec.parse(values, "drawn"),
            CostTable(name="drawn", basis="drawn", rows=rows, optimizer_s_per_parameter=rates),
            MemoryModel(precision="bf16", overhead_gib=0.0, margin=self.margin),
            space,
            "step",
            overlap_grad_reduce=self.overlap,
        )

    def again(self, r: int) -> float:
        """Share of the forward pass that a recompute runs again."""
        return (0.0, 0.3, 1.0)[r]

    def stays(self, kind: str, r: int) -> int:
        """Bytes of a micro-batch that stay."""
        return self.kept[kind] // (1, 2, 10)[r]

    def parts(self, candidate: Candidate) -> tuple[Floats, Ints, Ints, Ints]:
        """
        Figures of what is divided, in turn.

        Seconds of F, I, W by type and recompute (types, recompute, 3, L), parameters (L,), bytes that stay of a
        micro-batch (recompute, L), and bytes that come back for a moment (recompute, L).
        """
        model, every = self.model, [RECOMPUTE.index(r) for r in RECOMPUTE]
        seconds = np.array(
            [
                [
                    np.array([self.seconds[t, k] + [0, self.again(r) * self.seconds[t, k][0], 0] for k in self.kinds]).T
                    for r in every
                ]
                for t in range(self.types)
            ]
        )
        parameters = np.array([layer.parameters() for layer in model.blocks])
        kept = np.array([[self.stays(k, r) for k in self.kinds] for r in every])
        back = kept[0] - kept
        if not self.vocab:
            return seconds, parameters, kept, back
        ends = [np.array([self.seconds[t, k] for t in range(self.types)]) for k in (EMBEDDING, HEAD)]
        own = [model.embedding_parameters(), model.head_parameters()]
        bytes_ = [self.kept[EMBEDDING], self.kept[HEAD]]
        if candidate.empty_ends:
            first, last = (np.repeat(each[:, None, :, None], len(every), axis=1) for each in ends)
            seconds = np.concatenate((first, seconds, last), axis=-1)
            parameters = np.array([own[0], *parameters, own[1]])
            kept = np.pad(kept, ((0, 0), (1, 1)))
            back = np.pad(back, ((0, 0), (1, 1)))
        for at in (0, -1):
            if not candidate.empty_ends:
                seconds[..., at] += ends[at][:, None]
                parameters[at] += own[at]
            kept[:, at] += bytes_[at]
        return seconds, parameters, kept, back

    def plans(self, candidate: Candidate) -> Plans:
        """Every plan of a candidate, priced."""
        seconds, parameters, kept, back = self.parts(candidate)
        p, v = candidate.pp, candidate.vpp
        size, chunks = len(parameters), p * v
        kinds = [r for r in self.recompute if not (r == 2 and candidate.schedule == "zb-h1")]
        cuts = np.array([*combinations(range(1, size), chunks - 1)], np.int64).reshape(-1, chunks - 1)
        every = np.array([*product(kinds, repeat=chunks)], np.int64).reshape(-1, chunks)
        ends = np.repeat(np.column_stack((cuts, np.full(len(cuts), size))), len(every), axis=0)
        recompute = np.tile(every, (len(cuts), 1))
        firsts = np.column_stack((np.zeros(len(ends), np.int64), ends[:, :-1]))
        devices = np.array([*permutations(range(self.count))]).reshape(-1, p, self.dp)

        def sums(figure: Array) -> Array:
            until = np.concatenate((np.zeros((*figure.shape[:-1], 1)), figure.cumsum(axis=-1)), axis=-1)
            return until[..., ends] - until[..., firsts]

        chunk = np.arange(chunks)
        owned = sums(parameters).astype(np.int64)
        of_device = np.stack([owned[:, d::p].sum(axis=1) for d in range(p)], axis=1)
        row = np.arange(len(ends))[:, None]
        passes = sums(seconds)[:, recompute, :, row, chunk]
        # (n, C, types, 3) to (3, C, n, types).
        passes = np.transpose(passes, (3, 1, 0, 2))
        stays = sums(kept)[recompute, row, chunk].astype(np.int64)
        most = np.array([[back[:, a:b].max(axis=1, initial=0) for b in range(size + 1)] for a in range(size)])
        moment = most[firsts, ends, recompute]
        still = 18 * of_device + np.stack([moment[:, d::p].max(axis=1) for d in range(p)], axis=1)
        still += 2 * self._message()
        still[:, -1] += 8 * 16 * self.model.padded_vocab(1)
        types = self.type_of_node[devices // self.per_node]
        total = self._priced(candidate, passes, of_device, devices, types)
        return Plans(
            ends=ends,
            recompute=recompute,
            stays=stays,
            need=still + np.stack([self._kept(candidate, d, stays) for d in range(p)], axis=1),
            still=still,
            devices=devices,
            types=types,
            seconds=total,
            fits=np.ones(total.shape, np.bool_),
        )

    def _kept(self, candidate: Candidate, device: int, stays: Array) -> Array:
        counts = held(candidate.schedule, candidate.pp, candidate.vpp, candidate.num_micro_batches)
        return (stays @ np.array([each for d, each in counts if d == device]).T).max(axis=1)

    def _message(self) -> int:
        return 2 * 16 * 32

    def _link(self, one: Ints, other: Ints) -> Floats:
        """Seconds of a message from one device to another."""
        a, b = one // self.per_node, other // self.per_node
        rate = np.where(a == b, self.within, self.rates[a, b]) * 1e9
        return np.where(a == b, 0.0, 1e-6 * self.waits) + self._message() / rate

    def _slower(self, one: Ints, other: Ints) -> Floats:
        """Seconds a byte between two devices, the slower direction."""
        a, b = one // self.per_node, other // self.per_node
        return 1 / (np.where(a == b, self.within, np.minimum(self.rates[a, b], self.rates[b, a])) * 1e9)

    def _priced(self, candidate: Candidate, passes: Floats, owned: Ints, devices: Ints, types: Ints) -> Floats:
        """Seconds of plans on placements, (n, q)."""
        p, v, m = candidate.pp, candidate.vpp, candidate.num_micro_batches
        host = np.arange(p * v) % p
        # (3, C, n, q, dp) and (C - 1, 1, q, dp).
        taken = np.stack([passes[:, c][..., types[:, host[c]]] for c in range(p * v)], axis=1)
        at = devices[:, host]
        hops = (self._link(at[:, :-1], at[:, 1:]) + self._link(at[:, 1:], at[:, :-1])) / 2
        ends = simulate(candidate.schedule, p, v, m, taken, np.swapaxes(hops, 0, 1)[:, None]).max(axis=-1)
        backward = np.stack([taken[1:, d::p].sum(axis=(0, 1)).max(axis=-1) for d in range(p)])
        reduced = np.zeros(ends.shape)
        owned = owned.T[:, :, None]
        if self.dp == 2:
            alike = devices[..., 0] // self.per_node == devices[..., 1] // self.per_node
            inverse = np.where(alike, 2.0, 1.0) * self._slower(devices[..., 0], devices[..., 1])
            reduced = 4 * owned * inverse.T[:, None]
            if self.overlap:
                reduced = np.maximum(reduced * np.minimum(1.0, BUCKET / owned), reduced - backward)
        found = (ends + reduced).max(axis=0)
        if self.tied:
            inverse = self._slower(devices[:, 0], devices[:, -1]).max(axis=-1)
            found = np.maximum(found, np.maximum(ends[0], ends[-1]) + 4 * self.model.embedding_parameters() * inverse)
        optimizer = self.optimizer[types].max(axis=-1).T[:, None] * owned
        return np.asarray(found + optimizer.max(axis=0))

    def fitted(self, plans: Plans) -> Plans:
        """Plans with what fits the memory of devices."""
        kib = [budget // KIB for budget in self.budgets]
        free = KIB * np.array([each - int(np.ceil(self.margin * each)) for each in kib])
        room = free[plans.types].min(axis=-1)
        return replace(plans, fits=(plans.need[:, None] <= room).all(axis=-1))

    def tighten(self, plans: Sequence[Plans]) -> None:
        """Draw the memory of devices: near what some plan needs, too little for any, or enough for all."""
        if not plans:
            # No candidate has a plan, whatever the memory.
            return
        most = np.concatenate([each.need.max(axis=1) for each in plans])
        share = float(self.rng.choice([-0.05, 0.05, 0.1, 0.3, 0.6, 1.2], p=[0.05, 0.2, 0.2, 0.2, 0.15, 0.2]))
        need = most.min() + share * (most.max() - most.min()) + (4096 if share > 0 else -4096)
        scales = [1.0, *self.rng.uniform(0.9, 1.2, self.types - 1)]
        self.budgets = [int(need * scale / (1 - self.margin) / KIB) * KIB + KIB for scale in scales]


def strategy(candidate: Candidate, plans: Plans, k: int) -> Strategy:
    """Plan k of a candidate as taut states it."""
    ends, names = plans.ends[k].tolist(), tuple(RECOMPUTE[r] for r in plans.recompute[k].tolist())
    division = Division(tuple(zip((0, *ends[:-1]), ends, strict=True)), names)
    return Strategy(candidate=candidate, division=division)


def drawn(
    seed: int, *, racked: bool = False, mixed: bool = False
) -> tuple[PlanningProblem, list[tuple[Candidate, Plans]]]:
    """A problem, and the plans of every candidate."""
    figures = Drawn(seed, racked=racked, mixed=mixed)
    roomy = figures.problem()
    every = [(candidate, figures.plans(candidate)) for candidate in roomy.candidates]
    figures.tighten([plans for _, plans in every])
    return figures.problem(), [(candidate, figures.fitted(plans)) for candidate, plans in every]
