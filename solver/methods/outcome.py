"""What a method found, and what it says of it by itself."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from taut.formulations.problem import PlanningProblem
from taut.solver.branch_and_bound.progress import Listener
from taut.solver.result import Incumbent, Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """
    A method's plan, priced by the evaluator.

    ``method``: name of the method; ``incumbent``: its plan; None where it found none; ``lower_bound``: seconds that the
    method itself claims no plan of ``candidates`` beats; -inf where it claims nothing; ``candidates``: how many
    candidates it looked at; ``solver``: who computed it, with the version, where that is not this program; ``wall_s``:
    seconds that it took; ``is_cut_off``: whether a limit or an interrupt ended it; ``figures``: what else a document
    says of it.
    """

    method: str
    incumbent: Incumbent | None
    lower_bound: float = -math.inf
    candidates: int
    solver: str = ""
    wall_s: float
    is_cut_off: bool = False
    figures: dict[str, Any] = field(default_factory=dict)


Method = Callable[[PlanningProblem, Limits, Listener | None], Outcome]
"""A way to a plan, within limits."""
