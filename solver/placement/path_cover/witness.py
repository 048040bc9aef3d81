"""
The witness of a ``cover`` bound in a certificate file: a case distinction as JSON, and back.

This is the one place that maps the keys of the file format to the names in the code:

=====================  ==============================================================================
key                    name
=====================  ==============================================================================
``proofs``             ``PathProof`` with ``nodes`` P, ``required`` Q, ``touched`` [k, k']
``potentials``         ``NodeMultipliers.values``
``quantum_s``          ``DualCertificate.quantum``, seconds of a resource unit
``levels``             ``DualCertificate.limit``, the resource limit R
``gains``              ``DualCertificate.later``, dual prices by node and length of segment
``first_gains``        ``DualCertificate.first``, left out where equal
``rules``              ``DualCertificate.cuts``: ``nodes``, ``begun`` (``Cut.mir``), ``gain`` (the price)
``boxes``              ``Case``: ``touched`` [k, k'], ``from_s_per_byte`` and ``below_s_per_byte`` of its
                       ``Box`` (null for infinity)
``parts``              ``StartSet`` with ``nodes`` and its ``proof``: a proof's number, null where it is
                       empty, or ``touching``, ``some``, ``none`` of a ``Split``
``racks``              where racks are told apart, rack of every node
``stages``             and a case distinction as above for each ``RackCase``: ``confined``, ``spanning``
``sha256``             digest of all else
=====================  ==============================================================================
"""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from taut.data.spec import digest
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.solver.placement.path_cover.bound import Covered
from taut.solver.placement.path_cover.cases import (
    Case,
    CaseCertificate,
    PathProof,
    Split,
    StartSet,
    Tree,
    certified_bound,
)
from taut.solver.placement.path_cover.certificate import Cut, DualCertificate
from taut.solver.placement.path_cover.forest import NodeMultipliers
from taut.solver.placement.path_cover.racks import RackCase, has_racks, is_whole, known_racks
from taut.solver.placement.slots import Box, SlotGraph, slot_graph


