"""Where the files of other projects lie: in a folder that is given, or up to two levels below it."""

from pathlib import Path

DEPTHS = "", "*/", "*/*/"


def places_of(folder: Path, pattern: str) -> list[Path]:
    """
    Files and folders of a name, those of the folder itself first.

    ``pattern``: name, with ``*`` for any text.
    """
    return [path for depth in DEPTHS for path in sorted(folder.glob(f"{depth}{pattern}"))]
