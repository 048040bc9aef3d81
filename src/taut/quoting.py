"""
Quote text and values for the formats of generated files, one function for each format.

What comes from a file is data. Nothing in it may end a literal, a tag or a word, or begin a command. So whatever is
written into a generated file passes through the function of its format.

No file of TOML is written, and notebooks show what ``html_text`` made.
"""

import json
import re
import shlex
from html import escape
from pprint import pformat
from typing import Any

from taut.errors import DataError

PLAIN = re.compile(r"[A-Za-z0-9(\[][A-Za-z0-9._:/+,=|*()\[\]-]*")
"""Words that are one word wherever words are cut at blanks: no quote, no variable, no comment, no option."""
HOST = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9:](?:[A-Za-z0-9._:-]*[A-Za-z0-9:])?")
"""Names of hosts, and addresses of IPv4 and IPv6."""
_MARKS = re.compile(r"([\\`*\[\]|])")


def python_literal(value: object) -> str:
    """Plain values as Python: None, truth values, numbers, text, and lists, tuples and dictionaries of them."""
    if isinstance(value, dict):
        rows = (f"    {python_literal(name)}: {python_literal(inner)},\n" for name, inner in value.items())
        return "{\n" + "".join(rows) + "}"
    _check_plain(value)
    if isinstance(value, str):
        return json.dumps(value) if value.isascii() and value.isprintable() else ascii(value)
    return pformat(value, width=110, compact=True)


def _check_plain(value: object) -> None:
    if isinstance(value, list | tuple):
        for inner in value:
            _check_plain(inner)
    elif not (value is None or type(value) in (bool, int, float, str)):
        raise DataError(f"{value!r}: is a {type(value).__name__}, expected a plain value")


def shell_word(text: str) -> str:
    """One word of a shell."""
    if not text.isprintable():
        raise DataError(f"{text!r}: cannot be printed, expected a word")
    return shlex.quote(text)


def plain_word(text: str, what: str) -> str:
    """The text itself, which is one word where words are cut at blanks and nothing is quoted."""
    if not PLAIN.fullmatch(text):
        expected = "expected letters, digits and . _ : -"
        raise DataError(f"{what} {text!r}: has characters that a launcher cannot take, {expected}")
    return text


def host_name(text: str, where: str) -> str:
    """The name of a host, or its address."""
    if not HOST.fullmatch(text):
        raise DataError(f"{where}: {text[:60]!r} is no name of a host, expected letters, digits and . _ - (or :)")
    return text


def hydra_value(value: object) -> str:
    """The value of an override of Hydra: text that is no identifier is quoted, truths and ``null`` in lower case."""
    _check_plain(value)
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, list | tuple):
        return "[" + ",".join(hydra_value(inner) for inner in value) + "]"
    if not isinstance(value, str) or value.isidentifier():
        return str(value)
    if not value.isprintable() or "'" in value or "\\" in value or "$" in value:
        raise DataError(f"{value!r}: cannot stand in an override, expected text without quotes")
    return f"'{value}'"


def yaml_text(values: Any) -> str:
    """Plain values as YAML, lists of plain values in one line."""
    import yaml

    return str(yaml.safe_dump(values, sort_keys=False, default_flow_style=None, width=100_000))


def json_text(values: Any, indent: int | None = None) -> str:
    """Plain values as a file of JSON, in ASCII."""
    return json.dumps(values, indent=indent) + "\n"


def html_text(value: object) -> str:
    """A value as text or attribute of HTML."""
    return escape(str(value), quote=True)


def markdown_text(text: str) -> str:
    """One line of Markdown that shows the text and begins no emphasis, link, code, table cell or tag."""
    line = "".join(sign if sign.isprintable() else " " for sign in text)
    return escape(_MARKS.sub(r"\\\1", line), quote=False)


def protobuf_text(text: str) -> bytes:
    """Text of a field of protobuf in UTF-8, in one line; what cannot be printed is a blank."""
    return "".join(sign if sign.isprintable() else " " for sign in text).encode()
