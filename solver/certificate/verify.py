r"""
Checking a plan without trusting the search that made it.

Everything is read from the document. The check prices the plan, adds up its memory and enumerates the candidates of the
stated space with an evaluator of its own (``taut.solver.certificate.reference``), and derives every bound again by the
deterministic algorithm that its source names (``taut.solver.certificate.rederive``). Those algorithms share their
prices with the search, so bounds are attacked too: no bound of the plan's own candidate may exceed J, and sampled
plans, priced by the reference evaluator, may undercut none (``taut.solver.certificate.sampling``).

A figure x is reproduced, and a bound b of a candidate allows its stated state, beside the objective J, if

.. math:: |x - x'| \le 10^{-9} \max(|x|, |x'|) \tag{1}

.. math:: \text{infeasible: } b = \infty; \quad \text{pruned, solved: } J (1 - 10^{-9}) \le b < \infty; \quad
    \text{open: } b < \infty \tag{2}

.. math:: b \le J (1 + 10^{-9}) \text{ for the candidate of the plan, and for the derived global bound} \tag{3}

A document is accepted if every figure is reproduced, and every state and the status follow from the bounds.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from taut.errors import DataError
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.solver.certificate.closeness import TOLERANCE, differences, is_close, is_close_or_small
from taut.solver.certificate.devices import devices_of
from taut.solver.certificate.document import (
    CandidateSection,
    MeshDocument,
    PlanDocument,
    check_stages,
    parse_plan,
    problem_of,
    strategy_of,
)
from taut.solver.certificate.examined import Examined, case_of
from taut.solver.certificate.figures import communication_gap, status_of
from taut.solver.certificate.meshes import MeshCheck
from taut.solver.certificate.narrowed import narrowed
from taut.solver.certificate.node_counts import OverNodes, check_node_counts
from taut.solver.certificate.rederive import Derivation
from taut.solver.certificate.reference.candidates import candidates
from taut.solver.certificate.reference.space import Choice
from taut.solver.certificate.sampling import KnownPlan, Sample, sample
from taut.solver.certificate.simulated import simulated_faults
from taut.solver.certificate.spaces import BOTH, NAME, WithoutPlan, claim_of_both, differing_spaces, other_space
from taut.solver.certificate.stated_inputs import input_faults
from taut.solver.result import relative_gap

MOST_FAULTS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """
    Outcome of a check: the faults (none if the plan holds), and what was derived again.

    ``candidates`` counts the candidates of the space, or the choices of meshes. ``claimed`` are figures of the
    certificate without a proof, which were not derived. ``sampled`` plans were priced against the bounds of their
    candidates; ``feasible_samples`` of them break no rule. ``narrowed`` names what the plan's space leaves out of the
    default space. ``over_nodes`` is the bound over all numbers of nodes.
    """

    faults: tuple[str, ...]
    objective: float
    lower_bound: float
    candidates: int
    claimed: tuple[str, ...] = ()
    sampled: int = 0
    feasible_samples: int = 0
    narrowed: tuple[str, ...] = ()
    over_nodes: OverNodes | None = None

    @property
    def holds(self) -> bool:
        """Whether no fault was found."""
        return not self.faults

    @property
    def gap(self) -> float | None:
        """Gap of the derived bound."""
        return relative_gap(self.objective, self.lower_bound)


def verify_plan(values: dict[str, Any], source: str = "plan") -> Verification:
    """
    Check a document of either space, with the other space's where it holds one (``taut.solver.certificate.spaces``).

    ``values``: what the JSON file holds; ``source``: file name for messages. Raises ``DataError`` if this is no plan
    document: a section is missing or a field has the wrong type.
    """
    own, other = verify_document(values, source), other_space(values, source)
    if other is None:
        return own if values.get(BOTH) is None else replace(own, faults=(*own.faults, f"{BOTH} has no {NAME}"))
    document = parse_plan(values, source)
    claim = claim_of_both(document, other)
    faults = [] if values.get(BOTH) in (None, claim) else [f"{BOTH} is {values[BOTH]}, both documents make it {claim}"]
    if isinstance(other, WithoutPlan):
        claimed = (*own.claimed, f"{NAME}.status")
        return replace(own, faults=(*own.faults, *faults), lower_bound=-math.inf, claimed=claimed)
    second = verify_document(values[NAME], f"{source}: {NAME}")
    faults += [*own.faults, *(f"{NAME}: {fault}" for fault in second.faults)]
    if not faults:
        faults += differing_spaces(document, other, source)
        if second.objective < own.objective * (1 - TOLERANCE):
            faults.append(f"{NAME} has a plan of {second.objective!r} s, faster than {own.objective!r} s")
    return replace(
        own,
        faults=tuple(faults),
        lower_bound=-math.inf if faults else min(own.lower_bound, second.lower_bound),
        sampled=own.sampled + second.sampled,
        feasible_samples=own.feasible_samples + second.feasible_samples,
        narrowed=tuple(dict.fromkeys((*own.narrowed, *second.narrowed))),
        claimed=(*own.claimed, *(f"{NAME}.{name}" for name in second.claimed)),
    )


def verify_document(values: object, source: str = "plan") -> Verification:
    """Check one document of either space alone; arguments and errors are those of ``verify_plan``."""
    document = parse_plan(values, source)
    try:
        check = MeshCheck(document, source) if isinstance(document, MeshDocument) else _read(document, source)
        faults = input_faults(document, check.problem) or check.strategy()
    except DataError as error:
        # The document has the right form, but what it states cannot be.
        return Verification(faults=(str(error),), objective=math.nan, lower_bound=-math.inf, candidates=0)
    if not faults:
        faults = [*check.prediction(), *check.certificate()]
        faults += check.simulated(source) if isinstance(check, _Check) else ()
    sampled = check.sampled() if not faults else Sample(plans=0, feasible=0, faults=())
    over = None
    if not faults and isinstance(check, _Check):
        over = check_node_counts(values, check.document, check.problem, check.lower_bound)
    model = check.problem.model
    return Verification(
        faults=(*faults, *sampled.faults, *(over.faults if over else ()))[:MOST_FAULTS],
        objective=check.objective,
        lower_bound=check.lower_bound,
        candidates=check.count,
        claimed=check.claimed,
        over_nodes=over,
        sampled=sampled.plans,
        feasible_samples=sampled.feasible,
        narrowed=tuple(narrowed(document.certificate.space, check.problem.cluster, experts=model.has_experts)),
    )


def _read(document: PlanDocument, source: str) -> "_Check":
    """The document's problem, strategy and placement, read back."""
    check_stages(document.strategy, source)
    problem = problem_of(document, source)
    plan = Examined.of_section(case_of(problem), document.strategy, devices_of(document, source))
    return _Check(problem, document, plan)


