"""
Many jobs on 1,024 GPUs: a schedule and its bound by number of jobs, with the seconds that they took.

    python -m benchmarks.jobs [--jobs 128] [--objective deadlines] [--policy annealing] [--time-limit 60] [--plot PNG]

Jobs are those of vTrain's case study (``taut.papers.vtrain.jobs``) at the load of 128 jobs there, with Poisson
arrivals. Plans come from the user's cache; their time is not counted.
"""

import argparse
import time
from pathlib import Path

from taut.data.load import load_cluster
from taut.files import write_atomically
from taut.papers.vtrain.jobs import CLUSTER, PERIOD_H, Study, data_parallel_rates, trace
from taut.sharing.instance import instance
from taut.sharing.jobs import jobs

AT_LOAD = 128
"""Jobs that ask for twice the GPU hours of the period; of more the period is longer in proportion."""


def main() -> None:
    """Run one size and print the report."""
    given = _arguments()
    hours = PERIOD_H * max(given.jobs / AT_LOAD, 1.0)
    study = Study("benchmark", given.objective, (given.jobs,), "")
    made = trace(study, 0, data_parallel_rates(), period_h=hours)
    instance(made, load_cluster(CLUSTER))
    began = time.perf_counter()
    found = jobs(made, CLUSTER, policy=given.policy, objective=given.objective, time_limit=given.time_limit)
    seconds = time.perf_counter() - began
    print(found)
    print(f"\n{seconds:.1f} s in all; bound from {found.bound.source}; faults {found.check()}")
    if given.plot is not None:
        from io import BytesIO

        from taut.plots.jobs import plot_jobs

        file = BytesIO()
        plot_jobs(found).savefig(file, format="png", dpi=130)
        write_atomically(given.plot, file.getvalue())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=AT_LOAD)
    parser.add_argument("--objective", default="deadlines")
    parser.add_argument("--policy", default="annealing")
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--plot", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
