"""Plans of other methods from Python and the command line: what they say, and that their certificates hold."""

import json
import signal
from pathlib import Path

import pytest

import taut
from taut.errors import FieldError, NothingFoundError
from taut.planning import solve
from taut.solver.branch_and_bound.stop import interrupt_requested
from taut.solver.methods.named import Outcome
from taut.solver.signals import interruptible_command
from tests.taut.conftest import Run, refused

pytestmark = pytest.mark.proof


@pytest.mark.parametrize("method", ["cp-sat", "cbc"])
def test_program_finds_the_optimum_of_the_search(method: str) -> None:
    """GPT-2 on one node: the method proves the optimum by itself, within a nanosecond for each rounded price."""
    searched = taut.plan("gpt2-345m", "dgx-a100", global_batch=32)
    found = taut.plan("gpt2-345m", "dgx-a100", global_batch=32, method=method)
    said = found.document["provenance"]["method"]
    assert found.step_time_s == pytest.approx(searched.step_time_s)
    assert found.status == "optimal"
    assert said["name"] == method
    assert said["lower_bound_s"] == pytest.approx(found.step_time_s, abs=1e-7)
    assert found.verify().holds
    assert f"method      {method}" in str(found)


def test_baseline_keeps_its_plan_under_the_bound_of_the_search() -> None:
    """Megatron's rule on two nodes: its own plan, its distance from the bound, and the better plan that was found."""
    found = taut.plan("gpt-1.1b", "dgx-a100:2", global_batch=64, method="megatron")
    said = found.document["provenance"]["method"]
    assert (found.strategy.tp, found.strategy.pp) == (1, 1)
    assert found.lower_bound_s is not None
    assert found.step_time_s > found.lower_bound_s
    assert said["best_s"] < found.step_time_s
    assert said["lower_bound_s"] is None
    assert "it proves no bound by itself" in str(found)
    assert "the search found a plan of" in str(found)
    assert found.verify().holds


def test_method_is_told_on_the_command_line(run: Run, tmp_path: Path) -> None:
    """``--method`` in the table, in JSON and in ``show``; the written plan passes ``verify``."""
    path = tmp_path / "plan.json"
    words = ["plan", "gpt2-345m", "dgx-a100", "--global-batch", 32, "--fix", "pp=2", "--method", "hethub", "--quiet"]
    made = run(*words, "--out", path)
    assert made.code == 0
    assert "method      hethub" in made.out
    assert "method      hethub" in run("show", path).out
    assert json.loads(run(*words, "--json").out)["provenance"]["method"]["name"] == "hethub"
    assert run("verify", path).code == 0


def test_what_is_no_method_or_has_no_plan_is_refused(run: Run) -> None:
    """An unknown method lists the known ones; fully sharded plans do not exist among pipelines."""
    with pytest.raises(FieldError, match="expected one of branch-and-bound"):
        taut.plan("gpt2-345m", "dgx-a100", global_batch=32, method="alpa")
    with pytest.raises(NothingFoundError, match="candidates is one that fsdp considers"):
        taut.plan("gpt2-345m", "dgx-a100", global_batch=32, fix={"pp": 2}, method="fsdp")
    refused(run("plan", "gpt2-345m", "dgx-a100", "--global-batch", 32, "--method", "alpa"), "--method alpa")


def test_a_method_that_was_interrupted_does_not_say_that_nothing_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its candidates were not all tried."""

    def cut(*_: object) -> Outcome:
        signal.raise_signal(signal.SIGTERM)
        return Outcome(method="amp", incumbent=None, candidates=3, wall_s=0.1, is_cut_off=True)

    monkeypatch.setattr(solve, "method_of", lambda _: cut)
    with (
        interruptible_command(),
        interrupt_requested(),
        pytest.raises(NothingFoundError, match="interrupted before there was one"),
    ):
        taut.plan("gpt2-345m", "dgx-a100", global_batch=32, method="amp")


def test_figures_that_were_tampered_with_are_not_shown(run: Run, tmp_path: Path) -> None:
    """What a file says of a method is no part of the certificate: words in the place of figures do no harm."""
    found = taut.plan("gpt2-345m", "dgx-a100", global_batch=32, fix={"pp": 2}, method="hethub")
    document = json.loads(json.dumps(found.document))
    document["provenance"]["method"] |= {"lower_bound_s": "none", "best_s": [1]}
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(document))
    assert "it proves no bound by itself" in run("show", path).out
