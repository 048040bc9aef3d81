"""
Picture of vTrain's design space of MT-NLG (figure 10 of arXiv 2312.12391), by our prices.

Left, seconds of a step over GPUs: every plan that fits with ZeRO-1 (those that do not are hollow), the Pareto front of
the plans, and below the grey line what is proven: no plan of the searched space is as fast on so many GPUs. Right, the
utilisation of the same plans. MT-NLG's own plans, its measured runs and vTrain's findings are marked.
"""

from typing import TYPE_CHECKING, Any

from taut.papers.vtrain.plans import GLOBAL_BATCH, MT_NLG, PEAK_FLOPS, TABLE, gpus, step_flops
from taut.papers.vtrain.space import TENSOR
from taut.papers.vtrain.study import Space
from taut.plots.plan import SHADES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIZE = (13.0, 5.6)
PROVEN = "#d9d9d9"
MARKS = {"MT-NLG": ("s", "black"), "vTrain": ("D", "#b2182b")}


def plot_design_space(found: Space, axes: "tuple[Axes, Axes]") -> None:
    """
    Draw seconds and utilisation over GPUs.

    ``axes``: axes for seconds and for utilisation.
    """
    seconds, shares = axes
    _draw_proven(seconds, found)
    for ax, of in ((seconds, _seconds), (shares, _share)):
        for tensor, colour in zip(TENSOR, SHADES, strict=False):
            chosen = [point for point in found.points if point.plan[0] == tensor]
            for fits in (True, False):
                each = [point for point in chosen if point.ours.zero1_fits == fits]
                face = colour if fits else "none"
                label = f"t = {tensor}" + ("" if fits else ", too large")
                xs, ys = [point.gpus for point in each], [of(point.gpus, point.ours.step_s) for point in each]
                ax.scatter(xs, ys, 14, facecolors=face, edgecolors=colour, linewidths=0.8, label=label, zorder=3)
        line = [(point.gpus, of(point.gpus, point.ours.step_s)) for point in found.front]
        ax.plot(*zip(*line, strict=True), color="black", lw=0.9, zorder=2, label="Pareto front of the plans")
        _mark(ax, of, found)
    seconds.set(xscale="log", yscale="log", xlabel="GPUs", ylabel="seconds of a step", title="Step time")
    shares.set(xscale="log", xlabel="GPUs", ylabel="utilisation (%)", title="Model FLOP utilisation")
    # A few plans across nodes take hours a step; the picture ends where the others do.
    seconds.set_ylim(8, 3e3)
    shares.set_ylim(0, 55)
    shares.legend(*seconds.get_legend_handles_labels(), loc=(0.02, 0.13), fontsize=8, frameon=False)


def _draw_proven(ax: "Axes", found: Space) -> None:
    """The region that no plan of the searched space reaches."""
    proven = [(each.gpus, each.lower_bound_s) for each in found.best if each.lower_bound_s]
    if proven:
        xs, ys = zip(*proven, strict=True)
        ax.fill_between(xs, 1e-3, ys, color=PROVEN, lw=0, label="proven: no plan", zorder=1)


def _mark(ax: "Axes", of: Any, found: Space) -> None:
    """The plans of table I, and MT-NLG's measured runs."""
    by_plan = {point.plan: point for point in found.points}
    for whose, (mark, colour) in MARKS.items():
        chosen = [by_plan[line.plan] for line in TABLE if line.whose == whose]
        xs, ys = [point.gpus for point in chosen], [of(point.gpus, point.ours.step_s) for point in chosen]
        ax.scatter(xs, ys, 46, marker=mark, facecolors="none", edgecolors=colour, label=f"{whose}'s plans", zorder=4)
    runs = [(gpus(line.plan), of(gpus(line.plan), line.measured_s)) for line in TABLE if line.measured_s]
    xs, ys = [count for count, _ in runs], [value for _, value in runs]
    ax.scatter(xs, ys, 46, marker="x", color="black", label="MT-NLG measured", zorder=4)


def _seconds(devices: int, step_s: float) -> float:
    return step_s


def _share(devices: int, step_s: float) -> float:
    return 100.0 * step_flops(MT_NLG, GLOBAL_BATCH) / (devices * PEAK_FLOPS * step_s)
