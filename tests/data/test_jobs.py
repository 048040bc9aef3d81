"""Jobs from YAML, CSV and plain values, and what is refused."""

from pathlib import Path
from typing import Any

import pytest

from taut.data.jobs import JobSpec, load_jobs
from taut.errors import DataError

JOB: dict[str, Any] = {"name": "a", "model": "gpt2-345m", "global_batch": 32, "steps": 100}


def test_yaml_and_csv_say_the_same(tmp_path: Path) -> None:
    """A file of either form gives the same jobs, rates and lists included."""
    (tmp_path / "t.yaml").write_text(
        "restart_s: 5\njobs:\n"
        "- {name: a, model: m, global_batch: 8, tokens: 1000000, deadline_s: 50, gpu_counts: [8, 16]}\n"
        "- {name: b, steps: 10, arrival_s: 3, rates: {1: 0.5, 2: 0.9}}\n"
    )
    (tmp_path / "t.csv").write_text(
        "name,model,global_batch,tokens,deadline_s,gpu_counts,steps,arrival_s,rates\n"
        "a,m,8,1000000,50,8|16,,,\nb,,,,,,10,3,1:0.5|2:0.9\n"
    )
    from_yaml, from_csv = load_jobs(tmp_path / "t.yaml"), load_jobs(tmp_path / "t.csv")
    assert from_yaml.jobs == from_csv.jobs
    assert from_yaml.restart_s == 5
    assert from_csv.jobs[1].rates == {1: 0.5, 2: 0.9}


def test_tokens_become_whole_steps() -> None:
    """1,000,000 tokens at 8 sequences of 1,000 are 125 steps, one token more 126."""
    job = JobSpec.parse({"name": "a", "model": "m", "global_batch": 8, "tokens": 1_000_000}, "job")
    assert job.work(1000) == 125
    assert job.model_copy(update={"tokens": 1_000_001}).work(1000) == 126


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"steps": None}, "steps: expected steps or tokens, one of them"),
        ({"model": None}, "model: missing, expected model and global_batch, or rates"),
        ({"deadline_s": 5.0, "arrival_s": 9.0}, "deadline_s: is 5, expected after the arrival at 9"),
        ({"rates": {"8": -1.0}}, "rates: holds 8: -1.0, expected a number of GPUs and steps per second above 0"),
        ({"prioritty": 1.0}, "prioritty: unknown field, did you mean priority?"),
        ({"steps": "x"}, "steps: is 'x'"),
    ],
)
def test_a_wrong_job_is_refused_in_one_line(change: dict[str, Any], words: str) -> None:
    """The message names the job, the field, the value and what was expected."""
    with pytest.raises(DataError) as refused:
        load_jobs({"jobs": [JOB, {**JOB, "name": "b", **change}]})
    assert str(refused.value).startswith("jobs jobs.1: ")
    assert words in str(refused.value)


def test_a_wrong_file_is_refused_in_one_line(tmp_path: Path) -> None:
    """Unknown columns, names that stand twice, no jobs, and other suffixes."""
    path = tmp_path / "t.csv"
    for text, words in [
        ("nam,steps\na,1\n", "unknown column 'nam', did you mean name?"),
        ("name,steps,rates\na,1,8:0.5\na,1,8:0.5\n", "name 'a' stands twice"),
        ("name,steps,rates\na,1,8=0.5\n", "row 1: rates: is '8=0.5', expected GPUS:RATE|GPUS:RATE"),
        ("name,steps\n", "expected a list of jobs with at least one"),
    ]:
        path.write_text(text)
        with pytest.raises(DataError, match=r"t\.csv") as refused:
            load_jobs(path)
        assert words in str(refused.value)
    with pytest.raises(DataError, match=r"expected a \.yaml or \.csv file"):
        load_jobs("jobs.txt")
