"""
Sequence parallelism: tensor ranks divide the activations between their parts, such as those of norms and dropout.

It needs tp > 1, and that tp cp divides every sequence. The space states whether candidates have it, or not, or both.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from taut.formulations.fields import Columns, Compared, Field, Fix, Sentence, Variants, Words, true_or_false

if TYPE_CHECKING:
    from taut.formulations.space import Candidate, Workload


def with_sequence_parallel(workload: "Workload", candidate: "Candidate") -> Iterator["Candidate"]:
    """The candidate with and without sequence parallelism, as the space has it."""
    shared = candidate.tp > 1 and all(length % (candidate.tp * candidate.cp) == 0 for length in workload.lengths)
    for each in workload.space.sequence_parallel if shared else (False,):
        yield candidate.changed(sequence_parallel=True) if each else candidate


SEQUENCE_PARALLEL = Field(
    variants=Variants(3, with_sequence_parallel),
    launched=True,
    meaning="Whether tensor ranks share what lies between their parts of a layer.",
    fix=Fix(11, bool, true_or_false),
    words=Words(13, lambda candidate: "sp" if candidate.sequence_parallel else ""),
    sentence=Sentence(1, 2, lambda strategy, space: "sequence parallel" if strategy.sequence_parallel else ""),
    columns=Columns(sweep=11, pareto=True),
    compared=Compared(8, change=9),
)
