"""Labels over sets of nodes: dominated ones go."""

import numpy as np

from taut.solver.placement.exact.node_sets.labels import Labels, undominated


def test_dominated_labels_are_dropped_within_their_state() -> None:
    """Of two labels of one state the one with less left and no less time goes; that of another state stays."""
    of_state = np.array([3, 3, 5]), np.array([0, 0, 0])
    net, left = np.array([[1.0, 2.0], [1.0, 2.5], [9.0, 9.0]]), np.array([[4.0, 4.0], [4.0, 3.0], [0.0, 0.0]])
    none = np.zeros(3, np.int64)
    kept = undominated(Labels(*of_state, net, left, none, none))
    assert sorted(kept.net[:, 1].tolist()) == [2.0, 9.0]
