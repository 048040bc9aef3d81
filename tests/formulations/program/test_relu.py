"""ReLU networks in integers and as rows: values, bounds, errors, and what the rows take in."""

from itertools import pairwise, product

import numpy as np
import pytest

from taut.data.arrays import Floats, Ints
from taut.errors import FormulationError
from taut.formulations.program.relu import IntegerNetwork, ReluNetwork, integer_network, interval_bounds
from taut.formulations.program.relu_rows import Columns, embedded_columns

SHAPES = [[3], [8], [16, 16], [5, 4, 3]]
HAND = ReluNetwork(
    weights=[np.array([[1.0, -2.0], [0.5, 1.0]]), np.array([[3.0, -1.0]])],
    biases=[np.array([0.0, -1.0]), np.array([0.25])],
)


def random_network(rng: np.random.Generator, inputs: int, shape: list[int]) -> ReluNetwork:
    """A network with hidden layers of these widths, whose units are on, off or either."""
    widths = [inputs, *shape, 1]
    return ReluNetwork(
        weights=[rng.normal(size=(out, width)) for width, out in pairwise(widths)],
        biases=[rng.normal(size=out) for out in widths[1:]],
    )


def values_at(network: IntegerNetwork, columns: Columns, candidate: int) -> Ints:
    """u, then the values of all columns at one candidate as the integer network gives them; units that are on are."""
    parts = [np.eye(len(network.features), dtype=np.int64)[candidate], network.features[candidate]]
    for sums, most, lower in zip(network.evaluate(), network.most, network.lower, strict=False):
        kept = most > 0
        units = np.maximum(sums[candidate] >> network.bits, 0)
        parts += [units[kept], (units > 0)[kept & (lower < 0)].astype(np.int64)]
    values = np.concatenate(parts)
    assert len(values) == len(network.features) + len(columns.upper)
    return values


def broken(columns: Columns, values: Ints) -> list[int]:
    """Numbers of the rows that do not hold, and -1 if a column is out of its bounds."""
    own = values[len(values) - len(columns.upper) :]
    outside = [] if ((own >= 0) & (own <= columns.upper)).all() else [-1]
    sums = [int(row.coefficients @ values[row.columns]) for row in columns.rows]
    return outside + [
        number
        for number, (row, found) in enumerate(zip(columns.rows, sums, strict=True))
        if (row.lower is not None and found < row.lower) or (row.upper is not None and found > row.upper)
    ]


def test_network_by_hand() -> None:
    """Two features, two hidden units."""
    # (2, 0.5): hidden 2 - 1 = 1 and 1 + 0.5 - 1 = 0.5, output 3 - 0.5 + 0.25; (0, 1): hidden 0 (of -2) and 0.
    assert HAND.evaluate(np.array([[2.0, 0.5], [0.0, 1.0]])).tolist() == [2.75, 0.25]
    assert HAND.evaluate(np.array([2.0, 0.5])) == 2.75


def test_integers_by_hand() -> None:
    """With two bits S is 4: features are quarters above the least, sums sixteenths."""
    network = integer_network(HAND, np.array([[2.0, 0.5], [0.0, 1.0]]), bits=2)
    # 4 x: (8, 2) and (0, 4), least (0, 2); V = 4 W, D = 16 b + V (0, 2) = (-16, -16 + 8).
    assert network.features.tolist() == [[8, 0], [0, 2]]
    assert network.weights[0].tolist() == [[4, -8], [2, 4]]
    assert network.biases[0].tolist() == [-16, -8]
    # 4 * 8 - 16 = 16 and 2 * 8 - 8 = 8; -8 * 2 - 16 = -32 and 4 * 2 - 8 = 0.
    first, last = network.evaluate()
    assert first.tolist() == [[16, 8], [-32, 0]]
    assert (network.lower[0].tolist(), network.upper[0].tolist()) == ([-32, 0], [16, 8])
    # H is 4 and 2 at most; 12 * 4 - 4 * 2 + 4 = 44 is 2.75 in sixteenths, and 4 is 0.25.
    assert last[:, 0].tolist() == [44, 4]
    # Over the box: -4 * 2 + 4 = -4 to 12 * 4 + 4 = 52.
    assert (network.lower[1].tolist(), network.upper[1].tolist()) == ([-4], [52])
    # Nothing was rounded but the floor, 1/4 of each unit, times 3 and 1.
    assert network.error == pytest.approx(1.0, rel=1e-8)
    # 16 * (2 + 1) = 48, a little more for the error's own rounding, and one.
    assert network.limit(2.0) == 49
    assert network.tolerance == pytest.approx(2.125, rel=1e-8)


