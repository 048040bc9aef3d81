r"""
Plans sampled to refute a bound: feasible ones, priced by the reference evaluator, that may undercut it.

A bound b of a candidate is refuted by a plan of that candidate with step time T if

.. math:: T < b (1 - 10^{-9}), \tag{1}

and a candidate that is said to be infeasible by any plan that breaks no rule. For every candidate, the plans are

- divisions into equal numbers of layers, into equal seconds, that of the plan under examination, and random ones, as
  far as the space states them, and some that it states, each with the least recompute that fits; all divisions and
  recomputes where they are few (2);
- placements in the order of the nodes, stage by stage or replica by replica, that of the plan under examination in
  both orders, and random ones (3);
- from the best of these, in the order of T / b, steepest descent over moved boundaries, changed recomputes and
  exchanged blocks, whole stages, nodes of blocks that take several, and devices where each has links of its own, and
  where it ends over further strategies on exchanged placements (4);
- where replicas divide the batch unevenly, placements of replicas on one type of device each, with micro-batches that
  let all end together, (6), and some near, (7).

The generator's seed is taken from the problem's SHA-256, the number of plans from its size: a check is repeatable.
A sample proves nothing: it only shows errors.

(6) With :math:`T_z(m) = T_z(pp) + (m - pp) s_z` the seconds of replica z's pipeline, all end together after

    .. math:: T = \Big( \sum_z m_z + \sum_z T_z(pp) / s_z - dp\,pp \Big) \Big/ \sum_z 1 / s_z,

    and the counts are those of T rounded down to one at least; what is left over goes one each to the replicas that
    then end first, and what is too much is taken from those that end last.
(7) Beside these, the same with a micro-batch of a replica for another one.
"""

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, combinations, islice, pairwise, permutations, product

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.data.units import KIB
from taut.solver.certificate.examined import TOLERANCE, Examined, order_for
from taut.solver.certificate.reference.layers import layers_of
from taut.solver.certificate.reference.memory import capacity_kib, margin_kib, memory_bytes
from taut.solver.certificate.reference.prices import pipelines, price
from taut.solver.certificate.reference.space import ANY, CLOSED_FORM, Case, Choice, Stages, forms_of, is_stated, stated

Batches = tuple[int, ...]


