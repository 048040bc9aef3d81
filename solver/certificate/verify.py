r"""
Checking a plan without trusting the search that made it.

Everything is read from the document. The check prices the plan with the one evaluator, enumerates the candidates of
the stated space again, and derives every bound again by the deterministic algorithm that its source names
(``taut.solver.certificate.rederive``).

A figure x is reproduced, and a bound b of a candidate allows its stated state, beside the objective J, if

.. math:: |x - x'| \le 10^{-9} \max(|x|, |x'|) \tag{1}

.. math:: \text{infeasible: } b = \infty; \quad \text{pruned, solved: } J (1 - 10^{-9}) \le b < \infty; \quad
    \text{open: } b < \infty \tag{2}

A document is accepted if every figure is reproduced, and every state and the status follow from the bounds.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from taut.data.spec import digest
from taut.errors import DataError
from taut.formulations.latency import StepTime, step_time, violations
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.formulations.strategy import Strategy
from taut.solver.certificate.document import (
    CandidateSection,
    PlanDocument,
    devices_of,
    parse_document,
    problem_digest,
    problem_of,
    strategy_of,
)
from taut.solver.certificate.figures import communication_gap, predicted, status_of
from taut.solver.certificate.rederive import Derivation
from taut.solver.result import Incumbent, relative_gap

TOLERANCE = 1e-9
MOST_FAULTS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """
    Outcome of a check: the faults (none if the plan holds), and what was derived again.

    ``claimed`` are figures of the certificate that were not derived, for want of a proof.
    """

    faults: tuple[str, ...]
    objective: float
    lower_bound: float
    candidates: int
    claimed: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether no fault was found."""
        return not self.faults

    @property
    def gap(self) -> float | None:
        """Gap of the derived bound."""
        return relative_gap(self.objective, self.lower_bound)


def verify_document(values: object, source: str = "plan") -> Verification:
    """
    Check a plan document.

    Parameters
    ----------
    values
        What the JSON file holds.
    source
        File name for messages.

    Raises
    ------
    DataError
        If this is not a plan document: a section is missing or a field has the wrong type.
    """
    document = parse_document(values, source)
    try:
        check = _examined(document, source)
    except DataError as error:
        # The document has the right form, but what it states cannot be.
        return Verification(faults=(str(error),), objective=math.nan, lower_bound=-math.inf, candidates=0)
    faults = check.digests() or check.plan()
    if not faults:
        faults = [*check.prediction(), *check.certificate()]
    return Verification(
        faults=tuple(faults[:MOST_FAULTS]),
        objective=check.incumbent.seconds,
        lower_bound=check.lower_bound,
        candidates=len(document.certificate.candidates),
        claimed=check.claimed,
    )


def _examined(document: PlanDocument, source: str) -> "_Check":
    """The document's problem, strategy and placement, read back."""
    strategy = strategy_of(document.strategy, source)
    devices = devices_of(document.placement, source)
    incumbent = Incumbent(strategy=strategy, devices=devices, seconds=document.certificate.objective_s)
    return _Check(problem_of(document, source), document, strategy, incumbent)


