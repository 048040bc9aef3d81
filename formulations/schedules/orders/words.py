r"""
Orders as text: a word for each device, such as ``0F0F3F3I3W``, a permutation with repetition [1]_.

A pass is the number of its chunk and its letter, F, I, W or B. Micro-batches are alike, so the n-th time that a pass
is named is that of micro-batch n: every order has words in which, for each chunk and letter, micro-batches run in
order, and no makespan or memory changes by that (1).

References
----------
.. [1] Bierwirth, C. (1995). A generalized permutation approach to job shop scheduling with genetic algorithms. OR
       Spektrum 17: 87-92.
"""

import re
from collections.abc import Iterable, Sequence

import numpy as np

from taut.data.arrays import Ints
from taut.errors import FormulationError
from taut.formulations.schedules.schedule import LETTERS, Schedule

_PASS = re.compile(r"([0-9]{1,6})([FIWB])")
_WORD = re.compile(rf"(?:{_PASS.pattern})*")


def words_of(schedule: Schedule) -> tuple[str, ...]:
    """
    Word of every device, (1).

    Raises ``FormulationError`` if the micro-batches of some chunk and letter do not run in order.
    """
    words = tuple("".join(f"{chunk}{LETTERS[kind]}" for kind, chunk, _ in order.tolist()) for order in schedule.orders)
    for order, again in zip(schedule.orders, orders_of(words), strict=True):
        if not np.array_equal(order, again):
            raise FormulationError(f"{schedule.kind}: micro-batches out of order, expected each chunk's in order")
    return words


def orders_of(words: Sequence[str]) -> tuple[Ints, ...]:
    """
    Kind of pass, chunk and micro-batch (n, 3) of every pass, for each device.

    Raises ``FormulationError`` if a word is not made of chunk numbers and letters.
    """
    return tuple(_rows(word) for word in words)


def _rows(word: str) -> Ints:
    if not _WORD.fullmatch(word):
        raise FormulationError(f"order {word[:20]!r}: expected chunk numbers and letters, such as 0F1F1I1W")
    passes = [(LETTERS.index(letter), int(chunk)) for chunk, letter in _PASS.findall(word)]
    return np.array(list(_numbered(passes)), dtype=np.int64).reshape(-1, 3)


def _numbered(passes: Iterable[tuple[int, int]]) -> Iterable[tuple[int, int, int]]:
    """Passes with how often each came before."""
    seen: dict[tuple[int, int], int] = {}
    for each in passes:
        seen[each] = seen.get(each, -1) + 1
        yield *each, seen[each]
