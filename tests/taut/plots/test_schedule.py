"""Pictures of schedules: bars, memory, limits and bounds, as axes and as a page."""

import json
import re
import warnings
from dataclasses import replace
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.collections import LineCollection, PolyCollection

from taut.formulations.schedules.orders import gpipe
from taut.formulations.schedules.schedule import timetable
from taut.formulations.schedules.stages import Stages
from taut.plots.schedule import (
    BLUE,
    LANE,
    bars_of,
    colour,
    figure_size,
    is_dark,
    lane_bottom,
    memory_curve,
    plot_schedule,
    shades,
    strip_bottom,
)
from taut.plots.schedule_page import schedule_page
from taut.schedules.found import FoundSchedule
from tests.support.pipelines import SPLIT, WHOLE, found, placed

mpl.use("Agg")


@pytest.fixture(autouse=True)
def _closed() -> Any:
    yield
    pyplot.close("all")


def words(ax: Any) -> list[str]:
    return [text.get_text() for text in ax.texts]


def centred(text: Any) -> bool:
    """Whether a text is the number of a bar; titles and peaks begin at their place."""
    return bool(text.get_horizontalalignment() == "center")


def test_a_whole_backward_pass_is_two_bars() -> None:
    """Of 1F1B's B on device 1, from 2.5 to 4.5, the first second is I and the second W."""
    made = found(WHOLE)
    bars = bars_of(made.problem, made.schedule, made.times)
    here = (bars.device == 1) & (bars.micro_batch == 0)
    kinds = {int(k): (s, e) for k, s, e in zip(bars.kind[here], bars.start[here], bars.end[here], strict=True)}
    assert kinds == {0: (1.5, 2.5), 1: (2.5, 3.5), 2: (3.5, 4.5)}
    assert len(bars.kind) == 12


def test_memory_rises_with_forwards_and_falls_with_weights() -> None:
    """Device 0 takes 1 at 0 and 1, and frees 1 at the ends of its W, 6 and 9."""
    made = found(SPLIT)
    moment, held = memory_curve(made.problem, made.schedule.orders[0], made.times.start[0], made.times.end[0])
    changes = np.flatnonzero(np.diff(held, prepend=0.0))
    assert moment[changes].tolist() == [0, 1, 6, 9]
    assert held[changes].tolist() == [1, 2, 1, 0]


def test_the_later_chunks_of_a_device_are_lighter() -> None:
    """Down the V full colour, up lighter; one chunk a device has one shade."""
    shared = Stages(stages=2, micro_batches=1, forward=[1.0], backward=[1.0], weight=[1.0])
    white = shades(shared.place("v", 2).problem)
    assert white[0] == white[1] == 0.0 < white[2] == white[3]
    assert set(shades(placed().problem).values()) == {0.0}
    assert colour(0, 0.0) == BLUE == "#0072b2"
    assert is_dark(colour(0, 0.0))
    assert not is_dark(colour(0, white[2]))


def test_every_pass_is_drawn_where_it_runs() -> None:
    """Twelve bars in two lanes, the first device on top."""
    ax = plot_schedule(found(SPLIT))
    (bars,) = [each for each in ax.collections if isinstance(each, PolyCollection) and len(each.get_paths()) == 12]
    corners = [np.asarray(path.vertices) for path in bars.get_paths()]
    left = [(float(box[:, 0].min()), float(box[:, 0].max()), float(box[:, 1].min())) for box in corners]
    assert left[2] == (4.0, 5.0, lane_bottom(0))
    assert left[6] == (1.5, 2.5, lane_bottom(1))
    assert lane_bottom(1) + LANE < strip_bottom(0)


def test_micro_batches_are_numbered_where_there_is_room() -> None:
    """Each of the twelve bars carries its micro-batch; the rest of the text is title, proof and peaks."""
    ax = plot_schedule(found(SPLIT))
    numbers = [text for text in ax.texts if text.get_text() in ("0", "1") and centred(text)]
    assert len(numbers) == 12
    assert {"1", "0.5"} <= set(words(ax))