@dataclass
class _Check:
    """One document under examination, and the bound derived from it so far."""

    problem: PlanningProblem
    document: PlanDocument
    strategy: Strategy
    incumbent: Incumbent
    lower_bound: float = field(default=-math.inf)
    claimed: tuple[str, ...] = ()
    bounds: Derivation = field(init=False)

    def __post_init__(self) -> None:
        """Prepare the derivation of the problem's bounds."""
        self.bounds = Derivation(self.problem)

    def digests(self) -> list[str]:
        """Inputs and problem whose SHA-256 is not the stated one."""
        sections, stated = self.document.inputs, self.document.certificate
        faults = [
            f"inputs.{role} does not have the stated sha256"
            for role, section in sections.items()
            if digest(section.spec) != section.sha256
        ]
        named: dict[str, Any] = {str(role): {"sha256": section.sha256} for role, section in sections.items()}
        if problem_digest(named, stated.space, stated.latency_model) != stated.problem_sha256:
            faults.append("inputs, space and latency model do not have the stated problem_sha256")
        return faults

    def plan(self) -> list[str]:
        """What is wrong with strategy and placement themselves."""
        if self.strategy.candidate not in self.problem.candidates:
            return [f"strategy {self.strategy.candidate} is not a candidate of the stated space"]
        return list(violations(self.problem, self.strategy, self.incumbent.devices))

    def prediction(self) -> Iterator[str]:
        """Predicted figures that the evaluator does not reproduce."""
        time = self._time()
        wanted = predicted(self.problem, self.strategy, self.incumbent, time)
        stated = self.document.predicted.model_dump()
        yield from _differences("predicted", wanted, stated)
        if not _close(float(time.total), self.incumbent.seconds):
            yield f"objective_s is {self.incumbent.seconds}, the evaluator gives {float(time.total)}"

    def _time(self) -> StepTime:
        return step_time(self.problem, self.strategy, self.incumbent.devices)

    def certificate(self) -> list[str]:
        """Faults of bounds, states, gaps and status."""
        faults = self._candidates()
        if faults:
            return faults
        stated, objective = self.document.certificate, self.incumbent.seconds
        wanted: dict[str, Any] = self._margin_free()
        gap = relative_gap(objective, self.lower_bound)
        wanted |= {
            "lower_bound_s": self.lower_bound,
            "gap": gap,
            "verified_gap": gap,
            "communication_gap": communication_gap(self._time(), self.lower_bound),
        }
        for name, value in wanted.items():
            if not _close_or_small(value, getattr(stated, name), objective):
                faults.append(f"certificate.{name} is {getattr(stated, name)}, derived {value}")
        status = status_of(gap)
        if self.document.status != status:
            faults.append(f"status is {self.document.status}, the derived gap makes it {status}")
        return faults

    def _margin_free(self) -> dict[str, float]:
        """The bound without a memory margin by its proofs; one that is larger raises the derived global bound."""
        stated = self.document.certificate
        if stated.lower_bound_no_margin_s is None:
            return {}
        if stated.no_margin_proofs is None:
            self.claimed = ("lower_bound_no_margin_s",)
            return {}
        seconds = self.bounds.margin_free(stated.no_margin_proofs)
        self.lower_bound = max(self.lower_bound, seconds)
        return {"lower_bound_no_margin_s": seconds}

    def _candidates(self) -> list[str]:
        """Faults of the candidates' entries; sets the derived global bound."""
        wanted = self.problem.candidates
        entries = self.document.certificate.candidates
        if [_key(entry.strategy) for entry in entries] != [_key(candidate.as_dict()) for candidate in wanted]:
            return [f"the {len(entries)} candidates are not the {len(wanted)} of the stated space"]
        faults: list[str] = []
        least = self.incumbent.seconds
        for candidate, entry in zip(wanted, entries, strict=True):
            derived = self.bounds.derive(candidate, entry)
            faults += self._entry_faults(candidate, entry, derived)
            if entry.state in ("open", "pruned"):
                least = min(least, derived)
        self.lower_bound = least
        return faults

    def _entry_faults(self, candidate: Candidate, entry: CandidateSection, derived: float) -> Iterator[str]:
        """A stated bound that is not the derived one, and a state that (2) does not allow."""
        stated = math.inf if entry.lower_bound_s is None else entry.lower_bound_s
        if not _close(derived, stated):
            yield f"candidate {candidate}: {entry.source} bound is {entry.lower_bound_s}, derived {derived}"
        below = derived < self.incumbent.seconds * (1 - TOLERANCE)
        follows = {
            "infeasible": math.isinf(derived),
            "pruned": not below and math.isfinite(derived),
            "solved": not below and math.isfinite(derived),
            "open": math.isfinite(derived),
        }
        if not follows.get(entry.state, False):
            yield f"candidate {candidate}: state {entry.state!r} does not follow from its bound {derived}"


def _key(strategy: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(strategy.items()))


def _close(a: float, b: float) -> bool:
    """Whether figures are the same by (1)."""
    if not (math.isfinite(a) and math.isfinite(b)):
        return a == b
    return abs(a - b) <= TOLERANCE * max(abs(a), abs(b))


def _close_or_small(wanted: float | None, stated: float | None, scale: float) -> bool:
    """Close, or both unknown, or a difference that is rounding on the scale of the objective."""
    wanted = None if wanted is not None and not math.isfinite(wanted) else wanted
    if wanted is None or stated is None:
        return wanted is stated
    return _close(wanted, stated) or abs(wanted - stated) <= TOLERANCE * max(1.0, min(scale, 1.0))


def _differences(path: str, wanted: Any, stated: Any) -> Iterator[str]:
    """Where two nested values differ beyond rounding."""
    if isinstance(wanted, dict):
        if not isinstance(stated, dict) or wanted.keys() != stated.keys():
            yield f"{path} does not hold {sorted(wanted)}"
            return
        for name, value in wanted.items():
            yield from _differences(f"{path}.{name}", value, stated[name])
    elif isinstance(wanted, list):
        if not isinstance(stated, list) or len(wanted) != len(stated):
            yield f"{path} does not hold {len(wanted)} entries"
            return
        for index, value in enumerate(wanted):
            yield from _differences(f"{path}.{index}", value, stated[index])
    elif wanted is None or stated is None:
        if wanted is not stated:
            yield f"{path} is {stated}, recomputed {wanted}"
    elif not (_close(wanted, stated) or abs(wanted - stated) <= 1e-15):
        yield f"{path} is {stated}, recomputed {wanted}"
