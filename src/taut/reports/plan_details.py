"""
What ``taut show`` adds to a plan's summary: a timeline in characters, nearest alternatives, and what a gap rests on.

(1) A character is the kind of pass that takes most of its time: F forward, B gradient by the input, W gradient by the
    weights, ``.`` idle. Where the typical pass would be shorter than a character, characters are as long as it, and the
    beginning and the end of the step are drawn with ``~`` between them.
(2) A gap is J less the least bound of the open candidates, so it closes when those are refined, or when a plan
    in one of them is found.

A candidate's bound b says that
nothing in it is faster. Beside the plan's J seconds it lost by at least b / J - 1 where b >= J, and where b < J it is
open: something in it may be faster by up to 1 - b / J.
"""

from textwrap import wrap

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.errors import TautError
from taut.formulations.schedules.recurrence import FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT
from taut.formulations.schedules.schedule import Schedule, ScheduleProblem, Timetable, timetable
from taut.formulations.space import Candidate
from taut.planning.plan import Plan
from taut.planning.proof import goes_on
from taut.plots.schedule import Bars, bars_of
from taut.schedules.reading import planned
from taut.solver.certificate.document import CandidateSection, PlanDocument
from taut.solver.certificate.exact import Exactness
from taut.solver.result import SOLVED

WHY = {
    "balance": "what it computes",
    "relaxation": "its closed-form bound",
    "partition": "its best division of the layers on the fastest links",
    "order-memory": "its order within the memory",
    "order": "its order's weighted paths",
    "every-placement": "every placement of its divisions",
    "node-slots": "its stages in whole nodes",
    "node-sets": "the best nodes of every stage of its divisions",
    "placement": "the best placement of its divisions",
    "cover": "paths over the real links",
    "memory": "memory",
}
"""Sources of bounds in the words of a report."""


def candidate_name(entry: CandidateSection) -> str:
    """A candidate in one line, as progress and messages name it."""
    known = _candidate(entry)
    return " ".join(f"{name}={value}" for name, value in entry.strategy.items()) if known is None else str(known)


def _candidate(entry: CandidateSection) -> Candidate | None:
    """The candidate of an entry; None where it has other fields."""
    try:
        return Candidate.from_dict(entry.strategy)
    except TypeError:
        return None


def own_entry(plan: PlanDocument) -> CandidateSection | None:
    """The entry of the plan's own candidate, None where the document lacks it."""
    own = plan.strategy.candidate
    return next((entry for entry in plan.certificate.candidates if _candidate(entry) == own), None)


def nearest(plan: PlanDocument, count: int) -> list[CandidateSection]:
    """The candidates with the least bounds that are not the plan's own, in the order of their bounds."""
    own = own_entry(plan)
    others = [entry for entry in plan.certificate.candidates if entry is not own and entry.lower_bound_s is not None]
    return sorted(others, key=lambda entry: entry.lower_bound_s or 0.0)[:count]


def why_lost(entry: CandidateSection, objective: float) -> str:
    """What decides between a candidate and the plan."""
    source, bound = WHY.get(entry.source, entry.source), entry.lower_bound_s
    if bound is None:
        return "does not fit the memory"
    if entry.state == "open":
        return f"open: may be faster by up to {_share(1 - bound / objective)}, {source}" if objective else "open"
    more = bound / objective - 1 if objective else 0.0
    if more <= SOLVED:
        return f"no faster: {source}"
    return f"at least {_share(more)} slower: {source}"


def _share(value: float) -> str:
    """A share in per cent, to a hundredth."""
    return f"{100 * value:.2f} %" if value >= 5e-5 else "less than 0.01 %"


SIGNS = ((FORWARD, "F"), (INPUT_GRADIENT, "B"), (WEIGHT_GRADIENT, "W"))
MOST_ROWS = 16
"""Stages drawn; of more, so many evenly spread ones."""
ALTERNATIVES = 5
EXHAUSTED = "no refinement is left for them: --fix to one of them searches it alone"


def details(plan: Plan, *, width: int) -> str:
    """Timeline, nearest alternatives, the reasons of a gap, and what of the bound is exact."""
    others = [] if plan.meshes else [*_alternatives(plan, width), *_reasons(plan, width), *_exact(plan, width)]
    return "\n".join([*timeline_lines(plan, width), *others])


def timeline_lines(plan: Plan, width: int) -> list[str]:
    """The schedule of the slowest replica in characters, (1); nothing of a plan that contradicts itself."""
    try:
        placed, schedule, replica = planned(plan.document, plan.source)
    except TautError:
        # `taut verify` says what is wrong with it.
        return []
    whose = f" of {slowest_words(plan, replica)}" if plan.meshes or plan.strategy.micro_batches else ""
    return drawn_timeline(placed.problem, schedule, timetable(placed.problem, schedule), width, whose)


