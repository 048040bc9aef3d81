"""
How far published plans and searches are from the proven optimum: a table in Markdown and a picture.

Run ``python -m benchmarks.distances FOLDER --data DIR [--part NAME ...] [--plot distances.png]``: each part is one
``taut reproduce`` whose JSON is written to FOLDER, if it is not there yet; DIR holds the tables of other projects
(``taut.papers.searches``), without which parts that need them are left out. A row has the distance J / L - 1 of a
plan of J seconds from the lower bound L of all plans of the same space at the same prices, and the command that prints
it. By a formula of its own a search is compared with that formula's optimum. ``taut`` is the best plan known there, so
its distance says how much of the others' may be the bound's. ``--table docs/results/data/distances/distances.md --plot
distances.png`` draws that table instead, whose rows may have been renewed one by one.
"""

import argparse
import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.distances_table import EVEN, OURS, OWN, TAUT, Distance, in_markdown, of_markdown
from taut.plots.plan import HOP, RING, SHADES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DATA = "DIR"
PARTS = {
    "amp": "amp",
    "pipette": "pipette --each 30",
    "pipette-step": "pipette --whole-step --each 30",
    "hethub": "hethub",
    "hethub-table": "hethub --table",
    "aceso": f"searches --data {DATA} --only Aceso --each 10",
    "galvatron": f"searches --data {DATA} --only Galvatron",
    "sailor": f"searches --data {DATA} --only Sailor --each 10",
    "llama3-405b": f"searches --data {DATA} --only 'NVIDIA llama3-405b' --each 60",
    "llama3-70b": f"searches --data {DATA} --only 'NVIDIA llama3-70b' --each 60",
    "llama3-8b": f"searches --data {DATA} --only 'NVIDIA llama3-8b' --each 60",
    "gpt3": f"searches --data {DATA} --only gpt3-175b --each 60",
    "nemotron": f"searches --data {DATA} --only nemotron --each 60",
    "offload": f"searches --data {DATA} --only 'NVIDIA recipe' --each 60",
    "experts": f"searches --data {DATA} --only 'NVIDIA 2' --each 180",
}
"""What prints a part, after ``taut reproduce``."""
COLOURS = {OWN: HOP, OURS: RING}
BANDS = {
    TAUT: "best plan of taut",
    "galvatron": "Galvatron's example",
    "aceso": "Aceso's plans",
    "NVIDIA": "NVIDIA's recipes",
    "offload": "NVIDIA's with offload",
    "experts": "NVIDIA's with experts",
    "MLPerf": "MLPerf's records",
    "sailor": "Sailor's test runs",
    "amp": "AMP",
    "pipette": "Pipette",
    "ppt-l": "Pipette in rank order",
    "hethub": "HETHUB",
    EVEN: "even stages",
    "megatron": "Megatron's rule",
    "varuna": "Varuna",
    "random": "random plans",
}
"""Planners in the order of the picture, with their names there."""


def run_part(name: str, folder: Path, data: Path | None) -> None:
    """Write the JSON of a part, if it is not there and what it needs is."""
    path, words = folder / f"{name}.json", shlex.split(PARTS[name])
    if path.exists() or (DATA in words and data is None):
        return
    given = [str(data) if word == DATA else word for word in words]
    print(f"taut reproduce {PARTS[name]}", file=sys.stderr, flush=True)
    found = subprocess.run(
        [sys.executable, "-m", "taut", "reproduce", *given, "--json"], capture_output=True, text=True, check=True
    )
    path.write_text(found.stdout, encoding="utf-8")


def distances(name: str, content: dict[str, Any]) -> Iterator[Distance]:
    """Rows of a part."""
    command = f"taut reproduce {PARTS[name]}"
    if name == "hethub":
        yield from _shares(content["rows"], command)
    elif name == "hethub-table":
        yield from _hethub(content["rows"], command)
    elif name in ("amp", "pipette", "pipette-step"):
        prices = OURS if name == "pipette-step" else OWN
        for row in content["rows"]:
            for planner, share in row["distance"].items():
                yield Distance(planner, _setting(row["setting"], name), prices, share, command)
    else:
        yield from _plans(content)


def _setting(setting: Any, part: str) -> str:
    if isinstance(setting, str):
        return f"AMP {setting}"
    step = ", whole step" if part == "pipette-step" else ""
    return f"Pipette {setting['model']}, {setting['nodes']} nodes{step}"


def _shares(rows: list[dict[str, Any]], command: str) -> Iterator[Distance]:
    """Shares of a throughput: the largest possible one over a plan's, less one."""
    for row in rows:
        for planner, name in ((EVEN, "even"), ("hethub", "rule"), (TAUT, "best")):
            share = None if row[name] is None else row["at_most"] / row[name] - 1
            yield Distance(planner, f"HETHUB {row['setting']['name']}", OURS, share, command)


def _hethub(rows: list[dict[str, Any]], command: str) -> Iterator[Distance]:
    for row in rows:
        only = f"{command} --only '{row['cluster']} {row['model']}'"
        for planner, name in ((EVEN, "even_s"), ("hethub", "rule_s"), (TAUT, "best_s")):
            share = None if row[name] is None else row[name] / row["lower_bound_s"] - 1
            yield Distance(planner, f"HETHUB {row['model']} on {row['cluster']}", OURS, share, only)


