r"""
List scheduling under memory limits that never deadlocks: every device takes the ready pass of the least key.

Sets and data are those of :mod:`taut.formulations.schedules.schedule`. Time runs forward over all devices at once.
Micro-batches pass every chunk in order, which loses nothing since they are alike; so the state of a device is how many
forwards, gradients by input and gradients by weights each of its chunks has done, :math:`n^F_c, n^I_c, n^W_c`, and the
memory h that it holds. Let :math:`c_1 < c_2 < \dots` be its chunks. No gradient of a micro-batch starts before its last
forward, so micro-batch :math:`j = n^F_{c_r}`, the first that chunk :math:`c_r` has not seen, and those after it keep
what they hold until j has been forward through all chunks, and they block each other for ever unless

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

from taut.data.arrays import Floats, Ints
from taut.formulations.compiled import jit
from taut.formulations.schedules.schedule import FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT

_NEVER = np.inf


@jit
def list_schedule(
    hosted: Ints,
    device: Ints,
    seconds: Floats,
    transfer: Floats,
    m: int,
    activation: Floats,
    kept: Floats,
    allowed: Floats,
    slot: Floats,
    period: float,
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
        The pipeline, as in :class:`taut.formulations.schedules.schedule.ScheduleProblem`.
    slot, period
        Keys by kind (F, I, W) and chunk of the first micro-batch (3, C), and how much more each further one has.
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
    # One array each: a row of a table, taken in the loop, would be counted as another reference.
    forwards, inputs, weights = np.zeros(chunks, np.int64), np.zeros(chunks, np.int64), np.zeros(chunks, np.int64)
    forward_at, input_at = np.full((chunks, m), _NEVER), np.full((chunks, m), _NEVER)
    forward_at[0, :] = 0.0
    held = np.zeros(devices)
    decide = np.zeros(devices)
    row = first[:-1].copy()
    clock = np.zeros(devices)
    left = first[-1]
    makespan = 0.0
    while left > 0:
        d, now = 0, decide[0]
        for other in range(1, devices):
            if decide[other] < now:
                d, now = other, decide[other]
        if now == _NEVER:
            return _NEVER
        # The ready pass of the least key, and the least arrival of a pass that would go before it.
        kind, c, best = -1, -1, _NEVER
        for q in range(most):
            x = hosted[d, q]
            if x < 0:
                break
            i = inputs[x]
            if i < forwards[x] and input_at[x, i] <= now and slot[1, x] + period * i < best:
                kind, c, best = INPUT_GRADIENT, x, slot[1, x] + period * i
        spare, spare_key = -1, _NEVER
        for q in range(most):
            x = hosted[d, q]
            if x < 0:
                break
            i = weights[x]
            if i < inputs[x] and slot[2, x] + period * i < spare_key:
                spare, spare_key = x, slot[2, x] + period * i
        if spare_key < best:
            kind, c, best = WEIGHT_GRADIENT, spare, spare_key
        for q in range(most):
            x = hosted[d, q]
            if x < 0:
                break
            i = forwards[x]
            key = slot[0, x] + period * i
            if i < m and forward_at[x, i] <= now and key < best and i - inputs[x] < cap[x]:
                if not _safe(hosted, d, forwards, x, activation, allowed[d]):
                    continue
                if held[d] + activation[x] <= allowed[d]:
                    kind, c, best = FORWARD, x, key
                elif spare >= 0 and kept[spare] > 0:
                    kind, c, best = WEIGHT_GRADIENT, spare, key
        soon = _NEVER
        for q in range(most):
            x = hosted[d, q]
            if x < 0:
                break
            i = inputs[x]
            if i < forwards[x] and now < input_at[x, i] < soon and slot[1, x] + period * i < best:
                soon = input_at[x, i]
            i = forwards[x]
            if (
                i < m
                and now < forward_at[x, i] < soon
                and slot[0, x] + period * i < best
                and i - inputs[x] < cap[x]
                and held[d] + activation[x] <= allowed[d]
                and _safe(hosted, d, forwards, x, activation, allowed[d])
            ):
                soon = forward_at[x, i]
        if kind < 0:
            decide[d] = soon
            continue
        if soon - now < patience[1 if kind == WEIGHT_GRADIENT else 0] * seconds[kind, c]:
            decide[d] = soon
            continue
        end = now + seconds[kind, c]
        clock[d] = end
        decide[d] = end
        makespan = max(makespan, end)
        if kind == FORWARD:
            i = forwards[c]
            forwards[c] += 1
            held[d] += activation[c]
            if c < chunks - 1:
                forward_at[c + 1, i] = end + transfer[c]
                other = device[c + 1]
                decide[other] = min(decide[other], max(clock[other], end + transfer[c]))
            else:
                input_at[c, i] = end
        elif kind == INPUT_GRADIENT:
            i = inputs[c]
            inputs[c] += 1
            held[d] -= activation[c] - kept[c]
            if c > 0:
                input_at[c - 1, i] = end + transfer[c - 1]
                other = device[c - 1]
                decide[other] = min(decide[other], max(clock[other], end + transfer[c - 1]))
        else:
            i = weights[c]
            weights[c] += 1
            held[d] -= kept[c]
        passes[row[d], 0], passes[row[d], 1], passes[row[d], 2] = kind, c, i
        row[d] += 1
        left -= 1
    return makespan


@jit
def _safe(hosted: Ints, d: int, forwards: Ints, c: int, activation: Floats, allowed: float) -> bool:
    """Whether (1) holds on a device after one more forward of a chunk."""
    for p in range(hosted.shape[1]):
        r = hosted[d, p]
        if r < 0:
            break
        seen = forwards[r] + (1 if r == c else 0)
        total = 0.0
        for q in range(hosted.shape[1]):
            x = hosted[d, q]
            if x < 0:
                break
            total += activation[x] * max(forwards[x] + (1 if x == c else 0) - seen, 1)
        if total > allowed:
            return False
    return True
