"""A plan of one degree for all stages, as it is returned and read back (``taut.planning.written``)."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taut.planning.tables import stage_records, worker_records
from taut.planning.written import WrittenPlan
from taut.reports.plan import summary
from taut.solver.certificate.document import (
    CandidateSection,
    CertificateSection,
    PlanDocument,
    PredictedSection,
    StrategySection,
    parse_document,
)
from taut.words import percent

if TYPE_CHECKING:
    from networkx import DiGraph


@dataclass(frozen=True, repr=False, eq=False)
class Plan(WrittenPlan[PlanDocument]):
    """
    A plan: strategy, placement, predictions and certificate.

    Parameters
    ----------
    document
        The plan as plain JSON values, in the format ``taut-plan/1``; not to be changed.
    source
        Where it comes from, for messages.

    Raises
    ------
    DataError
        If the document lacks a section, or a field has the wrong type.

    Examples
    --------
    >>> import taut
    >>> plan = taut.plan("gpt2-345m", "dgx-a100", global_batch=32, fix={"pp": 2, "tp": 1, "micro_batch": 4})
    >>> plan.strategy.dp, plan.status
    (4, 'optimal')
    >>> [stage["layers"] for stage in plan.stages]
    ['0-12', '13-23']
    """

    @property
    def strategy(self) -> StrategySection:
        """Degrees, micro-batch, schedule, stages and recompute."""
        return self.typed.strategy

    @property
    def devices(self) -> list[list[list[int]]]:
        """Device of every worker: ``devices[stage][replica][tensor rank]``."""
        return self.typed.placement.devices

    @property
    def predicted(self) -> PredictedSection:
        """Step time with its parts, memory by stage, throughput."""
        return self.typed.predicted

    @property
    def certificate(self) -> CertificateSection:
        """Objective, lower bound, gaps, the space, and a bound for each candidate."""
        return self.typed.certificate

    @property
    def candidates(self) -> list[CandidateSection]:
        """Every candidate of the space with its bound, its source and its state."""
        return self.typed.certificate.candidates

    @cached_property
    def stages(self) -> list[dict[str, Any]]:
        """One record a stage: layers, recompute, kind of device, bytes predicted, kept free and there."""
        return stage_records(self.typed)

    @cached_property
    def workers(self) -> list[dict[str, Any]]:
        """One record a worker: stage, replica, tensor rank, device, and its node and place there."""
        return worker_records(self.typed)

    def to_networkx(self) -> "DiGraph[int]":
        """The traffic of a step between devices, in bytes (``taut.planning.traffic``)."""
        from taut.planning.traffic import traffic_graph

        return traffic_graph(self.typed, self.source)

    def __str__(self) -> str:
        """The plan in words."""
        return summary(self.typed, spaces=self.spaces)

    def _parsed(self) -> PlanDocument:
        return parse_document(self.document, self.source)

    @property
    def _figures(self) -> Mapping[str, str]:
        chosen = self.strategy
        copies = f" dp_shard={chosen.dp_shard}" if chosen.dp_shard else ""
        away = f" offload={chosen.optimizer_offload:g}" if chosen.optimizer_offload else ""
        away += f" activation_offload={chosen.activation_offload:g}" if chosen.activation_offload else ""
        named = {"pp": chosen.pp, "tp": chosen.tp, "cp": chosen.cp, "dp": chosen.dp, "ep": chosen.ep}
        shown = [f"{name}={degree}" for name, degree in named.items() if degree > 1 or name not in ("cp", "ep")]
        degrees = f"{' '.join(shown)} micro_batch={chosen.micro_batch} {chosen.schedule}"
        return {
            "plan": f"{self.model} on {self.cluster}",
            "strategy": degrees + (f" zero={chosen.zero}" if chosen.zero else "") + copies + away,
            "step time": f"{self.step_time_s:.4g} s a step",
            "gap": f"gap {percent(self.gap)}",
        }


def load_plan(path: str | Path) -> Plan:
    """
    Read a plan that ``taut plan --out`` or ``Plan.write`` wrote.

    Parameters
    ----------
    path
        JSON file in the format ``taut-plan/1``.

    Raises
    ------
    DataError
        If the file cannot be read or is no plan.

    Examples
    --------
    >>> import taut
    >>> taut.load_plan("nowhere.json")
    Traceback (most recent call last):
    taut.errors.DataError: nowhere.json: No such file or directory, expected a plan
    """
    return Plan.read(path)