def _plans(content: dict[str, Any]) -> Iterator[Distance]:
    """Published plans at taut's prices, then searches by their own formulas and at taut's prices."""
    for row in content["rows"]:
        given = row["published"]
        who = _who(given)
        job = f"{given['who']} {given['model']} on {_place(given)}, batch {given['global_batch']} ({_degrees(given)})"
        yield Distance(who, job, OURS, row["distance"], row["command"])
        if row["best_s"] is not None and row["lower_bound_s"]:
            best = min(row["best_s"], row["predicted_s"] or row["best_s"])
            yield Distance(TAUT, job, OURS, best / row["lower_bound_s"] - 1, row["command"])
    for row in content.get("aceso", []):
        job = f"Aceso {row['model']} on {row['gpus']} {row['gpu']}"
        yield from _own("aceso", job, row)
        if row["ours"] is not None and row["ours"]["theirs_s"] and row["ours"]["lower_bound_s"]:
            ours = row["ours"]["theirs_s"] / row["ours"]["lower_bound_s"] - 1
            yield Distance("aceso", job, OURS, ours, row["command"])
            best = min(row["ours"]["best_s"], row["ours"]["theirs_s"]) / row["ours"]["lower_bound_s"] - 1
            yield Distance(TAUT, job, OURS, best, row["command"])
    for row in content.get("galvatron", []):
        job = f"Galvatron {row['model']} on {row['gpus']} GPUs"
        yield from _own("galvatron", job, row)
        yield Distance("galvatron", job, OURS, row["our_distance"], row["command"])


def _who(published: dict[str, Any]) -> str:
    """Which planner of ``BANDS`` a published plan is of."""
    if published.get("activation_offload"):
        return "offload"
    if published["fixed"].get("ep", 1) > 1:
        return "experts"
    return "sailor" if published["who"] == "Sailor" else str(published["who"].split()[0])


def _place(published: dict[str, Any]) -> str:
    """Where a plan is for: numbers of H100 alone, other machines by the catalog's name and the precision."""
    if _who(published) not in ("offload", "experts"):
        return f"{published['gpus']} GPUs"
    return f"{published['cluster']} in {published['precision']}"


def _degrees(published: dict[str, Any]) -> str:
    fixed, share = published["fixed"], published.get("activation_offload")
    said = [f"{name} {fixed[name]}" for name in ("tp", "cp", "pp", "vpp", "ep") if fixed.get(name, 1) > 1] or ["dp"]
    return " ".join([*said, *([f"offload {100 * share:.0f} %"] if share else [])])


def _own(who: str, job: str, row: dict[str, Any]) -> Iterator[Distance]:
    yield Distance(who, job, OWN, row["distance"], row["command"])
    yield Distance(TAUT, job, OWN, row["best_s"] / row["lower_bound_s"] - 1, row["command"])


def plot(rows: list[Distance], path: Path) -> None:
    """Draw every distance as a dot, a band for each planner."""
    from matplotlib import pyplot

    # Several published plans of one job have the same best plan.
    drawn = list(
        {(row.planner, row.setting.split(" (")[0] if row.planner == TAUT else row): row for row in rows}.values()
    )
    drawn = [row for row in drawn if row.share is not None]
    bands = [name for name in BANDS if any(row.planner == name for row in drawn)]
    figure, axes = pyplot.subplots(figsize=(9, 0.42 * len(bands) + 1.6), layout="constrained")
    for place, name in enumerate(bands):
        _band(axes, place, [row for row in drawn if row.planner == name])
    _dress(axes, [f"{BANDS[name]} ({sum(row.planner == name for row in drawn)})" for name in bands])
    figure.savefig(path, dpi=120)


def _band(axes: "Axes", place: int, rows: list[Distance]) -> None:
    """Dots of one planner, prices apart, and their median."""
    shares = sorted(100 * max(row.share or 0.0, 0.0) for row in rows)
    middle = (shares[(len(shares) - 1) // 2] + shares[len(shares) // 2]) / 2
    for prices, colour in COLOURS.items():
        some = sorted(100 * max(row.share or 0.0, 0.0) for row in rows if row.prices == prices)
        # Dots of near distances would hide one another, so each stands a little apart from the one before.
        heights = [place + (k % 5 - 2) * 0.12 for k in range(len(some))]
        axes.scatter(
            some,
            heights,
            s=16,
            color=colour,
            alpha=0.75,
            linewidths=0,
            label=f"priced by {prices}" if place == 0 else None,
        )
    axes.plot([middle, middle], [place - 0.36, place + 0.36], color="black", linewidth=1.5)


def _dress(axes: "Axes", names: list[str]) -> None:
    axes.set_xscale("symlog", linthresh=0.01)
    axes.set_xlim(-0.001, 1000)
    ticks = (0, 0.01, 0.1, 1, 10, 100, 1000)
    axes.set_xticks(ticks, [f"{tick:g} %" for tick in ticks])
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    for place in range(1, len(names)):
        axes.axhline(place - 0.5, color=SHADES[0], linewidth=0.4, alpha=0.5)
    axes.set_xlabel("step time above the proven bound; a bar is the median")
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), fontsize=8, ncols=2, frameon=False)
    axes.grid(axis="x", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def main() -> None:
    """Run what is missing, print the table, and draw it where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--table", type=Path, help="draw the rows of this file, and run nothing")
    options = parser.parse_args()
    if (options.folder is None) == (options.table is None):
        parser.error("expected a folder or --table")
    if options.table:
        rows = of_markdown(options.table.read_text(encoding="utf-8").splitlines())
    else:
        rows = list(_rows(options.folder, options.data, options.part))
        print("\n".join(in_markdown(rows)))
    if options.plot:
        plot(rows, options.plot)


def _rows(folder: Path, data: Path | None, parts: list[str]) -> Iterator[Distance]:
    """Rows of some parts, of which those that are missing are run first."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in parts:
        run_part(name, folder, data)
        path = folder / f"{name}.json"
        if path.exists():
            yield from distances(name, json.loads(path.read_text(encoding="utf-8")))


if __name__ == "__main__":
    main()
