r"""
Schedules whose order is a formula: GPipe, 1F1B and interleaved 1F1B, ZB-H1 and ZB-H2.

On p devices and m micro-batches, for chunks c on device d:

- GPipe [1]_: every forward, chunk after chunk, then every backward in the reverse order of chunks. Any device map. (1)
- 1F1B [2]_: device d, alone with stage d, runs :math:`\min(p - d, m)` forwards, then a backward and a forward in turn.
  It holds :math:`\min(p - d, m)` micro-batches. (2)
- Interleaved 1F1B [3]_: chunk c is on device c mod p, v chunks on each, and m is a multiple of p. Device d runs its
  chunks in rounds of p micro-batches: the k-th forward is chunk :math:`\lfloor k / p \rfloor \bmod v` of its own and
  micro-batch :math:`p \lfloor k / (p v) \rfloor + k \bmod p`, the k-th backward likewise from the last chunk back. It
  is :math:`2 (p - d - 1) + (v - 1) p + 1` forwards ahead. (3)

In ZB-H1 and ZB-H2, on one chunk a device, the backward pass is split: the gradient by the
input (I) goes on at once, that by the weights (W) fills what would be idle. Stage d of p, with w = 1 for H1 and w = 2
for H2, is :math:`w (p - 1 - d)` forwards ahead; then come F and I in turn until :math:`w (p - 1)` forwards are done,
then F, I and W in turn, and W after I where forwards have run out [4]_. H1 holds p micro-batches on every device, H2 2p
- 1. (4)

References
----------
.. [1] Huang, Y. et al. (2019). GPipe: efficient training of giant neural networks using pipeline parallelism. NeurIPS.
.. [2] Narayanan, D. et al. (2019). PipeDream: generalized pipeline parallelism for DNN training. SOSP.
.. [3] Narayanan, D. et al. (2021). Efficient large-scale language model training on GPU clusters. SC.
.. [4] Qi, P., Wan, X., Huang, G. and Lin, M. (2024). Zero bubble pipeline parallelism. ICLR.
"""

import numpy as np

from taut.data.arrays import Ints
from taut.errors import FormulationError
from taut.formulations.schedules.schedule import (
    BACKWARD,
    FORWARD,
    INPUT_GRADIENT,
    WEIGHT_GRADIENT,
    Schedule,
    ScheduleProblem,
    round_robin,
    sequential,
)


def gpipe(problem: ScheduleProblem) -> Schedule:
    """All forwards, then all backwards, (1)."""
    orders = []
    for d in range(problem.num_devices):
        hosted = np.flatnonzero(problem.device == d).tolist()
        orders.append(np.concatenate([*(_all(FORWARD, c, problem) for c in hosted), *_backwards(hosted, problem)]))
    return Schedule("gpipe", tuple(orders))


def _all(kind: int, chunk: int, problem: ScheduleProblem) -> Ints:
    m = problem.num_micro_batches
    return np.column_stack((np.full(m, kind), np.full(m, chunk), np.arange(m)))


def _backwards(hosted: list[int], problem: ScheduleProblem) -> list[Ints]:
    return [_all(BACKWARD, c, problem) for c in hosted[::-1]]


def one_forward_one_backward(problem: ScheduleProblem) -> Schedule:
    """
    1F1B, (2).

    Raises ``FormulationError`` if the chunks are not one a device, in order.
    """
    require(problem, sequential(problem.num_devices), "1f1b", "one chunk a device, in order")
    return Schedule("1f1b", tuple(_stage(d, problem) for d in range(problem.num_devices)))


def _stage(d: int, problem: ScheduleProblem) -> Ints:
    ahead = min(problem.num_devices - d, problem.num_micro_batches)
    return alternate(_all(FORWARD, d, problem), _all(BACKWARD, d, problem), ahead)


def alternate(forwards: Ints, backwards: Ints, ahead: int) -> Ints:
    """Some forwards ahead, then a backward and a forward in turn, then the rest of the backwards."""
    steady = len(forwards) - ahead
    turns = np.stack((backwards[:steady], forwards[ahead:]), axis=1).reshape(-1, 3)
    return np.concatenate((forwards[:ahead], turns, backwards[steady:]))


def interleaved(problem: ScheduleProblem) -> Schedule:
    """
    Interleaved 1F1B, (3).

    Raises ``FormulationError`` if the chunks do not go round the devices, or m is not a multiple of their number.
    """
    p, m = problem.num_devices, problem.num_micro_batches
    v = problem.num_chunks // p
    require(problem, round_robin(p, v), "interleaved-1f1b", "chunk c on device c mod the number of devices")
    if m % p:
        raise FormulationError(f"interleaved-1f1b: {m} micro-batches, expected a multiple of the {p} devices")
    k = np.arange(m * v)
    chunk, micro_batch = (k // p) % v, k // (p * v) * p + k % p
    orders = []
    for d in range(p):
        forwards = np.column_stack((np.full_like(k, FORWARD), chunk * p + d, micro_batch))
        backwards = np.column_stack((np.full_like(k, BACKWARD), (v - 1 - chunk) * p + d, micro_batch))
        orders.append(alternate(forwards, backwards, min(2 * (p - d - 1) + (v - 1) * p + 1, m * v)))
    return Schedule("interleaved-1f1b", tuple(orders))


def require(problem: ScheduleProblem, device: Ints, kind: str, expected: str) -> None:
    """Refuse a pipeline whose chunks are on other devices than a kind of schedule needs."""
    if not np.array_equal(problem.device, device):
        raise FormulationError(f"{kind}: chunks are on devices {problem.device.tolist()}, expected {expected}")


def zb_h1(problem: ScheduleProblem) -> Schedule:
    """ZB-H1, (4): as much memory as 1F1B on its first device."""
    return _by_hand(problem, "zb-h1", 1)


def zb_h2(problem: ScheduleProblem) -> Schedule:
    """ZB-H2, (4): twice as much."""
    return _by_hand(problem, "zb-h2", 2)


def _by_hand(problem: ScheduleProblem, kind: str, ahead: int) -> Schedule:
    p, m = problem.num_devices, problem.num_micro_batches
    require(problem, sequential(p), kind, "one chunk a device, in order")
    return Schedule(kind, tuple(_split_stage(d, ahead * (p - 1 - d), ahead * (p - 1), m) for d in range(p)))


def _split_stage(d: int, ahead: int, ahead_of_weights: int, m: int) -> Ints:
    """Order of one stage; times are positions in units of one round."""
    i = np.arange(m)
    forward, input_gradient = i.astype(float), ahead + i + 0.25
    weight = ahead_of_weights + i + 0.5
    when = np.concatenate((forward, input_gradient, weight))
    kind = np.repeat((FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT), m)
    order = np.argsort(when, kind="stable")
    return np.column_stack((kind, np.full(3 * m, d), np.tile(i, 3)))[order]
