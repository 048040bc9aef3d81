r"""
Checking a plan without trusting the search that made it.

Everything is read from the document. The check prices the plan, adds up its memory and enumerates the candidates of the
stated space with an evaluator of its own (``taut.solver.certificate.reference``), and derives every bound again by the
deterministic algorithm that its source names (``taut.solver.ladder.checks``). Those algorithms share their
prices with the search, so bounds are attacked too: no bound of the plan's own candidate may exceed J, and sampled
plans, priced by the reference evaluator, may undercut none (``taut.solver.certificate.sampling``).

A figure x is reproduced, and a bound b of a candidate allows its stated state, beside the objective J, if

.. math:: |x - x'| \le 10^{-9} \max(|x|, |x'|) \tag{1}

.. math:: \text{infeasible: } b = \infty; \quad \text{pruned, solved: } J (1 - 10^{-9}) \le b < \infty; \quad
    \text{open: } b < \infty \tag{2}

.. math:: b \le J (1 + 10^{-9}) \text{ for the candidate of the plan, and for the derived global bound} \tag{3}

A document is accepted if every figure is reproduced, and every state and the status follow from the bounds.

Inputs, space and workload must be what their digests and the problem say they are. A simulated step
(``taut.solver.methods.simulated``) is simulated again, and its bound computed again over all candidates of the space,
by the deterministic algorithm of ``taut.solver.bounds.simulated``.

The fastest plans that the search found of a few other candidates may stand beside the plan (``nearest``). Each holds
if it is a plan of its candidate by the reference evaluator, in the seconds that are stated, no faster than the plan,
and no faster than the derived bound of its candidate.

Plainer plans may stand beside the plan. Let :math:`b_w` be the derived bounds of the plan's certificate, C the
candidates of a restriction as the reference enumerates them, and w(c) the candidate of the whole space that has all
plans of c. A section ``plainer`` lists bounds that are larger, each with source and witness; with :math:`b'_c` what the
check of these derives in the restricted problem, minus infinity where none is listed, no plan of the restriction takes
less than

.. math:: \min(J', \min_{c \in C} \max(b_{w(c)}, b'_c)). \tag{4}

A section holds if its plan is a plan of the restricted problem by the reference evaluator, in J' seconds, not faster
than the plan but for the one ``fastest``, whose place the plan has taken; if every listed bound is that of a candidate
in C and is derived; if (4) is the bound that is stated; and if the bound of the plan's own candidate does not exceed
J'.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from taut.data.costs import Recompute
from taut.data.loss import as_loss
from taut.data.seen import Seen
from taut.data.spec import digest
from taut.data.stack import Form
from taut.errors import DataError
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.solver.certificate.document import (
    BOTH,
    NAME,
    BoundSection,
    CandidateSection,
    DocumentFrame,
    MeshDocument,
    PlainerSection,
    PlanDocument,
    WithoutPlan,
    check_stages,
    claim_of_both,
    communication_gap,
    devices_of,
    differing_spaces,
    inputs_of,
    other_space,
    parse_plan,
    problem_digest,
    problem_of,
    status_of,
    strategy_of,
    workload_of,
)
from taut.solver.certificate.exact import MARGIN_FREE, Entry, Exactness, Shown, exactness
from taut.solver.certificate.examined import TOLERANCE, Examined, case_of, differences, is_close, is_close_or_small
from taut.solver.certificate.narrowed import space_in_words
from taut.solver.certificate.node_counts import OverNodes, check_node_counts
from taut.solver.certificate.reference.candidates import candidates
from taut.solver.certificate.reference.space import (
    FASTEST,
    Choice,
    beyond,
    candidates_of,
    divisions_of,
    is_known,
    recompute_of,
    whole,
)
from taut.solver.certificate.sampling import Sample, sample
from taut.solver.ladder.checks import Proof, derived_bound, derived_margin_free, prepare
from taut.solver.ladder.ladder import Ladder
from taut.solver.result import relative_gap

if TYPE_CHECKING:
    from taut.solver.certificate.meshes import MeshCheck

PLAINER = "plainer"


def _restricted(problem: PlanningProblem, name: str) -> PlanningProblem:
    """The problem with the divisions and recompute of a restriction; itself where these are its own."""
    case = case_of(problem)
    # The reference side reads plain values, so that its forms are text; they are ones of the space or its own two.
    left = cast("list[Form]", divisions_of(case, name))
    kinds = cast("list[Recompute]", recompute_of(case, name))
    if left == problem.space.divisions and kinds == problem.space.recompute:
        return problem
    return replace(problem, space=problem.space.model_copy(update={"divisions": left, "recompute": kinds}))


def _states(strategy: Mapping[str, Any], choice: Choice) -> bool:
    """Whether plain values are those of a candidate, each of its type: true is not 1."""
    wanted = choice.as_dict()
    return strategy == wanted and [*map(type, map(strategy.get, wanted))] == [*map(type, wanted.values())]


def _stated(strategy: Mapping[str, Any], every: Mapping[Choice, Choice]) -> Choice | None:
    """The one of some candidates whose plain values these are; None where they are no one's."""
    values: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in strategy.items()}
    try:
        found = every.get(Choice(**values))
    except TypeError:
        # It lacks a field, or has one that there is not.
        return None
    return found if found is not None and _states(strategy, found) else None


