"""``taut.pack`` and ``taut pack``: the plan's own step, attention by length, words, picture, and what is refused."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import taut
from taut.packing import plot_packing
from taut.simulation import of_plan
from taut.solver.packing.rules import RULES
from taut.solver.packing.step_graph import packed_step
from tests.taut.conftest import Run, refused

FIX: dict[str, int | str] = {"pp": 2, "tp": 2, "micro_batch": 4, "recompute": "none", "schedule": "1f1b", "zero": 0}


@pytest.fixture(scope="module")
def plan() -> taut.Plan:
    """Two stages and two replicas on eight devices, sequences of 1,024 tokens."""
    return taut.plan("gpt2-345m", "dgx-a100", global_batch=32, fix=FIX)


@pytest.fixture(scope="module")
def file(plan: taut.Plan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The plan's file."""
    path = tmp_path_factory.mktemp("packing") / "plan.json"
    plan.write(path)
    return path


@pytest.mark.parametrize(
    "fix",
    [
        FIX,
        FIX | {"schedule": "interleaved-1f1b", "vpp": 2, "pp": 4, "tp": 1},
        FIX | {"schedule": "zb-h1"},
        FIX | {"recompute": "full"},
        FIX | {"schedule": "gpipe", "recompute": "selective"},
        FIX | {"pp": 1, "zero": 3},
    ],
    ids=lambda fix: f"{fix['schedule']}-{fix['recompute']}-{fix['pp']}",
)
def test_full_micro_batches_are_the_plan(fix: dict[str, int | str]) -> None:
    """Sequences of the plan's length give its step under every schedule; shares of passes are shares."""
    made = taut.plan("gpt2-345m", "dgx-a100", global_batch=32, fix=fix, stack="any", time_limit=2)
    packed = packed_step(*of_plan(made), "a plan")
    graph = packed.graph
    full = np.repeat(packed.features(np.array([1024])), packed.budget // 1024, axis=0).sum(axis=0)
    assert full.tolist() == pytest.approx([1.0, 1.0])
    step = float(graph.steps(np.ones((graph.replicas, graph.micro_batches, 2))))
    assert step == pytest.approx(made.step_time_s, rel=1e-9)
    assert graph.beside >= -1e-9
    assert (graph.slope >= 0).all()
    assert (graph.fixed >= 0).all()
    assert 0 < graph.slope[..., 1].sum() < graph.slope.sum()


def test_attention_shrinks_as_its_operators_do(plan: taut.Plan, tmp_path: Path) -> None:
    """
    Sequences of 256 tokens, packed four by four, take what a plan of 256 tokens and four times the samples takes.

    Within 1 %: shorter passes hide less of their launches, which a packed step takes as they are.
    """
    path = tmp_path / "lengths"
    path.write_text("256\n")
    found = taut.pack(plan, path, draws=2)
    quarters = taut.plan("gpt2-345m", "dgx-a100", global_batch=128, seq=256, fix=FIX | {"micro_batch": 16})
    assert found.plan_step_s == pytest.approx(plan.step_time_s)
    assert plan.step_time_s > 1.01 * quarters.step_time_s
    assert found.rules[0].step_s == pytest.approx(quarters.step_time_s, rel=0.01)
    assert (found.fill, found.sequences) == (1.0, 128.0)
    assert found.rules[0].gap < 0.03


def test_rules_are_above_the_bound_in_every_step(plan: taut.Plan) -> None:
    """The same drawn steps for every rule; the mean bound is below every mean, and without packing all take longer."""
    found = taut.pack(plan, "recipe-sft", draws=5, seed=7, drop_longer=True)
    assert [rule.rule for rule in found.rules] == list(RULES)
    for rule in found.rules:
        assert all(low <= step for low, step in zip(found.bounds_s, found.steps_s[rule.rule], strict=True))
        assert rule.step_s == pytest.approx(float(np.mean(found.steps_s[rule.rule])))
        assert rule.tokens_per_s == pytest.approx(found.tokens / rule.step_s)
        assert rule.unlike_micro_batches >= rule.unlike_replicas >= 1.0
        assert rule.step_s < found.unpacked_s
    assert found.as_dict() == taut.pack(plan, "recipe-sft", draws=5, seed=7, drop_longer=True).as_dict()
    assert found.bounds_s != taut.pack(plan, "recipe-sft", draws=5, seed=8, drop_longer=True).bounds_s


def test_attention_has_more_of_the_work_of_longer_sequences(plan: taut.Plan, tmp_path: Path) -> None:
    """From 64 tokens to the plan's own share."""
    shares = []
    for tokens in (64, 256, 1024):
        (path := tmp_path / f"{tokens}.csv").write_text(f"length,count\n{tokens},3\n")
        shares.append(taut.pack(plan, path, draws=1).attention)
    assert all(short < long for short, long in pairwise(shares))
    assert shares[-1] == pytest.approx(taut.pack(plan, path, draws=1).attention_of_plan)


def test_context_ranks_may_be_dynamic(plan: taut.Plan) -> None:
    """A plan of one stage with context ranks has them, in words too; the plan of two stages has not."""
    fix: dict[str, int | str] = {"pp": 1, "tp": 1, "cp": 4, "micro_batch": 1}
    of_one_stage = taut.plan("gpt2-345m", "dgx-a100", global_batch=32, fix=fix)
    found = taut.pack(of_one_stage, "recipe-sft", draws=3, drop_longer=True)
    assert found.dynamic_s is not None
    assert found.dynamic_bound_s is not None
    assert found.dynamic_bound_s <= found.dynamic_s < found.rules[0].step_s
    assert "dynamic contexts" in str(found)
    assert found.bound_s <= min(rule.step_s for rule in found.rules)
    of_two = taut.pack(plan, "recipe-sft", draws=1, drop_longer=True)
    assert of_two.dynamic_s is None
    assert "dynamic" not in str(of_two)


@pytest.mark.proof
def test_a_search_suits_the_lengths(run: Run, file: Path, tmp_path: Path) -> None:
    """The plan found is no slower than the given one, above the bound of its space, verified, and not packed again."""
    out = tmp_path / "packed.json"
    words = ("pack", file, "--lengths", "recipe-sft", "--drop-longer", "--draws", 3)
    found = json.loads(run(*words, "--search", 5, "--out", out, "--json").out)
    assert 0 < found["best"]["bound_s"] <= found["best"]["step_s"]
    assert found["best"]["step_s"] <= min(rule["step_s"] for rule in found["rules"])
    assert found["bound_s"] > 0
    assert "document" not in found["best"]
    assert run("verify", out).code == 0
    assert "bound on the mean step of every plan of the space" in run(*words, "--search", 5).out
    refused(run("pack", out, "--lengths", "recipe-sft"), "was priced for packed sequences, expected the plan that")
    refused(run(*words, "--out", tmp_path / "none.json"), "has no effect without --search")
    refused(run(*words, "--search", 0), "--search 0: expected seconds above 0")


def test_command_prints_draws_and_writes(run: Run, file: Path, tmp_path: Path) -> None:
    """Words, JSON and a picture."""
    picture = tmp_path / "packing.png"
    words = ("pack", file, "--lengths", "recipe-sft", "--drop-longer", "--draws", 3, "--seed", 2)
    printed = run(*words, "--plot", picture)
    assert printed.code == 0
    for part in ("3 drawn with seed 2", "two-level", "The bound holds for", "are longer than 1024 and left out"):
        assert part in printed.out
    assert picture.read_bytes().startswith(b"\x89PNG")
    figures = json.loads(run(*words, "--json").out)
    assert figures["bound_s"] <= min(rule["step_s"] for rule in figures["rules"])
    found = taut.pack(file, "recipe-sft", draws=3, seed=2, drop_longer=True)
    assert found.as_dict() == {**figures, "rules": tuple(figures["rules"])}
    axes = plot_packing(found)
    assert [line.get_label() for line in axes.lines] == [*RULES, "bound"]


def test_plan_for_lengths(run: Run, tmp_path: Path) -> None:
    """One command writes the plan that packs best, which verifies; options of full sequences are refused."""
    lengths, out = tmp_path / "lengths.csv", tmp_path / "plan.json"
    lengths.write_text("100,3\n900\n")
    words = ("plan", "gpt2-345m", "dgx-a100", "--global-batch", 16, "--fix", "pp=1,tp=1", "--lengths", lengths)
    printed = run(*words, "--out", out, "--quiet")
    assert printed.code == 0 and "best found" in printed.out and "bound on the mean step of every plan" in printed.out
    assert run("verify", out).code == 0
    refused(run(*words[:-1], tmp_path / "none.csv"), "none.csv: No such file")
    refused(run(*words, "--stack-price"), "--stack-price: is of one plan, expected none")
    refused(run(*words, "--objective", "gpus", "--steps", 3), "is of one plan, expected none with an objective")
    lengths.write_text("4096\n")
    refused(run(*words, "--quiet"), "has a sequence of 4096 tokens, expected at most 1024")


def test_command_refuses_in_one_line(run: Run, file: Path, tmp_path: Path) -> None:
    """Lengths above the plan's, files without any, and options out of range; nothing is written."""
    path, picture = tmp_path / "lengths.csv", tmp_path / "p.png"
    words = ("pack", file, "--lengths", path, "--plot", picture)
    for text, expected in (
        (
            "1024\n1025\n",
            "has a sequence of 1025 tokens, expected at most 1024, the plan's (or taut pack --drop-longer)",
        ),
        ("-1\n", "lengths.csv line 1: length is -1, expected a whole number"),
        ("0,4\n", "lengths.csv line 1: length is 0, expected"),
        ("ten\n", "lengths.csv line 1: length is ten, expected"),
        ("", "lengths.csv: holds no length"),
        ("10,0\n", "lengths.csv: all counts are 0"),
    ):
        path.write_text(text)
        refused(run(*words), expected)
    path.write_text("4096\n")
    refused(run(*words, "--drop-longer"), "the shortest sequence has 4096 tokens, expected at most 1024")
    path.write_text("100\n")
    refused(run(*words, "--draws", 0), "--draws 0: expected a whole number from 1")
    refused(run(*words, "--seed", -1), "--seed -1: expected a whole number of at least 0")
    refused(run(*words, "--room", 100), "--room 100: expected at least 4096, the tokens of the plan's micro-batch")
    refused(run(*words[:3], tmp_path / "none.csv"), "none.csv: No such file")
    refused(run(*words[:3], "wikipedi"), "wikipedia")
    refused(run("pack", tmp_path / "none.json", "--lengths", path), "none.json: No such file")
    refused(run(*words[:4], "--plot", "p.gif"), "--plot p.gif: expected a name")
    assert not picture.exists()
