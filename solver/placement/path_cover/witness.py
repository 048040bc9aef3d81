"""
The witness of a ``cover`` bound in a certificate: the staircase as JSON, and back.

A proof names its nodes, the required ones among them, and the range of touched nodes that it holds for; and either
potentials, or a quantum, levels and gains by node and length, and by rules of visits of some nodes. A box names its
range of touched nodes and of inverse rates, and its parts, each with the number of its proof, nothing where it is
empty, or a split into the branches that touch some of the named nodes or none.
"""

import json
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from taut.data.spec import digest
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.solver.placement.path_cover.branches import Split, Tree
from taut.solver.placement.path_cover.capacity_cuts import Rule
from taut.solver.placement.path_cover.cases import Box, CoverBound, Part, PathProof, Staircase, bound_of
from taut.solver.placement.path_cover.certificate import Refutation
from taut.solver.placement.path_cover.forest import Potentials
from taut.solver.placement.slots import Span, slots


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

    def _by(self) -> Potentials | Refutation | None:
        if self.potentials is not None:
            return Potentials(values=tuple(self.potentials))
        if self.quantum_s is None or self.levels is None or self.gains is None:
            return None
        first = None if self.first_gains is None else tuple(self.first_gains)
        rules = tuple((Rule(nodes=tuple(rule.nodes), begun=rule.begun), rule.gain) for rule in self.rules)
        return Refutation(quantum=self.quantum_s, levels=self.levels, later=tuple(self.gains), first=first, rules=rules)


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

    def box(self) -> Box:
        high = np.inf if self.below_s_per_byte is None else self.below_s_per_byte
        span = Span(fewest=self.touched[0], most=self.touched[1], low=self.from_s_per_byte, high=high)
        return Box(span=span, parts=tuple(Part(nodes=tuple(p.nodes), tree=_tree(p.proof)) for p in self.parts))


def _tree(values: _Split | int | None) -> Tree:
    if not isinstance(values, _Split):
        return values
    return Split(nodes=tuple(values.touching), some=_tree(values.some), none=_tree(values.none))


class _Witness(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    proofs: list[_Proof]
    boxes: list[_Box]
    sha256: str


def witness_of(staircase: Staircase) -> dict[str, Any]:
    """The staircase as plain JSON values with their digest."""
    values = {
        "proofs": [_proof_values(proof) for proof in staircase.proofs],
        "boxes": [_box_values(box) for box in staircase.boxes],
    }
    return {**values, "sha256": digest(values)}


def _box_values(box: Box) -> dict[str, Any]:
    span = box.span
    high = float(span.high) if np.isfinite(span.high) else None
    values = {"touched": [span.fewest, span.most], "from_s_per_byte": float(span.low), "below_s_per_byte": high}
    return {**values, "parts": [{"nodes": list(part.nodes), "proof": _tree_values(part.tree)} for part in box.parts]}


def _tree_values(tree: Tree) -> dict[str, Any] | int | None:
    if not isinstance(tree, Split):
        return tree
    return {"touching": list(tree.nodes), "some": _tree_values(tree.some), "none": _tree_values(tree.none)}


def _proof_values(proof: PathProof) -> dict[str, Any]:
    values: dict[str, Any] = {"nodes": list(proof.nodes), "required": list(proof.required)}
    values["touched"] = list(proof.touched)
    by = proof.by
    if isinstance(by, Potentials):
        values["potentials"] = list(by.values)
    elif isinstance(by, Refutation):
        values |= {"quantum_s": float(by.quantum), "levels": by.levels, "gains": [list(row) for row in by.later]}
        if by.first is not None:
            values["first_gains"] = [list(row) for row in by.first]
        if by.rules:
            values["rules"] = [{"nodes": list(r.nodes), "begun": r.begun, "gain": gain} for r, gain in by.rules]
    return values


def witnessed(problem: PlanningProblem, candidate: Candidate, witness: dict[str, Any]) -> CoverBound | None:
    """The staircase that a witness proves for a candidate; None where it is malformed, altered or proves nothing."""
    try:
        parsed = _Witness.model_validate_json(json.dumps(witness))
    except (ValidationError, TypeError, ValueError):
        return None
    if digest({name: value for name, value in witness.items() if name != "sha256"}) != parsed.sha256:
        return None
    proofs = tuple(section.proof() for section in parsed.proofs)
    boxes = tuple(section.box() for section in parsed.boxes)
    return bound_of(slots(problem, candidate), Staircase(proofs=proofs, boxes=boxes))
