"""Measurements that this project made on a GPU: their folder, their files, and the command line of what makes them."""

import argparse
import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "measured"


def write(path: Path, lines: list[dict[str, Any]]) -> None:
    """Write lines as a CSV file."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(lines[0]), lineterminator="\n")
        writer.writeheader()
        for line in lines:
            writer.writerow({name: f"{cell:.6g}" if isinstance(cell, float) else cell for name, cell in line.items()})


def measure_or_print(about: str | None, measure: Callable[[Path, str], None], text: Callable[[Path], str]) -> None:
    """
    Measure with ``--measure``, or print what is there.

    Parameters
    ----------
    about
        What the command's help says.
    measure
        Measures on a device by its name, and writes to a folder.
    text
        What is printed of a folder.
    """
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    if options.measure:
        measure(options.folder, options.device)
    else:
        print(text(options.folder))
