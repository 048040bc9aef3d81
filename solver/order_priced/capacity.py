r"""
Lower bound on every division of a candidate whose schedule is priced by its order, by how many layers devices can take.

With :math:`t_d(x, N)` the least seconds of device d's own passes where its first chunk has x layers and all have N
(``taut.solver.order_priced.device_options``), :math:`w_d` the least seconds that its path spends with a layer in a
first chunk of a device before it, :math:`\tau_d` those of its transfers, and :math:`\rho(N_0)` the least seconds of
ring and optimizer where device 0 has :math:`N_0` layers, every division within T seconds keeps

(1) :math:`t_d(x_d, N_d) + w_d \sum_{e < d} x_e + \tau_d + \rho(N_0) \le T` for all d.

(2) :math:`U_d(S)`, the most layers that devices before d take with S of them in first chunks, follows for each
    :math:`N_0` by :math:`U_{d+1}(S + x) = \max_x U_d(S) + \max \{N : (1)\}`. If :math:`\max_S U_{pp}(S) < L` for every
    :math:`N_0` no division is within T, and T is a lower bound.

(3) If (2) holds without a limit of time no division fits memory. The same with more memory for every device says how
    much is missing at least.

Unlike the bound by weighted paths (``taut.solver.order_priced.bound``) this keeps the memory and the whole layers of
every device at once, and looks at no path but the devices' own. The witness is T, or the missing memory.
"""

import numpy as np

from taut.data.arrays import Floats
from taut.formulations.compiled import jit
from taut.formulations.order_division import ChunkProblem
from taut.solver.order_priced.critical_paths import Path
from taut.solver.order_priced.device_chain import Devices
from taut.solver.order_priced.device_options import Options

PRECISION = 1e-6
"""Relative distance between a proven T and one that (2) does not exclude."""


class Capacity:
    """What devices can take within any T up to their limit."""

    def __init__(self, devices: Devices) -> None:
        given = devices.given
        self._layers = given.num_layers
        seconds = np.array([_least_seconds(options, devices.most) for options in devices.options])
        hops = np.array([path.transfers[given.away].sum() for path in devices.paths])
        self._tables = (
            seconds,
            np.array([_before(devices, d, path) for d, path in enumerate(devices.paths)]),
            np.where(hops > 0, hops * devices.edge, 0.0),
            _tail(devices) + given.constant,
        )

    def excludes(self, seconds: float) -> bool:
        """Whether no division is within so many seconds, at most the limit, (2)."""
        return not _reaches(*self._tables, seconds, self._layers)


def _least_seconds(options: Options, most: int) -> Floats:
    """Least seconds of a device's own passes by layers of its first chunk and of all, t of (1)."""
    least = np.full((most + 1, most + 1), np.inf)
    np.minimum.at(least, (options.layers[:, 0], options.whole), options.seconds)
    return least


def _before(devices: Devices, device: int, path: Path) -> float:
    """Least seconds that a device's path spends with a layer of a first chunk before it, w of (1)."""
    if device == 0:
        return 0.0
    # The chunks before are the model's first one and others.
    chunks = range(min(device, 2))
    weights = np.tile(path.passes[:device].min(axis=0).astype(float), (len(chunks), 1))
    each = devices.figures.seconds(chunks, weights)[..., 1:] / np.arange(1, devices.most + 1)
    return float(each.min())


def _tail(devices: Devices) -> Floats:
    """Least seconds of ring and optimizer by device 0's layers (N,), infinite where it cannot have so many."""
    given, options, hosted = devices.given, devices.options[0], devices.given.hosted(0)
    parameters = devices.figures.parameters(hosted)[np.arange(len(hosted)), options.layers].sum(axis=1)
    least = np.full(devices.most + 1, np.inf)
    np.minimum.at(least, options.whole, given.per_parameter * parameters)
    return least


def capacity_bound(devices: Devices) -> float:
    """Largest T up to the devices' limit that (2) proves; minus infinity where the options are too many."""
    if not devices.known:
        return -np.inf
    capacity, low, high = Capacity(devices), 0.0, devices.limit
    if capacity.excludes(high):
        return high
    while high - low > PRECISION * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if capacity.excludes(middle) else (low, middle)
    return low


def proves(given: ChunkProblem, seconds: float) -> bool:
    """Whether (2) proves that no division is within so many seconds."""
    devices = Devices(given, seconds)
    return devices.known and Capacity(devices).excludes(seconds)


def missing_capacity(given: ChunkProblem) -> int:
    """Bytes that some device lacks in every division, by (3): at most a hundredth less than it proves; 0 for none."""
    devices, low, high = Devices(given), -1, 1 << 20
    if not lacks(devices, 0):
        return 0
    while lacks(devices, high):
        low, high = high, 2 * high
    while high - low > max(high // 100, 1):
        middle = (low + high) // 2
        low, high = (middle, high) if lacks(devices, middle) else (low, middle)
    return low + 1


def lacks(devices: Devices, more: int) -> bool:
    """Whether no division fits with so many more bytes on every device, (3)."""
    return devices.known and Capacity(devices.with_more(more)).excludes(np.inf)


@jit
def _reaches(seconds: Floats, before: Floats, transfers: Floats, tail: Floats, within: float, layers: int) -> bool:
    """Whether (2) reaches all layers for some number of them on device 0."""
    devices, most = seconds.shape[0], seconds.shape[1] - 1
    size = devices * most + 1
    for n in range(1, most + 1):
        left = within - tail[n]
        taken = np.full(size, -1)
        for x in range(1, n + 1):
            if seconds[0, x, n] + transfers[0] <= left and seconds[0, x, n] < np.inf:
                taken[x] = n
        for d in range(1, devices):
            more, best = np.full(size, -1), -1
            for s in range(size - most):
                # As many layers with fewer of them in first chunks leave the others more time.
                if taken[s] <= best:
                    continue
                best = taken[s]
                alone = min(left - transfers[d] - before[d] * s, 1e299)
                for x in range(1, most + 1):
                    for whole in range(most, x - 1, -1):
                        if seconds[d, x, whole] <= alone:
                            more[s + x] = max(more[s + x], best + whole)
                            break
            taken = more
        if taken.max() >= layers:
            return True
    return False
