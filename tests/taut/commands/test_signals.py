"""Signals end a command: at once before a search, in one with what is there, and at once when they come twice."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import taut
from taut.commands import app
from taut.commands.predict import predict_command
from taut.errors import NothingFoundError
from taut.papers.compared import SharedTime, outcomes, plan_or_none, rows_so_far, rows_until_interrupted
from taut.prediction import rows
from taut.solver import signals
from taut.solver.branch_and_bound.stop import interrupt_requested
from taut.solver.result import CandidateBound, Limits
from taut.solver.search.refinement import Refining
from taut.solver.signals import cut_short, interruptible_command, was_interrupted

SIGNALS = (signal.SIGINT, signal.SIGTERM)


def send(number: int) -> None:
    """A signal to this process, whose handler runs before this returns."""
    os.kill(os.getpid(), number)
    time.sleep(0.01)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_before_a_search_ends_the_command(number: int) -> None:
    """There is nothing to keep."""
    with pytest.raises(KeyboardInterrupt), interruptible_command():
        send(number)
    assert not was_interrupted()


@pytest.mark.parametrize("number", SIGNALS)
def test_one_signal_asks_this_search_and_all_later_ones(number: int) -> None:
    """So a command of many searches ends too; a second signal ends it at once."""
    with interruptible_command():
        with interrupt_requested() as first:
            assert not first()
            send(number)
            assert first() and was_interrupted()
        with interrupt_requested() as second:
            assert second()
            with pytest.raises(KeyboardInterrupt):
                send(number)
    assert not was_interrupted()
    with interrupt_requested() as later:
        assert not later()


@pytest.mark.parametrize(("quiet", "said"), [(False, True), (True, False)])
def test_silent_work_says_that_it_goes_on(
    quiet: bool, said: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After some seconds without a line, unless it is to be quiet; a line in between starts them anew."""
    monkeypatch.setattr(app, "SILENT_S", 0.3)
    with app._heartbeat(quiet=quiet):
        for _ in range(3):
            print("a line", file=sys.stderr)
            time.sleep(0.05)
        assert "at work" not in capsys.readouterr().err
        time.sleep(0.8)
    assert ("at work" in capsys.readouterr().err) is said


