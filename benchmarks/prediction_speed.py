"""
How many configurations of one job are priced in a second, on one core.

Run ``python -m benchmarks.prediction_speed [CONFIGURATIONS]``. The job is GPT-3 175B on 512 A100: every (tp, pp, dp,
vpp, micro-batch, recompute, ZeRO stage) that divides it, repeated until there are as many as asked. Printed are the
closed form on columns (``taut.prediction.rows.price``) and ``taut.prediction.rows.predict_rows`` on rows, which also
checks and groups.
"""

import argparse
import time
from collections.abc import Callable, Iterator

from taut.data.load import load_calibration
from taut.data.samples import ConfigurationRow
from taut.errors import DataError
from taut.prediction.rows import columns_of, predict_rows, price
from taut.prediction.settings import Given, setting_of

REPEATS = 5


def configurations() -> Iterator[ConfigurationRow]:
    """Every even configuration of the job."""
    powers = [2**exponent for exponent in range(10)]
    shape = {"gpu": "a100", "n_gpus": 512, "hidden": 12288, "layers": 96, "heads": 96, "global_batch": 1536}
    for tp in powers[:4]:
        for pp in [1, 2, 4, 8, 16, 32]:
            for micro_batch in [1, 2, 3, 4, 6, 8]:
                for recompute in ("none", "selective", "full"):
                    for zero in (0, 1):
                        choice = {"tp": tp, "pp": pp, "dp": 512 // tp // pp, "micro_batch": micro_batch}
                        try:
                            yield ConfigurationRow.parse(
                                {**shape, **choice, "recompute": recompute, "zero": zero, "precision": "fp16"}, "row"
                            )
                        except DataError:
                            continue


def best_rate(work: Callable[[], object], count: int) -> float:
    """Configurations a second, the best of a few repeats."""
    least = float("inf")
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        least = min(least, time.perf_counter() - start)
    return count / least


def main() -> None:
    """Time both ways and print the rates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("configurations", nargs="?", type=int, default=100_000)
    asked = parser.parse_args().configurations
    job = list(configurations())
    rows = (job * (asked // len(job) + 1))[:asked]
    calibration = load_calibration("megatron-deepspeed-a100-many")
    given = Given(calibration=calibration)
    setting, columns = setting_of(rows[0], given), columns_of(rows)
    closed = best_rate(lambda: price(columns, setting), asked)
    checked = best_rate(lambda: predict_rows(rows, given), asked)
    print(f"{len(job)} configurations of one job, repeated to {asked}")
    print(f"closed form on columns   {closed:12,.0f} a second")
    print(f"predict_rows() on rows        {checked:12,.0f} a second")


if __name__ == "__main__":
    main()
