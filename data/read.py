"""
Reading JSON and CSV safely: plain values alone, bounded in size and depth, one clear line on error.

A key or column that stands twice is refused, as is a whole number beyond 64 bits. ``taut.data.read_yaml`` reads YAML
likewise.

Lines that tools printed are read without what launchers and collectors of logs put before every line: Open MPI's
``[1,0]<stdout>:``, ranks of ``srun --label`` (``0: ``), names of hosts and pods, times of day, and escapes of
terminals. A prefix goes only where a line of a table or of remarks follows it.
"""

import csv
import errno
import io
import json
import math
import os
import re
import select
import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from taut.errors import DataError

MAX_BYTES = 256 * 1024 * 1024
MOST_JSON_VALUES = 4_000_000
MOST_OBJECTS = 1_000
"""JSON objects one after another in a file, as of a thousand nodes."""
MOST_CELLS = 2_000_000
"""Cells of a table that is read as a whole, of some 100 bytes each."""
PATIENCE_S = 5.0
"""Seconds in which who writes to a pipe has to begin, or go on."""
MOST_DEPTH = 64
"""Levels of nesting; a plan has ten."""
MOST_DIGITS = 19
"""Characters of a whole number; 64 bits hold every number that has fewer."""
_SPACE = re.compile(r"[ \t\n\r]*")

MOST_COLUMNS = 1_000
BLOCK = 1 << 20
"""Characters of a text whose lines are made at a time."""
MORE = "cells beyond the header"
"""Where ``rows_of`` puts what stands in no column."""


def too_many_digits(text: str) -> str:
    """What is wrong with a whole number beyond 64 bits."""
    return f"holds the number {text[:20]}... of {len(text)} characters, expected fewer than {MOST_DIGITS}"


