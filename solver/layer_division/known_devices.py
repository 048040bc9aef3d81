r"""
Division of the layers over stages whose devices are known.

With t[x, i, j] the seconds of stage x on layers [i, j) on its own devices, and e[x, j] those of its transfer to the
next, the division minimises

(1) :math:`\sum_x t + \sum_x e + (m - 1) \max_x t`.

For a tolerance :math:`\mu` on every stage, :math:`D_\mu[x, j]` is the least sum of stages 0 to x on layers [0, j),
found stage by stage over the last cut. The optimum is the least of :math:`(m - 1) \mu + D_\mu[pp - 1, L]` over all
values that t takes. Tolerances ascend from the least with a division, the bottleneck
:math:`\min \max_x t`, and end where :math:`(m - 1) \mu + D_\infty` is no better than what was found.

It is the dynamic program of AMP (Li et al. 2022, section 3.5, equation 5), which tries all tolerances. Where stages are
alike ``taut.solver.layer_division.divide`` solves the same problem, with memory and what later stages wait for.

Where every stage is waited for, with f the forward seconds of a stage, R what follows its passes, O what all stages
then do together, and e' a transfer without its way back, the division minimises

(2) :math:`\max_s (\sum_{x < s} (f + e') + \sum_{x \ge s} (t + e) + R_s) + (m - 1) \max_x t + \max_x O`.

(3) Stages x to pp - 1 on layers [i, L) have labels (S, W, :math:`\mu`, o): the sum of t and e, the largest sum of (2)
    over their own s, the slowest t and the largest O. A stage in front makes them :math:`S' = t + e + S`,
    :math:`W' = \max(S' + R, f + e' + W)`, :math:`\mu' = \max(t, \mu)` and :math:`o' = \max(O, o)`. All are
    monotone, so a label that another is no worse than in all is dropped.
(4) Stages before x add at least F to W, the least :math:`\sum (f + e')`, and at least H to S, the largest over s of
    the least sum of (2) up to the cut. The slowest of them takes at least the bottleneck M. A label is dropped if
    :math:`\max(F + W, H + S) + (m - 1) \max(M, \mu) + o` is no less than the best division or a limit.
(5) Figures are rounded down to whole multiples of a power of two, so alike layers tie, and sums are exact. Beyond
    ``MOST_LABELS`` the labels of a state are merged into their least; the result is then a lower bound.
"""

from typing import NamedTuple

import numpy as np

from taut.data.arrays import Flags, Floats, Ints

BITS = 50
"""Bits of the best division's seconds, (5)."""
NEVER = 2**58
"""More than any sum of whole numbers, (5)."""
MOST_LABELS = 256
"""Labels of one state, (5)."""


class Waits(NamedTuple):
    """Figures of (2): t, f, R and O by stage and range (pp, L+1, L+1), e and e' by stage and cut (pp - 1, L+1)."""

    seconds: Floats
    forward: Floats
    after: Floats
    together: Floats
    cuts: Floats
    before: Floats

    def term(self, s: int) -> tuple[Floats, Floats]:
        """Seconds of stages and of cuts that the sum of stage s has with its own O, (2)."""
        ahead = np.arange(len(self.seconds)) < s
        added = np.where(ahead[:, None, None], self.forward, self.seconds)
        added[s] += self.after[s] + self.together[s]
        return added, np.where(ahead[:-1, None], self.before, self.cuts)

    def longest(self, m: int, ends: Ints) -> float:
        """The value of (2) of a division; infinite where a stage is."""
        every, starts = np.arange(len(ends)), np.concatenate([[0], ends[:-1]])
        t, f, after, together = (each[every, starts, ends] for each in self[:4])
        if not np.isfinite(t).all():
            return np.inf
        total, longest = 0.0, -np.inf
        for x in range(len(ends) - 1, -1, -1):
            last = x == len(ends) - 1
            total += t[x] + (0.0 if last else self.cuts[x, ends[x]])
            ahead = f[x] + (0.0 if last else self.before[x, ends[x]])
            longest = max(total + after[x], ahead + longest)
        return float(longest + (m - 1) * t.max() + together.max())


