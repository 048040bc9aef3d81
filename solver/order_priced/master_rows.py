r"""
Rows of the master problem over divisions: seconds of paths and bytes of devices, both linear in the chunks' figures.

Sets: chunks c on devices d(c); paths k through the order (``taut.solver.order_priced.critical_paths``); for each device
d the counts n of its chunks' micro-batches in flight that the order goes through.
Data: of a division, seconds :math:`x_c` (3,) of F, I and W, seconds :math:`y_c` of the transfer to another device,
load :math:`P_c` of reductions, bytes of activations :math:`a_c` and beside, for every chunk c.

(1) Path k with :math:`u_{kc}` passes and :math:`v_{kc}` transfers takes
    :math:`\sum_c u_{kc} \cdot x_c + v_{kc} y_c + \sum_d \rho_{kd} P_d` seconds, :math:`\rho` what reduction and
    optimizer ask for a parameter of device d: of device 0, or where every device is waited for, the reduction of the
    path's last device and the optimizer of any one. The step is at least the seconds of every path.
(2) With :math:`n_c` micro-batches of its chunks in flight, device d exceeds its budget by
    :math:`\sum_{c \in d} (\text{beside}_c + n_c a_c) - (\text{budget} - \text{always})` bytes,
    which must not be positive. Of all counts of a device, those with most in all and most of each chunk are rows.
(3) Under weights :math:`\lambda_k` of the paths and prices :math:`\mu_{dn}` (seconds for a byte) of the counts, the
    Lagrangian is separable by chunks: a second of a chunk's passes costs :math:`\sum_k \lambda_k u_{kc}`, a byte of its
    activations :math:`\sum_n \mu_{dn} n_c`, and so on (``taut.solver.order_priced.pricing`` (1)).
(4) Separation: seconds of a path are linear in the figures. So of all paths the one whose seconds have the largest mean
    over divisions with weights :math:`\xi_i` is the critical path under the mean figures. It is stated by those, in
    whole numbers of any unit, since any such numbers yield a path.

Lagrangian relaxation yields lower bounds for given multipliers, :math:`\sum_k \lambda_k = 1`. Division x takes
:math:`s_k(x)` seconds on path k, and on memory row (d, n) :math:`b_{dn}(x)` bytes beyond the budget.

(5) The makespan of a division is at least :math:`\max_k s_k(x)`, and a division that fits has :math:`b(x) \le 0`. So
    for all multipliers the least makespan is at least the dual function
    :math:`D(\lambda, \mu) = \min_x \sum_k \lambda_k s_k(x) + \sum_{d, n} \mu_{dn} b_{dn}(x)`, which the pricing problem
    evaluates (``taut.solver.order_priced.pricing``).
(6) If :math:`\min_x \sum \mu_{dn} b_{dn}(x) > 0` for some :math:`\mu` no division fits, and with :math:`\sum \mu = 1`
    some device lacks that many bytes in every division (a Farkas certificate).
(7) A division with a chunk that takes more than limit / m seconds for a micro-batch, less what the other chunks of its
    device take at least, exceeds the limit. So the lesser of the limit and of (5) over all other divisions is a bound
    too, a better one where the limit is near the optimum.
(8) Where the options of every device within the limit are enumerated (``taut.solver.order_priced.device_options``) they
    are the domain of x in (5): no device exceeds its memory or the limit, so memory needs no price.

Sources: M. Held and R. M. Karp, The traveling-salesman problem and minimum spanning trees, part II, Mathematical
Programming 1 (1971); A. M. Geoffrion, Lagrangean relaxation for integer programming, Mathematical Programming Study 2
(1974).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.order_division import ROUNDING, ChunkProblem, pipeline_ends
from taut.formulations.strategy import Division
from taut.solver.order_priced.critical_paths import Path, critical_path, device_paths, stated_path
from taut.solver.order_priced.pricing import ChunkCosts, least_division, room

RESOLUTION = 1e6
"""Whole numbers for the longest pass: a path is longest for numbers so rounded within a millionth of its length."""


class MeanFigures(NamedTuple):
    """
    Figures that a path is critical for, in whole numbers: passes (3, C), ``transfers`` (C - 1,), ``after`` (devices,).

    ``most`` is the device whose optimizer is waited for.
    """

    passes: Ints
    transfers: Ints
    after: Ints
    most: int

    def plain(self) -> dict[str, Any]:
        """The same as plain values."""
        lists = {"passes": self.passes.tolist(), "transfers": self.transfers.tolist(), "after": self.after.tolist()}
        return {**lists, "most": self.most}


@dataclass
class MasterRows:
    """
    Rows (1), which grow with the figures whose critical path is added, and, ``with_memory``, rows (2).

    ``paths`` and ``tails`` are k and rho by device: first the devices' own, to the step's end and, if every device is
    waited for, to their own. ``critical_for`` are the figures of each path, None for the devices' own.
    """

    given: ChunkProblem
    with_memory: bool = True
    paths: list[Path] = field(default_factory=list)
    tails: list[Floats] = field(default_factory=list)
    critical_for: list[MeanFigures | None] = field(default_factory=list)
    _keys: dict[tuple[bytes, ...], int] = field(default_factory=dict)
    _numbers: list[Floats] = field(default_factory=list)
    _known: dict[Division, Floats] = field(default_factory=dict)

    def __post_init__(self) -> None:
        every, devices = device_paths(self.given.order), len(self.given.counts)
        for path in every if self.given.waits_for_all else every[:devices]:
            self._append(path, None)

    def _append(self, path: Path, figures: MeanFigures | None) -> None:
        tail = self._tail(path, figures)
        self.paths.append(path)
        self.tails.append(tail)
        self.critical_for.append(figures)
        self._keys.setdefault(_key(path, tail), len(self.paths) - 1)

    def _tail(self, path: Path, figures: MeanFigures | None) -> Floats:
        return self.given.tail(path.last, path.last if figures is None else figures.most)

    @cached_property
    def of_devices(self) -> int:
        """Number of the devices' paths."""
        return sum(figures is None for figures in self.critical_for)

    @cached_property
    def memory_rows(self) -> list[tuple[int, Ints]]:
        """Device of every row (2), and micro-batches in flight of each of its chunks."""
        if not self.with_memory:
            return []
        return [(d, row) for d, counts in enumerate(self.given.counts) for row in extreme_counts(counts)]

    def kept(self, weights: Floats) -> "MasterRows":
        """The paths of devices, and of the others those with weights (paths,)."""
        kept = MasterRows(self.given, self.with_memory)
        kept._known = self._known
        for k in np.flatnonzero(weights[self.of_devices :] > 0).tolist():
            kept._append(self.paths[self.of_devices + k], self.critical_for[self.of_devices + k])
        return kept

    def weights_of(self, others: "MasterRows", weights: Floats) -> Floats:
        """Weights of these paths (paths,) by those of others, of which each with a weight is among these."""
        found = np.zeros(len(self.paths))
        for k in np.flatnonzero(weights > 0).tolist():
            found[self._keys[_key(others.paths[k], others.tails[k])]] += weights[k]
        return found

    def add(self, figures: MeanFigures) -> bool:
        """Add the critical path of figures as a row; returns whether it is new."""
        path = self._critical(figures, stated_path)
        if _key(path, self._tail(path, figures)) in self._keys:
            return False
        self._append(path, figures)
        return True

    def _critical(self, figures: MeanFigures, path: Callable[..., Path] = critical_path) -> Path:
        given = self.given
        after = figures.after.astype(float) if given.waits_for_all else np.zeros(len(given.order.first) - 1)
        passes, transfers = figures.passes.astype(float), figures.transfers.astype(float)
        return path(given.order, passes, transfers, given.micro_batches, after)

    def separate(self, divisions: Sequence[Division], weights: Floats, beyond: float) -> bool:
        """Add the path of (4) as a row, if its mean seconds are ``beyond`` the stated ones; whether it was added."""
        used = np.flatnonzero(weights > 0)
        mean = weights[used] @ np.array([self.figures(divisions[i]) for i in used.tolist()])
        figures = self._rounded(mean)
        path = self._critical(figures)
        tail = self._tail(path, figures)
        if _numbers(path, tail) @ mean <= beyond or _key(path, tail) in self._keys:
            return False
        self._append(path, figures)
        return True

    def critical_row(self, mean: Floats) -> int:
        """The number of the critical path under mean figures, which is added where it is new."""
        figures = self._rounded(mean)
        path = self._critical(figures)
        key = _key(path, self._tail(path, figures))
        if key not in self._keys:
            self._append(path, figures)
        return self._keys[key]

    def _rounded(self, mean: Floats) -> MeanFigures:
        """Mean figures in whole numbers."""
        chunks = self.given.num_chunks
        passes, transfers, loads = np.split(mean, [3 * chunks, 4 * chunks - 1])
        unit = max(float(mean[: 4 * chunks - 1].max()), 1e-300) / RESOLUTION
        after = self.given.rings * loads + self.given.waits
        after = np.minimum(after / unit, 1e9 * (after > 0))
        whole = [np.rint(each).astype(np.int64) for each in (passes / unit, transfers / unit, after)]
        return MeanFigures(whole[0].reshape(3, chunks), whole[1], whole[2], int(loads.argmax()))

    def chunk_costs(self, path_weights: Floats, memory_prices: Floats) -> ChunkCosts:
        """Costs (3) of the pricing problem at weights of the first paths, and seconds for a byte of every row (2)."""
        given, chunks = self.given, self.given.num_chunks
        passes = np.zeros((chunks, 3))
        edge = np.zeros(chunks)
        of_load = np.zeros(len(given.counts))
        for path_weight, path, tail in zip(path_weights.tolist(), self.paths, self.tails, strict=False):
            if path_weight == 0.0:
                continue
            of_load += path_weight * tail
            passes += path_weight * path.passes
            edge[:-1] += path_weight * path.transfers * given.away
        activation, beside = np.zeros(chunks), np.zeros(chunks)
        activation += memory_prices @ self._in_flight
        beside += memory_prices @ self._members
        return ChunkCosts(passes, edge, of_load[given.order.device], activation, beside)

    def path_seconds(self, divisions: Sequence[Division], first: int = 0) -> Floats:
        """Seconds (1) of the paths from one on in every division, (paths, divisions)."""
        if len(divisions) == 0 or first == len(self.paths):
            return np.zeros((len(self.paths) - first, len(divisions)))
        return self.seconds_of(np.array([self.figures(division) for division in divisions]), first)

    def seconds_of(self, figures: Floats, first: int = 0) -> Floats:
        """Seconds (1) of the paths from one on, from figures of divisions (n, figures), (paths, n)."""
        for k in range(len(self._numbers), len(self.paths)):
            self._numbers.append(_numbers(self.paths[k], self.tails[k]))
        return np.asarray(np.array(self._numbers[first:]) @ figures.T)

    def figures(self, division: Division) -> Floats:
        """Seconds of F, I and W of every chunk and of transfers, loads of devices, as a path numbers them."""
        if division not in self._known:
            passes, transfers = durations(self.given, division)
            loads = self.given.device_loads(division)
            self._known[division] = np.concatenate((passes.ravel(), transfers, loads))
        return self._known[division]

    def excess(self, division: Division) -> Floats:
        """Bytes (2) beyond the budget, (memory rows,)."""
        return np.asarray(self.excess_of(division.ends[None], division.recompute_index)[0])

    def excess_of(self, ends: Ints, recompute: Ints | int) -> Floats:
        """Bytes (2) beyond the budget of divisions (n, C) under the recompute of chunks, (n, memory rows)."""
        given, i, j = self.given, starts_of(ends), ends
        kept = given.activation[recompute, i, j]
        return np.asarray(
            kept @ self._in_flight.T + given.beside[i, j] @ self._members.T - (given.budget - given.always)
        )

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


