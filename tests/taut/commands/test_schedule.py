"""``taut schedule``: figures, files, pictures, exit codes, and one line for what is wrong."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from taut.solver.branch_and_bound.stop import Progress
from taut.solver.schedules.kinds import KINDS
from taut.solver.schedules.optimize import LargeNeighbourhood
from tests.support.pages import run_command
from tests.taut.conftest import Outcome, Run, refused

pytestmark = pytest.mark.proof

SMALL = ("schedule", "--stages", "4", "--micro-batches", "8", "--forward", "1", "--backward", "1", "--weight", "1")
QUICK = ("--time-limit", "5", "--quiet")


def document(outcome: Outcome) -> dict[str, Any]:
    assert outcome.code == 0, outcome.err
    read: dict[str, Any] = json.loads(outcome.out)
    return read


def test_1f1b_has_the_figures_of_its_formula(run: Run) -> None:
    """With equal passes 1F1B takes (m + p - 1)(F + I + W) = 11 * 3 and holds p - d activations on device d."""
    found = document(run(*SMALL, "--kind", "1f1b", "--json", "--quiet"))
    assert (found["kind"], found["makespan"], found["peak_memory"]) == ("1f1b", 33, 1)
    assert found["peak_per_device"] == [1, 0.75, 0.5, 0.25]
    assert found["bubble"] == pytest.approx(3 / 11)
    assert found["lower_bound"] <= 33
    assert len(found["orders"]) == 4


@pytest.mark.parametrize(
    ("limit", "makespan"),
    [
        ("0.5", 29.5),
        ("1", 25.5),
        *(pytest.param(*row, marks=pytest.mark.long) for row in (("0.625", 28), ("0.75", 26.5))),
    ],
)
def test_v_schedules_of_equal_passes_are_proven_optimal(run: Run, limit: str, makespan: float) -> None:
    """
    At every memory level of the V.

    With M chunks of memory the optimum is 6m + max(6p - 1 - 3M, 3p - 1 - M) passes of a chunk, half a stage each:
    at M = 4, 5, 6 and 8 it is 59, 56, 53 and 51.
    """
    found = document(
        run(*SMALL, "--placement", "v", "--memory-limit", limit, "--time-limit", "60", "--quiet", "--json")
    )
    assert found["makespan"] == makespan
    assert (found["status"], found["gap"]) == ("optimal", 0)
    assert found["peak_memory"] <= float(limit)


def test_kinds_are_compared_and_the_status_names_the_bound(run: Run) -> None:
    """Without a kind, all that suit are listed, with those over the limit marked; then the best schedule."""
    outcome = run(*SMALL, "--memory-limit", "0.75", *QUICK)
    assert outcome.code == 0
    assert outcome.err == ""
    lines = outcome.out.splitlines()
    assert "4 devices, 8 micro-batches" in lines[0]
    (header,) = [line for line in lines if line.startswith("kind")]
    assert header.split() == ["kind", "placement", "makespan", "span", "bubble", "peak", "memory"]
    (row,) = [line for line in lines if line.startswith("1f1b ")]
    assert row.split() == ["1f1b", "sequential", "33", "33", "27.3%", "1.000", "over", "the", "limit"]
    (status,) = [line for line in lines if line.startswith("status")]
    assert "lower bound" in status
    assert "gap" in status


def test_what_is_written_can_be_priced_again(run: Run, tmp_path: Path) -> None:
    """JSON holds the pipeline; PyTorch's CSV takes the figures as options; both give the same makespan and memory."""
    file, table = tmp_path / "s.json", tmp_path / "s.csv"
    made = document(run(*SMALL, "--kind", "zb-v", "--json", "--quiet", "--out", file, "--torch-csv", table))
    assert json.loads(file.read_text(encoding="utf-8"))["orders"] == made["orders"]
    again = document(run("schedule", "--read", file, "--json", "--quiet"))
    assert (again["kind"], again["orders"]) == ("zb-v", made["orders"])
    other = document(run(*SMALL, "--read", table, "--json", "--quiet"))
    for read in (again, other):
        assert read["makespan"] == made["makespan"]
        assert read["peak_per_device"] == made["peak_per_device"]
        assert read["problem"]["placement"] == "v"


def _layers_held(order: list[tuple[str, int, int]], stages: list[tuple[int, int]]) -> int:
    """Most layers whose activations a device holds, of all its micro-batches together."""
    held, most = 0, 0
    for letter, chunk, _ in order:
        first, end = stages[chunk]
        held += {"F": 1, "W": -1}.get(letter, 0) * (end - first)
        most = max(most, held)
    return most