SIMULATED = "provenance.method.simulated"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def input_faults(document: DocumentFrame, problem: PlanningProblem) -> list[str]:
    """Inputs with another SHA-256, name or form of a value than stated, and a problem with another SHA-256."""
    sections, stated = document.inputs, document.certificate
    faults = [
        f"inputs.{role} does not have the stated sha256"
        for role, section in sections.items()
        if digest(section.spec) != section.sha256
    ]
    named: dict[str, Any] = {str(role): {"sha256": section.sha256} for role, section in sections.items()}
    if problem_digest(named, dict(stated)) != stated.problem_sha256:
        faults.append("inputs, space, latency model and overlap do not have the stated problem_sha256")
    return faults + list(_forms(document, problem)) + list(_modules(problem))


def _modules(problem: PlanningProblem) -> Iterator[str]:
    """Modules that the space names and the cost table does not have, where it says what its figures are of."""
    space, costs = problem.space, problem.costs
    named = "recompute_modules", "offload_modules"
    said = any(getattr(costs, name) for name in named)
    for name in named:
        stated, priced = set(getattr(space, name)), set(getattr(costs, name))
        if said and stated != priced:
            words = (", ".join(sorted(each)) or "none" for each in (stated, priced))
            yield "certificate.space.{} is {}, inputs.costs has {}".format(name, *words)


def _forms(document: DocumentFrame, problem: PlanningProblem) -> Iterator[str]:
    """Names and figures that are not those of the specs, and values in another form than they are read as."""
    sections = {str(role): section for role, section in document.inputs.items()}
    for role, read in inputs_of(problem).items():
        if sections[role].name != read["name"]:
            yield f"inputs.{role}.name is {sections[role].name!r}, its spec's is {read['name']!r}"
        yield from retyped(f"inputs.{role}.spec", sections[role].spec, read["spec"])
    yield from retyped("certificate.space", document.certificate.space, problem.space.model_dump(mode="json"))
    stated = {} if document.workload is None else document.workload.model_dump()
    for name, value in workload_of(problem).items():
        if stated and stated[name] != value:
            yield f"workload.{name} is {stated[name]!r}, the inputs say {value!r}"