def divide(seconds: Floats, transfers: Floats, micro_batches: int, added: Floats | None = None) -> Ints | None:
    """Ends (pp,) of stages of least (1), or None; t is ``seconds`` (pp, L+1, L+1), e ``transfers`` (pp - 1, L+1)."""
    first, end = np.triu_indices(seconds.shape[1], 1)
    tolerances = np.unique(seconds[:, first, end])
    tolerances = tolerances[tolerances >= bottleneck(seconds)]
    least, ends = _sums(seconds, transfers, np.inf, added)
    if not np.isfinite(least):
        return None
    best = least + (micro_batches - 1) * _longest(seconds, ends)
    for tolerance in tolerances:
        if least + (micro_batches - 1) * tolerance >= best:
            break
        total, found = _sums(seconds, transfers, float(tolerance), added)
        if np.isfinite(total):
            value = total + (micro_batches - 1) * _longest(seconds, found)
            best, ends = min((best, ends), (value, found), key=lambda pair: pair[0])
    return ends


def divide_waited(given: Waits, m: int, known: Ints, limit: float = np.inf) -> tuple[float, Ints]:
    """
    What no division takes less than by (2), up to a limit, and the best division that is found.

    ``known``: ends of a division in finite seconds. Unless labels are merged, the first is the least of (2), of the
    second one, rounded down by (5), or the limit.
    """
    seconds = given.longest(m, known)
    best = min(seconds, limit)
    unit = 2.0 ** (int(np.frexp(max(seconds, float(np.abs(given.before).max(initial=0.0))))[1]) - BITS)
    # Of stage 0, the value (2) is no less than m t.
    most, fits = int(best / unit), given.seconds <= best
    whole = [np.floor(np.where(fits, np.minimum(each, 2 * best), 0.0) / unit) for each in given[:4]]
    t, f, after, together = (each.astype(np.int64) for each in whole)
    e, b = (np.pad(np.floor(each / unit), ((0, 1), (0, 0))).astype(np.int64) for each in given[4:])
    ahead, through, slowest = _prefixes(t, f, after, e, b, fits)
    pp, layers = len(t), t.shape[1] - 1
    kept = [{layers: np.array([[0, -NEVER, 0, 0, 0, 0]])}]
    for x in range(pp - 1, -1, -1):
        found = list[Ints]()
        for j, labels in kept[-1].items():
            i = np.flatnonzero(fits[x, :j, j])
            own = t[x, i, j][:, None]
            total = own + e[x, j] + labels[:, 0]
            wait = np.maximum(total + after[x, i, j][:, None], f[x, i, j][:, None] + b[x, j] + labels[:, 1])
            slow = np.maximum(own, labels[:, 2])
            most_after = np.maximum(together[x, i, j][:, None], labels[:, 3])
            least = np.maximum(ahead[x, i][:, None] + wait, through[x, i][:, None] + total) + most_after
            row, col = np.nonzero(least + (m - 1) * np.maximum(slow, slowest[x, i][:, None]) < most)
            parts = [each[row, col] for each in (total, wait, slow, most_after)]
            found.append(np.stack([*parts, np.full(len(col), j), col, i[row]], axis=1))
        every = np.concatenate(found) if found else np.empty((0, 7), np.int64)
        kept.append({int(i): _undominated(every[every[:, 6] == i, :6]) for i in np.unique(every[:, 6])})
    ended = kept[-1].get(0)
    if ended is None:
        return most * unit, known
    values = ended[:, 1] + (m - 1) * ended[:, 2] + ended[:, 3]
    label, ends = ended[values.argmin()], np.zeros(pp, np.int64)
    for x in range(pp):
        ends[x] = label[4]
        label = kept[pp - 1 - x][int(label[4])][label[5]]
    return int(values.min()) * unit, min(known, ends, key=lambda each: given.longest(m, each))


