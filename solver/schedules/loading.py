"""Loading of the compiled loops of schedules, before any time limit begins."""

import math
import threading
import time
from collections.abc import Callable

import numpy as np

from taut.formulations.schedules.schedule import ScheduleProblem, timetable, v_shape
from taut.solver.branch_and_bound.progress import Listener, Progress
from taut.solver.schedules.bound.destructive_bound import lower_bound
from taut.solver.schedules.construct.kinds import fastest_kind
from taut.solver.schedules.construct.multi_start import Effort

_loaded = threading.Event()
LOADING = "loading loops, compiled in a first run"


def load(progress: Listener | None = None) -> None:
    """
    Load the compiled loops, or compile them, on a small pipeline: a first run would spend its time limit on that.

    ``progress``: called now and then while the loops are compiled.
    """
    if not _loaded.is_set():
        began = time.monotonic()

        def beat() -> bool:
            if progress is not None:
                progress(Progress(time.monotonic() - began, math.inf, -math.inf, LOADING))
            return False

        _load(beat)
        _loaded.set()


def _load(beat: Callable[[], bool]) -> None:
    """Build, improve and bound a small pipeline, which runs every loop once."""
    times, chunks = np.ones(4), v_shape(2)
    small = ScheduleProblem(
        device=chunks,
        forward=times,
        input_gradient=times,
        weight_gradient=times,
        transfer=np.full(3, 0.5),
        num_micro_batches=4,
        activation=times,
        kept_for_weight=times,
        memory_limit=np.full(2, 3.0),
    )
    start = fastest_kind(small, work=Effort(lists=9, kept=1, trials=9), stop=beat)
    lower_bound(small, incumbent=timetable(small, start).makespan, work_limit=10_000, stop=beat)
