r"""
Schedules that fit given times and memory limits, on any device map.

List schedules (:mod:`taut.solver.schedules.choices`) are drawn at random, then by changing one choice of one of the best.
Orders that are known by formula or by repeating a block compete where they keep the limit. The best few are improved
along their critical paths, the best of them once more. Work is counted in passes and the random bits come from the seed:
the same problem and seed give the same schedule.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from taut.errors import InfeasibleError
from taut.formulations.schedule import Ints, Schedule, ScheduleProblem, violations
from taut.solver.schedules.chains import numbers, schedule_of
from taut.solver.schedules.choices import Choice, Lister
from taut.solver.schedules.critical import improve, makespan


@dataclass(frozen=True)
class Effort:
    """How many list schedules, how many of them are improved, and how many trials that takes in all."""

    lists: int
    kept: int
    trials: int


def effort(problem: ScheduleProblem) -> Effort:
    """Effort of about a second, whatever the size."""
    passes = 3 * problem.num_chunks * problem.num_micro_batches
    return Effort(int(np.clip(3e6 / passes, 100, 1200)), 6, int(np.clip(1.5e8 / passes, 3000, 300_000)))


@dataclass(eq=False)
class _Pool:
    """The best orders so far, shortest first; of those equally long, the first found."""

    size: int
    found: list[tuple[float, Ints, Schedule | None]] = field(default_factory=list)
    choices: dict[float, Choice] = field(default_factory=dict)

    def add(self, length: float, order: Ints, known: Schedule | None = None) -> bool:
        """Keep an order if it is among the best and not as long as one of them."""
        if not np.isfinite(length) or any(length == other for other, _, _ in self.found):
            return False
        self.found.append((length, order, known))
        self.found.sort(key=lambda entry: entry[0])
        del self.found[self.size :]
        return length <= self.found[-1][0]


def adapt(
    problem: ScheduleProblem,
    *,
    kind: str = "blocks",
    known: Sequence[Schedule] = (),
    work: Effort | None = None,
    seed: int = 0,
) -> Schedule:
    """
    Order the passes of a pipeline for its times and memory limits.

    Parameters
    ----------
    problem
        The pipeline.
    kind
        What to call a schedule that is not one of the known ones.
    known
        Schedules to start from as well; those that break a limit are left out.
    work
        How much to try; by default about a second's worth.
    seed
        Of the choices tried.

    Returns
    -------
    Schedule
        A feasible schedule, no longer than any known one that is feasible; that one itself if nothing is shorter.

    Raises
    ------
    InfeasibleError
        If a device cannot hold one micro-batch of all its chunks.
    """
    require_memory(problem)
    work = work or effort(problem)
    lister, pool = Lister(problem), _Pool(work.kept)
    for schedule in known:
        if not violations(problem, schedule):
            order = numbers(problem, schedule)
            pool.add(makespan(lister.chains, order), order, schedule)
    for length, order in _lists(lister, work.lists, np.random.default_rng(seed)):
        pool.add(length, order)
    _improve(lister, pool, work.trials, seed)
    _, order, schedule_found = pool.found[0]
    return schedule_found or schedule_of(problem, order, kind)


def require_memory(problem: ScheduleProblem) -> None:
    """
    Refuse a pipeline that no schedule fits: all chunks of a device hold a micro-batch before its first gradient.

    Raises
    ------
    InfeasibleError
        With the device that lacks memory, and how much.
    """
    needed = np.bincount(problem.device, weights=problem.activation, minlength=problem.num_devices)
    for d in np.flatnonzero(needed > problem.allowed):
        limit = problem.memory_limit[d]
        raise InfeasibleError(f"device {d} needs {needed[d]:g} for one micro-batch, more than its limit {limit:g}")


def _lists(lister: Lister, count: int, generator: np.random.Generator) -> Iterator[tuple[float, Ints]]:
    """List schedules: half of them at random, the others next to one of the best three."""
    best: list[tuple[float, tuple[int, ...]]] = []
    for trial in range(count):
        values = [int(generator.integers(size)) for size in lister.sizes]
        if 2 * trial >= count:
            place = int(generator.integers(len(values)))
            near = list(best[int(generator.integers(len(best)))][1])
            near[place] = values[place]
            values = near
        length, order = lister.schedule(Choice(*values))
        best = sorted({*best, (length, tuple(values))})[:3]
        yield length, order


def _improve(lister: Lister, pool: _Pool, trials: int, seed: int) -> None:
    """Improve every order of the pool with half of the trials, then the best with the other half."""
    least = float(lister.problem.busy.max())
    starts = list(pool.found)
    for place, (_, order, _) in enumerate(starts):
        pool.add(*improve(lister.chains, order, trials // (2 * len(starts)), seed=seed + place, target=least))
    best = pool.found[0][1]
    pool.add(*improve(lister.chains, best, trials // 2, seed=seed + len(starts), target=least))
