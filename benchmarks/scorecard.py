"""
The scorecard of a release: ``python -m benchmarks.scorecard [--check] [--release]``.

It reads the figures of ``docs/results/data``, each printed by the command in its file, and runs nothing itself. For a
figure f with the value v now and u at the last release, f is *worse* if v is further from its aim than u by more than
one unit of its last place: the aim of an error, a gap or a margin is 0, and that of a band that should hold 80 % of the
runs is 80.

``--check`` exits with 1 if a figure is worse and ``docs/results/releases.yaml`` has no reason for it.
``--release`` writes the figures there as those of the version that the package has now.
"""

import argparse
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml

from benchmarks.results import FIGURES, commands

RELEASES = FIGURES.parent / "releases.yaml"
NUMBER = re.compile(r"-?[\d,]*\.?\d+")


@dataclass(frozen=True)
class Scored:
    """
    A table of a data file: the columns that name a row, and each scored column with its words and its aim.

    Rows of one name are one, whose figures are the means over their ``runs``.
    """

    area: str
    path: str
    names: tuple[str, ...]
    columns: tuple[tuple[str, str, float], ...]
    runs: str = ""


TABLES = (
    Scored(
        "dense, step time",
        "accuracy/campaigns.md",
        ("campaign",),
        (("MAPE 10-fold %", "error on unseen runs, %", 0.0), ("in 80 % band %", "in the 80 % band, %", 80.0)),
        "runs",
    ),
    Scored(
        "experts, step time",
        "experts/calibrations.md",
        ("calibration",),
        (("ten folds %", "error on unseen runs, %", 0.0), ("other models %", "error on unseen models, %", 0.0)),
        "runs",
    ),
    Scored(
        "regions left out",
        "promises/regions.md",
        ("left out",),
        (("MAPE %", "error, %", 0.0), ("in the widened band %", "in the widened band, %", 80.0)),
        "runs",
    ),
    Scored(
        "Blackwell, MLPerf",
        "accuracy/blackwell-mlperf.md",
        ("layers", "GPU", "precision"),
        (("MAPE %", "error, %", 0.0),),
        "runs",
    ),
    Scored(
        "memory",
        "memory/outcomes.md",
        ("runs",),
        (("mean error %", "error, %", 0.0), ("margin GiB", "margin, GiB", 0.0)),
        "ran",
    ),
    Scored(
        "gap of a search",
        "placement/searches.md",
        ("command `taut plan`", "Gb/s of a pair inside a rack, between racks"),
        (("gap", "gap, %", 0.0),),
        "GPUs",
    ),
    Scored(
        "distance of a method",
        "methods/distances.md",
        ("problem",),
        (("branch-and-bound", "of branch and bound, %", 0.0), ("cp-sat", "of cp-sat, %", 0.0)),
    ),
)


@dataclass(frozen=True)
class Figure:
    """A figure of a named row, in the words of its column, with its aim and the runs behind it."""

    area: str
    name: str
    words: str
    value: float
    places: int
    aim: float
    runs: int

    @property
    def key(self) -> str:
        """The name of the figure among all."""
        return f"{self.area}: {self.name}: {self.words}"

    def is_worse(self, before: float) -> bool:
        """Whether it is further from its aim than before, by more than a unit of its last place."""
        return abs(self.value - self.aim) > abs(before - self.aim) + 10.0**-self.places * (1 + 1e-9)


