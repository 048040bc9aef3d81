"""
AMP's three experiments (MccRee177/AMP, revision 72eeea4) at its own layer seconds.

Its scripts print one plan for each of 53 or 65 strategies with seconds by its code's cost model. The search here has
the same strategies and layer seconds, and the latency model that its paper states. The two models differ in how
transfers are counted, so AMP's first strategy is priced here, with its degrees, under the best division and placement.
"""

import re
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.peers.frame import Checkout, PeerRow, run_script, timed
from taut.errors import DataError
from taut.papers.amp import SETTINGS, AmpExperiment
from taut.solver.result import Incumbent, Limits
from taut.solver.search.search import search

FIRST = re.compile(
    r"^rank 0: \(\((\d+), \{'mp_deg': tensor\(\[(\d+)\.\]\), 'dp_deg': tensor\(\[(\d+)\.\]\), "
    r"'pp_deg': tensor\(\[(\d+)\.\]\)\}.*?, \[[\d, ]+\]\), tensor\(\[([\d.]+)\]\)\)",
    re.MULTILINE,
)


def rows(given: Checkout) -> list[PeerRow]:
    """A row for each experiment."""
    return [_row(given, name) for name in SETTINGS if given.case in name]


def _row(given: Checkout, name: str) -> PeerRow:
    with tempfile.TemporaryDirectory() as home:
        _, theirs = run_script(given, given.under("src", f"{name}.py"), environment={"HOME": home})
        (log,) = (Path(home) / "amp_main_logs").iterdir()
        first = FIRST.search(log.read_text(encoding="utf-8"))
        if first is None:
            raise DataError(f"{log}: no line of rank 0, expected AMP's log")
        profile = Path(home) / "known_cost.csv"
        profile.write_text(_profile(given.under("src", "known_cost")), encoding="utf-8")
        problem = AmpExperiment.of(name, profile).problem()
    micro_batch, tp, dp, pp = map(int, first.groups()[:4])
    fixed = {"micro_batch": micro_batch, "tp": tp, "dp": dp, "pp": pp}
    alone = replace(problem, space=problem.space.model_copy(update={"fixed": fixed}))
    limits = Limits(time_limit=given.seconds)
    priced = search(alone, limits).incumbent
    best, ours = timed(lambda: search(problem, limits))
    return PeerRow(
        case=f"{name}: {len(problem.candidates)} strategies",
        theirs=f"pp {pp} tp {tp} dp {dp} mb {micro_batch}",
        predicted_s=float(first[5]),
        their_cpu_s=theirs,
        priced_s=None if priced is None else priced.seconds,
        ours=_words(best.incumbent),
        best_s=None if best.incumbent is None else best.incumbent.seconds,
        bound_s=best.lower_bound,
        our_cpu_s=ours,
    )


def _profile(folder: Path) -> str:
    """AMP's arrays as the table that ``--profile`` of ``taut reproduce amp`` reads."""
    lines = ["file,layer,seconds"]
    for path in sorted(folder.glob("*.npy")):
        lines += [f"{path.stem},{layer},{value!r}" for layer, value in enumerate(np.load(path).tolist())]
    return "\n".join(lines) + "\n"


def _words(plan: Incumbent | None) -> str:
    if plan is None:
        return "nothing"
    candidate = plan.strategy.candidate
    return f"pp {candidate.pp} tp {candidate.tp} dp {candidate.dp} mb {candidate.micro_batch}"
