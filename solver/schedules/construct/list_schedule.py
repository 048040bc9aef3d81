r"""
List scheduling with priority keys under memory limits, without deadlock.

Sets and data are those of ``taut.formulations.schedules.schedule``. This is the parallel schedule generation scheme
[1]_ [2]_: time runs forward over all devices at once, and a device that is free starts the eligible pass of least key.
For kind k, chunk c and micro-batch i the key is

.. math:: \kappa_{k,c} + i \, P, \tag{1}

the slot of the pass in a building block that is repeated every P slots.

Micro-batches pass every chunk in order, a dominance rule (``taut.solver.schedules.canonical``). So the state of a
device is how many forwards, gradients by the input and gradients by the weights each of its chunks has done,
:math:`n^F_c, n^I_c, n^W_c`, and the memory h that it holds. Let :math:`c_1 < c_2 < \dots` be its chunks. No gradient of
a micro-batch starts before its last forward. So micro-batch :math:`j = n^F_{c_r}`, the first that chunk :math:`c_r` has
not seen, and all later ones keep what they hold until j has been forward through all chunks; the device deadlocks
unless

.. math:: \sum_q a_{c_q} \max(n^F_{c_q} - n^F_{c_r}, 1) \le M_d \quad \text{for every r}. \tag{2}

A forward is eligible only if its input has arrived, (2) holds after it, :math:`h + a_c \le M_d` (3), and fewer
micro-batches are in flight on the chunk than a cap of at least one (4). Condition (2) is the safety test of deadlock
avoidance [3]_: the oldest unfinished micro-batch can always go on, possibly after gradients by the weights, which are
always eligible. A state against (2) can never end, so the test loses no schedule; at the start it says that one
micro-batch fits, which every schedule needs.

A device may also wait (5): it idles up to a share, ``patience``, of the chosen pass's duration if a pass of smaller key
is known to arrive by then, as in parameterised active schedules [4]_. A forward that only (3) excludes lends its key to
the gradient by the weights that makes room for it (6).

References
----------
.. [1] Graham, R.L. (1969). Bounds on multiprocessing timing anomalies. SIAM Journal on Applied Mathematics 17: 416-429.
.. [2] Kolisch, R. (1996). Serial and parallel resource-constrained project scheduling methods revisited. European J. of
       Operational Research 90: 320-333.
.. [3] Dijkstra, E.W. (1965). Cooperating sequential processes. Technical report EWD-123, section 6.
.. [4] Storer, R.H., Wu, S.D. and Vaccari, R. (1992). New search spaces for sequencing problems with application to job
       shop scheduling. Management Science 38: 1495-1509.
"""

from typing import NamedTuple

import numpy as np

from taut.data.arrays import Floats, Ints
from taut.formulations.compiled import jit, jit_inside
from taut.formulations.schedules.schedule import FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT

_NEVER = np.inf


class ListProblem(NamedTuple):
    """
    What a list schedule reads of a pipeline.

    ``hosted``: chunks of each device in order, -1 beyond the last (devices, most chunks); ``device``: device of each
    chunk (C,); ``seconds``: duration by kind (F, I, W, B) and chunk (4, C); ``transfer``: seconds between each chunk
    and the next (C - 1,); ``activation``, ``kept``: units that a forward takes, and those kept for the gradient by the
    weights (C,); ``allowed``: memory limit in units (devices,); ``micro_batches``: number m.
    """

    hosted: Ints
    device: Ints
    seconds: Floats
    transfer: Floats
    activation: Floats
    kept: Floats
    allowed: Floats
    micro_batches: int


class ListRule(NamedTuple):
    """
    The priority rule of a list schedule.

    ``slot``, ``period``: keys of the first micro-batch by kind (F, I, W) and chunk (3, C), and what each further one
    adds, (1); ``cap``: most micro-batches in flight by chunk (C,), at least 1, (4); ``patience``: share of a forward's
    or input gradient's, and of a weight gradient's duration to wait, (2,), (5).
    """

    slot: Floats
    period: float
    cap: Ints
    patience: Floats


