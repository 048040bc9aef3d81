"""
Certified placement beside its peers: gaps, and how much slower a step is as others place it.

Run ``python -m benchmarks.placement [--nodes 32,64] [--kinds racks] [--models pipette] [--stages 8] [--tp 8]
[--seeds 5] [--mpigraph MATRIX.csv] [--out rows.csv] [--plot gap.png]``. The table goes to standard output; ``--out``
keeps a row for every seed as soon as it is known, and a run whose rows are there already resumes. Ctrl-C ends a run
with the table so far; half a row is never kept.

Workload and kinds of cluster are those of ``benchmarks.placement_clusters``, under three latency models; stages,
recompute and tensor degree are the same for all. The plan is the search's after its time limit, or when proven, and its
certificate must hold. Its peers, all priced by the one evaluator:

``identity``   devices in their order, pipeline by pipeline or stage by stage, whichever is faster;
``scipy``      FAQ, and 2-opt from there and from identity order (``benchmarks.quadratic_surrogate``);
``Pipette``    its annealing for ``--pipette-seconds``, and ``long`` for ``--times-own`` times the wall time of our
               search: the better of the paper's run and one with restarts (``benchmarks.pipette_annealing``).

Columns: wall seconds of the search, total gap and gap of the communication in per cent (median, worst seed), how much
slower a step is with each peer in per cent (median; for ``Pipette long`` also the least), scipy's seconds, and
milliseconds to verify the certificate. A dash was not run: scipy's FAQ beyond 512 groups, 0 for a peer's seconds.
"""

import argparse
import sys
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np

from benchmarks.pipette_annealing import identity, pipette_annealing
from benchmarks.placement_clusters import KINDS, problem
from benchmarks.placement_figure import plot_rows
from benchmarks.placement_rows import Row, Setting, append_row, markdown, read_rows, verdict
from benchmarks.quadratic_surrogate import scipy_placement
from taut.data.arrays import Floats
from taut.data.readers.mpigraph import read_mpigraph
from taut.errors import CertificateError, DataError, NothingFoundError, TautError
from taut.formulations.placement import PlacementProblem, placement_problem
from taut.formulations.problem import PlanningProblem
from taut.solver.certificate.verify import verify_document
from taut.solver.certificate.write import plan_document
from taut.solver.result import Limits
from taut.solver.search.search import search

STAGES = {8: (2, 4, 8), 16: (2, 4, 8, 16), 32: (4, 8, 16), 64: (8, 16), 128: (8, 16)}
SECONDS = {8: 5.0, 16: 5.0, 32: 5.0, 64: 10.0, 128: 30.0}
SECONDS_OF_SMALL_GROUPS = 30.0
"""Limit at tensor degrees below 8, where several groups share a node."""
MODELS = ("step", "pipette", "pipette-printed")
MEGABYTES_PER_GIGABYTE = 1e3


def settings(options: argparse.Namespace, measured: Floats | None) -> Iterator[Setting]:
    """Everything that was asked for, without sizes that the measured matrix does not have."""
    largest = 0 if measured is None else len(measured)
    for tp, nodes in ((tp, nodes) for tp in options.tp for nodes in options.nodes):
        usual = SECONDS[nodes] if tp == 8 else SECONDS_OF_SMALL_GROUPS
        for stages in options.stages or STAGES[nodes]:
            for kind in options.kinds:
                for model in options.models if kind != "mpigraph" or nodes <= largest else ():
                    yield Setting(
                        nodes=nodes,
                        stages=stages,
                        tp=tp,
                        kind=kind,
                        model=model,
                        time_limit_s=options.seconds or usual,
                        pipette_limit_s=options.pipette_seconds,
                        times_own=options.times_own,
                    )


def measure(setting: Setting, seed: int, measured: Floats | None) -> Row:
    """
    Plan, verify, and let the peers place the same strategy.

    Raises
    ------
    NothingFoundError, CertificateError
        If there is no plan, or its certificate does not hold.
    """
    s = setting
    given = problem(s.nodes, s.stages, s.tp, s.kind, seed, s.model, measured)
    limits = Limits(time_limit=s.time_limit_s, seed=seed)
    result = search(given, limits)
    if result.stopped_by == "interrupt":
        raise KeyboardInterrupt
    if result.incumbent is None:
        raise NothingFoundError(f"{_name(setting)}: no plan within {s.time_limit_s:g} s")
    document = plan_document(given, result, limits)
    verify_s = _verify_seconds(given, document)
    placement = placement_problem(given, result.incumbent.strategy)
    annealed = _annealed(placement, (s.pipette_limit_s, s.times_own * result.wall_s), seed)
    scipy_s, scipy_wall_s = scipy_placement(placement)
    certificate = document["certificate"]
    return Row(
        **asdict(setting),
        seed=seed,
        wall_s=result.wall_s,
        step_s=result.incumbent.seconds,
        bound_s=result.lower_bound,
        gap=certificate["gap"],
        communication_gap=certificate["communication_gap"],
        verify_s=verify_s,
        identity_s=placement.cost(identity(placement)),
        scipy_s=scipy_s,
        scipy_wall_s=scipy_wall_s,
        **annealed,
    )


def _verify_seconds(given: PlanningProblem, document: dict[str, object]) -> float:
    """Seconds to check a certificate, which must hold."""
    started = time.perf_counter()
    if not verify_document(document).holds:
        raise CertificateError(f"{given.cluster.name}: the certificate does not hold")
    return time.perf_counter() - started


