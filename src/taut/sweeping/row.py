"""
One point solved: the results of a row.

A wrong point is a row as well, with ``status`` ``error`` (or ``infeasible``, ``unknown``) and the words of its error;
one whose process died is ``lost``. Only an interrupt ends a sweep: a search that was told to stop has a plan that an
undisturbed one need not have, so it is no result.
"""

import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from taut.data.samples import ConfigurationRow
from taut.errors import InfeasibleError, NothingFoundError, TautError
from taut.formulations.space import SWEEP_COLUMNS
from taut.planning.request import PlanRequest
from taut.planning.solve import plan, plan_one_degree
from taut.prediction.records import predict
from taut.solver.branch_and_bound.stop import interrupt_requested
from taut.sweeping.point import Point
from taut.sweeping.spec import Fields, Kind

RESULTS = (
    "status",
    *SWEEP_COLUMNS,
    "recompute",
    "stages",
    "step_time_s",
    "step_time_low_s",
    "step_time_high_s",
    "lower_bound_s",
    "gap",
    "memory_bytes",
    "fits",
    "tokens_per_s",
    "mfu",
    "hfu",
    "bubble",
    "tasks",
    "error",
    "seconds",
)
"""Columns of every row, after those of the point; ``seconds`` is wall time, the one that differs from run to run."""
INTERRUPTED, LOST = "interrupted", "lost"
Row = dict[str, Any]


def solved(point: Point) -> Row:
    """Results of a point; a wrong one has its error. One thread, unless the point says otherwise."""
    begin, row = time.monotonic(), dict.fromkeys(RESULTS)
    with interrupt_requested() as interrupted, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        row |= _results(point)
        if interrupted():
            row["status"] = INTERRUPTED
    return row | {"seconds": round(time.monotonic() - begin, 3)}


def lost(error: str) -> Row:
    """Results of a point whose process ended without any; another run tries it again."""
    return {**dict.fromkeys(RESULTS), "status": LOST, "error": error, "seconds": 0.0}


def warm() -> None:
    """Compile the loops of a plan, or load what was compiled; where many processes share a cache, one does it first."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plan("gpt2-345m", "dgx-a100", global_batch=8, fix={"tp": 1, "micro_batch": 1}, workers=1)


def _results(point: Point) -> Row:
    try:
        if point.error:
            return {"status": "error", "error": point.error}
        return _SOLVE[point.kind](point.fields)
    except InfeasibleError as error:
        return {"status": "infeasible", "error": str(error)}
    except NothingFoundError as error:
        return {"status": "unknown", "error": str(error)}
    except TautError as error:
        return {"status": "error", "error": str(error)}
    except (Exception, KeyboardInterrupt) as error:
        return {"status": "error", "error": f"{type(error).__name__}: {error}"}


def _planned(fields: Fields) -> Row:
    found = plan_one_degree(PlanRequest(**{"model": None, "cluster": None, "workers": 1, **fields}))
    chosen, figures = found.strategy, found.predicted
    return {
        "status": found.status,
        **{name: getattr(chosen, name) for name in SWEEP_COLUMNS},
        **_division(chosen.stages, chosen.recompute),
        "step_time_s": found.step_time_s,
        "lower_bound_s": found.lower_bound_s,
        "gap": found.gap,
        "memory_bytes": max(figures.memory_bytes),
        "fits": True,
        "tokens_per_s": figures.tokens_per_s,
        "mfu": figures.mfu,
        "hfu": figures.hfu,
        "error": "",
    }


def _division(stages: Iterable[Sequence[int]], recompute: Sequence[str]) -> Row:
    """Layers of every stage, and its recompute; one word where that is the same everywhere."""
    words = recompute[0] if len(set(recompute)) == 1 else "|".join(recompute)
    return {"stages": "|".join(str(end - first) for first, end in stages), "recompute": words}


def _simulated(fields: Fields) -> Row:
    from taut.simulation.simulate import simulate

    found = simulate(PlanRequest(**{"model": None, "cluster": None, "workers": 1, **fields}))
    candidate, division = found.strategy.candidate, found.strategy.division
    return {
        "status": "simulated",
        **{name: getattr(candidate, name) for name in SWEEP_COLUMNS},
        **_division(found.strategy.layer_stages, division.recompute),
        "step_time_s": found.step_time_s,
        "memory_bytes": max(found.memory_bytes),
        "fits": found.fits,
        "bubble": found.bubble,
        "tasks": found.tasks,
        "error": "",
    }


def _predicted(fields: Fields) -> Row:
    given = {name: value for name, value in fields.items() if name in ConfigurationRow.model_fields}
    found = predict([given], fields.get("calibration"), fields.get("memory_model"))[0]
    row = {name: found[name] for name in RESULTS if name in found}
    if isinstance(row.get("stages"), list):
        row["stages"] = "|".join(map(str, row["stages"]))
    if row["error"]:
        return {**row, "status": "error", "error": row["error"].removeprefix("row 1: ")}
    whole = ConfigurationRow.parse({name: value for name, value in given.items() if value is not None}, "row")
    names = ("pp", "tp", "cp", "dp", "vpp", "micro_batch", "num_micro_batches", "zero", "recompute")
    said = {name: getattr(whole, name) for name in names}
    return {**row, **said, "schedule": whole.run_schedule, "status": "predicted"}


_SOLVE: dict[Kind, Callable[[Fields], Row]] = {"plan": _planned, "predict": _predicted, "simulate": _simulated}
