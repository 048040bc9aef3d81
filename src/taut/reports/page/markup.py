"""
The frame of a page, its text, values for scripts, and SVG shapes: nothing that is given to them becomes markup.

(1) Text and attributes have ``& < > " '`` as entities.
(2) JSON between script tags has ``< > &`` and the two line separators of Unicode as escapes by number, which a JSON
    parser reads back and an HTML parser does not see.
(3) A drawing states its width and height in a ``viewBox``, so that it shrinks with the window and never grows. On a
    telephone one with words keeps its width, and is moved within the window, as its words would shrink too.

A page is a document that opens without a network and runs nothing but its own small script. Its policy
(``Content-Security-Policy``) lets a browser load nothing at all: styles and the script stand in the page, and every
figure is SVG in it. What a plan's file says comes in as text.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.resources import files
from typing import Any

from taut.data.calibration import Calibration
from taut.errors import DataError
from taut.planning.plan import Plan
from taut.planning.tables import device_ranges
from taut.quoting import html_text as text
from taut.words import percent

_HIDDEN = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


def script_json(values: object) -> str:
    """Plain values as JSON that may stand between script tags, (2)."""
    return json.dumps(values, separators=(",", ":")).translate(_HIDDEN)


def table(heads: Iterable[str], rows: Iterable[Iterable[object]], numbers_from: int = 1) -> str:
    """A table; columns from ``numbers_from`` on are aligned to the right."""

    def cells(tag: str, values: Iterable[object]) -> str:
        marks = ((value, ' class="n"' if k >= numbers_from else "") for k, value in enumerate(values))
        return "".join(f"<{tag}{mark}>{text(value)}</{tag}>" for value, mark in marks)

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return wide(f"<table><thead><tr>{cells('th', heads)}</tr></thead><tbody>{body}</tbody></table>")


def wide(content: str) -> str:
    """Content that may be wider than the window, and is moved within it."""
    return f'<div class="wide">{content}</div>'


def drawing(width: float, height: float, parts: Iterable[str], label: str) -> str:
    """An SVG of its own, (3); ``label`` is what a screen reader says of it."""
    content = "".join(parts)
    size = f'viewBox="0 0 {width:.6g} {height:.6g}" style="--width:{width:.6g}px"'
    shown = f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{text(label)}" {size}>{content}</svg>'
    return wide(shown) if "<text" in content else shown


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


POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


@contextmanager
def complete(source: str) -> Iterator[None]:
    """Drawing of a plan's file, which is refused if it lacks or contradicts a figure."""
    try:
        yield
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise DataError(
            f"{source}: lacks or contradicts a figure ({error!r}), expected a plan written by taut"
        ) from None


def document(title: str, body: str, script: str, policy: str = POLICY) -> str:
    """A page of a title and a body, with its style, a script of this folder by name or none, and what it may load."""
    folder = files("taut.reports.page")
    style, code = ((folder / name).read_text(encoding="utf-8") if name else "" for name in ("page.css", script))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{text(title)}</title><style>{style}</style></head>\n"
        f"<body>{body}<script>{code}</script></body></html>\n"
    )


def section(title: str, content: str) -> str:
    """A part of the page under its title."""
    return f"<section><h2>{title}</h2>{content}</section>\n"


def stages_table(stages: Sequence[Mapping[str, Any]], devices: Sequence[Sequence[int]]) -> str:
    """The stages of a plan under their title: layers, recompute, kind of device, and all devices of each."""
    rows = [
        (
            each["stage"],
            f"{each['layers']} ({each['num_layers']})",
            each["recompute"],
            each["device"],
            device_ranges(own),
        )
        for each, own in zip(stages, devices, strict=True)
    ]
    heads = "stage", "layers", "recompute", "kind of device", "devices"
    return "<h3>Stages</h3>" + table(heads, rows, numbers_from=9)


def head(plan: Plan, count: int, words: str, more: Mapping[str, str]) -> str:
    """A plan on so many devices in a sentence with the words of its strategy, and its first figures, some more."""
    predicted = plan.sections.predicted
    proven = (
        "nothing is proven of how good it is"
        if plan.gap is None
        else f"no plan of its space takes more than {percent(plan.gap)} less"
        if plan.status != "optimal"
        else "no plan of its space is faster"
    )
    sentence = (
        f"Train {plan.model} on the {count} devices of {plan.cluster} as {words}: "
        f"{plan.step_time_s:.4g} s a step, and {proven}, at the prices below."
    )
    fullest = max(
        used / there if there else 0.0
        for used, there in zip(predicted.memory_bytes, predicted.capacity_bytes, strict=True)
    )
    cards = {
        "seconds a step": f"{plan.step_time_s:.4g}",
        "lower bound (s)": "unknown" if plan.lower_bound_s is None else f"{plan.lower_bound_s:.4g}",
        "gap": percent(plan.gap),
        "tokens a second": "unknown" if predicted.tokens_per_s is None else f"{predicted.tokens_per_s:,.0f}",
        **more,
        "memory of the fullest device": f"{fullest:.0%}",
    }
    shown = "".join(f"<div><b>{text(value)}</b><span>{text(name)}</span></div>" for name, value in cards.items())
    title = f"<h1>{text(plan.model)} on {text(plan.cluster)}</h1>"
    return f'{title}<p class="lead">{text(sentence)}</p><div class="cards">{shown}</div>\n'


def assumptions(plan: Plan, lines: Sequence[str]) -> str:
    """Lines of a plan's proof and prices, and the calibration's errors."""
    listed = "".join(f"<li>{text(' '.join(line.split()))}</li>" for line in lines if line.strip())
    stated = f"<ul><li>{text(plan.sections.certificate.priced_by)}</li>{listed}</ul>"
    given = plan.sections.inputs.get("calibration")
    if given is None:
        return f"{stated}<p>No calibration was used: how far a run is from these prices is not known.</p>"
    found = Calibration.parse(given.spec, "inputs.calibration")
    off = "" if found.mape is None else f", {found.mape:.2%} off on average on unseen ones"
    words = f"Calibration {found.name}: {found.samples} runs{off}. Quantiles of prediction / measurement - 1:"
    if found.covariance:
        words = f"Calibration {found.name}: {found.samples} runs. Deviations of the logarithms of its coefficients:"
        shown = table([*found.spread], [[f"{100 * one:.0f} %" for one in found.spread.values()]], numbers_from=0)
        return f"{stated}<h3>Calibration error</h3><p>{text(words)}</p>{shown}"
    if not found.residuals:
        words = f"Calibration {found.name}: {found.samples} runs{off}; the spread of its errors is not known."
    heads = [f"{100 * float(level):g} %" for level in found.residuals]
    errors = [f"{error:+.2%}" for error in found.residuals.values()]
    shown = table(heads, [errors], numbers_from=0) if errors else ""
    return f"{stated}<h3>Calibration error</h3><p>{text(words)}</p>{shown}"
