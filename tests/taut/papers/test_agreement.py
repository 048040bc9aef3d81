"""Rank correlations, regret and error on a handful of trials, computed by hand."""

import numpy as np
import pytest

from taut.papers.agreement import agreement


def test_figures_of_four_trials() -> None:
    """Four trials with two neighbours in the wrong order."""
    found = agreement(np.array([1.0, 3.0, 2.0, 8.0]), np.array([2.0, 2.5, 4.0, 5.0]))
    # Ranks 1 3 2 4 against 1 2 3 4: rho = 1 - 6 x 2 / (4 x 15) = 0.8; five of six pairs agree: (5 - 1) / 6.
    assert found.spearman == pytest.approx(0.8)
    assert found.kendall == pytest.approx(4 / 6)
    assert (found.regret, found.regret_top3, found.regret_top5) == (0.0, 0.0, 0.0)
    # |1/2 - 1|, |3/2.5 - 1|, |2/4 - 1|, |8/5 - 1|.
    assert found.mape == pytest.approx((0.5 + 0.2 + 0.5 + 0.6) / 4)


def test_regret_is_of_the_best_among_the_first_choices() -> None:
    """The first choice takes 4 s where 2 s were possible; the third choice takes 2.5 s, the fourth 2 s."""
    found = agreement(np.array([4.0, 1.0, 3.0, 2.0]), np.array([2.0, 4.0, 2.5, 5.0]))
    assert (found.regret, found.regret_top3, found.regret_top5) == pytest.approx((1.0, 0.25, 0.0))


def test_equal_values_share_their_rank() -> None:
    """Two equal predictions have rank 1.5 each, and tell no pair apart."""
    found = agreement(np.array([1.0, 1.0, 2.0]), np.array([1.0, 2.0, 3.0]))
    # Ranks 1.5 1.5 3 against 1 2 3: centred products 0.5 + 0 + 1 over sqrt(1.5 x 2); two of two pairs over sqrt(2 x 3).
    assert found.spearman == pytest.approx(1.5 / 3**0.5)
    assert found.kendall == pytest.approx(2 / 6**0.5)


def test_predictions_that_tell_nothing_apart_have_no_correlation() -> None:
    """One trial, or equal predictions, correlate with nothing."""
    for predicted, measured in (([1.0], [2.0]), ([1.0, 1.0], [1.0, 2.0])):
        found = agreement(np.array(predicted), np.array(measured))
        assert (found.spearman, found.kendall) == (None, None)
