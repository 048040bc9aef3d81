"""Settings of a paper by a part of their names."""

from taut.data.suggest import one_of
from taut.errors import FieldError


def places_with(only: str, names: list[str]) -> list[int]:
    """
    Places of the names that contain a text.

    ``only``: the text; every name contains an empty one. Raises ``FieldError`` if no name contains it.

    Examples
    --------
    >>> places_with("8 nodes", ["8 nodes of a", "16 nodes of a", "8 nodes of b"])
    [0, 2]
    """
    if found := [place for place, name in enumerate(names) if only in name]:
        return found
    raise FieldError("only", only, f"expected a part of {one_of(only, names)}")
