r"""
Checking a plan of meshes without trusting the search that made it; ``taut.solver.certificate.verify`` runs the check.

(1) Its choice is one of the space's, which are enumerated by the reference evaluator's own rules
    (``taut.solver.certificate.reference.meshes``); its stages, devices and memory break no rule.
(2) Step time, memory, gap and status follow from the inputs, priced by the reference evaluator. The bounds of examined
    choices are derived, and their plans are no better than the plan.
(3) No choice has a bound below the stated one. Bounds of all choices are derived again, the exact one where that of two
    dynamic programs does not reach (``taut.solver.meshes.bound`` (4) and (5)). They are sums, minima and maxima that
    are lowered by ``ROUNDING`` or more, and missing bytes are whole numbers, so
    ``taut.solver.certificate.exact`` (1) to (4) and (6) show them in exact arithmetic.
(4) Those bounds share their prices with the search, so plans of the choices with the least bounds, and of random ones,
    are priced by the reference evaluator, in both orders of ranks and with tensor groups in random places, and from the
    best of a choice those that a steepest descent over moved boundaries and changed recomputes finds. No plan that
    breaks no rule may undercut the stated bound or its choice's own.
(5) Bounds add up terms (``taut.solver.meshes.bound`` (1)). In plans with every mesh that some choice has, and in
    those of (4), reduction and optimizer of each stage take no less by the reference evaluator than in the bound, and
    the step takes no less than the bound's sum at the plan's own division.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, pairwise, product, zip_longest
from typing import ClassVar

import numpy as np

from taut.data.arrays import Ints
from taut.data.units import KIB
from taut.errors import DataError
from taut.formulations.meshes.choice import Mesh, MeshChoice
from taut.solver.bounds.relaxation import ROUNDING
from taut.solver.certificate.document import MeshDocument, MeshesOfChoice, problem_of, status_of
from taut.solver.certificate.exact import Exactness, operations, rounded
from taut.solver.certificate.examined import TOLERANCE, case_of, differences, is_close, is_close_or_small, utilisation
from taut.solver.certificate.reference.memory import margin_kib
from taut.solver.certificate.reference.meshes import Meshes, MeshFigures, every_choice
from taut.solver.certificate.sampling import Sample
from taut.solver.meshes.bound import MeshBounds
from taut.solver.result import relative_gap

SAMPLED, DRAWN = 24, 4
"""Choices with the least bounds, and random ones, of which plans are priced in (4), and random plans of each."""
MOST_PRICED = 12_000
"""Devices times priced plans of (4): a few seconds."""
ROUNDS = 6
"""Most rounds of a descent; most descents end earlier."""


class MeshCheck:
    """A document of meshes with what is derived of it; steps are called in the order of the methods."""

    claimed: tuple[str, ...] = ()
    within_rounding: int | None = None
    exactness: Exactness | None = None
    plainer: ClassVar[dict[str, Exactness]] = {}

    def __init__(self, document: MeshDocument, source: str) -> None:
        self.document, self.problem = document, problem_of(document, source)
        problem, strategy, devices = self.problem, document.strategy, document.mesh_devices(source)
        self.lower_bound = -math.inf
        self._case, self._bounds = case_of(problem), MeshBounds(problem)
        self._meshes = self._read(strategy)
        stages = tuple((first, end) for first, end in strategy.stages)
        self._plan = MeshFigures(self._case, self._meshes, stages, tuple(strategy.recompute), devices)

    @property
    def objective(self) -> float:
        """Seconds that the document states."""
        return self.document.certificate.objective_s

    @cached_property
    def _choices(self) -> list[Meshes]:
        return list(every_choice(self._case))

    @property
    def count(self) -> int:
        """How many choices the space has."""
        return len(self._choices)

    def strategy(self) -> list[str]:
        """Rules that the plan breaks, (1)."""
        if self._meshes not in self._choices:
            return ["strategy.meshes are none of the space's choices"]
        stated = self.document.certificate.choices
        other = [] if stated in (None, self.count) else [f"certificate.choices is {stated}, enumerated {self.count}"]
        return [*other, *self._plan.faults()]

    def derived(self) -> list[str]:
        """Faults of all figures, (2) and (3)."""
        return [*self._prediction(), *self._certificate(), *self._examined()]

    def _examined(self) -> Iterator[str]:
        """Choices with plans whose bounds are not derived, or whose best plan is better than the plan or the bound."""
        choices = set(self._choices)
        for number, each in enumerate(self.document.certificate.examined):
            path, meshes = f"certificate.examined.{number}", self._read(each.strategy)
            if meshes not in choices:
                yield f"{path} is none of the space's choices"
            elif each.lower_bound_s > (derived := self._bounds.exact(_choice(meshes))[0]) * (1 + TOLERANCE):
                yield f"{path}.lower_bound_s is {each.lower_bound_s!r}, derived {derived!r}"
            elif each.step_time_s < max(each.lower_bound_s, self.objective) * (1 - TOLERANCE):
                yield f"{path}.step_time_s is {each.step_time_s!r}, below its bound or the objective"

    def _read(self, strategy: MeshesOfChoice) -> Meshes:
        """Degrees of a stated choice; a ``DataError`` where a device is unknown."""
        types = self.problem.device_types
        unknown = [mesh.device for mesh in strategy.meshes if mesh.device not in types]
        if unknown:
            raise DataError(f"strategy.meshes: {unknown[0]} is no device of the cluster")
        each = ((types.index(mesh.device), mesh.tp, mesh.dp, mesh.pp, mesh.micro_batch) for mesh in strategy.meshes)
        return Meshes(tuple(each), strategy.num_micro_batches, strategy.zero, strategy.all_recompute)

    def _prediction(self) -> Iterator[str]:
        """Figures that do not follow, (2)."""
        predicted, stated, total = self.document.predicted, self.document.certificate, self._plan.total()
        claims = {"predicted.step_time_s": predicted.step_time_s, "certificate.objective_s": stated.objective_s}
        for name, claim in claims.items():
            if not is_close(claim, total):
                yield f"{name} is {claim!r}, recomputed {total!r}"
        breakdown = self._plan.breakdown(predicted.breakdown_s)
        if breakdown.keys() != predicted.breakdown_s.keys():
            yield f"predicted.breakdown_s does not hold {sorted(breakdown)}"
        for name, seconds in predicted.breakdown_s.items():
            if not is_close_or_small(breakdown.get(name), seconds, total):
                yield f"predicted.breakdown_s.{name} is {seconds!r}, recomputed {breakdown.get(name)!r}"
        capacity = [self.problem.capacity_kib[self._meshes.degrees[k][0]] for k in self._plan.mesh_of]
        held = {
            "memory_bytes": self._plan.memory(),
            "capacity_bytes": [KIB * kib for kib in capacity],
            "margin_bytes": [KIB * margin_kib(self._case, kib) for kib in capacity],
        }
        for name, derived in held.items():
            if getattr(predicted, name) != derived:
                yield f"predicted.{name} is {getattr(predicted, name)}, recomputed {derived}"
        yield from differences("predicted.mfu", utilisation(self._case, total), predicted.mfu)
        tokens = self.problem.space.global_batch * self.problem.model.tokens / total if total else None
        if not is_close_or_small(tokens, predicted.tokens_per_s, total):
            yield f"predicted.tokens_per_s is {predicted.tokens_per_s!r}, recomputed {tokens!r}"
        gap = None if stated.lower_bound_s is None else relative_gap(stated.objective_s, stated.lower_bound_s)
        if gap != stated.gap:
            yield f"certificate.gap is {stated.gap!r}, objective and bound make it {gap!r}"
        if str(status_of(gap)) != self.document.status:
            yield f"status is {self.document.status}, objective and bound make it {status_of(gap)}"

    def _certificate(self) -> list[str]:
        """A choice whose bound is below the stated one, (3); where there is none, the stated bound is derived."""
        stated, objective = self.document.certificate.lower_bound_s, self.objective
        if stated is None:
            return []
        if stated > objective * (1 + TOLERANCE):
            return [f"certificate.lower_bound_s is {stated!r}, above the objective"]
        least, ways, alone = stated, Counter[str](), Counter[str]()
        for choice in map(_choice, self._choices):
            derived = self._derived(choice, stated)
            if derived < min(stated, objective) * (1 - TOLERANCE):
                return [f"certificate.lower_bound_s is {stated!r}, derived {derived!r} of a choice"]
            n = operations(len(self.problem.model.blocks) + 2, choice.pp, self.problem.links.num_nodes)
            if math.isinf(derived) or rounded(n) <= ROUNDING:
                ways["whole" if math.isinf(derived) else "rounding"] += 1
            else:
                alone["meshes"] += 1
            least = min(least, derived)
        self.lower_bound = least
        self.exactness = Exactness(whole=ways["whole"], rounding=ways["rounding"], alone=dict(alone))
        return []

    def _derived(self, choice: MeshChoice, stated: float) -> float:
        """The cheapest bound of a choice that is no less than the stated one, or the exact one."""
        for bound in (self._bounds.floor, self._bounds.quick):
            if (derived := bound(choice)) >= stated:
                return derived
        return self._bounds.exact(choice, stated * (1 + TOLERANCE))[0]

    def sampled(self) -> Sample:
        """Plans of some choices, priced, (4) and (5)."""
        faults = list[str]()
        rng = np.random.default_rng(int(self.document.certificate.problem_sha256[:16], 16))
        bounds = [self._bounds.floor(_choice(meshes)) for meshes in self._choices]
        least, others = np.argsort(bounds)[:SAMPLED].tolist(), rng.permutation(len(bounds))[:SAMPLED].tolist()
        stated = self.document.certificate.lower_bound_s or -math.inf
        tried, found = _Tried(), list[tuple[float, int, float, MeshFigures]]()
        wrong = (fault for drawn in self._of_every_mesh(rng) for fault in self._terms(drawn))
        if fault := next(wrong, None):
            return Sample(plans=0, feasible=0, faults=(fault,))
        for k in dict.fromkeys(each for pair in zip_longest(least, others) for each in pair if each is not None):
            bound = max(self._bounds.quick(_choice(self._choices[k])), stated)
            seconds, plan = tried.best(self._drawn(self._choices[k], rng))
            if plan is not None:
                faults += [*self._terms(plan)][: not faults]
                found.append((seconds / bound if 0 < bound < math.inf else 0.0, k, bound, plan))
            if tried.priced * self._case.cluster.num_devices > MOST_PRICED / 2:
                break
        for _, k, bound, plan in sorted(found, key=lambda entry: entry[:2]):
            seconds = tried.descended(plan, self._case.space["recompute"])
            bound = max(bound, self._bounds.exact(_choice(self._choices[k]))[0])
            if seconds < bound * (1 - TOLERANCE):
                faults.append(f"a sampled plan takes {seconds!r} s, below the bound {bound!r}")
                break
            if tried.priced * self._case.cluster.num_devices > MOST_PRICED:
                break
        return Sample(plans=tried.priced, feasible=tried.fitting, faults=tuple(faults))

    def _of_every_mesh(self, rng: np.random.Generator) -> Iterator[MeshFigures]:
        """Plans of choices that have all meshes together, two of each, (5)."""
        seen = set[tuple[int, ...]]()
        for meshes in self._choices:
            own = {(*degrees[:4], place == 0) for place, degrees in enumerate(meshes.degrees)}
            if not own <= seen:
                seen |= own
                yield from islice(self._drawn(meshes, rng), 1, 3)

    def _terms(self, plan: MeshFigures) -> Iterator[str]:
        """Terms of the bounds that are above what a plan takes, (5)."""
        choice, starts = _choice(plan.meshes), [first for first, _ in plan.stages]
        for x, k in enumerate(choice.mesh_of_stage):
            bound = sum(float(each[plan.stages[x]]) for each in self._bounds.after(choice, k))
            seconds = plan.after(x)
            if bound > seconds * (1 + TOLERANCE):
                yield f"reduction and optimizer of stage {x} take {seconds!r} s in a plan, bounded by {bound!r}"
        if not any(plan.faults()):
            bound = self._bounds.of_division(choice, np.array([*starts[1:], len(self._case.model.blocks)]))
            if bound > (seconds := plan.total()) * (1 + TOLERANCE):
                yield f"a sampled plan takes {seconds!r} s, below the sum {bound!r} of its terms"

    def _drawn(self, meshes: Meshes, rng: np.random.Generator) -> Iterator[MeshFigures]:
        """Plans of a choice: layers as even as can be with each recompute in either order of ranks; random ones."""
        layers, pp = len(self._case.model.blocks), meshes.pp
        allowed = [meshes.recompute] if meshes.recompute else self._case.space["recompute"]
        for number in range(2 * len(allowed) + DRAWN):
            in_order = number < 2 * len(allowed)
            cuts = rng.choice(np.arange(1, layers), pp - 1, replace=False) if number > 1 else np.arange(1, pp)
            ends = (
                [*sorted(cuts.tolist()), layers] if number > 1 else [round(x * layers / pp) for x in range(1, pp + 1)]
            )
            stages = tuple(zip([0, *ends[:-1]], ends, strict=True))
            kind = allowed[number // 2 if in_order else int(rng.integers(len(allowed)))]
            devices = [self._placed(degrees, number % 2 if in_order else 2, rng) for degrees in meshes.degrees]
            yield MeshFigures(self._case, meshes, stages, (kind,) * pp, devices)

    def _placed(self, degrees: Sequence[int], number: int, rng: np.random.Generator) -> Ints:
        """Devices of a mesh: in order (0), replica by replica (1), or its tensor groups in random places."""
        kind, tp, dp, pp, _ = degrees
        node_of = np.repeat(np.arange(self.problem.links.num_nodes), self.problem.links.gpus_per_node)
        own = np.flatnonzero(self.problem.type_of_node[node_of] == kind)
        if number == 1:
            return np.asarray(own.reshape(dp, pp, tp).swapaxes(0, 1))
        groups = own.reshape(-1, tp)
        return np.asarray((groups if number == 0 else rng.permutation(groups)).reshape(pp, dp, tp))


@dataclass
class _Tried:
    """How many plans were priced, and how many of them break no rule."""

    priced: int = 0
    fitting: int = 0

    def best(self, plans: Iterable[MeshFigures]) -> tuple[float, MeshFigures | None]:
        """Seconds of the best of some plans, and the plan; infinite and None if none fits."""
        best: tuple[float, MeshFigures | None] = math.inf, None
        for plan in plans:
            if (seconds := self._seconds(plan)) < best[0]:
                best = seconds, plan
        return best

    def descended(self, plan: MeshFigures, recompute: Sequence[str]) -> float:
        """Seconds of the best plan that a steepest descent comes by."""
        seconds = plan.total()
        for _ in range(ROUNDS):
            better, near = self.best(_neighbours(plan, recompute))
            if near is None or better >= seconds:
                break
            seconds, plan = better, near
        return seconds

    def _seconds(self, plan: MeshFigures) -> float:
        self.priced += 1
        if any(plan.faults()):
            return math.inf
        self.fitting += 1
        return plan.total()


def _neighbours(plan: MeshFigures, recompute: Sequence[str]) -> Iterator[MeshFigures]:
    """Plans with one layer moved between neighbouring stages, or another recompute of one stage."""
    ends = [end for _, end in plan.stages]
    for x, step in product(range(len(ends) - 1), (-1, 1)):
        moved = [end + step * (y == x) for y, end in enumerate(ends)]
        if all(a < b for a, b in pairwise([0, *moved])):
            yield replace(plan, stages=tuple(pairwise([0, *moved])))
    for x, kind in product(range(len(ends)), [] if plan.meshes.recompute else recompute):
        if kind != plan.recompute[x]:
            yield replace(plan, recompute=(*plan.recompute[:x], kind, *plan.recompute[x + 1 :]))


def _choice(meshes: Meshes) -> MeshChoice:
    """A choice as the bounds take it."""
    each = tuple(Mesh(*degrees) for degrees in meshes.degrees)
    return MeshChoice(each, meshes.num_micro_batches, meshes.zero, meshes.recompute)
