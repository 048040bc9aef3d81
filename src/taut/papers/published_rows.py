r"""
The rows of the five papers: published figures, ours when the pages were last renewed, and why they differ.

A row is a table, a figure or a procedure of the paper. With the published figure p and ours o

(1) it is reproduced if :math:`|o / p - 1| \le 0.05`, or if it is a procedure, which has no figure;
(2) it differs otherwise, and says why;
(3) it is not published enough where p has no counterpart: its reason names what the paper leaves out;
(4) it is missing where nothing here computes it yet.

Ours is the figure of the command that runs where that command computes it, and else the figure that the page of results
had when it was last renewed.
"""

import csv
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib.resources import files
from typing import Any

from taut.words import text_table

TOLERANCE = 0.05
"""Of (1)."""


class State(StrEnum):
    """What (1) to (4) say of a row."""

    REPRODUCED = "reproduced"
    DIFFERS = "differs"
    UNPUBLISHED = "not published enough"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class PaperRow:
    """
    A row: its name and what it shows, both figures in words, why they differ, and where ours is printed and explained.

    ``ours`` is empty where the paper lacks what a figure of ours would need; ``command`` follows ``taut``; ``page`` is
    a page of ``docs`` with an anchor.
    """

    name: str
    what: str
    published: str
    ours: str
    command: str
    page: str
    reason: str = ""

    @property
    def key(self) -> str:
        """Name and subject, which a paper has once."""
        return f"{self.name}: {self.what}"

    @property
    def state(self) -> State:
        """The state by (1) to (4)."""
        if not self.ours:
            return State.UNPUBLISHED if self.reason else State.MISSING
        published, ours = figure(self.published), figure(self.ours)
        if published is None or ours is None:
            return State.UNPUBLISHED if self.reason else State.REPRODUCED
        near = abs(ours - published) <= TOLERANCE * abs(published)
        return State.REPRODUCED if near else State.DIFFERS


def figure(words: str) -> float | None:
    """The first number of a cell, None where it has none."""
    found = re.search(r"-?\d[\d,]*(\.\d+)?", words)
    return None if found is None else float(found.group().replace(",", ""))


@dataclass(frozen=True, slots=True)
class PaperRows:
    """All rows of a paper, those of ``live`` with figures of the command that runs."""

    rows: tuple[PaperRow, ...]
    live: frozenset[str] = frozenset()

    def with_figures(self, figures: Mapping[str, str]) -> "PaperRows":
        """The rows with figures of the command that runs, by key of the row; a dash for one that was not found."""
        known = {key: words for key, words in figures.items() if figure(words) is not None}
        rows = (PaperRow(**{**asdict(row), "ours": known[row.key]}) if row.key in known else row for row in self.rows)
        return PaperRows(tuple(rows), frozenset(known))

    def as_dicts(self) -> list[dict[str, Any]]:
        """Plain values."""
        return [{**asdict(row), "state": row.state.value, "this_run": row.key in self.live} for row in self.rows]

    def __str__(self) -> str:
        """A count of the states, one line for each row, and the reasons of those that differ or lack a figure."""
        counts = {state: sum(row.state is state for row in self.rows) for state in State}
        head = ", ".join(f"{count} {state.value}" for state, count in counts.items() if count)
        reasons = list(dict.fromkeys(map(_why, self.rows)))
        reasons = [why for why in reasons if why]
        lines: list[tuple[str, ...]] = [("row of the paper", "", "published", "ours", "", "printed by")]
        lines += [self._cells(row, reasons) for row in self.rows]
        notes = [f"({number}) {why}" for number, why in enumerate(reasons, start=1)]
        return "\n".join([f"{len(self.rows)} rows: {head}", text_table(lines), *notes])

    def _cells(self, row: PaperRow, reasons: list[str]) -> tuple[str, ...]:
        printed = "this run" if row.key in self.live else f"taut {row.command}"
        note = f" ({reasons.index(_why(row)) + 1})" if _why(row) else ""
        return row.name, row.what, row.published, row.ours or "-", row.state.value + note, printed


def _why(row: PaperRow) -> str:
    """Why a row has no figure or another one, and the page that says more; nothing where it is reproduced."""
    return f"{row.reason}, docs/{row.page}" if row.reason and row.state is not State.REPRODUCED else ""


def _papers() -> dict[str, PaperRows]:
    """The table of all papers, ``published_rows.csv``, by paper."""
    found: dict[str, list[PaperRow]] = {}
    text = (files("taut.papers") / "published_rows.csv").read_text(encoding="utf-8")
    for line in csv.DictReader(text.splitlines()):
        found.setdefault(line.pop("paper"), []).append(PaperRow(**line))
    return {paper: PaperRows(tuple(rows)) for paper, rows in found.items()}


PAPERS = _papers()
