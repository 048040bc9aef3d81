"""Damaged files end in a value or in one line of refusal, never in a traceback or without end."""

import json
import random
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from taut.errors import TautError
from tests.fuzz.mutations import damaged, damaged_values
from tests.fuzz.targets import Target, readers

SECONDS = 30
"""A file that is read for longer than this is taken for one that is read without end."""
QUICK, MANY = 10, 330
"""Files for each reader, in every run and in the long one; there are some thirty readers."""
READERS = readers()


@contextmanager
def ended() -> Iterator[None]:
    """Stop what takes too long."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"no end within {SECONDS} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def check(read: Callable[[Path], object], path: Path, content: bytes) -> str:
    """How a reader takes a file: ``read`` or ``refused``, in one printable line."""
    path.write_bytes(content)
    try:
        with ended(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            read(path)
    except TautError as error:
        message = str(error)
        assert message.strip(), "an empty message"
        assert "\n" not in message, message
        assert message.isprintable(), repr(message)
        return "refused"
    return "read"


def outcomes(target: Target, folder: Path, count: int) -> dict[str, int]:
    """How often damaged files of a target are read and refused, and the file of the first fault in the message."""
    found = {"read": 0, "refused": 0}
    for seed in range(count):
        rng = random.Random(f"{target.name} {seed}")
        content = _content(target, rng)
        try:
            found[check(target.read, folder / f"f{target.ending}", content)] += 1
        except Exception as error:
            raise AssertionError(f"{target.name} {seed}: {error!r} on {content[:3000]!r}") from error
    return found


def _content(target: Target, rng: random.Random) -> bytes:
    """Half of the JSON and YAML files stay what they are, and are wrong in what they say."""
    if target.ending in (".json", ".yaml") and rng.random() < 0.5:
        return json.dumps(damaged_values(yaml.safe_load(target.text), rng)).encode("utf-8", "surrogatepass")
    return damaged(target.text, rng)


@pytest.mark.parametrize("target", READERS, ids=lambda target: target.name)
def test_right_files_are_read(target: Target, tmp_path: Path) -> None:
    """What the damage starts from is right, so that readers are reached beyond their first check."""
    assert check(target.read, tmp_path / f"f{target.ending}", target.text.encode()) == "read"


@pytest.mark.parametrize("target", READERS, ids=lambda target: target.name)
def test_damaged_files_are_read_or_refused(target: Target, tmp_path: Path) -> None:
    """A few damaged files of every kind."""
    found = outcomes(target, tmp_path, QUICK)
    assert sum(found.values()) == QUICK


@pytest.mark.long
@pytest.mark.parametrize("target", READERS, ids=lambda target: target.name)
def test_many_damaged_files_are_read_or_refused(target: Target, tmp_path: Path) -> None:
    """Ten thousand damaged files over all readers."""
    found = outcomes(target, tmp_path, MANY)
    assert found["refused"] > MANY / 20, "hardly any file is refused, so the damage does not reach the reader"
