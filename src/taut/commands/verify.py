"""``taut verify``: the command line that checks what taut has written, a plan or a schedule."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from taut.commands.options import JsonFlag
from taut.errors import CertificateError

if TYPE_CHECKING:
    from taut.schedules.found import ScheduleVerification
    from taut.solver.certificate.verify import Verification

    Outcome = Verification | ScheduleVerification

SCHEDULE = "taut-schedule/1"
"""Format of a schedule."""


def verify_command(
    path: Annotated[Path, typer.Argument(help="A plan or schedule written by taut.")],
    as_json: JsonFlag = False,
) -> None:
    """Check a certificate without trusting the search. Exit code 0 if it holds, 1 if not."""
    from taut.data.read import read_json

    values = read_json(path, "a plan or schedule")
    outcome, words, more = _checked(values, path)
    if as_json:
        report = {"holds": outcome.holds, "faults": list(outcome.faults), "verified_gap": outcome.gap}
        typer.echo(json.dumps({**report, **more}))
    elif outcome.holds:
        typer.echo("\n".join(f"{path}: {line}" for line in words))
    if not outcome.holds:
        raise CertificateError(f"{path}: does not hold: " + "; ".join(outcome.faults))


def _checked(values: dict[str, Any], path: Path) -> "tuple[Outcome, list[str], dict[str, Any]]":
    """Check by the format: its outcome, figures in words, and further fields of the report."""
    return _schedule(path) if values.get("format") == SCHEDULE else _plan(values, path)


def _plan(values: dict[str, Any], path: Path) -> "tuple[Verification, list[str], dict[str, Any]]":
    """Check of a plan, its figures in words, and further fields of the report."""
    from taut.solver.certificate.document import MESHES, NAME
    from taut.solver.certificate.verify import verify_plan
    from taut.words import percent

    outcome = verify_plan(values, str(path))
    counted = "choices of meshes" if values.get("format") == MESHES else "candidates"
    words = (
        f"holds; step time {outcome.objective:.6g} s, derived lower bound {outcome.lower_bound:.6g} s, "
        f"verified gap {percent(outcome.gap)}, {outcome.candidates} {counted}"
    )
    if values.get(NAME) is not None and f"{NAME}.status" not in outcome.claimed:
        words += ", bound of both spaces"
    if ties := values.get("plainer"):
        words += f"; {len(ties)} plainer plan{'s' if len(ties) > 1 else ''}, bounds included"
    words += f"; {outcome.sampled} sampled plans, {outcome.feasible_samples} of them feasible, undercut no bound"
    over = outcome.over_nodes
    if over is not None:
        words += (
            f"\n{path}: of 1 to {over.counts} nodes: value {over.value:.6g}, derived lower bound {over.lower_bound:.6g}"
        )
        words += f", verified gap {percent(over.gap)}"
        words += f"; some numbers of nodes have other inputs: {', '.join(over.differing)}" if over.differing else ""
    narrow = [outcome.space, *(f"its bound is on a narrowed space, {each}" for each in outcome.narrowed)]
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
    }
    if over is not None:
        more["over_nodes"] = {"value": over.value, "lower_bound": over.lower_bound, "gap": over.gap}
    return outcome, [words, *narrow, *claimed], more


def _schedule(path: Path) -> "tuple[ScheduleVerification, list[str], dict[str, Any]]":
    """Check of a schedule, its figures in words, and further fields of the report."""
    from taut.schedules.found import verify_schedule
    from taut.words import percent

    outcome = verify_schedule(path)
    words = [
        f"holds; makespan {outcome.makespan:.6g}, derived lower bound {outcome.lower_bound:.6g}, "
        f"verified gap {percent(outcome.gap)}, of every order on the placement {outcome.placement}"
    ]
    if outcome.unwitnessed:
        others = ", ".join(outcome.unwitnessed)
        words.append(f"its bounds of other placements ({others}) have no witness and were not derived here")
    if outcome.claimed_bound is not None:
        words.append(
            f"its bound {outcome.claimed_bound:.6g} is CP-SAT's claim and was not derived here, "
            f"{outcome.lower_bound:.6g} was"
        )
    more = {"claimed_bound": outcome.claimed_bound, "placement": outcome.placement}
    return outcome, words, {**more, "unwitnessed": [*outcome.unwitnessed]}
