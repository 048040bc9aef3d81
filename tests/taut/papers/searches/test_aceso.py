"""Aceso's searches: their plans by its own formula, the rows of the table, and one line for what is wrong."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from taut.errors import DataError
from taut.papers.searches.aceso import (
    AcesoRow,
    AcesoTable,
    price_of_plan,
    problem_of,
    read_operator_plans,
    reproduce_aceso,
    table_of_plans,
)
from taut.papers.searches.table import reproduce_searches

DATA = Path(os.environ.get("TAUT_SHARED_DATA", "absent"))
HEADER = "op_name,forward-compute,backward-compute,input_size,output_size,weights,activations,fwd_reserved,bwd_reserved"
OPERATORS = """encoder-embedding,1000,2000,1,8,100,8,10,10
enc-1st-layernorm,1000,1000,8,8,0,8,0,10
enc-MLP-GEMM-1,2000,4000,8,8,10,16,0,10
enc-post-MLP-dropout,1000,1000,8,8,0,16,0,10
final-layernorm,1000,1000,8,8,0,8,0,10
gpt-post-process,4000,8000,8,0,100,20,0,0
"""
COLUMNS = "gpu,system,size,n_gpus,num_layers,hidden,heads,seq,gbs,mbs,ops_per_stage,tp_by_stage,dp_by_stage,"
COLUMNS += "recomputed_ops_by_stage,predicted_memory_mb,predicted_step_ms,search_cost_s,measured_step_ms"


def _cells(line: str) -> list[str]:
    return line.split(",")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model of two layers on two L4, two samples slower than one twice, and a plan of uneven stages."""
    profiles = tmp_path / "profiles" / "profiled-time-mist-all-l4"
    profiles.mkdir(parents=True)
    twice = [[name, *(f"{2.1 * float(cell):g}" for cell in cells)] for name, *cells in map(_cells, OPERATORS.split())]
    for tp in (1, 2):
        (profiles / f"gpt_1_3B_mbs1_tp{tp}_algo0.csv").write_text(f"{HEADER}\n{OPERATORS}", encoding="utf-8")
        text = "\n".join([HEADER, *(",".join(line) for line in twice)])
        (profiles / f"gpt_1_3B_mbs2_tp{tp}_algo0.csv").write_text(text, encoding="utf-8")
    for name in ("intra", "inter"):
        (profiles / f"p2p_{name}_node.csv").write_text("1,2,4,8\n8,8,8,8\n", encoding="utf-8")
    (profiles / "prim_gpt_1_3B_all_reduce_2gpus.csv").write_text("data_size(MB),time(ms)\n8,1\n", encoding="utf-8")
    plan = "l4,aceso,1_3B,2,2,64,8,128,8,1,1 8,1x1 | 1x8,1x1 | 1x8,0 0,900 1900,280,2.5,300\n"
    (tmp_path / "aceso_plans.csv").write_text(f"{COLUMNS}\n{plan}", encoding="utf-8")
    return tmp_path


def test_a_published_plan_is_priced_by_hand(folder: Path) -> None:
    """
    Stage 1 takes 3 ms and messages of 1 and 8 MiB, 0.125 + 1 ms; stage 2 35 ms and one of 8 MiB; 7 more of the second.

    Of two layers with 4 + 6 ms each, 2 of the norm and 12 of the output layer, all but the head are in stage 2.
    """
    (plan,) = read_operator_plans(folder / "aceso_plans.csv")
    found = price_of_plan(problem_of(folder, plan), plan)
    second = 2 * (2 + 6 + 2) + 2 + 12 + 1
    assert found.stages.tolist() == pytest.approx([4.125e-3, second * 1e-3])
    assert found.step == pytest.approx((4.125 + 8 * second) * 1e-3)


@pytest.mark.proof
def test_a_better_plan_is_found_and_proven(folder: Path) -> None:
    """One stage of two replicas, whose reductions do not count: four times 37 ms and a message of 1 MiB."""
    (row,) = reproduce_aceso(folder).rows
    assert row.best == "mb 2, 1 x tp 1 dp 2" and row.best_s == pytest.approx(4 * 37.125e-3)
    assert row.best_s * (1 - 1e-4) <= row.lower_bound_s <= row.best_s
    assert row.distance == pytest.approx(284.125 / 148.5 - 1, rel=1e-4) and row.measured_s == pytest.approx(0.3)
    assert "Aceso on l4, gpt-1.3b" in row.command


def test_equal_degrees_are_priced_by_taut_too(folder: Path) -> None:
    """
    Two stages of one layer: head 3 ms and layer 10, layer 10 and tail 14, and messages of a few microseconds.

    Of the best plan, two replicas of the whole, a step takes four times 37 ms, and gradients are reduced.
    """
    (row,) = reproduce_aceso(folder, time_limit=5.0).rows
    assert row.ours is not None and row.ours.theirs_s is not None and row.ours.best_s is not None
    assert row.ours.theirs_s == pytest.approx((7 * 24 + 13 + 24) * 1e-3, rel=0.01)
    assert row.ours.best_s == pytest.approx(4 * 37e-3, rel=0.05)
    assert row.ours.distance is not None and row.ours.distance > 0.3