@dataclass
class _Check:
    """One document under examination, and the bound derived from it so far."""

    problem: PlanningProblem
    document: PlanDocument
    plan: Examined
    lower_bound: float = field(default=-math.inf)
    claimed: tuple[str, ...] = ()
    bounds: Derivation = field(init=False)
    derived: list[tuple[Choice, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Prepare the derivation of the problem's bounds."""
        self.bounds = Derivation(self.problem)

    @property
    def objective(self) -> float:
        """Seconds that the document states."""
        return self.document.certificate.objective_s

    @property
    def count(self) -> int:
        """How many candidates the document lists."""
        return len(self.document.certificate.candidates)

    def strategy(self) -> list[str]:
        """What is wrong with strategy and placement themselves."""
        if self.plan.choice not in self._candidates:
            return [f"strategy {self.plan.choice} is not a candidate of the stated space"]
        return self.plan.violations

    @cached_property
    def _candidates(self) -> list[Choice]:
        return candidates(self.plan.case)

    def prediction(self) -> Iterator[str]:
        """Predicted figures that the evaluator does not reproduce."""
        stated = self.document.predicted.model_dump()
        yield from differences("predicted", self.plan.predicted(stated["breakdown_s"]), stated)
        if not is_close(self.plan.seconds, self.objective):
            yield f"objective_s is {self.objective}, the evaluator gives {self.plan.seconds}"

    def certificate(self) -> list[str]:
        """Faults of bounds, states, gaps and status."""
        faults = self._entries()
        if faults:
            return faults
        stated, objective = self.document.certificate, self.objective
        wanted: dict[str, Any] = self._margin_free()
        gap = relative_gap(objective, self.lower_bound)
        wanted |= {
            "lower_bound_s": self.lower_bound,
            "gap": gap,
            "verified_gap": gap,
            "communication_gap": communication_gap(objective, self._paid(), self.lower_bound),
        }
        for name, value in wanted.items():
            if not is_close_or_small(value, getattr(stated, name), objective):
                faults.append(f"certificate.{name} is {getattr(stated, name)}, derived {value}")
        if self.lower_bound > objective * (1 + TOLERANCE):
            faults.append(f"the derived lower bound {self.lower_bound} exceeds the plan's {objective}")
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

    def _paid(self) -> float:
        """Seconds that every placement of the strategy pays."""
        parts = self.plan.breakdown(self.document.predicted.breakdown_s)
        return sum(parts[part] for part in ("compute", "tensor_parallel", "optimizer", "constant"))

    def simulated(self, source: str) -> Iterator[str]:
        """Figures of a simulated step that are not derived, where the plan states some."""
        strategy, devices = strategy_of(self.document.strategy, source), devices_of(self.document, source)
        return simulated_faults(self.document.provenance, self.problem, strategy, devices)

    def sampled(self) -> Sample:
        """Sampled plans against the derived bounds."""
        sha256 = self.document.certificate.problem_sha256
        known = KnownPlan(choice=self.plan.choice, stages=self.plan.stages, devices=self.plan.devices)
        return sample(self.plan.case, self.derived, known, sha256, self.lower_bound)

    def _entries(self) -> list[str]:
        """Faults of the candidates' entries; sets the derived bounds."""
        wanted = self._candidates
        entries = self.document.certificate.candidates
        if [_key(entry.strategy) for entry in entries] != [_key(candidate.as_dict()) for candidate in wanted]:
            return [f"the {len(entries)} candidates are not the {len(wanted)} of the stated space"]
        faults: list[str] = []
        least = self.objective
        read = [Candidate.of(choice) for choice in wanted]
        self.bounds.prepare(read, entries)
        for choice, candidate, entry in zip(wanted, read, entries, strict=True):
            derived = self.bounds.derive(candidate, entry)
            self.derived.append((choice, derived))
            faults += self._entry_faults(candidate, entry, derived)
            if choice == self.plan.choice and derived > self.objective * (1 + TOLERANCE):
                faults.append(f"candidate {candidate}: its bound {derived} exceeds the plan's {self.objective}")
            if entry.state in ("open", "pruned"):
                least = min(least, derived)
        self.lower_bound = least
        return faults

    def _entry_faults(self, candidate: Candidate, entry: CandidateSection, derived: float) -> Iterator[str]:
        """A stated bound that is not the derived one, and a state that (2) does not allow."""
        stated = math.inf if entry.lower_bound_s is None else entry.lower_bound_s
        if not is_close(derived, stated):
            yield f"candidate {candidate}: {entry.source} bound is {entry.lower_bound_s}, derived {derived}"
        below = derived < self.objective * (1 - TOLERANCE)
        follows = {
            "infeasible": math.isinf(derived),
            "pruned": not below and math.isfinite(derived),
            "solved": not below and math.isfinite(derived),
            "open": math.isfinite(derived),
        }
        if not follows.get(entry.state, False):
            yield f"candidate {candidate}: state {entry.state!r} does not follow from its bound {derived}"


def _key(strategy: dict[str, Any]) -> list[tuple[str, str, Any]]:
    """Fields in order, each with its type: true is not 1."""
    return sorted((name, type(value).__name__, value) for name, value in strategy.items())
