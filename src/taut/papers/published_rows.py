r"""
The rows of the five papers: published figures, ours when the pages were last renewed, and why they differ.

A row is a table, a figure or a procedure of the paper. With the published figure p and ours o

(1) it is reproduced if :math:`|o / p - 1| \le 0.05`, or if it is a procedure, which has no figure;
(2) it differs otherwise, and says why;
(3) it is not published enough where p has no counterpart: its reason names what the paper leaves out;
(4) it is missing where nothing here computes it yet.

Ours is the figure of the command that runs where that command computes it, and else the figure that the page of results
had when it was last renewed.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from taut.words import text_table

TOLERANCE = 0.05
"""Of (1)."""


class State(StrEnum):
    """What (1) to (4) say of a row."""

    REPRODUCED = "reproduced"
    DIFFERS = "differs"
    UNPUBLISHED = "not published enough"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class PaperRow:
    """
    A row: its name and what it shows, both figures in words, why they differ, and where ours is printed and explained.

    ``ours`` is empty where the paper lacks what a figure of ours would need; ``command`` follows ``taut``; ``page`` is
    a page of ``docs`` with an anchor.
    """

    name: str
    what: str
    published: str
    ours: str
    command: str
    page: str
    reason: str = ""

    @property
    def key(self) -> str:
        """Name and subject, which a paper has once."""
        return f"{self.name}: {self.what}"

    @property
    def state(self) -> State:
        """The state by (1) to (4)."""
        if not self.ours:
            return State.UNPUBLISHED if self.reason else State.MISSING
        published, ours = figure(self.published), figure(self.ours)
        if published is None or ours is None:
            return State.UNPUBLISHED if self.reason else State.REPRODUCED
        near = abs(ours - published) <= TOLERANCE * abs(published)
        return State.REPRODUCED if near else State.DIFFERS


def figure(words: str) -> float | None:
    """The first number of a cell, None where it has none."""
    found = re.search(r"-?\d[\d,]*(\.\d+)?", words)
    return None if found is None else float(found.group().replace(",", ""))


@dataclass(frozen=True, slots=True)
class PaperRows:
    """All rows of a paper, those of ``live`` with figures of the command that runs."""

    rows: tuple[PaperRow, ...]
    live: frozenset[str] = frozenset()

    def with_figures(self, figures: Mapping[str, str]) -> "PaperRows":
        """
        The rows with figures of the command that runs.

        ``figures``: ours in words by the key of the row; a dash for one that was not found.
        """
        known = {key: words for key, words in figures.items() if figure(words) is not None}
        rows = (PaperRow(**{**asdict(row), "ours": known[row.key]}) if row.key in known else row for row in self.rows)
        return PaperRows(tuple(rows), frozenset(known))

    def as_dicts(self) -> list[dict[str, Any]]:
        """Plain values."""
        return [{**asdict(row), "state": row.state.value, "this_run": row.key in self.live} for row in self.rows]

    def __str__(self) -> str:
        """A count of the states, one line for each row, and the reasons of those that differ or lack a figure."""
        counts = {state: sum(row.state is state for row in self.rows) for state in State}
        head = ", ".join(f"{count} {state.value}" for state, count in counts.items() if count)
        reasons = list(dict.fromkeys(map(_why, self.rows)))
        reasons = [why for why in reasons if why]
        lines: list[tuple[str, ...]] = [("row of the paper", "", "published", "ours", "", "printed by")]
        lines += [self._cells(row, reasons) for row in self.rows]
        notes = [f"({number}) {why}" for number, why in enumerate(reasons, start=1)]
        return "\n".join([f"{len(self.rows)} rows: {head}", text_table(lines), *notes])

    def _cells(self, row: PaperRow, reasons: list[str]) -> tuple[str, ...]:
        printed = "this run" if row.key in self.live else f"taut {row.command}"
        note = f" ({reasons.index(_why(row)) + 1})" if _why(row) else ""
        return row.name, row.what, row.published, row.ours or "-", row.state.value + note, printed


def _why(row: PaperRow) -> str:
    """Why a row has no figure or another one, and the page that says more; nothing where it is reproduced."""
    return f"{row.reason}, docs/{row.page}" if row.reason and row.state is not State.REPRODUCED else ""


_COMPILED = "the loops are compiled here"
_PIPETTE = "reproduce pipette --time-limit 200"
_SEARCHES = "results/searches.md#pipette"
_LINKS = "the measured links are not published; --seed draws them"
_NOMINAL = (
    "at nominal rates AMP's model finds plans as fast here; shapes of the models, layer seconds and links of the paper "
    "are not published"
)
_SIMULATED = (
    "ours is against simulation, with the optimizer and every stage's gradients; the measured steps are not published"
)
_MEMORY = "by the analytic model; memory of the frameworks and libraries of the paper's runs is not published"
PIPETTE = PaperRows(
    (
        PaperRow(
            "algorithm 1", "configurator", "procedure", "plan --method pipette", "plan --method pipette", _SEARCHES
        ),
        PaperRow(
            "equation 1", "prior latency", "formula", "--latency-model amp", "plan --latency-model amp", _SEARCHES
        ),
        PaperRow(
            "equations 3-6", "latency", "formula", "--latency-model pipette", "plan --latency-model pipette", _SEARCHES
        ),
        PaperRow(
            "equation 7",
            "memory network",
            "5 x 200",
            "5 x 200",
            "fit memory --kind network",
            "results/memory.md#predicted-against-measured",
        ),
        PaperRow("table I", "clusters", "2", "2 in the catalog", "catalog clusters", _SEARCHES),
        PaperRow("figure 3", "links over 40 days", "curves", "", _PIPETTE, _SEARCHES, _LINKS),
        PaperRow("figure 5 a", "error of AMP's model", "23.18 %", "18.77 %", _PIPETTE, _SEARCHES, _SIMULATED),
        PaperRow("figure 5 a", "error of Pipette's model", "5.87 %", "13.99 %", _PIPETTE, _SEARCHES, _SIMULATED),
        PaperRow("figure 5 b", "of AMP's ten best, out of memory", "8", "0", _PIPETTE, _SEARCHES, _MEMORY),
        PaperRow("figure 6", "over Megatron-LM, mid-range", "1.07x", "1.02x", _PIPETTE, _SEARCHES, _LINKS),
        PaperRow("figure 6", "over Megatron-LM, high-end", "1.26x", "1.29x", _PIPETTE, _SEARCHES, _LINKS),
        PaperRow("figure 6", "over AMP, mid-range", "1.12x", "1.01x", _PIPETTE, _SEARCHES, _NOMINAL),
        PaperRow("figure 6", "over AMP, high-end", "1.46x", "0.99x", _PIPETTE, _SEARCHES, _NOMINAL),
        PaperRow("figure 6", "PPT-L over Varuna, mid-range", "1.36x", "1.33x", _PIPETTE, _SEARCHES),
        PaperRow("figure 6", "PPT-L over Varuna, high-end", "1.56x", "1.28x", _PIPETTE, _SEARCHES, _LINKS),
        PaperRow("figure 6", "PPT-L over AMP, mid-range", "1.06x", "1.00x", _PIPETTE, _SEARCHES, _NOMINAL),
        PaperRow("figure 6", "PPT-L over AMP, high-end", "1.35x", "0.98x", _PIPETTE, _SEARCHES, _NOMINAL),
        PaperRow(
            "figure 7",
            "error of the memory network",
            "7.39 %",
            "",
            "fit memory --kind network",
            "results/memory.md#predicted-against-measured",
            "its 215 runs are not published",
        ),
        PaperRow("table II", "over AMP, 8 nodes of mid-range", "1.03x", "1.01x", _PIPETTE, _SEARCHES, _NOMINAL),
        PaperRow("table II", "over AMP, 8 nodes of high-end", "1.17x", "0.98x", _PIPETTE, _SEARCHES, _NOMINAL),
        PaperRow(
            "table II",
            "days saved of 300,000 steps, high-end",
            "10.97 days",
            "-0.10 days",
            _PIPETTE,
            _SEARCHES,
            _NOMINAL,
        ),
        PaperRow("table II", "annealing, 16 nodes of high-end", "769.91 s", "11.15 s", _PIPETTE, _SEARCHES, _COMPILED),
        PaperRow("figure 8", "32 GPUs", "1.02x", "", _PIPETTE, _SEARCHES, "the model on 32 GPUs is not published"),
        PaperRow(
            "figure 9",
            "micro-batch 1 to 8, mini-batch 64 to 1024",
            "1.14x",
            "",
            _PIPETTE,
            _SEARCHES,
            "model and cluster of the sweep are not published",
        ),
    )
)

_AMP = "reproduce amp"
_AMP_PAGE = "results/searches.md#amp"
_TRIALS = "reproduce amp --profile F --trials F"
_PREDICTED = "the paper's seconds are measured, ours are predicted"
_TRIALS_PAGE, _COMPILED = "results/accuracy.md#amps-trials", "compiled here"
_FILES = "the trials of this setting are not in the project"
_CURVE = "the curve is a picture without figures"
AMP = PaperRows(
    (
        PaperRow(
            "equations 3-5", "cost model", "formula", "--latency-model amp", "plan --latency-model amp", _AMP_PAGE
        ),
        PaperRow("section 3.5", "layers by dynamic program", "procedure", "exact", "plan --method amp", _AMP_PAGE),
        PaperRow("algorithm 1", "strategies, homogeneous", "53", "53", _AMP, _AMP_PAGE),
        PaperRow("algorithm 1", "strategies, mixed cluster", "53", "53", _AMP, _AMP_PAGE),
        PaperRow("algorithm 1", "strategies, mixed model", "65", "65", _AMP, _AMP_PAGE),
        PaperRow("table 2", "search on 2 x 2 GPUs", "58.0 s", "2.52 s", _AMP, _AMP_PAGE, _COMPILED),
        PaperRow("table 2", "search on 4 x 4 GPUs", "325.6 s", "3.21 s", _AMP, _AMP_PAGE, _COMPILED),
        PaperRow("table 2", "search on 8 x 8 GPUs", "890.3 s", "2.69 s", _AMP, _AMP_PAGE, _COMPILED),
        PaperRow("table 2", "search on 16 x 16 GPUs", "1627.4 s", "4.05 s", _AMP, _AMP_PAGE, _COMPILED),
        PaperRow("table 3", "AMP over Megatron-LM, homogeneous", "1.10x", "1.00x", _AMP, _AMP_PAGE, _PREDICTED),
        PaperRow("table 4", "AMP over Megatron-LM, mixed cluster", "1.54x", "5.35x", _AMP, _AMP_PAGE, _PREDICTED),
        PaperRow("table 5", "AMP over Megatron-LM, mixed model", "1.77x", "1.37x", _AMP, _AMP_PAGE, _PREDICTED),
        PaperRow("table 3", "annealing over AMP", "1.31x", "1.00x", _AMP, _AMP_PAGE, _PREDICTED),
        PaperRow("table 4", "annealing over AMP", "1.14x", "1.00x", _AMP, _AMP_PAGE, _PREDICTED),
        PaperRow("table 4", "random over AMP", "1.34x", "1.40x", _AMP, _AMP_PAGE, _PREDICTED),
        PaperRow("table 5", "uniform layers over AMP", "1.17x", "1.50x", _AMP, _AMP_PAGE, _PREDICTED),
        PaperRow("table 5", "balanced parameters over AMP", "2.05x", "5.15x", _AMP, _AMP_PAGE, _PREDICTED),
        PaperRow("tables 6-7", "five best in common, homogeneous", "5", "1", _AMP, _AMP_PAGE, _PREDICTED),
        PaperRow("tables 8-9", "five best in common, mixed cluster", "5", "3", _AMP, _AMP_PAGE, _PREDICTED),
        PaperRow("tables 10-11", "five best in common, mixed model", "5", "3", _AMP, _AMP_PAGE, _PREDICTED),
        PaperRow("figure 2 a", "rank correlation, homogeneous", "0.967", "0.971", _TRIALS, _TRIALS_PAGE),
        PaperRow("figure 2 b", "rank correlation, mixed cluster", "plot", "", _TRIALS, _TRIALS_PAGE, _FILES),
        PaperRow("figure 2 c", "rank correlation, mixed model", "plot", "", _TRIALS, _TRIALS_PAGE, _FILES),
        PaperRow("figure 3", "gain over uniform layers", "curve", "1.00x to 1.40x", _AMP, _AMP_PAGE, _CURVE),
    )
)

_HETHUB = "reproduce hethub"
_HETHUB_PAGE = "results/searches.md#hethub"
_SHAPES = "links and layer times of the types are not published"
_SMALL = "speed of the types with 7 billion parameters is not published; ours is with 70 billion"
HETHUB = PaperRows(
    (
        PaperRow(
            "section 3.3", "three-level tree", "procedure", "plan --method hethub", "plan --method hethub", _HETHUB_PAGE
        ),
        PaperRow("table 1", "models and clusters", "5 x 4", "5 x 4", "reproduce hethub --table", _HETHUB_PAGE),
        PaperRow("figure 6", "of the theory, 96 devices", "91.75%", "99.49%", _HETHUB, _HETHUB_PAGE, _SHAPES),
        PaperRow("figure 6", "of the theory, 768 devices", "91.75%", "99.43%", _HETHUB, _HETHUB_PAGE, _SHAPES),
        PaperRow("figure 6", "of AMD alone, 768 devices", "54.71%", "59.04%", _HETHUB, _HETHUB_PAGE, _SHAPES),
        PaperRow("figure 6", "of A alone, 768 devices", "100.96%", "115.20%", _HETHUB, _HETHUB_PAGE, _SHAPES),
        PaperRow("figure 6 a", "over A alone with 6 stages", "1.025x", "0.990x", _HETHUB, _HETHUB_PAGE),
        PaperRow(
            "figure 6 a", "tokens a second of a device, 7 billion", "920.84", "1197.76", _HETHUB, _HETHUB_PAGE, _SMALL
        ),
        PaperRow("figure 7 a", "HETHUB, Nvidia and A", "97.54%", "96.87%", _HETHUB, _HETHUB_PAGE),
        PaperRow("figure 7 a", "uniform, Nvidia and A", "89.16%", "93.26%", _HETHUB, _HETHUB_PAGE),
        PaperRow("figure 7 b", "HETHUB, AMD and B", "93.05%", "100.26%", _HETHUB, _HETHUB_PAGE, _SHAPES),
        PaperRow("figure 7 b", "uniform, AMD and B", "84.36%", "89.15%", _HETHUB, _HETHUB_PAGE, _SHAPES),
        PaperRow("figure 7 c", "HETHUB, AMD and C", "97.49%", "97.10%", _HETHUB, _HETHUB_PAGE),
        PaperRow("figure 7 c", "layers of the largest stage", "7", "7", _HETHUB, _HETHUB_PAGE),
        PaperRow(
            "figure 7 c",
            "uniform, AMD and C",
            "88.79%",
            "97.09%",
            _HETHUB,
            _HETHUB_PAGE,
            "stages of C have 7 of the 80 layers under both rules: a tenth more speed moves no whole layer",
        ),
        PaperRow(
            "figure 8",
            "seconds of a step",
            "0.41249",
            "",
            _HETHUB,
            _HETHUB_PAGE,
            "a thousandth of what the published throughput implies",
        ),
        PaperRow("section 3.2", "communicator ICCL", "library", "", _HETHUB, _HETHUB_PAGE, "a library, not a plan"),
    )
)

_VTRAIN, _VTRAIN_PAGE = "reproduce vtrain --only table-1", "results/vtrain.md"
_ONE_PAGE = f"{_VTRAIN_PAGE}#table-i-plans-of-mt-nlg"
_THREE_PAGE = f"{_VTRAIN_PAGE}#table-iii-the-compute-optimal-model"
_TEN_PAGE = f"{_VTRAIN_PAGE}#figure-10-the-design-space"
_THREE, _TEN = "reproduce vtrain --only table-3", "reproduce vtrain --only figure-10"
_NINE, _NINE_PAGE = "reproduce vtrain --only figure-9 --data DIR", f"{_VTRAIN_PAGE}#figure-9-measured-runs"
_TRACES = "vTrain's kernel traces are not published; taut's operators lose nothing between small kernels"
_FLAT = "from 0.5 to 1.0 the error changes by half a point, with 55 of the 116 runs and without vTrain's kernel traces"
_JOBS, _JOBS_PAGE = "reproduce vtrain-jobs", "results/jobs.md#vtrains-second-case-study"
_LOAD = "the load of the paper's traces is not published"
_GRADIENTS = "measured runs reduce gradients slower than the full bandwidth of the paper"
VTRAIN = PaperRows(
    (
        PaperRow(
            "algorithm 1",
            "replay of the task graph",
            "procedure",
            "simulate --trace",
            "simulate",
            "guide/simulate.md#simulation",
        ),
        PaperRow(
            "figure 1",
            "days of GPT-3 at 30 to 60 %",
            "curve",
            "39.0 to 19.5 days",
            _VTRAIN,
            f"{_VTRAIN_PAGE}#vtrains-studies",
            _CURVE,
        ),
        PaperRow("equation 1", "best alpha of the bandwidth", "1.0", "0.7", _NINE, _NINE_PAGE, _FLAT),
        PaperRow("figure 9 a", "error on one node, vTrain's kernels", "19.66 %", "43.41 %", _NINE, _NINE_PAGE, _TRACES),
        PaperRow("figure 9 b", "error on many nodes, vTrain's kernels", "14.88 %", "15.24 %", _NINE, _NINE_PAGE),
        PaperRow("table I", "MT-NLG (8, 8, 35)", "45.40 s", "45.40 s", _VTRAIN, _ONE_PAGE),
        PaperRow("table I", "MT-NLG (8, 10, 35)", "37.23 s", "37.23 s", _VTRAIN, _ONE_PAGE),
        PaperRow("table I", "MT-NLG (8, 12, 35)", "31.78 s", "31.78 s", _VTRAIN, _ONE_PAGE),
        PaperRow("table I", "vTrain (8, 12, 21)", "48.37 s", "48.37 s", _VTRAIN, _ONE_PAGE),
        PaperRow("table I", "vTrain (8, 15, 21)", "39.55 s", "39.56 s", _VTRAIN, _ONE_PAGE),
        PaperRow("table I", "vTrain (8, 24, 15)", "34.61 s", "34.61 s", _VTRAIN, _ONE_PAGE),
        PaperRow("table II", "models of the jobs", "3", "3 in the catalog", "catalog models", _JOBS_PAGE),
        PaperRow("figures 10-11", "plans of the design space", "294", "294 plans", _TEN, _TEN_PAGE),
        PaperRow("figure 12 a", "deadlines met, 64 jobs", "1.17", "1.028", _JOBS, _JOBS_PAGE, _LOAD),
        PaperRow("figure 12 b", "deadlines met, 128 jobs", "1.30", "1.13", _JOBS, _JOBS_PAGE, _LOAD),
        PaperRow("figure 13", "completion shorter by", "52.59 %", "23.99 %", _JOBS, _JOBS_PAGE, _LOAD),
        PaperRow("figure 14", "makespan shorter by", "26.43 %", "15.86 %", _JOBS, _JOBS_PAGE, _LOAD),
        PaperRow("table III", "by its rules, 145.61 billion", "95 days", "95.5", _THREE, _THREE_PAGE),
        PaperRow(
            "table III", "largest model in 30 days", "76.04 billion", "61.64 billion", _THREE, _THREE_PAGE, _GRADIENTS
        ),
        PaperRow("section V-C", "naive N of Chinchilla", "145.61", "146.7", _THREE, _THREE_PAGE),
    )
)

_GRID, _GRID_PAGE = "reproduce vschedules", "results/schedules.md#a-published-grid-search"
_BLOCKS, _BLOCKS_PAGE = "schedule --stages 8 --micro-batches 64", "guide/schedules.md#pipeline-schedules"
_FRONTIER_PAGE = "results/schedules.md#memory-against-bubble"
_APPENDIX = "the appendix with these figures is not in the source"
_KERNELS = "analytic costs lose nothing between kernels"
VSCHEDULES = PaperRows(
    (
        PaperRow(
            "section 3", "blocks V-Min, V-Half, V-ZB", "procedure", "3 kinds", f"{_BLOCKS} --kind v-half", _BLOCKS_PAGE
        ),
        PaperRow(
            "section 3.1",
            "search within a memory limit",
            "procedure",
            "--memory-limit",
            f"{_BLOCKS} --memory-limit 0.667",
            _BLOCKS_PAGE,
        ),
        PaperRow("grid search", "1F1B-R", "42.05%", "53.90%", _GRID, _GRID_PAGE, _KERNELS),
        PaperRow("grid search", "V-Half", "57.85%", "68.26%", _GRID, _GRID_PAGE, _KERNELS),
        PaperRow("grid search", "V-Min", "48.58%", "52.90%", _GRID, _GRID_PAGE, _KERNELS),
        PaperRow("grid search", "out of memory", "1F1B, ZB-1P, V-ZB", "1F1B, ZB-1P, V-ZB", _GRID, _GRID_PAGE),
        PaperRow("rebuttal", "bubble at 2/3 of the memory, of 1F1B's", "0.3333", "0.3495", _GRID, _FRONTIER_PAGE),
        PaperRow(
            "figures 9-10", "memory against bubble", "curves", "0.6613 to 0.1667", _GRID, _FRONTIER_PAGE, _APPENDIX
        ),
        PaperRow(
            "abstract",
            "throughput over 1F1B",
            "7 to 55 %",
            "",
            _GRID,
            _GRID_PAGE,
            "models and clusters are not in the source",
        ),
    )
)
PAPERS = {"pipette": PIPETTE, "amp": AMP, "hethub": HETHUB, "vtrain": VTRAIN, "vschedules": VSCHEDULES}
