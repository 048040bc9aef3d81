"""The command line: exit codes, one line for what is wrong, results on stdout and progress on stderr."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from taut.commands import app as cli
from taut.data.load import load_cluster
from taut.errors import DataError, FormulationError
from taut.solver.branch_and_bound.stop import interrupt_requested
from tests.taut.conftest import Outcome, Run, refused

PLAN = ("plan", "gpt2-345m", "g4dn.12xlarge", "--global-batch", "8")
NODE = "{count: 2, device: t4-16gb, gpus_per_node: 4, intra_bandwidth_gbps: 50}"
NETWORK = "network: {bandwidth_gbps: 10}"
MODEL = "layers: 4\nhidden: 12\nheads: 4\nseq: 8\n"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plan written by the command line."""
    path = tmp_path_factory.mktemp("made") / "plan.json"
    cli.app([*PLAN, "--quiet", "--out", str(path)], standalone_mode=False)
    return path


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


CLUSTERS = {
    "empty": ("nodes: []", "nodes: is an empty list, expected at least one node"),
    "zero": (f"nodes: [{NODE}]\nnetwork: {{bandwidth_gbps: 0}}", "network.bandwidth_gbps: is 0, expected"),
    "negative": (f"nodes: [{NODE.replace('50', '-50')}]\n{NETWORK}", "intra_bandwidth_gbps: is -50, expected"),
    "nan": (f"nodes: [{NODE}]\nnetwork: {{bandwidth_gbps: .nan}}", "bandwidth_gbps: is nan, expected a finite number"),
    "unknown": (f"nodes: [{NODE}]\ncolour: red\n{NETWORK}", "colour: unknown field"),
    "matrix": (
        f"nodes: [{NODE}]\nbandwidth_matrix: {{unit: Gb/s, rows: [[0, 1, 1], [1, 0, 1], [1, 1, 0]]}}",
        "bandwidth_matrix: has 3 rows, expected 2 (one per node) or 8 (one per device)",
    ),
    "bomb": ("a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]", "line 2: alias *a is not allowed"),
    "deep": ("[" * 5000, "is nested too deeply"),
    "text": ("hello", "holds str, expected a cluster file"),
}


@pytest.mark.parametrize("name", CLUSTERS)
def test_wrong_cluster_files_stop_in_one_line(tmp_path: Path, run: Run, name: str) -> None:
    """A wrong cluster file is one line and exit code 2, and no plan is written."""
    text, words = CLUSTERS[name]
    path, out = write(tmp_path, f"{name}.yaml", text), tmp_path / "plan.json"
    outcome = run("plan", "gpt2-345m", path, "--global-batch", 8, "--quiet", "--out", out)
    refused(outcome, f"{path}")
    assert words in outcome.err
    assert not out.exists()


MODELS = {
    "heads.yaml": (MODEL.replace("12", "10"), "hidden is 10, expected a multiple of heads (4)"),
    "kv.yaml": (MODEL + "kv_heads: 3\n", "heads is 4, expected a multiple of kv_heads (3)"),
    "unknown.yaml": (MODEL + "colour: red\n", "colour: unknown field"),
    "many.yaml": (MODEL.replace("layers: 4", "layers: 4000000"), "layers.number: is 4000000, expected"),
    "truncated.json": ('{"hidden_size": 4096, "num_hid', "line 1: Unterminated string"),
    "date.yaml": ("name: 2024-13-45\n" + MODEL, "holds a value of the wrong form"),
}


@pytest.mark.parametrize("name", MODELS)
def test_wrong_model_files_stop_in_one_line(tmp_path: Path, run: Run, name: str) -> None:
    """A wrong model file is one line and exit code 2, and no plan is written."""
    text, words = MODELS[name]
    path, out = write(tmp_path, name, text), tmp_path / "plan.json"
    outcome = run("plan", path, "g4dn.12xlarge", "--global-batch", 8, "--quiet", "--out", out)
    refused(outcome, f"{path}")
    assert words in outcome.err
    assert not out.exists()


