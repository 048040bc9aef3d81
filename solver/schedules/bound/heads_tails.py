r"""
Heads and tails of passes: how early each can start, and how much time must follow its end.

Data are whole numbers, ``taut.solver.schedules.bound.rounded_problem``; micro-batches run in order in every (chunk,
kind). A head is a lower bound on a start, a tail one on the time units from an end until the last pass of all ends
[1]_:

.. math::
    h^F_{c,k} &\ge h^F_{c-1,k} + f_{c-1} + t_{c-1}, \quad h^F_{c,k-1} + f_c, \quad
        h^F_{c_0,0} + (k + 1) \sum_{c' < c} f_{c'} + k f_c \tag{1} \\
    h^I_{c,k} &\ge h^F_{c,k} + f_c, \quad h^I_{c+1,k} + b_{c+1} + t_c, \quad h^I_{c,k-1} + b_c, \quad
        h^F_{c_0,0} + (k + 1) \Big( \sum_{c'} f_{c'} + \sum_{c' > c} b_{c'} \Big) + k b_c \tag{2} \\
    q^I_{c,k} &\ge t_{c-1} + b_{c-1} + q^I_{c-1,k}, \quad b_c + q^I_{c,k+1}, \quad
        (m - k) \Big( w_c + \sum_{c' < c} (b_{c'} + w_{c'}) \Big) + (m - 1 - k) b_c \tag{3} \\
    q^F_{c,k} &\ge b_c + q^I_{c,k}, \quad t_c + f_{c+1} + q^F_{c+1,k}, \quad f_c + q^F_{c,k+1}, \quad
        (m - k) \Big( \sum_{c' > c} f_{c'} + \sum_{c'} (b_{c'} + w_{c'}) \Big) + (m - 1 - k) f_c \tag{4}

where :math:`c_0` is the first chunk of the device and sums are over its chunks. The first terms propagate along the
chain of a micro-batch. The last terms are the work that one device does for micro-batches up to k, or from k on, before
or after the pass: for j at most k, F of (c', j) comes before I of (c', j), which comes before I of (c, j) if c' > c; if
c' < c then F of (c', j) comes before F of (c, j).

References
----------
.. [1] Carlier, J. (1982). The one-machine sequencing problem. European J. of Operational Research 11: 42-47.
"""

import numpy as np

from taut.data.arrays import Ints
from taut.formulations.schedules.recurrence import FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT
from taut.solver.schedules.bound.rounded_problem import RoundedProblem


def heads(rounded: RoundedProblem, known: Ints | None = None) -> Ints:
    """
    Earliest starts, (1) and (2).

    ``known``: heads that are known already (3, C, m); none is lowered. Returns time units by kind F, I, W, chunk and
    micro-batch (3, C, m).
    """
    f, b, w, t = rounded.forward, rounded.input_gradient, rounded.weight_gradient, rounded.transfer
    chunks, k = len(f), np.arange(rounded.micro_batches)
    head = np.zeros((3, chunks, len(k)), np.int64) if known is None else known.copy()
    for c in range(chunks):
        mates = np.flatnonzero(rounded.device == rounded.device[c])
        before = head[FORWARD, mates[0], 0] + (k + 1) * f[mates[mates < c]].sum() + k * f[c]
        ready = head[FORWARD, c] if mates[0] == c else np.maximum(head[FORWARD, c], before)
        if c:
            ready = np.maximum(ready, head[FORWARD, c - 1] + f[c - 1] + t[c - 1])
        head[FORWARD, c] = _paced(ready, f[c])
    for c in reversed(range(chunks)):
        mates = np.flatnonzero(rounded.device == rounded.device[c])
        before = head[FORWARD, mates[0], 0] + (k + 1) * (f[mates].sum() + b[mates[mates > c]].sum()) + k * b[c]
        ready = np.maximum(np.maximum(head[INPUT_GRADIENT, c], before), head[FORWARD, c] + f[c])
        if c + 1 < chunks:
            ready = np.maximum(ready, head[INPUT_GRADIENT, c + 1] + b[c + 1] + t[c])
        head[INPUT_GRADIENT, c] = _paced(ready, b[c])
        head[WEIGHT_GRADIENT, c] = _paced(np.maximum(head[WEIGHT_GRADIENT, c], head[INPUT_GRADIENT, c] + b[c]), w[c])
    return head


def tails(rounded: RoundedProblem, known: Ints | None = None) -> Ints:
    """
    Least time after each pass, (3) and (4).

    ``known``: tails that are known already (3, C, m); none is lowered. Returns time units by kind F, I, W, chunk and
    micro-batch (3, C, m).
    """
    f, b, w, t = rounded.forward, rounded.input_gradient, rounded.weight_gradient, rounded.transfer
    chunks, k = len(f), np.arange(rounded.micro_batches)
    left = rounded.micro_batches - k
    tail = np.zeros((3, chunks, len(k)), np.int64) if known is None else known.copy()
    for c in range(chunks):
        mates = np.flatnonzero(rounded.device == rounded.device[c])
        tail[WEIGHT_GRADIENT, c] = (left - 1) * w[c]
        after = left * (w[c] + (b + w)[mates[mates < c]].sum()) + (left - 1) * b[c]
        after = np.maximum(tail[INPUT_GRADIENT, c], after)
        if c:
            after = np.maximum(after, t[c - 1] + b[c - 1] + tail[INPUT_GRADIENT, c - 1])
        tail[INPUT_GRADIENT, c] = _paced(after[::-1], b[c])[::-1]
    for c in reversed(range(chunks)):
        mates = np.flatnonzero(rounded.device == rounded.device[c])
        after = left * (f[mates[mates > c]].sum() + (b + w)[mates].sum()) + (left - 1) * f[c]
        after = np.maximum(np.maximum(tail[FORWARD, c], after), b[c] + tail[INPUT_GRADIENT, c])
        if c + 1 < chunks:
            after = np.maximum(after, t[c] + f[c + 1] + tail[FORWARD, c + 1])
        tail[FORWARD, c] = _paced(after[::-1], f[c])[::-1]
    return tail


def _paced(least: Ints, pace: int) -> Ints:
    """Raise bounds to those of a sequence that takes at least ``pace`` from each member to the next."""
    drift = pace * np.arange(len(least))
    return np.asarray(np.maximum.accumulate(least - drift) + drift)