def _prefixes(t: Ints, f: Ints, after: Ints, e: Ints, b: Ints, fits: Flags) -> tuple[Ints, Ints, Ints]:
    """F, H and M of (4) by stage and first layer, (pp, L+1)."""
    inner = np.triu(np.ones(t.shape[1:], np.bool_), 1)
    none = np.full(t.shape[1], NEVER)
    none[0] = 0
    ahead, slowest, through = [none], [none], [np.empty((0, len(none)), np.int64)]
    for x in range(len(t) - 1):
        out = np.where(fits[x] & inner, 0, NEVER)
        first = (ahead[x][:, None] + t[x] + after[x] + out).min(axis=0)
        later = (through[x][:, :, None] + t[x] + out).min(axis=1)
        through.append(np.minimum(np.concatenate([later, first[None]]) + e[x], NEVER))
        ahead.append(np.minimum((ahead[x][:, None] + f[x] + out).min(axis=0) + b[x], NEVER))
        slowest.append(np.minimum(np.maximum(slowest[x][:, None], t[x] + out).min(axis=0), NEVER))
    return np.stack(ahead), np.stack([each.max(axis=0, initial=-NEVER) for each in through]), np.stack(slowest)


def _undominated(labels: Ints) -> Ints:
    """Labels (n, 6) that no other one is no worse than in all four of (3); merged beyond the most, (5)."""
    left, kept = labels[np.lexsort(labels[:, 3::-1].T)], list[Ints]()
    while len(left):
        kept.append(left[0])
        left = left[(left[:, :4] < left[0, :4]).any(axis=1)]
    if len(kept) > MOST_LABELS:
        rest = np.array(kept[MOST_LABELS - 1 :])
        kept[MOST_LABELS - 1 :] = [np.concatenate([rest[:, :4].min(axis=0), rest[0, 4:]])]
    return np.array(kept)


def bottleneck(seconds: Floats) -> float:
    """Least seconds of the slowest stage over all divisions; infinite where none has all stages finite."""
    inner = np.triu(np.ones(seconds.shape[1:], dtype=bool), 1)
    slowest = np.where(np.arange(seconds.shape[1]) == 0, 0.0, np.inf)
    for stage in seconds:
        slowest = np.maximum(slowest[:, None], np.where(inner, stage, np.inf)).min(axis=0)
    return float(slowest[-1])


def least_sum(seconds: Floats, transfers: Floats, added: Floats | None = None) -> float:
    """Least sum of stages and transfers over all divisions, infinite where none has all stages finite."""
    return _sums(seconds, transfers, np.inf, added)[0]


def _sums(seconds: Floats, transfers: Floats, tolerance: float, added: Floats | None) -> tuple[float, Ints]:
    """D[pp - 1, L] under a tolerance, and the ends that attain it."""
    pp, size = seconds.shape[0], seconds.shape[1]
    inner = np.triu(np.ones((size, size), dtype=bool), 1)
    fits = inner & np.isfinite(seconds) & (seconds <= tolerance)
    allowed = np.where(fits, seconds if added is None else added, np.inf)
    sums, cuts = np.where(np.arange(size) == 0, 0.0, np.inf), np.zeros((pp, size), dtype=np.int64)
    for x in range(pp):
        through = sums[:, None] + allowed[x]
        cuts[x] = through.argmin(axis=0)
        sums = through.min(axis=0) + (transfers[x] if x < pp - 1 else 0.0)
    ends = np.zeros(pp, dtype=np.int64)
    ends[-1] = size - 1
    for x in range(pp - 1, 0, -1):
        ends[x - 1] = cuts[x, ends[x]]
    return float(sums[-1]), ends


def _longest(seconds: Floats, ends: Ints) -> float:
    """Seconds of the slowest stage."""
    return float(seconds[np.arange(len(ends)), np.concatenate([[0], ends[:-1]]), ends].max())
