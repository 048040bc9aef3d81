"""
Files that are written whole or not at all.

A regular file is replaced by a complete one in a single step, which is on the disk before the old one goes, and keeps
its mode, and its owner where the process may give files away. Of a symbolic link that is the file at its end, and the
link stays. A file with several names (hard links) is written in place, once the new content is whole on the disk beside
it, so that all names lead to it. A signal that comes meanwhile is heard behind it. What is no regular file (a device, a
named pipe, ``/dev/stdout``, a shell's ``>(command)``) is written as it is and never replaced.
"""

import os
import signal
import stat
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.resources import files
from pathlib import Path

from taut.errors import DataError

MOST_LINKS = 40
"""Links that Linux follows before it takes them for a loop."""

HELD_BACK = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGALRM") if hasattr(signal, name)]
"""Signals that wait until a file is whole."""


def template(name: str) -> str:
    """Text of a file of the folder ``templates``, to fill in."""
    return (files("taut") / "templates" / name).read_text(encoding="utf-8")


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
    """Write all of a regular file or nothing, and anything else in place; of a link its target. Text is UTF-8."""
    data = content.encode() if isinstance(content, str) else content
    try:
        if is_special(path):
            _write_through(path, data)
        else:
            with uninterrupted():
                _replace(Path(os.path.realpath(path)), data)
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror}), expected a writable file name") from None


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold back Ctrl-C, requests to terminate and alarms, which are sent again behind the block."""
    if threading.current_thread() is not threading.main_thread():
        # Python calls handlers in the main thread alone.
        yield
        return
    came = dict[int, None]()
    before = {each: signal.signal(each, lambda number, _: came.setdefault(number)) for each in HELD_BACK}
    try:
        yield
    finally:
        for number, handler in before.items():
            # A handler that was not set from Python has no value here.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        for number in came:
            signal.raise_signal(number)


def made_folder(folder: str | Path, expected: str = "a folder", *, parents: bool = False) -> Path:
    """A folder, which is made unless it is there, on request with those that it lies in."""
    folder = Path(folder)
    try:
        folder.mkdir(parents=parents, exist_ok=True)
    except OSError as error:
        raise DataError(f"{folder}: cannot be made ({error.strerror}), expected {expected}") from None
    return folder


def _write_through(path: Path, data: bytes) -> None:
    # An open file is duplicated, so that what is written later stands behind; nothing is created or cut short.
    descriptor = _descriptor(path)
    handle = os.open(path, os.O_WRONLY) if descriptor is None else os.dup(descriptor)
    with os.fdopen(handle, "wb") as file:
        file.write(data)


def _replace(path: Path, data: bytes) -> None:
    # A short name of its own, since that of the file may be as long as the system allows.
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".taut-", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        there = path.stat() if path.exists() else None
        if there is not None and there.st_nlink > 1 and stat.S_ISREG(there.st_mode):
            _write_in_place(path, data)
            os.unlink(temporary)
        else:
            _take_over(temporary, there)
            os.replace(temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    _sync_folder(path.parent)


def _take_over(temporary: str, there: os.stat_result | None) -> None:
    """Mode of the file that is replaced, with its owner and group where that is allowed; else the usual mode."""
    if there is None:
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        return
    if os.name == "posix" and (there.st_uid, there.st_gid) != (os.geteuid(), os.getegid()):
        with suppress(OSError):
            os.chown(temporary, there.st_uid, there.st_gid)
    os.chmod(temporary, stat.S_IMODE(there.st_mode))


def _write_in_place(path: Path, data: bytes) -> None:
    with path.open("r+b") as file:
        file.write(data)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Put the new name on the disk too, where the system lets folders be synced."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
