"""The nearest right name, for messages that refuse a wrong one."""

from collections.abc import Iterable
from difflib import get_close_matches

CUTOFF = 0.6
"""Share of letters in common, difflib's own default: ``lama3-8b`` is near ``llama3-8b``."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """
    The known name that a name was probably meant to be, whatever the case; None where none is near.

    Parameters
    ----------
    name
        What was given.
    known
        Every right name.

    Examples
    --------
    >>> nearest("Zb_v", ["1f1b", "zb-v", "v-half"])
    'zb-v'
    """
    by_letters = {each.lower().replace("_", "-"): each for each in known}
    found = get_close_matches(name.lower().replace("_", "-"), by_letters, n=1, cutoff=CUTOFF)
    return by_letters[found[0]] if found else None


def one_of(name: str, known: Iterable[str]) -> str:
    """
    The words ``one of a, b``, and the nearest of them where one is near.

    Examples
    --------
    >>> one_of("micro-batch", ["tp", "micro_batch"])
    'one of tp, micro_batch; did you mean micro_batch?'
    """
    names = list(known)
    near = nearest(name, names)
    return f"one of {', '.join(names)}" + (f"; did you mean {near}?" if near else "")