def slowest_words(plan: Plan, replica: int) -> str:
    """The slowest replica; which one it is where replicas differ, or where meshes make pipelines of several."""
    if plan.meshes:
        return f"pipeline {replica}, the slowest"
    return f"replica {replica}, the slowest" if plan.strategy.micro_batches else "the slowest replica"


def drawn_timeline(
    problem: ScheduleProblem, schedule: Schedule, times: Timetable, width: int, whose: str = ""
) -> list[str]:
    """A schedule in characters, (1), and whose it is in words."""
    bars, ranks = bars_of(problem, schedule, times), problem.num_devices
    label = len(f"stage {ranks - 1}") + 2
    pieces, cell = _pieces(bars, times.makespan, width - label)
    rows = sorted({round(k * (ranks - 1) / max(MOST_ROWS - 1, 1)) for k in range(MOST_ROWS)} if ranks > MOST_ROWS
                  else range(ranks))  # fmt: skip
    drawn = [f"{f'stage {d}':<{label}}" + "~".join(_signs(bars, d, piece, cell) for piece in pieces) for d in rows]
    words = f"timeline{whose}: {cell:.3g} s a character; F forward, B gradient by input, W by weights, . idle"
    return ["", *wrap(words, width), *drawn]


def _pieces(bars: Bars, end: float, room: int) -> tuple[list[Floats], float]:
    """Moments at which the characters of every piece begin, and their seconds."""
    typical = float(np.median((bars.end - bars.start)[bars.kind == FORWARD]))
    if end <= 0 or typical <= 0 or end / typical <= room:
        return [np.asarray(end / room * np.arange(room), dtype=np.float64)], end / room
    half = (room - 1) // 2
    moments = np.asarray(typical * np.arange(half), dtype=np.float64)
    return [moments, np.asarray(end - typical * half + moments)], typical


def _signs(bars: Bars, device: int, moments: Floats, cell: float) -> str:
    """Characters of one device."""
    own = np.flatnonzero(bars.device == device)
    shares = np.stack([_covered(bars, own[bars.kind[own] == kind], moments, cell) for kind, _ in SIGNS])
    shares = np.vstack([cell - shares.sum(axis=0), shares])
    return "".join(f".{''.join(sign for _, sign in SIGNS)}"[k] for k in shares.argmax(axis=0).tolist())


def _covered(bars: Bars, rows: Ints, moments: Floats, cell: float) -> Floats:
    """Seconds of each character that the bars cover; bars of one device do not overlap."""
    start, end = bars.start[rows][:, None], bars.end[rows][:, None]
    both = np.minimum(end, moments + cell) - np.maximum(start, moments)
    return np.asarray(np.maximum(both, 0.0).sum(axis=0))


def _alternatives(plan: Plan, width: int) -> list[str]:
    """The nearest other candidates and why each lost."""
    entries = nearest(plan.typed, ALTERNATIVES)
    if not entries:
        return []
    lines = ["", *wrap("nearest alternatives, by the seconds that nothing in them can beat", width)]
    for entry in entries:
        lines += wrap(candidate_name(entry), width)
        why = f"{entry.lower_bound_s:.6g} s, {why_lost(entry, plan.certificate.objective_s)}"
        lines += wrap(why, width, initial_indent="    ", subsequent_indent="    ")
    return lines


def _exact(plan: Plan, width: int) -> list[str]:
    """Whether the lower bound holds in exact arithmetic, or what is of floats alone; nothing in earlier files."""
    stated = plan.typed.exactness
    if stated is None:
        return []
    figures = stated.model_dump(exclude={"exact", "floats_alone"})
    return ["", *wrap(Exactness(**figures, alone=stated.floats_alone).words, width)]


def _reasons(plan: Plan, width: int) -> list[str]:
    """What a gap that is left rests on, and what would close it, (2)."""
    entries = [entry for entry in plan.candidates if entry.state == "open" and entry.lower_bound_s is not None]
    if plan.status == "optimal" or not entries:
        return []
    least = min(entries, key=lambda entry: entry.lower_bound_s or 0.0)
    own = "the plan's own, whose division or placement may be improved" if least is own_entry(plan.typed) else ""
    more = goes_on(plan.sections) or EXHAUSTED
    words = (
        f"gap: {len(entries)} open candidate{'s' if len(entries) > 1 else ''} may hold a faster plan; the least bound "
        f"is that of {own or candidate_name(least)}, by {WHY.get(least.source, least.source)}; {more}."
    )
    return ["", *wrap(words, width, break_on_hyphens=False)]
