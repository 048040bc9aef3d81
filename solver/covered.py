r"""
Bound ``cover`` of a candidate whose tensor groups fill one node each, and its witness.

With V(g) the least communication for gradients of g bytes by the staircase of ``taut.solver.cover``,

(1) LB = min over the layers j that stage 0 takes of [partition with stage 0 ending at j] + V(gradients of j);
(2) hops are priced at the smallest message; a cut adds its further bytes at the fastest link.

The witness is the staircase: node potentials, gains, thresholds. Everything else follows from the problem.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from taut.data.spec import digest
from taut.formulations.latency import optimizer_shards
from taut.formulations.partition import partition_problem
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.solver.bestlinks import BestLinks
from taut.solver.bounds import ROUNDING
from taut.solver.cover import Cover
from taut.solver.forest import Potentials
from taut.solver.joint import linked
from taut.solver.partition import Partition, solve_partition
from taut.solver.paths import PathAnnealing
from taut.solver.refutation import Refutation
from taut.solver.staircase import CoverBound, PathProof, Staircase, Step, bound_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
MOST_NODES = 192
"""Beyond this a pass over the walks takes seconds."""
ANNEALING_RUNS = 2
MOVES_PER_NODE = 60_000
MOST_UPDATES = 200_000_000
"""Updates of walks in one refinement, so that Ctrl-C is answered within a second or two."""


def has_cover(problem: PlanningProblem, candidate: Candidate) -> bool:
    """
    Whether the staircase bounds a candidate: alike devices, every tensor group one node of them, unlike links.

    Where all nodes are linked alike, every placement costs the same, and ``partition`` says what.
    """
    links = problem.links
    return (
        candidate.pp > 1
        and len(problem.device_types) == 1
        and links.by_node
        and 1 < links.num_nodes <= MOST_NODES
        and bool((links.gpus_per_node == candidate.tp).all())
        and problem.latency_model != "amp"
        and problem.transfer_weight(candidate) > 0.0
        and not (_alike(links.latency) and _alike(links.data_rate) and _alike(links.pipeline_rate(candidate.tp)))
    )


def _alike(matrix: Floats) -> bool:
    """Whether all entries off the diagonal are equal."""
    apart = matrix[~np.eye(len(matrix), dtype=bool)]
    return bool((apart == apart[0]).all())


def node_links(problem: PlanningProblem, candidate: Candidate) -> tuple[Floats, Floats]:
    """Seconds of a hop there and back at the smallest message, and of a ring by byte, between nodes; symmetric."""
    message = float(problem.tables(candidate).message[1:-1].min())
    hops = problem.links.hop_seconds(candidate.tp, message, both_ways=True)
    inverse = 1.0 / problem.links.data_rate
    return hops, np.maximum(inverse, inverse.T)


def ring_factors(problem: PlanningProblem, candidate: Candidate) -> Floats:
    """Seconds of the ring per unit of the slowest inverse rate, by the layers that stage 0 takes."""
    share = 2.0 * (candidate.dp - 1) / candidate.dp
    return np.asarray(share * problem.gradient_bytes(candidate)[0])


def cover_bound(
    problem: PlanningProblem, candidate: Candidate, best: BestLinks, bound: CoverBound
) -> tuple[float, Partition]:
    """Bound (1) and the partition that attains it; infinite if no division fits."""
    edge, tail, _ = _priced(problem, candidate, best, bound)
    found = solve_partition(partition_problem(problem, candidate), edge, tail)
    return found.seconds * (1 - ROUNDING), found


def _priced(
    problem: PlanningProblem, candidate: Candidate, best: BestLinks, bound: CoverBound
) -> tuple[Floats, Floats, Floats]:
    """Edge and tail seconds with the staircase's communication, and the part of the tail that is none."""
    message = float(problem.tables(candidate).message[1:-1].min())
    edge, tail = linked(problem, candidate, best, message)
    optimizer = problem.optimizer_seconds.min() * problem.tables(candidate).parameters[0] / optimizer_shards(candidate)
    fixed = optimizer + problem.constant_seconds
    covered = bound.seconds(problem.transfer_weight(candidate), ring_factors(problem, candidate)) + fixed
    return edge, np.maximum(tail, covered), fixed


@dataclass
class CoverCache:
    """Staircases under construction, shared by the candidates with the same pipelines and hops."""

    _covers: dict[tuple[int, int, float], Cover] = field(default_factory=dict)

    def cover(self, problem: PlanningProblem, candidate: Candidate, pipelines: Ints) -> Cover:
        """The staircase of a candidate; (dp, pp) nodes of a good placement's pipelines serve where it is new."""
        message = float(problem.tables(candidate).message[1:-1].min())
        key = (candidate.tp, candidate.pp, message)
        if key not in self._covers:
            hops, inverse = node_links(problem, candidate)
            longest = float(hops[pipelines[:, :-1], pipelines[:, 1:]].sum(axis=1).max())
            cover = Cover(hops=hops, inverse=inverse, pp=candidate.pp, ring=0.0, target=longest, longest=longest)
            cover.offer(pipelines)
            self._covers[key] = cover
        return self._covers[key]


