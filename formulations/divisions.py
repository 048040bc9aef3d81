r"""
Divisions of the layers that a framework can state.

Sets: chunks c = 0..X-1 of pp stages with vpp chunks each, :math:`X = pp \, vpp`, in the order of the layers; pipeline
rank d(c) of each; L layers. Variables: layers :math:`n_c \ge 1` of every chunk, :math:`\sum_c n_c = L`.

A form of ``taut.data.stack`` states

(1) ``even``: :math:`n_c = L / X`;
(2) ``with-ends``: embedding, loss, or both count as a layer of the first and of the last chunk,
    :math:`n_c = (L + a + b) / X - a [c = 0] - b [c = X - 1]` with :math:`a, b \in \{0, 1\}`;
(3) ``balanced``: :math:`n_c = \lfloor L / X \rfloor`, and one more of the first :math:`L \bmod X`;
(4) ``first-last``: :math:`n_c = s_{d(c)}`, where :math:`s_1 = \dots = s_{pp-2}`, first and last rank being free;
(5) ``layout``: anything.

A single chunk has all layers in every form. The divisions of some forms are a union of *families*, in each of which
every :math:`n_c` lies between a least and a most number by itself, so that

(6) a division is one of a family if and only if it is within these numbers chunk by chunk.

(4) with one chunk a rank is a family for every :math:`s_1`; everything else, but (5), is families of one division each.
A minimum over stated divisions is thus the least over families of a minimum within such numbers, which a dynamic
program over chunks finds (``taut.solver.layer_division.divide``). Restricting divisions leaves lower bounds valid that
rest on all of them.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from taut.data.arrays import Flags, Ints
from taut.data.stack import ANY_DIVISION, Form
from taut.formulations.schedules.orders import ON_V

if TYPE_CHECKING:
    from taut.formulations.problem import PlanningProblem
    from taut.formulations.space import Candidate

MOST_STATED = 10_000
"""Divisions that are listed one by one: all of ``first-last`` for 126 layers on four stages are 3,844."""


def families(forms: Iterable[Form], layers: int, schedule: str, pp: int, vpp: int = 1) -> Ints | None:
    """
    Families (6) of the divisions that some forms state: least and most layers of every chunk, (families, X, 2).

    Examples
    --------
    >>> families(["even", "with-ends"], 10, "1f1b", 4)[..., 0].tolist()
    [[2, 3, 3, 2]]
    >>> families(["first-last"], 5, "1f1b", 3).tolist()
    [[[1, 5], [1, 1], [1, 5]], [[1, 5], [2, 2], [1, 5]], [[1, 5], [3, 3], [1, 5]]]
    """
    return _families(tuple(forms), layers, pp, vpp, schedule in ON_V)


@lru_cache(maxsize=4096)
def _families(forms: tuple[Form, ...], layers: int, pp: int, vpp: int, on_v: bool) -> Ints | None:
    chunks = pp * vpp
    if ANY_DIVISION in forms or chunks == 1:
        return None
    found: list[Ints] = []
    for form in forms:
        if form == "first-last":
            found += _first_last(layers, _ranks(pp, vpp, on_v), vpp)
        else:
            found += [np.stack((sizes, sizes), axis=1) for sizes in _single(form, layers, chunks)]
    shaped = np.array(found, dtype=np.int64).reshape(-1, chunks, 2)
    kept = np.unique(shaped, axis=0)
    kept.setflags(write=False)
    return kept


def _ranks(pp: int, vpp: int, on_v: bool) -> Ints:
    """Pipeline rank d of every chunk: down and up again on the V, round the ranks elsewhere."""
    down = np.arange(pp)
    return np.concatenate((down, down[::-1])) if on_v else np.tile(down, vpp)


def _single(form: Form, layers: int, chunks: int) -> Iterator[Ints]:
    """Layers of every chunk, (1) to (3)."""
    each, more = divmod(layers, chunks)
    if form == "balanced" or (form == "even" and not more):
        yield each + (np.arange(chunks) < more)
    elif form == "with-ends":
        for a, b in ((1, 0), (0, 1), (1, 1)):
            each, more = divmod(layers + a + b, chunks)
            sizes = np.full(chunks, each)
            sizes[0] -= a
            sizes[-1] -= b
            if not more and sizes.min() >= 1:
                yield sizes


def _first_last(layers: int, ranks: Ints, vpp: int) -> Iterator[Ints]:
    """Families of (4): one for each number of layers between, or one for each division where ranks have chunks."""
    pp, (whole, rest) = int(ranks.max()) + 1, divmod(layers, vpp)
    for middle in range(1, (whole - 2) // (pp - 2) + 1) if pp > 2 else [0]:
        ends = whole - (pp - 2) * middle
        if rest or ends < 2:
            continue
        free = np.array([[1, layers], *[[middle, middle]] * (pp - 2), [1, layers]])
        if vpp == 1:
            yield free[ranks]
            continue
        for first in range(1, ends):
            free[0], free[-1] = first, ends - first
            yield free[ranks]


def families_of(problem: "PlanningProblem", candidate: "Candidate") -> Ints | None:
    """Families of the divisions that the space states, of all chunks of a candidate; None where any are."""
    shape = candidate.schedule, candidate.pp, candidate.vpp
    return families(problem.space.divisions, problem.num_layers(candidate), *shape)


def is_stated(sizes: Ints, given: Ints | None) -> bool:
    """Whether a division with ``sizes`` layers (X,) belongs to one of the families ``given``, (6)."""
    if given is None:
        return True
    return bool(((given[..., 0] <= sizes) & (sizes <= given[..., 1])).all(axis=-1).any())


def stated_ranges(given: Ints | None, layers: int) -> Flags | None:
    """Whether chunk c may have layers [i, j) in some family, (X, L+1, L+1); None if any division may be stated."""
    if given is None:
        return None
    held = np.arange(layers + 1) - np.arange(layers + 1)[:, None]
    allowed = np.zeros((given.shape[1], layers + 1, layers + 1), dtype=bool)
    for least, most in np.moveaxis(given, -1, 1):
        allowed |= (least[:, None, None] <= held) & (held <= most[:, None, None])
    return allowed


def listed(forms: Iterable[Form], layers: int, schedule: str, pp: int, vpp: int = 1) -> Ints | None:
    """Layers of every chunk of all stated divisions, (n, X); None if any can be stated, or if there are too many."""
    return _listed(tuple(forms), layers, pp, vpp, schedule in ON_V)


@lru_cache(maxsize=1024)
def _listed(forms: tuple[Form, ...], layers: int, pp: int, vpp: int, on_v: bool) -> Ints | None:
    given = _families(forms, layers, pp, vpp, on_v)
    if given is None:
        return None
    found: list[Ints] = []
    for least, most in np.moveaxis(given, -1, 1):
        rest = layers - int(least[1:-1].sum())
        # Only first and last chunk are ever free.
        for first in range(max(int(least[0]), rest - int(most[-1])), min(int(most[0]), rest - int(least[-1])) + 1):
            found.append(np.concatenate(([first], least[1:-1], [rest - first])))
            if len(found) > MOST_STATED:
                return None
    return np.unique(np.array(found, dtype=np.int64).reshape(-1, given.shape[1]), axis=0)
