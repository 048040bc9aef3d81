r"""
The plan as a document, with digests of inputs and a bound per candidate, and the way back; null is infinite.

A document is of one of two spaces, which its format names. Plans of ``taut-plan/1`` have one degree for all stages, and
their certificates list a bound for every candidate. Plans of ``taut-meshes/1`` have stages with degrees of their own on
each type of device (``taut.formulations.meshes``), and their certificates state a bound over all choices of meshes.

(1) The better plan's document holds the document of the other space's best plan as ``other_space``. With the bounds L
    and L' of the two, no plan of either space takes less than :math:`\min(L, L')`, which ``both_spaces`` states with
    the gap and the status that follow. Where the other space has no plan that fits, or none was found in time,
    ``other_space`` states that, and a bound; neither has a proof, so that a check derives no bound of the two.
(2) A check of both documents proves (1) if they are about the same problem: model, cluster, memory model, calibration,
    batch and what is fixed are the same, and every cost that both tables have is equal.
(3) communication gap = min(1, (objective - lower bound) / (objective - compute)), compute being what every placement
    of this strategy pays: its computation and tensor-parallel all-reduces, and the optimizer; the bound on the rest is
    never below zero, though other strategies may pay less.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, ValidationError

from taut.data.arrays import Ints
from taut.data.calibration import Calibration
from taut.data.cluster import ClusterSpec
from taut.data.costs import RECOMPUTE, CostTable
from taut.data.memory import MemoryModel
from taut.data.model import ModelSpec
from taut.data.spec import Whole, digest, first_complaint
from taut.errors import DataError
from taut.formulations.mechanisms.latency_models import LATENCY_MODELS, LatencyName
from taut.formulations.mechanisms.offload import check_all_hosts
from taut.formulations.meshes.choice import Mesh, MeshChoice
from taut.formulations.meshes.step_time import MeshPlan, mesh_violations
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate, StrategySpace
from taut.formulations.strategy import Division, Strategy, stages_of_parts
from taut.solver.result import OPTIMALITY_GAP, Status, relative_gap

FORMAT, MESHES = "taut-plan/1", "taut-meshes/1"
PRICES = "latency_model", "overlap_grad_reduce"
"""Fields that say at which prices a bound holds, of a problem, a workload and a certificate."""
Positive = Annotated[int, Field(gt=0, lt=2**31)]


class Section(BaseModel):
    """A part of the document; fields beside the known ones are kept out of the checks."""

    model_config = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False, frozen=True, defer_build=True)


class WorkloadSection(Section):
    """What is planned, in a few words; the inputs and the space say the same in full."""

    model: str
    cluster: str
    num_devices: Whole
    global_batch: Whole
    sequence_length: Whole
    latency_model: str
    overlap_grad_reduce: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategySection(Candidate):
    """The chosen candidate, with its stages. ``micro_batches`` lists the number of every replica if they differ."""

    __pydantic_config__ = Section.model_config

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> Any:
        """A mapping stands for the section as for any other; its fields stay strict."""
        return {**handler(source), "strict": False}

    micro_batches: list[Whole] = field(default_factory=list)
    stages: list[list[Whole]]
    recompute: list[str]

    def as_dict(self) -> dict[str, Any]:
        """The section as plain values."""
        divided = {"micro_batches": self.micro_batches} if self.micro_batches else {}
        return {**Candidate.as_dict(self), **divided, "stages": self.stages, "recompute": self.recompute}

    @property
    def candidate(self) -> Candidate:
        """The candidate alone."""
        return Candidate.of(self)


class MeshSection(Section):
    """Degrees of the stages on one type of device."""

    device: str
    tp: Positive
    dp: Positive
    pp: Positive
    micro_batch: Positive


class MeshesOfChoice(Section):
    """Meshes in the order of the stages; ``all_recompute`` is one recompute for all stages, or empty."""

    meshes: Annotated[list[MeshSection], Field(min_length=1)]
    num_micro_batches: Positive
    zero: int
    all_recompute: str = ""


class MeshesSection(MeshesOfChoice):
    """The meshes of a plan with its division."""

    stages: list[Annotated[list[Whole], Field(min_length=2, max_length=2)]]
    recompute: list[str]
    rank_order: Literal["tp-cp-ep-dp-pp", "tp-pp-dp"]


class PlacementSection(Section):
    """Device of every worker: ``devices[stage][replica][rank]``, of a block's ranks tensor ranks first."""

    order: str
    devices: list[list[list[Whole]]]


