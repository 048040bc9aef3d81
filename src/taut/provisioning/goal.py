r"""
What is asked of a number of nodes, and what its step time makes of it.

Training takes S steps. With n GPUs, t seconds a step and q dollars an hour of a GPU,

(1) days = S t / 86,400, dollars = q n S t / 3,600;
(2) a plan is in time if its days are at most the deadline's.

The value of a plan is its seconds a step, its dollars, or its GPUs. Each of them grows with t at a fixed n, or does not
change, so a lower bound on t gives one on the value; and where a lower bound on t is past the deadline, every plan is.
"""

import math
from dataclasses import dataclass

from taut.data.suggest import one_of
from taut.errors import FieldError

OBJECTIVES = ("time", "cost", "gpus")
SECONDS_A_DAY, SECONDS_AN_HOUR = 86_400.0, 3_600.0
ROUNDING = 1e-12
"""Days are sums of floats: so much over the deadline is in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """
    What is asked: ``time``, ``cost`` or ``gpus``, with steps, dollars an hour of a GPU, and days at most.

    Raises
    ------
    FieldError
        If the objective is unknown, or lacks what it needs.
    """

    objective: str
    steps: int | None = None
    price: float | None = None
    deadline_days: float | None = None

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise FieldError("objective", self.objective, f"expected {one_of(self.objective, OBJECTIVES)}")
        for name in ("price", "deadline_days"):
            value = getattr(self, name)
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise FieldError(name, f"{value:g}", "expected a number above 0")
        if self.objective == "cost" and self.price is None:
            raise FieldError("price", None, "missing, expected dollars an hour of a GPU with objective cost")
        if self.objective == "gpus" and self.deadline_days is None:
            raise FieldError("deadline_days", None, "missing, expected days with objective gpus")
        if self.steps is None and (self.objective == "cost" or self.deadline_days is not None):
            raise FieldError("tokens", None, "missing, expected tokens or steps of the training")

    def days(self, step_s: float) -> float | None:
        """Days of the training, (1); None where its steps are not said."""
        return None if self.steps is None else self.steps * step_s / SECONDS_A_DAY

    def dollars(self, gpus: int, step_s: float) -> float | None:
        """Dollars of the training, (1); None where steps or price are not said."""
        if self.steps is None or self.price is None:
            return None
        return self.price * gpus * self.steps * step_s / SECONDS_AN_HOUR

    def in_time(self, step_s: float) -> bool:
        """Whether so many seconds a step are in time, (2)."""
        days = self.days(step_s)
        return self.deadline_days is None or days is None or days <= self.deadline_days * (1 + ROUNDING)

    def value(self, gpus: int, step_s: float) -> float:
        """What is to be small."""
        if self.objective == "cost":
            return self.dollars(gpus, step_s) or 0.0
        return float(gpus) if self.objective == "gpus" else step_s


def steps_of(tokens: float | None, steps: int | None, tokens_a_step: int) -> int | None:
    """
    Steps of a training, from its steps or its tokens.

    Raises ``FieldError`` if both are said, or one is no number above 0.
    """
    if tokens is not None and steps is not None:
        raise FieldError("steps", str(steps), "given together with tokens, expected one of them")
    for name, value in (("tokens", tokens), ("steps", steps)):
        if value is not None and not (value > 0 and math.isfinite(value)):
            raise FieldError(name, f"{value:g}", "expected a number above 0")
    return steps if tokens is None else math.ceil(tokens / tokens_a_step)
