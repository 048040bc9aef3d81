"""Random divisions for two classes of device, of which either may pass a layer quicker, and their enumeration."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations, combinations_with_replacement, product

import numpy as np

from taut.data.arrays import Flags, Floats, Ints
from taut.formulations.partition import Crossing, LaterStages, PartitionProblem


@dataclass(frozen=True, slots=True)
class TwoClasses:
    """A partition problem with what its hops and its later stages, if they are waited for, add."""

    stages: PartitionProblem
    edge: Floats
    tail: Floats
    crossing: Crossing
    later: LaterStages | None


def random_classes(seed: int) -> TwoClasses:
    """Two to four stages, one to three pipelines, up to two recomputes; half of them wait for later stages."""
    rng = np.random.default_rng((seed, 21))
    pp, dp = int(rng.integers(2, 5)), int(rng.integers(1, 4))
    layers, kinds, m = int(rng.integers(pp, 7)), int(rng.integers(1, 3)), int(rng.choice([1, 2, 5, 40]))
    fast, slow = rng.integers(1, 20, layers).astype(float), rng.uniform(1.0, 2.5)
    quicker = rng.random(layers) < rng.choice([0.0, 0.3])
    each = np.stack([fast, fast * np.where(quicker, rng.uniform(0.4, 1.0), slow)])
    base, size = _ranges(each), _ranges(rng.integers(1, 20, layers).astype(float))
    seconds = base[:, None] * np.array([1.0, 1.3])[None, :kinds, None, None]
    low = np.concatenate([seconds, seconds.min(axis=0)[None]])
    activation = (size * np.array([10, 3])[:kinds, None, None]).astype(np.int64)
    budget = rng.integers(int(size[0, -1] * 4), int(size[0, -1] * 40) + 2, 2)
    stages = PartitionProblem(
        pp=pp,
        dp=dp,
        micro_batches=m,
        low=low,
        high=np.concatenate([seconds, seconds.max(axis=0)[None]]),
        fixed=np.stack([size * 7] * kinds).astype(np.int64),
        activation=activation,
        in_flight=np.minimum(np.arange(pp, 0, -1), m).astype(np.int64),
        budget=np.append(budget, budget.min()).astype(np.int64),
        gradients=size,
        slow_groups=int(rng.integers(0, pp * dp + 1)),
        more_slow_groups=int(rng.choice([0, 0, 0, 1, 2])),
        forward=np.concatenate([base, base.min(axis=0)[None]]) * rng.uniform(0.2, 0.5),
    )
    before = float(rng.choice([0.0, 1.0, 10.0, 60.0]) * rng.uniform())
    whole, further = before + float(rng.choice([0.0, 1.0, 40.0]) * rng.uniform()), float(rng.choice([0.0, 5.0]))
    crossing = Crossing(whole, before, further, int(rng.integers(1, 4)))
    if seed % 3 == 0:
        crossing = crossing._replace(room=crossing.room + 1, alone=True)
    edge, tail = rng.uniform(0, 5, layers + 1), rng.uniform(0, 20, layers + 1)
    return TwoClasses(stages, edge, tail, crossing, _later(rng, stages, size, edge) if rng.random() < 0.6 else None)


def _ranges(each: Floats) -> Floats:
    """Sums of all ranges of layers, zero for none."""
    sums = np.concatenate([np.zeros((*each.shape[:-1], 1)), each.cumsum(axis=-1)], axis=-1)
    return np.asarray(np.maximum(sums[..., None, :] - sums[..., :, None], 0.0))


def _later(rng: np.random.Generator, stages: PartitionProblem, size: Floats, edge: Floats) -> LaterStages:
    """Reductions whose rings are longer where stages are mixed, the more so the fewer fast blocks they have."""
    pp, dp = stages.pp, stages.dp
    mixed = -np.sort(-rng.uniform(0, 4, max(dp - 1, 1)))
    return LaterStages(
        edge=edge * rng.uniform(0, 1),
        ring=rng.uniform(0, 1, pp),
        exchanged=size,
        unhidden=size,
        overlap=False,
        others=float(rng.uniform(0, 5)),
        parameters=size,
        optimizer=float(rng.choice([0.0, 0.01, 2.0])),
        class_ring=np.append(rng.uniform(0, 2, 2), mixed[-1]),
        mixed_rings=mixed,
        each=rng.uniform(0, 5, pp) * rng.integers(0, 2, pp),
    )


def least_of_classes(given: TwoClasses, among: Callable[[Ints], Flags] | None = None) -> float:
    """
    Least seconds over every division, recompute and class of every block, each pipeline with blocks of its own.

    ``among`` says by the fast blocks of every pipeline (choices, dp) which choices count.
    """
    stages = given.stages
    ways = np.array(list(product((0, 1), repeat=stages.pp)))
    chosen = np.array(list(combinations_with_replacement(range(len(ways)), stages.dp)))
    slow = ways[chosen].sum(axis=(1, 2))
    chosen = chosen[(slow >= stages.slow_groups) & (slow <= stages.slow_groups + stages.more_slow_groups)]
    if among is not None:
        chosen = chosen[among((ways == 0).sum(axis=1)[chosen])]
    if not len(chosen):
        return np.inf
    best = np.inf
    for inner in combinations(range(1, stages.num_layers), stages.pp - 1):
        first, end = np.array([0, *inner]), np.array([*inner, stages.num_layers])
        for recompute in product(range(stages.low.shape[1]), repeat=stages.pp):
            seconds = _step(given, ways, chosen, (np.array(recompute), first, end))
            best = min(best, float(seconds.min()))
    return best


def _step(given: TwoClasses, ways: Ints, chosen: Ints, at: tuple[Ints, Ints, Ints]) -> Floats:
    """Seconds of every choice of pipelines, (choices,); infinite where a stage does not fit."""
    stages, later, (_, first, end) = given.stages, given.later, at
    fast = (ways[chosen] == 0).sum(axis=1)
    pattern = np.where(fast == stages.dp, 0, np.where(fast == 0, 1, 2))
    fits = _fits(stages, pattern, at)
    ends = _ends(given, ways, at)[chosen].max(axis=1)
    seconds = ends[:, 0] + given.tail[end[0]]
    if later is not None:
        own = np.append(later.class_ring[:2], later.mixed_rings)
        place = np.where(pattern < 2, pattern, fast + 1)
        rings = np.maximum(later.ring, own[place]) * later.exchanged[first, end]
        seconds = np.maximum(seconds, (ends + rings + later.each).max(axis=1) + later.others)
        seconds = seconds + later.optimizer * later.parameters[first, end].max()
    return np.asarray(np.where(fits, seconds, np.inf))


def _fits(stages: PartitionProblem, pattern: Ints, at: tuple[Ints, Ints, Ints]) -> Flags:
    need = stages.fixed[at] + stages.in_flight * stages.activation[at]
    return np.asarray((need <= stages.budget[pattern]).all(axis=1))


def _ends(given: TwoClasses, ways: Ints, at: tuple[Ints, Ints, Ints]) -> Floats:
    """End of every stage in a pipeline that passes blocks of such classes, (ways, pp)."""
    stages, later, (recompute, first, end) = given.stages, given.later, at
    seconds = stages.low[ways, recompute, first, end]
    cut = np.where(np.arange(stages.pp) < stages.pp - 1, given.edge[end], 0.0)
    crossed = np.append(ways[:, 1:] != ways[:, :-1], np.zeros((len(ways), 1), bool), axis=1)
    behind, ahead = seconds + cut + crossed * given.crossing.whole, np.zeros_like(seconds)
    if later is not None:
        assert stages.forward is not None
        cut = np.where(np.arange(stages.pp) < stages.pp - 1, later.edge[end], 0.0)
        ahead = stages.forward[ways, first, end] + cut + crossed * given.crossing.before
    before = ahead.cumsum(axis=1) - ahead
    after = behind[:, ::-1].cumsum(axis=1)[:, ::-1]
    beyond = given.crossing.beyond(stages.pp)[ways.sum(axis=1)][:, None]
    return np.asarray(beyond + before + after + (stages.micro_batches - 1) * seconds.max(axis=1, keepdims=True))
