"""
What a user names: an entry of the catalog, or a YAML file of one's own.

A file that states no name has its own. A wrong name is refused with the nearest right one (``taut.data.suggest``).
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from taut.data.read import read_yaml
from taut.data.spec import shorten
from taut.data.suggest import nearest
from taut.errors import DataError

Name = str | os.PathLike[str]
"""A catalog name or a file."""


def values_of_file(what: str, name: str, known: Iterable[str], otherwise: str = "a .yaml file") -> dict[str, Any]:
    """
    Plain values of the YAML file that a user names.

    ``what``: what the file describes, such as ``calibration``; ``name``: what was given, no name of the catalog;
    ``known``: names of the catalog; ``otherwise``: what may stand for a catalog name, in words. Raises ``DataError`` if
    it is no YAML file, or one that cannot be read.
    """
    if not name.endswith((".yaml", ".yml")):
        raise DataError(unknown_name(what, name, known, otherwise))
    path = Path(name)
    return {"name": path.stem, **read_yaml(path, f"a {what} file")}


def unknown_name(
    what: str, name: str, known: Iterable[str], otherwise: str, base: str | None = None, count: str = ""
) -> str:
    """The refusal of a name, with the known one nearest to its ``base``, and ``count`` nodes as in the name."""
    names = list(known)
    fault = "is a folder" if os.path.isdir(name) else "is not in the catalog"
    near = nearest(name if base is None else base, names)
    listed = "a catalog name" if near else f"one of {', '.join(names)}"
    return f"{what} {shorten(name)} {fault}, expected {listed}, or {otherwise}" + (
        f"; did you mean {near}{count}?" if near else ""
    )
