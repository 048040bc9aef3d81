"""Two plans on one page: the difference by part, one axis for both, and no markup from names."""

import re
from pathlib import Path

import pytest

import taut
from taut import Plan
from taut.comparison.result import compare_plans
from taut.reports.page.page import differences, pair_page
from tests.support.plans import PARTS, made_plan
from tests.taut.conftest import Run, refused
from tests.taut.planning.test_meshes import CLUSTER
from tests.taut.reports.test_page import HOSTILE, Page, renamed, words_on_a_telephone


def test_differences_add_up_to_the_step() -> None:
    """Plans of 2 s and 1.5 s: 0.25 s less computation, and half of the tensor traffic; nothing else differs."""
    fewer = dict(zip(PARTS, (0.75, 0.25, 0.25, 0.125, 0.125, 0.0), strict=True))
    one, other = made_plan(), made_plan(predicted={"breakdown_s": fewer, "step_time_s": 1.5})
    found = differences(one, other)
    assert {words: seconds for words, seconds in found.items() if seconds} == {
        "computation": -0.25,
        "tensor-parallel all-reduces": -0.25,
    }
    assert sum(found.values()) == other.step_time_s - one.step_time_s
    assert differences(other, one) == {words: -seconds for words, seconds in found.items()}


def test_command_draws_files_of_plans_alone(run: Run, tmp_path: Path) -> None:
    """A model and a cluster are no plans, and a picture is no page; nothing is written."""
    page, given = tmp_path / "page.html", ("compare", "gpt2-345m", "dgx-a100", "--global-batch", 32)
    refused(run(*given, "--current", "tp=8", "--plot", page), "--plot")
    refused(run("compare", "a.json", "b.json", "--plot", tmp_path / "page.png"), "ends in .html")
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def plans() -> tuple[Plan, Plan]:
    """Two plans of GPT-2 345M on one node: two stages, and four with two chunks each."""
    two = taut.plan("gpt2-345m", "dgx-a100", global_batch=32, fix={"pp": 2, "tp": 1, "micro_batch": 4})
    fix: dict[str, int | str] = {"pp": 4, "vpp": 2, "tp": 1, "micro_batch": 1, "schedule": "interleaved-1f1b"}
    return two, taut.plan("gpt2-345m", "dgx-a100", global_batch=32, fix=fix, work_limit=20)


@pytest.mark.proof
def test_both_steps_end_on_one_axis(plans: tuple[Plan, Plan]) -> None:
    """The dashed lines lie at shares of the longer step, and the last label of the axis is that step."""
    text = pair_page(*plans, ("two.json", "four.json"), compare_plans(*plans))
    ends = [float(x) for x in re.findall(r'<line x1="([0-9.]+)"[^>]*class="bound"', text)]
    seconds = [plan.step_time_s for plan in plans]
    assert [(x - 64) / (960 - 64 - 90) for x in ends] == pytest.approx([each / max(seconds) for each in seconds], 1e-4)
    assert f"{max(seconds):.4g} s</text>" in text
    tags = [tag for tag, _ in Page(text).tags]
    assert tags.count("svg") == 3 and words_on_a_telephone(text) == [12] * 3
    assert text.count("stage 3</text>") == 2, "four stages of the second plan, in timeline and memory"


@pytest.mark.proof
def test_names_stay_text(plans: tuple[Plan, Plan]) -> None:
    """Names of files and of a plan's inputs add no tag."""
    usual, hostile = (
        Page(pair_page(*plans, (name, "b"), [("model", name, name), *compare_plans(*plans)])) for name in ("a", HOSTILE)
    )
    assert [tag for tag, _ in hostile.tags] == [tag for tag, _ in usual.tags]
    assert hostile.scripts == usual.scripts
    one = renamed(plans[0], HOSTILE)
    undrawn = pair_page(one, plans[1], ("a", "b"), compare_plans(one, plans[1]))
    assert "cannot be drawn: &lt;/script&gt;" in undrawn and Page(undrawn).scripts == usual.scripts


@pytest.mark.proof
def test_meshes_stand_beside_one_degree(run: Run, tmp_path: Path) -> None:
    """Passes of meshes hold the traffic of tensor ranks, so computation and traffic of the other plan are one part."""
    files = [tmp_path / name for name in ("meshes.json", "one.json")]
    plans = [
        taut.plan("gpt2-345m", CLUSTER, global_batch=16, max_tp=4, **given)
        for given in ({"method": "meshes"}, {"stack": "flagscale", "work_limit": 20})
    ]
    for file, plan in zip(files, plans, strict=True):
        plan.write(file)
    page = tmp_path / "page.html"
    outcome = run("compare", *files, "--plot", page)
    assert outcome.code == 0 and "step time" in outcome.out
    assert "passes with tensor-parallel traffic" in page.read_text()
    found = differences(*plans)
    assert sum(found.values()) == pytest.approx(plans[1].step_time_s - plans[0].step_time_s, abs=1e-9)
