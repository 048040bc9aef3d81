"""The plan as a document, with digests of inputs and a bound per candidate, and the way back; null is infinite."""

from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, ValidationError

from taut.data.calibration import Calibration
from taut.data.cluster import ClusterSpec
from taut.data.costs import CostTable
from taut.data.memory import MemoryModel
from taut.data.model import ModelSpec
from taut.data.spec import Whole, digest, first_complaint
from taut.errors import DataError
from taut.formulations.mechanisms.latency_models import LATENCY_MODELS, LatencyName
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate, StrategySpace
from taut.formulations.strategy import Division, Strategy, with_ends
from taut.formulations.tables.host_room import check_all_hosts

FORMAT, MESHES = "taut-plan/1", "taut-meshes/1"


class Section(BaseModel):
    """A part of the document; fields beside the known ones are kept out of the checks."""

    model_config = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False, frozen=True)


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


class PlacementSection(Section):
    """Device of every worker: ``devices[stage][replica][rank]``, of a block's ranks tensor ranks first."""

    order: str
    devices: list[list[list[Whole]]]


class PredictedSection(Section):
    """What the plan is predicted to do."""

    step_time_s: float
    breakdown_s: dict[str, float]
    memory_bytes: list[Whole]
    margin_bytes: list[Whole]
    capacity_bytes: list[Whole]
    tokens_per_s: float | None
    mfu: float | None


class CandidateSection(Section):
    """One candidate's bound."""

    strategy: dict[str, int | float | str | bool | list[str]]
    state: str
    lower_bound_s: float | None
    source: str
    witness: dict[str, Any]


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


class CertificateSection(StatedSection):
    """
    Objective, bound and what they rest on.

    ``no_margin_proofs`` prove ``lower_bound_no_margin_s``. Files of earlier versions lack them.
    """

    communication_gap: float | None
    verified_gap: float | None
    lower_bound_no_margin_s: float | None
    candidates: list[CandidateSection]
    no_margin_proofs: list[ProofSection] | None = None


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
    certificate: StatedSection
    inputs: dict[Literal["model", "cluster", "costs", "memory_model", "calibration"], InputSection]
    provenance: dict[str, Any]


class PlanDocument(DocumentFrame):
    """The document of a plan with one degree for all stages."""

    format: Literal["taut-plan/1"]
    strategy: StrategySection
    placement: PlacementSection
    predicted: PredictedSection
    certificate: CertificateSection


def parse_document(values: object, source: str) -> PlanDocument:
    """
    Plan document from plain values.

    Raises
    ------
    DataError
        One line: source, field, what was expected.
    """
    if isinstance(values, dict) and values.get("format") == MESHES:
        raise DataError(f"{source}: is a plan of meshes, expected a plan of one degree for all stages")
    try:
        return PlanDocument.model_validate(values)
    except ValidationError as error:
        raise DataError(f"{source}: {first_complaint(error)}, expected a {FORMAT} document") from None


def workload_of(problem: PlanningProblem) -> dict[str, Any]:
    """What is planned, in a few words."""
    return {
        "model": problem.model.name,
        "cluster": problem.cluster.name,
        "num_devices": problem.cluster.num_devices,
        "global_batch": problem.space.global_batch,
        "sequence_length": max(layer.seq for layer in problem.model.blocks),
        "latency_model": problem.latency_model,
        "overlap_grad_reduce": problem.overlap_grad_reduce,
    }


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


def problem_digest(
    inputs: dict[str, Any], space: dict[str, Any], latency_model: str, *, overlap_grad_reduce: bool = False
) -> str:
    """SHA-256 over inputs, space, latency model and overlap, if there is one: what a bound is a claim about."""
    return digest(
        {
            "inputs": {role: inputs[role]["sha256"] for role in inputs},
            "space": space,
            "latency": latency_model,
            **({"overlap_grad_reduce": True} if overlap_grad_reduce else {}),
        }
    )


def problem_of(document: DocumentFrame, source: str) -> PlanningProblem:
    """
    The problem that a document states.

    Raises
    ------
    DataError
        If an input is malformed.
    """
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
    """
    The strategy that a section states.

    Raises
    ------
    DataError
        If a stage is not a pair of layer numbers.
    """
    check_stages(section, source)
    candidate, stages = section.candidate, tuple((first, end) for first, end in section.stages)
    if candidate.empty_ends and stages:
        stages = with_ends(stages)
    division, micro_batches = Division(stages, tuple(section.recompute)), tuple(section.micro_batches)
    return Strategy(candidate=candidate, division=division, micro_batches=micro_batches)


def check_stages(section: StrategySection, source: str) -> None:
    """
    Refuse stages that are no pairs.

    Raises ``DataError`` if a stage is not a pair of layer numbers.
    """
    for x, stage in enumerate(section.stages):
        if len(stage) != 2:
            raise DataError(f"{source}: strategy.stages.{x}: is {stage}, expected [first, end]")
