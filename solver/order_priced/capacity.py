r"""
Destructive bound by the layers that every device can take within a time.

Sets: devices d, numbers of layers :math:`x` of a device's first chunk and :math:`N` of all its chunks.
Data: :math:`t_d(S, x, N)`, the least seconds of device d's own passes with S layers in the first chunks of the devices
before it, which tell apart the layers in front alone (``taut.solver.order_priced.device_options``);
:math:`w_d`, the least seconds that its path spends with a layer in a first chunk of a device before it;
:math:`\tau_d`, those of its transfers; :math:`\rho(N_0)`, the least seconds of ring and optimizer where device 0 has
:math:`N_0` layers. Where every device is waited for, the path of a device that does not end on device 0 has those of
its own layers in :math:`t_d` instead.

A trial value T is refuted if no division is within T seconds; then T is a lower bound. Every division within T keeps

(1) :math:`t_d(S_d, x_d, N_d) + w_d \sum_{e < d} x_e + \tau_d + \rho(N_0) \le T` for all d (without :math:`\rho` where
    the path ends elsewhere). Where embedding and head are divided beside the layers, the embedding counts in
    :math:`x_0` and takes no time here: :math:`w_d (\sum_{e < d} x_e - 1)`.

(2) Let :math:`U_d(S)` be the most layers that the devices before d take with S of them in first chunks. For each
    :math:`N_0` it follows by dynamic programming, :math:`U_{d+1}(S + x) = \max_x U_d(S) + \max \{N : (1)\}`. If
    :math:`\max_S U_{pp}(S) < L` for every :math:`N_0` no division keeps (1), and T is refuted.

(3) If T is refuted without any limit of time, no division fits memory. The same with more memory on every device says
    how much is missing at least.

The largest T that is refuted is found by bisection. The bound by weighted paths (``taut.solver.order_priced.bound``)
relaxes memory and whole numbers of layers; this one keeps both for every device at once, and regards the devices' own
paths alone. The witness is T, or the missing memory.

References
----------
Klein and Scholl (1999), Computing lower bounds by destructive improvement: an application to resource-constrained
project scheduling.
"""

from collections.abc import Callable

import numpy as np

from taut.data.arrays import Floats
from taut.formulations.compiled import jit
from taut.formulations.order_division import ChunkProblem
from taut.solver.order_priced.critical_paths import Path
from taut.solver.order_priced.device_options import DeviceChain

PRECISION = 1e-6
"""Relative distance between a proven T and one that (2) does not refute; bisection needs 20 trials."""


class LayerCapacity:
    """The layers that ``devices`` with enumerable options can take within any T up to their limit."""

    def __init__(self, devices: DeviceChain) -> None:
        given = devices.given
        self._layers = given.num_layers
        own = given.waits_for_all & (np.array([path.last for path in devices.paths]) != 0)
        seconds = np.array([_least_seconds(devices, d) for d in range(len(devices.options))])
        for d in np.flatnonzero(own).tolist():
            seconds[d] += _tail(devices, d)
        hops = np.array([path.transfers[given.away].sum() for path in devices.paths])
        before = np.array([_before(devices, d, path) for d, path in enumerate(devices.paths)])
        self._tables = (
            seconds,
            before,
            # An embedding that is divided beside the layers counts as one in the first chunk, and takes no time here.
            np.where(hops > 0, hops * devices.least_cut, 0.0) - given.ends * before,
            np.where(own[:, None], 0.0, _tail(devices, 0)) + given.constant,
        )

    def refutes(self, seconds: float) -> bool:
        """Whether (2) refutes so many seconds, at most the limit."""
        return not _reaches(*self._tables, seconds, self._layers)


def _least_seconds(devices: DeviceChain, device: int) -> Floats:
    """Least seconds t of (1) of a device by start and layers of its first and of all its chunks (s, most+1, most+1)."""
    minima, most, hosted = devices.minima, devices.most_layers, devices.given.hosted(device)
    least = np.full((minima.last_start + 1, most + 1, most + 1), np.inf)
    weights = devices.paths[device].passes[hosted].astype(float)
    for start in minima.starts(device):
        devices.options[device].take_least(start, 0, minima.seconds(hosted, weights, start), least[start])
    return least