def read_text(path: Path, expected: str, most: int | None = None) -> str:
    """Text of a UTF-8 file of at most ``most`` bytes; ``DataError`` says what was ``expected`` of the file."""
    most = MAX_BYTES if most is None else min(most, MAX_BYTES)
    try:
        content = _content(path, most)
        text = content.decode("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise DataError(f"{path}: {reason}, expected {expected}") from None
    if len(content) > most:
        raise DataError(f"{path}: is larger than {most} bytes, expected {expected}")
    return text


def _content(path: Path, most: int) -> bytes:
    """Bytes of a file, one more than ``most`` at most; of a pipe what comes, unless nothing does for some seconds."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    with open(handle, "rb", buffering=0) as file:
        mode = os.fstat(handle).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISFIFO(mode):
            os.set_blocking(handle, True)
            return _in_parts(file, most, lambda: None)
        waits = select.poll()
        waits.register(handle, select.POLLIN | select.POLLHUP)

        def wait() -> None:
            # A pipe that nobody has opened for writing yet shows no event, and none either while its writer sleeps.
            if not waits.poll(PATIENCE_S * 1000):
                raise OSError(errno.EPIPE, f"is a pipe to which nothing is written within {PATIENCE_S:g} s")

        return _in_parts(file, most, wait)


def _in_parts(file: io.FileIO, most: int, wait: Callable[[], None]) -> bytes:
    """Bytes of what may give fewer than it is asked for, such as a pipe; waited for before each part."""
    parts, size = list[bytes](), 0
    while size <= most:
        wait()
        part = file.read(min(1 << 24, most + 1 - size))
        if part == b"":
            break
        parts.append(part or b"")
        size += len(parts[-1])
    return b"".join(parts)


def check_count(text: str, path: Path, expected: str, most: int, signs: str = ",\n") -> int:
    """Refuse, before it is read, a text of more values than fit: none stands without a sign; returns how many."""
    found = sum(map(text.count, signs)) + 1
    if found > most:
        raise DataError(f"{path}: holds more than {most:,} values, expected {expected} of fewer")
    return found


def read_json(path: Path, expected: str = "a JSON file", unbounded: Collection[str] = ()) -> dict[str, Any]:
    """A JSON object as plain values, without the keys that may hold Infinity; ``DataError`` for anything else."""
    return read_json_objects(path, expected, unbounded, most=1)[0]


def read_json_objects(
    path: Path, expected: str, unbounded: Collection[str] = (), *, most: int = MOST_OBJECTS
) -> list[dict[str, Any]]:
    """The JSON objects of a file, one after another, as ``read_json`` has them; ``DataError`` beyond ``most``."""
    text = read_text(path, expected, MAX_BYTES // 2)
    check_count(text, path, expected, MOST_JSON_VALUES, ",")

    def bounded(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        """An object without the keys that may be unbounded."""
        for key, value in pairs:
            for each in value if isinstance(value, list) else [value]:
                if isinstance(each, _Unbounded) and key not in unbounded:
                    raise ValueError(f"holds {each}")
        return _object([(key, value) for key, value in pairs if key not in unbounded])

    constant: Callable[[str], Any] = _Unbounded if unbounded else _refuse_constant
    made = bounded if unbounded else _object
    found, at = list[object](), next(_SPACE.finditer(text)).end()
    try:
        decoder = json.JSONDecoder(parse_constant=constant, parse_int=_whole, object_pairs_hook=made)
        while not found or at < len(text):
            if len(found) == most:
                raise json.JSONDecodeError("Extra data", text, at)
            value, at = decoder.raw_decode(text, at)
            at = next(_SPACE.finditer(text, at)).end()
            found.append(value)
    except json.JSONDecodeError as error:
        raise DataError(f"{path} line {error.lineno}: {error.msg}, expected {expected}") from None
    except ValueError as error:
        raise DataError(f"{path}: {error}, expected {expected}") from None
    except RecursionError:
        raise DataError(f"{path}: is nested too deeply, expected {expected}") from None
    return [mapping_of(values, path, expected) for values in found]


class _Unbounded(str):
    """A number that JSON has no words for."""

    __slots__ = ()


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"holds {name}")


def _whole(text: str) -> int:
    if len(text) >= MOST_DIGITS:
        raise ValueError(too_many_digits(text))
    return int(text)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    for key in found:
        # Keys are printed as they are, and a line break or half a character pair in one is no name.
        if not key.isprintable():
            raise ValueError(f"key {key!a} is not printable")
    if len(found) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"key {key!r} stands twice")
            seen.add(key)
    return found


def mapping_of(values: object, path: Path, expected: str) -> dict[str, Any]:
    """The values of a file, refused by ``DataError`` unless they are a mapping of few levels."""
    if not isinstance(values, dict):
        raise DataError(f"{path}: holds {type(values).__name__}, expected {expected}")
    if _is_deep(values):
        raise DataError(f"{path}: is nested too deeply, expected {expected}")
    return values


def _is_deep(values: object) -> bool:
    """Whether containers are nested in more than ``MOST_DEPTH`` levels."""
    level = [values]
    for _ in range(MOST_DEPTH):
        level = [inner for each in level for inner in _contents(each) if isinstance(inner, (dict, list))]
        if not level:
            return False
    return True


def _contents(container: Any) -> Iterable[object]:
    return container.values() if isinstance(container, dict) else container


def rows_of(text: str, path: Path, expected: str) -> tuple[list[str], list[dict[str, str]]]:
    """Header and rows of a CSV file without remarks (``#``); a row's cells beyond the header are under ``MORE``."""
    check_count(text, path, expected, MOST_CELLS)
    columns, rows = table_of(text, path, expected)
    return columns, list(rows)


def table_of(text: str, path: Path, expected: str) -> tuple[list[str], Iterator[dict[str, str]]]:
    """Header and rows as of ``rows_of``, each row read, and refused, when it is asked for: there may be any number."""
    lines = _csv_lines(text, path, expected)
    columns = [cell.strip() for cell in next(lines, [])]
    if not columns:
        raise DataError(f"{path}: is empty, expected {expected}")
    if len(columns) > MOST_COLUMNS:
        raise DataError(f"{path}: has {len(columns)} columns, expected {expected} of at most {MOST_COLUMNS}")
    for column in columns:
        if columns.count(column) > 1:
            raise DataError(f"{path}: column {column!r} stands twice, expected once")
    return columns, (_row(columns, cells) for cells in lines)


def _csv_lines(text: str, path: Path, expected: str) -> Iterator[list[str]]:
    """Cells of every line that is not blank and no remark."""
    try:
        yield from (line for line in csv.reader(_without_remarks(text)) if line)
    except csv.Error as error:
        raise DataError(f"{path}: {error}, expected {expected}") from None


def positive_number(text: str, where: str) -> float:
    """A cell's number above 0; ``where`` names file, row and column for the message."""
    value = number_or_nan(text)
    if not (math.isfinite(value) and value > 0):
        raise DataError(f"{where} is {text[:30]!r}, expected a number above 0")
    return value


def number_or_nan(cell: object) -> float:
    """The number that a cell holds, NaN where it holds none."""
    try:
        return float(str(cell))
    except ValueError:
        return math.nan


def _without_remarks(text: str) -> Iterator[str]:
    """Lines that are no remarks, of about a megabyte of the text at a time."""
    at = 0
    while at < len(text):
        end = text.find("\n", at + BLOCK) + 1 or len(text)
        yield from (line for line in text[at:end].splitlines() if not line.startswith("#"))
        at = end


def _row(columns: list[str], cells: list[str]) -> dict[str, str]:
    more = {MORE: ",".join(cells[len(columns) :])} if len(cells) > len(columns) else {}
    return dict(zip(columns, cells, strict=False)) | more


MOST_ENTRIES = 4_000_000
"""As between 2,000 nodes."""


def read_matrix(path: Path) -> list[list[float]]:
    """Rows of a CSV matrix, without a header line and a column of names; ``DataError`` if an entry is no number."""
    text = read_text(path, "a CSV matrix")
    check_count(text, path, "a CSV matrix", MOST_ENTRIES)
    try:
        lines = [line for line in csv.reader(text.splitlines()) if line]
    except csv.Error as error:
        raise DataError(f"{path}: {error}, expected a CSV matrix") from None
    if lines and not all(is_number(cell) for cell in lines[0]):
        lines = [line[1:] for line in lines[1:]]
    for number, line in enumerate(lines, start=1):
        for column, cell in enumerate(line, start=1):
            if not is_number(cell):
                raise DataError(f"{path} row {number} column {column}: is {cell!r}, expected a bandwidth")
    return [[float(cell) for cell in line] for line in lines]


def is_number(cell: str) -> bool:
    """Whether a cell holds a number, of any size or none."""
    try:
        float(cell)
    except ValueError:
        return False
    return True


_ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_PARTS = (
    # times
    r"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?:?",
    r"\[?[A-Z][a-z]{2} +\d+ \d\d:\d\d:\d\d\]?",
    r"\[?\d\d:\d\d:\d\d(?:[.,]\d+)?\]?:?",
    r"\[[\d/-]*[.:/][\d./:-]*\]:?",
    # a quotation
    r">",
    # Kubernetes' own log, and a level
    r"std(?:out|err) [FP]",
    r"(?:DEBUG|INFO|WARNING|ERROR)\b *[:|-]?",
)
_HOSTS = (
    # Open MPI, and what else stands in brackets
    r"\[[\w.@/-]*\d+,\s*\d+\]\s*<std(?:out|err)>\s*:",
    r"\[[\w./:-]+\]:?",
    # Ray's worker
    r"\([\w .,:=/-]{1,200}\)",
    # a rank, a host, or a service with its process
    r"[\w.-]+(?:\[\d+\])?\s*[:|]",
)
_PREFIX = re.compile(rf"\s*(?:{'|'.join(_PARTS)}|(?P<host>{'|'.join(_HOSTS)})) ?")
_TABLE = re.compile(r"\s*(#|\d+\s+\d|GPU\d+\s|\d+\s+N/A|memcpy |SUM |Running |Waiving |Waived:)|\s*$")
MOST_PREFIXES = 4


def plain_lines(text: str) -> list[str]:
    """Lines of a text without the prefixes of launchers, and without escapes."""
    return [line for _, line in _parted(text, _TABLE)]


def lines_by_host(text: str, table: re.Pattern[str] = _TABLE) -> dict[str, list[tuple[int, str]]]:
    """Numbered lines by what launchers put before them, a host or a rank; empty: nothing. Blank lines go."""
    found: dict[str, list[tuple[int, str]]] = {}
    for number, (host, line) in enumerate(_parted(text, table), start=1):
        if line.strip():
            found.setdefault(host, []).append((number, line))
    return found


def _parted(text: str, table: re.Pattern[str]) -> list[tuple[str, str]]:
    """Host or rank, and what stands behind its prefix, of every line; nothing goes unless ``table`` follows it."""
    return [_plain(line, table) for line in _ESCAPE.sub("", text).splitlines()]


def _plain(line: str, table: re.Pattern[str]) -> tuple[str, str]:
    rest, host = line, ""
    for _ in range(MOST_PREFIXES):
        if table.match(rest):
            return host, rest
        match = _PREFIX.match(rest)
        if match is None:
            break
        host += (match["host"] or "").rstrip(": |")
        rest = rest[match.end() :]
    return (host, rest) if table.match(rest) else ("", line)
