"""Pictures of hand-made frontiers: steps, regions and names where they belong."""

import warnings
from collections.abc import Iterator

import matplotlib
import numpy as np
import pytest

matplotlib.use("Agg")

from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection

from taut.data.units import GIB
from taut.frontier.frontier import Frontier, FrontierPoint
from taut.plots.frontier import plot_frontier
from taut.solver.result import Status
from tests.support.plans import made_plan

BAND, NO_PLAN, BOUND = "between bound and plan", "no plan is this fast (proven)", "lower bound"


@pytest.fixture(autouse=True)
def _closed_figures() -> Iterator[None]:
    yield
    pyplot.close("all")


def point(
    limit: float, seconds: float, needs: float, bound: float, recompute: str = "none", pp: int = 2
) -> FrontierPoint:
    """A point whose plan has so many stages, the first of which recomputes."""
    plan = made_plan(
        pp=pp,
        tp=8,
        strategy={"recompute": [recompute, *["none"] * (pp - 1)]},
        predicted={"step_time_s": seconds, "memory_bytes": [int(needs * GIB)], "tokens_per_s": 1000 / seconds},
    )
    status = Status.OPTIMAL if seconds == bound else Status.FEASIBLE
    return FrontierPoint(limit_gib=limit, status=status, lower_bound_s=bound, needs_gib=needs, plan=plan)


def frontier(*points: FrontierPoint, least: float) -> Frontier:
    return Frontier(
        model="m",
        cluster="c",
        global_batch=4,
        tokens_per_step=1000,
        latency_model="pipette",
        margin=0.0,
        capacity_gib=80.0,
        least_gib=least,
        leanest="pp=4",
        points=points,
    )


# Plans of 30, 20 and 10 s that need 20, 30 and 60 GiB, searched at 20, 40 and 80 GiB; all optimal there.
THREE = (
    point(20, 30.0, 20, 30.0, "full", pp=4),
    point(40, 20.0, 30, 20.0),
    point(80, 10.0, 60, 10.0, pp=8),
)


def labelled(ax: Axes) -> list[str]:
    """What the legend says."""
    legend = ax.get_legend()
    assert legend is not None
    return [text.get_text() for text in legend.get_texts()]


def names(ax: Axes) -> dict[str, tuple[float, float]]:
    """The names of plans and where they point."""
    return {text.get_text(): text.xy for text in ax.texts if hasattr(text, "xy")}


def test_figures_between_the_limits_by_hand() -> None:
    """The upper figure falls where a plan begins to fit, the lower one behind each limit searched."""
    found = frontier(*THREE, least=20.0)
    assert found.at(20) == (30.0, 30.0)
    assert found.at(29) == (20.0, 30.0)
    assert found.at(30) == (20.0, 20.0)
    assert found.at(40) == (20.0, 20.0)
    assert found.at(41) == (10.0, 20.0)
    assert found.at(60) == (10.0, 10.0)
    assert found.at(81) == (0.0, 10.0)
    # Widest between 20 and 30 GiB: (30 - 20)/30 = 1/3; between 40 and 60: (20 - 10)/20 = 1/2.
    assert found.widest_gap == 0.5
    assert found.span_gib == (20, 80)


def test_plans_are_drawn_from_what_they_need() -> None:
    """A disc stands where each plan begins to fit, a thick line runs to the limit it was proven at."""
    ax = plot_frontier(frontier(*THREE, least=20.0))
    (discs,) = [line for line in ax.lines if line.get_marker() == "o"]
    assert np.asarray(discs.get_xydata()).tolist() == [[20, 30], [30, 20], [60, 10]]
    (thick,) = [each for each in ax.collections if isinstance(each, LineCollection)]
    assert [np.asarray(path.vertices).tolist() for path in thick.get_paths()] == [
        [[20, 30], [20, 30]],
        [[30, 20], [40, 20]],
        [[60, 10], [80, 10]],
    ]


def test_plans_are_named_by_degrees_and_recompute() -> None:
    """Names stand where their plan begins to fit."""
    assert names(plot_frontier(frontier(*THREE, least=20.0))) == {
        "pp 4, tp 8, dp 1; full recompute 1/4": (20, 30),
        "pp 2, tp 8, dp 1": (30, 20),
        "pp 8, tp 8, dp 1": (60, 10),
    }


