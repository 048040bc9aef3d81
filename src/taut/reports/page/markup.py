"""
Text, attributes, values for scripts, and SVG shapes, none of which lets what it is given become markup.

(1) Text and attributes have ``& < > " '`` as entities.
(2) JSON between script tags has ``< > &`` and the two line separators of Unicode as escapes by number, which a JSON
    parser reads back and an HTML parser does not see.
(3) A drawing states its width and height in a ``viewBox``, so that it shrinks with the window and never grows.
"""

import json
from collections.abc import Iterable
from html import escape

_HIDDEN = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


def text(value: object) -> str:
    """A value as text or attribute, (1)."""
    return escape(str(value), quote=True)


def script_json(values: object) -> str:
    """Plain values as JSON that may stand between script tags, (2)."""
    return json.dumps(values, separators=(",", ":")).translate(_HIDDEN)


def table(heads: Iterable[str], rows: Iterable[Iterable[object]], numbers_from: int = 1) -> str:
    """A table; columns from ``numbers_from`` on are aligned to the right."""

    def cells(tag: str, values: Iterable[object]) -> str:
        marks = ((value, ' class="n"' if k >= numbers_from else "") for k, value in enumerate(values))
        return "".join(f"<{tag}{mark}>{text(value)}</{tag}>" for value, mark in marks)

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{cells("th", heads)}</tr></thead><tbody>{body}</tbody></table></div>'


def drawing(width: float, height: float, parts: Iterable[str], label: str) -> str:
    """An SVG of its own, (3); ``label`` is what a screen reader says of it."""
    size = f'viewBox="0 0 {width:.6g} {height:.6g}" style="max-width:{width:.6g}px"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{text(label)}" {size}>{"".join(parts)}</svg>'
    )


def box(x: float, y: float, width: float, height: float, fill: str, hint: str = "", more: str = "") -> str:
    """A rectangle, with what is said when one points at it."""
    corner = f'x="{x:.6g}" y="{y:.6g}" width="{max(width, 0.0):.6g}" height="{max(height, 0.0):.6g}"'
    title = f"<title>{text(hint)}</title>" if hint else ""
    return f'<rect {corner} fill="{fill}" {more}>{title}</rect>'


def line(x1: float, y1: float, x2: float, y2: float, more: str = 'class="axis"') -> str:
    """A straight line."""
    return f'<line x1="{x1:.6g}" y1="{y1:.6g}" x2="{x2:.6g}" y2="{y2:.6g}" {more}/>'


def label(x: float, y: float, words: object, more: str = "") -> str:
    """Words at a point."""
    return f'<text x="{x:.6g}" y="{y:.6g}" {more}>{text(words)}</text>'


def boxes(corners: Iterable[tuple[float, float, float, float]], fill: str, more: str = "") -> str:
    """Many rectangles (x, y, width, height) of one colour as one path."""
    moves = "".join(f"M{x:.6g} {y:.6g}h{w:.6g}v{h:.6g}h{-w:.6g}z" for x, y, w, h in corners)
    return f'<path d="{moves}" fill="{fill}" {more}/>' if moves else ""


def legend(entries: Iterable[tuple[str, str]]) -> str:
    """Names beside squares of their colour."""
    spans = (f'<span><i style="background:{colour}"></i>{text(name)}</span>' for name, colour in entries)
    return f'<p class="legend">{"".join(spans)}</p>'
