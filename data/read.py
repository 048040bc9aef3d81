"""
Reading YAML and JSON safely: no object construction, no aliases, bounded size and depth, one clear line on error.

An alias lets a short YAML file stand for an exponentially large document, and no input here needs one, so aliases
are refused as a whole.
"""

import json
from pathlib import Path
from typing import Any, NoReturn

import yaml

from taut.errors import DataError

MAX_BYTES = 256 * 1024 * 1024


class _PlainLoader(yaml.SafeLoader):
    """A safe loader that refuses aliases and keys that stand twice."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()
            raise yaml.constructor.ConstructorError(
                None, None, f"alias *{event.anchor} is not allowed", event.start_mark
            )
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[object] = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(None, None, "a key is not a plain word", key_node.start_mark)
            key = key_node.value
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} stands twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


def read_text(path: Path, expected: str) -> str:
    """
    Text of a file.

    Raises
    ------
    DataError
        If the file is missing, too large or not UTF-8; the message says what was ``expected``.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        text = content.decode("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise DataError(f"{path}: {reason}, expected {expected}") from None
    if len(content) > MAX_BYTES:
        raise DataError(f"{path}: is larger than {MAX_BYTES} bytes, expected {expected}")
    return text


def read_yaml(path: Path, expected: str = "a YAML file") -> dict[str, Any]:
    """
    A YAML mapping as plain values.

    Raises
    ------
    DataError
        If the file cannot be read, is not YAML, uses aliases, or is not a mapping.
    """
    text = read_text(path, expected)
    try:
        # A subclass of SafeLoader: plain values only.
        values = yaml.load(text, Loader=_PlainLoader)
    except yaml.YAMLError as error:
        _refuse_yaml(path, error, expected)
    except RecursionError:
        raise DataError(f"{path}: is nested too deeply, expected {expected}") from None
    except (AttributeError, LookupError, ValueError) as error:
        # What the converters of PyYAML raise for 2024-13-45 or !!int x passes through it.
        raise DataError(f"{path}: holds a value of the wrong form ({error}), expected {expected}") from None
    return _mapping(values, path, expected)


def _refuse_yaml(path: Path, error: yaml.YAMLError, expected: str) -> NoReturn:
    mark = getattr(error, "problem_mark", None)
    where = f" line {mark.line + 1}" if mark is not None else ""
    problem = getattr(error, "problem", None) or "is not YAML"
    raise DataError(f"{path}{where}: {problem}, expected {expected}") from None


def read_json(path: Path, expected: str = "a JSON file") -> dict[str, Any]:
    """
    A JSON object as plain values.

    Raises
    ------
    DataError
        If the file cannot be read, is truncated or is not an object.
    """
    text = read_text(path, expected)
    try:
        values = json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise DataError(f"{path} line {error.lineno}: {error.msg}, expected {expected}") from None
    except ValueError as error:
        raise DataError(f"{path}: {error}, expected {expected}") from None
    except RecursionError:
        raise DataError(f"{path}: is nested too deeply, expected {expected}") from None
    return _mapping(values, path, expected)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"holds {name}")


def _mapping(values: object, path: Path, expected: str) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise DataError(f"{path}: holds {type(values).__name__}, expected {expected}")
    return values
