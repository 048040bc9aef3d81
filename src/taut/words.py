"""The words of results: a table of cells in columns, and a share in per cent."""

from collections.abc import Sequence


def text_table(lines: Sequence[Sequence[str]]) -> str:
    """
    Align cells by column.

    Parameters
    ----------
    lines
        Rows of cells, the heads first; all as long as the first.

    Returns
    -------
    str
        One line for each row, without spaces at its end.

    Examples
    --------
    >>> print(text_table([("method", "s"), ("amp", "0.52")]))
    method  s
    amp     0.52
    """
    widths = [max(len(line[k]) for line in lines) for k in range(len(lines[0]))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines)


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
