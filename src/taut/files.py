"""Files that are written whole or not at all."""

import os
import tempfile
from pathlib import Path

from taut.errors import DataError


def write_atomically(path: Path, content: str | bytes) -> None:
    """
    Write a file whole or not at all; text as UTF-8.

    Raises
    ------
    DataError
        If the folder does not exist or cannot be written.
    """
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content.encode() if isinstance(content, str) else content)
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(temporary, 0o666 & ~umask)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror}), expected a writable file name") from None
