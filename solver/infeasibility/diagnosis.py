"""
Why no plan fits, by how much, and the remedies: each computed, none guessed.

The nearest candidate is the one whose best division of layers exceeds memory least; every stage of that division that
does not fit is named with its device and the bytes that are missing (``taut.solver.infeasibility.feasibility``), or,
where the hosts' memory is full, what lacks of that. Remedies (``taut.solver.infeasibility.remedies``) that need no more
hardware come first, by their lower bound, then more nodes and larger devices. Bounds are compared with that of the same
problem on devices of unlimited memory. Ctrl-C leaves what was found by then. More hardware is tried first, for at most
half of the seconds, since changes have far more candidates and would leave it none.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache, partial
from time import perf_counter
from typing import Any

import numpy as np

from taut.data.costs import CostTable
from taut.data.units import GIB, KIB
from taut.formulations.problem import PlanningProblem
from taut.solver.branch_and_bound.stop import interrupt_requested
from taut.solver.infeasibility.feasibility import best_division, best_fit, least_need, nearest_division
from taut.solver.infeasibility.remedies import (
    MOST_KIB,
    HostShortfall,
    Remedy,
    changes,
    is_full,
    larger_hosts,
    least_host_room,
    more_hardware,
    with_room,
    without_memory_limits,
)
from taut.solver.placement.exact.memory_assignment import StageNeeds, least_missing
from taut.solver.result import CandidateBound, SearchResult, State

MOST_NAMED = 3
"""Stages that the sentence names beside the worst one, and remedies without more hardware beside the nearest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """A stage that does not fit, alike on ``devices`` of them: the first device in node order, and bytes."""

    stage: int
    device: int
    device_type: str
    devices: int
    missing_bytes: int
    capacity_bytes: int
    needed_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Infeasibility:
    """
    The nearest division, the stages that do not fit, and the remedies, the cheapest first.

    ``unlimited_bound`` are seconds that no plan would beat if memory were unlimited; ``complete`` is false where Ctrl-C
    or the time limit came before all remedies were tried. Where hosts are full, ``hosts`` says what lacks there, and
    ``nearest`` is the division that would fit.
    """

    nearest: StageNeeds
    shortfalls: tuple[Shortfall, ...]
    remedies: tuple[Remedy, ...]
    unlimited_bound: float | None
    complete: bool
    hosts: HostShortfall | None = None

    def slowdown(self, remedy: Remedy) -> float | None:
        """Bound of a remedy relative to that without memory limits, less 1; below 0 with more hardware."""
        if not self.unlimited_bound or remedy.lower_bound is None:
            return None
        return remedy.lower_bound / self.unlimited_bound - 1

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        strategy = self.nearest.strategy
        return {
            "status": "infeasible",
            "candidate": {
                **strategy.candidate.as_dict(),
                "stages": [list(stage) for stage in strategy.layer_stages],
                "recompute": list(strategy.recompute),
            },
            "devices": [asdict(shortfall) for shortfall in self.shortfalls],
            **({"hosts": self.hosts.as_dict()} if self.hosts else {}),
            "unlimited_memory_lower_bound_s": self.unlimited_bound,
            "ways_out": [
                {
                    "change": remedy.change,
                    "detail": remedy.detail,
                    "step_time_lower_bound_s": remedy.lower_bound,
                    "slowdown": self.slowdown(remedy),
                    "candidate": remedy.candidate.as_dict(),
                }
                for remedy in self.remedies
            ],
            "complete": self.complete,
        }

    def __str__(self) -> str:
        """One sentence."""
        lacks = str(self.hosts) if self.hosts else _missing(self.shortfalls)
        return (
            f"no plan fits: the nearest, {self.nearest.strategy.candidate}, even with the best stages and "
            f"recompute lacks {lacks}; {self._remedies()}"
        )

    def _remedies(self) -> str:
        tried = "" if self.complete else "; stopped before all were tried, which a longer --time-limit does"
        if not self.remedies:
            return f"no way out found{tried}"
        nearest, *others = self.remedies
        kept = [remedy for remedy in others if not remedy.hardware][:MOST_NAMED] + [
            remedy for remedy in others if remedy.hardware
        ]
        words = [self._priced(remedy) for remedy in kept]
        words += [f"{len(others) - len(kept)} more"] if len(others) > len(kept) else []
        also = "; or: " + ", ".join(words) if words else ""
        limit = f" against {self.unlimited_bound:.3g} s with unlimited memory" if self.unlimited_bound else ""
        return f"nearest way out: {self._priced(nearest, limit)}{also}{tried}"

    def _priced(self, remedy: Remedy, limit: str = "") -> str:
        if remedy.lower_bound is None:
            return remedy.detail
        slowdown = self.slowdown(remedy)
        relative = "" if slowdown is None else f", {round(100 * slowdown):+d} %{limit}"
        return f"{remedy.detail} (at least {remedy.lower_bound:.3g} s a step{relative})"