def test_long_silence_is_broken_less_and_less_often(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lines come after 0.1, 0.2, 0.4 and 0.8 s without another, so that a log is not full of them."""
    monkeypatch.setattr(app, "SILENT_S", 0.1)
    with app._heartbeat(quiet=False):
        time.sleep(1.0)
    assert 1 <= capsys.readouterr().err.count("at work") <= 5


def test_a_line_after_a_long_silence_starts_it_anew(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Such a line is followed by the first beat a short silence later, and not by the beats that were missed."""
    monkeypatch.setattr(app, "SILENT_S", 0.2)
    with app._heartbeat(quiet=False):
        time.sleep(1.0)
        print("a line", file=sys.stderr)
        time.sleep(0.3)
    after = capsys.readouterr().err.split("a line")[1]
    assert 1 <= after.count("at work") <= 2


def test_rows_that_are_done_are_kept() -> None:
    """The row in which the signal came ends by itself, and none follows."""

    def make(item: int) -> int:
        with interrupt_requested() as asked:
            if item == 3:
                send(signal.SIGTERM)
            return -item if asked() else item

    said: list[str] = []
    with interruptible_command():
        assert rows_until_interrupted([1, 2, 3, 4], make, said.append) == (1, 2, -3)
    assert said == ["setting 1 of 4", "setting 2 of 4", "setting 3 of 4"]


@pytest.mark.parametrize("blocks", [0, 2])
def test_predicted_rows_are_kept(blocks: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Blocks that are done before a signal are written, with what they lack said; without any nothing is written."""
    head = "gpu,n_gpus,hidden,layers,heads,seq,tp,pp,dp,micro_batch,global_batch,recompute,zero,precision,stack"
    line = "A100,16,2048,24,16,2048,2,1,8,1,8,full,1,bf16,any"
    given, out = tmp_path / "rows.csv", tmp_path / "predicted.csv"
    given.write_text("\n".join([head, *[line] * 7]) + "\n")
    done, predicted = list[int](), rows._predicted

    def cut(*of: Any) -> Any:
        if len(done) == blocks:
            send(signal.SIGTERM)
            time.sleep(10)
        done.append(1)
        return predicted(*of)

    monkeypatch.setattr(rows, "BLOCK", 2)
    monkeypatch.setattr(rows, "_predicted", cut)
    monkeypatch.setattr(signals, "GRACE_S", 0.1)
    expected = NothingFoundError if blocks else KeyboardInterrupt
    with interruptible_command(), pytest.raises(expected, match="interrupted after 4 rows" if blocks else None):
        predict_command(given, out, quiet=True)
    assert len(out.read_text().splitlines()) == 5 if blocks else not out.exists()

    def late(*of: Any) -> Any:
        send(signal.SIGTERM)
        return predicted(*of)

    # A signal while the last block is done leaves nothing out.
    monkeypatch.setattr(rows, "BLOCK", 7)
    monkeypatch.setattr(rows, "_predicted", late)
    monkeypatch.setattr(signals, "GRACE_S", 5.0)
    with interruptible_command():
        predict_command(given, out, quiet=True)
    assert len(out.read_text().splitlines()) == 8


def test_rows_share_the_seconds_of_a_command() -> None:
    """Each search has its limit, and no more than its share of what is left; no limit where there is none."""
    own, seconds = Limits(time_limit=60.0, seed=3), time.perf_counter()
    shared = SharedTime(limits=own, within=80.0, searches=4, began=seconds)
    first = shared.of_next(2)
    assert first.time_limit == pytest.approx(20.0, abs=1.0) and first.seed == 3 and not shared.is_over
    assert shared.of_next(2).time_limit == pytest.approx(40.0, abs=1.0)
    assert SharedTime(limits=own, within=1000.0, searches=4).of_next(1) == own
    assert SharedTime(limits=own, within=None, searches=4).of_next(1) == own
    assert SharedTime(limits=Limits(), within=None, searches=4).of_next(1).time_limit is None
    late = SharedTime(limits=own, within=5.0, searches=4, began=seconds - 6.0)
    assert late.is_over and late.of_next(1).time_limit == 0.1


def test_a_row_that_does_not_end_is_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """After some seconds, without it; and where there is no row at all, that is said."""
    monkeypatch.setattr(signals, "GRACE_S", 0.2)

    def make(item: int) -> int:
        with interrupt_requested():
            if item == 2:
                send(signal.SIGINT)
                time.sleep(30)
        return item

    began = time.monotonic()
    with interruptible_command():
        assert rows_until_interrupted([1, 2, 3], make) == (1,)
    with pytest.raises(NothingFoundError, match="before the first setting"), interruptible_command():
        rows_until_interrupted([2], make)
    assert time.monotonic() - began < 10


def test_errors_of_rows_are_told_without_a_signal() -> None:
    """And threads beside the main one neither hear signals nor ask for them."""

    def fail(_: int) -> int:
        raise NothingFoundError("no plan")

    with pytest.raises(NothingFoundError, match="no plan"):
        rows_until_interrupted([1], fail)
    heard: list[Callable[[], bool]] = []

    def listen() -> None:
        with interrupt_requested() as asked:
            heard.append(asked)

    thread = threading.Thread(target=listen)
    thread.start()
    thread.join()
    assert [asked() for asked in heard] == [False]


def test_work_is_cut_short_by_a_second_signal_and_kept() -> None:
    """At once, with what it has found; a third signal ends the command."""
    found: list[int] = []

    def work() -> None:
        with cut_short():
            found.append(len(found))
            send(signal.SIGINT)
            send(signal.SIGTERM)
            found.append(-1)

    began = time.monotonic()
    with interruptible_command(), interrupt_requested() as asked:
        work()
        assert asked() and found == [0]
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGINT)
    assert time.monotonic() - began < signals.GRACE_S


def test_work_is_cut_short_after_one_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of work that lie in one another are cut one after another, and an error that follows a cut is one too."""
    monkeypatch.setattr(signals, "GRACE_S", 0.05)
    done: list[str] = []
    with interruptible_command(), interrupt_requested():
        with cut_short():
            with cut_short():
                send(signal.SIGINT)
                time.sleep(30)
            done.append("inner")
            with cut_short():
                try:
                    time.sleep(30)
                except KeyboardInterrupt:
                    # As a callback from compiled code does.
                    raise RuntimeError("no compiled object yet") from None
            done.append("second")
            time.sleep(30)
        done.append("outer")
    assert done == ["inner", "second", "outer"]
    with pytest.raises(RuntimeError), interruptible_command(), interrupt_requested(), cut_short():
        raise RuntimeError("a fault")


@pytest.mark.parametrize("signals_sent", [1, 2])
def test_calls_of_llvm_end_before_they_are_cut_short(signals_sent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """They hand objects over, which an exception would leave with two owners; what calls them is cut right after."""
    monkeypatch.setattr(signals, "GRACE_S", 0.05)
    names: dict[str, Any] = {"__name__": "llvmlite.binding", "send": send, "time": time, "done": []}
    exec("def call(number):\n for _ in range(number): send(2)\n time.sleep(0.3)\n done.append('call')", names)
    began = time.monotonic()
    with interruptible_command(), interrupt_requested(), cut_short():
        names["call"](signals_sent)
        time.sleep(30)
        names["done"].append("more")
    assert names["done"] == ["call"] and time.monotonic() - began < 10


def test_a_row_of_several_methods_is_given_up_with_the_first_that_is_cut() -> None:
    """Of plans of methods that had no time alike, none is shown; what was done before is."""
    began: list[str] = []

    def method(name: str) -> Any:
        began.append(name)
        if name == "second":
            send(signal.SIGTERM)
        return name

    def row(names: tuple[str, ...]) -> dict[str, Any]:
        with interrupt_requested():
            return outcomes({name: partial(method, name) for name in names})

    with interruptible_command():
        assert rows_so_far([("first",), ("second", "third")], row) == ({"first": "first"},)
    assert began == ["first", "second"]
    with interruptible_command(), interrupt_requested():
        send(signal.SIGTERM)
        with pytest.raises(NothingFoundError):
            plan_or_none("gpt2-345m", "dgx-a100", global_batch=32)


@pytest.mark.proof
def test_a_search_that_is_cut_short_keeps_plan_and_valid_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two signals in every refinement in turn: the document holds, and its bound is below the optimum."""
    best = taut.plan("gpt2-345m", "dgx-a100", global_batch=32, plainer=False, gap=0.0, schedules="1f1b")
    whole = Refining.refine
    cut = 0
    for number in (1, 6, 30):
        refined = 0

        def refine(self: Refining, bound: CandidateBound, number: int = number) -> bool:
            nonlocal refined
            more = whole(self, bound)
            refined += 1
            if refined == number:
                # In the middle of a change of the bound, which is then wrong.
                bound.lower_bound = 1e9
                send(signal.SIGINT)
                send(signal.SIGINT)
            return more

        monkeypatch.setattr(Refining, "refine", refine)
        found = taut.plan("gpt2-345m", "dgx-a100", global_batch=32, plainer=False, gap=0.0, schedules="1f1b")
        monkeypatch.setattr(Refining, "refine", whole)
        if refined >= number:
            cut += 1
            assert found.sections.provenance["stopped_by"] == "interrupt"
        assert found.lower_bound_s is not None and found.lower_bound_s <= best.step_time_s * (1 + 1e-9)
        assert found.verify().holds
    assert cut >= 2


@pytest.mark.proof
@pytest.mark.parametrize("paper", ["vschedules", "vtrain --only table-3"])
def test_a_signal_ends_a_reproduction_with_its_rows(paper: str) -> None:
    """Of many searches the later ones do not begin; the rows that are done are printed."""
    command = [sys.executable, "-m", "taut", "reproduce", *paper.split()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as ran:
        assert ran.stderr is not None and ran.stdout is not None
        # Lines are a second apart, so that no certain number is told.
        assert any(re.match("(setting )?([2-9]|10) of", line) for line in iter(ran.stderr.readline, ""))
        ran.send_signal(signal.SIGTERM)
        rest = threading.Thread(target=ran.stderr.read)
        rest.start()
        assert ran.stdout.read().count("\n") > 5
        assert ran.wait(60) == 0
        rest.join()
