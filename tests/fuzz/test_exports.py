"""
Launch files of hostile plans: whatever their names, hosts and fields are, nothing is run and nothing made outside.

A plan's file may come from anywhere, with digests that fit it. ``taut.export`` refuses what is hostile in it before a
file is written. The files themselves are tried without that check: whatever a name is, it stays text in every format.
"""

import ast
import copy
import json
import os
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import taut
from taut.data.spec import digest
from taut.errors import DataError
from taut.exports.export import FRAMEWORKS, ORDERS, TARGETS, launch_files
from taut.exports.job import Job
from taut.launchers.recipes import module_fields
from taut.solver.certificate.document import problem_digest
from tests.support.launches import launched

HOSTILE = (
    'x"""\nimport os; os.system("touch PWNED")\ndef taut_plan(cfg):\n    """',
    '"); __import__("os").system("touch PWNED"); ("',
    "$(touch${IFS}PWNED)",
    "`touch PWNED`",
    "';touch PWNED;'",
    "h4;touch PWNED",
    "a b\n#SBATCH --wrap='touch PWNED'",
    "a\\\n$(touch PWNED)",
    "../../PWNED",
    "--script=$(touch PWNED)",
    '!!python/object/apply:os.system ["touch PWNED"]',
    "{__class__} %s %(x)s {0}",
    "<script>alert(1)</script>](javascript:x) | `x`",
    "\u2028import os\x1b[31m",
    "",
)
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "megatron": ("any", {"zero": 1}),
    "megatron-bridge": ("any", {"zero": 1}),
    "torchtitan": ("torchtitan", {"zero": 0}),
    "deepspeed": ("deepspeed", {"tp": 1, "zero": 1}),
    "flagscale": ("any", {"zero": 1}),
    "primus": ("any", {"zero": 1}),
    "verl": ("any", {"zero": 1}),
    "torch-csv": ("any", {"zero": 1}),
}


def plan_of(target: str, hosts: tuple[str, ...] = ()) -> Job:
    """Two stages that the target runs."""
    stack, more = KINDS.get(target, KINDS["megatron"])
    return launched(
        stack=stack, hosts=hosts, pp=2, **{"tp": 2, "micro_batch": 1, "schedule": "1f1b", "recompute": "none", **more}
    )


def redigested(document: dict[str, Any]) -> dict[str, Any]:
    """The document with digests of what it says now, as who forges it would write them."""
    for section in document["inputs"].values():
        section["sha256"] = digest(section["spec"])
    document["certificate"]["problem_sha256"] = problem_digest(document["inputs"], document["certificate"])
    return document


def _name(role: str) -> Callable[[dict[str, Any], str], None]:
    def change(document: dict[str, Any], text: str) -> None:
        document["inputs"][role]["name"] = document["inputs"][role]["spec"]["name"] = text
        if role in ("model", "cluster"):
            document["workload"][role] = text

    return change


def _device(document: dict[str, Any], text: str) -> None:
    old = document["inputs"]["cluster"]["spec"]["nodes"][0]["device"]["name"]
    for node in document["inputs"]["cluster"]["spec"]["nodes"]:
        node["device"]["name"] = text
    costs = document["inputs"]["costs"]["spec"]
    for row in costs["rows"]:
        row["device"] = text
    costs["optimizer_s_per_parameter"] = {text: costs["optimizer_s_per_parameter"][old]}


def _space(name: str, *, listed: bool = False) -> Callable[[dict[str, Any], str], None]:
    def change(document: dict[str, Any], text: str) -> None:
        document["certificate"]["space"][name] = [text] if listed else text

    return change


def _strategy(name: str, count: int = 0) -> Callable[[dict[str, Any], str], None]:
    def change(document: dict[str, Any], text: str) -> None:
        document["strategy"][name] = [text] * count if count else text

    return change


def _dispatch(name: str) -> Callable[[dict[str, Any], str], None]:
    def change(document: dict[str, Any], text: str) -> None:
        document["certificate"]["space"]["dispatch"] = {name: text}

    return change


def _memory(document: dict[str, Any], text: str) -> None:
    document["inputs"]["memory_model"]["spec"]["precision"] = text


NAMES = {"model": _name("model"), "cluster": _name("cluster"), "costs": _name("costs"), "device": _device}
FIELDS = {
    **NAMES,
    "memory model": _name("memory_model"),
    "recompute": _strategy("recompute", 2),
    "schedule": _strategy("schedule"),
    "cp_comm": _strategy("cp_comm"),
    "order": _strategy("order", 2),
    "recompute_modules": _space("recompute_modules", listed=True),
    "offload_modules": _space("offload_modules", listed=True),
    "divisions": _space("divisions", listed=True),
    "dispatcher": _dispatch("dispatcher"),
    "router_dtype": _dispatch("router_dtype"),
    "precision": _memory,
}


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder in a folder, to work in; nothing but what the test makes may stand there in the end."""
    folder = tmp_path / "deep" / "er"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    yield folder
    assert not [path for path in tmp_path.rglob("*") if "PWNED" in path.name]
    assert {path.name for path in tmp_path.iterdir()} == {"deep"}
    assert {path.name for path in (tmp_path / "deep").iterdir()} == {"er"}


@pytest.mark.parametrize("field", FIELDS)
def test_a_hostile_plan_is_refused_before_a_file_is_written(field: str, inside: Path) -> None:
    """Every field that a launcher's file could take from the plan, for each target in turn; digests fit."""
    for number, text in enumerate(HOSTILE):
        target = [*TARGETS][number % len(TARGETS)]
        document = copy.deepcopy(plan_of(target).plan.document)
        FIELDS[field](document, text)
        with pytest.raises(DataError) as raised:
            taut.export(taut.Plan(redigested(document)), target, inside / "out")
        assert "\n" not in str(raised.value)
        assert not (inside / "out").exists()


