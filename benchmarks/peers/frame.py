"""A row of the tables, and how programs of peers are run."""

import os
import resource
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import taut
from taut.errors import DataError
from taut.words import percent, text_table

Made = TypeVar("Made")
STAND_IN = Path(__file__).with_name("stand_in.py")
DEGREES = ("pp", "tp", "cp", "dp", "ep", "vpp", "micro_batch")
"""Fields of a strategy that a row names."""


@dataclass(frozen=True, slots=True)
class Checkout:
    """Where a peer's code lies, the interpreter that has what the peer imports, and seconds of each search."""

    folder: Path
    python: str
    seconds: int
    case: str

    def under(self, *parts: str) -> Path:
        """A path of the checkout; ``DataError`` if there is none."""
        path = self.folder.joinpath(*parts)
        if not path.exists():
            raise DataError(f"{path}: no such file, expected a checkout of the peer")
        return path


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerRow:
    """
    One input: the peer's answer with its own figure and its price here, our answer with its price, and the bound.

    Prices are seconds of a step (or of an iteration); ``*_cpu_s`` are processor seconds of either search.
    """

    case: str
    theirs: str
    predicted_s: float | None
    their_cpu_s: float | None
    priced_s: float | None
    ours: str
    best_s: float | None
    bound_s: float | None
    our_cpu_s: float

    @property
    def cells(self) -> tuple[str, ...]:
        """The row in words."""
        above = None if self.priced_s is None or not self.bound_s else self.priced_s / self.bound_s - 1
        theirs = self.theirs, seconds(self.predicted_s), processor(self.their_cpu_s), seconds(self.priced_s)
        ours = self.ours, seconds(self.best_s), seconds(self.bound_s), processor(self.our_cpu_s)
        return self.case, *theirs, *ours, percent(above, places=2)


HEAD = (
    "input",
    "their answer",
    "their figure",
    "found in",
    "priced here",
    "ours",
    "priced",
    "bound",
    "found in",
    "above",
)


def seconds(value: float | None) -> str:
    """Seconds of a step."""
    return "-" if value is None else f"{value:.4g} s"


def processor(value: float | None) -> str:
    """Processor seconds of a search."""
    return "-" if value is None else f"{value:.1f} s"


def table(rows: Sequence[PeerRow]) -> str:
    """All rows; the last column is the distance of the peer's answer from the bound."""
    return text_table([HEAD, *(row.cells for row in rows)])


def timed(make: Callable[[], Made]) -> tuple[Made, float]:
    """What a function returns, and its processor seconds."""
    begun = time.process_time()
    made = make()
    return made, time.process_time() - begun


def run(
    command: Sequence[str | Path], *, within: Path, environment: Mapping[str, str] | None = None
) -> tuple[str, float]:
    """Standard output of a program on one thread, and its processor seconds; ``DataError`` if it fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", **(environment or {})}
    variables.pop("PYTHONHOME", None)
    done = subprocess.run([str(word) for word in command], cwd=within, env=variables, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise DataError(f"{command[-1]}: ended with {done.returncode}: {done.stderr.strip().splitlines()[-1:]}")
    return done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def run_script(
    given: Checkout, script: Path, *words: str, absent: str = "-", environment: Mapping[str, str] | None = None
) -> tuple[str, float]:
    """A script of a checkout in its own folder, where modules of the names ``absent`` (by commas) are empty."""
    command: list[str | Path] = [given.python, STAND_IN, absent, script.name, *words]
    return run(command, within=script.parent, environment={"PYTHONPATH": "", **(environment or {})})


def words_of(plan: taut.Plan) -> str:
    """Degrees of a plan that are not 1, and its recompute."""
    strategy = plan.strategy
    found = [f"{name.replace('micro_batch', 'mb')} {getattr(strategy, name, 1)}" for name in DEGREES]
    kinds = sorted(set(strategy.recompute) - {"none"})
    return " ".join([*(word for word in found if not word.endswith(" 1")), *kinds]) or "one device"


def plan_or_none(model: Any, cluster: Any, **options: Any) -> taut.Plan | None:
    """A plan, or None where nothing fits."""
    try:
        return taut.plan(model, cluster, **options)
    except (taut.InfeasibleError, taut.NothingFoundError):
        return None
