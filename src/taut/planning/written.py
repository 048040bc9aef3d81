"""
What every plan is as it is returned and read back, whatever its strategy: a document with its certificate, typed.

A plan holds the document twice: as plain JSON values, which are written and checked, and as frozen sections, which its
properties return. ``taut.planning.plan`` has one degree for all stages, ``taut.meshes.plan`` others by type of device.
"""

import json
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

from taut.data.cluster import ClusterSpec
from taut.data.read import read_json
from taut.files import write_atomically
from taut.planning.tables import described_cluster
from taut.solver.certificate.document import MESHES, DocumentFrame, PlanDocument
from taut.solver.certificate.verify import Verification
from taut.solver.meshes.document import MeshDocument
from taut.solver.meshes.spaces import WithoutPlan, bound_of_both, other_space, status_of_both, verify_plan
from taut.solver.result import relative_gap
from taut.words import percent

Document = TypeVar("Document", PlanDocument, MeshDocument)


def is_meshed(path: Path) -> bool:
    """
    Whether a file holds a plan of meshes.

    Raises ``DataError`` if the file cannot be read or is no JSON object.
    """
    return bool(read_json(path, "a plan").get("format") == MESHES)


@dataclass(frozen=True, repr=False, eq=False)
class WrittenPlan(Generic[Document]):
    """A document with its certificate, as ``Plan`` and ``MeshedPlan`` say."""

    document: dict[str, Any]
    source: str = "a plan"
    typed: Document = field(init=False)
    kind: ClassVar[str] = "a plan"
    """What a file is expected to be, for messages."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "typed", self._parsed())
        other_space(self.document, self.source)

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """
        Read a plan that was written.

        Raises ``DataError`` if the file cannot be read or is no such plan.
        """
        return cls(read_json(Path(path), cls.kind), str(path))

    def write(self, path: str | Path) -> None:
        """Write the document as JSON, whole or not at all."""
        write_atomically(Path(path), json.dumps(self.document) + "\n")

    def verify(self) -> Verification:
        """Check the certificate without trusting the search."""
        return verify_plan(json.loads(json.dumps(self.document)), self.source)

    @property
    def model(self) -> str:
        """Name of the model."""
        return self.typed.inputs["model"].name

    @property
    def cluster(self) -> str:
        """Name of the cluster."""
        return self.typed.inputs["cluster"].name

    @property
    def cluster_spec(self) -> ClusterSpec:
        """The cluster, as the document describes it."""
        return described_cluster(self.typed)

    @property
    def status(self) -> str:
        """``optimal`` or ``feasible``: of the space, or of both."""
        if (other := self.other_space) is None:
            return self.typed.status
        return str(status_of_both(self.step_time_s, self.typed.certificate.lower_bound_s, other))

    @property
    def step_time_s(self) -> float:
        """Predicted seconds of one training step."""
        return self.typed.predicted.step_time_s

    @property
    def other_space(self) -> DocumentFrame | WithoutPlan | None:
        """What the document says of plans of meshes, or of one degree; None where one space alone was searched."""
        return other_space(self.document, self.source)

    @property
    def lower_bound_s(self) -> float | None:
        """Seconds that no plan of the space, or of both, can beat; None if nothing was proven."""
        return bound_of_both(self.typed.certificate.lower_bound_s, self.other_space)

    @property
    def gap(self) -> float | None:
        """Relative gap between step time and bound."""
        if self.other_space is None:
            return self.typed.certificate.gap
        return None if self.lower_bound_s is None else relative_gap(self.step_time_s, self.lower_bound_s)

    @property
    def spaces(self) -> list[str]:
        """Status and bound of both spaces, and what is known of the other one; none where one alone was searched."""
        other, bound = self.other_space, self.lower_bound_s
        if other is None:
            return []
        others = "one degree for all stages" if self.typed.format == MESHES else "degrees by type of device"
        if isinstance(other, WithoutPlan):
            least = "" if other.lower_bound_s is None else f", none is below {other.lower_bound_s:.6g} s"
            found = "no plan fits" if other.status == "infeasible" else f"no plan was found in time{least}"
        else:
            stated = other.certificate
            least = "" if stated.lower_bound_s is None else f", none below {stated.lower_bound_s:.6g} s"
            found = f"the best plan takes {stated.objective_s:.6g} s{least}"
        both = "unknown" if bound is None else f"{bound:.6g} s, gap {percent(self.gap)}"
        return [
            f"status      {self.status}: lower bound of both spaces {both}",
            f"            with {others} {found}",
        ]

    def __repr__(self) -> str:
        """One line: model, cluster, strategy, step time, gap."""
        return f"<{type(self).__name__} {', '.join(self._figures.values())}>"

    def _repr_html_(self) -> str:
        """A small table for notebooks: the line of ``repr`` by its parts."""
        cells = (f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in self._figures.items())
        return f"<table>{''.join(cells)}</table>"

    @property
    @abstractmethod
    def _figures(self) -> Mapping[str, str]:
        """What a line says of the plan, by name."""

    @abstractmethod
    def _parsed(self) -> Document:
        """The typed document."""
