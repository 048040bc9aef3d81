"""
Empty ends: a first chunk that holds only the embedding, and a last chunk that holds only the head.

(13) A candidate has them if the space has ``empty_ends`` and the division ``layout``, the model has a vocabulary, and a
    device has several chunks; if ``empty_ends`` is fixed, several stages are enough. It divides L + 2 parts: embedding,
    layers and head. So pp * vpp <= L + 2. All other candidates have pp * vpp <= L.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from taut.data.stack import ANY_DIVISION
from taut.formulations.fields import Field, Fix, Variants, true_or_false

if TYPE_CHECKING:
    from taut.formulations.space import Candidate, Workload

ENDS = 2
"""Parts that are divided beside the layers: embedding and head."""


def with_ends(workload: "Workload", candidate: "Candidate") -> Iterator["Candidate"]:
    """The candidate with end chunks that may be empty where (13) says so, if it has parts for all chunks."""
    space, model = workload.space, workload.model
    wanted = bool(space.fixed.get("empty_ends", candidate.vpp > 1))
    several = candidate.pp > 1 and bool(model.vocab)
    empty = wanted and several and space.empty_ends and ANY_DIVISION in space.divisions
    if candidate.pp * candidate.vpp <= len(model.blocks) + ENDS * empty:
        yield candidate.changed(empty_ends=True) if empty else candidate


END_CHUNKS = Field(
    variants=Variants(0, with_ends),
    searched=lambda model, cluster: True,
    launched=True,
    meaning="Whether the first chunk may have the embedding alone, and the last the head.",
    seldom=True,
    fix=Fix(14, bool, true_or_false),
)