def test_values_may_be_fixed_one_by_one(run: Run, tmp_path: Path) -> None:
    """Every ``--fix`` holds, not the last alone."""
    options = ("--fix", "tp=2", "--fix", "pp=4", "--fix", "schedule=1f1b", "--work-limit", 2)
    outcome = run(
        "plan", "gpt-1.1b", "dgx-a100", "--global-batch", 16, "--json", *options, "--out", tmp_path / "a.json"
    )
    found = json.loads(outcome.out)["strategy"]
    assert (found["tp"], found["pp"], found["schedule"]) == (2, 4, "1f1b")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--fix", "dp=3"], "--fix dp=3: expected a divisor of the 128 devices"),
        (["--fix", "tp=7"], "--fix tp=7: expected a divisor of the 128 devices"),
        (["--fix", "tp=-2"], "--fix tp=-2: expected a divisor of the 128 devices"),
        (["--fix", "tp"], "--fix tp: expected NAME=VALUE"),
        (["--fix", "tp=2,tp=4"], "--fix tp=2,tp=4: tp stands twice"),
        (["--fix", "tp=2", "--fix", "tp=4"], "--fix tp=2,tp=4: tp stands twice"),
        (["--fix", "colour=3"], "--fix colour=3: unknown name, expected one of pp, tp"),
        (["--fix", "schedule=zigzag"], "--fix schedule=zigzag"),
        (["--global-batch", "0"], "--global-batch 0: expected a number of sequences"),
        (["--global-batch", "-8"], "--global-batch -8: expected a number of sequences"),
        (["--global-batch", "1" + "0" * 400], "expected a number of sequences from 1 to"),
        (["--global-batch", "many"], "'--global-batch'"),
        (["--gap", "2"], "--gap 2: expected a share from 0 to 1"),
        (["--gap", "nan"], "--gap nan: expected"),
        (["--time-limit", "0"], "--time-limit 0: expected a number above 0"),
        (["--time-limit", "nan"], "--time-limit nan: expected a number above 0"),
        (["--work-limit", "-1"], "--work-limit -1: expected a whole number above 0"),
        (["--workers", "0"], "--workers 0: expected a whole number above 0"),
        (["--max-tp", "0"], "--max-tp 0: expected a whole number above 0"),
        (["--latency-model", "foo"], "--latency-model foo: expected one of step, pipette, pipette-printed, amp"),
        (["--precision", "int8"], "--precision int8: expected one of bf16"),
        (["--precision", "bf16"], "device v100-32gb: no peak rate for precision bf16"),
        (["--seq", "0"], "--seq 0: expected a number of tokens above 0"),
        (["--profile", "nowhere.csv"], "nowhere.csv: No such file or directory, expected a cost table"),
        (["--memory-model", "nowhere.yaml"], "nowhere.yaml: No such file or directory, expected a memory model file"),
        (["--no-such-option"], "--no-such-option"),
    ],
)
def test_wrong_options_stop_in_one_line(tmp_path: Path, run: Run, options: list[str], words: str) -> None:
    """A wrong option is one line and exit code 2, and no plan is written; the last of an option given twice counts."""
    out = tmp_path / "plan.json"
    base = ("plan", "gpt2-345m", "pipette-mid-range", "--global-batch", "128", "--quiet", "--out", out)
    refused(run(*base, *options), words)
    assert not out.exists()


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["plan", "gpt-5", "g4dn.12xlarge", "--global-batch", "8"], "model 'gpt-5' is not in the catalog"),
        (["plan", "gpt2-345m", "b999", "--global-batch", "8"], "cluster 'b999' is not in the catalog"),
        (["plan", "gpt2-345m", "dgx-a100:0", "--global-batch", "8"], "node count is '0'"),
        (["plan", "nowhere.yaml", "g4dn.12xlarge", "--global-batch", "8"], "nowhere.yaml: No such file or directory"),
        (["plan", "nowhere.json", "g4dn.12xlarge", "--global-batch", "8"], "nowhere.json: No such file or directory"),
        (["plan", "gpt2-345m", "g4dn.12xlarge"], "--global-batch"),
        (["plan", "gpt2-345m"], "CLUSTER"),
        (["verify", "nowhere.json"], "nowhere.json: No such file or directory, expected a plan"),
        (["show", "nowhere.json"], "nowhere.json: No such file or directory, expected a plan"),
        (["place", "nowhere.dat"], "nowhere.dat"),
        (["place", "nowhere.dat", "--time-limit", "-1"], "--time-limit -1: expected a number above 0"),
        (["catalog", "colours"], "catalog 'colours': expected one of models, clusters, devices"),
        (["dance"], "'dance'"),
    ],
)
def test_wrong_words_stop_in_one_line(run: Run, words: list[str], complaint: str) -> None:
    """Unknown names, missing files and missing arguments are one line and exit code 2."""
    refused(run(*words), complaint)


