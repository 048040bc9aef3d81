r"""
Figures of a plan, and its bounds, that writing computes and checking computes again.

(1) communication gap = min(1, (objective - lower bound) / (objective - compute)), compute being what every placement
    of this strategy pays: its computation and tensor-parallel all-reduces, and the optimizer; the bound on the rest is
    never below zero, though other strategies may pay less.

Two figures are the same but for rounding if

.. math:: |x - x'| \le 10^{-9} \max(|x|, |x'|). \tag{2}

A bound is derived again by the deterministic algorithm that its source names (``taut.solver.ladder.checks``). Neither
the branch and bound, nor annealing, nor any external solver takes part.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from taut.data.analytic.hardware_flop import executed_flop
from taut.data.units import KIB
from taut.formulations.latency import StepTime, memory_bytes
from taut.formulations.problem import PlanningProblem
from taut.formulations.schedules.plan_orders import device_of_chunk
from taut.formulations.space import Candidate
from taut.formulations.strategy import Strategy
from taut.solver.certificate.document import BoundSection, CandidateSection, ProofSection
from taut.solver.ladder.checks import Proof, derived_bound, derived_margin_free
from taut.solver.ladder.ladder import Ladder
from taut.solver.result import OPTIMALITY_GAP, Incumbent, Source, Status


class Derivation:
    """Derives the bounds of a problem again."""

    def __init__(self, problem: PlanningProblem) -> None:
        self._ladder = Ladder(problem)

    def prepare(self, candidates: Sequence[Candidate], entries: Sequence[CandidateSection]) -> None:
        """Relax the candidates whose bound is ``relaxation``, alike ones in a row."""
        relaxed = str(Source.RELAXATION)
        self._ladder.relax([c for c, entry in zip(candidates, entries, strict=True) if entry.source == relaxed])

    def derive(self, candidate: Candidate, entry: BoundSection) -> float:
        """The bound of a candidate that its entry's source and witness yield, in seconds."""
        return derived_bound(self._ladder, candidate, entry.source, entry.witness)

    def margin_free(self, entries: Sequence[ProofSection]) -> float:
        """The global bound without a memory margin that its proofs yield, in seconds."""
        return derived_margin_free(
            self._ladder,
            [Proof(candidate=entry.candidate, source=entry.source, witness=entry.witness) for entry in entries],
        )


ROUNDING = 1e-12
"""Relative seconds of communication below which they are rounding: two evaluators add their terms in other orders."""
BREAKDOWN = ("compute", "tensor_parallel", "pipeline_transfers", "data_parallel", "optimizer", "constant")


def status_of(gap: float | None) -> Status:
    """Status of a plan with a gap."""
    return Status.OPTIMAL if gap is not None and gap <= OPTIMALITY_GAP else Status.FEASIBLE


def predicted(problem: PlanningProblem, strategy: Strategy, incumbent: Incumbent, time: StepTime) -> dict[str, Any]:
    """The ``predicted`` section: times, memory of the worst device of each stage, throughput."""
    capacity = _stage_capacity(problem, incumbent)
    flops = problem.model.training_flops() * problem.space.global_batch
    peak = sum(
        node.gpus_per_node * (node.device.peak_flops(problem.memory.precision) or math.inf)
        for node in problem.cluster.node_list
    )
    seconds = float(time.total)
    return {
        "step_time_s": seconds,
        "breakdown_s": {part: float(getattr(time, part)) for part in BREAKDOWN},
        "memory_bytes": memory_bytes(problem, strategy),
        "margin_bytes": [problem.memory.margin_kib(kib) * KIB for kib in capacity],
        "capacity_bytes": [kib * KIB for kib in capacity],
        "tokens_per_s": problem.space.global_batch * problem.model.tokens / seconds if seconds else None,
        "mfu": flops / seconds / peak if seconds else None,
        "hfu": _hardware_utilisation(problem, incumbent),
    }


