"""Bounds in exact arithmetic: against optima in rationals, and bounds that are too high by little are not shown."""

import itertools
import json
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from benchmarks.exact_bounds import check
from taut.formulations.order_division import ChunkProblem
from taut.formulations.partition import LaterStages, PartitionProblem
from taut.formulations.schedules.recurrence import BACKWARD, FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT
from taut.formulations.strategy import Division
from taut.solver.bounds.relaxation import ROUNDING
from taut.solver.certificate import exact
from taut.solver.certificate.exact import Entry, Exactness, exactness, proves, rational_cases, rounded
from taut.solver.ladder.ladder import Ladder
from taut.solver.layer_division.divide import solve_partition
from taut.solver.order_priced.witness import rederived
from taut.solver.result import Source
from tests.solver.order_priced.test_layer_tree import CASES, chunk_problem, divisions, grown
from tests.support.planted_bugs import instances
from tests.support.small import cluster, model
from tests.support.small import problem as problem_of

NONE = Exactness()


def makespan(given: ChunkProblem, division: Division) -> Fraction:
    """Seconds (1') of a division in rationals, from the order's recurrence."""
    i, j = division.starts, division.ends
    each = [[Fraction(float(given.passes[k, 0, a, b])) for a, b in zip(i, j, strict=True)] for k in range(3)]
    moved = [
        Fraction(float(given.edge[end])) if away else Fraction(0) for end, away in zip(j, given.away, strict=False)
    ]
    rows = [given.order.passes[a:b].tolist() for a, b in itertools.pairwise(given.order.first.tolist())]
    ended = dict[tuple[str, int, int], Fraction]()
    clock, chunks = [Fraction(0)] * len(rows), given.num_chunks
    while any(rows):
        for d, left in enumerate(rows):
            while left:
                kind, c, n = left[0]
                if kind == FORWARD:
                    needs = ("F", c - 1, n) if c else None
                    wait, seconds = moved[c - 1] if c else Fraction(0), each[0][c]
                elif kind == WEIGHT_GRADIENT:
                    needs, wait, seconds = ("B", c, n), Fraction(0), each[2][c]
                else:
                    last = c == chunks - 1
                    needs, wait = ("F", c, n) if last else ("B", c + 1, n), Fraction(0) if last else moved[c]
                    seconds = each[1][c] + (each[2][c] if kind == BACKWARD else 0)
                if needs is not None and needs not in ended:
                    break
                clock[d] = max(clock[d], ended[needs] + wait if needs else Fraction(0)) + seconds
                if kind != WEIGHT_GRADIENT:
                    ended["F" if kind == FORWARD else "B", c, n] = clock[d]
                assert kind in (FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, BACKWARD)
                left.pop(0)
    loads = [Fraction(0)] * len(rows)
    for c, d in enumerate(given.order.device.tolist()):
        loads[d] += Fraction(float(given.loads[i[c], j[c]]))
    ends = [end + Fraction(float(ring)) * load for end, ring, load in zip(clock, given.rings, loads, strict=True)]
    return max(ends) + Fraction(given.optimizer) * max(loads) + Fraction(given.constant)


def fits(given: ChunkProblem, division: Division) -> bool:
    """Whether a division fits memory, (2), in rationals."""
    i, j = division.starts, division.ends
    room = Fraction(given.budget) - Fraction(given.always)
    for d, counts in enumerate(given.counts):
        held = given.hosted(d)
        kept = [Fraction(float(given.activation[0, i[c], j[c]])) for c in held]
        beside = sum(Fraction(float(given.beside[i[c], j[c]])) for c in held)
        if any(beside + sum(int(n) * a for n, a in zip(row, kept, strict=True)) > room for row in counts):
            return False
    return True


def optimum(given: ChunkProblem) -> Fraction | None:
    """The least makespan of a division that fits, in rationals; None where none does."""
    return min((makespan(given, one) for one in divisions(given) if fits(given, one)), default=None)


@pytest.mark.proof
@pytest.mark.parametrize("case", range(3))
@pytest.mark.parametrize("budget", [1e6, 130.0])
def test_what_rationals_show_is_at_most_the_optimum_in_rationals(case: int, budget: float) -> None:
    """Trees and capacities: what is stated is shown, no more than the optimum is, and often nearly as much."""
    p, v, m, layers = CASES[case]
    rng = np.random.default_rng((case, 7))
    near = []
    for differing in (0, 2):
        given = chunk_problem(rng, p, v, m, layers, budget, differing=differing)
        best = optimum(given)
        limit = 1e3 if best is None else 1.1 * float(best)
        witness: dict[str, Any] = json.loads(json.dumps(grown(given, limit).witness()))
        stated = rederived(given, witness)
        assert proves(given, witness, stated)
        if best is not None:
            assert Fraction(stated) <= best
            assert not proves(given, {**witness, "limit_s": 2 * limit}, float(best * (1 + Fraction(1, 10**9))))
            near.append(float(stated / best))
        assert not any(
            proves(given, {"limit_s": seconds}, seconds) for seconds in (limit, 0.97 * limit) if best and seconds > best
        )
        taken = [s for s in np.linspace(0.3, 1.0, 15) * limit if proves(given, {"limit_s": float(s)}, float(s))]
        assert best is None or all(Fraction(float(s)) <= best for s in taken)
        assert taken
    assert not near or max(near) > 0.99