@jit
def list_schedule(problem: ListProblem, rule: ListRule, passes: Ints, first: Ints) -> float:
    """
    Order all passes of a pipeline by a priority rule.

    ``problem``, ``rule``: the pipeline and the rule; ``passes``: filled with the orders, rows (kind, chunk,
    micro-batch), device after device (n, 3); ``first``: row of each device's first pass, then n (devices + 1,). Returns
    makespan in seconds; infinite if the pipeline does not fit at all, and the orders then mean nothing.
    """
    # Arrays taken out of a tuple, or rows out of a table, inside the loop would each be counted as another reference.
    hosted, device, seconds, transfer, activation, kept, allowed, m = problem
    slots, period, cap, patience = rule
    forward_slot, input_slot, weight_slot = slots[0], slots[1], slots[2]
    chunks, devices = len(device), len(hosted)
    most = hosted.shape[1]
    forwards, inputs, weights = np.zeros(chunks, np.int64), np.zeros(chunks, np.int64), np.zeros(chunks, np.int64)
    forward_at, input_at = np.full((chunks, m), _NEVER), np.full((chunks, m), _NEVER)
    forward_at[0, :] = 0.0
    held, decide, free_at = np.zeros(devices), np.zeros(devices), np.zeros(devices)
    row, left, makespan = first[:-1].copy(), first[-1], 0.0
    while left > 0:
        d, now = 0, decide[0]
        for other in range(1, devices):
            if decide[other] < now:
                d, now = other, decide[other]
        if now == _NEVER:
            return _NEVER
        kind, c, best = INPUT_GRADIENT, -1, _NEVER
        spare, spare_key = -1, _NEVER
        for q in range(most):
            x = hosted[d, q]
            if x < 0:
                break
            i = inputs[x]
            if i < forwards[x] and input_at[x, i] <= now and input_slot[x] + period * i < best:
                c, best = x, input_slot[x] + period * i
            i = weights[x]
            if i < inputs[x] and weight_slot[x] + period * i < spare_key:
                spare, spare_key = x, weight_slot[x] + period * i
        if spare_key < best:
            kind, c, best = WEIGHT_GRADIENT, spare, spare_key
        for q in range(most):
            x = hosted[d, q]
            if x < 0:
                break
            i = forwards[x]
            key = forward_slot[x] + period * i
            if i < m and forward_at[x, i] <= now and key < best and i - inputs[x] < cap[x]:
                if not _is_safe(hosted, d, forwards, x, activation, allowed[d]):
                    continue
                if held[d] + activation[x] <= allowed[d]:
                    kind, c, best = FORWARD, x, key
                elif spare >= 0 and kept[spare] > 0:
                    kind, c, best = WEIGHT_GRADIENT, spare, key
        # The first arrival of an input whose pass has a smaller key, (5).
        arrival = _NEVER
        for q in range(most):
            x = hosted[d, q]
            if x < 0:
                break
            i = inputs[x]
            if i < forwards[x] and now < input_at[x, i] < arrival and input_slot[x] + period * i < best:
                arrival = input_at[x, i]
            i = forwards[x]
            if (
                i < m
                and now < forward_at[x, i] < arrival
                and forward_slot[x] + period * i < best
                and i - inputs[x] < cap[x]
                and held[d] + activation[x] <= allowed[d]
                and _is_safe(hosted, d, forwards, x, activation, allowed[d])
            ):
                arrival = forward_at[x, i]
        if c < 0 or arrival - now < patience[1 if kind == WEIGHT_GRADIENT else 0] * seconds[kind, c]:
            decide[d] = arrival
            continue
        end = now + seconds[kind, c]
        free_at[d], decide[d] = end, end
        makespan = max(makespan, end)
        if kind == FORWARD:
            i = forwards[c]
            forwards[c] += 1
            held[d] += activation[c]
            if c < chunks - 1:
                forward_at[c + 1, i] = end + transfer[c]
                other = device[c + 1]
                decide[other] = min(decide[other], max(free_at[other], forward_at[c + 1, i]))
            else:
                input_at[c, i] = end
        elif kind == INPUT_GRADIENT:
            i = inputs[c]
            inputs[c] += 1
            held[d] -= activation[c] - kept[c]
            if c > 0:
                input_at[c - 1, i] = end + transfer[c - 1]
                other = device[c - 1]
                decide[other] = min(decide[other], max(free_at[other], input_at[c - 1, i]))
        else:
            i = weights[c]
            weights[c] += 1
            held[d] -= kept[c]
        passes[row[d], 0], passes[row[d], 1], passes[row[d], 2] = kind, c, i
        row[d] += 1
        left -= 1
    return makespan


@jit_inside
def _is_safe(hosted: Ints, d: int, forwards: Ints, c: int, activation: Floats, allowed: float) -> bool:
    """Whether (2) holds on a device after one more forward of a chunk."""
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
