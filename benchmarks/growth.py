"""
How the cost of a default plan grows: CPU seconds and peak memory by number of GPUs and of candidates.

Run ``python -m benchmarks.growth [--out rows.md] [--plot FILE.png]``. Every job is planned with default options and
verified, each in a process of its own, so that a peak is its own. CPU seconds are those of the whole command with its
imports; they depend less on what else a machine does than elapsed ones. A search ends at a gap of 0.1 % or after 60 s.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy import as_table

JOBS: list[tuple[str, str, int]] = [
    ("llama3-8b", "dgx-h100", 64),
    ("llama3-70b", "dgx-h100:4", 64),
    ("llama3-70b", "dgx-h100:8", 128),
    ("llama3-70b", "dgx-h100:32", 512),
    ("llama3-70b", "dgx-h100:128", 2048),
    ("llama3-70b", "dgx-h100:512", 8192),
    ("llama3-405b", "dgx-h100:72", 252),
    ("gpt3-175b", "dgx-a100:16", 512),
    ("mixtral-8x22b", "dgx-h100:16", 256),
    ("qwen3-30b-a3b", "dgx-h100:2", 1024),
    ("qwen3-235b-a22b", "dgx-h100:32", 8192),
    ("deepseek-v3", "gb200-nvl64:4", 2048),
]
"""Model, cluster and global batch; those with experts have several times as many candidates."""
HEAD = ["job", "GPUs", "candidates", "gap %", "plan CPU s", "verify CPU s", "plan peak MiB", "verify peak MiB"]


@dataclass(frozen=True)
class Row:
    """A job with what its plan and its check took: CPU seconds, and MiB at most."""

    job: str
    gpus: int
    candidates: int
    gap: float
    seconds: tuple[float, float]
    peak: tuple[float, float]

    @property
    def cells(self) -> list[str]:
        """The cells of a table."""
        seconds, peak = (f"{each:.0f}" for each in self.seconds), (f"{each:,.0f}" for each in self.peak)
        return [self.job, f"{self.gpus:,}", f"{self.candidates:,}", f"{100 * self.gap:.2f}", *seconds, *peak]


def cost(arguments: Sequence[str]) -> tuple[float, float]:
    """CPU seconds and peak MiB of a command, in a child of a process that had no other."""
    code = "import json,resource,subprocess,sys;r=subprocess.run(sys.argv[1:],stdout=subprocess.DEVNULL).returncode;"
    code += "u=resource.getrusage(resource.RUSAGE_CHILDREN);print(json.dumps([r,u.ru_utime+u.ru_stime,u.ru_maxrss]))"
    command = [sys.executable, "-c", code, sys.executable, "-m", "taut", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    status, seconds, peak = json.loads(done.stdout)
    if status:
        raise SystemExit(f"taut {' '.join(arguments)}: exit code {status}\n{done.stderr}")
    return seconds, peak / 1024


def row(model: str, cluster: str, global_batch: int, folder: Path) -> Row:
    """Plan and verify one job."""
    path = folder / "plan.json"
    planned = cost(["plan", model, cluster, "--global-batch", str(global_batch), "--quiet", "--out", str(path)])
    checked = cost(["verify", str(path)])
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    certificate, gpus = document["certificate"], len(np.ravel(document["placement"]["devices"]))
    found = len(certificate["candidates"]), certificate["gap"]
    job = f"{model} {cluster}, {global_batch}"
    return Row(job, gpus, *found, (planned[0], checked[0]), (planned[1], checked[1]))


def plot(rows: Sequence[Row], path: Path) -> None:
    """Draw seconds and memory against GPUs and candidates, a disc for a plan and a ring for its check."""
    from matplotlib import pyplot
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    from taut.plots.plan import SHADES

    figure, axes = pyplot.subplots(2, 2, figsize=(9.5, 6.4), layout="constrained", sharex="col", sharey="row")
    figures = ("CPU seconds", [each.seconds for each in rows]), ("peak memory, MiB", [each.peak for each in rows])
    sizes = ("GPUs", [each.gpus for each in rows]), ("candidates", [each.candidates for each in rows])
    for line, (name, values) in zip(axes, figures, strict=True):
        line[0].set_ylabel(name)
        for panel, (_, numbers) in zip(line, sizes, strict=True):
            panel.scatter(numbers, [value[0] for value in values], color=SHADES[0], label="plan")
            checks = [value[1] for value in values]
            panel.scatter(numbers, checks, facecolors="none", edgecolors=SHADES[-1], label="verify")
            panel.set_xscale("log")
            panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            panel.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
            panel.xaxis.set_minor_formatter(NullFormatter())
            panel.set_ylim(bottom=0)
            panel.spines[["top", "right"]].set_visible(False)
    for panel, (size, _) in zip(axes[1], sizes, strict=True):
        panel.set_xlabel(size)
    axes[0][0].legend(frameon=False)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def main() -> None:
    """Print the table, and write table and picture where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    rows = list[Row]()
    with tempfile.TemporaryDirectory() as folder:
        for model, cluster, global_batch in JOBS:
            rows.append(row(model, cluster, global_batch, Path(folder)))
            print("  ".join(rows[-1].cells), file=sys.stderr, flush=True)
    table = as_table([dict(zip(HEAD, each.cells, strict=True)) for each in rows])
    print(table)
    if options.out:
        options.out.write_text(table + "\n", encoding="utf-8")
    if options.plot:
        plot(rows, options.plot)


if __name__ == "__main__":
    main()
