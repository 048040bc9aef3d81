"""Links of the reference evaluator: levels give what a matrix of the same figures gives."""

import numpy as np
import pytest

from taut.solver.certificate.reference.gradients import _ring
from taut.solver.certificate.reference.network import Network
from tests.support.racked import measured, racked


@pytest.mark.parametrize("seed", range(30))
def test_levels_are_as_a_matrix(seed: int) -> None:
    """Rates, latencies and rings of racks and kinds of node, with and without shared cards."""
    rng = np.random.default_rng(seed)
    spec = racked(rng, int(rng.integers(2, 9)))
    levels, matrix = Network(spec), Network(measured(spec))
    a, b = np.indices((spec.num_devices, spec.num_devices))
    np.testing.assert_allclose(levels.latency(a, b), matrix.latency(a, b), rtol=1e-12)
    for senders in (None, 1, 2):
        np.testing.assert_allclose(levels.rate(a, b, senders), matrix.rate(a, b, senders), rtol=1e-12)
    for by_members in (False, True):
        for _ in range(10):
            ends = np.sort(rng.integers(0, spec.num_nodes, int(rng.integers(2, 12))))
            assert _ring(levels, ends, by_members) == pytest.approx(_ring(matrix, ends, by_members), rel=1e-12)


def test_two_nodes_of_a_kind_and_rack_tell_all() -> None:
    """Of five alike nodes without racks two are kept, and a matrix keeps all of them."""
    spec = racked(np.random.default_rng(0), 5, kinds=1)
    alone = spec.model_copy(update={"network": spec.network.model_copy(update={"racks": []})})
    assert Network(alone).telling(np.array([0, 2, 3, 4])).tolist() == [0, 2]
    assert Network(measured(alone)).telling(np.array([0, 2, 3, 4])).tolist() == [0, 2, 3, 4]