@pytest.mark.parametrize(
    "words", [["plan", "{}", "g4dn.12xlarge", "--global-batch", "8"], ["verify", "{}"], ["show", "{}"]]
)
def test_folders_and_binary_files_stop_in_one_line(tmp_path: Path, run: Run, words: list[str]) -> None:
    """A folder or a binary file where text is expected is one line and exit code 2."""
    folder, binary = tmp_path / "folder.json", tmp_path / "binary.json"
    folder.mkdir()
    binary.write_bytes(bytes(range(256)))
    refused(run(*(word.format(folder) for word in words)), "folder.json: Is a directory, expected a")
    refused(run(*(word.format(binary) for word in words)), "binary.json: is not UTF-8 text, expected a")


def test_output_folder_must_exist_before_the_search(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that could not be written is not searched for: no folder, a folder as the file, one that refuses files."""
    monkeypatch.setattr("taut.planning.solve.search", lambda *_: pytest.fail("searched"))
    refused(run(*PLAN, "--out", tmp_path / "nowhere" / "plan.json"), "there is no folder")
    folder = tmp_path / "plan.json"
    folder.mkdir()
    refused(run(*PLAN, "--quiet", "--out", folder), "plan.json: is a folder, expected a writable file name")
    monkeypatch.setattr("os.access", lambda path, mode: path != folder)
    refused(run(*PLAN, "--out", folder / "p.json"), "plan.json cannot be written, expected a writable file name")
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.parametrize("seed", ["-1", "2147483648"])
@pytest.mark.parametrize(
    "words",
    [
        PLAN,
        ("pareto", *PLAN[1:]),
        ("place", "nowhere.dat"),
        ("schedule",),
        ("fit", "memory", "nowhere.csv", "--out", "m.json", "--kind", "network"),
    ],
)
def test_seeds_that_no_search_takes_are_refused(words: tuple[str, ...], seed: str, run: Run) -> None:
    """Random bits begin from 0 to 2^31 - 1 everywhere."""
    refused(run(*words, "--seed", seed), f"--seed {seed}: expected a whole number from 0 to 2147483647")


@pytest.mark.proof
def test_model_that_cannot_fit_is_proven_so(tmp_path: Path, run: Run) -> None:
    """Exit code 3 names the device, the missing bytes and the nearest way out in one sentence; nothing is written."""
    out = tmp_path / "plan.json"
    outcome = run("plan", "llama2-7b", "g4dn.12xlarge", "--global-batch", 4, "--quiet", "--out", out)
    refused(outcome, "no plan fits", code=3)
    # 6.7e9 parameters of 20 bytes are 125 GiB on 4 devices of 16 GiB, 15.2 of them beside the margin of 5 %.
    assert "(t4-16gb, stage" in outcome.err
    assert " bytes) on device " in outcome.err
    assert "nearest way out: " in outcome.err
    assert not out.exists()


def test_limit_before_the_first_plan_is_said(run: Run) -> None:
    """Exit code 4 says which limit came first and what was proven by then."""
    given = "plan", "llama2-7b", "g4dn.12xlarge", "--global-batch", 4, "--fix", "schedule=interleaved-1f1b"
    outcome = run(*given, "--quiet", "--time-limit", 1e-9)
    refused(outcome, "no plan found: the time limit came first", code=4)
    assert "no plan is faster than" in outcome.err


def test_ctrl_c_before_a_plan_is_said(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt that leaves nothing to show is exit code 4, without a traceback."""

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("taut.planning.solve.plan_request", interrupt)
    refused(run(*PLAN), "interrupted before there was a result", code=4)


@pytest.mark.parametrize("signals", [1, 2])
def test_an_error_that_follows_a_signal_is_one_line(run: Run, monkeypatch: pytest.MonkeyPatch, signals: int) -> None:
    """A compiled library that was being loaded says ``ImportError``; that a second signal came is said of two alone."""

    def load(*_: object, **__: object) -> None:
        with interrupt_requested():
            try:
                for _number in range(signals):
                    signal.raise_signal(signal.SIGINT)
                raise KeyboardInterrupt
            except KeyboardInterrupt as cut:
                raise ImportError("initialization failed") from cut

    monkeypatch.setattr("taut.planning.solve.plan_request", load)
    said = (
        "interrupted before there was a result" if signals == 1 else "interrupted again before the result was written"
    )
    refused(run(*PLAN), said, code=4)


@pytest.mark.parametrize("error", [DataError("one\nand two"), FormulationError("one and two")])
def test_errors_of_ours_are_put_in_one_line(run: Run, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Even a message that spans lines is printed as one."""

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("taut.planning.solve.plan_request", fail)
    refused(run(*PLAN), "taut: one and two")


def test_too_large_a_problem_is_said(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Running out of memory is one line, not a traceback."""

    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr("taut.planning.solve.plan_request", fail)
    refused(run(*PLAN), "not enough memory for a problem of this size")


def test_plan_as_json_has_the_stated_fields(run: Run) -> None:
    """``plan --json`` prints the stable document and nothing else on stdout."""
    outcome = run(*PLAN, "--json", "--quiet")
    assert (outcome.code, outcome.err) == (0, "")
    document = json.loads(outcome.out)
    assert document["format"] == "taut-plan/1"
    assert document["status"] in ("optimal", "feasible")
    assert document["placement"]["order"] == "pp,dp,tp"
    fields = {
        "strategy": "pp tp dp vpp micro_batch num_micro_batches schedule zero sequence_parallel stages recompute",
        "placement": "order devices",
        "predicted": "step_time_s breakdown_s memory_bytes margin_bytes capacity_bytes tokens_per_s mfu hfu busy_s",
        "certificate": "objective_s lower_bound_s gap communication_gap verified_gap lower_bound_no_margin_s "
        "latency_model space candidates",
        "inputs": "model cluster costs memory_model",
        "provenance": "taut solvers seed limits wall_s",
    }
    for section, names in fields.items():
        assert set(names.split()) <= document[section].keys(), section
    for candidate in document["certificate"]["candidates"]:
        assert candidate.keys() >= {"strategy", "state", "lower_bound_s", "source", "witness"}
    for given in document["inputs"].values():
        assert {"name", "sha256"} <= given.keys()


def test_plan_is_said_in_words_without_json(run: Run) -> None:
    """Without ``--json`` stdout holds the plan in words, with status, bound and gap."""
    outcome = run(*PLAN, "--quiet")
    assert (outcome.code, outcome.err) == (0, "")
    for words in ("gpt2-345m on g4dn.12xlarge: 4 devices", "strategy", "step time", "lower bound", "gap", "memory"):
        assert words in outcome.out


def test_progress_goes_to_stderr_unless_quiet(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress is lines on stderr, so that stdout can be piped; ``--quiet`` leaves stderr empty."""
    monkeypatch.setattr("taut.commands.progress.SECONDS_BETWEEN", 0.0)
    loud, quiet = run(*PLAN, "--json"), run(*PLAN, "--json", "--quiet")
    assert "lower bound" in loud.err
    assert "bound" in loud.err
    assert quiet.err == ""
    assert json.loads(loud.out)["strategy"] == json.loads(quiet.out)["strategy"]


def test_written_plan_is_verified_and_shown(made: Path, run: Run) -> None:
    """A plan written with ``--out`` holds under ``verify`` and is said again by ``show``."""
    outcome = run("verify", made)
    assert (outcome.code, outcome.err) == (0, "")
    assert f"{made}: holds; step time" in outcome.out
    report = json.loads(run("verify", made, "--json").out)
    document = json.loads(made.read_text(encoding="utf-8"))
    assert report["holds"] is True
    assert report["faults"] == []
    assert report["verified_gap"] == pytest.approx(document["certificate"]["gap"], abs=1e-9)
    assert json.loads(run("show", made, "--json").out) == document
    shown = run("show", made)
    assert (shown.code, shown.err) == (0, "")
    head, proof = run(*PLAN, "--quiet").out.split("\nstatus ")
    assert shown.out.startswith(head)
    assert shown.out.endswith(f"\nstatus {proof}")


def corrupted(made: Path, folder: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    document = json.loads(made.read_text(encoding="utf-8"))
    change(document)
    return write(folder, "corrupted.json", json.dumps(document))


@pytest.mark.parametrize(
    "change",
    [
        lambda plan: plan["predicted"].update(step_time_s=plan["predicted"]["step_time_s"] / 2),
        lambda plan: plan["certificate"].update(lower_bound_s=plan["certificate"]["lower_bound_s"] * 1.01),
        lambda plan: plan["certificate"]["candidates"].pop(),
        lambda plan: plan["placement"]["devices"][0][0].__setitem__(0, 99),
        lambda plan: plan["placement"].update(devices=[[[0, 1, 2, 3]]]),
        lambda plan: plan["inputs"]["model"]["spec"].update(seq=8),
        lambda plan: plan["strategy"].update(micro_batch=3),
    ],
)
def test_corrupted_plan_does_not_hold(
    made: Path, tmp_path: Path, run: Run, change: Callable[[dict[str, Any]], object]
) -> None:
    """A changed figure, candidate, placement, input or strategy is exit code 1 and one line on stderr."""
    path = corrupted(made, tmp_path, change)
    assert json.loads(path.read_text(encoding="utf-8")) != json.loads(made.read_text(encoding="utf-8"))
    refused(run("verify", path), f"{path}: does not hold: ", code=1)
    outcome = run("verify", path, "--json")
    assert outcome.code == 1
    assert json.loads(outcome.out)["holds"] is False


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda plan: plan.pop("strategy"), "strategy: missing"),
        (lambda plan: plan.update(format="taut-plan/9"), "format"),
        (lambda plan: plan["predicted"].update(step_time_s="fast"), "predicted.step_time_s: is 'fast'"),
    ],
)
def test_malformed_plan_is_bad_input(
    made: Path, tmp_path: Path, run: Run, change: Callable[[dict[str, Any]], object], words: str
) -> None:
    """What is not a plan at all is exit code 2 for ``verify`` and ``show`` alike."""
    path = corrupted(made, tmp_path, change)
    refused(run("verify", path), words)
    refused(run("show", path), words)


@pytest.mark.parametrize(
    "change",
    [
        lambda plan: plan["predicted"]["breakdown_s"].clear(),
        lambda plan: plan["strategy"]["recompute"].clear(),
        lambda plan: plan["strategy"]["stages"][0].pop(),
        lambda plan: plan["placement"]["devices"].clear(),
        lambda plan: plan["predicted"]["memory_bytes"].clear(),
        lambda plan: plan["certificate"]["space"].clear(),
        lambda plan: plan["inputs"]["costs"]["spec"].clear(),
        lambda plan: plan["inputs"]["memory_model"]["spec"].update(margin="much"),
        lambda plan: plan["inputs"].pop("model"),
    ],
)
def test_show_refuses_plans_that_lack_figures(
    made: Path, tmp_path: Path, run: Run, change: Callable[[dict[str, Any]], object]
) -> None:
    """A document of the right form that lacks what ``show`` prints is one line and exit code 2."""
    refused(run("show", corrupted(made, tmp_path, change)), "expected a plan written by taut")


def test_catalog_lists_everything_with_its_source(run: Run) -> None:
    """The catalog is a table, or JSON with every entry; a section can be asked for alone."""
    outcome = run("catalog")
    assert (outcome.code, outcome.err) == (0, "")
    for name in ("models", "clusters", "devices", "gpt3-175b", "pipette-high-end", "a100-80gb", "arXiv"):
        assert name in outcome.out
    listing = json.loads(run("catalog", "--json").out)
    assert listing.keys() >= {"models", "clusters", "devices"}
    assert all(entry["source"] for entries in listing.values() for entry in entries)
    assert set(json.loads(run("catalog", "models", "--json").out)) == {"models"}


@pytest.mark.proof
def test_place_solves_a_tiny_instance(tmp_path: Path, run: Run) -> None:
    """An instance of three items is solved to its optimum, and its permutation costs what is said."""
    # Flow 5 between items 0 and 1, 2 between 0 and 2, 1 between 1 and 2; distances 1 (0-1), 2 (0-2), 3 (1-2).
    # The largest flow takes the shortest way: 2 x (5 x 1 + 2 x 2 + 1 x 3) = 24 with the identity, counted both ways.
    text = "3\n\n0 5 2\n5 0 1\n2 1 0\n\n0 1 2\n1 0 3\n2 3 0\n"
    path = write(tmp_path, "tiny.dat", text)
    report = json.loads(run("place", path, "--json", "--quiet").out)
    assert report["objective"] == report["lower_bound"] == 24
    assert report["gap"] == 0
    assert report["status"] == "optimal"
    assert report["permutation"] == [0, 1, 2]
    assert report.keys() >= {"objective", "lower_bound", "gap", "status", "permutation", "wall_s"}
    outcome = run("place", path, "--quiet")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith("tiny: objective 24, lower bound 24")


@pytest.mark.proof
def test_import_mpigraph_writes_a_cluster(tmp_path: Path, run: Run) -> None:
    """The cluster file that ``import mpigraph`` writes is one that ``plan`` reads."""
    path = write(tmp_path, "links.csv", "host,a,b\na,0,1000\nb,900,0\n")
    out = tmp_path / "cluster.yaml"
    words = ("import", "mpigraph", path, "--gpus-per-node", 4, "--intra-bandwidth-gbps", 50, "--out", out)
    outcome = run(*words, "--device", "t4-16gb")
    assert (outcome.code, outcome.out) == (0, "")
    assert outcome.err == f"{out}: 2 nodes, 8 devices\n"
    cluster = load_cluster(str(out))
    assert (cluster.name, cluster.num_devices) == ("links", 8)
    assert run("plan", "gpt2-345m", out, "--global-batch", 8, "--work-limit", 5, "--quiet").code == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--device", "b999", "--gpus-per-node", "4"], "--device: is 'b999', expected one of a100-40gb"),
        (["--device", "t4-16gb", "--gpus-per-node", "0"], "links: nodes.0.gpus_per_node: is 0, expected"),
        (["--device", "t4-16gb", "--gpus-per-node", "4", "--intra-bandwidth-gbps", "nan"], "is nan, expected a finite"),
    ],
)
def test_import_mpigraph_refuses_what_no_cluster_has(tmp_path: Path, run: Run, options: list[str], words: str) -> None:
    """A wrong device or figure is one line and exit code 2, and no cluster file is written."""
    path, out = write(tmp_path, "links.csv", "host,a,b\na,0,1000\nb,900,0\n"), tmp_path / "cluster.yaml"
    refused(run("import", "mpigraph", path, "--intra-bandwidth-gbps", 50, "--out", out, *options), words)
    assert not out.exists()


def test_version_and_help_are_on_stdout(run: Run) -> None:
    """``--version`` prints the installed version; ``--help`` names every verb; no words at all print help, exit 2."""
    assert run("--version") == Outcome(0, f"taut {version('taut')}\n", "")
    outcome = run("--help")
    assert (outcome.code, outcome.err) == (0, "")
    for verb in ("plan", "verify", "show", "catalog", "place", "import"):
        assert verb in outcome.out
    for words in ((), ("import",)):
        nothing = run(*words)
        assert (nothing.code, nothing.err) == (2, "")
        assert "Usage: " in nothing.out
    assert "--overlap-moe-expert-parallel-comm" in run("plan", "--help").out, "no name is cut in 80 columns"
    assert "--quiet" in run("verify", "--help").out and "--quiet" in run("reproduce", "amp", "--help").out


@pytest.mark.parametrize(
    "statement", ["import taut", "import taut.commands.app; taut.commands.app.app(['--help'], standalone_mode=False)"]
)
def test_help_and_import_load_nothing_heavy(statement: str) -> None:
    """Neither the package nor its help loads a solver, a compiler, a plotting or a learning library."""
    heavy = ["numba", "ortools", "scipy", "pulp", "torch", "matplotlib", "networkx"]
    check = f"import sys; print([name for name in {heavy} if name in sys.modules], file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", f"{statement}; {check}"], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stderr == "[]\n"


@pytest.mark.parametrize(
    ("given", "seconds", "gap"),
    [((), 60.0, 1e-3), (("--time-limit", "none", "--gap", 0), None, 1e-6), (("--time-limit", 5), 5.0, 1e-3)],
)
def test_a_search_stops_at_a_gap_or_after_a_minute_unless_asked(
    given: tuple[object, ...], seconds: float | None, gap: float, run: Run
) -> None:
    """By default at 0.1 % or 60 s; ``none`` is no limit, and a gap of 0 that of an optimal plan."""
    outcome = run("plan", "gpt2-345m", "dgx-a100", "--global-batch", 8, "--fix", "tp=1,pp=1", "-q", "--json", *given)
    limits = json.loads(outcome.out)["provenance"]["limits"]
    assert limits == {"time_s": seconds, "work": None, "gap": gap}


def test_a_search_that_a_gap_stopped_names_the_flag(run: Run) -> None:
    """The plan says what it was asked for and what goes on; an optimal plan does not."""
    words = ("plan", "gpt2-345m", "amp-homogeneous", "--global-batch", 32, "--schedules", "1f1b", "-q")
    stopped, whole = (" ".join(run(*words, *more).out.split()) for more in (("--gap", 0.3), ("--fix", "pp=1,zero=1")))
    assert "feasible, within the gap asked for" in stopped and "as asked (--gap 0.3); --gap 0 goes on" in stopped
    assert "status optimal" in whole and "--gap" not in whole