class FiguresSection(Section):
    """What every plan is predicted to take; bytes are of one device of every stage."""

    step_time_s: float
    breakdown_s: dict[str, float]
    memory_bytes: list[Whole]
    capacity_bytes: list[Whole]
    tokens_per_s: float | None


class MeshFiguresSection(FiguresSection):
    """What a plan of meshes is predicted to take; a file without the fields here does not hold."""

    margin_bytes: list[Whole] | None = None
    mfu: float | None = None


class PredictedSection(FiguresSection):
    """
    What a plan of one degree for all stages is predicted to take.

    ``mfu`` is model FLOP utilisation of the step, ``hfu`` hardware FLOP utilisation while devices compute, recompute
    counted, ``busy_s`` the seconds in which a device computes, in the mean. Files of earlier versions lack both.
    """

    margin_bytes: list[Whole]
    mfu: float | None
    hfu: float | None = None
    busy_s: float | None = None


class BoundSection(Section):
    """One candidate's bound, null where it is infeasible, with what proves it."""

    strategy: dict[str, int | float | str | bool | list[str]]
    lower_bound_s: float | None
    source: str
    witness: dict[str, Any]

    @property
    def seconds(self) -> float:
        """The bound, infinite where the candidate is infeasible."""
        return math.inf if self.lower_bound_s is None else self.lower_bound_s


class CandidateSection(BoundSection):
    """One candidate's bound, and its state beside the plan."""

    state: str


class BeyondSection(Section):
    """A field of the plan or its job beyond all runs of the calibration (``taut.formulations.runs``)."""

    field: str
    value: bool | int | float | str
    seen: list[bool | int | float | str]


class PlainerSection(Section):
    """The best plan under a restriction, with its bound and those that are larger than in the whole space."""

    restriction: str
    strategy: StrategySection
    placement: PlacementSection
    step_time_s: float
    lower_bound_s: float
    stopped_by: str
    bounds: list[BoundSection]


class NearestSection(Section):
    """The fastest plan that was found of another candidate than the plan's."""

    strategy: StrategySection
    placement: PlacementSection
    step_time_s: float


class ProofSection(Section):
    """What the bound of one candidate without a memory margin rests on; ``candidate`` is its place in the list."""

    candidate: int
    source: str
    witness: dict[str, Any]


class StatedSection(Section):
    """What every certificate states; without ``overlap_grad_reduce`` reductions follow the backward pass."""

    objective_s: float
    lower_bound_s: float | None
    gap: float | None
    latency_model: str
    overlap_grad_reduce: bool = False
    problem_sha256: str
    space: dict[str, Any]

    @property
    def prices_mechanisms(self) -> bool:
        """Whether the prices are of what frameworks have, not those of a paper."""
        return any(each.name == self.latency_model and each.prices_mechanisms for each in LATENCY_MODELS.values())

    @property
    def priced_by(self) -> str:
        """The prices in words."""
        overlap = " with overlapped gradient reductions" if self.overlap_grad_reduce else ""
        return f"latency model {self.latency_model}{overlap}"


class ExactnessSection(Section):
    """
    For how many candidates the bound holds in exact arithmetic, and why (``taut.solver.certificate.exact``).

    ``floats_alone``: entries that are of floats alone, by source; ``exact``: whether there are none.
    """

    exact: bool
    rational: Whole
    whole: Whole
    rounding: Whole
    floats_alone: dict[str, Whole]


