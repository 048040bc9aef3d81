"""
Recompute: what the backward pass computes again instead of keeping it.

(8) With ``recompute_by_stage`` every stage chooses its recompute, and ``uniform_recompute`` is empty. Without, there is
    a candidate for each recompute, which all its stages share. Schedules that split the backward pass exclude full
    recompute.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from taut.data.costs import MODULES, RECOMPUTE, Recompute
from taut.formulations.fields import Field, Fix, Runs, Words, one_of_names, some_of_names
from taut.formulations.schedules.plan_orders import SPLIT

if TYPE_CHECKING:
    from taut.formulations.space import Candidate, StrategySpace, Workload

SHARED_RECOMPUTE = Field(
    meaning="The recompute of every stage; empty where each stage has its own.",
    seldom=True,
    words=Words(17, lambda each: f"recompute={each.uniform_recompute}" if each.uniform_recompute else ""),
    runs=Runs(
        "recompute",
        1,
        lambda value: "no recompute" if value == "none" else f"{value} recompute",
        lambda candidate: candidate.uniform_recompute or None,
    ),
)
OF_ALL_STAGES = {
    "recompute": Fix(16, str, one_of_names(RECOMPUTE)),
    "recompute_modules": Fix(17, str, some_of_names(MODULES)),
}
"""What may be fixed of the recompute: that of every stage, and the modules of selective recompute."""


def with_recompute(workload: "Workload", candidate: "Candidate") -> Iterator["Candidate"]:
    """The candidate with each recompute that all stages share, or itself where each stage chooses, (8)."""
    if workload.space.recompute_by_stage:
        yield candidate
        return
    for name in recompute_of(workload.space, candidate.schedule):
        yield replace(candidate, uniform_recompute=name)


def recompute_of(space: "StrategySpace", schedule: str) -> tuple[Recompute, ...]:
    """Recompute that a stage may choose under a schedule, in the order of ``RECOMPUTE``, (8)."""
    return tuple(name for name in RECOMPUTE if name in space.recompute and not (name == "full" and schedule in SPLIT))


def suits(candidate: "Candidate", kept: tuple[Recompute, ...]) -> bool:
    """Whether a candidate has a recompute among those that a mechanism leaves."""
    return candidate.uniform_recompute in kept or (bool(kept) and not candidate.uniform_recompute)
