"""The table of one peer: ``python -m benchmarks.peers NAME --peers DIR [--seconds S] [--case PART]``."""

import argparse
import sys
from importlib import import_module
from pathlib import Path

from benchmarks.peers.frame import Checkout, table
from taut.errors import DataError

PEERS = {
    "rules": "",
    "amp": "AMP",
    "aceso": "SuperScaler",
    "galvatron": "Hetu-Galvatron",
    "simumax": "SimuMax",
    "rlinf": "RLinf",
}
"""Module of a peer, and the name of its repository; rules are written in the module."""


def main() -> None:
    """Print the table of a peer, or one line where its checkout is absent."""
    parser = argparse.ArgumentParser(description="Another planner on its own inputs, beside ours and a lower bound.")
    parser.add_argument("name", choices=PEERS)
    parser.add_argument("--peers", type=Path, default=Path("DIR"), help="folder of checkouts, by repository's name")
    parser.add_argument("--python", type=Path, help="interpreter with what the peer imports; default DIR/venv, or this")
    parser.add_argument("--seconds", type=int, default=60, help="limit of each search")
    parser.add_argument("--case", default="", help="part of the name of an input, to run it alone")
    words = parser.parse_args()
    folder = words.peers.absolute()
    own = folder / "venv" / "bin" / "python"
    python = words.python or (own if own.exists() else Path(sys.executable))
    given = Checkout(folder / PEERS[words.name], str(python), words.seconds, words.case)
    try:
        print(table(import_module(f"benchmarks.peers.{words.name}").rows(given)))
    except DataError as error:
        sys.exit(f"{words.name} was not run: {error}")


if __name__ == "__main__":
    main()
