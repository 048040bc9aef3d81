r"""
Near-ties: the best plans that are plainer to run than the best plan, or like runs that were measured, with bounds.

One of them that costs no more than the prices can tell takes the place of the best plan.

Let J be the seconds of the best plan, and :math:`b_c` the bound that its search has proven of candidate c. For every
restriction (``taut.formulations.plainer``) that the plan does not meet, with candidates C,

(1) the branch and bound searches C from the bounds :math:`b_{w(c)}`, where w(c) is the candidate of the whole space
    that contains all plans of c. It leaves a plan of J' seconds, and bounds :math:`b'_c \ge b_{w(c)}`, of which only
    larger ones are kept; so the near-tie costs :math:`J' / J - 1`, and at least
    :math:`\min(J', \min_C b'_c) / J - 1`;
(2) a search ends at a gap of ``GAP``, and after ``MOST_EACH`` seconds. All take at most ``SHARE`` of the time limit, of
    which each has an even part of what is left, or ``SHARE`` of the work limit, of which each has an even part; the
    plans within the calibration's runs have ``SEEN_PARTS`` of these parts;
(3) the searches go in a fixed order (``taut.formulations.plainer.restrictions_on``), and begin with the best plan found
    so far that meets theirs. One that finds no better plan is left out;
(4) a near-tie that is faster than the plan is a better plan, and takes its place. Restrictions that only this plan does
    not meet are not searched;
(5) let L be the bound and g the gap that was asked for. Of the near-ties within

    .. math:: J' \le \max(J (1 + \epsilon),\; \min(L / (1 - g),\; J (1 + \delta)))

    the plainest (``taut.formulations.plainer`` (9)), and of these the fastest, takes the place of a plan that is less
    plain, if it misses no restriction that this one meets. Here :math:`\delta` is ``WITHIN_RUNS``, and
    :math:`\epsilon` is ``UNTOLD``, ``WITHIN_RUNS`` where the plan is beyond the calibration's runs and the near-tie
    within them, or 0 at a gap of 0. It has the bound L. The plan of J seconds is listed as the near-tie ``fastest``.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

from taut.formulations.latency import step_time, violations
from taut.formulations.plainer import (
    FASTEST,
    SEEN,
    Restriction,
    meets,
    missed,
    plainness,
    restricted,
    restriction_of,
    restrictions_on,
    widened,
    wider,
)
from taut.formulations.problem import PlanningProblem
from taut.formulations.space import Candidate
from taut.solver.branch_and_bound.stop import Listener, Progress, Stopwatch, interrupt_requested
from taut.solver.result import (
    OPTIMALITY_GAP,
    SOLVED,
    CandidateBound,
    Incumbent,
    Limits,
    NearTie,
    SearchResult,
    Source,
    State,
    StoppedBy,
)
from taut.solver.search.search import as_result, search, with_incumbent
from taut.solver.signals import cut_short

GAP = 4e-3
"""Relative gap at which a search ends: what a plain plan costs is of interest to some tenths of a per cent."""
MOST_EACH, SHARE = 10.0, 0.25
"""Seconds of a search at most, and the share of the limits that all have."""
SEEN_PARTS = 3
"""Parts of the limits of the search within the calibration's runs, whose prices are known best."""
FIRST = 8
"""Simple plans that each search prices first: bounds are known, so that it soon has others."""
UNTOLD = 1e-4
"""Share of a step far below what prices can tell: unseen runs differ by 1 to 5 %."""
WITHIN_RUNS = 1e-3
"""Share of a step by which prices beyond all runs are surely not known: unseen runs within them differ by 1 to 5 %."""
Known = Mapping[Candidate, CandidateBound]


def near_ties(
    problem: PlanningProblem,
    result: SearchResult,
    limits: Limits,
    progress: Listener | None = None,
    *,
    takes: bool = True,
) -> tuple[SearchResult, list[NearTie]]:
    """The result with a better plan, (4), or if it ``takes`` any a plainer one, (5); and plainer plans by seconds."""
    if result.incumbent is None or result.stopped_by is StoppedBy.INTERRUPT:
        return result, []
    problem, known = problem.with_orders(result.orders), {bound.candidate: bound for bound in result.bounds}
    found: list[NearTie] = []
    with Stopwatch() as watch, interrupt_requested(), cut_short():
        restrictions = [*restrictions_on(problem, result.incumbent.strategy)]
        parts = [SEEN_PARTS if restriction.name == SEEN else 1 for restriction in restrictions]
        for done, restriction in enumerate(restrictions):
            each = _limits(limits, watch.seconds, parts[done] / sum(parts), parts[done] / sum(parts[done:]))
            if each is None:
                break
            if progress is not None:
                seconds = result.wall_s + watch.seconds
                words = f"plans {restriction.words}"
                progress(Progress(seconds, result.incumbent.seconds, result.lower_bound, words, result.work))
            tie = _searched(problem, restriction, known, found, each)
            if tie is None:
                continue
            found.append(tie)
            same = _in_whole_space(problem, tie.incumbent, known)
            if same is not None and same.seconds < result.incumbent.seconds:
                result = with_incumbent(result, same)
            if tie.stopped_by is StoppedBy.INTERRUPT:
                break
    result, fastest = _plainest(problem, result, found, known, limits.gap) if takes else (result, [])
    ties = [*fastest, *_plainer(problem, result.incumbent, found)]
    return result, sorted(ties, key=lambda tie: tie.incumbent.seconds)


