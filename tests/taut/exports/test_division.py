"""
Megatron-LM's flags of a division state it, with a layout or without.

Layouts of Megatron-LM: ours, the vendor's, and wrong ones.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import taut
from taut.data.stack import Form
from taut.errors import DataError
from taut.exports.architecture import division_flags, layers_of, layout_of, stated_division
from taut.exports.job import Job
from taut.exports.megatron import megatron_flags
from taut.formulations.divisions import listed

FORMS: tuple[Form, ...] = ("even", "with-ends", "first-last")
SHAPES = [(1, 1), (2, 1), (3, 1), (4, 1), (2, 2), (3, 2), (2, 3)]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("pp", "vpp"), SHAPES)
def test_stated_divisions_are_read_back_without_a_layout(form: Form, pp: int, vpp: int) -> None:
    """Every division of 6 to 13 layers that a form states has flags, none of them a layout, that say it."""
    for total in range(6, 14):
        known = listed([form], total, "interleaved-1f1b" if vpp > 1 else "1f1b", pp, vpp)
        for layers in map(tuple, [] if known is None else known.tolist()):
            flags = division_flags(layers, pp, [form])
            assert "--pipeline-model-parallel-layout" not in flags
            assert stated_division({"--num-layers": str(total), **flags}, pp) in ((vpp, layers), (vpp, ()))
            assert len(set(layers)) == 1 or stated_division({"--num-layers": str(total), **flags}, pp)[1]


def test_a_stack_with_layouts_needs_no_other_flags() -> None:
    """Where a layout can be stated it is, and so for a form that Megatron-LM has no flags of."""
    assert list(division_flags((3, 4, 4, 3), 4, ["with-ends", "layout"])) == ["--pipeline-model-parallel-layout"]
    assert list(division_flags((4, 4, 3, 3), 4, ["balanced"])) == ["--pipeline-model-parallel-layout"]


def test_a_plan_of_a_stack_without_layouts_is_launched_without_one() -> None:
    """The flags of its first and last rank are those of the plan."""
    older = taut.Stack(
        name="older",
        description="without layouts",
        schedules=["1f1b"],
        recompute_by_stage=False,
        divisions=["even", "first-last"],
        zero=[0, 1],
    )
    fix = {"pp": 4, "tp": 1, "micro_batch": 2}
    job = Job(taut.plan("gpt2-345m", "dgx-a100", global_batch=16, stack=older, fix=fix))
    flags = megatron_flags(job)
    own = flags["--decoder-first-pipeline-num-layers"], flags["--decoder-last-pipeline-num-layers"]
    assert own == (str(job.layers[0]), str(job.layers[-1])) and not job.is_even


@pytest.mark.parametrize(
    "flags",
    [
        {"--num-layers": "10", "--account-for-loss-in-pipeline-split": None},
        {"--num-layers": "10", "--decoder-first-pipeline-num-layers": "10"},
        {"--num-layers": "10", "--decoder-first-pipeline-num-layers": "2", "--decoder-last-pipeline-num-layers": "3"},
        {
            "--num-layers": "12",
            "--decoder-first-pipeline-num-layers": "3",
            "--num-virtual-stages-per-pipeline-rank": "2",
        },
    ],
)
def test_flags_that_divide_nothing_are_refused(flags: dict[str, str | None]) -> None:
    """Eleven layers on four ranks, none left for three, five for two, and odd ones for two chunks."""
    with pytest.raises(DataError, match="expected"):
        stated_division(flags, 4)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=40).filter(any))
def test_a_layout_is_read_back(layers: list[int]) -> None:
    """Any numbers of layers, chunks without one included."""
    assert layers_of(layout_of(tuple(layers))) == tuple(layers)


@pytest.mark.parametrize(
    ("layout", "layers"),
    [
        ("Et*4|(t*4|)*14tmL", (4,) * 15 + (1,)),
        ("Et*2|(t*2|)*34,t*3|(t*2|)*3,tL", (2,) * 35 + (3, 2, 2, 2, 1)),
        ("Ett|tt|tL", (2, 2, 1)),
        ("E|(t|)*3L", (0, 1, 1, 1, 0)),
    ],
)
def test_layouts_of_published_recipes(layout: str, layers: tuple[int, ...]) -> None:
    """DeepSeek-V3's in MLPerf, Llama-3 70B's in Megatron-Bridge, and short ones by hand."""
    assert layers_of(layout) == layers


@pytest.mark.parametrize("layout", ["", "E", "Et*3", "tE|L", "Et|x|tL", "(" * 9 + "t" + ")*9" * 9, "Et*99999999L"])
def test_wrong_layouts_are_refused(layout: str) -> None:
    """Letters out of place, unknown ones, groups in groups, and counts that no model has; an open end is none."""
    if layout == "Et*3":
        assert layers_of(layout) == (3,)
        return
    with pytest.raises(DataError, match="layout"):
        layers_of(layout)
