"""
One schedule as it is published or given, with a bound on what any other order of its placement takes.

It is built on the placement where it is fastest. The bound is on orders within the memory limits or, without any,
within what the schedule itself holds on its fullest device.
"""

from dataclasses import replace

import numpy as np

from taut.data.suggest import one_of
from taut.errors import FieldError, FormulationError
from taut.formulations.schedules.stages import Stages
from taut.schedules.found import FoundSchedule
from taut.schedules.portfolio import ScheduleSearch, placement_bound
from taut.schedules.space import Built, build_kind, fastest_that_fits, placements, refuse_too_full, roomy
from taut.solver.branch_and_bound.stop import interrupt_requested
from taut.solver.schedules.bound.certificate import certificate
from taut.solver.schedules.construct.kinds import KINDS
from taut.solver.schedules.optimize import load

PRICE_SECONDS = 1.0
"""Time to bound a schedule, where no limit is given."""


def published_schedule(
    stages: Stages, kind: str, search: ScheduleSearch, *, placement: str | None = None, chunks: int | None = None
) -> FoundSchedule:
    """
    Build one kind of schedule as it is published, and bound it.

    Without a memory limit the bound is on orders that hold no more than the schedule on its fullest device.

    Parameters
    ----------
    stages, search, placement, chunks
        As for ``best_schedule``.
    kind
        Name of the kind.

    Raises
    ------
    DataError
        If there is no such kind, or it does not suit the pipeline.
    InfeasibleError
        If the kind does not fit the memory limits.

    Examples
    --------
    >>> import taut
    >>> stages = taut.Stages(stages=2, micro_batches=4, forward=[1.0], backward=[1.0], weight=[1.0])
    >>> taut.published_schedule(stages, "1f1b", taut.ScheduleSearch(time_limit=1)).times.makespan
    15.0
    """
    if kind not in KINDS:
        raise FieldError("kind", kind, f"expected {one_of(kind, KINDS)}")
    space = roomy(placements(stages, placement, chunks))
    built, complaints = [], []
    for placed in space:
        try:
            built.append(build_kind(placed, kind))
        except FormulationError as error:
            complaints.append(str(error))
    if not built:
        raise FieldError("kind", kind, complaints[0].removeprefix(f"{kind}: "))
    chosen = min(built, key=fastest_that_fits)
    if not chosen.fits:
        refuse_too_full(chosen)
    return bounded(chosen, search)


def bounded(chosen: Built, search: ScheduleSearch) -> FoundSchedule:
    """
    Bound a schedule on the orders of its placement within its memory limits or, without any, within its own peak.

    ``search``: how long to prove.
    """
    placed = chosen.placed
    if not np.isfinite(placed.problem.memory_limit).any():
        peak = np.full_like(chosen.times.peak_memory, chosen.times.peak_memory.max())
        placed = replace(placed, problem=replace(placed.problem, memory_limit=peak))
    known = chosen.times.makespan
    load(search.progress)
    with interrupt_requested() as asked:
        bound = placement_bound(placed, known, search.time_limit or PRICE_SECONDS, asked)
    return FoundSchedule(
        placed=placed,
        schedule=chosen.schedule,
        times=chosen.times,
        lower_bound=min(bound.lower_bound, known),
        source=bound.source,
        bounds={placed.placement: bound.lower_bound},
        certificate=certificate(known, bound),
    )
