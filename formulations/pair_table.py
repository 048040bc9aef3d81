r"""
Figures of pairs of sites, kept once for every two blocks of sites that have the same.

A cluster that is described by levels has few distinct links, whatever its size. Its sites lie in blocks such that a
figure of two different sites depends on their blocks alone:

(1) :math:`figure(a, b) = own(block(a))` for a = b, and :math:`apart(block(a), block(b))` otherwise.

Nodes of one kind in one rack make a block; where links were measured every site is a block, and ``apart`` is the
matrix. So 12,500 nodes in racks of 32 take 391 x 391 figures, not 156 million.

(2) k members of which any two are linked no slower than :math:`\tau` lie in the (k - 1)-core of the links no slower:
    the least :math:`\tau` whose core has k members bounds the slowest link of any k from below (a bottleneck clique
    bound). The members of a block have the same links, so a core has all of them or none.

Source: Seidman (1983), Network structure and minimum degree: the cores of (2).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from taut.data.arrays import Flags, Floats, Ints


@dataclass(frozen=True, eq=False)
class Blocks:
    """A partition of sites: ``of`` (sites,) is the block of every site, numbered from zero on."""

    of: Ints

    @cached_property
    def size(self) -> Ints:
        """Sites of every block, (B,)."""
        return np.bincount(self.of)

    @cached_property
    def first(self) -> Ints:
        """First site of every block, (B,)."""
        return np.unique(self.of, return_index=True)[1]

    @cached_property
    def are_sites(self) -> bool:
        """Whether every site is the block of its number."""
        return len(self.size) == len(self.of) and bool((self.of == np.arange(len(self.of))).all())

    @cached_property
    def pairs(self) -> Flags:
        """Whether two blocks, or one, hold two different sites, (B, B)."""
        return ~np.diag(self.size == 1)


class PairTable(NDArrayOperatorsMixin):
    """
    A figure for every pair of sites, (1). Arithmetic is elementwise, and ``table[a, b]`` reads pairs.

    ``blocks``: of the sites; ``apart``: figures of two different sites by their blocks, (B, B). That of a block of one
    site with itself is no pair's: it is replaced by the block's own; ``own``: figure of a site with itself by its
    block, (B,).
    """

    def __init__(self, blocks: Blocks, apart: Any, own: Any) -> None:
        self.blocks, self.own = blocks, own
        self.apart = apart.copy()
        single = np.flatnonzero(blocks.size == 1)
        self.apart[single, single] = own[single]

    @classmethod
    def of_matrix(cls, matrix: Floats) -> "PairTable":
        """The table of a matrix between sites, with a block for every site."""
        return cls(Blocks(np.arange(len(matrix))), matrix, np.diag(matrix).copy())

    @property
    def T(self) -> "PairTable":
        """The figures of the opposite direction."""
        return PairTable(self.blocks, self.apart.T, self.own)

    def __array_ufunc__(self, function: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """Apply a function figure by figure; other operands are numbers, or tables of the same blocks."""
        if method != "__call__" or options or any(np.ndim(each) for each in inputs if not isinstance(each, PairTable)):
            return NotImplemented
        apart, own = (
            function(*(getattr(each, part) if isinstance(each, PairTable) else each for each in inputs))
            for part in ("apart", "own")
        )
        return PairTable(self.blocks, apart, own)

    def __getitem__(self, pair: tuple[Any, ...]) -> Any:
        """Figures of pairs of sites (a, b), arrays that broadcast against each other."""
        a, b = pair
        if self.blocks.are_sites:
            return self.apart[a, b]
        found = self.apart[self.blocks.of[a], self.blocks.of[b]]
        return np.where(np.equal(a, b), self.own[self.blocks.of[a]], found)[()]

    def by_site(self) -> Any:
        """Figure of every site with itself, (sites,)."""
        return self.own[self.blocks.of]

    def present(self) -> Any:
        """Figures of two different sites, each at least once, (n,)."""
        return self.apart[self.blocks.pairs]

    def dense(self) -> Any:
        """The matrix between sites, (sites, sites): for a few thousand sites at most."""
        sites = np.arange(len(self.blocks.of))
        return self[sites[:, None], sites[None, :]]


def slowest_pair(figures: Floats, k: int, copies: Ints | None = None) -> float:
    """
    Bound the slowest pair of any k members, both directions counted, (2).

    ``figures``: figures of pairs by their blocks, (n, n); ``copies``: members of every block, (n,); one each if left
    out. Returns the least that it can be; zero where there are no pairs.
    """
    figures = np.maximum(figures, figures.T)
    copies = np.ones(len(figures), np.int64) if copies is None else copies
    figures[np.diag(copies == 1)] = np.inf
    return least_core(figures, np.unique(figures[np.isfinite(figures)]), k, copies)


def least_core(figures: Floats, steps: Floats, k: int, copies: Ints) -> float:
    """
    Find the least figure whose core has k members, by bisection, (2).

    ``figures``: figures of pairs by their blocks, (n, n), symmetric; infinite for a block of one member with itself;
    ``copies``: members of every block, (n,). Returns the least of ``steps`` at which the (k - 1)-core of the pairs no
    slower has k members; zero without steps.
    """
    if not len(steps):
        return 0.0
    low, high = 0, len(steps) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _has_core(figures <= steps[middle], k, copies) else (middle + 1, high)
    return float(steps[low])


def _has_core(linked: Flags, k: int, copies: Ints) -> bool:
    """Whether some members, k at least, are each linked with k - 1 others of them; blocks stay or go as a whole."""
    alive, weight = np.ones(len(linked), dtype=bool), copies.astype(np.float32)
    itself = np.diag(linked)
    while True:
        # Numbers of members are far below 2^24, up to which float32 counts exactly.
        # Sums of ones cannot be invalid; BLAS at times sets the flag in lanes of a vector that it does not use.
        with np.errstate(invalid="ignore"):
            reached = linked[:, alive] @ weight[alive]
        enough = alive & (reached - itself >= k - 1)
        if copies[enough].sum() < k or (enough == alive).all():
            return bool(copies[enough].sum() >= k)
        alive = enough