def test_a_changed_input_is_refused(inside: Path) -> None:
    """A plan whose digests are not those of its inputs contradicts itself."""
    document = copy.deepcopy(plan_of("megatron").plan.document)
    document["inputs"]["model"]["spec"]["hidden"] = 512
    with pytest.raises(DataError, match="sha256"):
        taut.export(taut.Plan(document), "megatron", inside / "out")


@pytest.mark.parametrize("target", ["torchrun", "slurm", "rankfile", "deepspeed", "flagscale"])
def test_hostile_hosts_are_refused(target: str, inside: Path) -> None:
    """Also a pattern of a shell, an option, and a list."""
    for text in (*HOSTILE, "*", "?", "-x", "a,b", "h[1-3]", "a=b", "a" * 254):
        with pytest.raises(DataError, match="hosts"):
            taut.export(plan_of(target).plan, target, inside / "out", hosts=["h0", text])
    assert not (inside / "out").exists()


@pytest.mark.parametrize("target", TARGETS)
def test_names_stay_text_in_every_format(target: str, inside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the check of the plan: what is written is run with launchers that print, read, and parsed."""
    stubs(inside / "bin")
    monkeypatch.setenv("PATH", f"{inside / 'bin'}:{os.environ['PATH']}")
    for number, text in enumerate(HOSTILE):
        document = copy.deepcopy(plan_of(target).plan.document)
        for change in NAMES.values():
            change(document, text)
        try:
            files = launch_files(Job(taut.Plan(document), ("fe80::1", "a.b-c_d")), [target])
        except DataError:
            # A hostfile has no quotes, so such a type of device has no word there.
            assert target == "flagscale"
            continue
        folder = inside / f"out{number}"
        folder.mkdir()
        for name, content in files.items():
            (folder / name).write_text(content)
        run_all(folder)


def stubs(folder: Path) -> None:
    """Launchers that do nothing."""
    folder.mkdir()
    for name in ("torchrun", "srun", "mpirun", "scontrol"):
        (folder / name).write_text("#!/bin/sh\nexit 0\n")
        (folder / name).chmod(0o755)


def run_all(folder: Path) -> None:
    """Run, read or parse every file by its kind, in its folder."""
    before = {path.name for path in folder.iterdir()}
    for path in sorted(folder.iterdir()):
        content = path.read_text()
        if path.suffix == ".sh":
            shell(["bash", "-n", path.name], folder)
        if path.name in ("torchrun.sh", "slurm.sh", "mpirun.sh"):
            # A node of the plan, and one that it has not, which the script says and ends.
            for node in ("a.b-c_d", "zz"):
                shell(["bash", path.name, "train.py"], folder, NODE=node, SLURM_SUBMIT_DIR=str(folder))
        elif path.name == "env.sh":
            shell(["bash", "-c", "source env.sh"], folder)
        elif path.suffix == ".json":
            json.loads(content)
        elif path.suffix == ".yaml":
            yaml.safe_load(content)
        elif path.suffix == ".py":
            module(content)
        elif path.name in ("megatron.args", "overrides.txt", "verl.txt", "flags-0.3.0.txt"):
            shell(["bash", "-c", f"printf '%s\\n' $(cat {path.name})"], folder)
        elif path.name == "launch.md":
            assert "<script" not in content and "](" not in content.replace("\\](", "")
    assert {path.name for path in folder.iterdir()} == before


def shell(command: list[str], folder: Path, **variables: str) -> None:
    """Run a command; it may end with 2, as for an unknown node, but finds no fault of syntax and no other command."""
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **variables}, capture_output=True, text=True, timeout=30
    )
    assert "syntax error" not in done.stderr and "not found" not in done.stderr
    assert done.returncode in (0, 2), done.stderr


def module(content: str) -> None:
    """Parse a module, whose statements are those that every plan has, and run it with a stand-in of torchtitan."""
    kinds = (ast.Assign, ast.FunctionDef, ast.ImportFrom)
    first, *others = ast.parse(content).body
    assert isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    assert all(isinstance(line, kinds) for line in others)
    imported = {line.module for line in others if isinstance(line, ast.ImportFrom)}
    assert imported <= {"pathlib", "copy", "torchtitan.distributed.activation_checkpoint"}
    parts = "torchtitan", "torchtitan.distributed", "torchtitan.distributed.activation_checkpoint"
    made: dict[str, Any] = {name: types.ModuleType(name) for name in parts}
    made[parts[-1]].FullAC = made[parts[-1]].SelectiveAC = object
    with pytest.MonkeyPatch.context() as patch:
        for name in parts:
            patch.setitem(sys.modules, name, made[name])
        exec(compile(content, "made.py", "exec"), {})
    named = {ast.unparse(line.targets[0]) for line in others if isinstance(line, ast.Assign)}
    if {"PARALLELISM", "SETTINGS"} & named:
        module_fields(content)
        return
    with pytest.raises(DataError, match="expected one configuration"):
        module_fields(content)


def test_every_framework_is_tried() -> None:
    """A new target has a plan of its own here."""
    assert set(KINDS) == {*FRAMEWORKS, *ORDERS}
