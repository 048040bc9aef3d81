"""Plans of two spaces, one degree for all stages and degrees by type: the better one, its bound, what is refused."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import taut
from taut.data.spec import digest
from taut.planning.meshes import has_meshes
from taut.planning.plan import Plan
from taut.planning.solve import plan_one_degree
from taut.solver.certificate.document import NAME
from taut.solver.certificate.verify import verify_plan
from tests.support.pages import run_command
from tests.taut.planning.test_meshes import CLUSTER

Change = Callable[[dict[str, Any]], Any]
FIXED: dict[str, int | str] = {"pp": 2, "zero": 1, "recompute": "none"}


def asked(**options: Any) -> taut.PlanRequest:
    """GPT-2 345M for FlagScale on four A100 and four L4, in two stages."""
    return taut.PlanRequest("gpt2-345m", CLUSTER, **{"global_batch": 8, "stack": "flagscale", "fix": FIXED, **options})


@pytest.fixture(scope="module")
def found() -> Plan:
    """The better plan of both spaces."""
    return taut.plan(asked(time_limit=600))


@pytest.mark.proof
def test_the_better_plan_has_the_bound_of_both(found: Plan) -> None:
    """It is as fast as the faster of the two plans that are found alone, and its bound is the least of theirs."""
    one = plan_one_degree(asked())
    meshes = taut.plan(asked(), method="meshes")
    assert found.step_time_s == min(one.step_time_s, meshes.step_time_s)
    assert one.lower_bound_s is not None and meshes.lower_bound_s is not None
    assert found.lower_bound_s == min(one.lower_bound_s, meshes.lower_bound_s)
    assert "lower bound of both" in str(found) and found.gap is not None
    outcome = found.verify()
    assert outcome.holds and outcome.lower_bound == pytest.approx(found.lower_bound_s, rel=1e-9), outcome


def _dearer(values: dict[str, Any]) -> None:
    """Let every row of the other plan's costs take twice as long, with digests that follow."""
    section = values[NAME]["inputs"]["costs"]
    for row in section["spec"]["rows"]:
        row["forward_s"] = 2 * row["forward_s"]
    section["sha256"] = digest(section["spec"])