@pytest.mark.parametrize("schedule", ["v-half", "1f1b"])
def test_the_schedule_of_a_plan_is_priced_and_written(schedule: str, run: Run, tmp_path: Path) -> None:
    """With rings and optimizer the makespan of an order is the step time of its plan; PyTorch's CSV is written too."""
    fixed = f"schedule={schedule},pp=4,tp=4,micro_batch=2"
    words = (
        "plan",
        "gpt2-345m",
        "amp-homogeneous",
        "--global-batch",
        "32",
        "--fix",
        fixed,
        "--gap",
        "0.02",
        "--quiet",
        "--stack",
        "any",
    )
    plan = document(run(*words, "--out", str(tmp_path / "plan.json"), "--json"))
    files = ("--torch-csv", str(tmp_path / "p.csv"), "--out", str(tmp_path / "s.json"))
    found = document(run("schedule", "--read", str(tmp_path / "plan.json"), *files, "--json", "--quiet"))
    assert found["kind"] == schedule and len(found["orders"]) == 4
    assert found["lower_bound"] <= found["makespan"]
    assert found["problem"]["placement"] == ("v" if schedule == "v-half" else "sequential")
    if schedule == "v-half":
        # 1F1B's first stage holds four times six layers, V-Half (p/2 + 1)/p of it but for uneven chunks on one device.
        assert sorted(_layers_held(order, plan["strategy"]["stages"]) for order in found["orders"])[2] <= 0.75 * 4 * 6
    else:
        assert max(found["peak_per_device"]) == pytest.approx(1)
    parts = plan["predicted"]["breakdown_s"]
    if schedule == "v-half":
        run_in = ["".join(f"{chunk}{letter}" for letter, chunk, _ in order) for order in found["orders"]]
        assert run_in == plan["strategy"]["order"]
        rest = parts["data_parallel"] + parts["optimizer"] + parts["constant"]
        assert found["makespan"] + rest == pytest.approx(plan["predicted"]["step_time_s"], rel=1e-9)
    assert run("verify", str(tmp_path / "s.json")).code == 0
    rows = (tmp_path / "p.csv").read_text().splitlines()
    assert len(rows) == 4 and rows[3].startswith("3F0")


@pytest.fixture(scope="module")
def planned() -> str:
    """A plan of four stages as JSON."""
    words = "plan gpt2-345m amp-homogeneous --global-batch 32 --fix pp=4,tp=4 --gap 0.1 -q --json"
    return run_command(["taut", *words.split()])


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("stages", [[0, 24]], "do not divide 24 layers in order, expected a plan that fits"),
        ("num_micro_batches", 10**12, "expected a candidate of certificate.space"),
        ("schedule", "none", "expected a candidate of certificate.space"),
        ("order", ["0F"], "expected a candidate of certificate.space"),
    ],
)
def test_a_plan_that_is_none_has_no_schedule(
    planned: str, field: str, value: object, said: str, run: Run, tmp_path: Path
) -> None:
    """Stages that leave layers out, and strategies that the plan's own space does not have, are named in one line."""
    plan = json.loads(planned)
    plan["strategy"][field] = value
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan))
    refused(run("schedule", "--read", str(path)), said)


def test_pictures_and_pages_are_written(run: Run, tmp_path: Path) -> None:
    """What the name ends in decides: a PNG, an SVG, or a page."""
    for name, begins in (("s.png", b"\x89PNG"), ("s.svg", b"<?xml"), ("s.html", b"<!doctype html>")):
        assert run(*SMALL, "--kind", "v-half", "--quiet", "--plot", tmp_path / name).code == 0
        assert (tmp_path / name).read_bytes().startswith(begins)


def test_progress_goes_to_stderr(run: Run) -> None:
    """With ``--json`` stdout holds one document and nothing else; ``--quiet`` silences stderr."""
    outcome = run(*SMALL, "--placement", "v", "--memory-limit", "0.5", "--json", "--time-limit", "3")
    document(outcome)
    assert all("lower bound" in line or "no bound yet" in line for line in outcome.err.splitlines())


