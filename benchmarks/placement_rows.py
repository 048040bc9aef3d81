"""
Rows of the placement benchmark: one placement each, kept in a CSV from which a run resumes, and their medians.

Excess of a peer over the plan: peer / plan - 1, negative where the peer is faster. A peer that was not run is nan.
"""

import csv
import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import get_type_hints

from taut.errors import DataError


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What the medians are taken for; limits in seconds, ``times_own`` in multiples of the search's wall time."""

    nodes: int
    stages: int
    tp: int
    kind: str
    model: str
    time_limit_s: float
    pipette_limit_s: float
    times_own: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row(Setting):
    """
    One seed: seconds of a step as the search, its bound and every peer have it, wall seconds, and gaps as shares.

    ``annealing`` is Pipette's within ``pipette_limit_s``, ``long_annealing`` within ``times_own`` of our own time;
    ``restarted`` is the same with restarts.
    """

    seed: int
    wall_s: float
    step_s: float
    bound_s: float
    gap: float
    communication_gap: float
    verify_s: float
    identity_s: float
    scipy_s: float
    scipy_wall_s: float
    annealing_s: float
    restarted_s: float
    long_annealing_s: float
    long_restarted_s: float

    @property
    def setting(self) -> Setting:
        """What is not the row's own."""
        return Setting(**{field.name: getattr(self, field.name) for field in fields(Setting)})

    def excess(self, *peers: float) -> float:
        """How much slower the best of some peers' steps is, as a share."""
        return min(peers) / self.step_s - 1.0


TYPES = get_type_hints(Row)
COLUMNS = [field.name for field in fields(Row)]


def read_rows(path: Path) -> list[Row]:
    """
    Rows kept so far; none where there is no file.

    Raises
    ------
    DataError
        If the file is not such a table.
    """
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        header, *lines = list(csv.reader(file)) or [COLUMNS]
    if header != COLUMNS:
        raise DataError(f"{path}: the header is {','.join(header)}, expected {','.join(COLUMNS)}")
    return [_parsed(path, number, line) for number, line in enumerate(lines, start=2)]


def _parsed(path: Path, number: int, line: list[str]) -> Row:
    if len(line) != len(COLUMNS):
        raise DataError(f"{path} line {number}: has {len(line)} values, expected {len(COLUMNS)}")
    try:
        return Row(**{name: TYPES[name](text) for name, text in zip(COLUMNS, line, strict=True)})
    except ValueError as error:
        raise DataError(f"{path} line {number}: {error}") from None


def append_row(path: Path, row: Row) -> None:
    """Keep one more row, at once."""
    new = not path.exists() or path.stat().st_size == 0
    with path.open("a", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([COLUMNS, list(asdict(row).values())] if new else [list(asdict(row).values())])


def by_setting(rows: Iterable[Row]) -> dict[Setting, list[Row]]:
    """Rows of each setting, in their order."""
    groups: dict[Setting, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.setting, []).append(row)
    return groups


def median(values: Iterable[float]) -> float:
    """Median of what is a number; nan where nothing is."""
    numbers = [value for value in values if not math.isnan(value)]
    return statistics.median(numbers) if numbers else math.nan


Measure = Callable[[Row], float]
PEERS: dict[str, Measure] = {
    "identity order": lambda row: row.excess(row.identity_s),
    "scipy": lambda row: row.excess(row.scipy_s),
    "Pipette": lambda row: row.excess(row.annealing_s, row.restarted_s),
    "Pipette, long": lambda row: row.excess(row.long_annealing_s, row.long_restarted_s),
}
HEADER = ["nodes", "pp", "tp", "cluster", "model", "seeds", "wall s", "gap %", "worst", "comm. gap %", "worst"]
HEADER += ["identity %", "scipy %", "Pipette %", "Pipette long %", "least", "scipy s", "verify ms"]


def markdown(rows: Sequence[Row]) -> Iterator[str]:
    """The table of medians, gaps with the worst seed beside, long annealing with the least excess beside."""
    yield f"| {' | '.join(HEADER)} |"
    yield "|" + "---|" * len(HEADER)
    for setting, group in by_setting(rows).items():
        yield f"| {' | '.join(_cells(setting, group))} |"


def _cells(setting: Setting, group: list[Row]) -> list[str]:
    """One line of the table."""
    gaps, parts = [row.gap for row in group], [row.communication_gap for row in group]
    excess = [[peer(row) for row in group] for peer in PEERS.values()]
    percent = [median(gaps), max(gaps), median(parts), max(parts), *map(median, excess), min(excess[-1])]
    times = [_text(median(row.scipy_wall_s for row in group), 2), _text(1e3 * median(r.verify_s for r in group), 0)]
    left = [str(value) for value in (setting.nodes, setting.stages, setting.tp, setting.kind, setting.model)]
    wall = _text(median(row.wall_s for row in group), 2)
    return [*left, str(len(group)), wall, *(_text(100 * value, 2) for value in percent), *times]


def _text(value: float, digits: int) -> str:
    return "-" if math.isnan(value) else f"{value + 0.0:.{digits}f}"


def verdict(rows: Sequence[Row]) -> Iterator[str]:
    """One sentence a peer: how often its step was faster than the plan's, and by how much at most."""
    for name, peer in PEERS.items():
        excess = [value for value in map(peer, rows) if not math.isnan(value)]
        faster = [value for value in excess if value < -1e-9]
        if excess:
            most = f", by at most {-100 * min(faster):.3f} %" if faster else ""
            yield f"{name}: faster than the plan in {len(faster)} of {len(excess)} runs{most}."