def _before(devices: DeviceChain, device: int, path: Path) -> float:
    """Least seconds that a device's path spends with a layer of a first chunk before it, w of (1)."""
    if device == 0:
        return 0.0
    # Further chunks are like the last of these.
    chunks = range(min(device, devices.minima.kinds))
    weights = np.tile(path.passes[:device].min(axis=0).astype(float), (len(chunks), 1))
    layers = np.arange(1, devices.most_layers + 1) - devices.given.ends * (np.arange(len(chunks)) == 0)[:, None]
    each = devices.minima.seconds(chunks, weights)[..., 1:] / np.maximum(layers, 1)[:, None]
    return float(each.min(axis=1)[layers > 0].min(initial=np.inf)) if (layers > 0).any() else 0.0


def _tail(devices: DeviceChain, device: int) -> Floats:
    """Least seconds of ring and optimizer by a device's layers (N,), infinite where it cannot have so many."""
    given, minima, least = devices.given, devices.minima, np.full((1, devices.most_layers + 1), np.inf)
    loads = minima.loads(given.hosted(device))[:, None].repeat(1 << minima.bits, axis=1)
    for start in minima.starts(device):
        devices.options[device].take_least(start, 0, loads, least)
    least[np.isfinite(least)] *= given.ring + given.optimizer
    return np.asarray(least[0])


def capacity_bound(devices: DeviceChain) -> float:
    """Largest T in seconds, up to the devices' limit, that (2) refutes; minus infinity where options are too many."""
    if not devices.is_enumerable:
        return -np.inf
    return most_refuted(LayerCapacity(devices).refutes, devices.limit)


def most_refuted(refutes: Callable[[float], bool], limit: float) -> float:
    """The most seconds up to a limit, nearly, that a test refutes."""
    low, high = 0.0, limit
    if refutes(high):
        return high
    while high - low > PRECISION * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if refutes(middle) else (low, middle)
    return low


def is_lower_bound(given: ChunkProblem, seconds: float) -> bool:
    """Whether (2) refutes so many seconds, so that they are a lower bound."""
    devices = DeviceChain(given, seconds)
    return devices.is_enumerable and LayerCapacity(devices).refutes(seconds)


def missing_memory(given: ChunkProblem) -> int:
    """Bytes that some device lacks in every division, by (3), within a hundredth of the most it proves; 0 for none."""
    devices, low, high = DeviceChain(given), -1, 1 << 20
    if not is_too_small(devices, 0):
        return 0
    while is_too_small(devices, high):
        low, high = high, 2 * high
    while high - low > max(high // 100, 1):
        middle = (low + high) // 2
        low, high = (middle, high) if is_too_small(devices, middle) else (low, middle)
    return low + 1


def is_too_small(devices: DeviceChain, more: int) -> bool:
    """Whether no division fits even with so many more bytes on every device, (3)."""
    return devices.is_enumerable and LayerCapacity(devices.with_memory(more)).refutes(np.inf)


@jit
def _reaches(seconds: Floats, before: Floats, transfers: Floats, tail: Floats, within: float, layers: int) -> bool:
    """Whether devices take all layers within so many seconds, for some number of them on device 0, (2)."""
    devices, last, most = seconds.shape[0], seconds.shape[1] - 1, seconds.shape[2] - 1
    size = devices * most + 1
    for n in range(1, most + 1):
        taken = np.full(size, -1)
        for x in range(1, n + 1):
            if seconds[0, 0, x, n] + transfers[0] <= within - tail[0, n] and seconds[0, 0, x, n] < np.inf:
                taken[x] = n
        for d in range(1, devices):
            more, best = np.full(size, -1), -1
            for s in range(size - most):
                start = min(s, last)
                # Of layers alike, as many with fewer of them in first chunks leave the others more time.
                if taken[s] <= best:
                    continue
                if start == last:
                    best = taken[s]
                alone = min(within - tail[d, n] - transfers[d] - before[d] * s, 1e299)
                for x in range(1, most + 1):
                    for whole in range(most, x - 1, -1):
                        if seconds[d, start, x, whole] <= alone:
                            more[s + x] = max(more[s + x], taken[s] + whole)
                            break
            taken = more
        if taken.max() >= layers:
            return True
    return False
