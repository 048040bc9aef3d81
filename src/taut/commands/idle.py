"""
Options without an effect beside others: refused by name, by one rule for all verbs.

An option that does nothing would let its user believe in a figure that nobody computed. What has its default is not
given, so it is never refused.
"""

from collections.abc import Mapping

from taut.errors import FieldError


def refuse_idle(given: Mapping[str, tuple[object, object]], beside: str) -> None:
    """
    Refuse options that have no effect.

    ``given``: values with their defaults, by option; ``beside``: what takes their effect away, such as ``policy cbc``.
    Raises ``FieldError`` for the first whose value is not its default.
    """
    for name, (value, usual) in given.items():
        if value != usual:
            shown = str(value).lower() if isinstance(value, bool) else str(value)
            raise FieldError(name, shown, f"has no effect with {beside}, expected none")