def test_ranges_with_less_than_their_layers_weaken_what_is_shown() -> None:
    """A range that has a little less than its layers is met by its shortfall; floats take it for their sum."""
    given = chunk_problem(np.random.default_rng(3), 2, 2, 4, 7, 1e6)
    passes = given.passes.copy()
    passes[0, 0, 1, 3] *= 1 - 1e-13
    apart = replace(given, passes=passes)
    exactly, less = rational_cases(given)[0], rational_cases(apart)[0]
    assert 0 < exactly.most_layers(Fraction(40))[0] <= less.most_layers(Fraction(40))[0]
    witness = grown(given, 100.0).witness()
    stated = rederived(given, witness)
    assert proves(apart, witness, stated * (1 - 1e-9))
    best = optimum(apart)
    assert best is not None and not proves(apart, witness, float(best) * (1 + 1e-12))


def least_in_rationals(given: PartitionProblem, edge: Any, tail: Any, later: LaterStages) -> Fraction:
    """The optimum (1') of one class of device in rationals, with overlap of reductions or without."""
    x = range(given.pp)
    best = None
    assert given.forward is not None
    for inner in itertools.combinations(range(1, given.num_layers), given.pp - 1):
        first, end = [0, *inner], [*inner, given.num_layers]
        low = [Fraction(float(given.low[0, 0, a, b])) for a, b in zip(first, end, strict=True)]
        forward = [Fraction(float(given.forward[0, a, b])) for a, b in zip(first, end, strict=True)]
        cuts = [Fraction(float(edge[b])) for b in inner] + [Fraction(0)]
        back = [Fraction(float(later.edge[b])) for b in inner] + [Fraction(0)]
        ends = [sum(low) + sum(cuts) + Fraction(float(tail[end[0]]))]
        for s in x:
            ring, each = Fraction(float(later.ring[s])), Fraction(float(later.each[s]))
            wait = ring * Fraction(float(later.exchanged[first[s], end[s]]))
            if later.overlap:
                bucket = ring * Fraction(float(later.unhidden[first[s], end[s]]))
                wait = max(bucket, wait - low[s] + forward[s])
            before = sum(forward[y] + back[y] for y in range(s))
            ends.append(before + sum(low[y] + cuts[y] for y in x[s:]) + wait + each + Fraction(later.others))
        parameters = max(Fraction(float(later.parameters[a, b])) for a, b in zip(first, end, strict=True))
        value = (given.micro_batches - 1) * max(low) + max(ends) + Fraction(later.optimizer) * parameters
        best = value if best is None else min(best, value)
    assert best is not None
    return best


@pytest.mark.parametrize("seed", range(12))
def test_divisions_keep_the_proven_limit_of_rounding(seed: int) -> None:
    """The dynamic program differs from the optimum in rationals by less than (2), and by less than its allowance."""
    rng = np.random.default_rng((seed, 5))
    pp, layers = int(rng.integers(2, 5)), int(rng.integers(5, 9))
    kinds = rng.uniform(0.1, 1.0, layers)
    until = np.append(0.0, kinds.cumsum())
    sums = np.maximum(until[None, :] - until[:, None], 0.0)
    none = np.zeros((1, layers + 1, layers + 1), np.int64)
    given = PartitionProblem(
        pp=pp,
        dp=2,
        micro_batches=int(rng.choice([2, 7, 64])),
        low=sums[None, None],
        high=sums[None, None],
        fixed=none,
        activation=none,
        in_flight=np.ones(pp, np.int64),
        budget=np.ones(1, np.int64),
        gradients=sums,
        slow_groups=0,
        forward=0.3 * sums[None],
    )
    edge = rng.uniform(0, 0.1, layers + 1)
    later = LaterStages(
        edge=edge / 3,
        ring=rng.uniform(0, 2, pp),
        exchanged=sums,
        unhidden=sums / 9,
        overlap=bool(seed % 2),
        others=float(rng.uniform(0, 1)),
        parameters=sums,
        optimizer=float(rng.choice([0.0, 0.7])),
        each=rng.uniform(0, 0.3, pp),
    )
    tail = rng.uniform(0, 1, layers + 1)
    found = Fraction(solve_partition(given, edge, tail, later=later).seconds)
    best = least_in_rationals(given, edge, tail, later)
    assert abs(found - best) <= rounded(8 * pp) * best
    assert found * (1 - Fraction(ROUNDING)) <= best


@pytest.mark.proof
def test_bounds_of_random_problems_are_exact() -> None:
    """No bound exceeds its candidate's enumerated optimum by more than a price's rounding, and all are shown."""
    checked = [found for instance in instances(4, first=3) if (found := check(instance)) is not None]
    assert len(checked) > 2
    assert all(false == 0 and found.exact for found, false in checked)


def test_an_order_above_what_its_witness_shows_is_of_floats_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound that decides and is not shown is counted by its source; the same bound far above decides nothing."""
    given = problem_of(cluster(4, 1), model(8), schedules=["interleaved-1f1b"], fixed={"pp": 4})
    candidate, ladder = given.candidates[0], Ladder(given)
    entry = Entry(candidate, 1e3, str(Source.ORDER), {"limit_s": 1e3 * (1 + 1e-9)})
    missing = Entry(candidate, np.inf, str(Source.ORDER_MEMORY), {"missing": 1 << 20, "missing_kib": 1 << 10})
    assert exactness(ladder, [missing], 1.0) == replace(NONE, rounding=1)
    assert exactness(ladder, [missing._replace(source=str(Source.MEMORY))], 1.0) == replace(NONE, whole=1)
    for shown, expected in ((True, replace(NONE, rational=1)), (None, replace(NONE, rounding=1))):
        monkeypatch.setattr(exact, "proves", lambda *_, shown=shown: shown)
        assert exactness(ladder, [entry], 1e3) == expected
    monkeypatch.setattr(exact, "proves", lambda *_: False)
    assert exactness(ladder, [entry], 1e3).alone == {"order": 1}
    assert "of floats alone: 1 of order" in exactness(ladder, [entry], 1e3).words
    assert exactness(ladder, [entry], 1.0) == replace(NONE, rounding=1)
