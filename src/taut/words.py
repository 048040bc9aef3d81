"""The words of results: tables of cells in columns, reports of texts and tables, and a share in per cent."""

import csv
import re
from collections.abc import Iterable, Sequence
from io import StringIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import JustifyMethod
    from rich.table import Table


def text_table(lines: Sequence[Sequence[str]]) -> str:
    """Align rows of cells, the heads first, by column, without spaces at the ends of lines."""
    widths = [max(len(line[k]) for line in lines) for k in range(len(lines[0]))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines)


def grid(*heads: str, title: str | None = None, whole: Sequence[str] = ()) -> "Table":
    """A table without lines; a head with ``>`` before it aligns its column right, cells of ``whole`` stay unwrapped."""
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for head in heads:
        justify: JustifyMethod = "right" if head.startswith(">") else "left"
        table.add_column(head.removeprefix(">"), justify=justify, overflow="ellipsis", no_wrap=head in whole)
    return table


def broken(text: str, width: int) -> str:
    r"""
    A list in lines of at most so many characters, broken behind its commas and plus signs.

    Examples
    --------
    >>> broken("0-7,24-31,40-47", 11)
    '0-7,24-31,\n40-47'
    """
    lines = [""]
    for item in re.findall("[^,+]+[,+]?", text):
        if lines[-1] and len(lines[-1] + item) > width:
            lines.append("")
        lines[-1] += item
    return "\n".join(lines)


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    """Rows of cells, the heads first, as the text of a CSV file."""
    out = StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()


def report(*parts: "str | Table", width: int = 110) -> str:
    """Texts and tables one below the other in so many columns, without spaces at the ends of lines."""
    from rich.console import Console

    output = StringIO()
    console = Console(file=output, width=width, color_system=None, force_jupyter=False)
    for part in parts:
        console.print(part, highlight=False, markup=False)
    return "\n".join(line.rstrip() for line in output.getvalue().splitlines())


def percent(share: float | None, *, places: int | None = None) -> str:
    """
    A share in per cent.

    A sentence has three figures, 0 where the share is rounding alone, and ``unknown`` for None. A column has so many
    ``places`` behind the point, and a dash for None.

    Examples
    --------
    >>> percent(0.01234), percent(0.01234, places=2), percent(None), percent(None, places=2)
    ('1.23 %', '1.23 %', 'unknown', '-')
    """
    from taut.solver.result import SOLVED

    if places is not None:
        return "-" if share is None else f"{100 * share:.{places}f} %"
    return "unknown" if share is None else f"{100 * (share if share > SOLVED else 0.0):.3g} %"