def _annealed(placement: PlacementProblem, seconds: tuple[float, float], seed: int) -> dict[str, Any]:
    """Step seconds by Pipette's annealing and with restarts, one thread each, after the two wall times."""
    stop, asked = Event(), [limit for limit in seconds if limit > 0]

    def run(restarting: bool) -> list[float]:
        found = pipette_annealing(placement, asked, seed, restarting=restarting, stop=stop)
        steps = dict(zip(asked, found, strict=True))
        return [steps.get(limit, np.nan) for limit in seconds]

    with ThreadPoolExecutor(max_workers=2) as pool:
        try:
            paper, restarted = pool.map(run, (False, True))
        finally:
            stop.set()
    names = ("annealing_s", "long_annealing_s", "restarted_s", "long_restarted_s")
    return dict(zip(names, [*paper, *restarted], strict=True))


def run(cases: list[tuple[Setting, int]], measured: Floats | None, out: Path | None) -> list[Row]:
    """Rows of all cases, those kept in ``out`` first; fewer after Ctrl-C."""
    known = {(row.setting, row.seed): row for row in (read_rows(out) if out else [])}
    missing = [case for case in cases if case not in known]
    _say(f"{len(cases) - len(missing)} rows are there, {len(missing)} to run, {_hours(missing):.2f} hours at most")
    try:
        _warm_up({setting.tp for setting, _ in missing})
        for number, (setting, seed) in enumerate(missing, start=1):
            _say(f"{number}/{len(missing)}: {_name(setting)}, seed {seed}")
            known[setting, seed] = row = measure(setting, seed, measured)
            if out:
                append_row(out, row)
    except KeyboardInterrupt:
        _say("stopped")
    return [known[case] for case in cases if case in known]


def _warm_up(degrees: set[int]) -> None:
    """Load the compiled loops, exact and bounded, so that no row's time has them in it."""
    for tp, nodes in ((tp, nodes) for tp in degrees for nodes in (8, 32)):
        search(problem(nodes, 4, tp, "racks", 0, "pipette"), Limits(time_limit=5.0))


def _check(setting: Setting, measured: Floats | None) -> None:
    """Refuse degrees that the workload cannot be divided by, before anything is run."""
    s = setting
    if not problem(s.nodes, s.stages, s.tp, s.kind, 0, s.model, measured).candidates:
        raise DataError(f"{_name(s)}: nothing to plan, expected stages that divide {8 * s.nodes // s.tp} groups")


def _hours(cases: list[tuple[Setting, int]]) -> float:
    """Hours if every search takes its time limit, without scipy."""
    limits = [(s.time_limit_s, max(s.pipette_limit_s, s.times_own * s.time_limit_s)) for s, _ in cases]
    return sum(map(sum, limits)) / 3600


def _name(setting: Setting) -> str:
    s = setting
    return f"{s.nodes} nodes, {s.stages} stages, tp {s.tp}, {s.kind}, {s.model}"


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _listed(kind: Callable[[str], Any], allowed: Collection[Any] | None = None) -> Callable[[str], list[Any]]:
    """Reader of values between commas."""

    def read(text: str) -> list[Any]:
        values = [kind(word) for word in text.split(",") if word]
        for value in values:
            if allowed is not None and value not in allowed:
                raise argparse.ArgumentTypeError(f"{value} is none of {', '.join(map(str, allowed))}")
        return values

    return read


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=_listed(int, tuple(SECONDS)), default=list(SECONDS))
    parser.add_argument("--stages", type=_listed(int), default=[], help="pipeline degrees (default: by nodes)")
    parser.add_argument("--tp", type=_listed(int, (1, 2, 4, 8)), default=[8], help="tensor degrees")
    parser.add_argument("--kinds", type=_listed(str, KINDS), default=list(KINDS))
    parser.add_argument("--models", type=_listed(str, MODELS), default=list(MODELS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--seconds", type=float, help="time limit of the search (default: by nodes)")
    parser.add_argument("--pipette-seconds", type=float, default=10.0)
    parser.add_argument("--times-own", type=float, default=10.0)
    parser.add_argument("--mpigraph", type=Path, help="measured matrix; its kind is skipped without")
    parser.add_argument("--out", type=Path, help="CSV of all rows, continued if it is there")
    parser.add_argument("--plot", type=Path, help="figure of the table")
    return parser


def report(options: argparse.Namespace) -> None:
    """
    Run what is missing, print the table, and draw it where asked.

    Raises
    ------
    TautError
        If an input is wrong, or a plan or its certificate fails.
    """
    measured = None
    if options.mpigraph:
        measured = np.array(read_mpigraph(options.mpigraph).rows) / MEGABYTES_PER_GIGABYTE
    elif "mpigraph" in options.kinds:
        _say("no measured matrix: its kind of cluster is left out")
    asked = list(settings(options, measured))
    for setting in asked:
        _check(setting, measured)
    cases = [(setting, seed) for seed in range(1, options.seeds + 1) for setting in asked]
    rows = run(cases, measured, options.out)
    print("\n".join(markdown(rows)))
    print("\n" + "\n".join(verdict(rows)))
    if options.plot and rows:
        plot_rows(rows, options.plot)


def main() -> None:
    """Read the options; a wrong input is one line."""
    parser = _parser()
    try:
        report(parser.parse_args())
    except TautError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
