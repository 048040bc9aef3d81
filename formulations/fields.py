"""
One table of the fields of a candidate: what each means, may be fixed to, and how it is written and said.

``Candidate`` (``taut.formulations.space``) states name, type and default of a field. ``Annotated`` attaches the field's
record, which the module of its mechanism brings. Documents, ``--fix``, messages, tables, comparisons and the pages of
reference read the records (``docs/dev/new-mechanism.md`` has the files beside them that a new choice needs).

A mechanism refuses what a request asks of it (``Asked``) where the latency model does not price it, a memory network
does not know it, or the stack has no part of it. A refusal is a ``FieldError`` with the option that asks.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from taut.data.cluster import ClusterSpec
from taut.data.memory import MemoryModel
from taut.data.model import ModelSpec
from taut.data.stack import Stack
from taut.data.suggest import one_of
from taut.errors import FieldError

if TYPE_CHECKING:
    from taut.formulations.mechanisms.latency_models import LatencyModel
    from taut.formulations.problem import PlanningProblem
    from taut.formulations.space import Candidate, StrategySpace, Workload
    from taut.formulations.tables.memory import Figures
    from taut.formulations.terms import MemoryTerm, Term

Fixed = Mapping[str, int | str | bool]
"""Values that fields are fixed to, by name."""
Expected = Callable[[object, int, int], str | None]
"""What a value should be, of (value, global batch, devices); None where it may be what it is."""


@dataclass(frozen=True, slots=True)
class Fix:
    """
    What a field may be fixed to: its place in lists of fixable fields, its type, and the rule for a value.

    ``value`` gives what a candidate has of the field where some values are fixed, None where no value holds; without it
    the field itself.
    """

    place: int
    kind: type
    expected: Expected
    value: Callable[[Any, Fixed], object] | None = None


class Words(NamedTuple):
    """
    How a field stands in a line of words: its place, its text, and its place in the one line that names a plan.

    Of equal places the field that ``Candidate`` has first comes first.
    """

    place: int
    text: Callable[[Any], str]
    short: int | None = None


class Sentence(NamedTuple):
    """
    A field's part of a plan's sentence: clause (degrees 0, how stages run 1), place, and text.

    The text is one of (strategy, plain values of the space), empty for none.
    """

    clause: int
    place: int
    text: Callable[[Any, Mapping[str, Any]], str]


class Columns(NamedTuple):
    """Columns of tables that state a field: its place in rows of a sweep, and whether rows of a frontier have it."""

    sweep: int | None = None
    pareto: bool = False


NO_COLUMNS = Columns()


class Compared(NamedTuple):
    """
    How a field stands in a configuration that runs: its place there, and what a change of it alone lets go as well.

    ``change`` is the place among such changes, None where a field does not change alone. A field that is ``held`` stays
    as it is in changes of others even at its default, and one that is ``shown`` is said even there.
    """

    place: int
    change: int | None = None
    frees: tuple[str, ...] = ()
    held: bool = True
    shown: bool = True


class Runs(NamedTuple):
    """
    How a field stands beside the runs of a calibration: its name there, its place in a line, its words of (value).

    ``value`` is what a candidate has of it, None where that says nothing beside runs; without it the field itself.
    """

    name: str
    place: int
    words: Callable[[Any], str]
    value: Callable[[Any], object] | None = None

    def of(self, candidate: object) -> object:
        """What a candidate has of it."""
        return getattr(candidate, self.name) if self.value is None else self.value(candidate)


class Variants(NamedTuple):
    """
    The variants of a candidate by a field: the place among such, and what yields them of (workload, candidate).

    Of equal places the field that ``Candidate`` has first comes first.
    """

    place: int
    of: "Callable[[Workload, Candidate], Iterator[Candidate]]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """
    A field of a candidate: its meaning in a sentence, variants, refusals, what fixes it, and its words.

    A ``seldom`` field is written only where it differs from its default, or where the degree that it names is above 1.
    A ``grouped`` field that differs from its default is priced by the latency model ``step`` alone, where
    memory is a sum of terms. ``rule`` says, of a space that fixes the field, what candidates with the value keep.
    A ``launched`` field is told to launchers, or a line of theirs refuses the plan; any other stops an export, as the
    launch files would run another plan. ``columns`` and ``compared`` are its places in tables and in comparisons with
    what runs, ``runs`` its place beside the runs of a calibration. ``variants`` read what those before them chose, and
    ``check`` refuses what is asked for and cannot be.

    A field with ``searched`` is a truth value of the same name in stacks and spaces as well. The space of a stack that
    has it allows it on models and clusters for which ``searched`` holds; true is refused where the stack has it not.

    ``terms`` makes of the collectives of weights and gradients, as the fields before have them, those with the field;
    ``memory`` yields what a device holds for it, of the figures of its layers (``taut.formulations.terms``).
    """

    meaning: str
    variants: Variants | None = None
    check: "Callable[[Asked], None] | None" = None
    searched: Callable[[ModelSpec, ClusterSpec], bool] | None = None
    terms: "Callable[[PlanningProblem, Candidate, tuple[Term, ...]], tuple[Term, ...]] | None" = None
    memory: "Callable[[Figures, MemoryModel, Candidate], list[MemoryTerm]] | None" = None
    launched: bool = False
    seldom: bool | str = False
    grouped: bool = False
    fix: Fix | None = None
    words: Words | None = None
    sentence: Sentence | None = None
    rule: Callable[[Any], str] | None = None
    columns: Columns = NO_COLUMNS
    compared: Compared | None = None
    runs: Runs | None = None


def degree(place: int, word: str, name: str) -> Sentence:
    """A degree in the sentence that describes a plan, such as ``tensor 8``."""
    return Sentence(0, place, lambda strategy, space: f"{word} {getattr(strategy, name)}")


def named(name: str, usual: object = None) -> Callable[[Any], str]:
    """Text ``name=value`` of a field, empty where it has its usual value."""
    return lambda candidate: "" if (value := getattr(candidate, name)) == usual else f"{name}={value}"


def one_of_names(known: Iterable[str]) -> Expected:
    """Accept one of some names."""
    names = tuple(known)
    return lambda value, batch, devices: None if value in names else one_of(str(value), names)


def some_of_names(known: Iterable[str]) -> Expected:
    """Accept names of modules joined by +."""
    names = tuple(known)

    def expected(value: object, batch: int, devices: int) -> str | None:
        wrong = [part for part in str(value).split("+") if part not in names]
        return f"modules joined by +, {one_of(wrong[0], names)}" if wrong else None

    return expected


def divides_devices(value: object, batch: int, devices: int) -> str | None:
    """Accept a divisor of the devices."""
    return None if _divides(value, devices) else f"a divisor of the {devices} devices"


def divides_batch(value: object, batch: int, devices: int) -> str | None:
    """Accept a divisor of the global batch."""
    return None if _divides(value, batch) else f"a divisor of the global batch {batch}"


def divides_both(value: object, batch: int, devices: int) -> str | None:
    """Accept a divisor of the devices and of the global batch."""
    return divides_devices(value, batch, devices) or divides_batch(value, batch, devices)


def chunk_count(value: object, batch: int, devices: int) -> str | None:
    """Accept a whole number above 0."""
    return None if _divides(value, value) else "a number of chunks a device, from 1 on"


def zero_stage(value: object, batch: int, devices: int) -> str | None:
    """Accept a stage of ZeRO."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    return None if whole and value in (0, 1, 2, 3) else "0, 1, 2 or 3"