def rows_of(path: Path) -> list[dict[str, str]]:
    """Rows of the first table of a data file, cells by column."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    return [dict(zip(head, row, strict=True)) for row in rows]


def figures() -> Iterator[Figure]:
    """Every scored figure; cells without a number are no figures."""
    for table in TABLES:
        rows: dict[str, list[dict[str, str]]] = {}
        for row in rows_of(FIGURES / table.path):
            rows.setdefault(", ".join(row[name] for name in table.names), []).append(row)
        for name, group in rows.items():
            for column, words, aim in table.columns:
                cells = [(row[column].removesuffix(" %"), row.get(table.runs, "")) for row in group]
                given = [(cell, _count(runs)) for cell, runs in cells if NUMBER.fullmatch(cell)]
                if given:
                    places = max(len(cell.partition(".")[2]) for cell, _ in given)
                    runs, weight = sum(count for _, count in given), sum(count or 1 for _, count in given)
                    mean = sum(float(cell.replace(",", "")) * (count or 1) for cell, count in given) / weight
                    yield Figure(table.area, name, words, round(mean, places), places, aim, runs)


def _count(text: str) -> int:
    """A number of runs as tables print it, 0 where there is none."""
    digits = text.replace(",", "")
    return int(digits) if digits.isdecimal() else 0


def releases() -> dict[str, Any]:
    """Figures by release, ``figures``, the last release last, and ``reasons`` by figure for what got worse since."""
    found = yaml.safe_load(RELEASES.read_text(encoding="utf-8")) if RELEASES.exists() else None
    return found or {"figures": {}, "reasons": {}}


def scorecard() -> str:
    """The scorecard as a page of the site."""
    kept = releases()
    last: dict[str, float] = next(reversed(kept["figures"].values()), {})
    name = next(reversed(kept["figures"]), "none")
    return "\n".join([HEAD.format(release=name), *page(list(figures()), last, kept["reasons"])])


HEAD = """# Scorecard

Accuracy, memory, gaps and distances on one page, from the figures of the result pages. A figure in brackets is that of
the last release, {release}, where it differs. Errors are mean absolute ones on runs that the fit has not seen.
`python -m benchmarks.scorecard` prints this page. With `--check` it fails if a figure is worse than at the last
release without a reason.

"""


def page(found: list[Figure], last: dict[str, float], reasons: dict[str, str]) -> Iterator[str]:
    """The scorecard, a table for each area and a row for each name, with the last release's figures in brackets."""
    for table in TABLES:
        own = [figure for figure in found if figure.area == table.area]
        heads = [words for _, words, _ in table.columns]
        yield f"### {table.area.capitalize()}\n\n| {table.area} | {table.runs or '-'} | {' | '.join(heads)} |"
        yield f"| --- | --: |{' --: |' * len(heads)}"
        for name in dict.fromkeys(figure.name for figure in own):
            row = {figure.words: figure for figure in own if figure.name == name}
            cells = [_cell(row[words], last, reasons) if words in row else "-" for words in heads]
            yield f"| {name} | {next(iter(row.values())).runs or '-'} | {' | '.join(cells)} |"
        yield f"\nFrom `{table.path}`, which `{commands(FIGURES / table.path)[0]}` prints.\n"


def _cell(figure: Figure, last: dict[str, float], reasons: dict[str, str]) -> str:
    before, shown = last.get(figure.key), f"{figure.value:.{figure.places}f}"
    if before is None or before == figure.value:
        return shown
    said = f": {reasons.get(figure.key, 'worse')}" if figure.is_worse(before) else ""
    return f"{shown} ({before:.{figure.places}f}{said})"


def main() -> int:
    """Print the scorecard, check it or keep it; the exit code."""
    parser = argparse.ArgumentParser(description="The scorecard of a release.")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a figure is worse without a reason")
    parser.add_argument("--release", action="store_true", help="keep the figures as those of this version")
    given, found, kept = parser.parse_args(), list(figures()), releases()
    last: dict[str, float] = next(reversed(kept["figures"].values()), {})
    if given.release:
        kept["figures"][version("taut")] = {each.key: each.value for each in found}
        kept["reasons"] = {}
        RELEASES.write_text(yaml.safe_dump(kept, sort_keys=False, allow_unicode=True, width=200), encoding="utf-8")
        return 0
    if given.check:
        worse = [each for each in found if each.key in last and each.is_worse(last[each.key])]
        unsaid = [each for each in worse if each.key not in kept["reasons"]]
        for each in unsaid:
            print(f"{each.key}: {each.value:g}, was {last[each.key]:g}, no reason in {RELEASES.name}")
        return 1 if unsaid else 0
    print(scorecard())
    return 0


if __name__ == "__main__":
    sys.exit(main())