def test_stages_of_unlike_degrees_are_not_priced_by_taut(folder: Path) -> None:
    """Such a plan has no counterpart, and the table says so."""
    path = folder / "aceso_plans.csv"
    path.write_text(
        path.read_text(encoding="utf-8").replace("1x1 | 1x8,1x1 | 1x8", "2x1 | 1x8,1x1 | 1x8"), encoding="utf-8"
    )
    table = reproduce_aceso(folder)
    assert table.rows[0].ours is None and "not priced" in str(table)


def test_the_command_prints_searches_beside_other_plans(folder: Path) -> None:
    """A folder with this table alone is enough; names choose searches."""
    table = reproduce_searches(folder, only="aceso on L4")
    assert table.aceso is not None and len(table.aceso.rows) == 1 and not table.rows
    assert str(table) == str(table.aceso) and "mb 1, 2 x tp 1" in str(table)
    assert table.as_dict()["aceso"][0]["distance"] == table.aceso.rows[0].distance
    empty = reproduce_searches(folder, only="nobody").aceso
    assert empty is not None and not empty.rows


def test_searches_on_other_numbers_of_devices_are_rows_of_their_own(folder: Path) -> None:
    """The name of a search has device and model alone, which plans on two and on four devices share."""
    path = folder / "aceso_plans.csv"
    plan = "l4,aceso,1_3B,4,2,64,8,128,8,1,1 4 4,1x1 | 1x4 | 2x4,1x1 | 1x4 | 1x4,0 0 0,900 900 900,280,2.5,300\n"
    path.write_text(path.read_text(encoding="utf-8") + plan, encoding="utf-8")
    assert [row.gpus for row in reproduce_aceso(folder, time_limit=1.0).rows] == [2, 4]


def test_a_row_without_a_better_plan_says_the_same() -> None:
    """A search whose plan is the best has distance 0; one with a gap was ended by its limit, and is marked."""
    row = AcesoRow(
        gpu="l4",
        model="gpt-1.3b",
        gpus=2,
        global_batch=8,
        choice="mb 1, 2 x tp 1",
        predicted_s=2.0,
        measured_s=None,
        search_s=2.0,
        best="the same",
        best_s=2.0,
        lower_bound_s=2.0,
        wall_s=1.0,
    )
    assert row.distance == 0 and str(AcesoTable((row,))).splitlines()[1].endswith("not priced     -      -    -")
    assert not row.is_cut_off and "0.00 %  1 s" in str(AcesoTable((row,)))
    words = str(AcesoTable((replace(row, lower_bound_s=1.5),)))
    assert "25.00 %*" in words and words.endswith("* a limit ended this search")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("1x8,0 0", "1x8,0 1", "plan of 2 stages on l4: stage 1 recomputes 0 operators, expected 1"),
        ("1 8,1x1", "1 9,1x1", "plan of 2 stages on l4: holds 10 operators, expected 9"),
        ("1x1 | 1x8,1x1", "4x1 | 1x8,1x1", "tensor degree 4 was not profiled at 1 samples"),
        ("l4,aceso", "t4,aceso", "unknown device t4, expected l4, a10g"),
        ("l4,aceso", "a10g,aceso", "no folder profiled-time-mist-all-a10g"),
    ],
)
def test_what_does_not_agree_is_refused(folder: Path, old: str, new: str, message: str) -> None:
    """One line names the plan, the stage and what was expected."""
    path = folder / "aceso_plans.csv"
    path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    with pytest.raises(DataError, match=message):
        reproduce_aceso(folder)


def test_a_folder_without_the_table_is_refused(tmp_path: Path) -> None:
    """One line names the file."""
    assert table_of_plans(tmp_path) is None
    with pytest.raises(DataError, match=r"no file aceso_plans\.csv"):
        reproduce_aceso(tmp_path)


@pytest.mark.skipif(table_of_plans(DATA) is None, reason="TAUT_SHARED_DATA holds no plans of Aceso")
def test_every_published_plan_is_priced_as_aceso_priced_it() -> None:
    """All 174 plans on L4, A10G and A100: steps to a millionth, memory to a hundredth of a MiB, same recomputation."""
    table = table_of_plans(DATA)
    assert table is not None
    plans = read_operator_plans(table)
    for plan in plans:
        found = price_of_plan(problem_of(DATA, plan), plan)
        assert found.step == pytest.approx(plan.predicted_s, rel=1e-6)
        assert found.memory.tolist() == pytest.approx([stage.predicted_bytes for stage in plan.stages], abs=2**20 / 100)
    assert len(plans) == 174


@pytest.mark.proof
def test_degrees_without_costs_are_not_priced_by_taut(folder: Path) -> None:
    """Operators of a million times the speed are left out of the costs, and plans of their degree have no price."""
    for path in folder.glob("profiles/*/gpt_1_3B_mbs?_tp1_algo0.csv"):
        lines = [line.split(",") for line in path.read_text(encoding="utf-8").splitlines()]
        quick = [[name, *(f"{float(cell) / 1e6:g}" for cell in cells[:2]), *cells[2:]] for name, *cells in lines[1:]]
        path.write_text("\n".join(",".join(line) for line in [lines[0], *quick]), encoding="utf-8")
    (row,) = reproduce_aceso(folder, time_limit=1.0).rows
    assert row.ours is None and "not priced" in str(AcesoTable((row,)))
