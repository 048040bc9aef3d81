"""The common form of every input: frozen, closed to unknown fields, and explaining itself when it refuses."""

import hashlib
import json
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from taut.errors import DataError

_WORDS = {
    "extra_forbidden": "unknown field",
    "missing": "missing, expected a value",
    "finite_number": "expected a finite number",
}


class Spec(BaseModel):
    """Base of the input models: immutable, no unknown fields, no infinities."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def __copy__(self) -> Self:
        """Copy without what was cached for the original, which a changed copy must compute anew."""
        copied = super().__copy__()
        for name in copied.__dict__.keys() - type(self).model_fields.keys():
            del copied.__dict__[name]
        return copied

    @classmethod
    def parse(cls, values: object, source: str) -> Self:
        """
        Build the spec from plain values, or refuse in one line.

        Parameters
        ----------
        values
            What a YAML or JSON file holds.
        source
            The file or catalog name that the message names.

        Raises
        ------
        DataError
            For the first thing that is wrong: source, field, value, what was expected.
        """
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise DataError(f"{source}: {first_complaint(error)}") from None

    def digest(self) -> str:
        """SHA-256 of the spec's canonical JSON."""
        return digest(self.model_dump(mode="json"))


def digest(values: object) -> str:
    """SHA-256 of plain values written as JSON with sorted keys."""
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def first_complaint(error: ValidationError) -> str:
    """One line for the first thing pydantic found: field, value and what was expected."""
    first = error.errors(include_url=False)[0]
    field = ".".join(str(part) for part in first["loc"])
    return f"{field}: {_reason(first)}" if field else _reason(first)


def _reason(complaint: Any) -> str:
    kind, message, value = complaint["type"], complaint["msg"], complaint.get("input")
    if kind in _WORDS:
        shown = "" if kind in ("missing", "extra_forbidden") else f" is {shorten(value)},"
        return f"{_WORDS[kind]}" if not shown else f"{shown[1:]} {_WORDS[kind]}"
    if kind == "value_error":
        return str(message).removeprefix("Value error, ")
    return f"is {shorten(value)}, {message[0].lower()}{message[1:].replace('input should be', 'expected')}".replace(
        "input should", "expected to"
    )


def shorten(value: object, limit: int = 60) -> str:
    """Text of a value for a one-line message, cut when long."""
    text = " ".join(repr(value).split())
    return text if len(text) <= limit else text[: limit - 3] + "..."