class CertificateSection(StatedSection):
    """Objective, bound and what they rest on; files of earlier versions lack ``no_margin_proofs``."""

    communication_gap: float | None
    verified_gap: float | None
    lower_bound_no_margin_s: float | None
    candidates: list[CandidateSection]
    no_margin_proofs: list[ProofSection] | None = None


class ExaminedSection(Section):
    """A choice of meshes with its bound and the step time of its best plan."""

    strategy: MeshesOfChoice
    lower_bound_s: float
    step_time_s: float


class MeshCertificate(StatedSection):
    """
    Objective, and a bound over all choices of meshes.

    ``choices`` is their number, null where a limit came before they were enumerated; the search found plans of those
    ``examined``. A check enumerates and bounds all choices again.
    """

    latency_model: Literal["step"]
    choices: Whole | None
    examined: list[ExaminedSection]


class InputSection(Section):
    """One resolved input with its name and digest."""

    name: str
    sha256: str
    spec: dict[str, Any]


class DocumentFrame(Section):
    """What every plan's document has, whatever its strategy is; files of earlier versions lack ``workload``."""

    format: str
    status: Literal["optimal", "feasible"]
    workload: WorkloadSection | None = None
    predicted: FiguresSection
    certificate: StatedSection
    inputs: dict[Literal["model", "cluster", "costs", "memory_model", "calibration"], InputSection]
    provenance: dict[str, Any]


class PlanDocument(DocumentFrame):
    """
    A plan with one degree for all stages, plainer ones, and what lies ``beyond`` all runs of its calibration.

    ``nearest``: the fastest plans of the few candidates that come next, which a check prices against their bounds.
    Files of earlier versions, and of searches that Ctrl-C ended, lack ``exactness``.
    """

    format: Literal["taut-plan/1"]
    strategy: StrategySection
    placement: PlacementSection
    predicted: PredictedSection
    certificate: CertificateSection
    exactness: ExactnessSection | None = None
    plainer: list[PlainerSection] = []
    nearest: list[NearestSection] = []
    beyond: list[BeyondSection] = []


class MeshDocument(DocumentFrame):
    """The whole plan of degrees by type of device; ``devices[stage][replica][tensor rank]``."""

    format: Literal["taut-meshes/1"]
    workload: WorkloadSection
    strategy: MeshesSection
    predicted: MeshFiguresSection
    devices: list[list[list[Whole]]]
    certificate: MeshCertificate

    def mesh_devices(self, source: str) -> tuple[Ints, ...]:
        """Devices of every mesh, (pp, dp, tp) each; a ``DataError`` if stages have other shapes than their meshes."""
        found, x = list[Ints](), 0
        for mesh in self.strategy.meshes:
            stages = self.devices[x : x + mesh.pp]
            x += mesh.pp
            ranks = [len(rank) for stage in stages for rank in stage]
            if [len(stage) for stage in stages] != [mesh.dp] * mesh.pp or ranks != [mesh.tp] * (mesh.dp * mesh.pp):
                raise DataError(
                    f"{source}: devices: are not {mesh.pp} stages of {mesh.dp} x {mesh.tp} on {mesh.device}"
                )
            found.append(np.array(stages, dtype=np.int64))
        if x != len(self.devices):
            raise DataError(f"{source}: devices: {len(self.devices)} stages, expected {x}")
        return tuple(found)


AnyDocument = PlanDocument | MeshDocument


def parse_plan(values: object, source: str) -> AnyDocument:
    """Plan document of either format from plain values; ``DataError`` names source and field."""
    meshed = isinstance(values, dict) and values.get("format") == MESHES
    try:
        return MeshDocument.model_validate(values) if meshed else PlanDocument.model_validate(values)
    except ValidationError as error:
        expected = MESHES if meshed else FORMAT
        raise DataError(f"{source}: {first_complaint(error)}, expected a {expected} document") from None


def of_one_degree(document: AnyDocument, source: str) -> PlanDocument:
    """The document itself; a ``DataError`` refuses a plan of meshes."""
    if isinstance(document, MeshDocument):
        raise DataError(f"{source}: is a plan of meshes, expected a plan of one degree for all stages")
    return document


