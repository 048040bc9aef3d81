"""The page's table of runs that nothing had seen is what the code prints today."""

from pathlib import Path

import pytest

from benchmarks.accuracy import as_table
from benchmarks.unseen import lines, runs
from taut.prediction.rows import predict_rows

TABLE = Path(__file__).parents[2] / "docs" / "results" / "data" / "accuracy" / "unseen.md"


@pytest.mark.proof
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_table_is_that_of_today() -> None:
    """Every run is priced, and its line stands on the page."""
    every = list(runs())
    found = predict_rows([run.row for run in every])
    assert not [one.error for one in found if one.error] and len(found) == 86
    assert as_table(lines(every, found)) in TABLE.read_text(encoding="utf-8")
