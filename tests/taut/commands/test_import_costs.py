"""``taut import sailor`` and ``taut import galvatron``."""

import json
from pathlib import Path

import pytest

from taut.data.costs import read_costs
from tests.taut.conftest import Run

MODEL = "{layers: 4, hidden: 64, heads: 4, seq: 64, vocab: 1024}\n"
CLUSTER = """
nodes: [{count: 2, device: a100-40gb, gpus_per_node: 2, intra_bandwidth_gbps: 2000, intra_latency_us: 3}]
network: {bandwidth_gbps: 100, latency_us: 5}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model, a cluster, and a profile of either tool."""
    layers = [[1e-5, 0.0, 1e-6], *[[1e-3, 2e-3, 1e-6]] * 4, [5e-4, 1e-3, 1e-6]]
    split = [[2e-5, 0.0, 1e-6], *[[6e-4, 1.2e-3, 1e-6]] * 4, [3e-4, 6e-4, 1e-6]]
    numbered = [{str(i): layer for i, layer in enumerate(run)} for run in (layers, split)]
    profile = {batch: {"1": numbered[0], "2": numbered[1]} for batch in ("1", "2")}
    (tmp_path / "profile.json").write_text(json.dumps(profile), encoding="utf-8")
    times = {f"layernum[{n}]_bsz{b}_seq64": b * (1.0 + n) for n in (2, 4) for b in (1, 2, 4)}
    (tmp_path / "computation.json").write_text(json.dumps(times), encoding="utf-8")
    acts = {f"layernum[{n}]_bsz8_seq64_rank0_act": 2.0 + n for n in (1, 2)}
    (tmp_path / "memory.json").write_text(json.dumps({"1_1_8": acts}), encoding="utf-8")
    (tmp_path / "tiny.yaml").write_text(MODEL, encoding="utf-8")
    (tmp_path / "four.yaml").write_text(CLUSTER, encoding="utf-8")
    return tmp_path


def test_sailor_table_plans(run: Run, folder: Path) -> None:
    """The table is written, its rows are counted on stderr, and a plan made with it names where it comes from."""
    model, table = folder / "tiny.yaml", folder / "table.csv"
    found = run(
        *("import", "sailor", folder / "profile.json", "--model", model, "--device", "a100-40gb", "--out", table)
    )
    assert (found.code, found.out, found.err) == (0, "", f"{table}: 12 rows\n")
    assert len(read_costs(table).rows) == 12
    words = ("--global-batch", "8", "--profile", table, "--precision", "fp32", "--quiet", "--json")
    planned = run("plan", model, folder / "four.yaml", *words)
    assert planned.code == 0
    document = json.loads(planned.out)
    assert document["strategy"]["tp"] in (1, 2)
    assert "Sailor profile.json: tiny on a100-40gb" in document["inputs"]["costs"]["spec"]["basis"]


def test_galvatron_table_plans(run: Run, folder: Path) -> None:
    """The table has tensor degree 1 alone, so the plan has."""
    model, table = folder / "tiny.yaml", folder / "table.csv"
    given = (folder / "computation.json", "--memory", folder / "memory.json", "--model", model)
    found = run("import", "galvatron", *given, "--device", "a100-40gb", "--out", table)
    assert (found.code, found.out, found.err) == (0, "", f"{table}: 9 rows\n")
    words = ("--global-batch", "8", "--profile", table, "--quiet", "--json")
    planned = run("plan", model, folder / "four.yaml", *words)
    assert planned.code == 0
    assert json.loads(planned.out)["strategy"]["tp"] == 1


def test_sequence_length_is_the_models_unless_stated(run: Run, folder: Path) -> None:
    """The profile holds at the length that --seq states, and Galvatron's must be there."""
    model, table = folder / "tiny.yaml", folder / "table.csv"
    given = ("--model", model, "--device", "a100-40gb", "--out", table, "--seq", "32")
    assert run("import", "sailor", folder / "profile.json", *given).code == 0
    assert {row.seq for row in read_costs(table).rows} == {32}
    found = run("import", "galvatron", folder / "computation.json", *given)
    assert found.code == 2
    assert "has seq 64, expected times at seq 32" in found.err


@pytest.mark.parametrize("tool", ["sailor", "galvatron"])
@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--device", "abacus", "taut: --device: is 'abacus', expected one of "),
        ("--model", "nothing", "taut: model 'nothing' is not in the catalog"),
        ("--precision", "int3", "taut: --precision int3: expected one of bf16, fp16, fp32"),
        ("--out", "absent/table.csv", "table.csv: "),
    ],
)
def test_wrong_options_are_one_line(run: Run, folder: Path, tool: str, option: str, value: str, message: str) -> None:
    """What does not exist is named, and nothing is written."""
    given = {"--model": folder / "tiny.yaml", "--device": "a100-40gb", "--out": folder / "table.csv", option: value}
    if option == "--out":
        given[option] = folder / value
    path = folder / ("profile.json" if tool == "sailor" else "computation.json")
    found = run("import", tool, path, *(word for pair in given.items() for word in pair))
    assert (found.code, found.out) == (2, "")
    assert message in found.err
    assert found.err.count("\n") == 1
    assert not (folder / "table.csv").exists()


def test_refused_profile_leaves_the_table_alone(run: Run, folder: Path) -> None:
    """A profile that is not one ends with exit code 2, its file and place, and the table as it was."""
    table = folder / "table.csv"
    table.write_text("as it was", encoding="utf-8")
    (folder / "profile.json").write_text('{"1": {"1": {}}}', encoding="utf-8")
    given = ("--model", folder / "tiny.yaml", "--device", "a100-40gb", "--out", table)
    found = run("import", "sailor", folder / "profile.json", *given)
    assert (found.code, found.err) == (
        2,
        f"taut: {folder / 'profile.json'}: 1.1: has 0 layers, expected 6, or 7 with a final norm, "
        "for the 4 blocks of tiny\n",
    )
    assert table.read_text(encoding="utf-8") == "as it was"


@pytest.mark.parametrize(
    ("tool", "options"),
    [
        ("sailor", ["--device", "h100-80gb"]),
        ("sailor", ["--seq", "32"]),
        ("sailor", ["--precision", "bf16"]),
        ("sailor", ["--info-model", "tiny"]),
        ("sailor", ["--estimate-head"]),
        ("galvatron", ["--device", "h100-80gb"]),
        ("galvatron", ["--seq", "32"]),
        ("galvatron", ["--precision", "fp32"]),
        ("galvatron", ["--memory", "memory.json"]),
    ],
)
def test_every_option_changes_the_table_or_is_refused(run: Run, folder: Path, tool: str, options: list[str]) -> None:
    """No option is taken without an effect."""
    profile = folder / ("profile.json" if tool == "sailor" else "computation.json")
    own = [str(folder / word) if word.endswith(".json") else word for word in options]
    given = ("import", tool, profile, "--model", folder / "tiny.yaml", "--device", "a100-40gb")
    plain, changed = folder / "plain.csv", folder / "changed.csv"
    assert run(*given, "--out", plain).code == 0
    found = run(*given, *own, "--out", changed)
    if found.code == 0:
        assert changed.read_text() != plain.read_text()
    else:
        assert (found.code, found.out.count("\n") + found.err.count("\n")) == (2, 1)
