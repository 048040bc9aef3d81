"""
Every kind of schedule by name, and the fastest of several.

Orders are formulas of the papers that ``taut.formulations.schedules.orders`` cites, or are adapted to times and memory
limits (``taut.solver.schedules.construct.multi_start``):

======================  ===========================================  ==========================================
name                    chunks                                       order
======================  ===========================================  ==========================================
``gpipe``               any                                          formula
``1f1b``                one a device                                 formula
``interleaved-1f1b``    round the devices                            formula
``zb-h1``, ``zb-h2``    one a device                                 formula
``zb-auto``             one a device                                 adapted, under the memory limit
``zb-v``                the V                                        adapted, in the memory of ZB-V: 2p chunks
``v-half``, ``v-min``   the V                                        adapted, in the memory of their blocks
``dualpipe-v``          the V                                        formula
``blocks``              any                                          adapted, under the memory limit
======================  ===========================================  ==========================================
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from taut.data.arrays import Floats
from taut.errors import FormulationError, InfeasibleError
from taut.formulations.schedules.orders import (
    Block,
    dualpipe_v,
    gpipe,
    interleaved,
    one_forward_one_backward,
    repeat,
    require,
    v_half,
    v_min,
    zb_h1,
    zb_h2,
    zb_v,
)
from taut.formulations.schedules.schedule import Schedule, ScheduleProblem, sequential, timetable, v_shape, violations
from taut.solver.schedules.construct.block_assembly import assembled_schedules
from taut.solver.schedules.construct.multi_start import Effort, multi_start

_FORMULAS: dict[str, Callable[[ScheduleProblem], Schedule]] = {
    "gpipe": gpipe,
    "1f1b": one_forward_one_backward,
    "interleaved-1f1b": interleaved,
    "zb-h1": zb_h1,
    "zb-h2": zb_h2,
    "dualpipe-v": dualpipe_v,
}
_BLOCKS: dict[str, Callable[[int], Block]] = {"v-half": v_half, "v-min": v_min}
_ASSEMBLED = 6
"""Assembled schedules to start from: the next ones differ little, and each start takes its share of the moves."""
KINDS = (*_FORMULAS, "zb-auto", "zb-v", *_BLOCKS, "blocks")
"""Names of all kinds."""


def build(
    kind: str,
    problem: ScheduleProblem,
    *,
    work: Effort | None = None,
    seed: int = 0,
    stop: Callable[[], bool] = lambda: False,
) -> Schedule:
    """
    Build a schedule of a kind.

    ``kind``: one of ``KINDS``; ``work``, ``seed``, ``stop``: how much to try, the random bits, and when to end early,
    where the order is adapted. Returns feasible, memory limits included, and of that kind. Raises ``FormulationError``
    if there is no such kind, or it is not defined for this pipeline. Raises ``InfeasibleError`` if it needs more memory
    than there is.
    """
    if kind not in KINDS:
        raise FormulationError(f"kind: {kind!r}, expected one of {', '.join(KINDS)}")
    if kind in _FORMULAS:
        return _checked(problem, _FORMULAS[kind](problem))
    if kind == "zb-auto":
        require(problem, sequential(problem.num_devices), kind, "one chunk a device, in order")
    elif kind != "blocks":
        problem = _within(problem, kind)
    return replace(multi_start(problem, kind=kind, known=_known(problem), work=work, seed=seed, stop=stop), kind=kind)


def fastest_kind(
    problem: ScheduleProblem,
    *,
    kinds: Sequence[str] | None = None,
    work: Effort | None = None,
    seed: int = 0,
    stop: Callable[[], bool] = lambda: False,
) -> Schedule:
    """
    Build the schedule of least makespan among kinds; of those equally long, the first.

    ``kinds``: names to choose from; those that the pipeline or its memory rules out are passed over. By default all of
    them compete, as starts of the adapted schedule; ``work``, ``seed``, ``stop``: as in ``build``, for each kind.
    Returns feasible, memory limits included. Raises ``FormulationError`` if there is no such kind, or none of the kinds
    is defined for this pipeline. Raises ``InfeasibleError`` if all that are defined need more memory than there is.
    """
    if kinds is None:
        return multi_start(problem, known=_known(problem), work=work, seed=seed, stop=stop)
    built: list[Schedule] = []
    refused: list[FormulationError | InfeasibleError] = []
    for kind in kinds:
        try:
            built.append(build(kind, problem, work=work, seed=seed, stop=stop))
        except (FormulationError, InfeasibleError) as error:
            if kind not in KINDS:
                raise
            refused.append(error)
    if built:
        return min(built, key=lambda schedule: timetable(problem, schedule).makespan)
    refused.sort(key=lambda error: isinstance(error, FormulationError))
    raise refused[0] if refused else FormulationError("kinds: empty, expected at least one name")


def _known(problem: ScheduleProblem) -> list[Schedule]:
    """Schedules by formula or from blocks that this pipeline allows; of some the memory is not looked at."""
    found = []
    for build_one in (*_FORMULAS.values(), zb_v):
        try:
            found.append(build_one(problem))
        except FormulationError:
            continue
    if np.array_equal(problem.device, v_shape(problem.num_devices)):
        found += [repeat(problem, block(problem.num_devices), kind) for kind, block in _BLOCKS.items()]
    return found + assembled_schedules(problem, _ASSEMBLED)


def _within(problem: ScheduleProblem, kind: str) -> ScheduleProblem:
    """The pipeline with the memory that a kind on the V may use."""
    require(problem, v_shape(problem.num_devices), kind, "two chunks a device, down and back up")
    memory = block_memory(problem, kind)
    for d in np.flatnonzero(memory > problem.allowed):
        limit = problem.memory_limit[d]
        raise InfeasibleError(f"{kind}: device {d} needs {memory[d]:g}, more than its limit {limit:g}")
    return replace(problem, memory_limit=memory)


def block_memory(problem: ScheduleProblem, kind: str) -> Floats:
    """
    Memory of a kind on the V: what repeating its block holds, and 2p chunks for ZB-V.

    ``kind``: ``v-min``, ``v-half`` or ``zb-v``. Returns units on each device (devices,).
    """
    if kind in _BLOCKS:
        return timetable(problem, repeat(problem, _BLOCKS[kind](problem.num_devices), kind)).peak_memory
    whole = np.bincount(problem.device, weights=problem.activation, minlength=problem.num_devices)
    return np.asarray(min(problem.num_devices, problem.num_micro_batches) * whole, dtype=np.float64)


def _checked(problem: ScheduleProblem, schedule: Schedule) -> Schedule:
    broken = violations(problem, schedule)
    if broken:
        raise InfeasibleError(f"{schedule.kind}: {broken[0]}")
    return schedule
