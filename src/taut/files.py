"""Files that are written whole or not at all."""

import os
import tempfile
from pathlib import Path

from taut.errors import DataError


def write_atomically(path: Path, text: str) -> None:
    """
    Write a file whole or not at all.

    Raises
    ------
    DataError
        If the folder does not exist or cannot be written.
    """
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(temporary, 0o666 & ~umask)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror}), expected a writable file name") from None
