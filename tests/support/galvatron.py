"""Random small problems of Galvatron's formula, and every plan of one."""

import itertools

import numpy as np

from taut.data.readers.galvatron.profile import Ends, GalvatronProfile, Line, Split
from taut.data.units import MIB, MILLISECOND
from taut.papers.galvatron import GalvatronProblem, Setting, price

WAYS = 1, 2, 4


def problem(seed: int) -> GalvatronProblem:
    """Three layers on two devices, or two on four; some problems have too little memory."""
    rng = np.random.default_rng(seed)
    gpus = 2 if seed % 3 else 4
    profile = GalvatronProfile(
        seq=64,
        layer=_line(rng, MILLISECOND),
        vocabulary=_line(rng, MILLISECOND),
        parameters=float(rng.uniform(20, 200)) * MIB,
        activations=_falling(rng, 60),
        recomputed=float(rng.uniform(1, 20)) * MIB,
        whole=_ends(rng),
        first=_ends(rng),
        last=_ends(rng),
        rates={(n, flag): float(rng.uniform(1, 60)) * 1e9 for n in WAYS for flag in (False, True)},
        stage_rates={n: float(rng.uniform(1, 60)) * 1e9 for n in WAYS},
        gather={n: _line(rng, MILLISECOND / MIB) for n in WAYS},
        exchange={n: _line(rng, MILLISECOND / MIB) for n in WAYS},
        overlap=float(rng.uniform(1, 1.4)),
    )
    return GalvatronProblem(
        profile=profile,
        layers=3 if gpus == 2 else 2,
        hidden=128,
        gpus=gpus,
        global_batch=int(rng.choice([2, 4])),
        memory_mib=int(rng.integers(1200, 3200)),
        default=str(rng.choice(["ddp", "zero2"])),
    )


def _line(rng: np.random.Generator, unit: float) -> Line:
    return Line(float(rng.uniform(0.1, 5)) * unit, float(rng.uniform(0, 2)) * MILLISECOND, {})


def _falling(rng: np.random.Generator, most: float) -> dict[int, float]:
    return {n: float(rng.uniform(0.5, 1)) * most * MIB / n for n in WAYS}


def _ends(rng: np.random.Generator) -> Ends:
    return Ends(_falling(rng, 900), _falling(rng, 80))


def least_step(given: GalvatronProblem) -> float:
    """The least step over every plan that fits, infinite where none does."""
    least = np.inf
    for setting in given.settings():
        for layers in _choices(given, setting):
            for end in given.ends(setting):
                found = price(given, setting, layers, end)
                if max(found.mib) <= given.capacity:
                    least = min(least, found.seconds)
    return float(least)


def _choices(given: GalvatronProblem, setting: Setting) -> list[tuple[Split, ...]]:
    """Layers of all stages; those of one stage are alike, so their order does not matter."""
    splits = given.splits(setting)
    stages = [itertools.combinations_with_replacement(splits, count) for count in given.division(setting.pp)]
    return [tuple(itertools.chain(*chosen)) for chosen in itertools.product(*stages)]