def diagnose(
    problem: PlanningProblem,
    result: SearchResult,
    *,
    pricing: Callable[[int], CostTable] | None = None,
    seconds: float | None = None,
) -> Infeasibility:
    """Which devices lack memory, how much, and what would make a plan fit, tried for so many ``seconds`` at most."""
    began = perf_counter()
    refused = [bound for bound in result.bounds if bound.state is State.INFEASIBLE]
    # Of order-priced candidates the least missing bytes are known less closely.
    quickest = min((bound.candidate.effort for bound in refused), default=0)
    refused = [bound for bound in refused if bound.candidate.effort == quickest]
    nearest = nearest_division(problem, [(_lacking(problem, bound), bound.candidate) for bound in refused])
    with interrupt_requested() as interrupted:

        def stop(share: float = 1.0) -> bool:
            return interrupted() or (seconds is not None and perf_counter() - began > share * seconds)

        hosts, given = least_host_room(problem, stop), problem
        if is_full(nearest):
            given = with_room(problem, MOST_KIB)
            nearest = _on_larger_hosts(problem, given, hosts)
        needed = _sufficient(given, nearest) if any(nearest.missing) else None
        hardware = list(more_hardware(problem, needed, partial(stop, 0.5)))
        cut = stop(0.5)
        remedies = changes(problem, cache(pricing or (lambda largest: problem.costs)), stop)
        remedies += [] if hosts is None else larger_hosts(problem, hosts, stop)
        remedies += hardware
        unlimited = best_fit(without_memory_limits(given), stop=stop)
        return Infeasibility(
            nearest=nearest,
            shortfalls=_shortfalls(problem, nearest),
            remedies=tuple(remedies),
            unlimited_bound=None if unlimited is None else unlimited.lower_bound,
            complete=not (cut or stop()),
            hosts=None if any(nearest.missing) else hosts,
        )


def _on_larger_hosts(problem: PlanningProblem, unlimited: PlanningProblem, hosts: HostShortfall | None) -> StageNeeds:
    """The division that fits with enough of the hosts' memory, or else the nearest one with ``unlimited`` hosts."""
    if hosts is not None:
        return best_division(with_room(problem, hosts.needed_bytes // KIB), hosts.candidate)
    return nearest_division(unlimited, [(least_need(unlimited, each), each) for each in problem.candidates])


def _lacking(problem: PlanningProblem, bound: CandidateBound) -> int:
    """Bytes that a candidate lacks: those of its proof, or of its best assignment where a proof names none."""
    if "missing_kib" in bound.witness:
        return int(bound.witness["missing_kib"]) * KIB
    found = least_missing(problem, bound.candidate)
    return 0 if found is None else max(found.missing)


def _sufficient(problem: PlanningProblem, nearest: StageNeeds) -> int:
    """Bytes that every device must have beside its margin for the leanest candidate."""
    if len(problem.device_types) == 1:
        return max(nearest.needed)
    return min(least_need(problem, candidate) for candidate in problem.candidates)


def _shortfalls(problem: PlanningProblem, nearest: StageNeeds) -> tuple[Shortfall, ...]:
    """The stages that do not fit, the worst first; stages take the devices of a type in node order."""
    of_device = problem.type_of_node[problem.links.node_of]
    kinds, each = nearest.device_types, nearest.strategy.candidate.pipelines * nearest.strategy.candidate.width
    found = []
    for x, (kind, missing) in enumerate(zip(kinds, nearest.missing, strict=True)):
        if missing:
            devices = np.flatnonzero(of_device == kind)
            found.append(
                Shortfall(
                    stage=x,
                    device=int(devices[min(kinds[:x].count(kind) * each, len(devices) - 1)]),
                    device_type=problem.device_types[kind],
                    devices=each,
                    missing_bytes=missing,
                    capacity_bytes=problem.capacity_kib[kind] * KIB,
                    needed_bytes=nearest.needed[x],
                )
            )
    return tuple(sorted(found, key=lambda shortfall: -shortfall.missing_bytes))


def _missing(shortfalls: tuple[Shortfall, ...]) -> str:
    """The worst stage in full, the next ones in short."""
    worst, *others = shortfalls
    margin = worst.capacity_bytes - worst.needed_bytes + worst.missing_bytes
    words = [
        f"{_gib(worst.missing_bytes)} ({worst.missing_bytes} bytes) on device {worst.device} ({worst.device_type}, "
        f"stage {worst.stage}), which has {worst.capacity_bytes / GIB:g} GiB less {_gib(margin)} of margin"
    ]
    words += [f"{_gib(one.missing_bytes)} on device {one.device} (stage {one.stage})" for one in others[:MOST_NAMED]]
    if len(others) > MOST_NAMED:
        words.append(f"up to {_gib(others[MOST_NAMED].missing_bytes)} on {len(others) - MOST_NAMED} more stages")
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _gib(count: int) -> str:
    return f"{count / GIB:.2f} GiB"