def workload_of(problem: PlanningProblem) -> dict[str, Any]:
    """What is planned, in a few words."""
    return {
        "model": problem.model.name,
        "cluster": problem.cluster.name,
        "num_devices": problem.cluster.num_devices,
        "global_batch": problem.space.global_batch,
        "sequence_length": max(layer.seq for layer in problem.model.blocks),
        **prices_of(problem),
    }


def prices_of(problem: PlanningProblem) -> dict[str, Any]:
    """At which prices a bound on a problem holds."""
    return {name: getattr(problem, name) for name in PRICES}


def inputs_of(problem: PlanningProblem) -> dict[str, Any]:
    """The resolved inputs, each with name and SHA-256."""
    specs: dict[str, ModelSpec | ClusterSpec | CostTable | MemoryModel | Calibration] = {
        "model": problem.model,
        "cluster": problem.cluster,
        "costs": problem.costs,
        "memory_model": problem.memory,
    }
    if problem.calibration is not None:
        specs["calibration"] = problem.calibration
    return {
        role: {"name": spec.name, "sha256": spec.digest(), "spec": spec.model_dump(mode="json")}
        for role, spec in specs.items()
    }


def claim_of(problem: PlanningProblem, inputs: dict[str, Any]) -> dict[str, Any]:
    """What a bound on a problem is a claim about: prices, space, and the SHA-256 of all with the inputs."""
    prices, space = prices_of(problem), problem.space.model_dump(mode="json")
    return {**prices, "problem_sha256": problem_digest(inputs, {**prices, "space": space}), "space": space}


def problem_digest(inputs: Mapping[str, Any], claim: Mapping[str, Any]) -> str:
    """SHA-256 over inputs, space, latency model and overlap, if there is one: what a bound is a claim about."""
    return digest(
        {
            "inputs": {role: inputs[role]["sha256"] for role in inputs},
            "space": claim["space"],
            "latency": claim["latency_model"],
            **({"overlap_grad_reduce": True} if claim.get("overlap_grad_reduce") else {}),
        }
    )


def problem_of(document: DocumentFrame, source: str) -> PlanningProblem:
    """The problem that a document states; a ``DataError`` if an input is malformed."""
    missing = {"model", "cluster", "costs", "memory_model"} - set(document.inputs)
    if missing:
        raise DataError(f"{source}: inputs.{min(missing)}: missing, expected a value")
    specs = {role: section.spec for role, section in document.inputs.items()}
    problem = PlanningProblem(
        ModelSpec.parse(specs["model"], f"{source}: inputs.model"),
        ClusterSpec.parse(specs["cluster"], f"{source}: inputs.cluster"),
        CostTable.parse(specs["costs"], f"{source}: inputs.costs"),
        MemoryModel.parse(specs["memory_model"], f"{source}: inputs.memory_model"),
        StrategySpace.parse(document.certificate.space, f"{source}: certificate.space"),
        _latency_model(document.certificate.latency_model, source),
        Calibration.parse(specs["calibration"], f"{source}: inputs.calibration") if "calibration" in specs else None,
        overlap_grad_reduce=document.certificate.overlap_grad_reduce,
    )
    try:
        check_all_hosts(problem.cluster, problem.memory, problem.space)
    except DataError as error:
        raise DataError(f"{source}: {error}") from None
    return problem


def _latency_model(name: str, source: str) -> LatencyName:
    for known in LATENCY_MODELS:
        if name == known:
            return known
    raise DataError(f"{source}: certificate.latency_model: is {name!r}, expected one of {', '.join(LATENCY_MODELS)}")


def strategy_values(strategy: Strategy) -> dict[str, Any]:
    """The strategy section."""
    stages = [list(stage) for stage in strategy.layer_stages]
    divided = {"micro_batches": list(strategy.micro_batches)} if strategy.micro_batches else {}
    return {**strategy.candidate.as_dict(), **divided, "stages": stages, "recompute": list(strategy.recompute)}


