"""A schedule in words: what was compared, what was found, what is proven."""

import math
from typing import TYPE_CHECKING

from taut.words import grid, percent, report

MOST_LISTED = 12
"""Devices whose figures fit into a line."""

if TYPE_CHECKING:
    from rich.table import Table

    from taut.schedules.found import FoundSchedule


def summary(found: "FoundSchedule", *, width: int = 110) -> str:
    """Text of a schedule that was found."""
    compared: list[str | Table] = ["", _table(found)] if found.compared else []
    return report(_pipeline_line(found), *compared, "\n".join(_lines(found)), width=width)


def head_line(found: "FoundSchedule") -> str:
    """Kind, placement and size of a schedule, for titles."""
    return (
        f"{found.schedule.kind}: {found.problem.num_devices} devices, {found.problem.num_micro_batches} micro-batches; "
        f"makespan {duration(found, found.makespan)}, bubble {found.times.bubble:.1%}, "
        f"peak memory {_peak(found):.3g} of 1F1B's"
    )


def proof_line(found: "FoundSchedule") -> str:
    """What is proven of a schedule, for titles."""
    if found.lower_bound is None:
        return "nothing is proven of other orders"
    words = "proven optimal: " if found.status == "optimal" else ""
    limits = _limit_words(found)
    return f"{words}no order within {limits} ends before {duration(found, found.lower_bound)}, gap {percent(found.gap)}"


def duration(found: "FoundSchedule", value: float) -> str:
    """A time with its unit, if the pipeline states one."""
    return f"{value:.6g} {found.placed.unit}".rstrip()


def time_axis(found: "FoundSchedule") -> str:
    """Name of the time axis with its unit."""
    return f"time ({found.placed.unit})" if found.placed.unit else "time (in the unit of the given times)"


def chunk_words(shades: int) -> str:
    """What the shades of a colour mean."""
    return "" if shades == 1 else " (dark to light: first to last chunk of a device)"


def _peak(found: "FoundSchedule") -> float:
    return float(found.times.peak_memory.max()) / found.reference_memory


def _limit_words(found: "FoundSchedule") -> str:
    limits = sorted(set((found.problem.memory_limit / found.reference_memory).tolist()))
    if math.isinf(limits[0]):
        return "any memory"
    if len(limits) == 1:
        return f"a memory of {limits[0]:.4g}"
    return f"memory limits of {limits[0]:.4g} to {limits[-1]:.4g}"


def _pipeline_line(found: "FoundSchedule") -> str:
    return (
        f"{found.problem.num_devices} devices, {found.problem.num_micro_batches} micro-batches, {_limit_words(found)} "
        f"(relative to 1F1B's peak)"
    )


def _table(found: "FoundSchedule") -> "Table":
    """One row per kind, the fastest first, with those that do not fit at the end."""
    table = grid("kind", "placement", ">makespan", ">span", ">bubble", ">peak memory", "")
    for each in found.compared:
        table.add_row(
            each.kind,
            each.placement,
            f"{each.makespan:.6g}",
            f"{each.span:.6g}",
            f"{each.bubble:.1%}",
            f"{each.peak_memory:.3f}",
            "" if each.fits else "over the limit",
        )
    return table


def _lines(found: "FoundSchedule") -> list[str]:
    proven = "nothing is proven" if found.lower_bound is None else (
        f"lower bound {duration(found, found.lower_bound)} ({found.source}), gap {percent(found.gap)}"
    )  # fmt: skip
    return [
        "",
        f"schedule    {found.schedule.kind} on the placement {found.placed.placement}",
        f"time        makespan {duration(found, found.makespan)}, span {duration(found, found.times.span)}, "
        f"bubble {found.times.bubble:.1%}",
        f"memory      peak {_peak(found):.4g} of 1F1B's; {_by_device(found)}",
        f"status      {found.status}: {proven}",
        *_space_line(found),
    ]


def _by_device(found: "FoundSchedule") -> str:
    held = (found.times.peak_memory / found.reference_memory).tolist()
    if len(held) > MOST_LISTED:
        return f"from {min(held):.3g} to {max(held):.3g} by device"
    return "by device " + " ".join(f"{share:.3g}" for share in held)


def _space_line(found: "FoundSchedule") -> list[str]:
    if not found.bounds:
        return []
    shown = ", ".join(f"{name} {bound:.6g}" for name, bound in found.bounds.items())
    return [f"space       every order within the limits; no earlier end by placement: {shown}"]
