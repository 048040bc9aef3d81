"""A memory network as the planner's memory: trained, tabulated for even partitions, and carried by the certificate."""

from pathlib import Path

import numpy as np
import pytest

from taut.data.load import load_memory_model
from taut.data.memory import network_json
from taut.data.samples import ConfigurationRow, read_samples
from taut.data.units import GIB
from taut.formulations.tables.memory import candidate_features, network_stage_memory
from taut.planning.request import PlanRequest
from taut.planning.resolve import planning_problem
from taut.planning.solve import plan
from taut.prediction.rows import network_features, predict_rows
from taut.prediction.settings import Given
from taut.solver.calibration.memory_network import fit_network
from tests.taut.conftest import Run

HEAD = "gpu,n_gpus,hidden,layers,heads,seq,tp,pp,dp,micro_batch,global_batch,recompute,precision,measured_bytes"
pytestmark = [pytest.mark.proof, pytest.mark.filterwarnings("ignore::taut.errors.ExtrapolationWarning")]


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the analytic model says of a few hundred configurations of small GPTs."""
    lines = []
    for layers in (12, 24):
        for tp in (1, 2, 4, 8):
            for pp in (1, 2, 4):
                for batch in (1, 2, 4, 8):
                    for recompute in ("none", "full"):
                        dp = max(8 // tp // pp, 1)
                        shape = f"A100,{tp * pp * dp},1024,{layers},16,1024,{tp},{pp},{dp},{batch},{32 * dp}"
                        lines.append(f"{shape},{recompute},bf16,1")
    path = tmp_path_factory.mktemp("network") / "samples.csv"
    path.write_text("\n".join([HEAD, *lines]) + "\n")
    found = predict_rows([line.row for line in read_samples(path) if line.row is not None])
    measured = [f"{line.removesuffix(',1')},{one.memory_bytes}" for line, one in zip(lines, found, strict=True)]
    path.write_text("\n".join([HEAD, *measured]) + "\n")
    return path


@pytest.fixture(scope="module")
def network(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small network trained on them."""
    rows = [line.row for line in read_samples(samples) if line.row is not None]
    names = ["layers", "tp", "pp", "dp", "micro_batch", "full"]
    measured = np.array([row.measured_bytes for row in rows], dtype=float)
    about = {"name": "net", "precision": "bf16"}
    found = fit_network(network_features(rows, names), measured, about=about, names=names, hidden=(32, 32), steps=400)
    path = tmp_path_factory.mktemp("network") / "net.json"
    path.write_text(network_json(found))
    return path


def test_network_plans_even_partitions(network: Path) -> None:
    """Every stage gets as many layers as any other, its memory is the network's, and the certificate holds."""
    found = plan("gpt2-345m", "dgx-a100", global_batch=32, memory_model=str(network), fix={"pp": 4})
    lengths = [end - first for first, end in found.strategy.stages]
    assert lengths == [6, 6, 6, 6]
    request = PlanRequest("gpt2-345m", "dgx-a100", global_batch=32, memory_model=str(network), fix={"pp": 4})
    problem = planning_problem(request)
    chosen = next(
        c for c in problem.candidates if c.as_dict() == {key: getattr(found.strategy, key) for key in c.as_dict()}
    )
    model = load_memory_model(str(network)).network
    assert model is not None
    asked = model.predict(candidate_features(model.names, problem.model, chosen))
    kinds = {"none": 0, "selective": 1, "full": 2}
    wanted = [int(np.ceil(asked[kinds[kind]])) for kind in found.strategy.recompute]
    assert found.document["predicted"]["memory_bytes"] == wanted
    assert found.verify().holds
    assert "network of 3 layers for even partitions" in str(found)


def test_uneven_ranges_fit_no_device(network: Path) -> None:
    """A range with another number of layers than an even partition gives needs more than any device has."""
    request = PlanRequest("gpt2-345m", "dgx-a100", global_batch=32, memory_model=str(network), fix={"pp": 4})
    problem = planning_problem(request)
    model = load_memory_model(str(network)).network
    assert model is not None
    memory = network_stage_memory(model, problem.model, problem.candidates[0], [80 * GIB // 1024])
    assert memory.fixed[0, 0, 6] < memory.budget[0] < memory.fixed[0, 0, 7]
    assert memory.fixed[0, 6, 12] == memory.fixed[0, 0, 6]


@pytest.mark.parametrize(
    ("column", "value"), [("dp_shard", "2"), ("activation_offload_fraction", "0.5"), ("recompute_modules", "layernorm")]
)
def test_rows_that_the_network_does_not_know_are_refused(network: Path, column: str, value: str) -> None:
    """A row with a part that no run of the network had says which."""
    cells = {"gpu": "A100", "n_gpus": "8", "hidden": "1024", "layers": "12", "heads": "16", "seq": "1024", "tp": "1"}
    cells |= {"pp": "1", "dp": "8", "micro_batch": "1", "global_batch": "32", "zero": "1", "recompute": "none"}
    cells |= {"recompute": "selective:layernorm"} if column == "recompute_modules" else {column: value}
    cells |= {"zero": "3"} if column == "dp_shard" else {}
    row = ConfigurationRow.parse_cells(cells, "row")
    found = predict_rows([row], Given(memory_model=load_memory_model(str(network))))[0]
    assert found.error.startswith(f"{column} is {value}, expected none, as net does not know it")


def test_command_trains_a_network(run: Run, samples: Path, tmp_path: Path) -> None:
    """The file is JSON that plans; another suffix is refused before any training."""
    refused = run("fit", "memory", str(samples), "--kind", "network", "--out", str(tmp_path / "net.yaml"))
    assert (refused.code, "expected a .json file" in refused.err) == (2, True)
    refused = run("fit", "memory", str(samples), "--kind", "forest", "--out", str(tmp_path / "net.json"))
    assert (refused.code, "--kind forest: expected terms or network" in refused.err) == (2, True)


@pytest.mark.parametrize("method", ["cp-sat", "cbc"])
def test_integer_program_holds_the_networks_memory(network: Path, method: str) -> None:
    """With the network's rows the program chooses the optimum of the search, and its certificate holds."""
    request = PlanRequest("gpt2-345m", "dgx-a100", global_batch=32, memory_model=str(network), fix={"tp": 1})
    searched, found = plan(request), plan(request, method=method)
    assert found.step_time_s == pytest.approx(searched.step_time_s)
    assert found.verify().holds