def _hardware_utilisation(problem: PlanningProblem, incumbent: Incumbent) -> float | None:
    """Executed FLOP over what the peaks of all devices allow while they compute, None where they take no time."""
    strategy, candidate = incumbent.strategy, incumbent.strategy.candidate
    ranges = zip(strategy.recompute, strategy.layer_stages, strict=True)
    layers = [kind for kind, (first, end) in ranges for _ in range(first, end)]
    kept = problem.calibration or problem.memory
    flop = executed_flop(problem.model, layers, problem.space.recompute_modules, kept.selective_products)
    types = problem.type_of_node[problem.links.node_of[incumbent.devices]]
    of_chunk = types[device_of_chunk(candidate.schedule, candidate.pp, candidate.vpp)]
    seconds = problem.tables(candidate).seconds[:, *strategy.ranges]
    specs = [problem.cluster.devices[name] for name in problem.device_types]
    peaks = np.array([spec.peak_flops(problem.memory.precision) or math.inf for spec in specs])
    offered = (peaks[:, None] * seconds)[of_chunk, np.arange(len(seconds[0]))[:, None, None]]
    total = float((offered * strategy.batches[:, None]).sum())
    return flop * problem.space.global_batch / total if 0.0 < total < math.inf else None


def _stage_capacity(problem: PlanningProblem, incumbent: Incumbent) -> list[int]:
    """KiB of the smallest device that runs each stage."""
    types = problem.type_of_node[problem.links.node_of[incumbent.devices]]
    return [min(problem.capacity_kib[kind] for kind in set(stage.ravel().tolist())) for stage in types]


def paid(time: StepTime) -> float:
    """Seconds that every placement of the strategy pays, (1)."""
    return float(time.compute + time.tensor_parallel + time.optimizer + time.constant)


def communication_gap(objective: float, paid: float, lower_bound: float) -> float | None:
    """Gap of the communication part, (1); None where it is not defined, as where all communication is rounding."""
    communication = objective - paid
    slack, rounding = objective - lower_bound, ROUNDING * objective
    if slack <= 0.0 or (communication <= rounding and slack <= 2 * rounding):
        return 0.0
    return min(slack / communication, 1.0) if communication > rounding and math.isfinite(slack) else None


TOLERANCE = 1e-9


def is_close(a: float, b: float) -> bool:
    """Whether figures are the same by (2)."""
    if not (math.isfinite(a) and math.isfinite(b)):
        return a == b
    return abs(a - b) <= TOLERANCE * max(abs(a), abs(b))


def is_close_or_small(wanted: float | None, stated: float | None, scale: float) -> bool:
    """Close, or both unknown, or a difference that is rounding on the scale of the objective."""
    wanted = None if wanted is not None and not math.isfinite(wanted) else wanted
    if wanted is None or stated is None:
        return wanted is stated
    return is_close(wanted, stated) or abs(wanted - stated) <= TOLERANCE * max(1.0, min(scale, 1.0))


def differences(path: str, wanted: Any, stated: Any) -> Iterator[str]:
    """Where two nested values differ beyond rounding."""
    if isinstance(wanted, dict):
        if not isinstance(stated, dict) or wanted.keys() != stated.keys():
            yield f"{path} does not hold {sorted(wanted)}"
            return
        for name, value in wanted.items():
            yield from differences(f"{path}.{name}", value, stated[name])
    elif isinstance(wanted, list):
        if not isinstance(stated, list) or len(wanted) != len(stated):
            yield f"{path} does not hold {len(wanted)} entries"
            return
        for index, value in enumerate(wanted):
            yield from differences(f"{path}.{index}", value, stated[index])
    elif wanted is None or stated is None:
        if wanted is not stated:
            yield f"{path} is {stated}, recomputed {wanted}"
    elif not (is_close(wanted, stated) or abs(wanted - stated) <= 1e-15):
        yield f"{path} is {stated}, recomputed {wanted}"


def finite(value: float | None) -> float | None:
    """The value, or None where it is unknown."""
    return value if value is not None and math.isfinite(value) else None
