"""Damage to files: what editors, other tools, broken transfers and ill will do to YAML, JSON, CSV and plain text."""

import copy
import random
import re
from collections.abc import Callable
from typing import Any

NUMBERS = [
    *("0", "-1", "1", "2", "3", "7", "0.5", "-0.0", "1e9", "08", "1:30", "0x10", "1_000", "1" + "0" * 30),
    *(
        "1e-320",
        "5e-324",
        "1e-31",
        "1e31",
        "1e300",
        "-1e308",
        "1e308",
        "1e999",
        "nan",
        "NaN",
        "inf",
        "-inf",
        "Infinity",
    ),
    *("9007199254740993", "9223372036854775807", "9223372036854775808", "-9223372036854775809"),
    *("1" + "0" * 400, "9" * 5000, "1." + "0" * 300 + "1"),
]
WORDS = [
    *("true", "false", "null", "yes", "no", "~", "[]", "{}", "[1]", "{a:1}", "''", '""', "none", "full", "block"),
    *("a100-80gb", "dgx-h100", "*a", "&a", "!!int", "!!python/x", "|", ">", "---", "#", "%", "\t", "\r", "x" * 300),
    *("\u202e", "ü", "数", "\U0001f600", "\x00", "\x1b[31m", "\ufeff", "\u2028"),
]
VALUES: list[Any] = [
    *(None, True, False, 0, 1, 2, -1, 3.5, 1e-320, 1e31, 1e308, 10**10, 10**17, 2**62, 10**400),
    *("", "8", "true", "1e9", "x" * 300, "\x1b[31m", "ü\u2028", "block", "none", "1f1b"),
    *([], {}, [1], [[]], [None], {"a": 1}, {"": None}),
]
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?")
_WORD = re.compile(r"[A-Za-z_][\w-]*")


def damaged(text: str, rng: random.Random) -> bytes:
    """A file's bytes after one to three kinds of damage."""
    for _ in range(rng.randint(1, 3)):
        text = rng.choice(DAMAGES)(text, rng)
    return _encoded(text, rng)


def damaged_values(values: Any, rng: random.Random) -> Any:
    """A copy of plain values after one to three changes at random places."""
    copied = copy.deepcopy(values)
    for _ in range(rng.randint(1, 3)):
        _change(copied, rng)
    return copied


def _encoded(text: str, rng: random.Random) -> bytes:
    kind = rng.random()
    content = text.encode("utf-16" if kind < 0.01 else "utf-8-sig" if kind < 0.05 else "utf-8", "surrogatepass")
    if kind > 0.85 and content:
        flipped = bytearray(content)
        for _ in range(rng.randint(1, 4)):
            flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(8)
        content = bytes(flipped)
    return content


def _span(text: str, rng: random.Random) -> tuple[int, int]:
    start = rng.randrange(len(text) + 1)
    return start, min(len(text), start + rng.randint(1, 40))


def _truncate(text: str, rng: random.Random) -> str:
    return text[: rng.randrange(len(text) + 1)]


def _delete(text: str, rng: random.Random) -> str:
    start, end = _span(text, rng)
    return text[:start] + text[end:]


def _repeat(text: str, rng: random.Random) -> str:
    start, end = _span(text, rng)
    return text[:end] + text[start:end] * rng.randint(1, 3) + text[end:]


def _move(text: str, rng: random.Random) -> str:
    start, end = _span(text, rng)
    rest = text[:start] + text[end:]
    place = rng.randrange(len(rest) + 1)
    return rest[:place] + text[start:end] + rest[place:]


def _lines(text: str, rng: random.Random) -> str:
    """Swap, repeat or drop lines: keys twice, rows out of order, a header that is gone."""
    lines = text.splitlines(keepends=True)
    if not lines:
        return text
    i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
    kind = rng.randrange(3)
    if kind == 0:
        lines[i], lines[j] = lines[j], lines[i]
    elif kind == 1:
        lines.insert(j, lines[i])
    else:
        del lines[i]
    return "".join(lines)


def _token(pattern: re.Pattern[str], pool: list[str]) -> Callable[[str, random.Random], str]:
    def replace(text: str, rng: random.Random) -> str:
        found = list(pattern.finditer(text))
        if not found:
            return text
        match = rng.choice(found)
        return text[: match.start()] + rng.choice(pool) + text[match.end() :]

    return replace


def _swap_tokens(text: str, rng: random.Random) -> str:
    found = [*_NUMBER.finditer(text), *_WORD.finditer(text)]
    if len(found) < 2:
        return text
    one, other = sorted(rng.sample(found, 2), key=lambda match: match.start())
    if one.end() > other.start():
        return text
    return text[: one.start()] + other[0] + text[one.end() : other.start()] + one[0] + text[other.end() :]


def _insert(text: str, rng: random.Random) -> str:
    place = rng.randrange(len(text) + 1)
    return text[:place] + rng.choice([*NUMBERS, *WORDS, ",", ":", "\n", '"', "'", "[", "}", ";", " "]) + text[place:]


def _nest(text: str, rng: random.Random) -> str:
    place, depth = rng.randrange(len(text) + 1), rng.choice([5, 70, 500, 5000])
    opening, closing = rng.choice([("[", "]"), ('{"a":', "}"), ("{a: ", "}"), ("(", ")"), ("- ", "")])
    return text[:place] + opening * depth + closing * depth + text[place:]


def _separators(text: str, rng: random.Random) -> str:
    old, new = rng.choice([(",", ";"), (",", "\t"), ("\n", "\r\n"), ("\n", "\r"), (":", "="), ('"', "'"), (" ", "\t")])
    return text.replace(old, new)


DAMAGES: list[Callable[[str, random.Random], str]] = [
    _truncate,
    _delete,
    _repeat,
    _move,
    _lines,
    _token(_NUMBER, NUMBERS),
    _token(_NUMBER, NUMBERS),
    _token(_NUMBER, WORDS),
    _token(_WORD, WORDS),
    _token(_WORD, NUMBERS),
    _swap_tokens,
    _insert,
    _nest,
    _separators,
]


def _change(values: Any, rng: random.Random) -> None:
    """Replace, drop, repeat or exchange something at a random depth."""
    while True:
        keys = list(values) if isinstance(values, dict) else list(range(len(values)))
        if not keys:
            return
        key = rng.choice(keys)
        if isinstance(values[key], dict | list) and values[key] and rng.random() < 0.8:
            values = values[key]
            continue
        break
    kind = rng.randrange(6)
    if kind == 0:
        del values[key]
    elif kind == 1 and isinstance(values, list):
        values.insert(rng.randrange(len(values) + 1), copy.deepcopy(values[key]))
    elif kind == 2:
        other = rng.choice(keys)
        values[key], values[other] = values[other], values[key]
    elif kind == 3 and isinstance(values[key], int | float) and abs(values[key]) < 1e18:
        values[key] = values[key] * rng.choice([-1, 0, 0.5, 2, 3, 1e6, 1 + 1e-6])
    else:
        values[key] = copy.deepcopy(rng.choice(VALUES))
