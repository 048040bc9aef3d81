"""
Everything that can go wrong, as one tree.

::

    TautError
      DataError (ValueError)                wrong file, field, row or unit
        FieldError                          wrong field of a request, or option of a command
        MissingProfileError (LookupError)   no cost for this key and no neighbour to interpolate from
      FormulationError (ValueError)         dimensions disagree, or the problem is not stated properly
      SolverError (RuntimeError)            a solver stopped without the answer it must give
      InfeasibleError                       proven: no plan satisfies the constraints
      NothingFoundError                     neither a plan nor a proof within the limits
      CertificateError                      a claim does not survive recomputation

    ExtrapolationWarning (UserWarning)      a cost was interpolated between profiled ones

The command line turns ``DataError`` and ``FormulationError`` into exit code 2, ``InfeasibleError`` into 3,
``NothingFoundError`` into 4 and ``CertificateError`` into 1.
"""

from typing import Any


class TautError(Exception):
    """Base of every error that this library raises on purpose."""


class DataError(TautError, ValueError):
    """
    An input is wrong; the message names file, field or row, the value and what was expected.

    It is one line that a terminal can print: white space is a space, and what cannot be printed is escaped.
    """

    def __init__(self, *message: str) -> None:
        super().__init__(*(_printable(part) for part in message))


def _printable(text: str) -> str:
    """The text with white space as spaces, and with everything else escaped that is no printable character."""
    return "".join(" " if each.isspace() else each if each.isprintable() else ascii(each)[1:-1] for each in text)


class FieldError(DataError):
    """
    A field of a request is wrong; the command line names it by its flag (``taut.commands.app``).

    Parameters
    ----------
    field
        Name of the field, such as ``global_batch``.
    value
        Its value as text; None where it is missing or need not be shown.
    reason
        What is wrong or was expected.

    Examples
    --------
    >>> import taut
    >>> str(taut.FieldError("global_batch", "0", "expected a number above 0"))
    'global_batch: 0, expected a number above 0'
    """

    def __init__(self, field: str, value: str | None, reason: str) -> None:
        shown = None if value is None else _printable(value)
        TautError.__init__(self, field, shown, reason)
        self.field, self.value, self.reason = field, shown, _printable(reason)

    def __str__(self) -> str:
        """Field, value and reason in one line."""
        return f"{self.field}: {self.reason}" if self.value is None else f"{self.field}: {self.value}, {self.reason}"


class MissingProfileError(DataError, LookupError):
    """No measured cost for this key, and no neighbour to interpolate from."""


class FormulationError(TautError, ValueError):
    """The problem as stated has inconsistent dimensions or empty sets."""


class SolverError(TautError, RuntimeError):
    """A solver stopped without the answer that it must give."""


class InfeasibleError(TautError):
    """
    Proven: no plan satisfies the constraints; the message says which, by how much, and the way out.

    ``report`` holds the same and more as plain values, where it was computed.
    """

    def __init__(self, message: str, report: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.report = report


class NothingFoundError(TautError):
    """
    Neither a plan nor a proof that none exists was found within the limits.

    ``lower_bound_s`` is what no plan is faster than, where a search bounded its space.
    """

    def __init__(self, message: str, lower_bound_s: float | None = None) -> None:
        super().__init__(message)
        self.lower_bound_s = lower_bound_s


class CertificateError(TautError):
    """A claim of a plan does not survive recomputation."""


class ExtrapolationWarning(UserWarning):
    """A figure lies between or beyond measured figures."""
