r"""
A strategy: a candidate with its division of the layers into stages.

Sets: layers :math:`0, \dots, L - 1`; stages :math:`x = 0, \dots, X - 1`, the chunks of all devices in the order of the
layers where a schedule has several chunks a device; recompute kinds (``taut.data.costs.RECOMPUTE``).

(1) A division is the layer ranges :math:`[i_x, j_x)` of the stages, :math:`i_0 = 0`, :math:`i_x < j_x = i_{x+1}` and
    :math:`j_{X-1} = L`, and a recompute :math:`r_x` for each.

(2) Where embedding and head are parts (``Candidate.end_parts``), a division is that of L + 2 parts, embedding, layers
    and head, and layer l is part l + 1. A part is in a stage by (1), so no other stage is empty.

(3) Where replicas divide the micro-batches of a step unevenly (``Candidate.pipelines_by_type``), replica z runs
    :math:`m_z \ge 1` of them, :math:`\sum_z m_z = dp\, m`.

Everything that solves for a division (the integer program, the exact partition, the bounds of order-priced candidates)
returns this one value. It states (1) and does not check it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

import numpy as np

from taut.data.arrays import Ints
from taut.data.costs import RECOMPUTE
from taut.formulations.space import Candidate


@dataclass(frozen=True)
class Division:
    """
    Layers [first, end) and name of the recompute of every stage, X pairs and X names, (1).

    Examples
    --------
    >>> division = Division(((0, 3), (3, 4)), ("full", "none"))
    >>> division.layers.tolist()
    [3, 1]
    >>> division == Division.of_ends(division.ends, division.recompute_index)
    True
    """

    stages: tuple[tuple[int, int], ...]
    recompute: tuple[str, ...]

    @classmethod
    def of_ends(cls, ends: Ints, recompute_index: Ints) -> "Division":
        """Division of the layers from 0 by the end (X,) and the index in ``RECOMPUTE`` (X,) of every stage."""
        after = ends.tolist()
        stages = tuple(zip([0, *after[:-1]], after, strict=True))
        return cls(stages, tuple(RECOMPUTE[r] for r in recompute_index.tolist()))

    @cached_property
    def starts(self) -> Ints:
        """First layer of every stage (X,)."""
        return np.array([start for start, _ in self.stages], dtype=np.int64)

    @cached_property
    def ends(self) -> Ints:
        """Layer after the last one of every stage (X,)."""
        return np.array([end for _, end in self.stages], dtype=np.int64)

    @property
    def layers(self) -> Ints:
        """Number of layers of every stage (X,)."""
        return self.ends - self.starts

    @cached_property
    def recompute_index(self) -> Ints:
        """Index of every stage's recompute in ``RECOMPUTE`` (X,)."""
        return np.array([RECOMPUTE.index(name) for name in self.recompute], dtype=np.int64)

    @property
    def ranges(self) -> tuple[Ints, Ints, Ints]:
        """Index of recompute, first layer and end of every stage, each (X,), as tables of ranges are indexed."""
        return self.recompute_index, self.starts, self.ends


def stages_of_parts(candidate: Candidate, stages: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """Stages of layers as stages of parts, (2): embedding to the first, head to the last."""
    if not stages:
        return stages
    ahead = candidate.end_parts
    parts = [(first + ahead, end + ahead) for first, end in stages]
    parts[0] = (stages[0][0], parts[0][1])
    parts[-1] = (parts[-1][0], parts[-1][1] + ahead)
    return tuple(parts)


def division_of_layers(candidate: Candidate, layers: Sequence[int], recompute_index: Ints) -> Division:
    """The division with so many layers in every chunk, of which embedding and head may be parts, (1) and (2)."""
    ends = np.cumsum(layers) + candidate.end_parts
    ends[-1] += candidate.end_parts
    return Division.of_ends(ends, recompute_index)


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """
    A candidate with a division of the layers, into pp stages or, with vpp chunks a device, pp vpp chunks.

    ``micro_batches`` lists the number of every replica, (3); it is empty if all replicas run the candidate's number.
    """

    candidate: Candidate
    division: Division
    micro_batches: tuple[int, ...] = ()

    @property
    def batches(self) -> Ints:
        """Micro-batches of every replica (dp,), or one figure for all of them (1,)."""
        return np.array(self.micro_batches or (self.candidate.num_micro_batches,), dtype=np.int64)

    @property
    def stages(self) -> tuple[tuple[int, int], ...]:
        """First layer and end (exclusive) of every stage."""
        return self.division.stages

    @property
    def layer_stages(self) -> tuple[tuple[int, int], ...]:
        """First layer and end of every stage; a first or last one without layers has none between them, (2)."""
        if not (ahead := self.candidate.end_parts):
            return self.stages
        last = self.stages[-1][1] - 2 * ahead
        return tuple((min(max(first - ahead, 0), last), min(end - ahead, last)) for first, end in self.stages)

    @property
    def recompute(self) -> tuple[str, ...]:
        """Name of every stage's recompute."""
        return self.division.recompute

    @property
    def recompute_of_parts(self) -> list[str]:
        """Name of every part's recompute, where a chunk may recompute its first layers alone."""
        found, most = list[str](), self.candidate.recompute_layers
        for (first, end), name in zip(self.stages, self.recompute, strict=True):
            until = max(first, self.candidate.end_parts) + most if most else end
            found += [name if part < until else "none" for part in range(first, end)]
        return found

    @property
    def ranges(self) -> tuple[Ints, Ints, Ints]:
        """Index of recompute, first layer and end of every stage, each (X,)."""
        return self.division.ranges


class Rule(Enum):
    """The rules of a plan."""

    DIVISION = "the stages divide the layers in order, in a form that the space has"
    RECOMPUTE = "every stage recomputes what its candidate allows"
    DEVICES = "every device is used exactly once"
    TYPES = "a mesh, and a replica of an uneven batch, is on one type of device"
    BATCH = "the replicas divide the micro-batches of a step"
    GROUPS = "a block and the groups in it lie on as few nodes as they can"
    MEMORY = "every stage fits its devices"


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that a plan breaks; printed, it says in one line where and by how much."""

    rule: Rule
    words: str

    def __str__(self) -> str:
        """Say what is wrong."""
        return self.words
