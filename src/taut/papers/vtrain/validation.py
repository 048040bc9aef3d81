r"""
Figure 9 and equation 1: vTrain's rules beside the runs that its authors measured and published with their program.

With t the seconds of a run by the rules, kernels times the scalar of table I, and s the measured ones, the error is the
mean of :math:`|t / s - 1|` over the runs of a file: 720 on one node, 55 on 8 to 64 nodes. Equation 1 sweeps the share
:math:`\alpha` of the bandwidth between nodes that a step reaches, and takes the one of least error on many nodes. The
paper has 1,440 and 116 runs, and its own kernel traces.
"""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from taut.errors import DataError
from taut.papers.vtrain.step import Plan, Shape, step_seconds
from taut.words import percent, text_table

FILES = ("vtrain_single.csv", "vtrain_multi.csv")
ERRORS = (0.1966, 0.1488)
"""Of figure 9 a and b."""
ALPHAS = tuple(tenth / 10 for tenth in range(1, 11))
BEST_ALPHA = 1.0


class Run(NamedTuple):
    """A measured run."""

    shape: Shape
    plan: Plan
    global_batch: int
    micro_batch: int
    measured_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """Runs and errors of both parts of figure 9, and the errors of the second one by share of the bandwidth."""

    runs: tuple[int, int]
    errors: tuple[float, float]
    by_alpha: dict[float, float]

    @property
    def best_alpha(self) -> float:
        """The share of least error."""
        return min(self.by_alpha, key=lambda alpha: self.by_alpha[alpha])

    @property
    def figures(self) -> dict[str, str]:
        """Ours by row of the paper (``taut.papers.rows``)."""
        return {
            "figure 9 a: error on one node, vTrain's kernels": percent(self.errors[0], places=2),
            "figure 9 b: error on many nodes, vTrain's kernels": percent(self.errors[1], places=2),
            "equation 1: best alpha of the bandwidth": f"{self.best_alpha:.1f}",
        }

    def __str__(self) -> str:
        """Both errors, then the sweep."""
        named = zip(("one node", "many nodes"), self.runs, ERRORS, self.errors, strict=True)
        lines = [(name, f"{runs}", *(percent(each, places=2) for each in both)) for name, runs, *both in named]
        sweep = [(f"{alpha:.1f}", percent(error, places=2)) for alpha, error in self.by_alpha.items()]
        words = f"best share of the bandwidth: published {BEST_ALPHA:.1f}, by its rules {self.best_alpha:.1f}"
        head = "figure 9: mean error of vTrain's rules against its measured runs"
        errors = text_table([("", "runs", "published", "by its rules"), *lines])
        return "\n\n".join([head, errors, text_table([("alpha", "error on many nodes"), *sweep]), words])


def read_runs(path: Path) -> list[Run]:
    """
    VTrain's measured runs.

    Raises ``DataError`` if the file cannot be read or lacks a column.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return [_run(line) for line in csv.DictReader(file)]
    except (OSError, KeyError, TypeError, ValueError):
        raise DataError(f"{path}: expected a CSV file with the columns of vTrain's ground truth") from None


def _run(line: dict[str, str]) -> Run:
    layers, hidden, heads, seq = (
        int(line[name]) for name in ("# layers", "hidden size", "attention heads", "sequence length")
    )
    tensor, data, stages = (int(line[f"{name} parallelism"]) for name in ("tensor", "data", "pipeline"))
    seconds = float(line["iteration time (ms)"]) / 1e3
    batches = int(line["global batch"]), int(line["micro batch"])
    return Run(Shape(layers, hidden, heads, seq), (tensor, data, stages), *batches, seconds)


def validate(folder: Path, scalar: float) -> Validation:
    """Price the runs of both files with kernels times the scalar."""
    single, multi = (read_runs(folder / name) for name in FILES)
    by_alpha = {alpha: mean_error(multi, scalar, alpha) for alpha in ALPHAS}
    errors = mean_error(single, scalar, BEST_ALPHA), by_alpha[BEST_ALPHA]
    return Validation(runs=(len(single), len(multi)), errors=errors, by_alpha=by_alpha)


def mean_error(runs: Sequence[Run], scalar: float, alpha: float) -> float:
    """The error of some runs at a share of the bandwidth between nodes."""
    priced = [
        step_seconds(run.shape, run.plan, run.global_batch, scalar, micro_batch=run.micro_batch, alpha=alpha)
        for run in runs
    ]
    return sum(abs(t / run.measured_s - 1) for t, run in zip(priced, runs, strict=True)) / len(runs)
