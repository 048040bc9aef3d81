"""A table as text: cells in columns of equal width, two spaces apart."""

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


def percent(share: float | None) -> str:
    """A share in per cent, to two places; a dash for None."""
    return "-" if share is None else f"{100 * share:.2f} %"