def test_ctrl_c_gives_the_best_so_far(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first report of progress presses it; the schedule and a valid bound are printed all the same."""
    from taut.commands import progress

    pressed: list[float] = []

    def press(at: Progress) -> None:
        if not pressed:
            signal.raise_signal(signal.SIGINT)
        pressed.append(at.wall_s)

    class Pressing:
        def __enter__(self) -> object:
            return press

        def __exit__(self, *_: object) -> None:
            return None

    monkeypatch.setattr(progress, "progress_lines", lambda quiet: Pressing())
    times = ("--forward", "10.419", "--backward", "10.207", "--weight", "7.715", "--comm", "0.408")
    found = document(
        run("schedule", "--stages", "8", "--micro-batches", "16", *times, "--memory-limit", "0.5", "--json")
    )
    assert found["peak_memory"] <= 0.5
    assert found["lower_bound"] <= found["makespan"]
    assert pressed


def test_a_gap_that_is_good_enough_ends_the_search(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the makespan is bounded at once, so nothing is improved; the gap is what is left."""
    monkeypatch.setattr(LargeNeighbourhood, "improve", None)
    words = ("--stages", "3", "--micro-batches", "6", "--forward", "29.7", "--backward", "29.4", "--weight", "19.9")
    limits = ("--placement", "round-robin", "--memory-limit", "0.5", "--gap", "0.5")
    found = document(run("schedule", *words, *limits, "--json", "-q"))
    assert found["status"] == "feasible"
    assert 0 < found["gap"] < 0.5


def test_memory_for_less_than_one_micro_batch_is_proven_infeasible(run: Run) -> None:
    """One micro-batch holds a stage's activation, 1/4 of what 1F1B holds on four stages."""
    refused(run(*SMALL, "--memory-limit", "0.2", *QUICK), "the least limit that holds a schedule there is 0.25", 3)


def test_a_kind_over_the_limit_is_infeasible_with_a_way_out(run: Run) -> None:
    """1F1B holds 1."""
    refused(run(*SMALL, "--kind", "1f1b", "--memory-limit", "0.9"), "it fits --memory-limit 1,", 3)


def test_limits_below_v_min_are_served(run: Run) -> None:
    """One micro-batch at a time fits a quarter, less than V-Min's half."""
    found = document(run(*SMALL, "--memory-limit", "0.25", *QUICK, "--json"))
    assert found["peak_memory"] == 0.25


def test_limits_may_differ_by_device(run: Run) -> None:
    """Each device keeps to its own."""
    limits = [1, 0.75, 0.5, 0.5]
    found = document(run(*SMALL, "--memory-limit", ",".join(map(str, limits)), *QUICK, "--json"))
    assert all(held <= limit for held, limit in zip(found["peak_per_device"], limits, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_can_be_asked_for(kind: str, run: Run) -> None:
    """Each is built under its own name, and its bound is valid."""
    found = document(run(*SMALL, "--kind", kind, "--json", "--quiet"))
    assert found["kind"].startswith(kind)
    assert found["lower_bound"] <= found["makespan"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("schedule", "--stages", "4"), "--micro-batches --forward --backward --weight: missing"),
        ((*SMALL, "--comm", "fast"), "--comm fast: expected a number, or numbers between commas"),
        ((*SMALL, "--comm", "-1"), "--comm -1: expected a finite number not below 0"),
        ((*SMALL, "--memory-limit", "1,1"), "--memory-limit: 2 numbers, expected 1 or 4"),
        ((*SMALL, "--kind", "2f2b"), "--kind 2f2b: expected one of"),
        ((*SMALL, "--kind", "1f1b", "--placement", "v"), "1f1b"),
        ((*SMALL, "--placement", "w"), "--placement w"),
        ((*SMALL, "--chunks", "0"), "--chunks 0"),
        ((*SMALL, "--placement", "v", "--chunks", "3"), "expected sequential with 1 chunk a device, v with 2"),
        ((*SMALL, "--time-limit", "0"), "--time-limit 0"),
        ((*SMALL, "--gap", "1"), "--gap 1: expected a share from 0 to 1"),
        ((*SMALL, "--plot", "s.gif"), "--plot s.gif: expected a name that ends in .png"),
        ((*SMALL, "--out", "nowhere/s.json"), "there is no folder nowhere"),
        ((*SMALL, "--read", "nowhere.json"), "--stages 4: expected none with --read of a JSON file"),
        ((*SMALL, "--read", "nowhere.csv"), "nowhere.csv: No such file"),
        (("schedule", "--read", "nowhere.json"), "nowhere.json: No such file"),
    ],
)
def test_bad_input_is_one_line(words: tuple[str, ...], complaint: str, run: Run) -> None:
    """Option or file, value, and what was expected; exit code 2."""
    refused(run(*words), complaint)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("0F0\n", "1 rows, expected 4"),
        ("0F0\n1F0\n1F0\n3F0\n", "stages 0 1 1 3, expected every stage from 0 on in one row"),
        ("0F0\n1F0\n2F0\n3F0\n", "orders: F of chunk 0, micro-batch 1 runs 0 times"),
    ],
)
def test_tables_that_do_not_suit_the_pipeline_are_refused(text: str, complaint: str, run: Run, tmp_path: Path) -> None:
    """Rows, stages and passes must be those of the options."""
    path = tmp_path / "s.csv"
    path.write_text(text, encoding="utf-8")
    refused(run(*SMALL, "--read", path), complaint)
