"""A stack's divisions decide the plan's, its price, and what a check accepts."""

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import taut
from taut.errors import DataError
from taut.planning.stack_price import stack_price
from taut.solver.certificate.verify import verify_document
from tests.taut.conftest import Run, refused

pytestmark = pytest.mark.proof

FIX = {"pp": 4, "tp": 1, "micro_batch": 2}


def stack(*divisions: Any, **others: Any) -> taut.Stack:
    """A stack with some forms of division."""
    schedules = {"schedules": ["1f1b", "interleaved-1f1b"], "zero": [0, 1], "recompute_by_stage": False}
    return taut.Stack(name="ours", description="ours", divisions=list(divisions), **{**schedules, **others})


CLOSED_FORM: dict[str, Any] = {"schedules": ["1f1b"], "gap": 1e-6}
"""The space that these tests are about, proven optimal."""


def request(given: taut.Stack | str, **options: Any) -> taut.PlanRequest:
    """A small request on four stages."""
    narrow = {} if {"vpp", "schedule"} & set(options.get("fix", {})) else CLOSED_FORM
    return taut.PlanRequest("gpt2-345m", "dgx-a100", global_batch=16, stack=given, **{**narrow, "fix": FIX, **options})


def layers(found: taut.Plan) -> list[int]:
    """Layers of every chunk."""
    return [end - first for first, end in found.strategy.stages]


def test_each_form_costs_no_less_than_a_wider_one() -> None:
    """24 layers on four stages: even, then first and last free, then any; each plan has its form and holds."""
    forms = [["even"], ["even", "first-last"], ["layout"]]
    plans = [taut.plan(request(stack(*each))) for each in forms]
    assert layers(plans[0]) == [6] * 4
    assert len(set(layers(plans[1])[1:3])) == 1
    seconds = [each.step_time_s for each in plans]
    assert seconds == sorted(seconds, reverse=True) and seconds[0] > seconds[1]
    assert all(each.verify().holds for each in plans)
    assert (plans[0].lower_bound_s or 0.0) > (plans[2].lower_bound_s or 0.0) > 0.0


def test_the_price_of_even_stages_counts_their_limit() -> None:
    """What even stages cost at most is at least what stages of first and last ranks gain."""
    even, free = (taut.plan(request(stack(form))) for form in ("even", "first-last"))
    price = stack_price(request(stack("even")), even)
    assert price.whole_space_bound_s <= free.step_time_s
    assert price.at_most >= even.step_time_s / free.step_time_s - 1 > 0


def test_interleaved_chunks_obey_and_their_bound_is_of_stated_divisions() -> None:
    """With two chunks a rank the bound of the even division is above that of all, and the plan's is proven."""
    fix = {**FIX, "schedule": "interleaved-1f1b", "vpp": 2}
    even = taut.plan(request(stack("even"), fix=fix))
    assert layers(even) == [3] * 8 and even.verify().holds
    entries = even.certificate.candidates
    assert any("stated" in entry.witness for entry in entries if entry.source == "order")
    free = taut.plan(request(stack("first-last"), fix=fix))
    chunks = np.array(layers(free)).reshape(2, 4)
    assert (chunks[0] == chunks[1]).all() and chunks[0, 1] == chunks[0, 2]
    assert free.verify().holds and free.step_time_s <= even.step_time_s


def test_a_division_that_the_stack_cannot_state_is_refused() -> None:
    """One layer moved between two stages: the check names the layers and the forms."""
    document = json.loads(json.dumps(taut.plan(request(stack("even"))).document))
    changed = copy.deepcopy(document)
    changed["strategy"]["stages"] = [[0, 5], [5, 12], [12, 18], [18, 24]]
    outcome = verify_document(changed)
    assert not outcome.holds
    assert outcome.faults == ("layers [5, 7, 6, 6] of the stages are no division that is even",)


def test_a_wider_space_than_the_stack_states_is_refused() -> None:
    """The forms belong to the space that the problem's digest signs; an unknown form is no space."""
    document = json.loads(json.dumps(taut.plan(request(stack("even"))).document))
    del document["certificate"]["space"]["divisions"]
    assert not verify_document(document).holds
    document["certificate"]["space"]["divisions"] = ["odd"]
    assert "divisions" in verify_document(document).faults[0]


@pytest.mark.filterwarnings("ignore::taut.errors.ExtrapolationWarning")
def test_megatron_deepspeed_divides_as_deepspeed_does() -> None:
    """24 layers on 16 stages: the first eight have one more; `taut.plan` says what that leaves out."""
    found = taut.plan("gpt2-345m", "dgx-a100:2", global_batch=16, stack="megatron-deepspeed", fix={"pp": 16}, gap=1e-6)
    assert layers(found) == [2] * 8 + [1] * 8
    assert "layers divided balanced" in " ".join(str(found).split())
    assert found.verify().holds


def test_degrees_without_a_stated_division_are_no_candidates() -> None:
    """24 layers have no 16 even stages; the message names the forms."""
    with pytest.raises(DataError, match=r"pp=16.*layers divide into chunks that are even"):
        taut.plan("gpt2-345m", "dgx-a100:2", global_batch=16, stack=stack("even"), fix={"pp": 16})


def test_a_stack_file_states_its_divisions(tmp_path: Path) -> None:
    """A wrong form is refused with the known ones."""
    file = tmp_path / "ours.yaml"
    file.write_text("{description: ours, schedules: [1f1b], zero: [0], divisions: [odd]}\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"divisions.*odd"):
        taut.load_stack(file)


def test_the_command_line_plans_prices_checks_and_refuses(run: Run, tmp_path: Path) -> None:
    """A stack with even stages: a plan with its price, exit 0; a changed division, exit 1; a wrong form, exit 2."""
    ours, wrong, file = tmp_path / "ours.yaml", tmp_path / "wrong.yaml", tmp_path / "plan.json"
    text = "{description: ours, schedules: [1f1b], zero: [0, 1], recompute_by_stage: false, divisions: [%s]}\n"
    ours.write_text(text % "even", encoding="utf-8")
    wrong.write_text(text % "odd", encoding="utf-8")
    asked = ["plan", "gpt2-345m", "dgx-a100", "--global-batch", 16, "--fix", "pp=4,tp=1,micro_batch=2", "--quiet"]
    outcome = run(*asked, "--stack", ours, "--stack-price", "--out", file)
    assert outcome.code == 0 and "ours's limits cost at most" in outcome.out
    assert run("verify", file).code == 0
    document = json.loads(file.read_text(encoding="utf-8"))
    document["strategy"]["stages"] = [[0, 7], [7, 12], [12, 18], [18, 24]]
    file.write_text(json.dumps(document), encoding="utf-8")
    changed = run("verify", file)
    assert changed.code == 1 and "are no division that is even" in changed.out + changed.err
    refused(run(*asked, "--stack", wrong), "divisions")
