"""
Bugs planted in what search and check share, and how many of the false certificates ``verify`` refuses.

``python -m benchmarks.planted_bugs`` plants each bug in turn, plans and checks small problems of its kind in the same
process, and compares every certificate with an enumeration of all plans. Then it plants some of the bugs on clusters of
16 to 64 unlike nodes, where good plans of every candidate take the place of the enumeration, and counts for every rung
the instances of its kind on which the lower bound falls without it. Run it from the top of the repository.
"""

import argparse

from tests.support.planted_kinds import ROWS, WITHOUT, decides, shown, sizes, table


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, default=6, help="small problems for each bug and rung")
    parser.add_argument("--large", type=int, default=1, help="problems of each size of cluster")
    chosen = parser.parse_args()
    print(table([shown(bug, chosen.instances) for bug in ROWS]))
    print(f"\n{sizes(chosen.large)}\n\n{'rung':44}{'instances':>9}{'decided':>9}")
    for rung in WITHOUT:
        print(f"{rung:44}{chosen.instances:9}{decides(rung, chosen.instances):9}")


if __name__ == "__main__":
    main()
