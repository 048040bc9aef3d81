"""JSON Schemas: what taut accepts is valid, what is wrong is found, and the shipped files say where theirs is."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

import taut
from taut.data.read_yaml import read_yaml
from taut.errors import DataError
from taut.schemas import KINDS, schema
from tests.taut.conftest import Run

ROOT = Path(__file__).parents[2]
SECTIONS = {
    "models": "model",
    "clusters": "cluster",
    "stacks": "stack",
    "calibrations": "calibration",
    "memory_models": "memory-model",
}


def complaints(kind: str, values: Any) -> list[str]:
    return [error.message for error in Draft202012Validator(schema(kind)).iter_errors(values)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_schema_is_one(kind: str) -> None:
    """Schemas of a file, and of several by name, keep the rules of JSON Schema."""
    for by_name in (False, True):
        Draft202012Validator.check_schema(schema(kind, by_name=by_name))


@pytest.mark.parametrize("section", SECTIONS)
def test_the_catalog_is_valid_and_names_its_schema(section: str) -> None:
    """A shipped file is valid by the schema that its first line names, which is the one that taut prints."""
    path = ROOT / "data" / "catalog" / f"{section}.yaml"
    first = path.read_text(encoding="utf-8").splitlines()[0]
    named = path.parent / first.removeprefix("# yaml-language-server: $schema=")
    found = json.loads(named.read_text(encoding="utf-8"))
    assert found == schema(SECTIONS[section], by_name=True)
    assert not list(Draft202012Validator(found).iter_errors(read_yaml(path, section, shipped=True)))


@pytest.mark.parametrize(
    ("kind", "text", "wrong"),
    [
        ("cluster", "nodes: [{device: a100-80gb, gpus_per_nod: 8, intra_bandwidth_gbps: 1}]", "gpus_per_nod"),
        ("cluster", "nodes: [{device: a100-80gb, gpus_per_node: -8, intra_bandwidth_gbps: 1}]", "-8"),
        ("model", "{layers: 2, hidden: 64, heads: [4], seq: 8}", "[4]"),
        ("model", "{layers: 2, hidden: 64, heads: 4, seqs: 8}", "seqs"),
        ("stack", "{schedules: [1f1b], recompute: [some]}", "some"),
        ("jobs", "{jobs: [{steps: 3}]}", "'name'"),
        ("sweep", "{model: gpt-tiny, globl_batch: 8}", "globl_batch"),
        ("plan", "{format: taut-plan/2}", "taut-plan/1"),
    ],
)
def test_an_editor_finds_what_is_wrong(kind: str, text: str, wrong: str) -> None:
    """Wrong fields, types and values are complaints that name them."""
    assert any(wrong in each for each in complaints(kind, yaml.safe_load(text)))


def test_forms_of_files_are_valid(tmp_path: Path) -> None:
    """A device described in place, racks as ranges and lists, and a matrix as a path are valid, and are read."""
    values = {
        "nodes": [
            {
                "count": 4,
                "device": {
                    "name": "own",
                    "memory_gib": 40,
                    "peak_tflops": {"bf16": 100},
                    "memory_bandwidth_gbytes": 900,
                },
                "gpus_per_node": 2,
                "intra_bandwidth_gbps": 100,
            }
        ],
        "network": {"bandwidth_gbps": 50, "racks": [{"nodes": "0-1", "bandwidth_gbps": 60}, [2, 3]]},
    }
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump(values))
    assert not complaints("cluster", values) and taut.load_cluster(path).num_devices == 8
    matrix = {**values, "network": {"bandwidth_gbps": 50}, "bandwidth_matrix": "m.csv", "bandwidth_unit": "Gb/s"}
    assert not complaints("cluster", matrix)


def test_a_plan_is_valid(tmp_path: Path) -> None:
    """The document of a plan is valid by the schema of plans."""
    plan = taut.plan("gpt-tiny", "dgx-a100", global_batch=8, schedules=["1f1b"])
    assert not complaints("plan", json.loads(json.dumps(plan.document)))


@pytest.mark.parametrize("kind", ["cluster", "model"])
def test_new_files_are_valid_and_read(kind: str, tmp_path: Path, run: Run) -> None:
    """What ``taut new`` writes is valid, loads as it is, and replaces nothing."""
    path = tmp_path / f"{kind}.yaml"
    assert run("new", kind, "--out", str(path)).code == 0
    text = path.read_text()
    assert run("new", kind).out == text and not complaints(kind, yaml.safe_load(text))
    loaded = taut.load_cluster(path) if kind == "cluster" else taut.load_model(path)
    assert loaded.name == f"my-{kind}"
    again = run("new", kind, "--out", str(path))
    assert again.code == 2 and "is there already" in again.err and path.read_text() == text


def test_the_command_prints_the_schema(run: Run) -> None:
    """``taut schema`` prints the schema, and refuses another kind with the nearest one."""
    assert json.loads(run("schema", "jobs").out) == schema("jobs")
    assert all(kind in run("schema", "--help").out for kind in KINDS)
    wrong = run("schema", "clusters")
    assert wrong.code == 2 and "did you mean cluster?" in wrong.err


def test_what_is_left_to_the_loader(tmp_path: Path) -> None:
    """A rule between fields is the loader's: a valid file may be refused."""
    values = {"layers": 2, "hidden": 64, "heads": 4}
    path = tmp_path / "model.yaml"
    path.write_text(yaml.safe_dump(values))
    assert not complaints("model", values)
    with pytest.raises(DataError, match="seq is missing"):
        taut.load_model(path)
