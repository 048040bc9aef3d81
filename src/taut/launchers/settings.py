"""What a launcher is told, as values of a configuration, and what its words are compared with."""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from taut.data.model import ModelSpec
from taut.data.suggest import adjacent
from taut.formulations.degrees import divisors


@cache
def _tables() -> dict[str, Any]:
    import yaml

    found: dict[str, Any] = yaml.safe_load((files("taut.launchers") / "known.yaml").read_text("utf-8"))
    return found


def known(name: str) -> Any:
    """A list or table of names of ``known.yaml``, which says what each is."""
    return _tables()[name]


DECIDING = re.compile("|".join(known("deciding")))
"""Words of a setting's name that speak of memory or time; a setting with one is read, or named."""


GENERATION = re.compile(rf"-*({'|'.join(known('generation'))})[-_.]")
"""Beginnings of names that say nothing of the training of the model."""
MOST_NAMES = 8
"""Names of settings beyond which those that speak of memory or time stand apart from the others."""


def unpriced(names: Sequence[str]) -> Iterator[str]:
    """Sentences on settings that nothing prices; of many, those first that speak of memory or time."""
    first = [name for name in names if DECIDING.search(name) and not GENERATION.match(name)]
    if len(names) <= MOST_NAMES:
        first = [*names]
    if first:
        yield f"not priced: {', '.join(first)}"
    others: dict[str, list[str]] = {}
    for name in names:
        if name not in first:
            others.setdefault(re.sub(r"(?s)^(-*[^-_.]*).*", r"\1", name), []).append(name)
    shown = [f"{word}-* ({len(each)})" if len(each) > 2 else ", ".join(each) for word, each in others.items()]
    if shown:
        yield f"not priced, nor of memory or time by their names: {', '.join(shown)}"


class Run(NamedTuple):
    """What a launcher's words are compared with, None where it is not known: the model, and the number of devices."""

    model: ModelSpec | None = None
    devices: int | None = None

    @property
    def layers(self) -> int:
        """Layers of the model, 0 where no model is known."""
        return len(self.model.blocks) if self.model is not None else 0


class Launch(NamedTuple):
    """
    What a launcher is told.

    ``values``: fields of a configuration (``taut.comparison.compare``), and ``global_batch``; ``options``: options of
    ``taut.plan`` that the words state, such as ``precision`` and ``seq``; ``named``: sentences on settings that are not
    priced, or are priced otherwise than stated; ``flags``: those of Megatron-LM or torchtitan
    that are on, where no recipe decides the others.
    """

    values: dict[str, Any]
    options: dict[str, Any] = {}
    named: tuple[str, ...] = ()
    flags: frozenset[str] | None = None


def nearest(total: int, value: int) -> str:
    """The next divisor of ``total`` below ``value`` and the next above it, in words."""
    return adjacent(divisors(total), value)
