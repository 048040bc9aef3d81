"""
The nearest right name or number, for messages that refuse a wrong one.

Names are compared by their letters and digits alone, in lower case and without the organisation in front of a slash, so
``meta-llama/Llama-3-8B`` is ``llama3-8b``. A name that is part of another is near it, as ``h100`` is near
``h100-80gb``; any other name is near by the share of characters in common (Ratcliff and Obershelp, ``difflib``). Right
numbers are offered in pairs: the next one below, and the next above.
"""

import re
from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches

CUTOFF = 0.6
"""Share of characters in common, difflib's own default: ``lama3-8b`` is near ``llama3-8b``."""
SHORTEST = 3
"""Fewer characters are part of too many names to suggest one."""
LONGEST = 200
"""No name is longer; the comparison takes the square of the length."""
FEW = 12
"""So many names still fit into a message."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """
    The known name, of equally near ones the first, that a name was meant to be in any case; None without.

    Examples
    --------
    >>> nearest("Zb_v", ["1f1b", "zb-v", "v-half"])
    'zb-v'
    >>> nearest("h100", ["a100-80gb", "h100-80gb"])
    'h100-80gb'
    """
    by_letters: dict[str, str] = {}
    for each in known:
        by_letters.setdefault(_letters(each), each)
    wanted = _letters(name[:LONGEST])
    if wanted in by_letters:
        return by_letters[wanted]
    parts = [each for each in by_letters if _is_part(wanted, each) or _is_part(each, wanted)]
    if parts:
        return by_letters[max(parts, key=lambda each: SequenceMatcher(None, wanted, each).ratio())]
    found = get_close_matches(wanted, by_letters, n=1, cutoff=CUTOFF)
    return by_letters[found[0]] if found else None


def adjacent(values: Iterable[int], value: int) -> str:
    """
    The next of some numbers below a value and the next above it, in words; ``none`` where there is neither.

    Examples
    --------
    >>> adjacent([1, 2, 23, 46], 4)
    '2 or 23'
    """
    every = sorted(values)
    below, above = [each for each in every if each < value], [each for each in every if each > value]
    return " or ".join(map(str, [*below[-1:], *above[:1]])) or "none"


def multiples_around(value: int, of: int) -> list[int]:
    """The multiples of a number that are next to a value which is none: below, unless that is 0, and above."""
    below = value // of * of
    return [each for each in (below, below + of) if each]


def _letters(name: str) -> str:
    return re.sub(r"[\W_]", "", name.rpartition("/")[2].lower())


def _is_part(short: str, long: str) -> bool:
    return len(short) >= SHORTEST and short in long


def one_of(name: str, known: Iterable[str]) -> str:
    """
    What was expected, in words: the known names if they are few or none is near, and the nearest one.

    Examples
    --------
    >>> one_of("micro-batch", ["tp", "micro_batch"])
    'one of tp, micro_batch; did you mean micro_batch?'
    """
    names = list(known)
    near = nearest(name, names)
    listed = "a known one" if near and len(names) > FEW else f"one of {', '.join(names)}"
    return listed + (f"; did you mean {near}?" if near else "")
