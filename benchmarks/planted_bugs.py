"""
Bugs planted in what search and check share, and how many of the false certificates ``verify`` refuses.

``python -m benchmarks.planted_bugs`` plants each bug in turn, plans and checks small problems of its kind in the same
process, and compares every certificate with an enumeration of all plans. ``--part sizes`` plants some of the bugs on
clusters of 16 to 64 unlike nodes, where good plans of every candidate take the place of the enumeration. ``--part
rungs`` counts for every rung the instances of its kind on which the lower bound falls without it. Without ``--part``
all three are printed. Run it from the top of the repository.
"""

import argparse
from collections.abc import Callable

from tests.support.planted_kinds import ROWS, WITHOUT, decides, shown, sizes, table


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, default=6, help="small problems for each bug and rung")
    parser.add_argument("--large", type=int, default=1, help="problems of each size of cluster")
    parser.add_argument("--part", choices=PARTS, help="print this table alone")
    chosen = parser.parse_args()
    for part in (chosen.part,) if chosen.part else PARTS:
        print(PARTS[part](chosen.instances, chosen.large), flush=True)


def _rungs(instances: int, _: int) -> str:
    """How often every rung decides on its kind."""
    rows = [f"{rung:44}{instances:9}{decides(rung, instances):9}" for rung in WITHOUT]
    return "\n".join([f"{'rung':44}{'instances':>9}{'decided':>9}", *rows])


PARTS: dict[str, Callable[[int, int], str]] = {
    "bugs": lambda instances, _: table([shown(bug, instances) for bug in ROWS]),
    "sizes": lambda _, large: sizes(large),
    "rungs": _rungs,
}
"""Tables, from the instances for each bug and rung and those of each size of cluster."""


if __name__ == "__main__":
    main()
