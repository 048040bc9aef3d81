r"""
The placement over the links: bandwidth from every sender (row) to every receiver (column), in the order of the stages.

Sites are those of ``taut.plots.placement``, nodes where the cluster is described by node. Of more than ``MOST``
sites, those next to each other are drawn as one, with the slowest link between them, so

(1) :math:`r_{AB} = \min_{a \in A, b \in B} r_{ab}`, in eight shades between the extremes outside a node.

Frames are neighbouring sites with the same stages; discs are hops to the next stage, small squares stage 0's
all-reduce.
"""

from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.planning.tables import device_ranges
from taut.plots.placement import INSIDE, Grid, grid_of
from taut.plots.plan import HOP, RING, SHADES
from taut.reports.page.markup import box, boxes, drawing, label, legend

if TYPE_CHECKING:
    from taut.planning.plan import Plan

MOST = 96
"""Rows that are told apart on a screen, at some six pixels each."""
SIDE, BAND, EDGE = 600.0, 18.0, 60.0
GREYS = tuple(f"#{level:02x}{level:02x}{level:02x}" for level in range(70, 246, 25))


def placement_figure(plan: "Plan") -> str:
    """Matrix of the links with the stages' frames, the hops and the all-reduce."""
    grid = grid_of(plan)
    count = len(grid.site)
    block = np.arange(count) // -(-count // MOST)
    rate, cell = _blocks(grid.rate, block), SIDE / (block[-1] + 1)
    level, scale = _levels(grid)
    place = EDGE + BAND
    parts = [_row_runs(level(rate), place, cell), *_bands(grid, block, cell), *_frames(grid, block, cell)]
    hops = {(int(block[a]), int(block[b])) for a, b in grid.hops}
    ring = {(int(block[a]), int(block[b])) for a, b in grid.ring if a != b}
    inset = [(place + b * cell + 0.38 * cell, place + a * cell + 0.38 * cell, *(0.24 * cell,) * 2) for a, b in ring]
    parts.append(boxes(sorted(inset), RING))
    radius = max(0.3 * cell, 1.5)
    parts += [_disc(place + (b + 0.5) * cell, place + (a + 0.5) * cell, min(radius, 12.0)) for a, b in sorted(hops)]
    parts += _names(grid, block, cell)
    merged = f" {-(-count // MOST)} neighbours are drawn as one, by their slowest link." if count > MOST else ""
    what = "node" if np.array_equal(grid.site, grid.node) else "device"
    drawn = drawing(SIDE + place + 4, SIDE + place + 4, parts, "bandwidth between sites in the order of the plan")
    shades = [(f"{least:.4g} Gb/s and more", shade) for shade, least in scale]
    marks = [("to the next stage", HOP), ("all-reduce of stage 0", RING)]
    note = f"Rows send, columns receive; one row a {what}. Frames: neighbouring {what}s with the same stages.{merged}"
    return f'{drawn}{legend([*marks, *shades])}<p class="note">{note}</p>'


def _blocks(rate: Floats, block: Ints) -> Floats:
    """Slowest link between blocks of sites, (1); NaN where there is none."""
    first = np.flatnonzero(np.diff(block, prepend=-1))
    filled = np.where(np.isnan(rate), np.inf, rate)
    least = np.minimum.reduceat(np.minimum.reduceat(filled, first, axis=0), first, axis=1)
    return np.where(np.isinf(least), np.nan, least)


def _levels(grid: Grid) -> "tuple[_Levels, list[tuple[str, float]]]":
    """Shade of rates, and the least rate of every shade that occurs."""
    between = grid.rate[grid.node[:, None] != grid.node[None, :]]
    known = grid.rate[np.isfinite(grid.rate)]
    scaled = between if between.size else known
    least, most = float(scaled.min(initial=np.inf)), float(scaled.max(initial=0.0))
    if not least < most:
        least = most
    levels = _Levels(least, most)
    inside = [(INSIDE, float(known[known > most].min()))] if (known > most).any() else []
    if least == most:
        return levels, [(GREYS[-1], most), *inside]
    return levels, [(GREYS[k], least + (most - least) * k / len(GREYS)) for k in (0, 3, 7)] + inside


