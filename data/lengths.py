r"""
Lengths of sequences: a list or a histogram from a file, or published statistics of a data set.

(1) A distribution is a finite set of lengths :math:`l_k` with shares :math:`p_k`. A file states it: one length a line,
    or ``length,count``.
(2) A published data set states the share of its sequences between two lengths. Within such a bin sequences are taken
    as uniform in :math:`\log l`, at the middles of 256 parts of equal share. This is an assumption: nothing finer is
    published.
"""

from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.data.catalog.devices import catalog_section
from taut.data.read import check_count, read_text
from taut.data.suggest import one_of
from taut.errors import DataError

PARTS = 256
"""Parts of a bin, (2)."""
LONGEST = 100_000_000
"""Tokens of a sequence, and sequences of one length, that a file may state."""
MOST_LINES = 2_000_000
EXPECTED = "one length a line, or length,count"


@dataclass(frozen=True, eq=False)
class Lengths:
    """A distribution of lengths, (1): distinct ``tokens`` in rising order, their ``shares``, and its source."""

    name: str
    source: str
    tokens: Ints
    shares: Floats

    @property
    def mean(self) -> float:
        """Mean tokens of a sequence."""
        return float(self.shares @ self.tokens)

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence."""
        return int(self.tokens[-1])

    def quantile(self, share: float) -> int:
        """Least length that at least a share of the sequences does not exceed."""
        return int(self.tokens[min(int(np.searchsorted(np.cumsum(self.shares), share - 1e-12)), len(self.tokens) - 1)])

    def draw(self, random: np.random.Generator, number: int) -> Ints:
        """Independent lengths."""
        places = np.searchsorted(np.cumsum(self.shares)[:-1], random.random(number), side="right")
        return np.asarray(self.tokens[places])

    def up_to(self, most: int) -> "Lengths":
        """The distribution of the sequences of at most so many tokens."""
        kept = self.tokens <= most
        if kept.all():
            return self
        if not kept.any():
            raise DataError(f"{self.name}: the shortest sequence has {self.tokens[0]} tokens, expected at most {most}")
        left = 1.0 - float(self.shares[kept].sum())
        source = f"{self.source}; {100 * left:.3g} % of the sequences are longer than {most} and left out"
        return _of(self.name, source, self.tokens[kept], self.shares[kept])


def _of(name: str, source: str, tokens: Ints, counts: Floats) -> Lengths:
    """The distribution of lengths, in any order and repeated, with their counts."""
    distinct, place = np.unique(tokens, return_inverse=True)
    shares = np.bincount(place, weights=counts)
    kept = shares > 0
    return Lengths(name, source, distinct[kept], shares[kept] / shares.sum())


@dataclass(frozen=True)
class Published:
    """Statistics of a data set: the lengths between which bins lie, their sequences, (2), and who states them."""

    edges: tuple[float, ...]
    counts: tuple[float, ...]
    source: str

    def lengths(self, name: str) -> Lengths:
        """The distribution."""
        middle = (np.arange(PARTS) + 0.5) / PARTS
        low, high = np.array(self.edges[:-1])[:, None], np.array(self.edges[1:])[:, None]
        tokens = np.maximum(np.rint(low * (high / low) ** middle), 1).astype(np.int64)
        return _of(name, self.source, tokens.ravel(), np.repeat(np.array(self.counts) / PARTS, PARTS))


PUBLISHED = {
    name: Published(tuple(known["edges"]), tuple(known["counts"]), known["source"])
    for name, known in catalog_section("lengths").items()
}


def load_lengths(given: str | PathLike[str]) -> Lengths:
    """
    A distribution of lengths by the name of a published data set, or from a file; ``DataError`` if a line is wrong.

    Examples
    --------
    >>> found = load_lengths("chat-sft")
    >>> round(found.mean), found.quantile(0.5), found.longest
    (688, 357, 8192)
    """
    name = str(given)
    if name in PUBLISHED:
        return PUBLISHED[name].lengths(name)
    path = Path(given)
    if not path.exists() and not path.suffix:
        raise DataError(f"{name}: no such file, expected {EXPECTED}, or {one_of(name, PUBLISHED)}")
    text = read_text(path, f"a file with {EXPECTED}")
    check_count(text, path, EXPECTED, MOST_LINES, "\n")
    rows = [_row(line, f"{path} line {number}") for number, line in _lines(text)]
    if not rows:
        raise DataError(f"{path}: holds no length, expected {EXPECTED}")
    tokens, counts = np.array(rows, dtype=np.int64).T
    if not counts.any():
        raise DataError(f"{path}: all counts are 0, expected at least one sequence")
    return _of(path.name, f"{path}, {counts.sum():,} sequences", tokens, counts.astype(float))


def _lines(text: str) -> list[tuple[int, str]]:
    """Numbers and texts of the lines that hold something, without remarks and a header."""
    held = [(k, line.strip()) for k, line in enumerate(text.splitlines(), 1)]
    held = [(k, line) for k, line in held if line and not line.startswith("#")]
    header = bool(held) and held[0][1].replace(" ", "").lower() in ("length", "length,count")
    return held[1:] if header else held


def _row(line: str, where: str) -> tuple[int, int]:
    """Length and count of a line."""
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) > 2:
        raise DataError(f"{where}: holds {len(cells)} cells, expected {EXPECTED}")
    length = _whole(cells[0], f"{where}: length", 1)
    return length, _whole(cells[1], f"{where}: count", 0) if len(cells) == 2 else 1


def _whole(text: str, what: str, least: int) -> int:
    """A whole number between a least one and ``LONGEST``."""
    if text.isascii() and text.isdecimal() and len(text) < 12 and least <= int(text) <= LONGEST:
        return int(text)
    raise DataError(f"{what} is {text or 'empty'}, expected a whole number from {least} to {LONGEST}")