def retyped(path: str, stated: Any, read: Any) -> Iterator[str]:
    """Say where a text or a truth value stands for another kind of value than it is read as, as plain values."""
    if isinstance(read, dict) and isinstance(stated, dict):
        for name in stated.keys() & read.keys():
            yield from retyped(f"{path}.{name}", stated[name], read[name])
    elif isinstance(read, list) and isinstance(stated, list) and len(read) == len(stated):
        for index, (a, b) in enumerate(zip(stated, read, strict=True)):
            yield from retyped(f"{path}.{index}", a, b)
    elif isinstance(stated, str | bool) and type(stated) is not type(read) and as_loss(stated) != read:
        # A loss was a truth value before it had names, and plans of then still hold.
        yield f"{path} is {stated!r}, expected {read!r}"


MOST_FAULTS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """
    Outcome of a check: the faults (none if the plan holds), and what was derived again.

    ``candidates`` counts the candidates of the space, or the choices of meshes. ``claimed`` are figures of the
    certificate without a proof, which were not derived. ``sampled`` plans were priced against the bounds of their
    candidates; ``feasible_samples`` of them break no rule. ``space`` says what the plan's stack runs, ``narrowed``
    names what was taken away from it, and ``unsearched`` what no plan considers. ``renamed`` names inputs that have a
    name of the catalog and differ from it. ``over_nodes`` is the bound over all numbers of nodes. ``within_rounding``
    counts the pruned and solved candidates whose state follows up to rounding, (2), but not from a bound above J (1 +
    1e-9); it is None for meshes. ``exactness`` says of how many candidates the bound holds in exact arithmetic, and
    ``plainer`` says it of the bounds of plainer plans.
    """

    faults: tuple[str, ...]
    objective: float
    lower_bound: float
    candidates: int
    claimed: tuple[str, ...] = ()
    sampled: int = 0
    feasible_samples: int = 0
    space: str = ""
    narrowed: tuple[str, ...] = ()
    unsearched: tuple[str, ...] = ()
    renamed: tuple[str, ...] = ()
    over_nodes: OverNodes | None = None
    within_rounding: int | None = None
    exactness: Exactness | None = None
    plainer: dict[str, Exactness] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """Whether no fault was found."""
        return not self.faults

    @property
    def gap(self) -> float | None:
        """Gap of the derived bound."""
        return relative_gap(self.objective, self.lower_bound)


def verify_plan(values: dict[str, Any], source: str = "plan") -> Verification:
    """Check a plain document of either space, with the other space's where it holds one; ``source``: for messages."""
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
        unsearched=tuple(dict.fromkeys((*own.unsearched, *second.unsearched))),
        claimed=(*own.claimed, *(f"{NAME}.{name}" for name in second.claimed)),
        exactness=own.exactness + second.exactness if own.exactness and second.exactness else None,
        plainer=own.plainer | second.plainer,
    )


def verify_document(values: object, source: str = "plan") -> Verification:
    """Check one document of either space alone; arguments and errors are those of ``verify_plan``."""
    document = parse_plan(values, source)
    try:
        check = _check_of_meshes(document, source) if isinstance(document, MeshDocument) else _Check(document, source)
        faults = input_faults(document, check.problem) or check.strategy()
    except DataError as error:
        # The document has the right form, but what it states cannot be.
        return Verification(faults=(str(error),), objective=math.nan, lower_bound=-math.inf, candidates=0)
    faults, problem = faults or check.derived(), check.problem
    sampled, over = Sample(plans=0, feasible=0, faults=()), None
    if not faults:
        sampled = check.sampled()
        if isinstance(document, PlanDocument):
            over = check_node_counts(values, document, problem, check.lower_bound)
    words = space_in_words(document, problem.model, problem.cluster, problem.costs)
    return Verification(
        faults=(*faults, *sampled.faults, *(over.faults if over else ()))[:MOST_FAULTS],
        objective=check.objective,
        lower_bound=check.lower_bound,
        candidates=check.count,
        claimed=check.claimed,
        over_nodes=over,
        within_rounding=check.within_rounding,
        exactness=check.exactness,
        plainer=check.plainer,
        sampled=sampled.plans,
        feasible_samples=sampled.feasible,
        space=words.held,
        narrowed=words.narrowed,
        unsearched=words.unsearched,
        renamed=words.renamed,
    )


