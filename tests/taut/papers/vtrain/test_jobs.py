"""vTrain's case study of many jobs: its traces, its figures and what they are compared with."""

from pathlib import Path

import numpy as np
import pytest

from taut.errors import DataError, FieldError
from taut.papers.vtrain import jobs
from taut.papers.vtrain.jobs import (
    FACTORS,
    HOUR,
    MODELS,
    PERIOD_H,
    STUDIES,
    Row,
    Study,
    Table,
    Told,
    arrival_points,
    reproduce_vtrain_jobs,
    trace,
)

RATES = {model: {8 << k: 0.01 * 2**k for k in range(8)} for model in MODELS}


def test_traces_are_those_of_the_paper() -> None:
    """34 traces; arrivals span the period; deadlines are 0.5 to 1.5 durations away; makespans begin together."""
    assert [len(study.jobs) for study in STUDIES] == [10, 10, 9, 5]
    first = trace(STUDIES[0], 3, RATES)
    assert first == trace(STUDIES[0], 3, RATES)
    assert first != trace(STUDIES[0], 4, RATES)
    arrivals = np.array([job.arrival_s for job in first.jobs])
    assert (len(arrivals), arrivals[0], arrivals[-1]) == (64, 0, pytest.approx(PERIOD_H * HOUR))
    for job in first.jobs:
        assert job.deadline_s is not None
        assert 10 * FACTORS[0] * HOUR <= job.deadline_s - job.arrival_s <= 60 * FACTORS[1] * HOUR
        assert job.global_batch == MODELS[str(job.model)]
    together = trace(STUDIES[3], 4, RATES)
    assert {job.arrival_s for job in together.jobs} == {0}
    assert {job.deadline_s for job in together.jobs} == {None}
    assert len(together.jobs) == 72


def test_arrivals_of_a_file_are_consecutive_and_stretched(tmp_path: Path) -> None:
    """Points at squares of whole numbers have gaps that grow evenly; a file without the column is refused."""
    path = tmp_path / "trace.csv"
    path.write_text("job_id,submit_time\n" + "".join(f"{k},{k * k}\n" for k in range(200)))
    found = np.array([job.arrival_s for job in trace(STUDIES[0], 0, RATES, arrival_points(path)).jobs])
    second = np.diff(found, 2)
    assert second == pytest.approx(np.full(62, second[0]))
    path.write_text("job_id\n1\n")
    with pytest.raises(DataError, match="expected a CSV file with a column submit_time in seconds"):
        arrival_points(path)


def test_ratios_and_shares_of_the_gain() -> None:
    """Of 40 and 60 of 100 possible deadlines the ratio is 1.5, and a third of the possible gain is had."""
    study = STUDIES[0]
    row = Row(study=study.name, number=0, jobs=64, baseline=0.4, elasticflow=0.6, ours=0.8, bound=1.0)
    assert row.ratio(row.elasticflow) == pytest.approx(1.5)
    assert row.share(row.elasticflow) == pytest.approx(1 / 3)
    figures = Table((row,)).as_dict()["studies"][0]
    assert (figures["ratio_ours"], figures["share_ours"]) == (pytest.approx(2.0), pytest.approx(2 / 3))
    assert "published: 1.17 times as many met; here: 1.50 times as many met" in str(Table((row,)))


def test_another_comparison_is_refused() -> None:
    """The message names the three."""
    with pytest.raises(FieldError, match="expected one of completion, deadlines, makespan"):
        reproduce_vtrain_jobs(only="cost")


def test_a_table_that_is_cut_off_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    With no time there is one trace, progress names it and its step, and the study says that nine are left.

    Of 80 deadlines met where 100 are possible the gap is 20 %, of a search that its limit ended.
    """
    study, said = STUDIES[0], list[str]()

    def one(study: Study, number: int, rates: object, points: object, limit: float, say: Told) -> Row:
        say("bound")
        return Row(study=study.name, number=number, jobs=64, baseline=0.4, elasticflow=0.6, ours=0.8, bound=1.0)

    monkeypatch.setattr(jobs, "_row", one)
    monkeypatch.setattr(jobs, "data_parallel_rates", lambda told: RATES)
    table = reproduce_vtrain_jobs(only="deadlines", within=0.0, told=said.append)
    assert said == [f"{study.name}, trace 0: 0 of 20 done in 0 s, bound"]
    assert table.cut_off(study) and table.as_dict()["studies"][0]["cut_off"]
    assert table.figures["figure 12 a: deadlines met, 64 jobs"] == "1.50x*" and "* a limit ended" in str(table)
    said_of_it = str(table).partition("\n\n* a limit ended this search")
    assert said_of_it[0].endswith("here: 1.50 times as many met; cut off after 1 of 10 traces") and said_of_it[1]
    assert "100.0 %  20.00 %*  1.500" in said_of_it[0]
    whole = reproduce_vtrain_jobs(only="deadlines")
    assert len(whole.rows) == 20 and not whole.cut_off(study) and "cut off" not in str(whole)


@pytest.mark.long
def test_our_plans_do_more_than_data_parallelism(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the first trace of makespans ElasticFlow gains by our plans, and the bound is below all."""
    monkeypatch.setenv("TAUT_CACHE", str(tmp_path))
    (row,) = reproduce_vtrain_jobs(only="makespan", traces=1, time_limit=5).rows
    assert row.bound <= row.ours <= row.elasticflow < 0.9 * row.baseline
