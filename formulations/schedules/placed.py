"""A pipeline whose chunks lie on devices."""

from dataclasses import dataclass

from taut.formulations.schedules.pipeline import ScheduleProblem


@dataclass(frozen=True, kw_only=True, eq=False)
class PlacedProblem:
    """
    A pipeline, how its chunks lie on the devices, and what 1F1B would hold.

    Parameters
    ----------
    placement
        ``sequential``, ``v``, ``round-robin``, or the name a file gives.
    problem
        The pipeline.
    reference_memory
        Memory of 1F1B on its fullest device, in the problem's units.
    unit
        Unit of the times, such as ``s``; empty where they are given in any unit.
    """

    placement: str
    problem: ScheduleProblem
    reference_memory: float
    unit: str = ""