def test_rows_by_hand() -> None:
    """The second unit above is never below 0 and needs no flag."""
    network = integer_network(HAND, np.array([[2.0, 0.5], [0.0, 1.0]]), bits=2)
    columns = embedded_columns(network, 2, 48)
    # X_0, X_1, H_0, H_1 and the flag of unit 0.
    assert columns.upper.tolist() == [8, 2, 4, 2, 1]
    assert columns.binary.tolist() == [False, False, False, False, True]
    rows = [(row.columns.tolist(), row.coefficients.tolist(), row.lower, row.upper) for row in columns.rows]
    assert rows == [
        ([0, 2], [-8, 1], 0, 0),
        ([1, 3], [-2, 1], 0, 0),
        ([2, 3, 4], [-4, 8, 4], -16 - 3, None),
        ([2, 3, 4, 6], [-4, 8, 4, 32], None, -16 + 32),
        ([4, 6], [1, -4], None, 0),
        ([2, 3, 5], [-2, -4, 4], -8 - 3, -8),
        ([0, 1, 4, 5], [4 - 48, 4 - 48, 12, -4], None, 0),
    ]


@pytest.mark.parametrize("shape", SHAPES)
def test_interval_bounds_contain_every_value(shape: list[int]) -> None:
    """No candidate leaves the bounds of a unit, and those of the first layer are attained."""
    for seed in range(30):
        rng = np.random.default_rng(seed)
        network = integer_network(random_network(rng, 4, shape), rng.normal(size=(25, 4)))
        sums = network.evaluate()
        for found, lower, upper in zip(sums, network.lower, network.upper, strict=True):
            assert ((lower <= found) & (found <= upper)).all(), seed
        assert (sums[0].min(axis=0) == network.lower[0]).all()
        assert (sums[0].max(axis=0) == network.upper[0]).all()


def test_interval_bounds_contain_the_whole_box() -> None:
    """Every point of a small box is within the bounds, and its corners attain them."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        weights, bias, most = rng.integers(-9, 10, (3, 3)), rng.integers(-9, 10, 3), rng.integers(0, 4, 3)
        points = np.array(list(product(*(range(int(m) + 1) for m in most))))
        sums = points @ weights.T + bias
        lower, upper = interval_bounds(weights, bias, most)
        assert (sums.min(axis=0) == lower).all()
        assert (sums.max(axis=0) == upper).all()


@pytest.mark.parametrize("bits", [2, 6, 12, 16])
@pytest.mark.parametrize("shape", SHAPES)
def test_integers_err_no_more_than_stated(shape: list[int], bits: int) -> None:
    """The integer output is within the error of the network's; a bit more halves it."""
    for seed in range(30):
        rng = np.random.default_rng(seed)
        network, features = random_network(rng, 4, shape), rng.normal(size=(25, 4))
        integers = integer_network(network, features, bits)
        output = integers.evaluate()[-1][:, 0] / 4.0**bits
        assert (np.abs(output - network.evaluate(features)) <= integers.error).all(), seed
        assert integer_network(network, features, bits + 4).error < integers.error / 8


def test_one_candidate_is_predicted_as_among_others() -> None:
    """The network's sums do not depend on how many candidates it is asked for."""
    rng = np.random.default_rng(5)
    network, features = random_network(rng, 11, [32, 32]), rng.normal(size=(200, 11))
    assert [float(network.evaluate(row)) for row in features] == network.evaluate(features).tolist()


@pytest.mark.parametrize("shape", [[2], [3], [2, 2]])
def test_rows_hold_for_the_integer_network_and_nothing_else(shape: list[int]) -> None:
    """Of all integers that the columns can take, the rows leave the network's own values, and only within the limit."""
    for seed in range(12):
        rng = np.random.default_rng(seed)
        network = integer_network(random_network(rng, 2, shape), rng.normal(size=(4, 2)), bits=1)
        limit = int(np.median(network.evaluate()[-1]))
        columns = embedded_columns(network, 4, limit)
        free = np.array(list(product(*(range(int(most) + 1) for most in columns.upper[2:]))), dtype=np.int64)
        for candidate, last in enumerate(network.evaluate()[-1][:, 0].tolist()):
            expected = values_at(network, columns, candidate)
            fixed = np.tile(expected[:6], (len(free), 1))
            kept = satisfied(columns, np.hstack([fixed, free.reshape(len(free), -1)]))
            assert bool(len(kept)) == (last <= limit), (seed, candidate)
            # A flag may be either way where its unit is 0 both ways.
            flags = np.append(np.zeros(4, dtype=np.bool_), columns.binary)
            assert (kept[:, ~flags] == expected[~flags]).all(), (seed, candidate)


