"""
Pictures of a plan: its memory against the devices', its time against the bound.

(1) memory, in GiB, of a device of every stage: predicted + margin <= capacity;
(2) time, in seconds of a step: lower bound <= step time, the step time being the sum of the parts in
    ``predicted.breakdown_s``, and the gap (step time - lower bound) / step time.

Every function draws on the given axes or on a new figure and returns the axes; nothing is shown. matplotlib is the
extra ``plot``, imported on the first drawing.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from taut.data.units import GIB
from taut.words import percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from taut.planning.plan import Plan

HOP = "#d55e00"
RING = "#0072b2"
SHADES = ("#56b4e9", "#009e73", HOP, RING, "#cc79a7", "#e69f00")
MOST_STAGES = 16


def plot_memory(plan: "Plan", ax: "Axes | None" = None) -> "Axes":
    """
    Draw the predicted memory of each stage against what its devices have.

    Bars are GiB on the fullest device of the stage, the line is the capacity, and the hatched part below it the
    margin, (1). Parameters, result and errors as for ``taut.plot_placement``.

    Examples
    --------
    >>> import taut
    >>> plan = taut.plan("gpt2-345m", "dgx-a100", global_batch=32, fix={"pp": 2, "tp": 1, "micro_batch": 4})
    >>> taut.plot_memory(plan).get_title()
    'Memory of gpt2-345m on dgx-a100'
    """
    predicted = plan.predicted
    parts = (predicted.memory_bytes, predicted.margin_bytes, predicted.capacity_bytes)
    used, margin, capacity = (np.array(part) / GIB for part in parts)
    stages = np.arange(len(used))
    ax = ax or new_axes(float(np.clip(0.75 * len(used) + 1.5, 5.0, 13.0)), 4.0)
    ax.hlines(capacity, stages - 0.5, stages + 0.5, color="black", label="capacity")
    ax.bar(stages, margin, 1.0, capacity - margin, color="none", edgecolor="grey", hatch="///", lw=0, label="margin")
    ax.bar(stages, used, color=SHADES[0], label="predicted")
    if len(used) <= MOST_STAGES:
        _name_stages(ax, used.tolist(), plan.stages)
    ax.set(xlabel="stage", ylabel="memory of one device (GiB)", title=f"Memory of {name_of(plan)}")
    ax.set_ylim(0, 1.25 * capacity.max())
    ax.legend(loc="upper center", ncols=3, frameon=False)
    return ax


def plot_time(plan: "Plan", ax: "Axes | None" = None) -> "Axes":
    """
    Draw where the step's time goes, and the time that no plan can beat.

    One bar of seconds, split as in (2); the line is the certificate's lower bound, absent where nothing was proven.
    Parameters, result and errors as for ``taut.plot_placement``.

    Examples
    --------
    >>> import taut
    >>> plan = taut.plan("gpt2-345m", "dgx-a100", global_batch=32, fix={"pp": 2, "tp": 1, "micro_batch": 4})
    >>> taut.plot_time(plan).get_title()
    'Step time of gpt2-345m on dgx-a100: 0.1653 s'
    """
    # Words of a report come with the document's classes; importing this module loads neither.
    from taut.planning.summary import PARTS

    breakdown, ends = plan.predicted.breakdown_s, 0.0
    ax = ax or new_axes(9.0, 3.0)
    for shade, (part, words) in zip(SHADES, PARTS.items(), strict=True):
        seconds = breakdown[part]
        if part == "constant" and seconds == 0.0:
            continue
        ax.barh(0, seconds, left=ends, color=shade, label=f"{words}: {seconds:.3g} s")
        ends += seconds
    if plan.lower_bound_s is not None:
        words = f"lower bound of every plan: {plan.lower_bound_s:.4g} s (gap {percent(plan.gap)})"
        ax.vlines(plan.lower_bound_s, -0.5, 0.6, color="black", linestyle="--", label=words)
    ax.set(xlabel="step time (s)", yticks=[], title=f"Step time of {name_of(plan)}: {plan.step_time_s:.4g} s")
    ax.set_ylim(-0.5, 1.8)
    ax.legend(loc="upper center", ncols=2, frameon=False)
    return ax


def _name_stages(ax: "Axes", used: list[float], stages: list[dict[str, Any]]) -> None:
    """Write GiB over each bar, and layers of all its chunks and recompute under it."""
    names, paper = [], {"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none"}
    for stage, (height, record) in enumerate(zip(used, stages, strict=True)):
        ax.annotate(f"{height:.1f}", (stage, height), (0, 3), textcoords="offset points", ha="center", bbox=paper)
        layers, recompute = record["num_layers"], record["recompute"]
        kept = "" if recompute == "none" else f"\n{recompute}\nrecompute"
        names.append(f"{stage}\n{layers} layer{'s' if layers != 1 else ''}{kept}")
    ax.set_xticks(range(len(used)), names, fontsize=9)


def name_of(plan: "Plan") -> str:
    """Model and cluster of a plan, for titles."""
    return f"{plan.model} on {plan.cluster}"


def new_axes(width: float, height: float) -> "Axes":
    """Axes of a new figure, sizes in inches."""
    try:
        from matplotlib import pyplot
    except ImportError:
        raise ImportError("plots need matplotlib: pip install 'taut[plot]'") from None
    _, ax = pyplot.subplots(figsize=(width, height), layout="compressed")
    return ax
