"""Files are written whole or not at all, and what is no regular file is written as it is."""

import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from taut.errors import DataError
from taut.files import is_special, write_atomically

posix = pytest.mark.skipif(os.name != "posix", reason="devices, pipes and links as POSIX has them")


def test_failed_writing_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where writing or renaming fails, the file that was there stays whole and no part of a new one is left."""
    path = tmp_path / "plan.json"
    write_atomically(path, "old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(DataError, match=r"plan.json: cannot be written \(No space left on device\)"):
        write_atomically(path, "new")
    monkeypatch.undo()
    with pytest.raises(UnicodeEncodeError):
        write_atomically(path, "\ud800")
    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]


STEPS = "tempfile.mkstemp", "os.fsync", "os.chmod", "os.replace"


@posix
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGALRM])
def test_a_signal_waits_until_the_file_is_whole(
    step: str, number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal at any step of the writing ends the command behind it: the new file is whole, and no part is left."""
    path = tmp_path / "plan.json"
    write_atomically(path, "old")

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(number, end)
    home, name = step.split(".")
    old = getattr(sys.modules[home], name)

    def signalled(*args: Any, **options: Any) -> Any:
        result = old(*args, **options)
        signal.raise_signal(number)
        return result

    monkeypatch.setattr(step, signalled)
    try:
        with pytest.raises(KeyboardInterrupt):
            write_atomically(path, "new")
        assert signal.getsignal(number) is end
    finally:
        signal.signal(number, before)
    assert path.read_text(encoding="utf-8") == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_writing_to_no_folder_is_refused(tmp_path: Path) -> None:
    """A folder that does not exist, or a folder in place of a file, is one line and leaves nothing behind."""
    with pytest.raises(DataError, match=r"cannot be written \(No such file or directory\), expected a writable"):
        write_atomically(tmp_path / "nowhere" / "plan.json", "text")
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(DataError, match=r"folder: cannot be written \(Is a directory\)"):
        write_atomically(folder, "text")
    assert list(tmp_path.iterdir()) == [folder]


@posix
def test_link_stays_and_its_target_is_replaced(tmp_path: Path) -> None:
    """A symbolic link still leads to its target, which holds the new content; so does one to a file not there yet."""
    target, link, new = tmp_path / "target.json", tmp_path / "link.json", tmp_path / "new.json"
    target.write_text("old", encoding="utf-8")
    link.symlink_to("target.json")
    write_atomically(link, "new")
    assert link.is_symlink() and target.read_text(encoding="utf-8") == "new"
    target.unlink()
    write_atomically(link, "again")
    assert link.is_symlink() and target.read_text(encoding="utf-8") == "again"
    assert sorted(tmp_path.iterdir()) == [link, target]
    assert not new.exists()


@posix
def test_pipe_is_written_through(tmp_path: Path) -> None:
    """A named pipe hands all bytes to its reader and stays a pipe."""
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text(encoding="utf-8")), daemon=True)
    reader.start()
    assert is_special(pipe)
    write_atomically(pipe, "x" * 200_000)
    reader.join(30)
    assert read == ["x" * 200_000]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@posix
def test_devices_are_never_replaced() -> None:
    """``/dev/null`` takes everything, a full device refuses in one line, and both are devices as before."""
    write_atomically(Path("/dev/null"), "text")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    if Path("/dev/full").exists():
        with pytest.raises(DataError, match=r"/dev/full: cannot be written \(No space left on device\)"):
            write_atomically(Path("/dev/full"), "text")
        assert stat.S_ISCHR(os.stat("/dev/full").st_mode)


@posix
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files by their number as Linux has them")
@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_own_output_is_written_in_turn(name: str, tmp_path: Path) -> None:
    """An open file that a path names is neither replaced nor cut short, even if it is a regular one."""
    out = tmp_path / "out"
    code = (
        "import os, pathlib, taut.files as f; os.write(1, b'one '); "
        f"f.write_atomically(pathlib.Path({name!r}), 'two '); os.write(1, b'three')"
    )
    with out.open("wb") as file:
        subprocess.run([sys.executable, "-c", code], stdout=file, check=True)
    assert out.read_text(encoding="utf-8") == "one two three"


def test_new_file_has_the_usual_permissions(tmp_path: Path) -> None:
    """Not those of a temporary file."""
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "plan.json", "text")
    finally:
        os.umask(before)
    if os.name == "posix":
        assert (tmp_path / "plan.json").stat().st_mode & 0o777 == 0o640


@posix
def test_what_is_replaced_keeps_its_mode_and_its_names(tmp_path: Path) -> None:
    """A secret stays one, a file that others may write stays so, and both names of a file lead to the new content."""
    path, other = tmp_path / "plan.json", tmp_path / "other.json"
    for mode in (0o600, 0o664, 0o755):
        path.write_text("old", encoding="utf-8")
        path.chmod(mode)
        write_atomically(path, "new")
        assert stat.S_IMODE(path.stat().st_mode) == mode
    os.link(path, other)
    write_atomically(path, "shorter, or longer than before")
    write_atomically(path, "short")
    assert other.read_text(encoding="utf-8") == path.read_text(encoding="utf-8") == "short"
    assert other.stat().st_ino == path.stat().st_ino and stat.S_IMODE(other.stat().st_mode) == 0o755
    assert sorted(tmp_path.iterdir()) == [other, path]


def test_a_name_at_the_systems_limit_is_written(tmp_path: Path) -> None:
    """255 bytes, of letters or of signs that take several."""
    for name in ("n" * 250 + ".json", "\u00e4" * 125 + ".json"):
        write_atomically(tmp_path / name, "text")
        write_atomically(tmp_path / name, "again")
        assert (tmp_path / name).read_text(encoding="utf-8") == "again"


@posix
def test_written_data_is_on_the_disk_before_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The content is synced before the old file goes, and the folder after it."""
    order: list[str] = []

    def noted(name: str) -> None:
        real = getattr(os, name)

        def call(*given: Any) -> None:
            order.append(name)
            real(*given)

        monkeypatch.setattr(os, name, call)

    noted("fsync")
    noted("replace")
    write_atomically(tmp_path / "plan.json", "text")
    assert order == ["fsync", "replace", "fsync"]
