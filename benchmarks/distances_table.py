"""The table of distances: a row for each plan, and the lines in which a page shows them."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

OWN, OURS = "the paper's own formula", "taut's prices"
TAUT, EVEN = "taut", "even stages"
METHODS = EVEN, "megatron", "varuna", "amp", "ppt-l", "pipette", "hethub", "random"
NONE = "no plan"


@dataclass(frozen=True, slots=True)
class Distance:
    """A plan: who plans, for which setting, by whose prices, its distance (None where nothing fits), what prints it."""

    planner: str
    setting: str
    prices: str
    share: float | None
    command: str


def in_markdown(rows: list[Distance]) -> list[str]:
    """A line for each setting: the published plan or the planners, the best plan known, and the command."""
    by_setting: dict[tuple[str, str, str], dict[str, float | None]] = defaultdict(dict)
    for row in rows:
        by_setting[row.setting, row.prices, row.command][row.planner] = row.share
    lines = [
        "| setting | prices | distance from the proven bound | taut | command |",
        "| :-- | :-- | :-- | --: | :-- |",
    ]
    for (setting, prices, command), found in by_setting.items():
        planners = "; ".join(
            _percent(share) if planner not in METHODS else f"{planner} {_percent(share)}"
            for planner, share in found.items()
            if planner != TAUT
        )
        best = _percent(found[TAUT]) if TAUT in found else ""
        lines.append(f"| {setting} | {prices} | {planners} | {best} | `{command}` |")
    return lines


def _percent(share: float | None) -> str:
    return NONE if share is None else f"{100 * max(share, 0.0):.2f} %"


def of_markdown(lines: Iterable[str]) -> list[Distance]:
    """Rows of the table among the lines of a page."""
    cells = (line.strip("| ").split(" | ") for line in lines if line.startswith("| "))
    return [row for line in cells if len(line) in (4, 5) and line[1] in (OWN, OURS) for row in _of_line(line)]


def _of_line(cells: list[str]) -> Iterator[Distance]:
    setting, prices, shares, *best, command = cells
    for said in shares.split("; "):
        planner = next((name for name in METHODS if said.startswith(f"{name} ")), "")
        share = _share(said.removeprefix(planner).strip())
        yield Distance(planner or _planner(setting), setting, prices, share, command.strip("`"))
    for said in best:
        if said.strip():
            yield Distance(TAUT, setting, prices, _share(said), command.strip("`"))


def _planner(setting: str) -> str:
    """Whose published plan a setting is of."""
    who = setting.split()[0]
    if who == "NVIDIA":
        return "offload" if "offload" in setting else "experts" if re.search(r"\bep \d", setting) else who
    return who if who == "MLPerf" else who.lower()


def _share(said: str) -> float | None:
    return None if said == NONE else float(said.removesuffix("%")) / 100
