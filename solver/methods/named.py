"""The methods by name, each loaded where it is asked for, as CP-SAT and CBC take a while, and what a method yields."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any

from taut.formulations.problem import PlanningProblem
from taut.solver.branch_and_bound.stop import Listener
from taut.solver.result import CandidateBound, Incumbent, Limits

SEARCH = "branch-and-bound"
"""The default, which is no method of this folder (``taut.solver.search``)."""
SIMULATED = "simulated"
"""The best candidates at the prices of ``step``, ranked by their simulated time."""
PROGRAMS = {"cp-sat": "solve_cpsat", "cbc": "solve_cbc"}
BASELINES = ("megatron", "amp", "pipette", "hethub", "varuna", "fsdp", "random")
MESHES = "meshes"
"""Plans of meshes alone, which are no method of this folder either (``taut.solver.meshes``)."""
NAMES = (SEARCH, MESHES, SIMULATED, *PROGRAMS, *BASELINES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """
    A method's plan, priced by the evaluator.

    ``method``: name of the method; ``incumbent``: its plan; None where it found none; ``lower_bound``: seconds that the
    method itself claims no plan of ``candidates`` beats; -inf where it claims nothing; ``candidates``: how many
    candidates it looked at; ``solver``: who computed it, with the version, where that is not this program; ``wall_s``:
    seconds that it took; ``is_cut_off``: whether a limit or an interrupt ended it; ``figures``: what else a document
    says of it; ``bounds``: of candidates that it searched as the search does.
    """

    method: str
    incumbent: Incumbent | None
    lower_bound: float = -math.inf
    candidates: int
    solver: str = ""
    wall_s: float
    is_cut_off: bool = False
    figures: dict[str, Any] = field(default_factory=dict)
    bounds: tuple[CandidateBound, ...] = ()


Method = Callable[[PlanningProblem, Limits, Listener | None], Outcome]
"""A way to a plan, within limits."""


def method_of(name: str) -> Method:
    """The method of a name other than the default: ``SIMULATED``, or one of ``PROGRAMS`` or ``BASELINES``."""
    if name == SIMULATED:
        from taut.solver.methods.simulated import simulated

        return simulated
    if name in BASELINES:
        from taut.solver.methods import baselines

        found: Method = getattr(baselines, "random_search" if name == "random" else name)
        return found
    from taut.solver.methods.integer_program import by_program

    backend = getattr(import_module(f"taut.solver.program.{name.replace('-', '_')}"), PROGRAMS[name])
    return partial(by_program, name, backend)