class _Levels:
    """Colours of rates between a least and a most; above it a colour of its own, white where there is no link."""

    def __init__(self, least: float, most: float) -> None:
        self._least, self._most = least, most

    def __call__(self, rate: Floats) -> list[list[str]]:
        span = self._most - self._least
        share = np.ones_like(rate) if span <= 0 else (rate - self._least) / span
        known = np.nan_to_num(share, nan=0.0)
        index = np.clip((known * len(GREYS)).astype(int), 0, len(GREYS) - 1)
        shades = np.array([*GREYS, INSIDE, "#ffffff"])
        index = np.where(rate > self._most, len(GREYS), index)
        return [list(row) for row in shades[np.where(np.isnan(rate), len(GREYS) + 1, index)].tolist()]


def _row_runs(shades: list[list[str]], place: float, cell: float) -> str:
    """Cells as one path for each shade, neighbours of one shade as one box."""
    runs: dict[str, list[tuple[float, float, float, float]]] = {}
    for a, row in enumerate(shades):
        at = 0
        for shade, cells in groupby(row):
            wide = len(list(cells))
            # A trace more than a cell, so that no seam of the page shows between rows.
            runs.setdefault(shade, []).append((place + at * cell, place + a * cell, wide * cell, cell + 0.3))
            at += wide
    return "".join(boxes(corners, shade) for shade, corners in runs.items())


def _spans(grid: Grid, block: Ints) -> list[tuple[list[int], int, int]]:
    """Stages, first and last block of every run of neighbouring sites that hold the same stages."""
    stages = [sorted({stage for stage, _ in groups}) for groups in grid.groups]
    found: list[tuple[list[int], int, int]] = []
    for held, run in groupby(range(len(stages)), key=lambda a: stages[a]):
        sites = list(run)
        found.append((held, int(block[sites[0]]), int(block[sites[-1]])))
    return found


def _bands(grid: Grid, block: Ints, cell: float) -> list[str]:
    """Stages along both sides."""
    parts = []
    for held, first, last in _spans(grid, block):
        at, long = EDGE + BAND + first * cell, (last - first + 1) * cell
        shade, hint = SHADES[held[0] % len(SHADES)] if held else GREYS[0], f"stages {device_ranges(held)}"
        parts += [box(EDGE, at, BAND - 3, long, shade, hint), box(at, EDGE, long, BAND - 3, shade, hint)]
    return parts


def _frames(grid: Grid, block: Ints, cell: float) -> list[str]:
    """A frame around the links within each stage."""
    place, frame = EDGE + BAND, 'stroke="#b00040" stroke-width="1.6"'
    spans = _spans(grid, block)
    return [
        box(place + first * cell, place + first * cell, *((last - first + 1) * cell,) * 2, "none", "", frame)
        for _, first, last in spans
    ]


def _names(grid: Grid, block: Ints, cell: float) -> list[str]:
    """Stages at their bands, where there is room for their number, and the sites' numbers where they are few."""
    parts = [label(EDGE, EDGE - 26, "receives"), label(2, EDGE + BAND - 4, "sends")]
    for held, first, last in _spans(grid, block):
        stage = device_ranges(held)
        middle = EDGE + BAND + (first + last + 1) / 2 * cell
        if (last - first + 1) * cell >= 12 and len(stage) <= 2 + (last - first + 1) * cell / 12:
            parts.append(label(EDGE + 7, middle + 4, stage, 'text-anchor="middle" class="on"'))
            parts.append(label(middle, EDGE + 12, stage, 'text-anchor="middle" class="on"'))
    if cell >= 11:
        for a, site in enumerate(grid.site.tolist()):
            middle = EDGE + BAND + (a + 0.5) * cell
            parts.append(label(EDGE - 5, middle + 4, site, 'text-anchor="end"'))
            parts.append(label(middle, EDGE - 5, site, 'text-anchor="middle"'))
    return parts


def _disc(x: float, y: float, radius: float) -> str:
    return f'<circle cx="{x:.5g}" cy="{y:.5g}" r="{radius:.3g}" fill="{HOP}"/>'