def test_narrow_bars_carry_no_numbers() -> None:
    """On a picture a few points wide nothing could be read."""
    _, ax = pyplot.subplots(figsize=(0.3, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plot_schedule(found(SPLIT), ax)
    assert [text for text in ax.texts if centred(text)] == []


def lines(ax: Any) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_limits_and_bounds_are_drawn_where_there_are_any() -> None:
    """A dashed line for each device's limit, a dotted one at the bound unless it is met."""
    free = plot_schedule(found(SPLIT, bound=9.0))
    assert not {"memory limit", "lower bound"} & set(lines(free))
    bounded = plot_schedule(found(SPLIT, bound=8.0, limit=2.0))
    assert {"memory limit", "lower bound"} <= set(lines(bounded))
    drawn: list[Any] = [each for each in bounded.collections if isinstance(each, LineCollection)]
    heights = [float(each.get_segments()[0][0, 1]) for each in drawn]
    assert [strip_bottom(d) < height < lane_bottom(d) for d, height in enumerate(heights)] == [True, True]
    assert any(float(np.asarray(line.get_xdata())[0]) == 8.0 for line in bounded.lines)


def test_title_and_proof_say_what_is_known() -> None:
    """Kind, size and figures; the bound and whether it is met."""
    ax = plot_schedule(found(SPLIT, bound=8.0, limit=2.0))
    assert ax.get_title(loc="left") == (
        "1f1b: 2 devices, 2 micro-batches; makespan 9, bubble 33.3%, peak memory 1 of 1F1B's"
    )
    assert "no order within a memory of 1 ends before 8, gap 11.1 %" in words(ax)
    met = plot_schedule(found(SPLIT, bound=9.0))
    assert "proven optimal: no order within any memory ends before 9, gap 0 %" in words(met)
    assert "nothing is proven of other orders" in words(plot_schedule(found(SPLIT, bound=None)))


def test_given_axes_are_used_without_warnings() -> None:
    """What is drawn on is returned, and nothing complains."""
    figure, ax = pyplot.subplots(figsize=figure_size(found()), layout="compressed")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert plot_schedule(found(), ax) is ax
        figure.canvas.draw()


def test_the_page_is_self_contained() -> None:
    """One HTML file with plotly's script inside, which loads nothing from elsewhere."""
    page = schedule_page(found(SPLIT, bound=8.0, limit=2.0))
    assert page.startswith("<!doctype html>")
    assert re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="http', page) == []
    assert "Plotly.newPlot" in page
    assert "makespan 9, bubble 33.3%" in page


def traces(page: str) -> list[dict[str, Any]]:
    """What a page draws."""
    (call,) = re.findall(r"Plotly\.newPlot\(\s*\"[^\"]+\",\s*(\[.*?\]),\s*\{\"", page, re.S)
    found: list[dict[str, Any]] = json.loads(call)
    return found


def listed(page: str) -> list[str]:
    """Entries of a page's legend."""
    return [each["name"] for each in traces(page) if each.get("showlegend", True)]


def test_the_page_has_every_bar_and_the_memory() -> None:
    """Lanes, then three kinds of two chunks with bars and their numbers, and a curve for each device."""
    page = schedule_page(found(SPLIT))
    assert [each["type"] for each in traces(page)] == ["bar", *["bar", "scatter"] * 6, "scatter", "scatter"]
    kinds = ["forward", "gradient by the input", "gradient by the weights"]
    assert listed(page) == ["idle", *kinds, "activation memory"]
    assert next(each["text"] for each in traces(page) if each.get("mode") == "text") == ["0", "1"]


def test_the_legend_of_a_page_names_every_colour_and_line() -> None:
    """First and last chunk of a device, limit and bound have entries of their own."""
    assert listed(schedule_page(found(SPLIT, bound=8.0, limit=2.0)))[-2:] == ["memory limit", "lower bound"]
    shared = Stages(stages=2, micro_batches=2, forward=[1.0], backward=[1.0], weight=[1.0])
    on_v = shared.place("v", 2)
    made = gpipe(on_v.problem)
    words = listed(
        schedule_page(FoundSchedule(placed=on_v, schedule=made, times=timetable(on_v.problem, made), lower_bound=None))
    )
    assert {"forward, first chunk of a device", "forward, last chunk of a device"} <= set(words)


def test_two_digits_are_numbered_as_one_is() -> None:
    """Twelve micro-batches of eight chunks: every pass has its number on picture and page."""
    pipeline = Stages(stages=4, micro_batches=12, forward=[1.0], backward=[1.0], weight=[1.0]).place("v", 2)
    made = gpipe(pipeline.problem)
    wide = FoundSchedule(placed=pipeline, schedule=made, times=timetable(pipeline.problem, made), lower_bound=None)
    texts = [text for each in traces(schedule_page(wide)) if each.get("mode") == "text" for text in each["text"]]
    assert texts.count("11") == texts.count("7") == 3 * 8
    _, ax = pyplot.subplots(figsize=(24.0, 8.0))
    numbers = [text.get_text() for text in plot_schedule(wide, ax).texts if centred(text)]
    assert numbers.count("11") == numbers.count("7") == 3 * 8


def test_a_plans_schedule_is_drawn_in_seconds() -> None:
    """The axis and the title name the unit where the pipeline states one, and say so where it does not."""
    own = found(SPLIT)
    timed = replace(own, placed=replace(own.placed, unit="s"))
    assert plot_schedule(timed).get_xlabel() == "time (s)"
    assert "makespan 9 s," in plot_schedule(timed).get_title(loc="left")
    assert "time (s)" in schedule_page(timed)
    assert plot_schedule(own).get_xlabel() == "time (in the unit of the given times)"
