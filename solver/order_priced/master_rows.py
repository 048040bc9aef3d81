r"""
Rows of the master problem over divisions: seconds of paths and bytes of devices, both linear in the chunks' figures.

Sets: chunks c on devices d(c); paths k through the order (``taut.solver.order_priced.critical_paths``); for each device
d the counts n of its chunks' micro-batches in flight that the order goes through.
Data: of a division, seconds :math:`x_c` (3,) of F, I and W, seconds :math:`y_c` of the transfer to another device,
parameters :math:`P_c`, bytes of activations :math:`a_c` and of logits, for every chunk c.

(1) Path k with :math:`u_{kc}` passes and :math:`v_{kc}` transfers takes
    :math:`\sum_c u_{kc} \cdot x_c + v_{kc} y_c + \sum_d \rho_{kd} P_d` seconds, :math:`\rho` what reduction and
    optimizer ask for a parameter of device d: of device 0, or where every device is waited for, the reduction of the
    path's last device and the optimizer of any one. The step is at least the seconds of every path.
(2) With :math:`n_c` micro-batches of its chunks in flight, device d exceeds its budget by
    :math:`\sum_{c \in d} (\text{held}\, P_c + \text{logits}_c + n_c a_c) - (\text{budget} - \text{always})` bytes,
    which must not be positive. Of all counts of a device, those with most in all and most of each chunk are rows.
(3) Under weights :math:`\lambda_k` of the paths and prices :math:`\mu_{dn}` (seconds for a byte) of the counts, the
    Lagrangian is separable by chunks: a second of a chunk's passes costs :math:`\sum_k \lambda_k u_{kc}`, a byte of its
    activations :math:`\sum_n \mu_{dn} n_c`, and so on (``taut.solver.order_priced.pricing`` (1)).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.order_division import ChunkProblem
from taut.formulations.order_times import pipeline_ends
from taut.formulations.strategy import Division
from taut.solver.order_priced.critical_paths import Path, critical_path, device_path
from taut.solver.order_priced.pricing import ChunkCosts


@dataclass
class MasterRows:
    r"""
    Rows (1), which grow with the divisions whose critical path is added, and rows (2).

    Parameters
    ----------
    given
        The division problem.
    with_memory
        Whether rows (2) are stated; without them memory has no price.

    Attributes
    ----------
    paths, tails
        Paths k and :math:`\rho`, by device; those of the devices come first, to the step's end and, where every device
        is waited for, to their own.
    critical_for
        The division that each path is critical for; None for the paths of devices.
    """

    given: ChunkProblem
    with_memory: bool = True
    paths: list[Path] = field(default_factory=list)
    tails: list[Floats] = field(default_factory=list)
    critical_for: list[Division | None] = field(default_factory=list)
    _added: set[Division] = field(default_factory=set)
    _numbers: list[Floats] = field(default_factory=list)
    _known: dict[Division, Floats] = field(default_factory=dict)

    def __post_init__(self) -> None:
        order, devices = self.given.order, range(len(self.given.counts))
        for d in devices:
            self._append(device_path(order, d), None)
        for d in devices if self.given.waits_for_all else ():
            if self.paths[d].last != d:
                self._append(device_path(order, d, ends_there=True), None)

    def _append(self, path: Path, division: Division | None) -> None:
        most = path.last if division is None else int(self.given.device_parameters(division).argmax())
        self.paths.append(path)
        self.tails.append(self.given.tail(path.last, most))
        self.critical_for.append(division)

    @cached_property
    def of_devices(self) -> int:
        """Number of the devices' paths."""
        return sum(division is None for division in self.critical_for)

    @cached_property
    def memory_rows(self) -> list[tuple[int, Ints]]:
        """Device of every row (2), and micro-batches in flight of each of its chunks."""
        if not self.with_memory:
            return []
        return [(d, row) for d, counts in enumerate(self.given.counts) for row in _extreme_counts(counts)]

    def add(self, division: Division) -> bool:
        """Add the critical path of a division as a row; returns whether it is new."""
        if division in self._added:
            return False
        self._added.add(division)
        given = self.given
        after = given.ring * given.device_parameters(division) if given.waits_for_all else None
        path = critical_path(given.order, *durations(given, division), given.micro_batches, after)
        if any(_equal(path, known) for known in self.paths):
            return False
        self._append(path, division)
        return True

    def chunk_costs(self, path_weights: Floats, memory_prices: Floats) -> ChunkCosts:
        """
        Costs (3) of the pricing problem.

        Parameters
        ----------
        path_weights
            Weights of the first paths, at most as many as there are.
        memory_prices
            Seconds for a byte of every row (2).
        """
        given, chunks = self.given, self.given.num_chunks
        passes = np.zeros((chunks, 3))
        edge = np.zeros(chunks)
        of_parameter = np.zeros(len(given.counts))
        for path_weight, path, tail in zip(path_weights.tolist(), self.paths, self.tails, strict=False):
            if path_weight == 0.0:
                continue
            of_parameter += path_weight * tail
            passes += path_weight * path.passes
            edge[:-1] += path_weight * path.transfers * given.away
        activation, logits = np.zeros(chunks), np.zeros(chunks)
        parameters = of_parameter[given.order.device]
        parameters += memory_prices @ self._members * given.held
        activation += memory_prices @ self._in_flight
        logits += memory_prices @ self._members
        return ChunkCosts(passes, edge, parameters, activation, logits)

    def path_seconds(self, divisions: Sequence[Division]) -> Floats:
        """Seconds (1) of every path in every division, (paths, divisions)."""
        for k in range(len(self._numbers), len(self.paths)):
            path = self.paths[k]
            self._numbers.append(np.concatenate((path.passes.T.ravel(), path.transfers, self.tails[k])))
        figures = np.array([self._figures(division) for division in divisions])
        return np.asarray(np.array(self._numbers) @ figures.T)

    def _figures(self, division: Division) -> Floats:
        """Seconds of F, I and W of every chunk and of transfers, parameters of devices, as a path numbers them."""
        if division not in self._known:
            passes, transfers = durations(self.given, division)
            parameters = self.given.device_parameters(division)
            self._known[division] = np.concatenate((passes.ravel(), transfers, parameters))
        return self._known[division]

    def excess(self, division: Division) -> Floats:
        """Bytes (2) beyond the budget, (memory rows,)."""
        given, i, j = self.given, division.starts, division.ends
        held = given.held * given.parameters[i, j] + given.logits[i, j]
        kept = given.activation[division.recompute_index, i, j]
        return np.asarray(self._in_flight @ kept + self._members @ held) - (given.budget - given.always)

    @cached_property
    def _members(self) -> Floats:
        """Whether a chunk lies on the device of each row (2), (memory rows, C)."""
        of_count = np.array([d for d, _ in self.memory_rows], dtype=np.int64)
        return np.asarray(self.given.order.device == of_count[:, None], dtype=float)

    @cached_property
    def _in_flight(self) -> Floats:
        """Micro-batches in flight of every chunk by row (2), (memory rows, C)."""
        table = np.zeros((len(self.memory_rows), self.given.num_chunks))
        for row, (d, count) in zip(table, self.memory_rows, strict=True):
            row[self.given.hosted(d)] = count
        return table


def _extreme_counts(counts: Ints) -> Ints:
    """Of the counts (n, chunks) of a device the row with most in all, and for each chunk the row with most of it."""
    rows = {int(counts.sum(axis=1).argmax()), *(int(k) for k in counts.argmax(axis=0))}
    return counts[sorted(rows)]


def durations(given: ChunkProblem, division: Division) -> tuple[Floats, Floats]:
    """Seconds of F, I, W (3, C), and of transfers (C - 1,), of a division at the best links and device types."""
    i, j = division.starts, division.ends
    return given.passes[:, division.recompute_index, i, j], np.where(given.away, given.edge[j[:-1]], 0.0)


def least_makespan(given: ChunkProblem, division: Division) -> float:
    """Seconds (1) of ``taut.formulations.order_division`` for a division, at the best links and device types."""
    passes, transfers = durations(given, division)
    ends = pipeline_ends(given.order, passes.reshape(1, -1), transfers[None], given.micro_batches)
    return given.seconds(ends[0], given.device_parameters(division))


def _equal(one: Path, other: Path) -> bool:
    """Whether two paths have the same numbers, and end on the same device."""
    same = (one.passes == other.passes).all() and (one.transfers == other.transfers).all()
    return bool(same) and one.last == other.last
