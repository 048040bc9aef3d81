r"""
Pipelines of meshes: which degrees the stages on each type of device have.

Sets: types of device k with :math:`N_k` devices each, all of which are used; layers :math:`0, \dots, L - 1`; global
batch g. A mesh is a run of consecutive stages on all devices of one type, with degrees of its own:

(1) :math:`tp_k \, dp_k \, pp_k = N_k`; meshes stand in any order, and :math:`\sum_k pp_k \le L`;
(2) the pipeline takes B sequences at once, B a divisor of g and a multiple of every :math:`dp_k`. Mesh k has
    micro-batches of :math:`B / dp_k` sequences, and all meshes have m = g / B of them;
(3) :math:`tp_k` divides every layer and the size of every node of its type, is at most ``max_tp``, and where it is more
    than 1 tensor ranks share what lies between their parts (sequence parallelism), so it divides every sequence;
(4) every layer has a price at (:math:`tp_k`, :math:`B / dp_k`) on every type of device;
(5) where the first and the last stage share an embedding, their meshes have equal tp and dp;
(6) stages run in 1F1B, and all have ZeRO-0, or ZeRO-1 where their mesh has several replicas; contexts and experts are
    not divided; recompute is that of ``taut.formulations.space`` (8).

(7) Stage x of mesh k has the seconds, bytes and gradients that a stage x of an ordinary pipeline of all P stages would
    have at the degrees of mesh k: the candidate :math:`(P, tp_k, dp_k, B / dp_k, m)`, whose degrees need not multiply
    to the number of devices.
(8) Replicas of neighbouring meshes that exchange some sequence run in step. With D the greatest common divisor of all
    dp they are D pipelines, and pipeline c has the replicas :math:`c \, dp_k / D` to :math:`(c + 1) \, dp_k / D - 1`.

Source: FlagScale of November 2025, flagscale/train/arguments.py, ``pre_validate_args``: (1), (2), (5) (where replicas
differ it asks for more than equal tensor degrees) and (6), which has no chunks; flagscale/train/hetero, which cuts
activations along the sequence and so relies on (3).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations, product
from math import gcd

from taut.formulations.candidates import priced
from taut.formulations.degrees import divisors
from taut.formulations.mechanisms.recompute import recompute_of
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate


@dataclass(frozen=True, slots=True, order=True)
class Mesh:
    """Degrees of the stages on one type of device, which ``kind`` counts in the order of the cluster's types."""

    kind: int
    tp: int
    dp: int
    pp: int
    micro_batch: int

    def candidate(self, pp: int, num_micro_batches: int, zero: int = 0, recompute: str = "") -> Candidate:
        """The ordinary candidate of a pipeline of ``pp`` stages that those of the mesh are priced as, (7)."""
        degrees = pp, self.tp, self.dp, 1, self.micro_batch, num_micro_batches
        return Candidate(*degrees, "1f1b", zero if self.dp > 1 else 0, self.tp > 1, (), 0, recompute)


@dataclass(frozen=True, slots=True, order=True)
class MeshChoice:
    """Meshes in the order of the stages, with what all of them share; ``recompute`` of every stage, or empty."""

    meshes: tuple[Mesh, ...]
    num_micro_batches: int
    zero: int
    recompute: str = ""

    @property
    def pp(self) -> int:
        """Stages of all meshes, P."""
        return sum(mesh.pp for mesh in self.meshes)

    @property
    def pipelines(self) -> int:
        """Pipelines that run apart, D of (8)."""
        return gcd(*(mesh.dp for mesh in self.meshes))

    @property
    def mesh_of_stage(self) -> list[int]:
        """Place of every stage's mesh among the meshes, (P,)."""
        return [k for k, mesh in enumerate(self.meshes) for _ in range(mesh.pp)]

    @property
    def first_stages(self) -> list[int]:
        """First stage of every mesh."""
        return [sum(mesh.pp for mesh in self.meshes[:k]) for k in range(len(self.meshes))]

    def candidate(self, k: int) -> Candidate:
        """The ordinary candidate that stages of the mesh at place k are priced as, (7)."""
        return self.meshes[k].candidate(self.pp, self.num_micro_batches, self.zero, self.recompute)

    def words(self, types: list[str]) -> str:
        """One line."""
        each = [f"{types[m.kind]}: tp={m.tp} dp={m.dp} pp={m.pp} micro_batch={m.micro_batch}" for m in self.meshes]
        return "; ".join(each) + (f"; zero={self.zero}" if self.zero else "")


def choices_at(problem: PlanningProblem, together: int) -> Iterator[list[MeshChoice]]:
    """Choices whose pipeline takes so many sequences at once, (1) to (6), as lists, which may be empty."""
    kinds = range(len(problem.device_types))
    options = [meshes_of_type(problem, kind, together) for kind in kinds]
    for order in permutations(kinds):
        for meshes in product(*(options[kind] for kind in order)):
            yield [*_shared(problem, meshes, problem.space.global_batch // together)]


def meshes_of_type(problem: PlanningProblem, kind: int, together: int) -> list[Mesh]:
    """Meshes of one type in a pipeline that takes so many sequences at once, (1) to (4)."""
    found = [Mesh(kind, tp, dp, pp, together // dp) for tp, dp, pp in _degrees(problem, kind) if together % dp == 0]
    return [mesh for mesh in found if priced(problem.model, problem.cluster, problem.costs, mesh.candidate(2, 1))]


def _degrees(problem: PlanningProblem, kind: int) -> list[tuple[int, int, int]]:
    """Degrees tp, dp and pp of one type's mesh, (1) and (3)."""
    sizes, layers = problem.links.gpus_per_node[problem.type_of_node == kind], problem.model
    fits = [
        tp
        for tp in divisors(int(sizes.min()))
        if tp <= problem.space.max_tp
        and not (sizes % tp).any()
        and layers.splits(tp)
        and all(layer.seq % tp == 0 for layer in layers.kinds.values())
    ]
    return [(tp, dp, int(sizes.sum()) // tp // dp) for tp in fits for dp in divisors(int(sizes.sum()) // tp)]


def _shared(problem: PlanningProblem, meshes: tuple[Mesh, ...], num_micro_batches: int) -> Iterator[MeshChoice]:
    """Choices of some meshes, (1), (5) and (6)."""
    space, pp, ends = problem.space, sum(mesh.pp for mesh in meshes), (meshes[0], meshes[-1])
    tied = problem.model.shares_embedding and len({(mesh.tp, mesh.dp) for mesh in ends}) > 1
    if pp > len(problem.model.blocks) or space.fixed.get("pp", pp) != pp or tied:
        return
    every = [""] if space.recompute_by_stage else recompute_of(space, "1f1b")
    for zero in space.zero_stages(pp, max(mesh.dp for mesh in meshes)):
        if zero < 2 and space.fixed.get("zero", zero) == zero:
            yield from (MeshChoice(meshes, num_micro_batches, zero, kind) for kind in every)
