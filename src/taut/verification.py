"""Check a document of any kind: a plan, or a schedule."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taut.data.read import read_json
from taut.data.schedule import FORMAT as SCHEDULE
from taut.formulations.plainer import FASTEST
from taut.solver.certificate.document import MESHES, NAME
from taut.solver.certificate.exact import Exactness
from taut.solver.certificate.verify import Verification, verify_plan
from taut.words import percent

if TYPE_CHECKING:
    from taut.planning.plan import Plan
    from taut.schedules.found import ScheduleVerification

Checked = tuple["Verification | ScheduleVerification", list[str], dict[str, Any]]
"""Outcome of a check, its figures in words, and as plain values."""


def verify(plan: "Plan | Mapping[str, Any] | str | Path") -> "Verification | ScheduleVerification":
    """
    Check a plan or schedule without trusting the search that made it.

    Parameters
    ----------
    plan
        A plan, the plain values of its document, or the path of a plan or schedule that was written.

    Returns
    -------
    Verification or ScheduleVerification
        Whether it ``holds``, its ``faults``, and the ``gap`` that was derived again.

    Raises
    ------
    DataError
        If this is no such document.

    Examples
    --------
    >>> import taut
    >>> plan = taut.plan("gpt2-345m", "dgx-a100", global_batch=32, fix={"pp": 1, "tp": 1, "micro_batch": 4})
    >>> taut.verify(plan).holds
    True
    """
    if isinstance(plan, Mapping):
        return verify_plan(dict(plan))
    return checked(Path(plan))[0] if isinstance(plan, str | Path) else plan.verify()


def checked(path: Path) -> Checked:
    """Check a file by its format."""
    values = read_json(path, "a plan or schedule")
    return _schedule_checked(path) if values.get("format") == SCHEDULE else _plan_checked(values, path)


def _plan_checked(values: dict[str, Any], path: Path) -> Checked:
    """Check of a plan, its figures in words, and further fields of the report."""
    outcome = verify_plan(values, str(path))
    counted = "choices of meshes" if values.get("format") == MESHES else "candidates"
    words = (
        f"holds; step time {outcome.objective:.6g} s, derived lower bound {outcome.lower_bound:.6g} s, "
        f"verified gap {percent(outcome.gap)}, {outcome.candidates} {counted}"
    )
    if values.get(NAME) is not None and f"{NAME}.status" not in outcome.claimed:
        words += ", bound of both spaces"
    if ties := [each for each in values.get("plainer", ()) if each["restriction"] != FASTEST]:
        proven = "exact bounds" if all(each.exact for each in outcome.plainer.values()) else "bounds"
        words += f"; {len(ties)} plainer plan{'s' if len(ties) > 1 else ''}, {proven} included"
    near = len(values.get("nearest", ()))
    words += f"; {near} plan{'s' if near > 1 else ''} of other candidates and " if near else "; "
    words += f"{outcome.sampled} sampled plans, {outcome.feasible_samples} of them feasible, undercut no bound"
    over = outcome.over_nodes
    if over is not None:
        counts = f"1 to {over.counts} nodes" if over.counts > 1 else "1 node"
        words += f"\n{path}: of {counts}: value {over.value:.6g}, derived lower bound {over.lower_bound:.6g}"
        words += f", verified gap {percent(over.gap)}"
        words += f"; some numbers of nodes have other inputs: {', '.join(over.differing)}" if over.differing else ""
    exact = [] if outcome.exactness is None else [outcome.exactness.words]
    exact += [f"plainer plan {name} {each.words}" for name, each in outcome.plainer.items() if not each.exact]
    narrow = [*exact, outcome.space, *(f"its bound is on a narrowed space, {each}" for each in outcome.narrowed)]
    narrow += [f"taut does not search {each}" for each in outcome.unsearched]
    narrow += outcome.renamed
    claimed = [f"certificate.{name} has no proof and was not derived here" for name in outcome.claimed]
    more: dict[str, Any] = {
        "sampled": outcome.sampled,
        "feasible_samples": outcome.feasible_samples,
        "space": outcome.space,
        "narrowed": [*outcome.narrowed],
        "unsearched": [*outcome.unsearched],
        "renamed": [*outcome.renamed],
        "within_rounding": outcome.within_rounding,
        "exact": None if outcome.exactness is None else outcome.exactness.report,
        "exact_plainer": {name: each.report for name, each in outcome.plainer.items()},
    }
    if over is not None:
        more["over_nodes"] = {"value": over.value, "lower_bound": over.lower_bound, "gap": over.gap}
    return outcome, [words, *narrow, *claimed], _report(outcome, more)


def _schedule_checked(path: Path) -> Checked:
    """Check of a schedule, its figures in words, and further fields of the report."""
    from taut.schedules.found import verify_schedule

    outcome = verify_schedule(path)
    words = [
        f"holds; makespan {outcome.makespan:.6g}, derived lower bound {outcome.lower_bound:.6g}, "
        f"verified gap {percent(outcome.gap)}, of every order on the placement {outcome.placement}",
        "exact: the derived lower bound holds in exact arithmetic, in whole units of time",
    ]
    if outcome.unwitnessed:
        others = ", ".join(outcome.unwitnessed)
        words.append(f"its bounds of other placements ({others}) have no witness and were not derived here")
    if outcome.claimed_bound is not None:
        words.append(
            f"its bound {outcome.claimed_bound:.6g} is CP-SAT's claim and was not derived here, "
            f"{outcome.lower_bound:.6g} was"
        )
    more = {"claimed_bound": outcome.claimed_bound, "placement": outcome.placement, "exact": Exactness(whole=1).report}
    return outcome, words, _report(outcome, {**more, "unwitnessed": [*outcome.unwitnessed]})


def _report(outcome: "Verification | ScheduleVerification", more: dict[str, Any]) -> dict[str, Any]:
    return {"holds": outcome.holds, "faults": list(outcome.faults), "verified_gap": outcome.gap, **more}
