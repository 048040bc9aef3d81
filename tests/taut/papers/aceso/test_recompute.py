"""Aceso's rule for recomputation, by hand on a layer of three operators."""

import numpy as np
import pytest

from taut.data.units import MIB
from taut.papers.aceso.formula import kinds_of, stage_bytes
from taut.papers.aceso.operators import Operators
from taut.papers.aceso.stage_table import recomputed_by_rule


@pytest.fixture
def operators() -> Operators:
    """Two layers between head and tail keep 2 (10 + 20 + 30) MiB; nothing else takes memory."""
    none = np.zeros(5)
    return Operators(
        names=("encoder-embedding", "enc-1st-layernorm", "product", "dropout", "gpt-post-process"),
        head=1,
        layer=3,
        forward=np.ones(5),
        backward=np.ones(5),
        inputs=none,
        outputs=none,
        weights=none,
        activations=np.array([0.0, 10.0, 20.0, 30.0, 0.0]) * MIB,
        measured_activations=np.array([0.0, 10.0, 20.0, 30.0, 0.0]) * MIB,
        reserved_forward=none,
        reserved_backward=none,
        shares=np.zeros(5, dtype=bool),
    )


def test_nothing_is_recomputed_where_all_fits(operators: Operators) -> None:
    """With a stage behind, 240 MiB."""
    kinds = kinds_of(operators, 2)
    assert not recomputed_by_rule(operators, kinds, 1, 240 * MIB).any()


def test_the_largest_group_goes_first(operators: Operators) -> None:
    """
    From 240 to 200 MiB: first a dropout, then products.

    The dropout and the norm behind it save nothing before a layer but have a run of 30, so 270 in all. As norms are
    done now, both products go with their dropouts: twice 20 + 10 + 20 less, and a run of 50.
    """
    kinds = kinds_of(operators, 2)
    found = recomputed_by_rule(operators, kinds, 1, 200 * MIB)
    assert np.flatnonzero(found).tolist() == [2, 3, 4, 5, 6]
    assert stage_bytes(operators, kinds, found, 1) == 190 * MIB


def test_a_stage_that_cannot_fit_has_all_that_the_rule_knows(operators: Operators) -> None:
    """Head, norm that opens a layer and output layer are never chosen."""
    kinds = kinds_of(operators, 2)
    assert np.flatnonzero(recomputed_by_rule(operators, kinds, 1, MIB)).tolist() == [2, 3, 4, 5, 6, 7]