def extreme_counts(counts: Ints) -> Ints:
    """Of the counts (n, chunks) of a device the row with most in all, and for each chunk the row with most of it."""
    rows = {int(counts.sum(axis=1).argmax()), *(int(k) for k in counts.argmax(axis=0))}
    return counts[sorted(rows)]


def starts_of(ends: Ints) -> Ints:
    """First layers of chunks, from their ends (n, C)."""
    # Not by numpy.pad, which takes ten times as long.
    return np.concatenate((np.zeros((len(ends), 1), dtype=ends.dtype), ends[:, :-1]), axis=1)


def division_figures(given: ChunkProblem, ends: Ints) -> Floats:
    """Figures of divisions (n, C) with the one recompute, as a path numbers them, (n, figures)."""
    i, j, count = starts_of(ends), ends, len(ends)
    passes = given.passes_of(int(given.recomputes[0]), i, j).transpose(1, 0, 2).reshape(count, -1)
    transfers = np.where(given.away, given.edge[ends[:, :-1]], 0.0)
    devices = (given.order.device[:, None] == np.arange(len(given.counts))).astype(float)
    return np.concatenate((passes, transfers, given.loads[i, j] @ devices), axis=1)


def durations(given: ChunkProblem, division: Division) -> tuple[Floats, Floats]:
    """Seconds of F, I, W (3, C), and of transfers (C - 1,), of a division at the best links and device types."""
    i, j = division.starts, division.ends
    return given.passes_of(division.recompute_index, i, j), np.where(given.away, given.edge[j[:-1]], 0.0)


