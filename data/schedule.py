"""
A pipeline schedule as a JSON document, format ``taut-schedule/1``.

``orders`` holds for every device its passes in execution order, each as ``[letter, chunk, micro-batch]`` with
PyTorch's letters: F forward, I gradient by the input, W gradient by the weights, B both in one. ``problem`` holds the
pipeline they are for; its figures stand per chunk, in the order in which a micro-batch visits the chunks.
``certificate`` derives the lower bound again. Fields beside these, such as the bubble, follow from them.
"""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from taut.data.read import read_json
from taut.data.spec import NotNegative, Positive, Spec, as_tuple, shorten
from taut.errors import DataError

FORMAT = "taut-schedule/1"
MOST_PASSES = 10_000_000
"""A step with more passes than this is taken for a slip of the keyboard."""

Count = Annotated[int, Field(gt=0, strict=True)]
Index = Annotated[int, Field(ge=0, lt=MOST_PASSES, strict=True)]
Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._-]{0,39}$")]
Pass = Annotated[tuple[Literal["F", "I", "W", "B"], Index, Index], BeforeValidator(as_tuple)]


class PipelineSpec(Spec):
    """
    The pipeline of a schedule: seconds and memory per chunk, ``None`` for no memory limit.

    ``reference_memory`` is what 1F1B holds on its fullest device, in the units of ``activation``.
    """

    placement: Word
    device: Annotated[list[Index], Field(min_length=1)]
    micro_batches: Count
    forward: list[NotNegative]
    input_gradient: list[NotNegative]
    weight_gradient: list[NotNegative]
    transfer: list[NotNegative]
    activation: list[NotNegative]
    kept_for_weight: list[NotNegative]
    memory_limit: list[NotNegative | None]
    reference_memory: Positive

    @model_validator(mode="after")
    def _not_too_many(self) -> Self:
        passes = 3 * len(self.device) * self.micro_batches
        if passes > MOST_PASSES:
            raise ValueError(f"micro_batches: is {self.micro_batches}, {passes} passes, expected at most {MOST_PASSES}")
        return self


class ScheduleSpec(Spec):
    """What a schedule document must hold."""

    model_config = ConfigDict(extra="ignore")

    format: str
    kind: Word
    problem: PipelineSpec
    orders: list[list[Pass]]
    makespan: NotNegative | None = None
    span: NotNegative | None = None
    bubble: NotNegative | None = None
    peak_memory: NotNegative | None = None
    peak_per_device: list[NotNegative] | None = None
    status: str | None = None
    lower_bound: NotNegative | None = None
    gap: NotNegative | None = None
    bounds: dict[str, NotNegative | None] = {}
    certificate: dict[str, Any] = {}

    @model_validator(mode="before")
    @classmethod
    def _format_known(cls, values: Any) -> Any:
        """Say first whether this is such a file at all: everything else would be a confusing complaint."""
        found = values.get("format") if isinstance(values, dict) else None
        if found != FORMAT:
            raise ValueError(f"format: is {shorten(found)}, expected {FORMAT!r}")
        return values


def read_schedule(path: Path) -> ScheduleSpec:
    """A schedule document, its fields checked; whether the orders run is not. ``DataError`` for another format."""
    values = read_json(path, f"a schedule in the format {FORMAT}")
    if "orders" in values and not isinstance(values["orders"], list):
        raise DataError(f"{path}: orders: is {shorten(values['orders'])}, expected a list of passes for every device")
    return ScheduleSpec.parse(values, str(path))