CHANGES: dict[str, Change] = {
    "raised bound": lambda v: v[NAME]["certificate"].update(lower_bound_s=2 * v[NAME]["certificate"]["lower_bound_s"]),
    "faster": lambda v: v[NAME]["certificate"].update(objective_s=0.5 * v[NAME]["certificate"]["objective_s"]),
    "other batch": lambda v: v[NAME]["certificate"]["space"].update(global_batch=16),
    "other model": lambda v: v[NAME]["inputs"]["model"].update(name="another"),
    "dearer": _dearer,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_changed_other_space_is_refused(change: Change, found: Plan) -> None:
    """Any one figure of the other plan that is changed is a fault."""
    values = copy.deepcopy(found.document)
    change(values)
    assert not verify_plan(values).holds


@pytest.mark.proof
def test_the_other_plan_is_of_the_same_problem() -> None:
    """A sound plan of another batch beside the plan is refused: its bound says nothing of this problem."""
    values, other = taut.plan(asked()).document, taut.plan(asked(global_batch=16)).document
    if values["format"] == other["format"]:
        values = {**values, NAME: other[NAME]}
    else:
        values = {**values, NAME: {name: value for name, value in other.items() if name != NAME}}
    assert any("global_batch" in fault for fault in verify_plan(values).faults)


def test_a_space_without_a_plan_is_a_claim(found: Plan) -> None:
    """Where the other space has no plan, its state is claimed and no bound derived; a wrong state is bad input."""
    values = {**found.document, NAME: {"status": "infeasible", "lower_bound_s": None}}
    outcome = verify_plan(values)
    assert outcome.holds and outcome.claimed[-1] == f"{NAME}.status"
    assert outcome.lower_bound == float("-inf") and outcome.gap is None
    with pytest.raises(taut.DataError, match="other_space: status"):
        verify_plan({**values, NAME: {"status": "fine"}})
    with pytest.raises(taut.DataError, match="expected that of the other space"):
        verify_plan({**values, NAME: found.document})


def test_limits_end_the_enumeration_with_a_valid_bound(found: Plan) -> None:
    """Where time ends before choices of meshes are enumerated, the bound of all of them holds, and that of both."""
    with pytest.raises(taut.NothingFoundError, match=r"within the limit; none is below 0\.\d+ s$"):
        taut.plan("gpt2-345m", CLUSTER, method="meshes", global_batch=8, time_limit=1e-9)
    plan = taut.plan(asked(time_limit=1e-9))
    assert plan.lower_bound_s is not None and 0 < plan.lower_bound_s <= found.step_time_s
    assert "no plan was found in time, none is below" in plan.spaces[1]


@pytest.mark.proof
def test_limits_of_work_give_the_same_plan_again() -> None:
    """Both searches share the units of work: the plan, its bounds and what both did are the same in every run."""
    first, second = (taut.plan(asked(work_limit=6)) for _ in range(2))
    assert first.document["both_spaces"] == second.document["both_spaces"]
    other = first.document[NAME]
    assert first.sections.provenance["work"] + other.get("provenance", {"work": 0})["work"] <= 6
    assert first.step_time_s == second.step_time_s and first.verify().holds


@pytest.mark.proof
def test_the_status_is_that_of_both(found: Plan) -> None:
    """A plan that is optimal in its own space is not where the other one has no bound; what is stated is checked."""
    values = {name: value for name, value in found.document.items() if name != "both_spaces"}
    best = type(found)({**values, NAME: {"status": "unknown", "lower_bound_s": None}})
    assert best.status == "feasible" and "feasible: lower bound of both spaces unknown" in best.spaces[0]
    stated = found.document["both_spaces"]
    assert stated == {"status": found.status, "lower_bound_s": found.lower_bound_s, "gap": found.gap}
    assert "status      " + found.status in str(found) and "this space  " + found.sections.status in str(found)
    for changed in ({**stated, "status": "unknown"}, {**stated, "gap": 0.5}, {**stated, "lower_bound_s": None}):
        assert not verify_plan({**found.document, "both_spaces": changed}).holds
    assert not verify_plan({name: value for name, value in found.document.items() if name != NAME}).holds


@pytest.mark.proof
def test_python_plans_both_when_asked(found: Plan) -> None:
    """``taut.plan`` returns the better plan of both spaces, as the command does; methods have one."""
    assert taut.plan(asked()).document["both_spaces"] == found.document["both_spaces"]
    assert taut.plan(asked(), method="megatron").other_space is None


@pytest.mark.parametrize(
    "options",
    [{"cluster": "dgx-a100"}, {"stack": None}, {"stack": "megatron-core"}, {"stack": "any", "latency_model": "amp"}],
    ids=["one type", "no stack", "one degree", "paper"],
)
def test_other_requests_have_one_space(options: dict[str, Any]) -> None:
    """One type of device, stacks without meshes, no stack, and the papers' models are searched as before."""
    given = {"cluster": CLUSTER, "stack": "flagscale", **options}
    assert not has_meshes(taut.PlanRequest("gpt2-345m", given.pop("cluster"), global_batch=8, **given))
    assert has_meshes(asked())


def test_a_degree_for_all_stages_leaves_out_meshes() -> None:
    """With a tensor degree fixed the plan is that of one degree, and a warning says so."""
    with pytest.warns(UserWarning, match="plans of meshes are not searched: fix: tp=2"):
        assert taut.plan(asked(fix={**FIXED, "tp": 2})).other_space is None


@pytest.mark.proof
def test_command_line_plans_both(tmp_path: Path, found: Plan) -> None:
    """``taut plan`` writes the better plan with the other; verify, show and export take the file."""
    cluster, out = tmp_path / "cluster.yaml", tmp_path / "plan.json"
    cluster.write_text(yaml.safe_dump(CLUSTER))
    words = ["gpt2-345m", str(cluster), "--global-batch", "8", "--fix", "pp=2,zero=1,recompute=none", "--quiet"]
    printed = run_command(["taut", "plan", *words, "--stack", "flagscale", "--out", str(out)])
    assert "lower bound of both" in printed and "lower bound of both" in run_command(["taut", "show", str(out)])
    assert json.loads(out.read_text())["certificate"]["objective_s"] == found.step_time_s
    assert "bound of both spaces" in run_command(["taut", "verify", str(out)])
    assert "train.yaml" in run_command(["taut", "export", str(out), "--to", "flagscale", "--out", str(tmp_path / "l")])
