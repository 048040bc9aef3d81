"""What several commands ask of their options: values in range, a folder to write to, fixed values as text."""

import os
from pathlib import Path

from taut.errors import DataError

MOST_SEED = 2**31 - 1
"""The largest seed that every part of a search takes."""


def check_limits(
    time_limit: float | None, work_limit: int | None, gap: float, workers: int, max_tp: int | None
) -> None:
    """
    Refuse limits of a search that are out of range.

    Raises
    ------
    DataError
        One line: the option, its value, what was expected.
    """
    named = {"--time-limit": time_limit, "--work-limit": work_limit, "--workers": workers, "--max-tp": max_tp}
    for name, value in named.items():
        if value is not None and not value > 0:
            raise DataError(f"{name} {value}: expected a number above 0")
    if not 0 <= gap < 1:
        raise DataError(f"--gap {gap:g}: expected a share from 0 to 1, such as 0.01")


def check_seed(seed: int) -> None:
    """
    Refuse a seed that some part of a search would not take.

    Raises
    ------
    DataError
        If it is negative or too large.
    """
    if not 0 <= seed <= MOST_SEED:
        raise DataError(f"--seed {seed}: expected a whole number from 0 to {MOST_SEED}")


def check_folder(out: Path | None) -> None:
    """
    Refuse before the search a file that could not be written after it.

    Raises
    ------
    DataError
        If the folder does not exist or refuses files, or the file is a folder.
    """
    if out is None:
        return
    if not out.parent.is_dir():
        raise DataError(f"{out}: there is no folder {out.parent}, expected a writable file name")
    if out.is_dir():
        raise DataError(f"{out}: is a folder, expected a writable file name")
    if not os.access(out.parent, os.W_OK):
        raise DataError(f"{out}: the folder {out.parent} cannot be written, expected a writable file name")


def check_plans(folder: Path | None) -> None:
    """
    Refuse before the search a folder that could not be made or filled after it.

    Raises
    ------
    DataError
        If it is a file, refuses files, or could not be made.
    """
    if folder is None:
        return
    if folder.is_dir():
        check_folder(folder / "plan")
        return
    if folder.exists():
        raise DataError(f"{folder}: is a file, expected a folder")
    check_folder(folder)


def parse_fix(text: str) -> dict[str, int | str | bool]:
    """
    Fixed values from ``tp=8,schedule=1f1b``.

    Raises
    ------
    DataError
        If a part is no NAME=VALUE, or a name stands twice.
    """
    fixed: dict[str, int | str | bool] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, equals, value = part.partition("=")
        if not equals or not value:
            raise DataError(f"--fix {part}: expected NAME=VALUE, such as tp=8")
        if name in fixed:
            raise DataError(f"--fix {text}: {name} stands twice, expected once")
        words: dict[str, bool] = {"true": True, "false": False}
        fixed[name] = words[value] if value in words else int(value) if value.isdecimal() else value
    return fixed