class Covering:
    """
    One candidate on the way: first its pipelines are annealed, then its staircase is refined.

    ``lower_bound`` is the bound (1) of the staircase so far.
    """

    def __init__(
        self,
        problem: PlanningProblem,
        candidate: Candidate,
        partition: Partition,
        best: BestLinks,
        cache: CoverCache,
    ) -> None:
        self.partition, self.lower_bound = partition, -np.inf
        self._problem, self._candidate, self._best, self._cache = problem, candidate, best, cache
        self._stages = partition_problem(problem, candidate)
        self._links = node_links(problem, candidate)
        self._runs: list[PathAnnealing] = []
        self._pipelines = np.zeros((0, candidate.pp), np.int64)
        self._kept: Staircase | None = None

    @property
    def annealed(self) -> bool:
        """Whether the pipelines are annealed."""
        return bool(self._runs) and all(run.finished for run in self._runs)

    def _ring(self) -> float:
        """Seconds of the ring per unit of the slowest inverse rate, in seconds of unweighted hops."""
        weight = self._problem.transfer_weight(self._candidate)
        return float(ring_factors(self._problem, self._candidate)[self.partition.stages[0][1]]) / weight

    def anneal(self, seed: int, workers: int, *, moves: int | None = None) -> list[Ints]:
        """Some moves of every run; positions (pp dp, 1) of the best pipelines when all runs are done."""
        (hops, inverse), ring = self._links, self._ring()
        n, pp = len(hops), self._candidate.pp
        if not self._runs:
            for run in range(ANNEALING_RUNS):
                number = seed * ANNEALING_RUNS + run
                start = np.random.default_rng(number).permutation(n).reshape(-1, pp)
                made = moves or MOVES_PER_NODE * n
                self._runs.append(PathAnnealing(hops, inverse, ring, start, moves=made, seed=number))
        with ThreadPoolExecutor(max_workers=max(workers, 1)) as pool:
            list(pool.map(PathAnnealing.advance, self._runs))
        if not self.annealed:
            return []
        best = min(self._runs, key=lambda run: run.seconds)
        self._pipelines = best.best
        return [best.best.reshape(-1, 1)]

    def refine(self, value: float) -> bool:
        """
        Refine the staircase for an incumbent of ``value`` seconds; returns whether anything is left to refine.

        Proofs are sought until the bound reaches the incumbent for the layers of stage 0 that attain the minimum.
        """
        problem, candidate = self._problem, self._candidate
        cover = self._cache.cover(problem, candidate, self._pipelines)
        room = self._evaluate(cover, value)
        weight, end = problem.transfer_weight(candidate), self.partition.stages[0][1]
        cover.ring, cover.target = self._ring(), room[end] / weight
        passes = MOST_UPDATES / (len(cover.hops) ** 2 * candidate.pp * cover.levels)
        more = cover.refine(rounds=int(np.clip(passes, 2, 40)))
        self._evaluate(cover, value)
        return more

    def _evaluate(self, cover: Cover, value: float) -> Floats:
        """Bring the bound up to date; communication at which it would reach ``value``, by layers of stage 0."""
        bound = cover.bound()
        edge, tail, fixed = _priced(self._problem, self._candidate, self._best, bound)
        found = solve_partition(self._stages, edge, tail)
        self.partition = found
        if found.seconds * (1 - ROUNDING) > self.lower_bound:
            self.lower_bound, self._kept = found.seconds * (1 - ROUNDING), cover.staircase()
        return np.asarray(tail - fixed + (value - found.seconds))

    def witness(self) -> dict[str, Any]:
        """Witness of ``lower_bound``."""
        return {} if self._kept is None else witness_of(self._kept)


class _Proof(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    nodes: list[int]
    potentials: list[int] | None = None
    quantum_s: float | None = None
    levels: int | None = None
    gains: list[int] | None = None

    def proof(self) -> PathProof | None:
        nodes = tuple(self.nodes)
        if self.potentials is not None:
            return PathProof(nodes=nodes, by=Potentials(values=tuple(self.potentials)))
        if self.quantum_s is None or self.levels is None or self.gains is None:
            return None
        by = Refutation(quantum=self.quantum_s, levels=self.levels, gains=tuple(self.gains))
        return PathProof(nodes=nodes, by=by)


class _Step(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    threshold_s_per_byte: float
    proofs: list[int]


class _Witness(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    proofs: list[_Proof]
    steps: list[_Step]
    sha256: str


def witness_of(staircase: Staircase) -> dict[str, Any]:
    """The staircase as plain JSON values with their digest."""
    values = {
        "proofs": [_proof_values(proof) for proof in staircase.proofs],
        "steps": [
            {"threshold_s_per_byte": float(step.threshold), "proofs": list(step.proofs)} for step in staircase.steps
        ],
    }
    return {**values, "sha256": digest(values)}


def _proof_values(proof: PathProof) -> dict[str, Any]:
    nodes, by = list(proof.nodes), proof.by
    if isinstance(by, Potentials):
        return {"nodes": nodes, "potentials": list(by.values)}
    return {"nodes": nodes, "quantum_s": float(by.quantum), "levels": by.levels, "gains": list(by.gains)}


def witnessed(problem: PlanningProblem, candidate: Candidate, witness: dict[str, Any]) -> CoverBound | None:
    """The staircase that a witness proves for a candidate; None where it is malformed, altered or proves nothing."""
    try:
        parsed = _Witness.model_validate(witness)
    except ValidationError:
        return None
    if digest({name: value for name, value in witness.items() if name != "sha256"}) != parsed.sha256:
        return None
    proofs = [section.proof() for section in parsed.proofs]
    kept = tuple(proof for proof in proofs if proof is not None)
    if len(kept) != len(proofs):
        return None
    steps = tuple(Step(threshold=step.threshold_s_per_byte, proofs=tuple(step.proofs)) for step in parsed.steps)
    hops, inverse = node_links(problem, candidate)
    return bound_of(hops, inverse, candidate.pp, Staircase(proofs=kept, steps=steps))