class _Rule(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    nodes: list[int]
    begun: bool
    gain: int


class _Proof(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    nodes: list[int]
    required: list[int] = []
    touched: tuple[int, int]
    potentials: list[int] | None = None
    quantum_s: float | None = None
    levels: int | None = None
    gains: list[tuple[int, ...]] | None = None
    first_gains: list[tuple[int, ...]] | None = None
    rules: list[_Rule] = []

    def proof(self) -> PathProof:
        nodes, required = tuple(self.nodes), tuple(self.required)
        return PathProof(nodes=nodes, required=required, touched=self.touched, by=self._by())

    def _by(self) -> NodeMultipliers | DualCertificate | None:
        if self.potentials is not None:
            return NodeMultipliers(values=tuple(self.potentials))
        if self.quantum_s is None or self.levels is None or self.gains is None:
            return None
        first = None if self.first_gains is None else tuple(self.first_gains)
        cuts = tuple((Cut(nodes=tuple(rule.nodes), mir=rule.begun), rule.gain) for rule in self.rules)
        return DualCertificate(
            quantum=self.quantum_s, limit=self.levels, later=tuple(self.gains), first=first, cuts=cuts
        )


class _Split(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    touching: list[int]
    some: "_Split | int | None"
    none: "_Split | int | None"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    nodes: list[int]
    proof: _Split | int | None


class _Box(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    touched: tuple[int, int]
    from_s_per_byte: float
    below_s_per_byte: float | None
    parts: list[_Part]

    def case(self) -> Case:
        high = np.inf if self.below_s_per_byte is None else self.below_s_per_byte
        box = Box(min_touched=self.touched[0], max_touched=self.touched[1], low=self.from_s_per_byte, high=high)
        sets = tuple(StartSet(nodes=tuple(part.nodes), tree=_tree(part.proof)) for part in self.parts)
        return Case(box=box, start_sets=sets)


def _tree(values: _Split | int | None) -> Tree:
    if not isinstance(values, _Split):
        return values
    return Split(nodes=tuple(values.touching), some=_tree(values.some), none=_tree(values.none))


class _Cases(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    proofs: list[_Proof]
    boxes: list[_Box]

    def certificate(self) -> CaseCertificate:
        proofs = tuple(section.proof() for section in self.proofs)
        return CaseCertificate(proofs=proofs, cases=tuple(section.case() for section in self.boxes))


class _Stage(_Cases):
    confined: int
    spanning: bool


class _Witness(_Cases):
    sha256: str


class _ByRacks(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    racks: list[int]
    stages: list[_Stage]
    sha256: str


_FORMATS: TypeAdapter[_Witness | _ByRacks] = TypeAdapter(_Witness | _ByRacks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    """A certificate for each case of racks, ``rack`` by node; of ``WHOLE`` alone without racks."""

    rack: tuple[int, ...] | None
    by_case: tuple[tuple[RackCase, CaseCertificate], ...]


def witness_of(certificates: Certificates) -> dict[str, Any]:
    """The case distinctions as plain JSON values under the keys above, with the digest."""
    cases = [_values(certificate) for _, certificate in certificates.by_case]
    if certificates.rack is None:
        return {**cases[0], "sha256": digest(cases[0])}
    named = [{"confined": case.confined, "spanning": case.spanning} for case, _ in certificates.by_case]
    stages = [{**name, **values} for name, values in zip(named, cases, strict=True)]
    whole = {"racks": list(certificates.rack), "stages": stages}
    return {**whole, "sha256": digest(whole)}


def _values(certificate: CaseCertificate) -> dict[str, Any]:
    return {
        "proofs": [_proof_values(proof) for proof in certificate.proofs],
        "boxes": [_case_values(case) for case in certificate.cases],
    }


def _case_values(case: Case) -> dict[str, Any]:
    box = case.box
    high = float(box.high) if np.isfinite(box.high) else None
    values = {
        "touched": [box.min_touched, box.max_touched],
        "from_s_per_byte": float(box.low),
        "below_s_per_byte": high,
    }
    parts = [{"nodes": list(part.nodes), "proof": _tree_values(part.tree)} for part in case.start_sets]
    return {**values, "parts": parts}


def _tree_values(tree: Tree) -> dict[str, Any] | int | None:
    if not isinstance(tree, Split):
        return tree
    return {"touching": list(tree.nodes), "some": _tree_values(tree.some), "none": _tree_values(tree.none)}


def _proof_values(proof: PathProof) -> dict[str, Any]:
    values: dict[str, Any] = {"nodes": list(proof.nodes), "required": list(proof.required)}
    values["touched"] = list(proof.touched)
    by = proof.by
    if isinstance(by, NodeMultipliers):
        values["potentials"] = list(by.values)
    elif isinstance(by, DualCertificate):
        values |= {"quantum_s": float(by.quantum), "levels": by.limit, "gains": [list(row) for row in by.later]}
        if by.first is not None:
            values["first_gains"] = [list(row) for row in by.first]
        if by.cuts:
            values["rules"] = [{"nodes": list(cut.nodes), "begun": cut.mir, "gain": dual} for cut, dual in by.cuts]
    return values


def witnessed(problem: PlanningProblem, candidate: Candidate, witness: dict[str, Any]) -> tuple[Covered, ...] | None:
    """What a witness from anyone proves in each of its cases; None where it is malformed, altered or proves nothing."""
    try:
        parsed = _FORMATS.validate_json(json.dumps(witness))
    except (ValidationError, TypeError, ValueError):
        return None
    if digest({name: value for name, value in witness.items() if name != "sha256"}) != parsed.sha256:
        return None
    graph = slot_graph(problem, candidate)
    if isinstance(parsed, _ByRacks):
        by_case = [
            (RackCase(confined=stage.confined, spanning=stage.spanning), stage.certificate()) for stage in parsed.stages
        ]
        return _by_racks(graph, parsed.racks, by_case)
    bound = certified_bound(graph, parsed.certificate())
    return None if bound is None else (Covered(bound=bound),)


def _by_racks(
    graph: SlotGraph, rack: list[int], by_case: list[tuple[RackCase, CaseCertificate]]
) -> tuple[Covered, ...] | None:
    """What is proven in each case of racks; None where one is missing or unproven."""
    if len(rack) != len(graph.hops) or not has_racks(graph):
        return None
    racks = known_racks(graph, np.array(rack))
    if racks is None or not is_whole(racks, tuple(case for case, _ in by_case)):
        return None
    covered = []
    for case, certificate in by_case:
        bound = certified_bound(racks.restricted(case), certificate)
        if bound is None:
            return None
        covered.append(Covered(bound=bound, case=case, ring=racks.ring))
    return tuple(covered)
