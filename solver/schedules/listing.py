r"""
List scheduling under memory limits that never deadlocks: every device takes the ready pass of the least key.

Sets and data are those of :mod:`taut.formulations.schedule`. Time runs forward over all devices at once. Micro-batches
pass every chunk in order, which loses nothing since they are alike; so the state of a device is how many forwards,
gradients by input and gradients by weights each of its chunks has done, :math:`n^F_c, n^I_c, n^W_c`, and the memory h
that it holds. Let :math:`c_1 < c_2 < \dots` be its chunks. No gradient of a micro-batch starts before its last forward,
so micro-batch :math:`j = n^F_{c_r}`, the first that chunk :math:`c_r` has not seen, and those after it keep what they
hold until j has been forward through all chunks, and they block each other for ever unless

.. math:: \sum_q a_{c_q} \max(n^F_{c_q} - n^F_{c_r}, 1) \le M_d \quad \text{for every r}. \tag{1}

A forward starts only if (1) holds after it, :math:`h + a_c \le M_d` (2), and fewer micro-batches are in flight on the
chunk than a cap of at least one (3). Then the oldest micro-batch that is not done can always go on, possibly after
gradients by weights, which are always free to run: the schedule ends. Conversely a state against (1) can never end, so
the rule costs nothing; and at the start (1) says that one micro-batch fits, which every schedule needs.

At a decision, passes are compared by key: a smaller one goes first. ``patience`` is the share of a pass's duration for
which the device would rather wait for a pass of smaller key that is known to arrive. A forward that only (2) keeps
waiting lends its key to the gradient by weights that makes room for it.
"""

import numpy as np
from numba import njit

from taut.formulations.schedule import FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, Floats, Ints

_NEVER = np.inf


@njit(cache=True, nogil=True)
def list_schedule(
    hosted: Ints,
    device: Ints,
    seconds: Floats,
    transfer: Floats,
    m: int,
    activation: Floats,
    kept: Floats,
    allowed: Floats,
    key: Floats,
    cap: Ints,
    patience: Floats,
    passes: Ints,
    first: Ints,
) -> float:
    """
    Order all passes by keys; see the module.

    Parameters
    ----------
    hosted
        Chunks of each device in order, -1 beyond the last (devices, most chunks).
    device, seconds, transfer, m, activation, kept, allowed
        The pipeline, as in :class:`taut.formulations.schedule.ScheduleProblem`.
    key
        Keys by kind (F, I, W), chunk and micro-batch (3, C, m), not decreasing in micro-batches.
    cap
        Most micro-batches in flight by chunk (C,), at least 1.
    patience
        Share of a forward's or input gradient's, and of a weight gradient's duration to wait for better (2,).
    passes, first
        Filled with the orders (n, 3), flat; row of each device's first pass (devices + 1,).

    Returns
    -------
    float
        Makespan in seconds; infinite if the pipeline does not fit at all, and the orders then mean nothing.
    """
    devices, most = hosted.shape
    chunks = len(device)
    done = np.zeros((3, chunks), dtype=np.int64)
    arrival = np.full((2, chunks, m), _NEVER)
    arrival[0, 0, :] = 0.0
    held = np.zeros(devices)
    decide = np.zeros(devices)
    row = first[:-1].copy()
    clock = np.zeros(devices)
    left = first[-1]
    makespan = 0.0
    while left > 0:
        d = 0
        for other in range(1, devices):
            if decide[other] < decide[d]:
                d = other
        now = decide[d]
        if now == _NEVER:
            return _NEVER
        # The ready pass of the least key, and the least arrival of a pass that would go before it.
        kind, c, best = -1, -1, _NEVER
        for q in range(most):
            x = hosted[d, q]
            if x < 0:
                break
            i = done[INPUT_GRADIENT, x]
            if i < done[FORWARD, x] and arrival[1, x, i] <= now and key[1, x, i] < best:
                kind, c, best = INPUT_GRADIENT, x, key[1, x, i]
        spare, spare_kept, spare_key = -1, -1.0, _NEVER
        for q in range(most):
            x = hosted[d, q]
            if x < 0:
                break
            i = done[WEIGHT_GRADIENT, x]
            if i < done[INPUT_GRADIENT, x]:
                if key[2, x, i] < best:
                    kind, c, best = WEIGHT_GRADIENT, x, key[2, x, i]
                if key[2, x, i] < spare_key:
                    spare, spare_kept, spare_key = x, kept[x], key[2, x, i]
        for q in range(most):
            x = hosted[d, q]
            if x < 0:
                break
            i = done[FORWARD, x]
            if i < m and arrival[0, x, i] <= now and key[0, x, i] < best and i - done[INPUT_GRADIENT, x] < cap[x]:
                if not _safe(hosted[d], done[FORWARD], x, activation, allowed[d]):
                    continue
                if held[d] + activation[x] <= allowed[d]:
                    kind, c, best = FORWARD, x, key[0, x, i]
                elif spare >= 0 and spare_kept > 0:
                    kind, c, best = WEIGHT_GRADIENT, spare, key[0, x, i]
        soon = _NEVER
        for q in range(most):
            x = hosted[d, q]
            if x < 0:
                break
            i = done[INPUT_GRADIENT, x]
            if i < done[FORWARD, x] and arrival[1, x, i] > now and key[1, x, i] < best:
                soon = min(soon, arrival[1, x, i])
            i = done[FORWARD, x]
            if (
                i < m
                and arrival[0, x, i] > now
                and key[0, x, i] < best
                and i - done[INPUT_GRADIENT, x] < cap[x]
                and held[d] + activation[x] <= allowed[d]
                and _safe(hosted[d], done[FORWARD], x, activation, allowed[d])
            ):
                soon = min(soon, arrival[0, x, i])
        if kind < 0:
            decide[d] = soon
            continue
        if soon - now < patience[1 if kind == WEIGHT_GRADIENT else 0] * seconds[kind, c]:
            decide[d] = soon
            continue
        i = done[kind, c]
        done[kind, c] += 1
        passes[row[d], 0], passes[row[d], 1], passes[row[d], 2] = kind, c, i
        row[d] += 1
        left -= 1
        end = now + seconds[kind, c]
        clock[d] = end
        decide[d] = end
        makespan = max(makespan, end)
        if kind == FORWARD:
            held[d] += activation[c]
            if c < chunks - 1:
                arrival[0, c + 1, i] = end + transfer[c]
                other = device[c + 1]
                decide[other] = min(decide[other], max(clock[other], end + transfer[c]))
            else:
                arrival[1, c, i] = end
        elif kind == INPUT_GRADIENT:
            held[d] -= activation[c] - kept[c]
            if c > 0:
                arrival[1, c - 1, i] = end + transfer[c - 1]
                other = device[c - 1]
                decide[other] = min(decide[other], max(clock[other], end + transfer[c - 1]))
        else:
            held[d] -= kept[c]
    return makespan


@njit(cache=True, nogil=True)
def _safe(chunks: Ints, forwards: Ints, c: int, activation: Floats, allowed: float) -> bool:
    """Whether (1) holds after one more forward of a chunk."""
    for r in chunks:
        if r < 0:
            break
        seen = forwards[r] + (1 if r == c else 0)
        total = 0.0
        for q in chunks:
            if q < 0:
                break
            total += activation[q] * max(forwards[q] + (1 if q == c else 0) - seen, 1)
        if total > allowed:
            return False
    return True
