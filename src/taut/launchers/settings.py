"""What a launcher is told, as values of a configuration, and what its words are compared with."""

from typing import Any, NamedTuple

from taut.data.model import ModelSpec


class Run(NamedTuple):
    """What stands beside a launcher's words, None where it is not known: the model, and the number of devices."""

    model: ModelSpec | None = None
    devices: int | None = None

    @property
    def layers(self) -> int:
        """Layers of the model, 0 where no model is known."""
        return len(self.model.blocks) if self.model is not None else 0


class Launch(NamedTuple):
    """
    What a launcher is told.

    ``values`` are those of ``taut.comparison.current``, and ``global_batch``; ``options`` are options of a request that
    the words state, such as ``precision`` and ``seq``; ``named`` are the settings that nothing prices, in words.
    """

    values: dict[str, Any]
    options: dict[str, Any] = {}
    named: tuple[str, ...] = ()


def nearest(total: int, value: int, most: int | None = None) -> str:
    """
    The divisors of a number next to a value, in words.

    Examples
    --------
    >>> nearest(46, 4)
    '2 or 23'
    >>> nearest(60, 8)
    '6 or 10'
    """
    every = [each for each in range(1, total + 1) if total % each == 0 and (most is None or each <= most)]
    below, above = [each for each in every if each < value], [each for each in every if each > value]
    return " or ".join(map(str, [*below[-1:], *above[:1]]))