def test_names_that_would_overlap_are_left_out() -> None:
    """Of plans that stand close together the one that is optimal longest is named."""
    close = [point(20 + 0.1 * k, 30 - 0.001 * k, 20 + 0.1 * k, 30 - 0.001 * k, pp=4) for k in range(5)]
    last = point(80, 29.0, 20.5, 29.0, pp=8)
    assert "pp 8, tp 8, dp 1" in names(plot_frontier(frontier(*close, last, least=20.0)))


def test_names_stay_within_the_axes() -> None:
    """A plan that begins just before the capacity is named to the left of the right axis."""
    ax = plot_frontier(frontier(*THREE[:2], point(80, 10.0, 79.5, 10.0, pp=8), least=20.0))
    assert "pp 8, tp 8, dp 1" in names(ax)
    right = ax.get_window_extent().x1
    assert all(text.get_window_extent().x1 <= right + 1 for text in ax.texts)


def test_regions_are_shaded_and_named() -> None:
    """Proven below the bound and left of the least limit, open between the bound and the plans."""
    ax = plot_frontier(frontier(*THREE, least=20.0))
    assert {BAND, NO_PLAN, BOUND} <= set(labelled(ax))
    (below, band) = [each for each in ax.collections if isinstance(each, PolyCollection)]
    # At 50 GiB the bound is 10 s and the plan 20 s, at 70 GiB both are 10 s.
    inside = [shape.get_paths()[0].contains_point for shape in (below, band)]
    assert [hit((50, 9.5)) for hit in inside] == [True, False]
    assert [hit((50, 15)) for hit in inside] == [False, True]
    assert [hit((50, 21)) for hit in inside] == [False, False]
    assert [hit((70, 10.5)) for hit in inside] == [False, False]
    assert "no plan fits below 20.00 GiB (proven)" in [text.get_text() for text in ax.texts]


def test_proven_curve_has_no_band() -> None:
    """Where each limit is one KiB below what the plan before needs nothing is open."""
    kib = 1 / 2**20
    proven = frontier(point(30 - kib, 30.0, 20, 30.0), point(80, 20.0, 30, 20.0, pp=4), least=20.0)
    assert proven.widest_gap == 0.0
    assert set(labelled(plot_frontier(proven))) & {BAND, BOUND} == set()


def test_plans_without_proof_have_no_thick_line() -> None:
    """A plan with a gap is a disc and a thin step, above its bound."""
    ax = plot_frontier(frontier(point(80, 20.0, 30, 15.0), least=20.0))
    assert [each for each in ax.collections if isinstance(each, LineCollection)] == []
    assert "plan proven optimal" not in labelled(ax)


def test_axes_have_units_and_round_rates() -> None:
    """GiB, seconds and, on the right, tokens per second at the height of their step time."""
    ax = plot_frontier(frontier(*THREE, least=20.0))
    left, right = ax.figure.axes
    assert (left.get_xlabel(), left.get_ylabel()) == ("memory limit of a device (GiB)", "step time (s)")
    assert right.get_ylabel() == "throughput (tokens/s)"
    assert left.get_ylim() == right.get_ylim()
    for height, text in zip(right.get_yticks(), right.get_yticklabels(), strict=True):
        # 1000 tokens a step.
        assert float(text.get_text().replace(",", "")) == pytest.approx(1000 / height, rel=1e-5)
    assert left.get_title() == "m on c, global batch 4"


@pytest.mark.parametrize("least", [20.0, 80.0])
def test_single_points_can_be_drawn(least: float) -> None:
    """One plan, even one that needs all there is, is a picture without warnings, and given axes are used."""
    _, ax = pyplot.subplots()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert plot_frontier(frontier(point(80, 20.0, least, 20.0), least=least), ax) is ax
        ax.figure.canvas.draw()
    low, high = ax.get_xlim()
    assert low < 80 < high


def test_infeasible_and_unknown_limits_are_within_the_picture() -> None:
    """The axis reaches down to limits that hold no plan, and an unknown one leaves its range open."""
    none = FrontierPoint(limit_gib=10, status=Status.INFEASIBLE, missing_bytes=1)
    unknown = FrontierPoint(limit_gib=25, status=Status.UNKNOWN, lower_bound_s=15.0)
    ax = plot_frontier(frontier(none, unknown, point(80, 20.0, 30, 15.0), least=20.0))
    assert ax.get_xlim()[0] == 10
    assert BAND in labelled(ax)