def least_makespan(given: ChunkProblem, division: Division) -> float:
    """Seconds (1) of ``taut.formulations.order_division`` for a division, at the best links and device types."""
    return float(least_makespans(given, division.ends[None], division.recompute_index)[0])


def least_makespans(given: ChunkProblem, every: Ints, recompute: Ints | int) -> Floats:
    """The same of divisions with ends (n, C) under the recompute of chunks, (n,)."""
    i, j, count, devices = starts_of(every), every, len(every), len(given.counts)
    passes = given.passes_of(recompute, i, j).swapaxes(0, 1).reshape(count, -1)
    transfers = np.where(given.away, given.edge[j[:, :-1]], 0.0)
    of_device = (given.order.device + devices * np.arange(count)[:, None]).ravel()
    loads = np.bincount(of_device, given.loads[i, j].ravel(), minlength=count * devices).astype(float)
    ends = pipeline_ends(given.order, passes, transfers, given.micro_batches)
    return given.seconds(ends, loads.reshape(count, devices))


def _numbers(path: Path, tail: Floats) -> Floats:
    """How often a path counts each figure of a division."""
    return np.concatenate((path.passes.T.ravel(), path.transfers, tail))


def _key(path: Path, tail: Floats) -> tuple[bytes, ...]:
    """What two rows have in common only if they are equal."""
    return path.passes.tobytes(), path.transfers.tobytes(), tail.tobytes()


