"""Plans of several methods on one problem: seconds of each, of its search, and its distance from one lower bound."""

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, TypedDict, TypeVar

from taut.data.suggest import one_of
from taut.errors import FieldError, InfeasibleError, NothingFoundError, TautError
from taut.formulations.problem import PlanningProblem
from taut.planning.plan import Plan
from taut.planning.request import ClusterInput, ModelInput, PlanRequest
from taut.planning.resolve import planning_problem
from taut.planning.solve import plan
from taut.solver.methods.named import Outcome
from taut.solver.result import OPTIMALITY_GAP, Limits, SearchResult, StoppedBy, relative_gap
from taut.solver.search.search import search
from taut.solver.signals import cut_short, was_interrupted
from taut.words import percent

Item = TypeVar("Item")
Made = TypeVar("Made")


def rows_so_far(
    items: Iterable[Item],
    make: Callable[[Item], Made],
    words: Callable[[Item], str] = str,
    told: Callable[[str], None] | None = None,
) -> tuple[Made, ...]:
    """A row for each item, which is told of in ``words``, or those that were done when a signal came."""
    rows = list[Made]()
    try:
        with cut_short():
            for item in items:
                if was_interrupted():
                    break
                if told is not None:
                    told(words(item))
                rows.append(make(item))
    except TautError:
        if not was_interrupted():
            raise
    return tuple(rows)


def rows_until_interrupted(
    items: Sequence[Item], make: Callable[[Item], Made], told: Callable[[str], None] | None = None
) -> tuple[Made, ...]:
    """The rows so far of settings, each of which is told of; without any, a ``NothingFoundError``."""
    numbered = enumerate(items, start=1)
    rows = rows_so_far(numbered, lambda at: make(at[1]), lambda at: f"setting {at[0]} of {len(items)}", told)
    if not rows:
        raise NothingFoundError("interrupted before the first setting was done")
    return rows


def go_on() -> None:
    """Give a row up, with a ``NothingFoundError``, where a signal came: its methods would not have been tried alike."""
    if was_interrupted():
        raise NothingFoundError("interrupted before the row was done")


def outcomes(methods: Mapping[str, Callable[[], Outcome]]) -> dict[str, Outcome]:
    """What every method finds; none is begun after a signal."""
    found = {}
    for name, method in methods.items():
        go_on()
        found[name] = method()
    return found


@dataclass(slots=True, kw_only=True)
class SharedTime:
    """Limits of each search, and the seconds of a command, None for no limit, that so many searches share."""

    limits: Limits
    within: float | None
    searches: int
    began: float = field(default_factory=perf_counter)

    @property
    def left_s(self) -> float | None:
        """Seconds that are left, None for no limit."""
        return None if self.within is None else max(self.within - (perf_counter() - self.began), 0.0)

    @property
    def is_over(self) -> bool:
        """Whether no seconds are left."""
        return self.left_s == 0

    def of_next(self, searches: int) -> Limits:
        """Limits of each of the next so many searches, which have a tenth of a second at least."""
        whole = Limits(time_limit=self.within).shared(perf_counter() - self.began, max(self.searches, 1))
        self.searches -= searches
        limits = [each for each in (self.limits.time_limit, whole.time_limit) if each is not None]
        return replace(self.limits, time_limit=max(min(limits), 0.1) if limits else None)


class Asked(TypedDict, total=False):
    """What a reproduction may be asked: settings with ``only`` in their names, ``within`` seconds, and who is told."""

    only: str
    within: float | None
    told: Callable[[str], None] | None


def rows_of(
    settings: Mapping[str, Item],
    make: Callable[[Item, Limits], Made],
    searches: int,
    limits: Limits | None,
    asked: Asked,
) -> tuple[Made, ...]:
    """A row for each setting by name that is asked for, by so many searches within ``limits``, a minute by default."""
    only = asked.get("only", "")
    chosen = [setting for name, setting in settings.items() if only in name]
    if not chosen:
        raise FieldError("only", only, f"expected a part of {one_of(only, settings)}")
    each, number = limits or Limits(time_limit=60.0), searches * len(chosen)
    shared = SharedTime(limits=each, within=asked.get("within"), searches=number)
    return rows_until_interrupted(chosen, lambda setting: make(setting, shared.of_next(searches)), asked.get("told"))


def posed(model: ModelInput, cluster: ClusterInput, prices: str, **options: Any) -> PlanningProblem:
    """A paper's problem: its part of the whole space, at the prices of a latency model."""
    return planning_problem(PlanRequest(model, cluster, latency_model=prices, stack="any", **options))


