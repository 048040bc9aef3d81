"""
A plan as it is returned, read back and checked: a document with its certificate, typed.

A plan holds the document twice: as plain JSON values, which are written and checked, and as frozen sections, which its
properties return. Its stages have one degree for all, or degrees of their own on each type of device, which are its
``meshes``. What asks for one degree, such as ``strategy``, refuses a plan of meshes by name.

The traffic of a step is a graph of networkx. A graph node is a device, with its stage, replica and rank, and the node
it is on. An edge carries the bytes of a step (``taut.formulations.placement`` (3) and (4)): activations and gradients
between the stages of a replica, ``pipeline``, and the ring of the replicas of a stage, ``data_parallel``, with
``bytes`` their sum. What ranks of one block exchange stays in it and is left out.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from taut.data.cluster import ClusterSpec
from taut.data.read import read_json
from taut.errors import DataError
from taut.files import write_atomically
from taut.formulations.placement import placement_problem, ring_flow, trip_flow
from taut.formulations.space import SHORT_TEXTS
from taut.planning.proof import beyond_of
from taut.planning.summary import summary
from taut.planning.tables import described_cluster, stage_records, worker_records
from taut.quoting import html_text
from taut.solver.certificate.document import (
    AnyDocument,
    BeyondSection,
    CandidateSection,
    CertificateSection,
    MeshDocument,
    MeshSection,
    OtherSpace,
    PlainerSection,
    PlanDocument,
    PredictedSection,
    StrategySection,
    WithoutPlan,
    bound_of_both,
    by_replica,
    devices_of,
    gap_of_both,
    of_one_degree,
    other_space,
    parse_plan,
    problem_of,
    status_of_both,
    strategy_of,
)
from taut.words import percent

if TYPE_CHECKING:
    from networkx import DiGraph

    from taut.solver.certificate.verify import Verification


@dataclass(frozen=True, repr=False, eq=False)
class Plan:
    """
    A plan: strategy, placement, predictions and certificate.

    Parameters
    ----------
    document
        The plan as plain JSON values, in the format ``taut-plan/1``, or ``taut-meshes/1`` for degrees by type of
        device; not to be changed.
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
    >>> plan.strategy.dp, plan.strategy.schedule
    (4, 'interleaved-1f1b')
    >>> [stage["num_layers"] for stage in plan.stages]
    [12, 12]
    """

    document: dict[str, Any]
    source: str = "a plan"
    sections: AnyDocument = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sections", parse_plan(self.document, self.source))
        other_space(self.document, self.source)

    @classmethod
    def read(cls, path: str | Path) -> "Plan":
        """
        Read a plan that was written.

        Raises
        ------
        DataError
            If the file cannot be read or is no plan.
        """
        return cls(read_json(Path(path), "a plan"), str(path))

    def write(self, path: str | Path) -> None:
        """Write the document as JSON, whole or not at all."""
        write_atomically(Path(path), json.dumps(self.document) + "\n")

    def verify(self) -> "Verification":
        """Check the certificate without trusting the search."""
        from taut.solver.certificate.verify import verify_plan

        return verify_plan(json.loads(json.dumps(self.document)), self.source)

    @property
    def typed(self) -> PlanDocument:
        """The sections of a plan of one degree for all stages; ``DataError`` if degrees are by type of device."""
        return of_one_degree(self.sections, self.source)

    @property
    def meshed(self) -> MeshDocument:
        """The sections of a plan of meshes; ``DataError`` if all its stages have one degree."""
        if not isinstance(self.sections, MeshDocument):
            raise DataError(f"{self.source}: has one degree for all stages, expected a plan of meshes")
        return self.sections

    @property
    def meshes(self) -> list[MeshSection]:
        """Degrees on each type of device, in the order of the stages; empty where all stages have one degree."""
        return self.sections.strategy.meshes if isinstance(self.sections, MeshDocument) else []

    @property
    def model(self) -> str:
        """Name of the model."""
        return self.sections.inputs["model"].name

    @property
    def cluster(self) -> str:
        """Name of the cluster."""
        return self.sections.inputs["cluster"].name

    @property
    def cluster_spec(self) -> ClusterSpec:
        """The cluster, as the document describes it."""
        return described_cluster(self.sections)

    @property
    def strategy(self) -> StrategySection:
        """Degrees, micro-batch, schedule, stages and recompute, of one degree for all stages."""
        return self.typed.strategy

    @property
    def devices(self) -> list[list[list[int]]]:
        """Device of every worker: ``devices[stage][replica][tensor rank]``."""
        return self.sections.devices if isinstance(self.sections, MeshDocument) else self.sections.placement.devices

    @property
    def predicted(self) -> PredictedSection:
        """Step time with its parts, memory by stage, throughput, of one degree for all stages."""
        return self.typed.predicted

    @property
    def certificate(self) -> CertificateSection:
        """Objective, lower bound, gaps, the space, and a bound for each candidate, of one degree for all stages."""
        return self.typed.certificate

    @property
    def candidates(self) -> list[CandidateSection]:
        """Every candidate of the space of one degree, with its bound, its source and its state."""
        return self.typed.certificate.candidates

    @property
    def plainer(self) -> list[PlainerSection]:
        """The best plans under restrictions that make them plainer to run, and the fastest if one took its place."""
        return [] if isinstance(self.sections, MeshDocument) else self.sections.plainer

    @property
    def beyond(self) -> list[BeyondSection]:
        """In what the plan and its job lie beyond all runs of the calibration; empty where it does not know them."""
        return [BeyondSection(**each._asdict()) for each in beyond_of(self.sections)]

    def plainer_plan(self, name: str) -> "Plan":
        """One of ``plainer`` as a plan of its own, by the name of its restriction."""
        from taut.planning.plainer import plainer_document

        return Plan(plainer_document(self, name), f"{self.source}: {name}")

    @cached_property
    def stages(self) -> list[dict[str, Any]]:
        """One record a stage: layers, recompute, degrees, kind of device, bytes predicted, kept free and there."""
        return stage_records(self.sections)

    @cached_property
    def workers(self) -> list[dict[str, Any]]:
        """One record a worker: stage, replica, tensor rank, device, and its node and place there."""
        return worker_records(self.typed)

    @property
    def step_time_s(self) -> float:
        """Predicted seconds of one training step."""
        return self.sections.predicted.step_time_s

    @property
    def other_space(self) -> OtherSpace:
        """What the document says of plans of meshes, or of one degree; None where one space alone was searched."""
        return other_space(self.document, self.source)

    @property
    def status(self) -> str:
        """``optimal`` or ``feasible``: of the space, or of both."""
        if (other := self.other_space) is None:
            return self.sections.status
        return str(status_of_both(self.step_time_s, self.sections.certificate.lower_bound_s, other))

    @property
    def lower_bound_s(self) -> float | None:
        """Seconds that no plan of the space, or of both, can beat; None if nothing was proven."""
        return bound_of_both(self.sections.certificate.lower_bound_s, self.other_space)

    @property
    def gap(self) -> float | None:
        """Relative gap between step time and bound."""
        stated = self.sections.certificate
        if (other := self.other_space) is None:
            return stated.gap
        return gap_of_both(self.step_time_s, stated.lower_bound_s, other)

    @property
    def spaces(self) -> list[str]:
        """Status and bound of both spaces, and what is known of the other one; none where one alone was searched."""
        other, bound = self.other_space, self.lower_bound_s
        if other is None:
            return []
        others = "one degree for all stages" if self.meshes else "degrees by type of device"
        if isinstance(other, WithoutPlan):
            least = "" if other.lower_bound_s is None else f", none is below {other.lower_bound_s:.6g} s"
            found = "no plan fits" if other.status == "infeasible" else f"no plan was found in time{least}"
        else:
            stated = other.certificate
            least = "" if stated.lower_bound_s is None else f", none below {stated.lower_bound_s:.6g} s"
            found = f"the best plan takes {stated.objective_s:.6g} s{least}"
        both = "unknown" if bound is None else f"{bound:.6g} s, gap {percent(self.gap)}"
        return [f"status      {self.status}: lower bound of both spaces {both}", f"            with {others} {found}"]

    def to_networkx(self) -> "DiGraph[int]":
        """The traffic of a step between devices, in bytes."""
        return traffic_graph(self.typed, self.source)

    def __str__(self) -> str:
        """The plan in words."""
        return summary(self.sections, spaces=self.spaces)

    def __repr__(self) -> str:
        """One line: model, cluster, strategy, step time, gap."""
        return f"<Plan {', '.join(self._figures.values())}>"

    def _repr_html_(self) -> str:
        """A small table for notebooks: the line of ``repr`` by its parts."""
        cells = (
            f"<tr><th>{html_text(name)}</th><td>{html_text(text)}</td></tr>" for name, text in self._figures.items()
        )
        return f"<table>{''.join(cells)}</table>"

    @property
    def _figures(self) -> Mapping[str, str]:
        """What a line says of the plan, by name."""
        return {
            "plan": f"{self.model} on {self.cluster}",
            "strategy": _degrees(self.sections),
            "step time": f"{self.step_time_s:.4g} s a step",
            "gap": f"gap {percent(self.gap)}",
        }


def _degrees(document: AnyDocument) -> str:
    """Degrees, schedule and sharding as short as a line needs them."""
    if isinstance(document, MeshDocument):
        meshes = "; ".join(f"{m.device}: tp={m.tp} dp={m.dp} pp={m.pp}" for m in document.strategy.meshes)
        return meshes + (f"; zero={document.strategy.zero}" if document.strategy.zero else "")
    return " ".join(filter(None, (text(document.strategy) for text in SHORT_TEXTS)))


def load_plan(path: str | Path) -> Plan:
    """
    Read a plan that ``taut plan --out`` or ``Plan.write`` wrote.

    Parameters
    ----------
    path
        JSON file in the format ``taut-plan/1``, or ``taut-meshes/1`` for degrees by type of device.

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


def traffic_graph(plan: PlanDocument, source: str) -> "DiGraph[int]":
    """The graph of a plan's traffic, in bytes of a step."""
    from networkx import DiGraph

    problem, devices = problem_of(plan, source), devices_of(plan, source)
    strategy = strategy_of(plan.strategy, source)
    given, node_of = placement_problem(problem, strategy), problem.links.node_of
    graph: DiGraph[int] = DiGraph(name=f"{problem.model.name} on {problem.cluster.name}")
    for (stage, replica, rank), device in np.ndenumerate(by_replica(strategy.candidate, devices)):
        graph.add_node(int(device), stage=stage, replica=replica, rank=rank, node=int(node_of[device]))
    pipeline, rings = trip_flow(given), ring_flow(given)
    blocks = devices.swapaxes(0, 1).reshape(-1, strategy.candidate.width)
    for p, q in np.argwhere(pipeline + rings > 0.0):
        sent, reduced = float(pipeline[p, q]), float(rings[p, q])
        for a, b in zip(blocks[p].tolist(), blocks[q].tolist(), strict=True):
            graph.add_edge(a, b, bytes=sent + reduced, pipeline=sent, data_parallel=reduced)
    return graph
