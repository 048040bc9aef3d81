"""Small problems of Aceso's kind: random operators, and the best plan by trying every one."""

from functools import cache
from itertools import product

import numpy as np

from taut.data.arrays import Flags, Floats
from taut.data.units import MIB
from taut.papers.aceso.formula import AcesoProblem, kinds_of, stage_bytes, stage_seconds, step_seconds
from taut.papers.aceso.operators import OperatorProfile, Operators

Random = np.random.Generator


def even(seed: int) -> bool:
    """Whether the activations of a problem are whole numbers of half MiB."""
    return seed % 4 != 3


def operators(random: Random, layer: int, shares: Flags, scale: float, fraction: float) -> Operators:
    """
    A head, a layer and a tail with random figures.

    Activations are whole MiB with up to a fraction of one more; those of shared buffers count 1.5 times.
    """
    count = len(shares)

    def drawn(low: int, high: int, unit: float) -> Floats:
        return np.asarray(random.integers(low, high, count) * unit, dtype=np.float64)

    sizes = {
        name: drawn(0, 40, MIB)
        for name in ("inputs", "outputs", "weights", "measured_activations", "reserved_forward", "reserved_backward")
    }
    sizes["measured_activations"] += fraction * MIB * random.random(count)
    return Operators(
        names=tuple(f"operator {number}" for number in range(count)),
        head=1,
        layer=layer,
        forward=drawn(1, 20, scale),
        backward=drawn(1, 40, scale),
        activations=np.where(shares, 1.5, 1.0) * sizes["measured_activations"],
        shares=shares,
        **sizes,
    )


def problem(seed: int) -> AcesoProblem:
    """A problem of up to ten operators on up to four devices whose memory binds in most cases."""
    random = np.random.default_rng(seed)
    layer, tail = int(random.integers(2, 4)), int(random.integers(1, 3))
    layers = int(random.integers(1, 4 if layer == 2 else 3))
    shares = np.zeros(1 + layer + tail, dtype=bool)
    shares[1 + random.integers(0, layer)] = random.random() < 0.5
    fraction = 0.0 if even(seed) else 0.4
    drawn = {(b, t): operators(random, layer, shares, 1e-3 * b / t, fraction) for b, t in product((1, 2), (1, 2))}
    rates = random.integers(1, 50, (2, 5)) * 1e9
    gpus = int(random.choice([1, 2, 4]))
    return AcesoProblem(
        profile=OperatorProfile(drawn, rates[0], rates[1]),
        layers=layers,
        gpus=gpus,
        gpus_per_node=min(2, gpus),
        global_batch=int(random.choice([4, 16])),
        memory_limit=float(random.integers(300, 2500)) * MIB,
        micro_batches=(1, 2),
    )


def least_step(given: AcesoProblem) -> float:
    """Seconds of the best plan, from every division, all degrees and every set of recomputed operators."""
    return min((_least_at(given, m) for m in given.micro_batches), default=np.inf)


def _least_at(given: AcesoProblem, m: int) -> float:
    count = len(kinds_of(given.profile.operators[1, 1], given.layers))
    profile = given.profile
    rates = profile.within_node, profile.between_nodes

    @cache
    def stage(first: int, end: int, pair: tuple[int, int], behind: int, crosses: tuple[bool, bool]) -> float:
        """Least seconds of a stage over all that it may recompute."""
        each = profile.operators[m // pair[1], pair[0]]
        kinds, best = kinds_of(each, given.layers)[first:end], np.inf
        for flags in product((False, True), repeat=end - first):
            again = np.array(flags)
            if stage_bytes(each, kinds, again, behind) <= given.memory_limit:
                best = min(best, stage_seconds(each, kinds, again, rates[crosses[0]], rates[crosses[1]]))
        return best

    def plans(first: int, used: int, left: int, taken: tuple[float, ...]) -> float:
        """Least step over all ways to go on with so many stages left."""
        if left == 0:
            full = first == count and used == given.gpus
            return step_seconds(np.array(taken), given.global_batch // m) if full else np.inf
        best, node = np.inf, given.gpus_per_node
        for pair in given.degrees(m):
            total = used + pair[0] * pair[1]
            if total > given.gpus or used // node != (total - 1) // node:
                continue
            crosses = used > 0 and used % node == 0, total % node == 0
            for end in range(first + 1 if left > 1 else max(first + 1, count), count + 1):
                took = stage(first, end, pair, left - 1, crosses)
                if np.isfinite(took):
                    best = min(best, plans(end, total, left - 1, (*taken, took)))
        return best

    return min(plans(0, 0, stages, ()) for stages in range(1, given.stages + 1))