def satisfied(columns: Columns, values: Ints) -> Ints:
    """Those of many values (points, n) at which every row holds."""
    for row in columns.rows:
        sums = values[:, row.columns] @ row.coefficients
        above = np.full(len(values), True) if row.lower is None else sums >= row.lower
        values = values[above & (True if row.upper is None else sums <= row.upper)]
    return values


@pytest.mark.parametrize("bits", [4, 16])
@pytest.mark.parametrize("shape", SHAPES)
def test_embedded_set_is_the_tabulated_one_up_to_the_tolerance(shape: list[int], bits: int) -> None:
    """Every candidate within the limit satisfies the rows; others that do exceed it by the tolerance at most."""
    apart = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        network, features = random_network(rng, 3, shape), rng.normal(size=(20, 3))
        output = network.evaluate(features)
        integers = integer_network(network, features, bits)
        limit = float(rng.choice([*output, output.mean()]))
        columns = embedded_columns(integers, 20, integers.limit(limit))
        embedded = np.array([not broken(columns, values_at(integers, columns, c)) for c in range(20)])
        assert embedded[output <= limit].all(), seed
        assert (output[embedded] <= limit + integers.tolerance).all(), seed
        if not ((output > limit) & (output <= limit + integers.tolerance)).any():
            assert (embedded == (output <= limit)).all()
            apart += 1
    # With 16 bits hardly any output is that close to the limit.
    assert apart >= 25 or bits == 4


def test_units_that_do_not_switch_have_no_flag() -> None:
    """A unit that is off for every candidate has no column, one that is on has no flag."""
    network = ReluNetwork(
        weights=[np.array([[1.0], [1.0], [1.0]]), np.ones((1, 3))],
        biases=[np.array([-5.0, 5.0, 0.0]), np.zeros(1)],
    )
    columns = embedded_columns(integer_network(network, np.array([[-1.0], [1.0]]), bits=4), 2, 0)
    # X = 0 or 32 sixteenths; unit 1 is 4 to 6, unit 2 is 0 to 1, and its flag.
    assert columns.upper.tolist() == [32, 96, 16, 1]


def test_network_without_hidden_units_that_live() -> None:
    """Where no unit is ever on, the limit row still decides by the constant."""
    network = ReluNetwork(weights=[-np.ones((2, 1)), np.ones((1, 2))], biases=[np.zeros(2), np.array([3.0])])
    integers = integer_network(network, np.array([[1.0], [2.0]]))
    for limit, holds in ((2.99, False), (3.0, True)):
        columns = embedded_columns(integers, 2, integers.limit(limit))
        assert (not broken(columns, values_at(integers, columns, 0))) == holds


@pytest.mark.parametrize(
    ("network", "features", "words"),
    [
        (HAND, np.zeros((0, 2)), r"features \(0, 2\), expected"),
        (HAND, np.zeros(2), r"features \(2,\), expected"),
        (HAND, np.zeros((1, 3)), r"layer 0 has weights \(2, 2\) and biases \(2,\), expected \(2, 3\) and \(2,\)"),
        (
            ReluNetwork([np.ones((2, 1))], [np.ones(2)]),
            np.zeros((1, 1)),
            r"layer 0 has .* expected \(1, 1\) and \(1,\)",
        ),
        (ReluNetwork([], []), np.zeros((1, 1)), "0 weights and 0 biases, expected"),
        (ReluNetwork([np.ones((1, 1))], []), np.zeros((1, 1)), "1 weights and 0 biases, expected"),
        (ReluNetwork([np.full((1, 1), np.nan)], [np.ones(1)]), np.ones((1, 1)), "layer 0 reaches nan at 16 bits"),
        (ReluNetwork([np.ones((1, 1))], [np.ones(1)]), np.full((1, 1), np.inf), "layer 0 reaches inf at 16 bits"),
        (ReluNetwork([np.ones((1, 1))], [np.full(1, 1e7)]), np.ones((1, 1)), r"reaches 4\.29e\+16 .* below 2\^53"),
    ],
)
def test_what_integers_cannot_state_is_refused(network: ReluNetwork, features: Floats, words: str) -> None:
    """Wrong dimensions and numbers without room raise FormulationError."""
    with pytest.raises(FormulationError, match=words):
        integer_network(network, features)
