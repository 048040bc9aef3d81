"""
Files that are written whole or not at all.

A regular file is replaced by a complete one in a single step; of a symbolic link that is the file at its end, and the
link stays. What is no regular file (a device, a named pipe, ``/dev/stdout``, a shell's ``>(command)``) is written as
it is and never replaced.
"""

import os
import stat
import tempfile
from pathlib import Path

from taut.errors import DataError

MOST_LINKS = 40
"""Links that Linux follows before it takes them for a loop."""


def is_special(path: Path) -> bool:
    """Whether a path leads to something that exists and is neither a regular file nor a folder, or is open here."""
    if _descriptor(path) is not None:
        return True
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _descriptor(path: Path) -> int | None:
    """Number of the open file of this process that a path such as ``/dev/stdout`` or ``/dev/fd/63`` names."""
    own = f"/proc/{os.getpid()}/fd"
    for _ in range(MOST_LINKS):
        if path.name.isdecimal() and os.path.realpath(path.parent) == own:
            return int(path.name)
        if not path.is_symlink():
            return None
        path = path.parent / os.readlink(path)
    return None


def write_atomically(path: Path, content: str | bytes) -> None:
    """
    Write a regular file whole or not at all, and anything else in place. Text is UTF-8.

    ``path``: file to write or replace; of a link, the file at its end; ``content``: all of the file. Raises
    ``DataError`` if the folder does not exist, or the file cannot be written.
    """
    data = content.encode() if isinstance(content, str) else content
    try:
        if is_special(path):
            _write_through(path, data)
        else:
            _replace(Path(os.path.realpath(path)), data)
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror}), expected a writable file name") from None


def _write_through(path: Path, data: bytes) -> None:
    # An open file is duplicated, so that what is written later stands behind; nothing is created or cut short.
    descriptor = _descriptor(path)
    handle = os.open(path, os.O_WRONLY) if descriptor is None else os.dup(descriptor)
    with os.fdopen(handle, "wb") as file:
        file.write(data)


def _replace(path: Path, data: bytes) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
