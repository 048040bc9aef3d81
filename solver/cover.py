"""
Building the staircase that bounds the communication of any number of nodes.

The staircase and what it proves are those of ``taut.solver.staircase``, (1) to (3). It is refined where it is least
for one g: the proof of a set is tightened, by a forest (``taut.solver.forest``) or by gains (``taut.solver.walks``), or
the step is split at a threshold.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from taut.solver.cliques import clique_sets, least_slowest_link
from taut.solver.forest import climb
from taut.solver.staircase import CoverBound, PathProof, Staircase, Step
from taut.solver.walks import LongestPath

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Ints = NDArray[np.int64]
CLIMB_ROUNDS = 600
MOST_SETS = 4
MOST_GROWTH = 1.34
"""Start sets are joined while there are more, or while the union is at most so much larger than the larger one."""
SMALLER = 0.75
"""A step is split where its largest start set falls to this share."""
NARROW = 2e-3
"""Relative distance between proven and unprovable seconds below which a proof is left as it is."""
LEVELS = 256
FEW_LEVELS = 128
MANY_NODES = 96


@dataclass(slots=True)
class _Open:
    """A step under construction: its range of thresholds, its start sets, and whether those are no longer split."""

    low: float
    high: float
    sets: list[bytes]
    whole: bool = False


@dataclass
class Cover:
    """
    A staircase under construction.

    ``ring`` is the seconds of the ring per unit of b, divided by the trip's weight, for which the staircase is made
    good; ``value`` is then the bound in seconds of hops, and ``target`` that of a known placement.
    """

    hops: Floats
    inverse: Floats
    pp: int
    ring: float
    target: float
    longest: float
    rounds: int = 0
    _sets: dict[bytes, LongestPath] = field(default_factory=dict)
    _inherited: dict[bytes, PathProof] = field(default_factory=dict)
    _steps: list[_Open] = field(default_factory=list)
    _known_parts: dict[float, list[Flags]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        n = len(self.hops)
        self.dp = n // self.pp
        self._pipelines = np.zeros((0, self.pp), np.int64)
        self._base, potentials = climb(self.hops, self.pp, longest=self.longest, rounds=CLIMB_ROUNDS)
        everything = np.ones(n, dtype=bool)
        self._forest = PathProof(nodes=tuple(range(n)), by=potentials)
        self._rates = np.unique(self.inverse[~np.eye(n, dtype=bool)])
        key = self._add(everything, self._base, self._forest)
        self._steps = [_Open(least_slowest_link(self.inverse, self.dp), np.inf, [key])]

    def offer(self, walks: Ints) -> None:
        """Pipelines of a good placement, (any number, pp) nodes."""
        self._pipelines = np.vstack([self._pipelines, walks])
        for path in self._sets.values():
            path.offer(walks)

    def _add(self, starts: Flags, seconds: float, proof: PathProof) -> bytes:
        """The path bound of a start set, from what is proven for a set that holds it."""
        key = starts.tobytes()
        if key not in self._sets:
            path = LongestPath(self.hops, starts, self.pp, floor=seconds, ceiling=np.inf, levels=self.levels)
            self._sets[key], self._inherited[key] = path, proof
            path.offer(self._pipelines)
        elif self._sets[key].seconds < seconds:
            self._sets[key].seconds, self._sets[key].proof = seconds, None
            self._inherited[key] = proof
        return key

    def _seconds(self, step: _Open) -> float:
        return min((self._sets[key].seconds for key in step.sets), default=np.inf)

    def _value(self, step: _Open) -> float:
        return self._seconds(step) + self.ring * step.low

    @property
    def levels(self) -> int:
        """Levels R of the proofs that are sought."""
        return LEVELS if len(self.hops) < MANY_NODES else FEW_LEVELS

    @property
    def value(self) -> float:
        """Bound on hops plus ring, in seconds of hops."""
        return min(map(self._value, self._steps), default=np.inf)

    def refine(self, *, rounds: int = 20) -> bool:
        """
        Refine once where the staircase is least; returns whether anything is left to refine.

        A step is first split where its start sets become smaller, then more is proven of its sets, and at last it is
        split by what the ring costs.
        """
        index = min(range(len(self._steps)), key=lambda i: self._value(self._steps[i]))
        step = self._steps[index]
        if self._value(step) >= self.target * (1 - 1e-9):
            return False
        if not step.whole:
            self._split_by_sets(index)
            return True
        path = self._sets[min(step.sets, key=lambda k: self._sets[k].seconds)]
        goal = min(path.ceiling, self.target - self.ring * step.low, self.longest)
        if goal <= path.seconds * (1 + NARROW):
            return self._split_by_ring(index)
        before = path.rounds
        path.raise_towards(goal, rounds=rounds)
        self.rounds += path.rounds - before
        return True

    def _inside(self, step: _Open) -> Floats:
        """Rates strictly inside a step, at which it can be split."""
        rates = self._rates
        return rates[(rates > step.low) & (rates < step.high)]

    def _split_by_sets(self, index: int) -> None:
        """Divide a step at the largest threshold below which its largest start set is much smaller, if there is one."""
        step = self._steps[index]
        step.whole = True
        largest = max(int(self._sets[key].starts.sum()) for key in step.sets)
        inside = self._inside(step)
        low, high = 0, len(inside)
        while low < high:
            middle = (low + high) // 2
            sizes = [int(part.sum()) for part in self._parts(float(inside[middle]))]
            low, high = (middle + 1, high) if max(sizes, default=0) <= SMALLER * largest else (low, middle)
        if low > 0:
            self._divide(index, float(inside[low - 1]), whole=False)

    def _split_by_ring(self, index: int) -> bool:
        """Divide a step where the ring closes its upper part, or in the middle; False if it is narrow."""
        step = self._steps[index]
        inside = self._inside(step)
        if not len(inside) or self.ring * (inside[-1] - step.low) < NARROW * self.target:
            return False
        closing = self._seconds(step) + self.ring * inside >= self.target
        halfway = np.searchsorted(inside, 0.5 * (step.low + inside[-1]))
        first = int(np.argmax(closing)) if closing.any() else len(inside)
        # Where the ring closes almost everything the rest is halved, so that start sets become smaller.
        self._divide(index, float(inside[min(first, max(int(halfway), 0), len(inside) - 1)]), whole=True)
        return True

    def _divide(self, index: int, middle: float, *, whole: bool) -> None:
        step = self._steps[index]
        keys = [self._part(step, part) for part in self._parts(middle)]
        lower = [_Open(step.low, middle, keys, whole)] if keys else []
        self._steps[index : index + 1] = [*lower, _Open(middle, step.high, step.sets, True)]

    def _parts(self, high: float) -> list[Flags]:
        """Start sets for links below ``high``: the clique sets, joined where they are alike or too many."""
        if high not in self._known_parts:
            self._known_parts[high] = _joined(clique_sets(self.inverse, high, self.dp))
        return self._known_parts[high]

    def _part(self, step: _Open, part: Flags) -> bytes:
        """A start set of the lower part of a step, with the best proof for a set of the step that holds it."""
        holders = [key for key in step.sets if (part <= self._sets[key].starts).all()]
        if not holders:
            return self._add(part, self._base, self._forest)
        best = max(holders, key=lambda key: self._sets[key].seconds)
        return self._add(part, self._sets[best].seconds, self._proof(best))

    def _proof(self, key: bytes) -> PathProof:
        path = self._sets[key]
        if path.proof is None:
            return self._inherited[key]
        return PathProof(nodes=tuple(np.flatnonzero(path.starts).tolist()), by=path.proof)

    def bound(self) -> CoverBound:
        """What is proven so far, as ``bound_of`` derives it from the staircase."""
        thresholds, longest = np.array([(step.low, self._seconds(step)) for step in self._steps]).T
        return CoverBound(thresholds=thresholds, longest=longest)

    def staircase(self) -> Staircase:
        """The witness as it stands."""
        proofs: dict[PathProof, int] = {}
        steps = [Step(threshold=0.0, proofs=())] if self._steps[0].low > 0.0 else []
        for step in self._steps:
            chosen = sorted({proofs.setdefault(self._proof(key), len(proofs)) for key in step.sets})
            steps.append(Step(threshold=step.low, proofs=tuple(chosen)))
        return Staircase(proofs=tuple(proofs), steps=tuple(steps))


def _joined(sets: Flags) -> list[Flags]:
    """Fewer sets that hold the given ones: the two with the smallest union are joined while that adds little."""
    joined = _without_parts(sets)
    while len(joined) > 1:
        table = np.array(joined, dtype=np.int64)
        sizes = table.sum(axis=1)
        unions = sizes[:, None] + sizes[None, :] - table @ table.T
        growth = unions / np.maximum(sizes[:, None], sizes[None, :]) + 9.0 * np.eye(len(joined))
        a, b = np.unravel_index(int(np.argmin(growth)), growth.shape)
        if growth[a, b] > MOST_GROWTH and len(joined) <= MOST_SETS:
            break
        union = joined[a] | joined[b]
        joined = [part for part in joined if not (part <= union).all()] + [union]
    return joined


def _without_parts(sets: Flags) -> list[Flags]:
    """The sets that are in no other, largest first."""
    kept: list[Flags] = []
    for part in sorted(sets, key=lambda s: (-int(s.sum()), s.tobytes())):
        if not any((part <= other).all() for other in kept):
            kept.append(part)
    return kept
