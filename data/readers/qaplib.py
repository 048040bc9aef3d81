r"""
Reader and writer of QAPLIB, the public library of quadratic assignment problems.

A ``.dat`` file holds :math:`n`, the entries of a first :math:`n \times n` matrix and the entries of a second,
row by row. White space separates them, lines break anywhere, and there are no units. The first matrix is read
as the flow :math:`f` between items, the second as the distance :math:`d` between locations, so that the
permutation :math:`\pi` costs

.. math:: \sum_{i, j} f_{ij} \, d_{\pi_i \pi_j}. \tag{1}

A ``.sln`` file holds :math:`n`, the cost (1) of a permutation and the permutation itself, counted from one;
commas separate its entries in some files.

References
----------
.. [1] Burkard, R.E., Karisch, S.E. and Rendl, F. (1997). QAPLIB: a quadratic assignment problem library.
       Journal of Global Optimization 10: 391-403.
"""

import math
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import numpy as np

from taut.data.arrays import Floats
from taut.data.read import number_or_nan
from taut.errors import DataError

MAX_SIZE = 4096
"""Largest n that is read; the two matrices then take 256 MiB."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QaplibInstance:
    """Two matrices (n, n) of one size, as a QAPLIB file of that name states them, and whether all are integers."""

    name: str
    flow: Floats
    distance: Floats
    integral: bool


def read_qaplib(path: str | PathLike[str]) -> QaplibInstance:
    """Read an instance (``.dat``): n up to 4096 and both matrices; ``DataError`` for anything else."""
    file = Path(path)
    words = _words(file)
    size = _size(file, words)
    entries = array("d", (_number(file, line, word) for line, word in words))
    _require_count(file, len(entries), 2 * size * size, f"two {size} x {size} matrices")
    matrices = np.frombuffer(entries, dtype=np.float64).reshape(2, size, size)
    matrices.setflags(write=False)
    integral = bool(np.all(matrices == np.rint(matrices)))
    return QaplibInstance(name=file.stem, flow=matrices[0], distance=matrices[1], integral=integral)


def read_qaplib_solution(path: str | PathLike[str]) -> tuple[int, ...]:
    """Location of every item from zero on of a solution (``.sln``), whose cost is read and dropped."""
    file = Path(path)
    words = _words(file, commas=True)
    size = _size(file, words)
    numbers = [(line, word, _number(file, line, word)) for line, word in words]
    _require_count(file, len(numbers), size + 1, f"a cost and a permutation of {size}")
    seen: set[int] = set()
    for line, word, number in numbers[1:]:
        if not number.is_integer() or not 1 <= number <= size or int(number) in seen:
            raise DataError(f"{file} line {line}: {word}, expected each of 1, ..., {size} once")
        seen.add(int(number))
    return tuple(int(number) - 1 for _, _, number in numbers[1:])


def qaplib_text(flow: Floats, distance: Floats) -> str:
    """Two matrices (n, n) as the text of a ``.dat`` file, every figure to the last digit."""
    matrices = ("\n".join(" ".join(f"{entry:.17g}" for entry in row) for row in table) for table in (flow, distance))
    return "\n\n".join([str(len(flow)), *matrices]) + "\n"


def _words(file: Path, *, commas: bool = False) -> Iterator[tuple[int, str]]:
    """Words of a file, each with the number of its line."""
    try:
        with file.open(encoding="utf-8-sig") as lines:
            for line, text in enumerate(lines, start=1):
                for word in (text.replace(",", " ") if commas else text).split():
                    yield line, word
    except OSError as error:
        raise DataError(f"{file}: cannot be read ({error.strerror}), expected a QAPLIB file") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: is not UTF-8 text, expected a QAPLIB file") from error


def _size(file: Path, words: Iterator[tuple[int, str]]) -> int:
    """First number of a file, the n of its matrices."""
    line, word = next(words, (0, ""))
    if not word:
        raise DataError(f"{file}: is empty, expected n and the numbers that follow it")
    size = _number(file, line, word)
    if not size.is_integer() or not 1 <= size <= MAX_SIZE:
        raise DataError(f"{file} line {line}: n is {word}, expected an integer from 1 to {MAX_SIZE}")
    return int(size)


def _number(file: Path, line: int, word: str) -> float:
    """Value of one word, which must be a finite decimal number."""
    # Python allows 1_000 where QAPLIB does not.
    value = math.nan if "_" in word else number_or_nan(word)
    if not math.isfinite(value):
        raise DataError(f"{file} line {line}: {word!r}, expected a finite number")
    return value


def _require_count(file: Path, found: int, expected: int, content: str) -> None:
    """Refuse a file that holds more or fewer numbers than its n asks for."""
    if found != expected:
        raise DataError(f"{file}: {found} numbers after n, expected {expected} ({content})")
