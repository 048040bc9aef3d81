"""
How many bounds of certificates hold in exact arithmetic, and how many are false.

``python -m benchmarks.exact_bounds --instances 2000`` searches small random problems and compares every bound with the
optimum of its candidate by enumeration, with no tolerance but the proven rounding of a price. ``--catalog`` plans and
verifies README's plan and the jobs of ``benchmarks.search_table``, ``--placement`` each kind of cluster of the
placement benchmark (16 nodes, 4 stages, tensor degree 8), and further arguments are plan files. Every row counts
candidates by how their bounds are shown (``taut.solver.certificate.exact``), and those of floats alone by source, with
the CPU seconds of ``verify``, or of everything for random problems. Run it from the top of the repository.
"""

import argparse
import json
import math
import sys
import time
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import taut
from benchmarks.placement_clusters import KINDS, problem
from benchmarks.search_table import CASES
from taut.data.read import read_json
from taut.solver.certificate.exact import Entry, Exactness, exactness, rounded
from taut.solver.certificate.verify import verify_plan
from taut.solver.certificate.write import plan_document
from taut.solver.ladder.ladder import Ladder
from taut.solver.result import Limits
from taut.solver.search.search import search
from tests.support.planted_bugs import Instance, instances, key_of

README = "llama3-70b", "dgx-h100:8", 128, "step"
COLUMNS = ("", "candidates", "by rounding", "whole bytes", "rationals", "floats alone", "false", "s")


def check(instance: Instance) -> tuple[Exactness, int] | None:
    """What is exact of a search's bounds, and how many exceed their candidate's optimum; None without a plan."""
    found = search(instance.fresh, Limits(work_limit=40, workers=1, gap=0.0))
    if found.incumbent is None:
        return None
    entries = [Entry(each.candidate, each.lower_bound, str(each.source), each.witness) for each in found.bounds]
    prices = 1 + rounded(1000)
    truth = {key: _rational(seconds) * prices for key, seconds in instance.truth.items()}
    false = sum(_rational(each.seconds) > truth.get(key_of(each.candidate.as_dict()), math.inf) for each in entries)
    false += _rational(found.lower_bound) > min(truth.values())
    return exactness(Ladder(instance.fresh), entries, found.lower_bound), false


def _rational(seconds: float) -> Fraction | float:
    return Fraction(seconds) if math.isfinite(seconds) else seconds


def cells(name: str, found: Exactness, false: int | None, seconds: float) -> str:
    """A row of the table."""
    alone = ", ".join(f"{number} {source}" for source, number in sorted(found.alone.items())) or "0"
    every = found.rounding + found.whole + found.rational + sum(found.alone.values())
    row = name, every, found.rounding, found.whole, found.rational, alone, "" if false is None else false
    return f"| {' | '.join(map(str, row))} | {seconds:.2f} |"


def rows(options: argparse.Namespace) -> Iterator[str]:
    """The rows that were asked for."""
    if options.instances:
        started, total, alone, false, number = time.process_time(), Counter[str](), Counter[str](), 0, 0
        for instance in instances(options.instances, first=options.seed):
            if (made := check(instance)) is not None:
                number, false = number + 1, false + made[1]
                total.update(rational=made[0].rational, whole=made[0].whole, rounding=made[0].rounding)
                alone.update(made[0].alone)
        found = Exactness(**total, alone=dict(alone))
        yield cells(f"{number} random problems", found, false, time.process_time() - started)
    for name, document in documents(options):
        started = time.process_time()
        checked = verify_plan(document, name)
        if not checked.holds or checked.exactness is None:
            sys.exit(f"{name}: does not hold, or is no plan")
        yield cells(name, checked.exactness, None, time.process_time() - started)


def documents(options: argparse.Namespace) -> Iterator[tuple[str, dict[str, Any]]]:
    """Names and documents of the plans that were asked for."""
    for path in options.plans:
        yield path.stem, read_json(path, "a plan")
    if options.catalog:
        for model, cluster, batch, latency_model in [README, *(case for case in CASES if isinstance(case[1], str))]:
            plan = taut.plan(model, cluster, global_batch=batch, latency_model=latency_model, time_limit=30.0)
            yield f"{model}, {cluster}, {batch}, {latency_model}", json.loads(json.dumps(plan.document))
    if options.placement:
        for kind in KINDS[:-1]:
            for latency_model in ("step", "pipette"):
                given, limits = problem(16, 4, 8, kind, 0, latency_model), Limits(time_limit=10.0)
                made = plan_document(given, search(given, limits), limits)
                yield f"placement, {kind}, {latency_model}", json.loads(json.dumps(made))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plans", nargs="*", type=Path, help="plan files")
    parser.add_argument("--instances", type=int, default=0, help="small random problems")
    parser.add_argument("--catalog", action="store_true", help="README's plan and jobs of the catalog")
    parser.add_argument("--placement", action="store_true", help="the placement benchmark")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first problem")
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    for row in rows(parser.parse_args()):
        print(row, flush=True)


if __name__ == "__main__":
    main()
