"""
Bugs planted in what search and check share, and how many of the false certificates ``verify`` refuses.

``python -m benchmarks.planted_bugs --instances 12`` plants each bug in turn, plans and checks small random problems in
the same process, and compares every certificate with an enumeration of all plans. Run it from the top of the
repository.
"""

import argparse

from tests.support.planted_bugs import BUGS, instances, table, tally


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, default=12, help="small random problems for each bug")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first problem")
    chosen = parser.parse_args()
    given = instances(chosen.instances, first=chosen.seed)
    print(table([tally(bug, given) for bug in BUGS]))


if __name__ == "__main__":
    main()
