r"""
Terms: what a step waits for beside its computation, and what a device holds, as records that every reader shares.

Sets: the N devices of a stage in rank order (``taut.formulations.degrees``): tensor ranks first, then context ranks,
then replicas.

(1) A *group* is n devices that stand s apart in rank order, so ranks :math:`o n s + i s + j` for :math:`i < n` are one
    group, of which :math:`N / n` run at once. A *place* is a run of w ranks that lie on a node together, or fill nodes.
    The members of a group lie in places of their own, so :math:`w \le s`.
(2) A *term* moves b bytes for each of the P parameters of a range that it carries. It runs rings r one after another,
    with :math:`\theta_r` of these bytes in each. With :math:`\rho_r` seconds per byte of the slowest of its groups'
    rings (``taut.formulations.rings``) it takes

    .. math:: P \, b \sum_r \theta_r \rho_r .

(3) A *memory term* has bytes :math:`c_t` and a moment. Terms of the moment *always* stay throughout. During the passes
    a device holds the terms of the *passes* as well, and those of the *loss* or of a *reduction*, whichever are more.
    In the optimizer's step it holds those of the *update* instead. A device needs

    .. math:: \sum_{always} c_t + \max \Big( \sum_{passes} c_t + \max \big( \sum_{loss} c_t, \sum_{reduction} c_t
        \big), \sum_{update} c_t \Big) .

A mechanism (``taut.formulations.mechanisms``) makes the terms of a candidate. The evaluator, the annealing, the bounds
and the simulation read them: each has its own :math:`\rho` of a group, and none asks which mechanism made a term.
Memory terms are listed in ``taut.formulations.tables.memory`` and summed here.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeVar

import numpy as np

from taut.data.arrays import Floats, Ints

Rate = TypeVar("Rate", float, Floats)

Load = Literal["common", "experts", "padding", "expert padding"]
"""Parameters that a term carries: those of experts that fewer devices hold than the rest, or all others; or what their
buffers have more (``taut.formulations.mechanisms.muon`` (6))."""
Phase = Literal["passes", "end"]
"""When a term runs: in both passes of every micro-batch, or after a stage's last pass."""
Kind = Literal["replicas", "experts", "copy", "copies"]
"""Members of a group. Bounds rely on it, so devices of any other description need a kind of their own.

``replicas``: all devices of a stage that hold the same weights. ``experts``: all that hold the same experts. ``copy``:
the devices of either that share one copy of what is sharded. ``copies``: one device of every copy."""


class Group(NamedTuple):
    """
    Devices of a stage in one collective, (1): n ``members``, ``stride`` s, and ``width`` w of a place.

    ``every_type`` says that they lie on all device types of the cluster.
    """

    kind: Kind
    members: int
    stride: int
    width: int
    every_type: bool = False

    def in_blocks(self, width: int) -> tuple[int, int]:
        """Members and stride in blocks of so many devices, of which each counts as one member."""
        if self.stride >= width:
            return self.members, self.stride // width
        return max(self.members * self.stride // width, 1), 1

    def of(self, workers: Ints) -> Ints:
        """Values of the workers of stages (..., pipelines, width) by group, (..., groups, members, w)."""
        lead, runs = workers.shape[:-2], self.stride // self.width
        apart = workers.reshape(*lead, -1, self.members, runs, self.width).swapaxes(-3, -2)
        return apart.reshape(*lead, -1, self.members, self.width)


class Ring(NamedTuple):
    """Rings of a group, and the share of a term's bytes that they carry as an all-reduce, (2)."""

    group: Group
    share: float = 1.0


class Term(NamedTuple):
    """
    A collective of a candidate's step, (2).

    ``bytes`` are b after the passes, times the coefficient of a calibration. In the passes b is that of a ``weight``
    gathered before a layer, 0 without a gather, and of a ``gradient`` scattered after it.
    """

    load: Load
    phase: Phase
    rings: tuple[Ring, ...]
    bytes: float = 0.0
    weight: float = 0.0
    gradient: float = 0.0

    def rate(self, price: Callable[[Group], Rate]) -> Rate:
        """Seconds per byte of all rings, (2), at a price for each group: a number, or an array of any shape."""
        (group, share), *others = self.rings
        found = share * price(group)
        for group, share in others:
            found = found + share * price(group)
        return found


Moment = Literal["always", "passes", "loss", "reduction", "update"]
"""When a device holds the bytes of a memory term, (3)."""

MOMENTS: Mapping[str, Moment] = MappingProxyType(
    {
        "weights": "always",
        "gradients": "always",
        "states": "always",
        "activations": "passes",
        "checkpoints": "passes",
        "workspace": "passes",
        "logits": "loss",
        "buffers": "passes",
    }
)
"""Moments of the terms that a memory model has coefficients of (``taut.data.memory.MEMORY_TERMS``)."""


class MemoryTerm(NamedTuple):
    """
    Bytes on a device, (3): their coefficient's name or ``overhead``, their moment, a whole number of any shape.

    ``states`` are what optimizer offload moves to the hosts; what stays on devices beside it has another name.
    """

    name: str
    moment: Moment
    bytes: Ints | Floats | int


def bytes_of_moment(terms: Iterable[MemoryTerm], *moments: Moment) -> Ints | Floats | int:
    """Sum of the terms of some moments."""
    return sum((term.bytes for term in terms if term.moment in moments), 0)


def bytes_in_passes(terms: Sequence[MemoryTerm]) -> Ints | Floats:
    """Bytes of a device during the passes, (3)."""
    either = np.maximum(bytes_of_moment(terms, "loss"), bytes_of_moment(terms, "reduction"))
    return np.asarray(bytes_of_moment(terms, "always", "passes") + either)


def device_bytes(terms: Sequence[MemoryTerm]) -> Ints | Floats:
    """Bytes that a device needs, (3)."""
    return np.maximum(bytes_in_passes(terms), bytes_of_moment(terms, "always", "update"))


def gathers_of(terms: Iterable[Term]) -> tuple[Term, ...]:
    """Terms that the passes of every micro-batch wait for."""
    return tuple(term for term in terms if term.phase == "passes")


def reductions_of(terms: Iterable[Term]) -> tuple[Term, ...]:
    """Terms that a stage waits for after its last pass."""
    return tuple(term for term in terms if term.phase == "end")


def gradient_bytes(terms: Iterable[Term]) -> float:
    """Bytes of gradients for a parameter, coefficient included: of the first term after the passes, and of experts'."""
    return reductions_of(terms)[0].bytes


def in_one_ring(terms: Iterable[Term]) -> bool:
    """Whether all devices that hold a parameter sum its gradients in one ring."""
    kinds = {ring.group.kind for term in reductions_of(terms) for ring in term.rings}
    return kinds <= {"replicas", "experts"}