def strategy_of(section: StrategySection, source: str) -> Strategy:
    """The strategy that a section states; errors are those of ``check_stages``."""
    check_stages(section, source)
    candidate = section.candidate
    stages = stages_of_parts(candidate, tuple((first, end) for first, end in section.stages))
    division, micro_batches = Division(stages, tuple(section.recompute)), tuple(section.micro_batches)
    return Strategy(candidate=candidate, division=division, micro_batches=micro_batches)


def check_stages(section: StrategySection, source: str) -> None:
    """Refuse stages that are no pairs of layer numbers, with a ``DataError``."""
    for x, stage in enumerate(section.stages):
        if len(stage) != 2:
            raise DataError(f"{source}: strategy.stages.{x}: is {stage}, expected [first, end]")


def mesh_plan_of(document: MeshDocument, problem: PlanningProblem, source: str) -> MeshPlan:
    """The plan of meshes that a document states; ``DataError`` if it breaks a rule."""
    stated, types = document.strategy, problem.device_types
    if unknown := [mesh.device for mesh in stated.meshes if mesh.device not in types]:
        raise DataError(f"{source}: strategy.meshes: {unknown[0]} is no device of the cluster")
    meshes = tuple(Mesh(types.index(m.device), m.tp, m.dp, m.pp, m.micro_batch) for m in stated.meshes)
    choice = MeshChoice(meshes, stated.num_micro_batches, stated.zero, stated.all_recompute)
    division = Division(tuple((first, end) for first, end in stated.stages), tuple(stated.recompute))
    if len(stated.stages) != choice.pp or len(stated.recompute) != choice.pp or set(stated.recompute) - {*RECOMPUTE}:
        raise DataError(f"{source}: strategy: stages and recompute are not of {choice.pp} stages")
    plan = MeshPlan(choice, division, document.mesh_devices(source))
    if faults := mesh_violations(problem, plan):
        raise DataError(f"{source}: {faults[0]}")
    return plan


def devices_of(document: PlanDocument | PlainerSection | NearestSection, source: str) -> Ints:
    """Devices (pp, pipelines, width): replicas that an expert group goes over stand side by side; no ragged lists."""
    section, strategy = document.placement, document.strategy
    if section.order != "pp,dp,tp":
        raise DataError(f"{source}: placement.order: is {section.order!r}, expected 'pp,dp,tp'")
    shapes = {(len(stage), len(group)) for stage in section.devices for group in stage}
    if len(shapes) != 1 or not all(section.devices):
        raise DataError(f"{source}: placement.devices: stages differ in shape, expected [pp][dp][tp]")
    numbers = [device for stage in section.devices for group in stage for device in group]
    if not all(0 <= device < len(numbers) for device in numbers):
        raise DataError(f"{source}: placement.devices: expected device numbers from 0 to {len(numbers) - 1}")
    devices = np.array(section.devices, dtype=np.int64)
    shape, width = devices.shape, (strategy.etp or strategy.tp) * strategy.ep
    goes_over = shape[2] == strategy.tp * strategy.cp < width and shape[1] * shape[2] % width == 0
    return devices.reshape(shape[0], -1, width) if goes_over else devices


def by_replica(candidate: Candidate, devices: Ints) -> Ints:
    """Devices (pp, pipelines, width) of a candidate by replica, (pp, dp, tp cp), as a document states them."""
    return devices.reshape(candidate.pp, candidate.dp, -1)


def status_of(gap: float | None) -> Status:
    """Status of a plan with a gap."""
    return Status.OPTIMAL if gap is not None and gap <= OPTIMALITY_GAP else Status.FEASIBLE


def finite(value: float | None) -> float | None:
    """The value, or None where it is unknown."""
    return value if value is not None and math.isfinite(value) else None


ROUNDING = 1e-12
"""Relative seconds of communication below which they are rounding: two evaluators add their terms in other orders."""


