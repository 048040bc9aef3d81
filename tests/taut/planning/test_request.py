"""Requests: what is accepted, what is refused by field, and that every spelling of the fields agrees."""

import inspect
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.core import TyperGroup

import taut
from taut.commands.app import app
from taut.commands.options import request_parameters
from taut.data.stack import SCHEDULES
from taut.planning.options import OPTIONS, PlanOptions
from taut.planning.request import PlanRequest, check_search
from taut.solver.result import OPTIMALITY_GAP

GIVEN: dict[str, Any] = {"model": "gpt2-345m", "cluster": "dgx-a100", "global_batch": 32}


def test_fields_are_those_of_the_keyword_arguments_and_of_the_command_line() -> None:
    """Request, keyword arguments and options have the same names and defaults."""
    request = PlanRequest(**GIVEN)
    fields = PlanRequest.model_fields
    assert set(fields) - {"model", "cluster"} == set(PlanOptions.__annotations__)
    options = {parameter.name: parameter for parameter in request_parameters()}
    assert list(options) == list(fields)
    for name, option in options.items():
        if option.default is not inspect.Parameter.empty and name != "fix":
            assert option.default == getattr(request, name)
    assert (request.gap, request.time_limit) == (1e-3, 60.0)


def test_no_search_goes_on_from_an_optimal_plan() -> None:
    """A gap of 0 asks for the optimum, which a plan is at a gap of rounding; no time limit is none."""
    limits = PlanRequest(**GIVEN, gap=0, time_limit=None).limits
    assert (limits.gap, limits.time_limit) == (OPTIMALITY_GAP, None)
    assert PlanRequest(**GIVEN, gap=0.01).limits.gap == 0.01


def test_every_option_is_documented_where_a_user_looks() -> None:
    """The help of ``PlanRequest`` has a line for every option, with the words of the command line."""
    lines = (PlanRequest.__doc__ or "").splitlines()
    for name, option in OPTIONS.items():
        assert [line for line in lines if line.startswith(f"- ``{name}``") and option.help in line], name


def test_verbs_of_the_command_line_take_options_by_their_records() -> None:
    """Options that a record gives to a verb are parameters of that verb, and ``plan`` has all of them."""
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    taken = {verb: {parameter.name for parameter in command.params} for verb, command in group.commands.items()}
    assert taken["plan"] > set(OPTIONS) and taken["pareto"] > set(OPTIONS)
    for verb in ("compare", "simulate"):
        assert taken[verb] & set(OPTIONS) == {name for name, option in OPTIONS.items() if verb in option.verbs}
    assert taken["jobs"] > {name for name, option in OPTIONS.items() if "jobs" in option.verbs}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"global_batch": "64"}, "global_batch: '64', expected a number of sequences"),
        ({"global_batch": True}, "global_batch: True, expected a number of sequences"),
        ({"seq": 0}, "seq: 0, expected a number of tokens above 0"),
        ({"fix": "tp=8"}, "fix: 'tp=8', expected names with values"),
        ({"schedules": ["1f1b", "zbv"]}, "did you mean zb-v?"),
        ({"schedules": []}, "schedules: [], expected at least one"),
        ({"schedules": "gpipe,gpipe"}, "gpipe stands twice"),
        ({"time_limit": -1}, "time_limit: -1, expected a number above 0"),
        ({"time_limit": float("nan")}, "time_limit: nan, expected a number above 0"),
        ({"work_limit": 1.5}, "work_limit: 1.5, expected a whole number above 0"),
        ({"gap": 1}, "gap: 1, expected a share from 0 to 1"),
        ({"gap": "0.1"}, "gap: '0.1', expected a share"),
        ({"seed": -1}, "seed: -1, expected a whole number from 0 to 2147483647"),
        ({"workers": 0}, "workers: 0, expected a whole number above 0"),
        ({"grad_precision": "fp8"}, "grad_precision: fp8, expected one of bf16, fp16, fp32"),
        ({"latency_model": "pipete"}, "latency_model: pipete, expected one of step, pipette"),
        ({"precision": "int8"}, "precision: int8, expected one of bf16"),
        ({"model": 3}, "model: 3, expected a catalog name, a file or a ModelSpec"),
        ({"model": {"layers": 2}}, "model: "),
        ({"cluster": {"nodes": [{"device": "a100"}]}}, "cluster: nodes.0.device: is 'a100', expected"),
        ({"global_bach": 3}, "global_bach: unknown field; did you mean global_batch?"),
    ],
)
def test_wrong_values_are_refused_by_their_field(options: dict[str, Any], words: str) -> None:
    """One line: the field, its value, what was expected."""
    with pytest.raises(taut.DataError) as refusal:
        PlanRequest(**{**GIVEN, **options})
    assert words in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_what_is_missing_is_named() -> None:
    """A request without a batch, and a plan without a cluster."""
    request: Any = PlanRequest
    plan: Any = taut.plan
    with pytest.raises(taut.FieldError, match="global_batch: missing"):
        request("gpt2-345m", "dgx-a100")
    with pytest.raises(taut.FieldError, match="cluster: missing"):
        plan("gpt2-345m")


def test_whole_request_stands_alone() -> None:
    """Beside a request nothing that it holds may be given."""
    plan: Any = taut.plan
    with pytest.raises(taut.FieldError, match="seq: given together with a PlanRequest"):
        plan(PlanRequest(**GIVEN), seq=8)


def test_numbers_of_numpy_paths_and_lists_are_accepted() -> None:
    """Whole numbers of numpy, paths as names, and schedules as a list, a text or all."""
    request = PlanRequest("gpt2-345m", Path("c.yaml"), global_batch=32, fix={"tp": np.int64(2)}, schedules=["1f1b"])
    assert (request.cluster, request.fix, request.schedules) == ("c.yaml", {"tp": 2}, ("1f1b",))
    assert json.dumps(request.fix) == '{"tp": 2}'
    assert PlanRequest(**GIVEN, schedules="all").schedules == SCHEDULES
    assert PlanRequest(**GIVEN, schedules=" 1f1b, gpipe").schedules == ("1f1b", "gpipe")


def test_request_cannot_be_changed() -> None:
    """A request is frozen."""
    request: Any = PlanRequest(**GIVEN)
    with pytest.raises(ValueError, match="frozen"):
        request.seed = 1


def test_limits_of_other_searches_follow_the_same_rules() -> None:
    """Schedules and quadratic assignment refuse what a plan refuses."""
    check_search(time_limit=1.0, gap=0.5, seed=3, workers=1)
    with pytest.raises(taut.FieldError, match="time_limit: 0, expected a number above 0"):
        taut.place(([[0.0]], [[0.0]]), time_limit=0)
    with pytest.raises(taut.FieldError, match="workers: 0, expected"):
        taut.ScheduleSearch(workers=0)


def test_field_errors_survive_pickling() -> None:
    """An error that a worker process raises arrives as it is."""
    error = pickle.loads(pickle.dumps(taut.FieldError("gap", "2", "expected a share")))
    assert (error.field, error.value, str(error)) == ("gap", "2", "gap: 2, expected a share")
