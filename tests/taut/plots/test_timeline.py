"""The timeline of a simulated step: its rows, its bars and its memory."""

import matplotlib as mpl
import numpy as np
import pytest

import taut

mpl.use("agg")


@pytest.mark.parametrize("schedule", ["1f1b", "zb-v"])
def test_every_stage_has_a_row_and_its_bars_reach_the_end_of_the_step(schedule: str) -> None:
    """Rows are named, the axis ends with the step, and computation covers as much as its stream is busy."""
    fix: dict[str, int | str] = {"pp": 2, "tp": 1, "micro_batch": 1, "schedule": schedule, "zero": 0}
    found = taut.simulate("gpt2-345m", "dgx-a100", global_batch=32, fix=fix, stack="any")
    ax = taut.plot_timeline(found)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["stage 0", "stage 1"]
    assert ax.get_xlim()[1] == pytest.approx(found.step_time_s)
    assert f"step {found.step_time_s:.4g} s" in ax.get_title(loc="left")
    bars = [collection for collection in ax.collections if collection.get_zorder() == 2]
    boxes = [np.ptp(np.array(path.vertices), axis=0) for bar in bars for path in bar.get_paths()]
    drawn = sum(float(width) for width, height in boxes if abs(height - 1.0) < 1e-9)
    assert drawn == pytest.approx(sum(found.utilisation["compute"]) * found.step_time_s)
    assert len(ax.texts) >= 2