PricingOracle = Callable[[ChunkCosts], tuple[float, Division | None]]
"""Least cost of a division under costs of its chunks' figures, in seconds, and a division that has it."""
CANCELLATION = 1e-12
"""Relative allowance for the cancellation of bytes in (5): some thousand roundings, and less than iterations gain."""


def dual_value(
    rows: MasterRows, path_weights: Floats, memory_prices: Floats, oracle: PricingOracle
) -> tuple[float, Division | None]:
    r"""
    The dual function (5), without the constant seconds.

    ``rows``: paths and memory rows; ``path_weights``, ``memory_prices``: multipliers :math:`\lambda` of the first paths
    and :math:`\mu` of the memory rows; ``oracle``: solves the pricing problem, over the divisions of (7) or of (8).
    Returns a lower bound in seconds, and the division that attains the minimum; None where no division is allowed.
    """
    value, division = oracle(rows.chunk_costs(path_weights, memory_prices))
    within = rows.given.budget - rows.given.always + CANCELLATION * max(rows.given.budget, 1.0)
    return value - memory_prices.sum() * within, division


def bounded_pricing(given: ChunkProblem, limit: float) -> PricingOracle:
    """The pricing problem over the divisions of (7), for a limit in seconds."""
    longest = longest_chunk(given, limit)
    return lambda costs: least_division(given, costs, longest)


def memory_dual(rows: MasterRows, memory_prices: Floats) -> tuple[float, Division | None]:
    """Bytes that some device lacks in every division, by (6) at prices mu, and the minimising division, if any."""
    memory_prices = memory_prices / max(memory_prices.sum(), 1e-300)
    value, division = least_division(rows.given, rows.chunk_costs(np.zeros(0), memory_prices))
    return (value - memory_prices.sum() * room(rows.given) if division else np.inf), division


def longest_chunk(given: ChunkProblem, limit: float) -> float:
    """Seconds that a chunk may take for the passes of a micro-batch within the limit, (7)."""
    layers = np.arange(given.num_layers)
    least = float(given.passes.sum(axis=0)[:, layers, layers + 1].min())
    others = len(given.hosted(0)) - 1
    return (limit - given.constant) / given.micro_batches * (1 + ROUNDING) - others * least