def communication_gap(objective: float, paid: float, lower_bound: float) -> float | None:
    """Gap of the communication part, (3); None where it is not defined, as where all communication is rounding."""
    communication = objective - paid
    slack, rounding = objective - lower_bound, ROUNDING * objective
    if slack <= 0.0 or (communication <= rounding and slack <= 2 * rounding):
        return 0.0
    return min(slack / communication, 1.0) if communication > rounding and math.isfinite(slack) else None


NAME, BOTH = "other_space", "both_spaces"
SAME = ("global_batch", "stack", "recompute", "recompute_modules", "fixed")
"""Fields of the space that both searches have alike."""


class WithoutPlan(Section):
    """What is known of a space without a plan."""

    status: Literal["infeasible", "unknown"]
    lower_bound_s: float | None = None


OtherSpace = AnyDocument | WithoutPlan | None


def other_space(values: Mapping[str, Any], source: str) -> OtherSpace:
    """Read what a document says of the other space, or None; a ``DataError`` if it is neither a plan nor a state."""
    stated, where = values.get(NAME), f"{source}: {NAME}"
    if stated is None:
        return None
    if isinstance(stated, dict) and stated.get("format") in (FORMAT, MESHES):
        if stated["format"] == values.get("format"):
            raise DataError(f"{where}: format: is {stated['format']}, expected that of the other space")
        return parse_plan(stated, where)
    try:
        return WithoutPlan.model_validate(stated)
    except ValidationError as error:
        raise DataError(f"{where}: {first_complaint(error)}, expected a plan, or a status without one") from None


def bound_of_both(own: float | None, other: OtherSpace) -> float | None:
    """The least of both bounds, (1); None where one of them is unknown."""
    if other is None or other.status == "infeasible":
        return own
    bound = other.lower_bound_s if isinstance(other, WithoutPlan) else other.certificate.lower_bound_s
    return None if own is None or bound is None else min(own, bound)


def gap_of_both(objective: float, own: float | None, other: OtherSpace) -> float | None:
    """Relative gap of a plan to the bound of both spaces; None where that is unknown."""
    bound = bound_of_both(own, other)
    return None if bound is None else relative_gap(objective, bound)


def status_of_both(objective: float, own: float | None, other: OtherSpace) -> Status:
    """What the gap to the bound of both makes of the plan, (1)."""
    return status_of(gap_of_both(objective, own, other))


def claim_of_both(document: AnyDocument, other: OtherSpace) -> dict[str, Any]:
    """Status, bound and gap of both spaces, (1)."""
    objective, own = document.certificate.objective_s, document.certificate.lower_bound_s
    return {
        "status": str(status_of_both(objective, own, other)),
        "lower_bound_s": bound_of_both(own, other),
        "gap": gap_of_both(objective, own, other),
    }


def with_other_space(values: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """A plan's document that holds what is known of the other space, and the claim about both, (1)."""
    found = {**values, NAME: other}
    return {**found, BOTH: claim_of_both(parse_plan(values, "a plan"), other_space(found, "a plan"))}


def differing_spaces(one: AnyDocument, other: AnyDocument, source: str) -> Iterator[str]:
    """What the two documents are not alike in, (2)."""
    for role in ("model", "cluster", "memory_model", "calibration"):
        pair = [
            {str(name): each.sha256 for name, each in document.inputs.items()}.get(role) for document in (one, other)
        ]
        if pair[0] != pair[1]:
            yield f"{NAME}.inputs.{role} is another one than the plan's"
    for name in PRICES:
        if getattr(one.certificate, name) != getattr(other.certificate, name):
            yield f"{NAME}.certificate.{name} is another one than the plan's"
    for name in SAME:
        if one.certificate.space.get(name) != other.certificate.space.get(name):
            yield f"{NAME}.certificate.space.{name} is another one than the plan's"
    tables = [problem_of(each, source).costs for each in (one, other)]
    if tables[0].optimizer_s_per_parameter != tables[1].optimizer_s_per_parameter or any(
        tables[1].by_key[key] != cost for key, cost in tables[0].by_key.items() if key in tables[1].by_key
    ):
        yield f"{NAME}.inputs.costs has other prices than the plan's"