def true_or_false(value: object, batch: int, devices: int) -> str | None:
    """Accept a truth value."""
    return None if isinstance(value, bool) else "true or false"


def _divides(value: object, number: object) -> bool:
    if isinstance(value, bool) or not (isinstance(value, int) and isinstance(number, int)):
        return False
    return value > 0 and number % value == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Fixed values and the largest degrees that are asked for, the space that follows, and what prices and runs it."""

    fix: Mapping[str, Any]
    max_cp: int | None
    max_ep: int | None
    space: "StrategySpace"
    model: ModelSpec
    cluster: ClusterSpec
    stack: Stack
    latency: "LatencyModel"
    memory: MemoryModel

    def check_mechanism(self, words: str) -> None:
        """Refuse a mechanism that the latency model does not price, or whose memory a network does not know."""
        self.latency.check_mechanism(words)
        self._check_memory(words, "terms")

    def check_order(self, schedule: str) -> None:
        """Refuse a schedule that is priced by its order where nothing prices that."""
        self.latency.check_order(schedule)
        self._check_memory(schedule, "a sum of terms")

    def _check_memory(self, words: str, expected: str) -> None:
        if not self.memory.is_sum_of_terms:
            raise FieldError(
                "memory_model", self.memory.name, f"this network does not know {words}, expected {expected}"
            )