def _check_of_meshes(document: MeshDocument, source: str) -> "MeshCheck":
    """The check of a plan of meshes, which is loaded for these alone."""
    from taut.solver.certificate.meshes import MeshCheck

    return MeshCheck(document, source)


class _Check:
    """A document of one degree for all stages, with the bounds derived of it; ``derived`` comes after ``strategy``."""

    def __init__(self, document: PlanDocument, source: str) -> None:
        check_stages(document.strategy, source)
        self.document, self.source, self.problem = document, source, problem_of(document, source)
        self.plan = Examined.of_section(case_of(self.problem), document.strategy, devices_of(document, source))
        self.ladder, self.bounds = Ladder(self.problem), dict[Choice, float]()
        self.lower_bound, self.claimed, self.within_rounding = -math.inf, tuple[str, ...](), 0
        self.exactness: Exactness | None = None
        self.plainer, self._shown, self._stated = dict[str, Exactness](), Shown(), dict[Choice, Entry]()

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

    @cached_property
    def _read(self) -> list[Candidate]:
        """The candidates as bounds are derived of them."""
        return [Candidate.of(choice) for choice in self._candidates]

    def derived(self) -> list[str]:
        """Faults of all figures; plainer plans are looked at where the certificate holds."""
        faults = [*self._prediction(), *self._certificate(), *self._beyond(), *self._simulated()]
        return faults or [*self._nearest(), *self._plainer()]

    def _prediction(self) -> Iterator[str]:
        """Predicted figures that the evaluator does not reproduce."""
        stated = self.document.predicted.model_dump(exclude_unset=True)
        wanted = self.plan.predicted(stated["breakdown_s"])
        wanted = {name: value for name, value in wanted.items() if name in stated or name not in ("hfu", "busy_s")}
        yield from differences("predicted", wanted, stated)
        if not is_close(self.plan.seconds, self.objective):
            yield f"objective_s is {self.objective}, the evaluator gives {self.plan.seconds}"

    def _certificate(self) -> list[str]:
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
        exact = self.document.exactness
        if exact is not None and self.exactness is not None and exact.model_dump() != self.exactness.report:
            faults.append(f"exactness is {exact.model_dump()}, derived {self.exactness.report}")
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
        proofs = [
            Proof(candidate=each.candidate, source=each.source, witness=each.witness)
            for each in stated.no_margin_proofs
        ]
        seconds = derived_margin_free(self.ladder, self._read, proofs)
        if seconds > self.lower_bound and self.exactness is not None:
            self.exactness += MARGIN_FREE
        self.lower_bound = max(self.lower_bound, seconds)
        return {"lower_bound_no_margin_s": seconds}

    def _paid(self) -> float:
        """Seconds that every placement of the strategy pays."""
        parts = self.plan.breakdown(self.document.predicted.breakdown_s)
        return sum(parts[part] for part in ("compute", "tensor_parallel", "optimizer", "constant"))

    def _simulated(self) -> Iterator[str]:
        """Figures of a simulated step that are not derived, where the plan states some."""
        method = self.document.provenance.get("method")
        stated = method.get("simulated") if isinstance(method, dict) else None
        if stated is None:
            return
        if not isinstance(stated, dict):
            yield f"{SIMULATED} is {stated!r}, expected figures by name"
            return
        from taut.solver.bounds.simulated import least_simulated, simulated_seconds

        strategy = strategy_of(self.document.strategy, self.source)
        step = simulated_seconds(self.problem, strategy, devices_of(self.document, self.source))
        bound = least_simulated(self.problem)
        for name, derived in (("step_time_s", step), ("lower_bound_s", bound)):
            if not _is_number(stated.get(name)) or not is_close(derived, stated[name]):
                yield f"{SIMULATED}.{name} is {stated.get(name)}, derived {derived}"
        gap = relative_gap(step, bound)
        if gap is not None and not (_is_number(stated.get("gap")) and is_close_or_small(gap, stated["gap"], 1.0)):
            yield f"{SIMULATED}.gap is {stated.get('gap')}, derived {gap}"

    def _nearest(self) -> Iterator[str]:
        """What is wrong with the fastest plans of other candidates, or with the bounds of these."""
        for place, section in enumerate(self.document.nearest):
            path = f"nearest.{place}"
            try:
                check_stages(section.strategy, "its plan")
                plan = Examined.of_section(self.plan.case, section.strategy, devices_of(section, "its plan"))
            except DataError as error:
                yield f"{path}: {error}"
                continue
            seconds, bound = section.step_time_s, self.bounds.get(plan.choice)
            if bound is None or plan.choice == self.plan.choice:
                yield f"{path}: strategy {plan.choice} is not another candidate of the stated space"
            elif broken := plan.violations:
                yield from (f"{path}: {each}" for each in broken)
            elif not is_close(plan.seconds, seconds):
                yield f"{path}: step_time_s is {seconds}, the evaluator gives {plan.seconds}"
            elif seconds < self.objective * (1 - TOLERANCE):
                yield f"{path}: its plan of {seconds} s is faster than the plan of {self.objective} s"
            elif bound > seconds * (1 + TOLERANCE):
                yield f"{path}: the bound {bound} of candidate {plan.choice} exceeds its plan of {seconds} s"

    def _plainer(self) -> Iterator[str]:
        """What is wrong with the plainer plans."""
        names = [section.restriction for section in self.document.plainer]
        for section in self.document.plainer:
            path = f"{PLAINER}.{section.restriction}"
            if names.count(section.restriction) > 1 or not is_known(section.restriction):
                yield f"{path}: unknown, or there several times"
                continue
            try:
                yield from (f"{path}: {fault}" for fault in self._plainer_faults(section))
            except DataError as error:
                yield f"{path}: {error}"

    def _plainer_faults(self, section: PlainerSection) -> Iterator[str]:
        """Faults of one section, the first that keep it from saying anything alone."""
        given = _restricted(self.problem, section.restriction)
        ladder = self.ladder if given is self.problem else Ladder(given)
        case, seconds = case_of(given), section.step_time_s
        # The candidates of the whole space are those that the certificate was checked to list.
        wanted = candidates_of(
            self.bounds if given is self.problem else candidates(case), section.restriction, given.calibration
        )
        check_stages(section.strategy, "its plan")
        plan = Examined.of_section(case, section.strategy, devices_of(section, "its plan"))
        if plan.choice not in wanted:
            yield f"strategy {plan.choice} is not a candidate of the restriction"
            return
        if broken := plan.violations:
            yield from broken
            return
        if not is_close(plan.seconds, seconds):
            yield f"step_time_s is {seconds}, the evaluator gives {plan.seconds}"
        if section.restriction != FASTEST and seconds < self.objective * (1 - TOLERANCE):
            yield f"its plan of {seconds} s is faster than the plan of {self.objective} s"
        wider = {choice: choice if given is self.problem else whole(choice, self.bounds) for choice in wanted}
        bounds = {choice: self.bounds.get(of, -math.inf) for choice, of in wider.items()}
        deciding = dict[Choice, Entry]()
        listed, named = {choice: choice for choice in wanted}, list[tuple[Choice | None, BoundSection]]()
        for entry in section.bounds:
            one = _stated(entry.strategy, listed)
            named.append((None if one is None else listed.pop(one), entry))
        known = ((Candidate.of(one), entry.source, entry.witness) for one, entry in named if one is not None)
        prepare(ladder, known)
        for choice, entry in named:
            if choice is None:
                yield f"a bound is of no candidate of the restriction, or of one that has another: {entry.strategy}"
                continue
            found = derived_bound(ladder, Candidate.of(choice), entry.source, entry.witness)
            if not is_close(found, entry.seconds):
                yield f"candidate {choice}: {entry.source} bound is {entry.lower_bound_s}, derived {found}"
            if found > bounds[choice]:
                bounds[choice] = found
                deciding[choice] = Entry(Candidate.of(choice), found, entry.source, entry.witness)
        if bounds[plan.choice] > seconds * (1 + TOLERANCE):
            yield f"the bound {bounds[plan.choice]} of its plan's candidate exceeds its {seconds} s"
        least = min(seconds, *bounds.values())
        if not is_close(least, section.lower_bound_s):
            yield f"lower_bound_s is {section.lower_bound_s}, derived {least}"
        shown = self._shown if ladder is self.ladder else None
        others = {of: None for choice, of in wider.items() if choice not in deciding}
        inherited = (self._stated[choice] for choice in others if choice in self._stated)
        self.plainer[section.restriction] = exactness(ladder, deciding.values(), least, shown) + exactness(
            self.ladder, inherited, least, self._shown
        )

    def _beyond(self) -> Iterator[str]:
        """What lies beyond the calibration's runs and is not stated so, or is stated and does not."""
        stated = {(each.field, each.value): each.seen for each in self.document.beyond}
        plan, space = self.plan, self.document.certificate.space
        derived = beyond(plan.case, plan.choice, plan.recompute)
        if sorted(map(str, stated)) != sorted(map(str, derived)) or len(stated) != len(self.document.beyond):
            yield f"beyond is {[*stated]}, derived {sorted(derived, key=str)}"
        known = plan.case.calibration and plan.case.calibration.seen
        if space.get("seen") is not None and self.problem.space.seen != known:
            yield "certificate.space.seen is not what the calibration says of its runs"
        for (name, _), seen in stated.items():
            if name in Seen.model_fields and seen != [*(getattr(known, name, None) or ())]:
                yield f"beyond: of {name} runs are stated to have had {seen}"

    def sampled(self) -> Sample:
        """Sampled plans against the derived bounds."""
        sha256 = self.document.certificate.problem_sha256
        return sample(self.plan.case, [*self.bounds.items()], self.plan, sha256, self.lower_bound)

    def _entries(self) -> list[str]:
        """Faults of the candidates' entries; sets the derived bounds."""
        wanted = self._candidates
        entries = self.document.certificate.candidates
        if len(entries) != len(wanted) or not all(map(_states, (entry.strategy for entry in entries), wanted)):
            return [f"the {len(entries)} candidates are not the {len(wanted)} of the stated space"]
        faults: list[str] = []
        least = self.objective
        claims = zip(self._read, entries, strict=True)
        prepare(self.ladder, ((candidate, entry.source, entry.witness) for candidate, entry in claims))
        for choice, candidate, entry in zip(wanted, self._read, entries, strict=True):
            derived = self.bounds[choice] = derived_bound(self.ladder, candidate, entry.source, entry.witness)
            faults += self._entry_faults(candidate, entry, derived)
            if choice == self.plan.choice and derived > self.objective * (1 + TOLERANCE):
                faults.append(f"candidate {candidate}: its bound {derived} exceeds the plan's {self.objective}")
            if entry.state in ("open", "pruned"):
                least = min(least, derived)
            self.within_rounding += entry.state in ("pruned", "solved") and derived <= self.objective * (1 + TOLERANCE)
        self.lower_bound = least
        if not faults:
            for (choice, seconds), one, entry in zip(self.bounds.items(), self._read, entries, strict=True):
                self._stated[choice] = Entry(one, seconds, entry.source, entry.witness)
            self.exactness = exactness(self.ladder, self._stated.values(), least, self._shown)
        return faults

    def _entry_faults(self, candidate: Candidate, entry: CandidateSection, derived: float) -> Iterator[str]:
        """A stated bound that is not the derived one, and a state that (2) does not allow."""
        if not is_close(derived, entry.seconds):
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
