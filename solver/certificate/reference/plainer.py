r"""
Restrictions that make a plan plainer to run, or like measured runs, as the reference evaluator tells them.

A restriction is a set of candidates and of divisions of their layers:

(1) ``even-stages``: all chunks have the same number of layers, or would have with embedding, loss or both counted
    (``taut.solver.certificate.reference.divisions`` (1) and (2)), where the space has the form or any;
(2) ``no-context-ranks``: one context rank;
(3) ``at-most-N-chunks``: at most N chunks a device;
(4) ``no-interleaving``: one chunk a device;
(5) ``seen``: nothing of the candidate beyond the runs of the calibration (``taut.solver.certificate.reference.runs``),
    and of the recompute of stages the kinds that runs had.

Its candidates are those of the space of its divisions. All plans of each are plans of one candidate of the whole space,
at no higher price: itself, or the one that divides embedding and head as parts as well, (6).
"""

from collections.abc import Container, Iterable
from dataclasses import replace

from taut.data.calibration import Calibration
from taut.data.seen import Seen
from taut.errors import DataError
from taut.solver.certificate.reference.divisions import ANY
from taut.solver.certificate.reference.runs import is_like_runs
from taut.solver.certificate.reference.space import Case, Choice


def divisions_of(case: Case, name: str) -> list[str]:
    """Forms of division that a restriction leaves."""
    forms: list[str] = case.space.get("divisions", [ANY])
    if name != "even-stages":
        return forms
    return ["even", "with-ends"] if {"with-ends", ANY} & set(forms) else ["even"]


def recompute_of(case: Case, name: str) -> list[str]:
    """Kinds of recompute that a restriction leaves; where stages share one the candidate says which."""
    kinds: list[str] = case.space["recompute"]
    if name != "seen" or not case.space.get("recompute_by_stage", True):
        return kinds
    return [kind for kind in kinds if kind in _seen(case.calibration).recompute]


def _seen(calibration: Calibration | None) -> Seen:
    """What the runs of a calibration had."""
    if calibration is None or calibration.seen is None:
        raise DataError("no calibration says what its runs have been")
    return calibration.seen


def most_chunks(name: str) -> int | None:
    """Chunks that a device may have, (3) and (4); None where the restriction is on something else."""
    if name == "no-interleaving":
        return 1
    number = name.removeprefix("at-most-").removesuffix("-chunks")
    named = name == f"at-most-{number}-chunks" and number.isascii() and number.isdigit()
    return int(number) if named and int(number) else None


def is_known(name: str) -> bool:
    """Whether there is a restriction with a name."""
    return name in ("even-stages", "no-context-ranks", "seen") or most_chunks(name) is not None


def candidates_of(every: Iterable[Choice], name: str, calibration: Calibration | None = None) -> list[Choice]:
    """The candidates of a restriction, of those of a space that has its divisions already."""
    most = most_chunks(name)
    if name == "seen":
        seen = _seen(calibration)
        return [choice for choice in every if is_like_runs(choice, seen)]
    return [
        choice
        for choice in every
        if (name != "no-context-ranks" or choice.cp == 1) and (most is None or choice.vpp <= most)
    ]


def whole(choice: Choice, every: Container[Choice]) -> Choice:
    """The candidate of the whole space that has all plans of a candidate, (6)."""
    return choice if choice in every else replace(choice, empty_ends=True)
