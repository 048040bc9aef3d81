"""Pictures of hand-made plans: what is marked where, labels with units, figures left alone."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import matplotlib
import numpy as np
import pytest

matplotlib.use("Agg")

from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PatchCollection, PathCollection

from taut import Plan, plot_memory, plot_placement, plot_time
from taut.data.arrays import Floats
from tests.support.plans import PARTS, made_plan

HOPS, RETURNS = "activations to the next stage (number: hops)", "their gradients, back"
RING, SLOWEST = "data-parallel all-reduce of stage 0", "its slowest link"
# Row sends to column, Gb/s; the diagonal is ignored.
UNLIKE = [[0, 50, 90, 60], [70, 0, 40, 80], [95, 30, 0, 20], [10, 85, 65, 0]]


@pytest.fixture(autouse=True)
def _closed_figures() -> Iterator[None]:
    pyplot.close("all")
    yield
    pyplot.close("all")


def plan_of(devices: Any, nodes: int, rows: Any = None, bound: float | None = 1.5) -> Plan:
    """A plan with these devices [stage][replica][rank] on equal nodes; 100 Gb/s between nodes without a matrix."""
    pp, dp, tp = np.shape(devices)
    device = {"name": "d", "memory_gib": 16, "peak_tflops": {"bf16": 1}, "memory_bandwidth_gbytes": 1}
    node = {"count": nodes, "device": device, "gpus_per_node": pp * dp * tp // nodes, "intra_bandwidth_gbps": 400}
    cluster: dict[str, Any] = {"name": "c", "nodes": [node], "network": {"bandwidth_gbps": 100}}
    if rows is not None:
        cluster["bandwidth_matrix"] = {"unit": "Gb/s", "rows": np.asarray(rows, dtype=float).tolist()}
    return made_plan(
        pp=pp,
        tp=tp,
        dp=dp,
        strategy={"recompute": ["none"] * (pp - 1) + ["full"]},
        placement={"devices": np.asarray(devices).tolist()},
        certificate={"lower_bound_s": bound, "gap": None if bound is None else (2.0 - bound) / 2.0},
        inputs={"cluster": {"name": "c", "sha256": "", "spec": cluster}},
    )


# Two stages, two replicas, tensor pairs on four nodes of two: stage 0 on nodes 2 and 0, stage 1 on nodes 1 and 3.
FOUR_NODES = [[[4, 5], [0, 1]], [[2, 3], [6, 7]]]


def marks(ax: Axes) -> dict[str, Floats]:
    """Marked (column, row) by what the legend calls them."""
    collections = [each for each in ax.collections if isinstance(each, PathCollection)]
    return {str(each.get_label()): np.asarray(each.get_offsets()) for each in collections}


def squares(ax: Axes) -> PatchCollection:
    """The bands of stages."""
    (bands,) = [each for each in ax.collections if isinstance(each, PatchCollection)]
    return bands


def ticks(ax: Axes) -> list[str]:
    """Names of the rows."""
    return [label.get_text() for label in ax.get_yticklabels()]


def figure_labels(ax: Axes) -> str:
    """All axis labels of the figure."""
    return " ".join(each.get_xlabel() + " " + each.get_ylabel() for each in ax.figure.axes)


def test_nodes_stand_in_the_order_of_their_first_stage() -> None:
    """Rows and columns follow the stages, and the heat map is reordered with them."""
    ax = plot_placement(plan_of(FOUR_NODES, 4, UNLIKE))
    assert ticks(ax) == [label.get_text() for label in ax.get_xticklabels()] == ["2", "0", "1", "3"]
    # Row 0 is node 2: itself 400 inside, then to nodes 0, 1 and 3 as in the matrix.
    np.testing.assert_allclose(np.asarray(ax.images[0].get_array())[0], [400, 95, 30, 20])


def test_placement_marks_the_cells_it_uses() -> None:
    """Hops, their way back, the all-reduce and its slowest link lie on the hand-derived cells."""
    found = marks(plot_placement(plan_of(FOUR_NODES, 4, UNLIKE)))
    # Replica 0 goes from row 0 (node 2) to column 2 (node 1), replica 1 from row 1 (node 0) to column 3 (node 3).
    assert found[HOPS].tolist() == [[2, 0], [3, 1]]
    # Back through the mirrored cells, (row, column) = (2, 0) and (3, 1), in their lower right corner.
    np.testing.assert_allclose(found[RETURNS], [[0.36, 2.36], [1.36, 3.36]])
    # Stage 0's replicas are on rows 0 and 1; node 2 sends 95 to node 0 and gets 90 back, so row 1, column 0.
    assert sorted(found[RING].tolist()) == [[0, 1], [1, 0]]
    assert found[SLOWEST].tolist() == [[0, 1]]


def test_bands_show_stage_and_replica_of_every_tensor_group() -> None:
    """Every tensor group has a square beside its row and one above its column, numbered by its replica."""
    ax = plot_placement(plan_of(FOUR_NODES, 4, UNLIKE))
    # Rows 0 and 1 hold stage 0, rows 2 and 3 stage 1; replicas 0, 1, 0, 1, each written twice.
    assert np.asarray(squares(ax).get_array()).tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert sorted(text.get_text() for text in ax.texts) == ["0"] * 4 + ["1"] * 4


def test_placement_names_its_units() -> None:
    """Bandwidth has its unit, the axes say who sends, and the legend names each kind of mark."""
    ax = plot_placement(plan_of(FOUR_NODES, 4, UNLIKE))
    words = figure_labels(ax)
    assert all(each in words for each in ("Gb/s", "sending node", "receiving node", "stage (colour)"))
    legend = ax.get_legend()
    assert legend is not None
    assert {text.get_text() for text in legend.get_texts()} == {HOPS, RETURNS, RING, SLOWEST}


def test_equal_links_have_no_slowest_one() -> None:
    """On a uniform network the scale starts at zero and no link of the all-reduce is singled out."""
    ax = plot_placement(plan_of(FOUR_NODES, 4))
    assert SLOWEST not in marks(ax)
    assert len(marks(ax)[RING]) == 2
    assert ax.images[0].get_clim() == (0.0, 100.0)


def test_hops_inside_a_node_are_counted_in_its_cell() -> None:
    """Two pipelines inside each node give one disc a node with the number 2, and no way back of their own."""
    # Node 0 holds stages 0 and 1 of replicas 0 and 1 (devices 0-3), node 1 those of replicas 2 and 3.
    ax = plot_placement(plan_of([[[0], [1], [4], [5]], [[2], [3], [6], [7]]], 2))
    assert marks(ax)[HOPS].tolist() == [[0, 0], [1, 1]]
    assert RETURNS not in marks(ax)
    # Two replicas of stage 0 in each node: the all-reduce also runs inside them.
    assert len(marks(ax)[RING]) == 4
    # Replicas 0-3 stand at two stages each, rows and columns: "2" is written 4 times as a replica, twice as a number.
    assert [text.get_text() for text in ax.texts].count("2") == 4 + 2


def test_one_node_is_drawn_device_by_device() -> None:
    """Where there is one node its devices are the sites, and a device to itself is blank."""
    ax = plot_placement(plan_of([[[3], [2]], [[1], [0]]], 1))
    assert ticks(ax) == ["3", "2", "1", "0"]
    assert "sending device" in figure_labels(ax)
    rate = np.asarray(ax.images[0].get_array(), dtype=float)
    np.testing.assert_allclose(rate, np.where(np.eye(4) == 1, np.nan, 400.0))


def test_links_measured_by_device_are_drawn_by_device() -> None:
    """Devices of a node stay together, and each tensor rank has its own hops and all-reduce."""
    rows = np.arange(1.0, 65.0).reshape(8, 8)
    ax = plot_placement(plan_of(FOUR_NODES, 4, rows))
    assert ticks(ax) == ["4", "5", "0", "1", "2", "3", "6", "7"]
    # 2 replicas x 2 ranks, one hop each; one pair of replicas a rank, both directions.
    assert len(marks(ax)[HOPS]) == len(marks(ax)[RETURNS]) == len(marks(ax)[RING]) == 4
    # Rank 0: 4 to 0 at 33, 0 to 4 at 5; rank 1: 5 to 1 at 42, 1 to 5 at 14. Least is 0 to 4: row 2, column 0.
    assert marks(ax)[SLOWEST].tolist() == [[0, 2]]


@pytest.mark.parametrize("tp", [1, 2, 8])
@pytest.mark.parametrize("by_device", [False, True])
def test_sixteen_nodes_of_eight_are_named_by_node(tp: int, by_device: bool) -> None:
    """A large cluster is labelled by node, with every tensor group in the bands."""
    devices = np.random.default_rng(0).permutation(128 // tp)[:, None] * tp + np.arange(tp)
    size = 128 if by_device else 16
    rows = np.random.default_rng(1).uniform(50, 200, (size, size))
    ax = plot_placement(plan_of(devices.reshape(4, -1, tp), 16, rows))
    assert sorted(ticks(ax), key=int) == [str(node) for node in range(16)]
    # Each group is one square by node and tp squares by device, beside the rows and above the columns.
    assert len(squares(ax).get_paths()) == 2 * (128 if by_device else 128 // tp)


def test_one_device_is_drawn_too() -> None:
    """A plan without any link has no marks and no legend."""
    ax = plot_placement(plan_of([[[0]]], 1))
    assert not marks(ax)
    assert ax.get_legend() is None


def test_memory_is_shown_in_gib_below_margin_and_capacity() -> None:
    """Bars, margin and capacity are in GiB, and stages name their layers and recompute."""
    ax = plot_memory(plan_of(FOUR_NODES, 4))
    heights = [[round(bar.get_height(), 9) for bar in bars] for bars in ax.containers]
    assert heights == [[1.0, 1.0], [1.0, 2.0]]
    assert [bar.get_y() for bar in ax.containers[0]] == [15.0, 15.0]
    (capacity,) = [each for each in ax.collections if isinstance(each, LineCollection)]
    assert [segment[0][1] for segment in capacity.get_segments()] == [16.0, 16.0]
    assert "GiB" in ax.get_ylabel()
    names = [label.get_text() for label in ax.get_xticklabels()]
    assert names == ["0\n1 layer", "1\n1 layer\nfull\nrecompute"]


def test_time_is_stacked_up_to_the_step_time() -> None:
    """The bars end where the step ends, and the lower bound stands in seconds."""
    ax = plot_time(plan_of(FOUR_NODES, 4))
    ends = [bars[0].get_x() + bars[0].get_width() for bars in ax.containers]
    assert ends == [1.0, 1.5, 1.75, 1.875, 2.0]
    (bound,) = [each for each in ax.collections if isinstance(each, LineCollection)]
    assert bound.get_segments()[0][0][0] == 1.5
    # (2.0 - 1.5) / 2.0
    assert "1.5 s (gap 25 %)" in str(bound.get_label())
    assert ax.get_xlabel() == "step time (s)"


def test_time_shows_the_constant_of_a_calibration() -> None:
    """A constant that is not zero is one more part of the bar."""
    parts = dict(zip(PARTS, (1.0, 0.5, 0.25, 0.125, 0.125, 0.5), strict=True))
    plan = made_plan(predicted={"breakdown_s": parts})
    # The other parts end at 2.0.
    last = plot_time(plan).containers[-1][0]
    assert (last.get_x(), last.get_width()) == (2.0, 0.5)


def test_time_without_a_bound_shows_no_line() -> None:
    """Where nothing was proven nothing is drawn."""
    assert not plot_time(plan_of(FOUR_NODES, 4, bound=None)).collections


@pytest.mark.parametrize("plot", [plot_placement, plot_memory, plot_time])
def test_given_axes_are_drawn_on(plot: Any) -> None:
    """Given axes are returned, and no further figure is opened."""
    _, ax = pyplot.subplots()
    assert plot(plan_of(FOUR_NODES, 4, UNLIKE), ax) is ax
    assert len(pyplot.get_fignums()) == 1


def test_missing_matplotlib_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without matplotlib the error says what to install."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"taut\[plot\]"):
        plot_time(plan_of(FOUR_NODES, 4))


def test_importing_the_module_is_light() -> None:
    """Neither matplotlib nor a solver is loaded before the first drawing."""
    heavy = ("matplotlib", "numba", "ortools", "scipy", "pulp")
    check = f"import sys, taut.plots.plan, taut.plots.plan; sys.exit(' '.join(set({heavy}) & set(sys.modules)) or 0)"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