CUT_OFF = "*"
"""Behind a figure whose search a limit ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Seconds a step and of the search of every method, None where nothing fits, the bound, and who was ``cut_off``."""

    step_s: dict[str, float | None]
    wall_s: dict[str, float]
    lower_bound_s: float
    cut_off: tuple[str, ...] = ()

    @property
    def gap(self) -> float | None:
        """Relative gap of the branch and bound's plan."""
        seconds = self.step_s["taut"]
        return None if seconds is None else relative_gap(seconds, self.lower_bound_s)

    def speed_up(self, over: str, of: str) -> float | None:
        """How much faster one method's plan is than another's."""
        one, other = self.step_s[of], self.step_s[over]
        return None if one is None or other is None else other / one

    def distance(self, method: str) -> float | None:
        """Distance J / L - 1 of a method's plan of J seconds from the bound L."""
        seconds = self.step_s[method]
        return None if seconds is None else seconds / self.lower_bound_s - 1

    @property
    def distances(self) -> dict[str, float | None]:
        """Distance of every method's plan."""
        return {method: self.distance(method) for method in self.step_s}

    def speed_cell(self, over: str, of: str) -> str:
        """How much faster one method's plan is than another's in a table's words."""
        return times(self.speed_up(over, of)) + self._mark(over, of)

    @property
    def distance_cells(self) -> tuple[str, ...]:
        """Distances and the gap in a table's words."""
        cells = [percent(distance, places=2) + self._mark(name) for name, distance in self.distances.items()]
        return *cells, percent(self.gap, places=2) + self._mark("taut")

    @property
    def wall_cells(self) -> tuple[str, ...]:
        """Seconds of the searches in a table's words."""
        return tuple(f"{self.wall_s[method]:.2f} s" + self._mark(method) for method in self.step_s)

    def _mark(self, *methods: str) -> str:
        return CUT_OFF if any(method in self.cut_off for method in methods) else ""


def times(value: float | None) -> str:
    """Ratio in a table's words, a dash for None."""
    return "-" if value is None else f"{value:.2f}x"


def gap_cell(seconds: float | None, lower_bound: float | None, is_cut_off: bool | None = None) -> str:
    """The gap of a plan in a table's words, marked where a limit ended its search; by default any gap says so."""
    gap = None if seconds is None or lower_bound is None else relative_gap(seconds, lower_bound)
    marked = gap is not None and gap > OPTIMALITY_GAP if is_cut_off is None else is_cut_off
    return percent(gap, places=2) + (CUT_OFF if marked else "")


@dataclass(frozen=True, slots=True)
class OurPrices:
    """
    At taut's prices: seconds of the published degrees and of the best plan, None where none fits, and the lower bound.

    ``is_cut_off``: whether a limit ended one of the searches.
    """

    theirs_s: float | None
    best_s: float | None
    lower_bound_s: float | None
    is_cut_off: bool = False

    @classmethod
    def of(cls, theirs: Plan | None, best: Plan | None) -> "OurPrices":
        """Prices of a plan with the published degrees, and of the best one."""
        theirs_s, best_s = (None if each is None else each.step_time_s for each in (theirs, best))
        stopped = any(each is not None and is_cut_off(each) for each in (theirs, best))
        return cls(theirs_s, best_s, None if best is None else best.lower_bound_s, stopped)

    @property
    def distance(self) -> float | None:
        """Distance of the published degrees from the bound."""
        return None if self.theirs_s is None or not self.lower_bound_s else self.theirs_s / self.lower_bound_s - 1

    def cells(self, places: int) -> tuple[str, str, str, str]:
        """Seconds of the published degrees and the bound, with so many places, the gap and the distance in words."""
        theirs, bound = (
            "-" if value is None else f"{value:.{places}f} s" for value in (self.theirs_s, self.lower_bound_s)
        )
        gap = gap_cell(self.best_s, self.lower_bound_s, self.is_cut_off)
        return theirs, bound, gap, percent(self.distance, places=2)


def command_of(only: str) -> str:
    """What prints the rows of a search with ``only`` in their name."""
    return shlex.join(["taut", "reproduce", "searches", "--data", "DIR", "--only", only])


def legend(marked: Iterable[object]) -> list[str]:
    """What the mark of a table says, where one of its rows has it; ``marked``: of each row, empty or not."""
    return [f"{CUT_OFF} a limit ended this search"] if any(marked) else []


def with_bound(problem: PlanningProblem, found: Mapping[str, Outcome], limits: Limits) -> dict[str, Any]:
    """Fields of ``Compared``: what methods and the branch and bound, ``taut``, find under limits, and its bound."""
    go_on()
    begun = perf_counter()
    proven = search(problem, limits)
    wall = perf_counter() - begun
    plans = {**{name: outcome.incumbent for name, outcome in found.items()}, "taut": proven.incumbent}
    stopped = [name for name, outcome in found.items() if outcome.is_cut_off]
    stopped += ["taut"] if is_cut_off(proven) else []
    return {
        "step_s": {name: None if plan is None else plan.seconds for name, plan in plans.items()},
        "wall_s": {**{name: outcome.wall_s for name, outcome in found.items()}, "taut": wall},
        "lower_bound_s": proven.lower_bound,
        "cut_off": tuple(stopped),
    }


def plan_or_none(model: ModelInput, cluster: ClusterInput, **options: Any) -> Plan | None:
    """What ``taut.plan`` finds, or None where nothing fits or nothing is found in the time."""
    go_on()
    try:
        return plan(model, cluster, **options)
    except (InfeasibleError, NothingFoundError):
        go_on()
        return None


def is_cut_off(found: SearchResult | Plan) -> bool:
    """Whether a limit or an interrupt ended a search, or that of a plan."""
    named = found.sections.provenance.get("stopped_by") if isinstance(found, Plan) else found.stopped_by
    return named in (StoppedBy.TIME, StoppedBy.WORK, StoppedBy.INTERRUPT)