def types_of_replicas(case: Case, choice: Choice) -> Ints:
    """Device type of every replica where those of one type follow each other, (dp,)."""
    kinds, size = case.type_of_device, choice.pp * choice.block
    return np.repeat(np.arange(kinds.max() + 1), np.bincount(kinds) // size)


def by_type(case: Case, sequence: Ints) -> Ints:
    """Devices in another order: type by type, those of one type as before."""
    return sequence[np.argsort(case.type_of_device[sequence], kind="stable")]


def of_types(case: Case, choice: Choice, placements: Ints) -> Ints:
    """Those of some placements (n, pp, dp, block) that a choice may have: by type, one type after another."""
    if not choice.pipelines_by_type:
        return placements
    kinds, wanted = case.type_of_device[placements], types_of_replicas(case, choice)
    return np.asarray(placements[(kinds == wanted[:, None]).all(axis=(1, 2, 3))])


def batches(
    case: Case, choice: Choice, stages: Stages, recompute: tuple[str, ...], devices: Ints, rng: np.random.Generator
) -> Iterator[Batches]:
    """Micro-batches of every replica on a placement (pp, dp, block), (6) and (7); none where they are equal."""
    if not choice.pipelines_by_type:
        yield ()
        return
    plan = case, choice, stages, recompute, devices[None]
    at, more = (pipelines(*plan, np.full(choice.dp, m))[0] for m in (choice.pp, choice.pp + 1))
    pace = more - at
    counts = _together(at, pace, choice)
    yield tuple(counts.tolist())
    fewer, further = rng.permutation(choice.dp)[:2]
    if counts[fewer] > 1:
        counts[fewer] -= 1
        counts[further] += 1
        yield tuple(counts.tolist())


def _together(at: Floats, pace: Floats, choice: Choice) -> Ints:
    """Counts (6)."""
    total, dp, pp = choice.dp * choice.num_micro_batches, choice.dp, choice.pp
    if not (pace > 0).all():
        return np.full(dp, choice.num_micro_batches)
    end = (total + (at / pace).sum() - dp * pp) / (1 / pace).sum()
    counts: Ints = np.maximum(np.floor((end - at) / pace + pp), 1).astype(np.int64)
    while counts.sum() < total:
        counts[np.argmin(at + (counts + 1 - pp) * pace)] += 1
    while counts.sum() > total:
        counts[np.argmax(np.where(counts > 1, at + (counts - pp) * pace, -np.inf))] -= 1
    return counts


Recompute = tuple[str, ...]


@cache
def every_order(count: int) -> Ints:
    """All orders of so many things, one a row."""
    return np.array(list(permutations(range(count))))


def _exchange(count: int, pp: int, x: int, y: int) -> Ints:
    """The order of so many blocks of which those of two stages change places."""
    order = np.arange(count).reshape(pp, -1)
    order[[x, y]] = order[[y, x]]
    return order.ravel()


@dataclass
class Best:
    """
    The best plan known of a candidate: bytes over the limit, then seconds.

    ``needs`` are bytes of ranks by strategy, ``tried`` the feasible plans of a strategy on a set of placements.
    """

    choice: Choice
    bound: float
    key: tuple[float, float] = (math.inf, math.inf)
    stages: Stages = ()
    recompute: Recompute = ()
    devices: Ints = field(default_factory=lambda: np.zeros((0, 0, 0), dtype=np.int64))
    needs: dict[tuple[Stages, Recompute], Ints] = field(default_factory=dict)
    tried: dict[tuple[Stages, Recompute, bytes], int] = field(default_factory=dict)

    @property
    def refutes(self) -> bool:
        """Whether the plan refutes the bound, (5)."""
        excess, seconds = self.key
        return excess <= 0 and (math.isinf(self.bound) or seconds < self.bound * (1 - TOLERANCE))

    @property
    def promise(self) -> tuple[float, float]:
        """How near the plan is to refuting the bound; less is nearer."""
        excess, seconds = self.key
        return excess, seconds / self.bound if self.bound > 0 and math.isfinite(self.bound) else 1.0


def refutation(best: Best) -> str:
    """What a refuted bound says and the plan takes, in a line."""
    choice, seconds = best.choice, best.key[1]
    contexts = f" cp={choice.cp}" if choice.cp > 1 else ""
    contexts += f" ep={choice.ep} etp={choice.etp}" if choice.ep > 1 else ""
    name = f"pp={choice.pp} tp={choice.tp}{contexts} dp={choice.dp} micro_batch={choice.micro_batch} {choice.schedule}"
    name += " uneven batch" if choice.pipelines_by_type else ""
    claim = "is said to be infeasible" if math.isinf(best.bound) else f"has the bound {best.bound}"
    return f"candidate {name} {claim}, but a sampled plan of it takes {seconds}"


def between(cuts: Sequence[int], layers: int) -> Stages:
    """The division with these boundaries."""
    return tuple(pairwise([0, *cuts, layers]))


def even(layers: int, chunks: int) -> Stages:
    """The division into numbers of layers that differ by one at most."""
    return between([layers * c // chunks for c in range(1, chunks)], layers)


def balanced(case: Case, choice: Choice) -> Stages:
    """A division into about equal seconds on the first device type."""
    layers, chunks = choice.parts(case), choice.pp * choice.vpp
    seconds = np.cumsum(layers_of(case, choice).passes[:, 0, 0].sum(axis=0))
    cuts: list[int] = []
    for c in range(1, chunks):
        wanted = int(np.searchsorted(seconds, seconds[-1] * c / chunks, side="right"))
        cuts.append(min(max(wanted, (cuts[-1] if cuts else 0) + 1), layers - (chunks - c)))
    return between(cuts, layers)


def need_of(case: Case, best: Best, stages: Stages, recompute: Recompute) -> Ints:
    """Bytes of every rank under a strategy, which are kept."""
    found = best.needs.get((stages, recompute))
    if found is None:
        found = np.array(memory_bytes(case, best.choice, stages, recompute, order_for(case, best.choice)))
        best.needs[stages, recompute] = found
    return found


def fitted(case: Case, best: Best, stages: Stages, budget: float) -> Recompute:
    """For every rank the first recompute within a budget of bytes, or the one that holds least."""
    choice, kinds = best.choice, case.recomputes(best.choice)
    if len(kinds) == 1:
        return (kinds[0],) * len(stages)
    need = [need_of(case, best, stages, (kind,) * len(stages)) for kind in kinds]
    chosen = []
    for rank in range(choice.pp):
        fits = [k for k in range(len(kinds)) if need[k][rank] <= budget]
        chosen.append(kinds[fits[0] if fits else min(range(len(kinds)), key=lambda k: need[k][rank])])
    return tuple(chosen[rank] for rank in choice.chunk_device)


MOST_CALLS = 1200
"""Strategies that are priced, each on several placements: about a second, less than deriving the bounds takes."""


DESCENT_CALLS = 60
"""Strategies that one descent may price: enough for two moves of every boundary of sixteen stages."""


PASSES_A_CALL = 60
"""Passes of an order whose run takes as long as one closed form."""


WORKERS = 4096
"""Workers that one call prices at most, but for one placement: beyond, a call takes longer than its overhead and counts
for more than one."""


MOST_STRATEGIES = 24
"""Strategies of a candidate up to which all are priced rather than sampled."""


MOST_LISTED, MOST_OF_FORMS = 10_000, 4
"""Divisions that are listed where a space states some alone, and those of them that are sampled."""


MOST_ORDERS = 720
"""Placements up to which the descent prices all: those of six tensor groups."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """How many plans were priced and how many of them break no rule, and the bounds that one of them refutes."""

    plans: int
    feasible: int
    faults: tuple[str, ...]


def sample(
    case: Case, bounds: Sequence[tuple[Choice, float]], known: Examined, sha256: str, least: float = -math.inf
) -> Sample:
    """Price sampled plans, drawn with ``sha256``, against bounds in seconds, and all against ``least``."""
    bounds = [(choice, max(bound, least)) for choice, bound in bounds]
    return _Sampler(case, known, np.random.default_rng(int(sha256[:16], 16))).run(bounds)


class _Sampler:
    """One sample of plans, and what it has shown so far."""

    def __init__(self, case: Case, known: Examined, rng: np.random.Generator) -> None:
        self._case, self._known, self._rng = case, known, rng
        self._plans = self._feasible = 0
        self._calls = float(MOST_CALLS)
        sizes = [node.gpus_per_node for node in case.cluster.node_list]
        self._node_of = np.repeat(np.arange(len(sizes)), sizes)
        self._size = max(sizes)
        budget = np.array([(kib - margin_kib(case, kib)) * KIB for kib in capacity_kib(case)], dtype=float)
        self._budget = budget[case.type_of_device]
        self._least = float(self._budget.min())

    def run(self, bounds: Sequence[tuple[Choice, float]]) -> Sample:
        """Sample every candidate, (2) and (3), then descend where the best plan is nearest to its bound, (4)."""
        known = [(choice, bound) for choice, bound in bounds if bound > -math.inf]
        faults: list[str] = []
        for by_order in (False, True):
            group = [each for each in known if (each[0].schedule not in CLOSED_FORM) == by_order]
            faults += [refutation(best) for best in self._searched(group) if best.refutes]
        return Sample(plans=self._plans, feasible=self._feasible, faults=tuple(faults))

    def _searched(self, known: list[tuple[Choice, float]]) -> list[Best]:
        """The best plans of some candidates: the lowest bounds, and others at random."""
        self._calls = float(MOST_CALLS)
        lowest = heapq.nsmallest(len(known) // 4 + 1, known, key=lambda each: each[1])
        found: dict[Choice, Best] = {}
        for choice, bound in [*lowest, *(known[i] for i in self._rng.permutation(len(known)))]:
            if self._calls < MOST_CALLS / 2:
                break
            if choice not in found and self._cost(choice) <= MOST_CALLS / 20:
                found[choice] = self._sampled(Best(choice, bound))
        for best in sorted(found.values(), key=lambda each: each.promise):
            if self._calls <= 0:
                break
            if not best.refutes:
                self._descend(best)
        return list(found.values())

    def _sampled(self, best: Best) -> Best:
        """The best of sampled strategies on sampled placements, (2) and (3)."""
        placements = self._placements(best.choice)
        for stages, recompute in self._strategies(best):
            self._try(best, stages, recompute, placements, placements.tobytes())
        return best

    def _try(self, best: Best, stages: Stages, recompute: Recompute, placements: Ints, name: bytes) -> bool:
        """Price a strategy on named placements (n, pp, dp, tp), and keep the best; whether it is new."""
        choice, order = best.choice, order_for(self._case, best.choice)
        self._calls -= self._cost(choice)
        if not len(placements):
            return False
        self._plans += len(placements)
        # The same strategy on the same placements is no better; drawn ones have no name, and drawn batches differ.
        again = not choice.pipelines_by_type and bool(name)
        if again and (stages, recompute, name) in best.tried:
            self._feasible += best.tried[stages, recompute, name]
            return False
        need = need_of(self._case, best, stages, recompute).astype(float)
        excess = (need - self._budget[placements].min(axis=(-1, -2))).max(axis=-1).clip(min=0.0)
        feasible = int((excess <= 0).sum())
        self._feasible += feasible
        if again:
            best.tried[stages, recompute, name] = feasible
        if excess.min() > best.key[0]:
            return False
        placements, excess = placements[excess == excess.min()], float(excess.min())
        # What does not fit is not priced: the least excess comes first.
        at, seconds = 0, math.inf
        plan = choice, stages, recompute
        for micro_batches in batches(self._case, *plan, placements[0], self._rng) if excess <= 0 else ():
            total = price(self._case, *plan, placements, order, micro_batches).total
            if total.min() < seconds:
                at, seconds = int(total.argmin()), float(total.min())
        if (excess, seconds) >= best.key:
            return False
        best.key, best.stages, best.recompute, best.devices = (excess, seconds), stages, recompute, placements[at]
        return True

    def _cost(self, choice: Choice) -> float:
        """Calls that pricing a strategy counts for."""
        calls = max(len(self._node_of) / WORKERS, 1.0)
        if choice.schedule in CLOSED_FORM:
            return calls
        return calls + 3 * choice.pp * choice.vpp * choice.num_micro_batches / PASSES_A_CALL

    def _placements(self, choice: Choice) -> Ints:
        """Placements of (3), (n, pp, blocks, devices of one)."""
        own = self._known.devices
        sequences = [np.arange(own.size), own.ravel(), own.swapaxes(0, 1).ravel(), self._shuffled(choice.block)]
        if choice.pipelines_by_type:
            sequences = [by_type(self._case, s) for s in sequences]
        groups = [s for s in sequences if self._whole(s[None], choice)[0]]
        shape = choice.pp, choice.blocks, choice.block
        by_stage = [each.reshape(shape) for each in groups]
        by_replica = [each.reshape(choice.blocks, choice.pp, choice.block).swapaxes(0, 1) for each in groups]
        if choice.pipelines_by_type:
            return np.array(by_replica)
        most = max(WORKERS // own.size, 1)
        return np.array([*by_stage, *by_replica] if most >= 2 * len(groups) else [*by_stage[:1], *by_replica[:1]])

    def _whole(self, sequences: Ints, choice: Choice) -> Flags:
        """Of which orders of the devices (n, devices) no block and no group of one lies on more nodes than it must."""
        counts = {choice.block, choice.tp * choice.cp, choice.expert_group, choice.tp}
        return np.asarray(np.all([self._together(sequences, count) for count in counts], axis=0))

    def _together(self, sequences: Ints, count: int) -> Flags:
        """Of which orders of the devices each so many lie on no more nodes than they must."""
        nodes = np.sort(self._node_of[sequences].reshape(len(sequences), -1, count), axis=-1)
        spread = 1 + (nodes[..., 1:] != nodes[..., :-1]).sum(axis=-1).max(axis=-1)
        return np.asarray(spread <= max(count // self._size, 1))

    def _shuffled(self, width: int) -> Ints:
        """All devices in a random order that keeps blocks whole."""
        nodes = np.split(np.arange(len(self._node_of)), np.flatnonzero(np.diff(self._node_of)) + 1)
        if width > self._size:
            return np.concatenate([nodes[n] for n in self._rng.permutation(len(nodes))])
        groups = np.concatenate([self._rng.permutation(node) for node in nodes]).reshape(-1, width)
        return np.asarray(self._rng.permutation(groups).ravel())

    def _strategies(self, best: Best) -> Iterator[tuple[Stages, Recompute]]:
        """Divisions with their recompute, (2)."""
        choice = best.choice
        layers, chunks = choice.parts(self._case), choice.pp * choice.vpp
        kinds = self._case.recomputes(choice)
        if math.comb(layers - 1, chunks - 1) * len(kinds) ** chunks <= MOST_STRATEGIES:
            for cuts in combinations(range(1, layers), chunks - 1):
                if is_stated(self._case, choice, stages := between(cuts, layers)):
                    yield from ((stages, each) for each in product(kinds, repeat=chunks))
            return
        divisions = [even(layers, chunks), balanced(self._case, choice)]
        if len(self._known.stages) == chunks and self._known.stages[-1][1] == layers:
            divisions.append(self._known.stages)
        drawn = self._rng.choice(np.arange(1, layers), chunks - 1, replace=False)
        divisions.append(between(sorted(drawn.tolist()), layers))
        if ANY not in forms_of(self._case):
            every = list(islice(stated(self._case, choice), MOST_LISTED))
            picked = self._rng.choice(len(every), min(len(every), MOST_OF_FORMS), replace=False)
            divisions += [between(np.cumsum(every[k])[:-1].tolist(), layers) for k in picked.tolist()]
            divisions = [stages for stages in divisions if is_stated(self._case, choice, stages)]
        for stages in dict.fromkeys(divisions):
            yield stages, fitted(self._case, best, stages, self._least)

    def _descend(self, best: Best) -> None:
        """Steepest descent from the best plan of a candidate, (4)."""
        until = self._calls - DESCENT_CALLS * self._cost(best.choice)
        moved = True
        while moved and not best.refutes and self._calls > max(until, 0):
            moved = self._try(best, best.stages, best.recompute, *self._exchanged(best))
            for stages, recompute in self._neighbours(best):
                if self._calls <= max(until, 0) or best.refutes:
                    break
                moved |= self._try(best, stages, recompute, best.devices[None], best.devices.tobytes())
            moved = moved or self._leap(best, max(until, 0))

    def _leap(self, best: Best, until: float) -> bool:
        """Whether a neighbour or a sampled strategy is better on other placements, all of them where they are few."""
        for stages, recompute in chain(self._neighbours(best), self._strategies(best)):
            if self._calls <= until or best.refutes:
                return False
            if self._try(best, stages, recompute, *self._exchanged(best)):
                return True
        return False

    def _exchanged(self, best: Best) -> tuple[Ints, bytes]:
        """The placement with two of its units or stages exchanged, or all orders of few units, and their name."""
        flat, block, pp, name = best.devices.ravel(), best.choice.block, best.choice.pp, b""
        by_device, few = self._case.cluster.measured_by_device, math.factorial(min(flat.size, 20)) <= MOST_ORDERS
        # What lies in a block counts where it takes several nodes, or devices with links of their own.
        unit = 1 if by_device and (few or self._rng.integers(2)) else min(block, self._size)
        groups = flat.reshape(-1, unit if self._together(flat[None], unit)[0] else block)
        count = len(groups)
        if math.factorial(min(count, 20)) <= MOST_ORDERS:
            orders = every_order(count)
            # All orders of the same groups are one set, whichever comes first.
            name = b"all" + groups[np.lexsort(groups.T)].tobytes()
        else:
            most = max(WORKERS // flat.size, 1)
            pairs = np.array([self._rng.choice(count, 2, replace=False) for _ in range(min(most, count**2))])
            orders = np.tile(np.arange(count), (len(pairs), 1))
            orders[np.arange(len(pairs))[:, None], pairs] = pairs[:, ::-1]
            # What a stage shares with the stages beside it no exchange of two blocks may keep.
            stages = list(islice(combinations(range(pp), 2), max(most - len(pairs), 0)))
            orders = np.vstack([orders, *(_exchange(count, pp, *pair) for pair in stages)])
        moved = groups[orders].reshape(-1, flat.size)
        if by_device:
            moved = moved[self._whole(moved, best.choice)]
        return of_types(self._case, best.choice, moved.reshape(-1, *best.devices.shape)), name

    def _neighbours(self, best: Best) -> Iterator[tuple[Stages, Recompute]]:
        """Strategies with one boundary moved by a layer, its recompute kept or fitted, or one recompute changed."""
        cuts = [end for _, end in best.stages]
        for c in self._rng.permutation(len(cuts) - 1).tolist():
            for step in (-1, 1):
                near = [*cuts[:c], cuts[c] + step, *cuts[c + 1 :]]
                if all(a < b for a, b in pairwise([0, *near])):
                    stages = between(near[:-1], near[-1])
                    if not is_stated(self._case, best.choice, stages):
                        continue
                    changed = fitted(self._case, best, stages, self._least)
                    yield from ((stages, each) for each in dict.fromkeys([best.recompute, changed]))
        for c in self._rng.permutation(len(cuts)).tolist():
            for kind in self._case.recomputes(best.choice):
                yield best.stages, (*best.recompute[:c], kind, *best.recompute[c + 1 :])
