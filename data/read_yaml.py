"""
Reading YAML safely: plain values alone, bounded in size and depth, one clear line on error.

An alias lets a short YAML file stand for an exponentially large document, and no input here needs one, so aliases
are refused as a whole. A key that stands twice is refused, as is a whole number beyond 64 bits. Numbers are those of
YAML 1.2 (its core schema, 10.3.2): ``1e9`` is one, ``1_000`` and ``1:30`` are text, and ``010``, which is 8 in YAML
1.1, is refused.
"""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import yaml

from taut.data.read import MOST_DEPTH, MOST_DIGITS, check_count, mapping_of, read_text, too_many_digits
from taut.errors import DataError

MOST_VALUES = 250_000
"""Values of a YAML file; PyYAML takes some 20 microseconds for each, and a matrix between 500 nodes has as many."""
FEW_VALUES = 20_000
"""Values up to which the loader in Python reads a file, whose complaints are clearer than those of libyaml."""
MAX_YAML_BYTES = 16 * 1024 * 1024
"""PyYAML reads about a megabyte a second; a matrix between 1,000 nodes takes 8."""

_INT, _FLOAT = "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"
_NUMBERS = {
    _INT: re.compile(r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)\Z"),
    _FLOAT: re.compile(
        r"(?:[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z"
    ),
}
"""Numbers as YAML 1.2 writes them."""
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]+")


class _Checks(yaml.constructor.SafeConstructor):
    """Values of a safe loader that refuses keys that stand twice and whole numbers beyond 64 bits."""

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

    def construct_yaml_int(self, node: Any) -> int:
        if _LEADING_ZERO.fullmatch(node.value):
            words = f"{node.value[:20]} is another number in YAML 1.1 than in YAML 1.2, expected no 0 before it"
            raise yaml.constructor.ConstructorError(None, None, words, node.start_mark)
        number = super().construct_yaml_int(node)
        if abs(number) >= 10 ** (MOST_DIGITS - 1):
            raise yaml.constructor.ConstructorError(None, None, too_many_digits(str(node.value)), node.start_mark)
        return int(number)


class _PlainLoader(_Checks, yaml.SafeLoader):
    """A loader that also refuses aliases, and deep nesting, on which it would take long."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self.depth += 1
        if self.depth > MOST_DEPTH + 1:
            raise RecursionError
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()
            raise yaml.constructor.ConstructorError(
                None, None, f"alias *{event.anchor} is not allowed", event.start_mark
            )
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def fetch_flow_collection_start(self, kind: Any) -> None:
        # The scanner runs ahead of the composer, and its time grows with the square of the level.
        if self.flow_level > MOST_DEPTH:
            raise RecursionError
        super().fetch_flow_collection_start(kind)


# PyYAML without libyaml has no loader in C, which is known at run time alone.
if TYPE_CHECKING:
    from yaml import SafeLoader as _FastLoader
else:
    _FastLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _ShippedLoader(_Checks, _FastLoader):
    """A loader of files that are part of the package, in C where PyYAML has it: ten times faster."""


_LOADERS: tuple[Any, ...] = (_PlainLoader, _ShippedLoader)
for _loader in _LOADERS:
    _loader.add_constructor(_INT, _Checks.construct_yaml_int)
    _others = _loader.yaml_implicit_resolvers.items()
    _loader.yaml_implicit_resolvers = {
        sign: [(tag, words) for tag, words in known if tag not in _NUMBERS] for sign, known in _others
    }
    for _tag, _words in _NUMBERS.items():
        _loader.add_implicit_resolver(_tag, _words, list("-+0123456789."))


def values_in_braces(text: str, where: str) -> object:
    """Values of a device that stands in braces; ``where`` it stands, for the ``DataError`` if it is no YAML."""
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        raise DataError(f"{where}: {text:.60} is no YAML, expected a device such as {{name: a, ...}}") from None


def read_yaml(path: Path, expected: str = "a YAML file", *, shipped: bool = False) -> dict[str, Any]:
    """A YAML mapping as plain values, or ``DataError``; ``shipped`` files are not checked for aliases and depth."""
    text = read_text(path, expected, MAX_YAML_BYTES)
    many = check_count(text, path, expected, MOST_VALUES, ",\n") > FEW_VALUES
    try:
        if many and not shipped:
            _check_events(text)
        # A subclass of SafeLoader: plain values only.
        values = yaml.load(text, Loader=_ShippedLoader if shipped or many else _PlainLoader)
    except yaml.YAMLError as error:
        _refuse_yaml(path, error, expected)
    except RecursionError:
        raise DataError(f"{path}: is nested too deeply, expected {expected}") from None
    except (AttributeError, LookupError, ValueError) as error:
        # What the converters of PyYAML raise for 2024-13-45 or !!int x passes through it.
        raise DataError(f"{path}: holds a value of the wrong form ({error}), expected {expected}") from None
    return mapping_of(values, path, expected)


def _check_events(text: str) -> None:
    """What ``_PlainLoader`` refuses, of a text that is parsed in C: aliases, deep nesting, too many values."""
    depth = values = 0
    for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        if isinstance(event, yaml.AliasEvent):
            words = f"alias *{event.anchor} is not allowed"
            raise _of_event(words, event)
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        values += isinstance(event, yaml.ScalarEvent)
        if depth > MOST_DEPTH:
            raise RecursionError
        if values > 2 * MOST_VALUES:
            raise _of_event(f"more than {2 * MOST_VALUES:,} values", event)


def _of_event(words: str, event: Any) -> yaml.YAMLError:
    """What is wrong, with the place of a part of the text."""
    return yaml.constructor.ConstructorError(None, None, words, event.start_mark)


def _refuse_yaml(path: Path, error: yaml.YAMLError, expected: str) -> NoReturn:
    mark = getattr(error, "problem_mark", None)
    where = f" line {mark.line + 1}" if mark is not None else ""
    problem = getattr(error, "problem", None) or "is not YAML"
    raise DataError(f"{path}{where}: {problem}, expected {expected}") from None