def _plainest(
    problem: PlanningProblem, result: SearchResult, found: list[NearTie], known: Known, gap: float
) -> tuple[SearchResult, list[NearTie]]:
    """The result with the plan of (5), and the fastest plan as a near-tie where another has taken its place."""
    best, seen = result.incumbent, restriction_of(SEEN, problem.calibration)
    assert best is not None
    is_exact, is_seen = gap <= OPTIMALITY_GAP, seen is None or meets(problem, seen, best.strategy)
    plain = [each for tie in found if (each := _in_whole_space(problem, tie.incumbent, known)) is not None]
    missed_by_best = missed(problem, best.strategy)
    within = min(result.lower_bound / (1 - gap), best.seconds * (1 + WITHIN_RUNS))

    def is_near(each: Incumbent) -> bool:
        gains = not is_seen and seen is not None and meets(problem, seen, each.strategy)
        share = 0.0 if is_exact else WITHIN_RUNS if gains else UNTOLD
        return missed(problem, each.strategy) <= missed_by_best and each.seconds <= max(
            best.seconds * (1 + share), within
        )

    rank = {id(each): (*plainness(problem, each.strategy), each.seconds) for each in (best, *plain) if is_near(each)}
    taken = min((best, *filter(is_near, plain)), key=lambda each: rank[id(each)])
    if taken is best:
        return result, []
    left = (float(bound.lower_bound) for bound in result.bounds if bound.state is not State.INFEASIBLE)
    changed = as_result(result, taken, min([result.lower_bound, *left]))
    if taken.seconds <= best.seconds * (1 + SOLVED):
        return changed, []
    least = min(float(bound.lower_bound) for bound in result.bounds)
    fastest = NearTie(
        restriction=FASTEST,
        incumbent=best,
        lower_bound=min(best.seconds, least),
        bounds=[],
        stopped_by=result.stopped_by,
    )
    return changed, [fastest]


def _limits(limits: Limits, seconds: float, of_all: float, of_left: float) -> Limits | None:
    """Limits (2) of the next search, after so many seconds: its share of all, and of what is left; None without any."""
    rest = math.inf if limits.time_limit is None else (SHARE * limits.time_limit - seconds) * of_left
    work = None if limits.work_limit is None else int(SHARE * limits.work_limit * of_all)
    if rest <= 0 or work == 0:
        return None
    # Work is the same on every machine, which seconds are not.
    only_work = work is not None and limits.time_limit is None
    return replace(limits, time_limit=None if only_work else min(MOST_EACH, rest), work_limit=work, gap=GAP)


def _searched(
    problem: PlanningProblem, restriction: Restriction, known: Known, earlier: list[NearTie], limits: Limits
) -> NearTie | None:
    """The best plan of a restriction, (1); None where none was found that is better than the earlier ones."""
    given = restricted(problem, restriction)
    kept = [candidate for candidate in given.candidates if restriction.keeps(candidate)]
    first = {c: bound for c in kept if (bound := _first(c, known)) is not None}
    only = [c for c in kept if c not in first or math.isfinite(first[c].lower_bound)]
    if not only or not given.space.recompute:
        return None
    starts = [tie.incumbent for tie in earlier if given is problem and restriction.keeps(_candidate(tie.incumbent))]
    start = min(starts, key=lambda each: each.seconds, default=None)
    result = search(given, limits, incumbent=start, only=only, known=first, adapts=False, first=FIRST)
    if result.incumbent is None or result.incumbent is start:
        return None
    least = min(result.incumbent.seconds, *(float(bound.lower_bound) for bound in result.bounds))
    return NearTie(
        restriction=restriction.name,
        incumbent=result.incumbent,
        lower_bound=least,
        bounds=[bound for bound in result.bounds if _is_larger(bound, first)],
        stopped_by=result.stopped_by,
    )


def _first(candidate: Candidate, known: Known) -> CandidateBound | None:
    """The bound of a candidate of a restriction that the whole space has proven; None where it lacks the candidate."""
    if (own := known.get(candidate)) is not None:
        return own
    if (bound := known.get(wider(candidate, known))) is None:
        return None
    # So that its own closed form is computed, which may say more.
    source = Source.BALANCE if math.isfinite(bound.lower_bound) else bound.source
    return replace(bound, candidate=candidate, source=source)


def _is_larger(bound: CandidateBound, first: Known) -> bool:
    return bound.candidate not in first or bound.lower_bound > first[bound.candidate].lower_bound


def _candidate(incumbent: Incumbent) -> Candidate:
    return incumbent.strategy.candidate


def _in_whole_space(problem: PlanningProblem, incumbent: Incumbent, known: Known) -> Incumbent | None:
    """A plan of a restriction as one of the whole space; None if it breaks a rule there."""
    strategy = widened(incumbent.strategy, known)
    if violations(problem, strategy, incumbent.devices):
        return None
    seconds = float(step_time(problem, strategy, incumbent.devices).total)
    return Incumbent(strategy=strategy, devices=incumbent.devices, seconds=seconds)


def _plainer(problem: PlanningProblem, best: Incumbent | None, found: list[NearTie]) -> Iterator[NearTie]:
    """The near-ties that are no faster than the plan, whose restriction it does not meet."""
    for tie in found:
        restriction = restriction_of(tie.restriction, problem.calibration)
        if best is None or restriction is None or tie.incumbent.seconds < best.seconds * (1 - SOLVED):
            continue
        if not meets(problem, restriction, best.strategy):
            yield tie
