"""
What is done of a sweep, kept so that a kill at any time loses no finished point.

Beside the result stands a file of lines, one JSON object each: a header, then key and results of every finished point.
A line is written whole and synchronised with the disk before the next point is reported. A kill can only cut the last
line, which is dropped when the journal is opened again. Two sweeps cannot hold one journal at the same time.
"""

import fcntl
import json
import os
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from taut.errors import DataError

HEADER = {"format": "taut-sweep-journal/1"}


def journal_path(out: Path) -> Path:
    """The journal of a result."""
    return out.with_name(out.name + ".journal")


class Journal:
    """The journal beside a result, made where it is not there yet, and open for one sweep at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = path.open("a+b")
        except OSError as error:
            raise DataError(f"{path}: cannot be written ({error.strerror}), expected a writable file name") from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.done = self._read()
        except OSError:
            self._file.close()
            raise DataError(f"{path}: another sweep is writing it, expected another --out") from None
        except DataError:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def add(self, key: str, results: dict[str, Any]) -> None:
        """Keep the results of a point."""
        self._write({"key": key, "results": results})
        self.done[key] = results

    def _write(self, values: dict[str, Any]) -> None:
        self._file.write(json.dumps(values).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def _read(self) -> dict[str, dict[str, Any]]:
        """Results by key; what a kill cut is dropped from the file."""
        self._file.seek(0)
        whole, _, cut = self._file.read().rpartition(b"\n")
        if cut and not (whole or json.dumps(HEADER).encode().startswith(cut)):
            raise self._other()
        if cut:
            self._file.truncate(len(whole) + 1 if whole else 0)
        lines = whole.split(b"\n") if whole else []
        if not lines:
            self._write(HEADER)
        elif lines[0] != json.dumps(HEADER).encode():
            raise self._other()
        return dict(self._line(text, number) for number, text in enumerate(lines[1:], start=2))

    def _line(self, text: bytes, number: int) -> tuple[str, dict[str, Any]]:
        try:
            values = json.loads(text)
            return str(values["key"]), dict(values["results"])
        except (ValueError, KeyError, TypeError):
            raise DataError(f"{self.path} line {number}: is no finished point, expected the file removed") from None

    def _other(self) -> DataError:
        return DataError(f"{self.path}: is no journal of taut sweep, expected another --out")
